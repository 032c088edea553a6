"""The policy `dynamic-pools` of CRI Resource Manager: one pool a type, and all CPUs always divided among them.

A pool has as many CPUs as its containers request, rounded up, and a part of the rest by how much its CPUs are used.
Containers of kube-system run on the reserved CPUs; those without request and limit, or of no type, in `shared`.

Promises that every pool with containers has a CPU, and that a CPU is in one pool. Fault of CRI Resource Manager left
out: it measures for a second while each container waits. Here use is measured beside, and `rebalance` is told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nodeward.core import annotations as keys
from nodeward.core.cpuset import CpuSet, ids
from nodeward.core.refusal import Reason
from nodeward.core.tables import kept
from nodeward.core.topology import Machine
from nodeward.features.cpus import amounts
from nodeward.features.cpus.policies.balloons import KINDS
from nodeward.features.cpus.policies.pools_with_rules import (
    Admit,
    Hooks,
    Offer,
    grant_of,
    is_of,
    is_system,
    kept_and_others,
    policy,
    requested_m,
    said,
)
from nodeward.features.cpus.pool_settings import RESERVED, SHARED, DynamicPoolsSettings, DynamicPoolType
from nodeward.features.cpus.pools import joined
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.tree import Wish, grow, shrink
from nodeward.features.cpus.values import Ask, Denied, Grant, Pool, Pools


@dataclass(frozen=True, slots=True)
class _Node:
    machine: Machine
    rules: DynamicPoolsSettings
    reserved: CpuSet
    divided: CpuSet
    kinds: Mapping[str, DynamicPoolType]


@kept
def _node(machine: Machine, settings: PolicySettings) -> _Node | Denied:
    sets = kept_and_others(machine, settings)
    if isinstance(sets, Denied):
        return sets
    if not sets[1]:
        return Denied(f"{amounts.RESERVED} keeps every CPU, and dynamic-pools needs one to divide; reserve fewer")
    rules = settings.dynamic_pools
    kinds = {SHARED: DynamicPoolType(SHARED)} | {one.name: one for one in rules.dynamic_pool_types}
    return _Node(machine, rules, *sets, kinds)


def _carve(node: _Node) -> Pools | Denied:
    pools = {RESERVED: Pool(node.reserved, apart=True)} | {name: Pool(0, apart=True) for name in node.kinds}
    return _divided(node, Pools(pools), {}) or Denied("policy.dynamic-pools: no CPU is left to divide")


def _grant(node: _Node, ask: Ask) -> Grant:
    name, by = _kind(node, ask)
    return grant_of(ask, name, Reason("cpus-dynamic-pool", (name, by)), node.rules.pin_cpu, node.rules.pin_memory)


def _kind(node: _Node, ask: Ask) -> tuple[str, str]:
    """The container's pool, and by what it has it."""
    if is_system(node.rules.reserved_pool_namespaces, ask):
        return RESERVED, "namespace"
    if ask.known and not ask.request_m and not ask.limit_m:
        return SHARED, "nothing"
    named = said(ask, keys.DYNAMIC_POOL)
    if named is not None and named in node.kinds:
        return named, "annotation"
    found = next((one.name for one in node.kinds.values() if is_of(one.namespaces, ask)), "")
    return (found, "namespace") if found else (SHARED, "none")


