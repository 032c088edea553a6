"""Machines for the tests of CPU policies, W of `reference/policies.md` among them, and a policy without an engine."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Self

from hypothesis import strategies as st

from nodeward.core.cpuset import CpuSet, of, text
from nodeward.core.topology import Group, Machine
from nodeward.core.workload import Qos
from nodeward.features.cpus.place import admitted, all_placed
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.pools import changed, set_of
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Ask, Denied, Grant, Ground, Pools


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


def without(of: Machine, away: CpuSet) -> Machine:
    def left(groups: tuple[Group, ...]) -> tuple[Group, ...]:
        return tuple(replace(group, cpus=group.cpus & ~away) for group in groups if group.cpus & ~away)

    online = of.online & ~away
    return replace(
        of,
        online=online,
        packages=left(of.packages),
        dies=left(of.dies),
        nodes=left(of.nodes),
        l3=left(of.l3),
        l2=left(of.l2),
        cores=left(of.cores),
        isolated=of.isolated & online,
        efficient=of.efficient & online,
        memory=tuple(replace(node, cpus=node.cpus & ~away) for node in of.memory),
        offline=away,
    )


W = machine()
shapes = st.builds(
    machine, st.integers(1, 2), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 2), st.just(3)
)


def ask(
    name: str,
    request_m: int = 0,
    qos: Qos = Qos.GUARANTEED,
    limit_m: int = 0,
    notes: Mapping[str, str] | None = None,
    pod: str = "",
    namespace: str = "shop",
    **more: object,
) -> Ask:
    """What a container asks for; its pod has the same name, where there is no other one."""
    pod = pod or name
    one = Ask(f"{pod}/{name}", pod, namespace, pod, name, qos, request_m, limit_m, annotations=notes or {})
    return replace(one, **more)  # type: ignore[arg-type]


class PolicyNode:
    """A node with a policy and nothing around it, and its containers by name and pod (of the same name, else)."""

    def __init__(self, rules: PolicySettings, of: Machine = W) -> None:
        self.policy, self.ground = policy_of(rules.active), Ground(of, rules)
        begun = self.policy.begin(self.ground)
        assert isinstance(begun, Pools), begun
        self.at, self.begun = begun, begun
        self.updated = list[str]()
        """Who has other CPUs since the last change."""

    def admit(self, ask: Ask) -> str:
        after = admitted(self.ground, self.at, ask)
        if isinstance(after, Denied):
            return after.why
        self._becomes(after)
        return ""

    def comes(self, *asks: Ask) -> Self:
        for one in asks:
            assert self.admit(one) == "", one.key
        return self

    def _becomes(self, after: Pools) -> None:
        self.updated, self.at = sorted(changed(self.at, after)), after

    def grant(self, name: str, pod: str = "") -> Grant:
        return self.at.grants[f"{pod or name}/{name}"]

    def has(self, name: str, pod: str = "") -> str:
        return text(set_of(self.at, self.grant(name, pod)))

    def own(self, name: str, pod: str = "") -> str:
        return text(self.grant(name, pod).own)

    def ends(self, name: str, pod: str = "") -> None:
        self._becomes(self.policy.release(self.ground, self.at, f"{pod or name}/{name}"))

    def finds(self, asks: Iterable[Ask]) -> None:
        placed = all_placed(self.ground, self.at, list(asks))
        assert placed.denied == {}
        self._becomes(placed.pools)

    def alone(self) -> CpuSet:
        """The CPUs that containers have alone: none is two's or in a pool too, and who is pinned has some."""
        taken = 0
        for grant in self.at.grants.values():
            assert not grant.own & taken, f"{grant.key} has somebody else's"
            assert not grant.pinned or set_of(self.at, grant)
            taken |= grant.own
        assert not any(pool.cpus & taken for pool in self.at.pools.values())
        return taken

    def cpus(self, pool: str) -> str:
        return text(self.at.pools[pool].cpus)

    def sizes(self) -> dict[str, int]:
        return {name: pool.cpus.bit_count() for name, pool in self.at.pools.items()}


def refusal(rules: PolicySettings, of: Machine = W) -> str:
    denied = policy_of(rules.active).begin(Ground(of, rules))
    assert isinstance(denied, Denied)
    return denied.why
