"""The reader of misc files: cgroups that come, go, lose the controller; descriptors given back."""

import errno
from collections.abc import Sequence

import pytest

from nodeward.doubles.kernel import SimKernel
from nodeward.edges.cgroups import sampler
from nodeward.edges.cgroups.capacity import read_capacity
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.model.events import MiscReading
from tests.faults import FaultyFiles

ROOT = "/sys/fs/cgroup"


@pytest.fixture(name="kernel")
def _kernel() -> SimKernel:
    kernel = SimKernel({"sgx_epc": 1 << 20})
    kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
    kernel.mkdir(f"{ROOT}/pod")
    return kernel


class Disturbed(FaultyFiles):
    """Files that can say nonsense, and of which nobody can wait for a change."""

    reads = waits = True

    def pread(self, handle: int, max_bytes: int) -> bytes:
        found = super().pread(handle, max_bytes)
        return found if self.reads else b"no counters"

    def wait(self, handles: Sequence[int], timeout_s: float) -> list[int]:
        if not self.waits:
            raise OSError(errno.EINVAL, "more descriptors than are allowed")
        return super().wait(handles, timeout_s)


def test_a_cgroup_is_read_whole(kernel: SimKernel) -> None:
    kernel.write(f"{ROOT}/pod/misc.max", b"sgx_epc 8192")
    kernel.charge(f"{ROOT}/pod", "sgx_epc", 4096)
    with pytest.raises(OSError, match="busy"):
        kernel.charge(f"{ROOT}/pod", "sgx_epc", 8192)

    found = sampler.Reader(kernel, Tree(kernel, ROOT)).read(["/pod"])

    assert found.capacity is not None
    assert found.capacity.capacity == {"sgx_epc": 1 << 20}
    assert found.readings["/pod"] == MiscReading(
        limit={"sgx_epc": 8192},
        usage={"sgx_epc": 4096},
        peak={"sgx_epc": 4096},
        refusals={"sgx_epc": 1},
        refusals_local={"sgx_epc": 1},
    )


def test_a_change_in_any_one_file_is_seen_and_what_is_unchanged_is_not_understood_again(kernel: SimKernel) -> None:
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    first = reader.read(["/pod"]).readings["/pod"]
    assert reader.read(["/pod"]).readings["/pod"] is first

    kernel.write(f"{ROOT}/pod/misc.max", b"sgx_epc 8192")
    limited = reader.read(["/pod"]).readings["/pod"]
    kernel.charge(f"{ROOT}/pod", "sgx_epc", 4096)
    charged = reader.read(["/pod"]).readings["/pod"]
    with pytest.raises(OSError, match="busy"):
        kernel.charge(f"{ROOT}/pod", "sgx_epc", 8192)

    assert (first.limit, limited.limit, limited.usage) == ({}, {"sgx_epc": 8192}, {"sgx_epc": 0})
    assert (charged.usage, charged.refusals) == ({"sgx_epc": 4096}, {"sgx_epc": 0})
    assert reader.read(["/pod"]).readings["/pod"].refusals == {"sgx_epc": 1}


def test_files_of_events_are_read_again_only_once_the_kernel_tells_of_them(kernel: SimKernel) -> None:
    counted = Disturbed(kernel)
    reader = sampler.Reader(counted, Tree(counted, ROOT))

    def reads() -> int:
        before = counted.calls["pread"]
        reader.read(["/pod"], with_root=False)
        return counted.calls["pread"] - before

    kernel.write(f"{ROOT}/pod/misc.max", b"sgx_epc 8192")
    assert [reads(), reads()] == [5, 3]
    with pytest.raises(OSError, match="busy"):
        kernel.charge(f"{ROOT}/pod", "sgx_epc", 9000)
    assert [reads(), reads()] == [5, 3]
    counted.waits = False
    assert reads() == 5


def test_what_was_read_and_not_understood_is_read_again(kernel: SimKernel) -> None:
    garbled = Disturbed(kernel)
    reader = sampler.Reader(garbled, Tree(garbled, ROOT))
    kernel.write(f"{ROOT}/pod/misc.max", b"sgx_epc 8192")
    reader.read(["/pod"])
    with pytest.raises(OSError, match="busy"):
        kernel.charge(f"{ROOT}/pod", "sgx_epc", 9000)
    garbled.reads = False
    assert reader.read(["/pod"]).readings == {}
    garbled.reads = True
    assert reader.read(["/pod"]).readings["/pod"].refusals == {"sgx_epc": 1}


def test_a_cgroup_of_another_tree_is_not_gone(kernel: SimKernel) -> None:
    pod = "/kubepods/pod1"
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    seen = reader.read([pod])
    assert (seen.gone, seen.readings[pod].controller) == ((), False)
    kernel.mkdir(f"{ROOT}/kubepods")
    assert reader.read([pod]).gone == (pod,)


def test_a_cgroup_that_is_gone_is_said_to_be_gone(kernel: SimKernel) -> None:
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    reader.read(["/pod"])
    kernel.rmdir(f"{ROOT}/pod")

    assert reader.read(["/pod", "/never"]).gone == ("/pod", "/never")
    assert reader.open_files == 0


def test_a_cgroup_that_is_only_watched_is_not_read_and_is_said_to_be_gone(kernel: SimKernel) -> None:
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    found = reader.read([], watched=["/pod"])
    assert (found.readings, found.gone, reader.open_files) == ({}, (), 0)
    kernel.rmdir(f"{ROOT}/pod")
    kernel.mkdir(f"{ROOT}/pod2")

    assert reader.read(["/pod2"], watched=["/pod2/inside"]).gone == ("/pod2/inside",)


def test_a_cgroup_made_anew_is_read_anew(kernel: SimKernel) -> None:
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    reader.read(["/pod"])
    kernel.rmdir(f"{ROOT}/pod")
    kernel.mkdir(f"{ROOT}/pod")
    kernel.write(f"{ROOT}/pod/misc.max", b"sgx_epc 4096")

    assert reader.read(["/pod"]).readings["/pod"].limit == {"sgx_epc": 4096}


def test_a_cgroup_without_misc_files_has_no_controller(kernel: SimKernel) -> None:
    kernel.mkdir(f"{ROOT}/pod/inner")

    assert sampler.Reader(kernel, Tree(kernel, ROOT)).read(["/pod/inner"]).readings["/pod/inner"] == MiscReading(
        controller=False
    )


def test_descriptors_of_cgroups_nobody_asks_for_are_given_back(kernel: SimKernel) -> None:
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    reader.read(["/pod"])
    assert reader.open_files == 5

    reader.read([])

    assert reader.open_files == 0


def test_a_kernel_without_the_controller_says_so() -> None:
    kernel = SimKernel({}, controllers=("cpu", "memory"))

    assert not read_capacity(kernel, Tree(kernel, ROOT)).controller


def test_a_cgroup_that_cannot_be_read_is_not_said_to_be_gone(kernel: SimKernel) -> None:
    found = sampler.Reader(
        FaultyFiles(kernel, fail_at=1, fail_errno=errno.EMFILE),
        Tree(FaultyFiles(kernel, fail_at=1, fail_errno=errno.EMFILE), ROOT),
    ).read(["/pod"])

    assert (found.readings, found.gone) == ({}, ())
