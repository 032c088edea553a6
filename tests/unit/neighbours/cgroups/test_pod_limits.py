"""The limits of pods, on files in which a small part of the kernel is played: memory is kept in whole pages, and what
is in use cannot be limited away."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeward.core.decision import Goal, Special, Target
from nodeward.core.ports import Written
from nodeward.core.refusal import Reason
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.cgroups.pod_limits import performers

ROOT, POD = "/sys/fs/cgroup", "/pods/podu1"
PAGE = 4096
FILES = {
    2: {"memory.max": "max", "cpu.max": "max 100000"},
    1: {"memory.limit_in_bytes": str(2**63 - PAGE), "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
}


class Kernel(OsFiles):
    """Cgroup trees in a folder. `writes` are the names of the files written and what was."""

    __slots__ = ("folder", "is_deaf", "refuses", "version", "writes")

    def __init__(self, folder: Path, version: int) -> None:
        super().__init__(str(folder))
        self.folder, self.version, self.refuses, self.is_deaf = folder, version, 0, False
        self.writes = list[tuple[str, str]]()
        if version == 2:
            self._put(f"{ROOT}/cgroup.controllers", "cpuset cpu memory")
        for path in ("", POD):
            for name, text in FILES[version].items() if path or version == 1 else ():
                self._put(self.file(path, name), text)

    def file(self, path: str, name: str) -> str:
        return f"{ROOT}{'' if self.version == 2 else '/' + name.partition('.')[0]}{path}/{name}"

    def _put(self, file: str, text: str) -> None:
        place = self.folder / file.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n")

    def write(self, path: str, data: bytes) -> None:
        name, text = path.rpartition("/")[2], data.decode()
        self.writes.append((name, text))
        if self.refuses:
            raise OSError(self.refuses, "refused", path)
        if self.is_deaf:
            return
        if name.startswith("memory") and text.isdecimal():
            text = str(int(text) // PAGE * PAGE)
        self._put(path, str(2**63 - PAGE) if text == "-1" and name.startswith("memory") else text)

    def perform(self, resource: str, value: str | Special, ours: bool = False, path: str = POD) -> Written:
        target = Target("pod.limit", path, resource)
        return performers(self, ROOT)["pod.limit"](target, Goal(target, value, Reason("pod-limit")), ours)


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Kernel:
    return Kernel(tmp_path, request.param)


SET = {
    ("memory", "1000000"): {1: [("memory.limit_in_bytes", "1000000")], 2: [("memory.max", "1000000")]},
    ("cpu", "1250"): {
        1: [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "125000")],
        2: [("cpu.max", "125000 100000")],
    },
    ("cpu", "3"): {
        1: [("cpu.cfs_period_us", "1000000"), ("cpu.cfs_quota_us", "3000")],
        2: [("cpu.max", "3000 1000000")],
    },
}


@pytest.mark.parametrize(("resource", "value"), SET)
def test_a_missing_limit_is_set_once_and_nothing_else_is_written(kernel: Kernel, resource: str, value: str) -> None:
    assert kernel.perform(resource, value) == Written(wrote=True, old="max")
    assert kernel.perform(resource, value).wrote is False
    assert kernel.writes == SET[resource, value][kernel.version]


@pytest.mark.parametrize(("resource", "value", "other"), [("memory", "1048576", "2097152"), ("cpu", "500", "700")])
def test_a_limit_of_another_stays_and_ours_is_changed(kernel: Kernel, resource: str, value: str, other: str) -> None:
    kernel.perform(resource, value)
    before = len(kernel.writes)
    assert kernel.perform(resource, other) == Written(wrote=False, old=f"{value}, which somebody else has set")
    assert len(kernel.writes) == before
    assert kernel.perform(resource, other, ours=True) == Written(wrote=True, old=value)
    assert kernel.perform(resource, Special.ABSENT) == Written(wrote=False, old="not ours")
    assert kernel.perform(resource, Special.ABSENT, ours=True) == Written(wrote=True, old=other)
    assert kernel.perform(resource, value) == Written(wrote=True, old="max")


def test_a_cgroup_that_is_gone_is_no_failure(kernel: Kernel) -> None:
    assert kernel.perform("memory", "4096", path="/pods/other") == Written(wrote=False, old="gone")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/", "no path of a cgroup below the root"),
        ("pods/podu1", "no path of a cgroup"),
        ("/pods/../kubepods/podu1", "no path of a cgroup"),
        ("/pods/../..", "no path of a cgroup"),
        ("/pods//x", "no path of a cgroup"),
        ("/pods\n", "no path of a cgroup"),
        ("/kubepods/burstable/podu1", "kubelet sets the limits"),
        ("/kubepods.slice/kubepods-podu1.slice", "kubelet sets the limits"),
    ],
)
def test_nothing_is_written_above_the_root_nor_in_kubelets_cgroups(kernel: Kernel, path: str, why: str) -> None:
    with pytest.raises(OSError, match=why):
        kernel.perform("memory", "4096", path=path)
    assert kernel.writes == []


@pytest.mark.parametrize("value", ["", "-1", "0", "max", "1e3", "9" * 30])
def test_what_is_no_limit_is_not_written(kernel: Kernel, value: str) -> None:
    with pytest.raises(OSError, match="is no limit"):
        kernel.perform("memory", value)
    assert kernel.writes == []


def busy(kernel: Kernel) -> None:
    kernel.refuses = errno.EBUSY


def deaf(kernel: Kernel) -> None:
    kernel.is_deaf = True


def without_controller(kernel: Kernel) -> None:
    (kernel.folder / kernel.file(POD, next(iter(FILES[kernel.version]))).lstrip("/")).unlink()


@pytest.mark.parametrize(
    ("breaks", "resource", "why"),
    [
        (busy, "memory", "4096 is refused: more is in use"),
        (deaf, "memory", "memory was limited to 4096, and the kernel has no limit"),
        (without_controller, "memory", "does not get the controller memory from above"),
        (lambda _: None, "pids", "'pids' is no limit of a pod"),
    ],
    ids=["busy", "not taken", "no controller", "another resource"],
)
def test_a_limit_that_cannot_be_set_is_told_with_its_reason(
    kernel: Kernel, breaks: Callable[[Kernel], None], resource: str, why: str
) -> None:
    breaks(kernel)
    with pytest.raises(OSError, match=why):
        kernel.perform(resource, "4096")


def test_a_kernel_without_the_controller_is_told(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, 2)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu\n")
    with pytest.raises(OSError, match="has no memory controller here"):
        kernel.perform("memory", "4096")


@pytest.mark.parametrize("name", ["memory.max", "cpu.max"])
def test_a_file_that_cannot_be_read_as_a_limit_is_told(tmp_path: Path, name: str) -> None:
    kernel = Kernel(tmp_path, 2)
    (tmp_path / kernel.file(POD, name).lstrip("/")).write_text("much\n")
    with pytest.raises(OSError, match="the limit cannot be read"):
        kernel.perform(name.partition(".")[0], "4096")
    assert kernel.writes == []
