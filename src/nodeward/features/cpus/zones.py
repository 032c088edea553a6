"""Makes the zones of a NodeResourceTopology object: packages, NUMA nodes, and pools of the policy in force.

A NUMA node is named as NFD's topology updater names it (`node-0`, type `Node`), since the scheduler's plugin
NodeResourceTopologyMatch looks at no other type. Balloons are told as nri-plugins tells them. Nothing is decided here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet
from nodeward.core.modes import Mode
from nodeward.core.tables import kept
from nodeward.core.topology import CpuAmount, Level, Machine, NodeZones, Zone
from nodeward.features.cpus.amounts import universe
from nodeward.features.cpus.policies.claims import is_claim, shared_m
from nodeward.features.cpus.policies.pools_with_rules import requested_m
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.pool_settings import SHARED
from nodeward.features.cpus.pool_tree import Tree
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.state import is_unfit
from nodeward.features.cpus.values import Denied, Ground, Pool, Pools
from nodeward.features.root import State

POLICY = "TopologyPolicy"
NUMA, PACKAGE, BALLOON, POOL = "Node", "socket", "balloon", "pool"
NOTHING = NodeZones()


def zones(state: State) -> NodeZones | None:
    """The zones now. NOTHING while no policy divides CPUs; None while it is not known who is there."""
    cpus = state.cpus
    if state.settings.cpus.mode is Mode.OFF:
        return NOTHING
    if cpus.machine is None or not state.pods.runtime or is_unfit(cpus):
        return None
    if not cpus.pools.pools:
        return NOTHING
    ground = Ground(cpus.machine, cpus.rules)
    of = _uses(ground, cpus.pools)
    tree = policy_of(cpus.rules.active).tree(ground)
    names = [one.name for one in tree.pools] if tree is not None else []
    packages = (one for one in _packages(of) if one.name not in names)  # then the pool of that name is one
    return NodeZones((*packages, *_nodes(of), *_pools(ground, cpus.pools)), {POLICY: cpus.rules.active})


@dataclass(frozen=True, slots=True)
class _Uses:
    """What becomes of the machine's CPUs."""

    machine: Machine
    at: Pools
    reserved: CpuSet
    own: CpuSet
    usable: CpuSet
    """Those that containers can get, by the policy's settings."""


def _uses(ground: Ground, at: Pools) -> _Uses:
    reserved, own, usable = policy_of(ground.rules.active).reserved(ground, at), 0, universe(ground)
    for grant in at.grants.values():
        own |= grant.own
    for name, pool in at.pools.items():
        own |= pool.cpus if is_claim(name) else 0
    return _Uses(ground.machine, at, reserved, own, 0 if isinstance(usable, Denied) else usable & ~reserved)


def _packages(of: _Uses) -> Iterator[Zone]:
    for one in of.machine.packages:
        yield Zone(_package(one.id), PACKAGE, _amount(of, one.cpus), attributes=_sets(of, one.cpus))


def _nodes(of: _Uses) -> Iterator[Zone]:
    memory = {one.id: one for one in of.machine.memory}
    groups = {one.id: one.cpus for one in of.machine.nodes}
    for number in sorted(dict.fromkeys((*memory, *groups))):
        inside, known = groups.get(number, 0), memory.get(number)
        above = next((one.id for one in of.machine.packages if inside and not inside & ~one.cpus), None)
        bytes_ = {"memory capacity": str(known.bytes)} if known is not None and known.bytes else {}
        yield Zone(
            _node(number),
            NUMA,
            _amount(of, inside) if inside else None,
            _package(above) if above is not None else "",
            {_node(to): cost for to, cost in sorted(known.distances.items())} if known is not None else {},
            {**_sets(of, inside), **bytes_},
        )


def _package(number: int) -> str:
    return f"socket #{number}"


def _node(number: int) -> str:
    return f"node-{number}"


