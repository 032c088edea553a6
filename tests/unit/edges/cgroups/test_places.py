"""The cgroups of containers, found by their ids wherever the runtime has made them."""

from pathlib import Path

import pytest

from nodeward.aio.hostfs import OsFiles
from nodeward.doubles.kernel import SimKernel
from nodeward.edges.cgroups import cpusets, places

ROOT = "/sys/fs/cgroup"
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
