"""The cpusets of cgroups, on files in which a small part of the kernel is played: what is written is what holds, but
for what is offline or not the parent's."""

import errno
from collections import Counter
from pathlib import Path

import pytest

from nodeward.core import cpuset
from nodeward.core.decision import Goal, Special, Target
from nodeward.core.ports import Written
from nodeward.core.refusal import Reason
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.cgroups import cpusets, places
from nodeward.neighbours.cgroups.cpusets import performers, read_sets
from nodeward_sim.doubles.kernel import SimKernel

ROOT, APP = "/sys/fs/cgroup", "/kubepods/podu/app"


class Kernel(OsFiles):
    """A cgroup tree in a folder. A controller that a cgroup gives its children makes their files."""

    __slots__ = ("effective", "folder", "mount", "refuses", "writes")

    def __init__(self, folder: Path, version: int = 2) -> None:
        super().__init__(str(folder))
        self.folder, self.writes, self.refuses = folder, Counter[str](), 0
        self.effective = "cpuset.cpus.effective" if version == 2 else "cpuset.effective_cpus"
        self.mount = ROOT if version == 2 else f"{ROOT}/cpuset"
        self._put(self.mount, self.effective, "0-7")
        if version == 2:
            self._put(ROOT, "cgroup.controllers", "cpuset cpu")
            self._put(ROOT, "cgroup.subtree_control", "cpu")
        else:
            self._put(self.mount, "cpuset.cpus", "0-7")

    def _put(self, folder: str, name: str, text: str) -> None:
        place = self.folder / folder.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text + "\n")

    def make(self, path: str, cpus: str, controller: bool) -> None:
        self._put(f"{self.mount}{path}", "cgroup.subtree_control", "cpuset" if controller else "")
        if controller:
            self._set(f"{self.mount}{path}", cpus)

    def _set(self, folder: str, text: str) -> None:
        above = folder.rpartition("/")[0]
        parents = cpuset.parse(self.read(f"{above}/{self.effective}", 999).decode())
        self._put(folder, "cpuset.cpus", text)
        self._put(folder, self.effective, cpuset.text(cpuset.parse(text) & parents or parents))

    def write(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        self.writes[name] += 1
        if self.refuses:
            raise OSError(self.refuses, "refused", path)
        if name == "cpuset.cpus":
            self._set(folder, data.decode())
            return
        if name == "cpuset.mems":
            (self.folder / path.lstrip("/")).write_bytes(data)
            return
        assert data == b"+cpuset"
        self._put(folder, name, "cpu cpuset")
        for below in self.listdir(folder):
            if self.stat(f"{folder}/{below}").is_dir:
                self._set(f"{folder}/{below}", "")


def made(folder: Path, version: int = 2, *, controller: bool = True, pod: str = "", own: str = "") -> Kernel:
    """With a pod's container, in which these CPUs are set."""
    kernel = Kernel(folder, version)
    for path, cpus in (("/kubepods", ""), ("/kubepods/podu", pod), (APP, own)):
        kernel.make(path, cpus, controller)
    return kernel


def perform(kernel: Kernel, value: str | Special) -> Written:
    target = Target("cpuset", APP, "cpus")
    return performers(kernel, ROOT)["cpuset"](target, Goal(target, value, Reason("test")), False)


@pytest.fixture(params=[2, 1], ids=["v2", "v1"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Kernel:
    return made(tmp_path, request.param, own="0-5")


def test_a_set_is_written_where_it_differs_and_never_twice(kernel: Kernel) -> None:
    assert perform(kernel, "2-3") == Written(wrote=True, old="0-5")
    assert perform(kernel, "3,2") == Written(wrote=False, old="2-3")
    assert kernel.writes == {"cpuset.cpus": 1}
    assert read_sets(kernel, ROOT, (APP, "/none", "/kubepods")) == ({APP: 0b1100, "/kubepods": 0}, {})


def test_what_is_offline_may_be_missing(kernel: Kernel) -> None:
    assert perform(kernel, "6-9").wrote
    assert not perform(kernel, "6-9").wrote


def test_what_is_taken_back_stays_as_it_is(kernel: Kernel) -> None:
    assert perform(kernel, Special.ABSENT).wrote is False
    assert kernel.writes == {}


def test_a_cgroup_that_is_not_there_runs_nothing(tmp_path: Path) -> None:
    assert perform(Kernel(tmp_path), "0") == Written(wrote=False, old="gone")


PARENTS = "the kernel gives it its parent's CPUs, since the parent has none of these"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("8-9", "it runs on 0-1, not on 8-9: none of these is online"),
        ("4-5", f"it runs on 0-1, not on 4-5: {PARENTS}"),
        ("1-2", "it runs on 1, not on 1-2: a cgroup above it has fewer CPUs"),
        ("", "an empty set of CPUs would mean all of them"),
        ("all", "'all' is neither a CPU nor a range"),
    ],
)
def test_a_set_that_does_not_hold_is_a_failure_with_a_reason(tmp_path: Path, value: str, why: str) -> None:
    kernel = made(tmp_path, pod="0-1", own="0")
    with pytest.raises(OSError, match=why):
        perform(kernel, value)


def test_a_set_that_holds_no_more_is_written_anew(kernel: Kernel) -> None:
    """A cgroup of v1 gets CPUs that were offline back only so."""
    kernel._put(f"{kernel.mount}{APP}", kernel.effective, "0-4")
    assert perform(kernel, "0-5").wrote
    assert kernel.read(f"{kernel.mount}{APP}/{kernel.effective}", 99) == b"0-5\n"


def test_the_controller_is_switched_on_above_from_the_root_down(tmp_path: Path) -> None:
    kernel = made(tmp_path, controller=False)
    assert perform(kernel, "2-3") == Written(wrote=True, old="")
    assert kernel.writes == {"cgroup.subtree_control": 3, "cpuset.cpus": 1}
    assert read_sets(kernel, ROOT, (APP,)).found == {APP: 0b1100}


def test_a_kernel_without_the_controller_is_a_failure_and_is_looked_at_again(tmp_path: Path) -> None:
    kernel = made(tmp_path)
    kernel._put(ROOT, "cgroup.controllers", "cpu")
    target = Target("cpuset", APP, "cpus")
    make_so = performers(kernel, ROOT)["cpuset"]
    with pytest.raises(OSError, match="no cpuset controller here") as failed:
        make_so(target, Goal(target, "0", Reason("test")), False)
    assert failed.value.errno == errno.ENOENT
    found, lost = read_sets(kernel, ROOT, (APP, "/none"))
    assert (found, list(lost)) == ({}, [APP])
    assert "no cpuset controller here" in lost[APP]
    kernel._put(ROOT, "cgroup.controllers", "cpu cpuset")
    assert make_so(target, Goal(target, "0", Reason("test")), False).wrote


@pytest.mark.parametrize(
    ("code", "controller", "why"),
    [
        (errno.ERANGE, True, "2 is refused: it names a CPU that this kernel cannot have"),
        (errno.EACCES, True, "2 is refused: the cgroup above it does not have all of these"),
        (errno.ENOENT, False, r"\+cpuset is refused: the cgroup does not get the cpuset controller from above"),
    ],
)
def test_what_the_kernel_refuses_fails_with_its_reason(tmp_path: Path, code: int, controller: bool, why: str) -> None:
    kernel = made(tmp_path, controller=controller)
    kernel.refuses = code
    with pytest.raises(OSError, match=why) as failed:
        perform(kernel, "2")
    assert failed.value.errno == code


def test_memory_nodes_are_added_never_taken_away_and_read_back(kernel: Kernel) -> None:
    file = f"{kernel.folder}{kernel.mount}{APP}/cpuset.mems"
    effective = Path(f"{file}.effective" if kernel.mount == ROOT else file.replace("mems", "effective_mems"))

    def widen(has: str, wanted: str, holds: str) -> Written:
        Path(file).write_text(has)
        effective.write_text(holds)
        target = Target("cpuset.mems", APP, "memory")
        return performers(kernel, ROOT)["cpuset.mems"](target, Goal(target, wanted, Reason("test")), False)

    assert (widen("0", "1", "0-1"), Path(file).read_text()) == (Written(wrote=True, old="0"), "0-1")
    assert (widen("", "1", "1"), Path(file).read_text()) == (Written(wrote=True, old=""), "1")
    for has in ("0-3", "1"):
        assert not widen(has, "1", "0-3").wrote
        assert Path(file).read_text() == has
    with pytest.raises(OSError, match=r"it may use memory nodes 0, not 2: a cgroup above it has fewer \(cpuset.mems\)"):
        widen("0", "2", "0")
    kernel.refuses = errno.EINVAL
    with pytest.raises(OSError, match="0,9 is refused: none of these nodes has memory"):
        widen("0", "9", "0")


ONE, OTHER = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("path", "parent"),
    [
        (f"/kubepods/burstable/podu/{ONE}", "/kubepods/burstable/podu"),
        (f"/kubepods/burstable/podu/{ONE}", ""),
        (f"/kubepods.slice/kubepods-podu.slice/cri-containerd-{ONE}.scope", ""),
        (f"/k8s.io/{ONE}", ""),
        (f"/system.slice/crio-{ONE}.scope", ""),
        (f"/elsewhere/podu/{ONE}", "/kubepods/podu"),
    ],
)
def test_a_container_is_found_in_its_pods_cgroup_or_else_anywhere(path: str, parent: str) -> None:
    kernel = SimKernel({})
    kernel.make_cgroup(f"{ROOT}{path}")
    kernel.make_cgroup(f"{ROOT}/kubepods/podv/{OTHER}")

    assert places.find(kernel, ROOT, "/", {ONE: parent}) == {ONE: path}


