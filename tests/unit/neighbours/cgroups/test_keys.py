"""The reader of key counters: what is told when, who holds what, cgroups that come, go and hang."""

import errno
import os
from typing import TYPE_CHECKING

import pytest

from nodeward.core.events import HeldElsewhere, KeysRead
from nodeward.core.workload import PodUid
from nodeward.neighbours.cgroups import keys
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.cgroups.keys import KeyReader
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles

if TYPE_CHECKING:
    from _collections_abc import dict_values

ROOT = "/sys/fs/cgroup"
POD = PodUid("a")
HOMES = {POD: "/kubepods/poda"}


@pytest.fixture(name="kernel")
def _kernel() -> SimKernel:
    kernel = SimKernel({"tdx": 16, "sgx_epc": 1 << 20})
    for path in ("/kubepods/poda", "/machine.slice/vm.scope"):
        kernel.make_cgroup(f"{ROOT}{path}")
    for path in ("", "/kubepods", "/machine.slice"):
        kernel.write(f"{ROOT}{path}/cgroup.subtree_control", b"+misc")
    return kernel


def look(reader: KeyReader, homes: dict[PodUid, str] | None = None, *, due: bool = True) -> KeysRead | None:
    return reader.look(("tdx",), HOMES if homes is None else homes, due, 7)


def sample(reader: KeyReader, homes: dict[PodUid, str] | None = None) -> KeysRead:
    found = look(reader, homes)
    assert found is not None
    return found


def test_a_sample_has_the_nodes_keys_and_each_pods_and_no_other_resource(kernel: SimKernel) -> None:
    kernel.charge(f"{ROOT}/kubepods/poda", "tdx", 2)
    kernel.charge(f"{ROOT}/kubepods/poda", "sgx_epc", 4096)

    assert sample(KeyReader(kernel, Tree(kernel, ROOT))) == KeysRead(
        7, {"tdx": 16}, {"tdx": (2, 2)}, {POD: {"tdx": (2, 2)}}
    )


def test_a_key_of_a_pod_whose_counter_cannot_be_read_is_no_orphans(kernel: SimKernel) -> None:
    class Unreadable(FaultyFiles):
        def open(self, path: str) -> int:
            if path == f"{ROOT}/kubepods/podb/misc.current":
                raise OSError(errno.EIO, "odd")
            return super().open(path)

    kernel.make_cgroup(f"{ROOT}/kubepods/podb")
    kernel.charge(f"{ROOT}/kubepods/poda", "tdx", 1)
    kernel.charge(f"{ROOT}/kubepods/podb", "tdx", 1)
    files = Unreadable(kernel)

    found = sample(KeyReader(files, Tree(files, ROOT)), {**HOMES, PodUid("b"): "/kubepods/podb"})

    assert found.unread == (PodUid("b"),)
    assert found.elsewhere == (HeldElsewhere("/kubepods", "tdx", 1, below=False),)


def test_nothing_is_told_while_the_root_stands_still_and_nothing_is_due(kernel: SimKernel) -> None:
    reader = KeyReader(kernel, Tree(kernel, ROOT))
    assert look(reader, due=False) is not None
    assert look(reader, due=False) is None
    kernel.charge(f"{ROOT}/machine.slice/vm.scope", "tdx", 1)
    assert look(reader, due=False) is not None
    assert look(reader, due=True) is not None


def test_keys_that_no_known_pod_holds_are_found_where_they_are(kernel: SimKernel) -> None:
    kernel.make_cgroup(f"{ROOT}/kubepods/podgone")
    kernel.charge(f"{ROOT}/kubepods/podgone", "tdx", 3)
    kernel.rmdir(f"{ROOT}/kubepods/podgone")
    kernel.charge(f"{ROOT}/machine.slice/vm.scope", "tdx", 1)
    kernel.charge(f"{ROOT}/kubepods/poda", "tdx", 1)

    class Watched(FaultyFiles):
        def _count(self, name: str, path: str) -> None:
            assert (name, path) != ("read", f"{ROOT}/kubepods/poda/misc.current"), "the sample has read it"

    files = Watched(kernel)
    found = sample(KeyReader(files, Tree(files, ROOT)))

    assert found.roots == {"tdx": (5, 5)}
    assert sorted(found.elsewhere, key=lambda one: one.path) == [
        HeldElsewhere("/kubepods", "tdx", 3, below=True),
        HeldElsewhere("/machine.slice/vm.scope", "tdx", 1, below=False),
    ]