def sizes(requests: Mapping[str, int], weights: Mapping[str, int], count: int) -> dict[str, int] | None:
    """How many of `count` CPUs each pool gets that needs so many, by how much each is used; None for too few. What
    rounding leaves goes to the pool that is used most, and to `shared` where none is."""
    rest = count - sum(requests.values())
    if rest < 0:
        return None
    total = sum(weights.values())
    found = {name: need + (rest * weights[name] // total if total else 0) for name, need in requests.items()}
    most = max(weights, key=lambda name: weights[name]) if total else SHARED
    found[most] += count - sum(found.values())
    return found


def _needs(at: Pools) -> dict[str, int]:
    return {name: -(-requested_m(at, name) // 1000) for name in at.pools if name != RESERVED}


def _divided(node: _Node, at: Pools, near: Mapping[str, CpuSet]) -> Pools | None:
    """With all CPUs divided anew. A pool keeps what it can of its CPUs, or of those in `near`."""
    pools = {name: pool for name, pool in at.pools.items() if name != RESERVED}
    weights = {name: pool.weight if pool.members else 0 for name, pool in pools.items()}
    found = sizes(_needs(at), weights, node.divided.bit_count())
    if found is None:
        return None
    for name, pool in pools.items():
        if pool.members and not found[name]:
            donor = max(found, key=lambda other: found[other] - _needs(at)[other])
            if found[donor] - max(_needs(at)[donor], bool(pools[donor].members)) < 1:
                return None
            found[name], found[donor] = 1, found[donor] - 1
    has, taken = dict[str, CpuSet](), 0
    for name, pool in pools.items():  # who has to give gives first
        mine = near.get(name, pool.cpus) & node.divided & ~taken
        more = mine.bit_count() - found[name]
        has[name] = mine & ~shrink(node.machine, mine, 0, max(more, 0), _wish(node, name))
        taken |= has[name]
    for name in pools:
        more = found[name] - has[name].bit_count()
        got = grow(node.machine, has[name], node.divided & ~taken, more, _wish(node, name))
        has[name], taken = has[name] | got, taken | got
    new = {name: replace(pool, cpus=has[name]) for name, pool in pools.items() if pool.cpus != has[name]}
    return Pools({**at.pools, **new}, at.grants) if new else at


def _wish(node: _Node, name: str) -> Wish:
    return Wish(kind=KINDS[node.kinds[name].allocator_priority])


def _capacity(node: _Node, at: Pools, name: str) -> bool:
    return name == RESERVED or sum(_needs(at).values()) <= node.divided.bit_count()


def _size(node: _Node, at: Pools, name: str, _: bool) -> Pools | None:
    return at if name == RESERVED else _divided(node, at, {})


def _full(node: _Node, at: Pools, ask: Ask) -> str:
    told = ", ".join(f"{name} {need}" for name, need in _needs(at).items())
    return (
        f"it requests {ask.request_m} milliCPU, and of {node.divided.bit_count()} CPUs that are divided pools need "
        f"{told}; request less, or end containers"
    )


def _resume(node: _Node, at: Pools, asks: Sequence[Ask], _: Admit) -> Pools:
    """With these containers in their pools, whose CPUs are those that only their containers have, as far as that can
    be. What a pool has beyond requests counts as its use, until that is measured again."""
    there, has, once, twice = at, dict[str, CpuSet](), 0, 0
    for ask in asks:
        if ask.has:
            grant = _grant(node, ask)
            there = joined(there, grant)
            has[grant.pool] = has.get(grant.pool, 0) | ask.has
    for name in there.pools:
        twice |= once & has.get(name, 0)
        once |= has.get(name, 0)
    near = {name: cpus & ~twice for name, cpus in has.items() if name != RESERVED and not at.pools[name].members}
    if near:
        near = {name: 0 for name in at.pools if not at.pools[name].members} | near
    weights = {name: max(0, 1000 * (cpus.bit_count() - _needs(there)[name])) for name, cpus in near.items() if cpus}
    return _divided(node, _weighed(there, weights), near) or at


def _rebalance(node: _Node, at: Pools, load: Mapping[int, int]) -> Pools:
    """A pool that would gain or lose one CPU stays as it is until the next container comes or goes: else sets would
    change at every look."""
    used = {name: sum(load.get(cpu, 0) for cpu in ids(pool.cpus)) for name, pool in at.pools.items()}
    weighed = _weighed(at, {name: use if at.pools[name].members else 0 for name, use in used.items()})
    after = _divided(node, weighed, {}) or at
    far = (abs(pool.cpus.bit_count() - at.pools[name].cpus.bit_count()) > 1 for name, pool in after.pools.items())
    return after if any(far) else weighed


def _weighed(at: Pools, weights: Mapping[str, int]) -> Pools:
    pools = {name: replace(pool, weight=weights.get(name, pool.weight)) for name, pool in at.pools.items()}
    return Pools(pools, at.grants)


DYNAMIC_POOLS = policy(
    "dynamic-pools",
    "containers of a type share one pool; all CPUs are divided by requests, and the rest by use",
    Hooks(
        _node,
        _carve,
        lambda node, at, ask: (Offer(at, _grant(node, ask)),),
        _capacity,
        _size,
        _full,
        _resume,
        _rebalance,
    ),
    needs=("policy.reserved",),
)
