"""Where memory and CPU time are counted is told by what is mounted."""

import pytest

from nodeward.edges.sandboxes.cgroups import Trees, trees
from nodeward.wire.cgroup_mounts import Mount

ROOT = "/sys/fs/cgroup"


def v1(name: str, *controllers: str) -> Mount:
    return Mount(f"{ROOT}/{name}", "cgroup", ("rw",), ("rw", *controllers))


V2 = Mount(ROOT, "cgroup2", ("rw",), ("rw",))
HYBRID = Mount(f"{ROOT}/unified", "cgroup2", ("rw",), ("rw",))


@pytest.mark.parametrize(
    ("mounts", "found"),
    [
        pytest.param([V2], Trees(2, ROOT, ROOT, ROOT), id="v2"),
        pytest.param([], Trees(2, ROOT, ROOT, ROOT), id="nothing-is-told"),
        pytest.param(
            [v1("memory", "memory"), v1("cpu", "cpu"), v1("cpuacct", "cpuacct")],
            Trees(1, f"{ROOT}/memory", f"{ROOT}/cpuacct", f"{ROOT}/cpu"),
            id="v1-mounted-apart",
        ),
        pytest.param(
            [HYBRID, v1("memory", "memory"), v1("cpu,cpuacct", "cpu", "cpuacct")],
            Trees(1, f"{ROOT}/memory", f"{ROOT}/cpu,cpuacct", f"{ROOT}/cpu,cpuacct", unified=f"{ROOT}/unified"),
            id="v1-mounted-together-beside-v2",
        ),
        pytest.param(
            [HYBRID, v1("cpuacct", "cpuacct"), v1("cpu", "cpu")],
            Trees(2, f"{ROOT}/unified", f"{ROOT}/cpuacct", f"{ROOT}/cpu", cpu_version=1),
            id="memory-is-counted-by-v2-and-cpu-by-v1",
        ),
    ],
)
def test_each_controller_has_its_own_tree(mounts: list[Mount], found: Trees) -> None:
    assert trees(mounts, ROOT) == found


def test_where_huge_pages_are_limited_and_whether_memory_has_them_too() -> None:
    counts = Mount(ROOT, "cgroup2", ("rw",), ("rw", "memory_hugetlb_accounting"))
    assert trees([counts], ROOT).memory_has_huge
    assert not trees([V2], ROOT).memory_has_huge
    assert trees([v1("memory", "memory"), v1("hugetlb", "hugetlb")], ROOT).hugetlb == f"{ROOT}/hugetlb"