@pytest.mark.parametrize(
    ("path", "uid"),
    [
        ("/kubepods/burstable/pod0a-1/c1", "0a-1"),
        ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a_1.slice/cri-containerd-c.scope", "0a-1"),
        ("/kubepods/pod0a-1", "0a-1"),
        ("/user.slice/kubepods/pod0a-1", ""),
        ("/kubepods/burstable/vm", ""),
    ],
)
def test_a_key_in_a_cgroup_of_a_pod_unknown_to_the_runtime_has_its_uid(kernel: SimKernel, path: str, uid: str) -> None:
    above = ROOT
    for name in path.split("/")[1:]:
        kernel.write(f"{above}/cgroup.subtree_control", b"+misc")
        above = f"{above}/{name}"
        kernel.make_cgroup(above)
    kernel.charge(above, "tdx", 1)
    (found,) = sample(KeyReader(kernel, Tree(kernel, ROOT))).elsewhere
    assert (found.path, found.pod) == (path, uid)


def test_one_with_a_key_and_many_cgroups_holds_up_no_sample(kernel: SimKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MAX_FOLDERS", 100)
    for number in range(500):
        kernel.mkdir(f"{ROOT}/machine.slice/a{number}")
    kernel.charge(f"{ROOT}/machine.slice/vm.scope", "tdx", 1)
    files = FaultyFiles(kernel)
    found = sample(KeyReader(files, Tree(files, ROOT)))
    assert files.calls["read"] <= 101, "and misc.capacity"
    assert (found.roots, found.elsewhere) == ({"tdx": (1, 1)}, ()), "it counts all the same"


def test_a_pod_made_again_is_read_again_and_a_gone_one_gives_its_descriptor_back(kernel: SimKernel) -> None:
    reader = KeyReader(kernel, Tree(kernel, ROOT))
    sample(reader)
    kernel.rmdir(f"{ROOT}/kubepods/poda")
    kernel.make_cgroup(f"{ROOT}/kubepods/poda")
    kernel.charge(f"{ROOT}/kubepods/poda", "tdx", 1)
    assert sample(reader).pods == {POD: {"tdx": (1, 1)}}

    sample(reader, {})
    assert kernel.open_handles == 1
    reader.close()
    assert kernel.open_handles == 0


def test_a_kernel_without_the_controller_is_told_when_it_is_due_and_a_later_one_is_noticed() -> None:
    bare = SimKernel({}, controllers=("memory",))
    reader = KeyReader(bare, Tree(bare, ROOT))
    assert look(reader, due=False) is None
    assert sample(reader) == KeysRead(7, unread=(POD,)), "what pods hold is not known, which is not none"


def test_a_kind_whose_module_was_taken_out_is_told_from_a_capacity_that_cannot_be_read(kernel: SimKernel) -> None:
    reader = KeyReader(kernel, Tree(kernel, ROOT))
    assert sample(reader).capacity == {"tdx": 16}
    kernel.set_capacity("tdx", 0)
    assert sample(reader).capacity == {"tdx": 0}
    unreadable = FaultyFiles(kernel, fail_at=7, fail_errno=errno.EIO)
    assert sample(KeyReader(unreadable, Tree(unreadable, ROOT))).capacity == {}


def test_no_count_is_made_of_one_read_of_the_root(kernel: SimKernel) -> None:
    """Given a root of which the second read fails, and a machine outside of the pods that took a key after the first,
    then the root counts as unread, since by the first read alone that key is free; and the next look is a whole one."""

    class Fails(FaultyFiles):
        def pread(self, handle: int, max_bytes: int) -> bytes:
            said = super().pread(handle, max_bytes)
            if self.calls["pread"] == 3:  # root, pod, root
                kernel.charge(f"{ROOT}/machine.slice/vm.scope", "tdx", 1)
                raise OSError(errno.EIO, "it cannot be read")
            return said

    kernel.charge(f"{ROOT}/kubepods/poda", "tdx", 1)
    files = Fails(kernel)
    reader = KeyReader(files, Tree(files, ROOT))
    assert sample(reader) == KeysRead(7, {"tdx": 16}, {}, {POD: {"tdx": (1, 1)}})
    after = look(reader, due=False)
    assert after is not None
    assert (after.roots, after.pods) == ({"tdx": (2, 2)}, {POD: {"tdx": (1, 1)}})


def test_a_reader_that_hangs_is_left_and_its_cgroup_is_left_out_until_the_call_is_back(kernel: SimKernel) -> None:
    reader = KeyReader(kernel, Tree(kernel, ROOT))
    sample(reader)
    reader._at = "/kubepods/poda"
    other = reader.anew()
    assert sample(other).unread == (POD,)
    reader.close()
    assert sample(other).unread == ()


def test_whichever_call_hangs_its_cgroup_is_told_from_outside(kernel: SimKernel) -> None:
    """Given a sample of three pods, of which one cgroup is gone, then at each open and read its own cgroup is told, and
    afterwards none."""
    homes = {PodUid(name): f"/kubepods/pod{name}" for name in "abc"}
    for name in "bc":
        kernel.make_cgroup(f"{ROOT}/kubepods/pod{name}")
    told: list[tuple[str, str]] = []

    class Watched(FaultyFiles):
        def __init__(self) -> None:
            super().__init__(kernel)
            self.opened: dict[int, str] = {}

        def open(self, path: str) -> int:
            about = path.removeprefix(ROOT).removesuffix("/misc.current") or "/"
            told.append((about, reader.at))
            handle = super().open(path)
            self.opened[handle] = about
            return handle

        def pread(self, handle: int, max_bytes: int) -> bytes:
            told.append((self.opened[handle], reader.at))
            return super().pread(handle, max_bytes)

    files = Watched()
    reader = KeyReader(files, Tree(files, ROOT))
    sample(reader, homes)
    kernel.remove_cgroup(f"{ROOT}/kubepods/podb")

    assert sample(reader, homes).unread == (PodUid("b"),)
    assert [one for one in told if one[0] != one[1]] == []
    assert {about for about, _ in told} == {"/", *homes.values()}
    assert reader.at == ""


def test_a_file_of_garbage_is_no_count(kernel: SimKernel) -> None:
    class Garbage(FaultyFiles):
        def pread(self, handle: int, max_bytes: int) -> bytes:
            super().pread(handle, max_bytes)
            return os.urandom(64)

    assert sample(KeyReader(Garbage(kernel), Tree(Garbage(kernel), ROOT))) == KeysRead(7, {"tdx": 16}, unread=(POD,))


def test_a_sample_of_many_pods_takes_two_reads_of_each_and_three_calls_more(kernel: SimKernel) -> None:
    walks = []

    class Homes(dict[PodUid, str]):
        def values(self) -> "dict_values[PodUid, str]":
            walks.append(self)
            return super().values()

    homes = Homes({PodUid(f"{number}"): f"/kubepods/pod{number}" for number in range(100)})
    for uid, path in homes.items():
        kernel.make_cgroup(f"{ROOT}{path}")
        kernel.charge(f"{ROOT}{path}", "tdx", 0 if int(uid) > 9 else 1)
    files = FaultyFiles(kernel)
    reader = KeyReader(files, Tree(files, ROOT))
    sample(reader, homes)
    files.calls.clear()
    walks.clear()

    assert sample(reader, homes).elsewhere == ()
    assert dict(files.calls) == {"pread": 2 * (len(homes) + 1), "read": 1}
    assert len(walks) < 5

    kernel.charge(f"{ROOT}/machine.slice/vm.scope", "tdx", 1)
    files.calls.clear()
    assert sample(reader, homes).elsewhere == (HeldElsewhere("/machine.slice/vm.scope", "tdx", 1, below=False),)
    assert files.calls["pread"] == 2 * (len(homes) + 1)
    assert files.calls["listdir"] == len(("/", "/machine.slice", "/machine.slice/vm.scope"))


def test_who_asks_for_a_sample_waits_for_no_search_that_a_sweep_has_made(kernel: SimKernel) -> None:
    """Given machines outside of the pods, whom the last sweep found: who asks is told of them without a further call,
    until root or a pod holds something else."""

    def asked() -> KeysRead:
        files.calls.clear()
        found = reader.look(("tdx",), HOMES, True, 8, sweep=False)
        assert found is not None
        return found

    files = FaultyFiles(kernel)
    reader = KeyReader(files, Tree(files, ROOT))
    kernel.make_cgroup(f"{ROOT}/machine.slice/other.scope")
    kernel.charge(f"{ROOT}/machine.slice/vm.scope", "tdx", 1)
    vm, other = (HeldElsewhere(f"/machine.slice/{name}.scope", "tdx", 1, below=False) for name in ("vm", "other"))
    assert asked().elsewhere == (vm,), "nobody has looked before"
    assert (asked().elsewhere, dict(files.calls), reader.searched) == ((vm,), {"pread": 4, "read": 1}, False)

    kernel.uncharge(f"{ROOT}/machine.slice/vm.scope", "tdx", 1)
    kernel.charge(f"{ROOT}/kubepods/poda", "tdx", 1)
    assert (asked().elsewhere, reader.searched) == ((), True), "a pod holds what the machine held"
    kernel.charge(f"{ROOT}/machine.slice/other.scope", "tdx", 1)
    assert (asked().elsewhere, reader.searched) == ((other,), True), "root has moved"
    kernel.uncharge(f"{ROOT}/machine.slice/other.scope", "tdx", 1)
    kernel.charge(f"{ROOT}/machine.slice/vm.scope", "tdx", 1)
    assert asked().elsewhere == (other,), "counters do not tell the one from the other"
    assert sample(reader).elsewhere == (vm,)
