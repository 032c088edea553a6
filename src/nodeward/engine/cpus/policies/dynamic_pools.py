"""The policy `dynamic-pools` of CRI Resource Manager: one pool a type, and all CPUs always divided among them.

A pool has as many CPUs as its containers request, rounded up, and a part of the rest by how much its CPUs are used.
Containers of kube-system run on the reserved CPUs; those without request and limit, or of no type, in `shared`.

Promises that every pool with containers has a CPU, and that a CPU is in one pool. Fault of CRI Resource Manager left
out: it measures for a second while each container waits. Here use is measured beside, and `rebalance` is told.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeward.engine.cpus import amounts
from nodeward.engine.cpus.picker import Kind, pick
from nodeward.engine.cpus.policies.balloons import KINDS
from nodeward.engine.cpus.policies.pools_with_rules import (
    Hooks,
    Offer,
    grant_of,
    is_of,
    is_system,
    policy,
    requested_m,
)
from nodeward.engine.cpus.pools import joined
from nodeward.engine.cpus.requested import scoped
from nodeward.engine.cpus.tree import Wish, grow, shrink
from nodeward.engine.tables import kept
from nodeward.model import annotations as keys
from nodeward.model.cpus import Ask, Denied, Ground, Pool, Pools
from nodeward.model.cpuset import CpuSet, ids
from nodeward.model.policy_rule import PolicySettings
from nodeward.model.pool_rule import RESERVED, SHARED, DynamicPoolType
from nodeward.model.refusal import Reason
from nodeward.model.topology import Machine


@dataclass(frozen=True, slots=True)
class _Node:
    machine: Machine
    reserved: CpuSet
    divided: CpuSet
    kinds: Mapping[str, DynamicPoolType]


@kept
def _node(machine: Machine, settings: PolicySettings) -> _Node | Denied:
    ground = Ground(machine, settings)
    allowed = amounts.universe(ground)
    reserved = amounts.reserved(ground, lambda free, n: pick(machine, free, n, Kind.NORMAL))
    if isinstance(allowed, Denied):
        return allowed
    if isinstance(reserved, Denied):
        return reserved
    divided = allowed & ~machine.isolated & ~reserved
    if not divided:
        return Denied(f"{amounts.RESERVED} keeps every CPU, and dynamic-pools needs one to divide; reserve fewer")
    kinds = {SHARED: DynamicPoolType(SHARED)} | {one.name: one for one in settings.dynamic_pools.dynamic_pool_types}
    return _Node(machine, reserved, divided, kinds)


def _carve(ground: Ground) -> Pools | Denied:
    node = _node(ground.machine, ground.rules)
    if isinstance(node, Denied):
        return node
    pools = {RESERVED: Pool(node.reserved, apart=True)} | {name: Pool(0, apart=True) for name in node.kinds}
    return _divided(node, Pools(pools), {}) or Denied("policy.dynamic-pools: no CPU is left to divide")


def _order(ground: Ground, at: Pools, ask: Ask) -> Iterator[Offer] | Denied:
    node = _node(ground.machine, ground.rules)
    if isinstance(node, Denied):
        return node
    name, by = _kind(node, ground.rules, ask)
    reason = Reason("cpus-dynamic-pool", (name, by))
    rules = ground.rules.dynamic_pools
    return iter((Offer(at, grant_of(ask, name, reason, rules.pin_cpu, rules.pin_memory)),))


def _kind(node: _Node, rules: PolicySettings, ask: Ask) -> tuple[str, str]:
    """The container's pool, and by what it has it."""
    if is_system(rules.dynamic_pools.reserved_pool_namespaces, ask):
        return RESERVED, "namespace"
    if ask.known and not ask.request_m and not ask.limit_m:
        return SHARED, "nothing"
    said = scoped(ask.annotations, keys.DYNAMIC_POOL, ask.container)
    if said is not None and said[0].strip() in node.kinds:
        return said[0].strip(), "annotation"
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


def _capacity(ground: Ground, at: Pools, name: str) -> bool:
    node = _node(ground.machine, ground.rules)
    return not isinstance(node, Denied) and (name == RESERVED or sum(_needs(at).values()) <= node.divided.bit_count())


def _size(ground: Ground, at: Pools, name: str, _: bool) -> Pools | None:
    node = _node(ground.machine, ground.rules)
    if isinstance(node, Denied):
        return None
    return at if name == RESERVED else _divided(node, at, {})


def _full(ground: Ground, at: Pools, ask: Ask) -> str:
    node = _node(ground.machine, ground.rules)
    count = 0 if isinstance(node, Denied) else node.divided.bit_count()
    told = ", ".join(f"{name} {need}" for name, need in _needs(at).items())
    return (
        f"it requests {ask.request_m} milliCPU, and of {count} CPUs that are divided pools need {told}; request less, "
        "or end containers"
    )


def _resume(ground: Ground, at: Pools, asks: Sequence[Ask]) -> Pools:
    """With these containers in their pools, whose CPUs are those that only their containers have, as far as that can
    be. What a pool has beyond requests counts as its use, until that is measured again."""
    node = _node(ground.machine, ground.rules)
    if isinstance(node, Denied):
        return at
    there, has, once, twice = at, dict[str, CpuSet](), 0, 0
    for ask in asks:
        if ask.has:
            name, by = _kind(node, ground.rules, ask)
            reason, rules = Reason("cpus-dynamic-pool", (name, by)), ground.rules.dynamic_pools
            there = joined(there, grant_of(ask, name, reason, rules.pin_cpu, rules.pin_memory))
            has[name] = has.get(name, 0) | ask.has
    for name in there.pools:
        twice |= once & has.get(name, 0)
        once |= has.get(name, 0)
    near = {name: cpus & ~twice for name, cpus in has.items() if name != RESERVED and not at.pools[name].members}
    if near:
        near = {name: 0 for name in at.pools if not at.pools[name].members} | near
    weights = {name: max(0, 1000 * (cpus.bit_count() - _needs(there)[name])) for name, cpus in near.items() if cpus}
    pools = {name: replace(pool, weight=weights.get(name, pool.weight)) for name, pool in there.pools.items()}
    return _divided(node, Pools(pools, there.grants), near) or at


def _rebalance(ground: Ground, at: Pools, load: Mapping[int, int]) -> Pools:
    """A pool that would gain or lose one CPU stays as it is until the next container comes or goes: else sets would
    change at every look."""
    node = _node(ground.machine, ground.rules)
    if isinstance(node, Denied):
        return at
    used = {name: sum(load.get(cpu, 0) for cpu in ids(pool.cpus)) for name, pool in at.pools.items()}
    pools = {name: replace(pool, weight=used[name] if pool.members else 0) for name, pool in at.pools.items()}
    weighed = Pools(pools, at.grants)
    after = _divided(node, weighed, {}) or at
    far = (abs(pool.cpus.bit_count() - at.pools[name].cpus.bit_count()) > 1 for name, pool in after.pools.items())
    return after if any(far) else weighed


DYNAMIC_POOLS = replace(
    policy(
        "dynamic-pools",
        "containers of a type share one pool; all CPUs are divided by requests, and the rest by use",
        Hooks(_carve, _order, _capacity, _size, _full),
        _resume,
        needs=("policy.reserved",),
    ),
    rebalance=_rebalance,
)