def test_what_is_not_there_is_left_out_and_nothing_else_is_searched_where_the_pods_cgroup_stands() -> None:
    """A container that has ended already is looked for too: it must not cost a search of the whole tree."""
    kernel = SimKernel({})
    kernel.make_cgroup(f"{ROOT}/k8s.io/{OTHER}/inner/{ONE}")
    assert places.find(kernel, ROOT, "/", {ONE: "/kubepods/podu"}) == {}

    kernel.make_cgroup(f"{ROOT}/kubepods/podu")
    kernel.make_cgroup(f"{ROOT}/k8s.io/{ONE}")
    assert places.find(kernel, ROOT, "/", {ONE: "/kubepods/podu"}) == {}


def test_a_search_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SimKernel({})
    for number in range(5):
        kernel.make_cgroup(f"{ROOT}/a{number}/{OTHER}")
    kernel.make_cgroup(f"{ROOT}/z/{ONE}")
    monkeypatch.setattr(places, "MOST_FOLDERS", 3)

    assert places.find(kernel, ROOT, "/", {ONE: ""}) == {}


def test_the_tree_is_the_one_that_has_the_controller(tmp_path: Path) -> None:
    """A host with cgroup v1 has a tree for each controller."""
    files = OsFiles(str(tmp_path))
    (tmp_path / "sys/fs/cgroup/cpuset").mkdir(parents=True)
    assert cpusets.tree_of(files, ROOT) == ROOT

    (tmp_path / "sys/fs/cgroup/cpuset/cpuset.cpus").write_text("0-3\n")
    assert cpusets.tree_of(files, ROOT) == f"{ROOT}/cpuset"
