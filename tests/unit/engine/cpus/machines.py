"""Machines for the tests of CPU policies, W of `reference/policies.md` among them."""

from hypothesis import strategies as st

from nodeward.model.cpuset import CpuSet, of
from nodeward.model.topology import Group, Machine


def machine(
    packages: int = 2,
    nodes: int = 2,
    caches: int = 1,
    cores: int = 4,
    threads: int = 2,
    step: int = 1,
    isolated: CpuSet = 0,
    efficient: CpuSet = 0,
) -> Machine:
    """`nodes` a package, `caches` a node, `cores` a cache. CPUs count as Linux does: first all first threads. With
    `step` 3 every third number is a CPU."""
    total = packages * nodes * caches * cores
    of_core = [of(step * (core + thread * total) for thread in range(threads)) for core in range(total)]

    def level(size: int) -> tuple[Group, ...]:
        return tuple(Group(i, sum(of_core[i * size : (i + 1) * size])) for i in range(total // size))

    package, single = level(total // packages), level(1)
    l3, node = level(cores), level(cores * caches)
    return Machine(sum(of_core), package, package, node, l3, single, single, isolated, efficient)


W = machine()
shapes = st.builds(
    machine, st.integers(1, 2), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 2), st.just(3)
)
