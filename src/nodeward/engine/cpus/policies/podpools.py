"""The policy `podpools` of CRI Resource Manager: pools of one size for whole pods, which no CPU ever leaves.

A pod's annotation names the pools it goes to; all its containers are in one of them while it lives. Pods of
kube-system run on the reserved CPUs, all others on the CPUs that are left over (`default`), which are the reserved ones
where none are.

Added: after a restart a pod stays in the pool whose CPUs it has. That a pool's pods request more than it has is no
fault, as there: `nodeward explain` shows it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from nodeward.engine.cpus import amounts
from nodeward.engine.cpus.picker import Kind, pick
from nodeward.engine.cpus.policies.pools_with_rules import (
    Hooks,
    Offer,
    grant_of,
    is_system,
    is_there,
    pods_of,
    policy,
    requested_m,
    type_of,
)
from nodeward.engine.cpus.requested import scoped
from nodeward.engine.tables import kept
from nodeward.model.annotations import POD_POOL
from nodeward.model.cpus import Ask, Denied, Ground, Pool, Pools
from nodeward.model.policy_rule import PolicySettings
from nodeward.model.pool_rule import DEFAULT, RESERVED, FillOrder, PodPool, instances
from nodeward.model.refusal import Reason
from nodeward.model.topology import Machine


@dataclass(frozen=True, slots=True)
class _Node:
    kinds: Mapping[str, PodPool]
    first: Pools


@kept
def _node(machine: Machine, settings: PolicySettings) -> _Node | Denied:
    ground = Ground(machine, settings)
    allowed = amounts.universe(ground)
    reserved = amounts.reserved(ground, lambda free, n: pick(machine, free, n, Kind.NORMAL))
    if isinstance(allowed, Denied):
        return allowed
    if isinstance(reserved, Denied):
        return reserved
    kinds = {one.name: one for one in settings.podpools.pools}
    own, size = kinds.get(DEFAULT, PodPool(DEFAULT)), reserved.bit_count()
    if RESERVED in kinds and kinds[RESERVED].cpu not in (0, size):
        return Denied(f"policy.podpools: the pool reserved has {kinds[RESERVED].cpu} CPUs, and {size} are reserved")
    free, pools = allowed & ~machine.isolated & ~reserved, dict[str, Pool]()
    most, left = free.bit_count(), 0
    for one in (own, *(one for name, one in kinds.items() if name not in (DEFAULT, RESERVED))):
        count = 1 if one is own else instances(one.instances, max(one.cpu, 1), most - own.cpu) or 0
        if count * one.cpu > free.bit_count():
            return Denied(
                f"policy.podpools: {count} pool(s) {one.name} of {one.cpu} CPUs do not fit: {free.bit_count()} of "
                f"{most} CPUs are left; ask for fewer"
            )
        if count > 1 and not one.max_pods and one.fill_order is FillOrder.PACKED:
            return Denied(
                f"policy.podpools: of {count} pools {one.name} that are Packed only the first would ever be used; set "
                "MaxPods, or another FillOrder"
            )
        for i in range(count):
            cpus = pick(machine, free, one.cpu, Kind.NORMAL)
            free &= ~cpus
            if one is own:
                left = cpus
            else:
                pools[f"{one.name}[{i}]"] = Pool(cpus, apart=True)
    left |= free
    shared = {RESERVED: Pool(reserved, apart=bool(left)), DEFAULT: Pool(left or reserved, apart=bool(left))}
    return _Node({RESERVED: PodPool(RESERVED), DEFAULT: own, **kinds}, Pools(shared | pools))


def _carve(ground: Ground) -> Pools | Denied:
    node = _node(ground.machine, ground.rules)
    return node if isinstance(node, Denied) else node.first


def _order(ground: Ground, at: Pools, ask: Ask) -> Iterator[Offer] | Denied:
    node = _node(ground.machine, ground.rules)
    return node if isinstance(node, Denied) else _offers(node, ground, at, ask)


def _offers(node: _Node, ground: Ground, at: Pools, ask: Ask) -> Iterator[Offer]:
    pins = ground.rules.podpools.pin_cpu
    for name, how in _names(node, at, ask):
        reason = Reason("cpus-podpool", (name, how, requested_m(at, name) + ask.request_m, _milli(at.pools[name])))
        yield Offer(at, grant_of(ask, name, reason, pins, ground.rules.podpools.pin_memory))


def _names(node: _Node, at: Pools, ask: Ask) -> Iterator[tuple[str, str]]:
    """The pools that the container may go to, and why each."""
    yield from ((name, "pod") for name, pool in at.pools.items() if ask.pod_uid in pods_of(pool))
    if is_system((), ask):
        yield RESERVED, "system"
        return
    said = scoped(ask.annotations, POD_POOL, "")
    kind = said[0].strip() if said is not None else ""
    if kind in node.kinds and kind != DEFAULT:
        order, pools = _ORDERS[node.kinds[kind].fill_order], at.pools
        mine = [name for name in pools if type_of(name) == kind and _has_room(node, pools[name], name)]
        mine.sort(key=lambda name: (not is_there(pools[name], ask.has), order(len(list(pods_of(pools[name]))))))
        yield from ((name, "annotation") for name in mine)
    how = "none" if said is None else "full" if kind in node.kinds else "unknown"
    yield DEFAULT, "annotation" if kind == DEFAULT else how


_ORDERS: Mapping[FillOrder, Callable[[int], int]] = {
    FillOrder.BALANCED: lambda pods: pods,
    FillOrder.PACKED: lambda pods: -pods,
    FillOrder.FIRST_FREE: lambda _: 0,
}


def _has_room(node: _Node, pool: Pool, name: str, more: int = 1) -> bool:
    most = node.kinds[type_of(name)].max_pods
    return not most or len(list(pods_of(pool))) + more <= most


def _capacity(ground: Ground, at: Pools, name: str) -> bool:
    node = _node(ground.machine, ground.rules)
    return not isinstance(node, Denied) and _has_room(node, at.pools[name], name, 0)


def _milli(pool: Pool) -> int:
    return 1000 * pool.cpus.bit_count()


def _full(ground: Ground, at: Pools, ask: Ask) -> str:
    name = RESERVED if is_system((), ask) else DEFAULT
    pods = len(list(pods_of(at.pools[name])))
    return f"the pool {name} has {pods} pods, as many as it may have (MaxPods); end a pod, or raise MaxPods"


PODPOOLS = replace(
    policy(
        "podpools",
        "pods share pools of a fixed size, chosen by annotation",
        Hooks(_carve, _order, _capacity, lambda _, at, __, ___: at, _full),
        needs=("policy.reserved",),
    ),
    keeps_pools=True,
)