def _amount(of: _Uses, inside: CpuSet) -> CpuAmount:
    """Of CPUs of the machine. What a pool's containers request counts on each usable CPU of the pool alike."""
    usable = inside & of.usable
    free_m = 1000 * (usable & ~of.own).bit_count()
    for name, pool in of.at.pools.items():
        if is_claim(name):
            continue  # a claim has them whole
        if part := (pool.cpus & usable).bit_count():
            asked_m = shared_m(of.at) if name == SHARED else requested_m(of.at, name)
            free_m -= -(-asked_m * part // (pool.cpus & of.usable).bit_count())
    return CpuAmount(1000 * inside.bit_count(), 1000 * usable.bit_count(), max(free_m, 0))


def _masks(of: _Uses, inside: CpuSet) -> dict[str, CpuSet]:
    return {
        "exclusive cpuset": inside & of.own,
        "reserved cpuset": inside & of.reserved,
        "isolated cpuset": inside & of.machine.isolated,
    }


def _sets(of: _Uses, inside: CpuSet) -> dict[str, str]:
    sets = {"cpuset": inside, **_masks(of, inside)}
    return {name: cpuset.text(found) for name, found in sets.items() if found}


def _pools(ground: Ground, at: Pools) -> Iterator[Zone]:
    policy, capacity_m = policy_of(ground.rules.active), 1000 * ground.machine.online.bit_count()
    tree, first = policy.tree(ground), _begun(ground.machine, ground.rules)
    for name, pool in at.pools.items():
        has_m = 1000 * pool.cpus.bit_count()
        requested = has_m if is_claim(name) else requested_m(at, name)
        most_m, room_m = has_m, has_m
        if policy.room_m is not None:
            most_m = policy.room_m(ground, Pools(first if tree is not None else {**first, name: pool}), name)
            room_m = policy.room_m(ground, at, name)
        yield Zone(
            name,
            _type(policy, tree, name),
            CpuAmount(
                most_m if tree is not None else capacity_m,
                min(most_m, capacity_m),
                max(min(room_m, capacity_m) - requested, 0),
            ),
            parent=tree.around(name) if tree is not None else "",
            attributes={
                **_pool_sets(pool),
                **_tree_sets(ground, at, tree, name),
                "excess cpus": f"{max(has_m - requested, 0)}m",
            },
        )


_TYPES = {
    Level.SYSTEM: "virtual node",
    Level.PACKAGE: PACKAGE,
    Level.DIE: "die",
    Level.NUMA: "numa node",
    Level.L3: "L3 cache",
}
"""As nri-plugins names the zones of `topology-aware`."""


def _type(policy: Policy, tree: Tree | None, name: str) -> str:
    if tree is not None:
        return _TYPES[tree.pools[tree.at[name]].level] if name in tree.at else POOL
    return BALLOON if policy.room_m is not None else POOL


@kept
def _begun(machine: Machine, rules: PolicySettings) -> Mapping[str, Pool]:
    """The pools before any container."""
    found = policy_of(rules.active).begin(Ground(machine, rules))
    return {} if isinstance(found, Denied) else found.pools


def _tree_sets(ground: Ground, at: Pools, tree: Tree | None, name: str) -> Mapping[str, str]:
    """As nri-plugins tells a pool of `topology-aware`: whose CPUs are whose, and which memory is near."""
    if tree is None or name not in tree.at:
        return {}
    one, of = tree.pools[tree.at[name]], _uses(ground, at)
    sets = {"memory set": one.memory, "shared cpuset": at.pools[name].cpus, **_masks(of, one.cpus)}
    return {key: cpuset.text(found) for key, found in sets.items() if found}


def _pool_sets(pool: Pool) -> dict[str, str]:
    parts = ", ".join(f"{{{cpuset.text(part.cpus)}}}" for part in pool.parts) if len(pool.parts) > 1 else ""
    components = f"{{{parts}}}" if parts else ""
    found = {"cpuset": cpuset.text(pool.cpus), "shared cpuset": cpuset.text(pool.lent), "component cpusets": components}
    return {name: text for name, text in found.items() if text}
