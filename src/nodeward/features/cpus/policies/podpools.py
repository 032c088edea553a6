"""The policy `podpools` of CRI Resource Manager: pools of one size for whole pods, which no CPU ever leaves.

A pod's annotation names the pools it goes to; all its containers are in one of them while it lives. Pods of
kube-system run on the reserved CPUs, all others on the CPUs that are left over (`default`), which are the reserved ones
where none are.

Added: after a restart a pod stays in the pool whose CPUs it has. That a pool's pods request more than it has is no
fault, as there: `nodeward explain` shows it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeward.core.annotations import POD_POOL
from nodeward.core.cpuset import CpuSet
from nodeward.core.refusal import Reason
from nodeward.core.tables import kept
from nodeward.core.topology import Machine
from nodeward.features.cpus.picker import CpuPriority, pick
from nodeward.features.cpus.policies.pools_with_rules import (
    Admit,
    Hooks,
    Offer,
    grant_of,
    is_system,
    is_there,
    kept_and_others,
    pods_of,
    policy,
    requested_m,
    said,
    stayed,
    type_of,
)
from nodeward.features.cpus.pool_settings import DEFAULT, RESERVED, FillOrder, PodPool, instances
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Ask, Denied, Pool, Pools


@dataclass(frozen=True, slots=True)
class _Node:
    machine: Machine
    settings: PolicySettings
    kinds: Mapping[str, PodPool]
    first: Pools


@kept
def _node(machine: Machine, settings: PolicySettings) -> _Node | Denied:
    return _made(machine, settings, {}, 0)


def _made(
    machine: Machine, settings: PolicySettings, has: Mapping[str, Collection[CpuSet]], others: CpuSet
) -> _Node | Denied:
    """With pools on CPUs that pods of their kinds have already, where these may have them, else on those that no pod
    has: `others` are those of pods in no pool."""
    sets = kept_and_others(machine, settings)
    if isinstance(sets, Denied):
        return sets
    (reserved, free), pools = sets, dict[str, Pool]()
    kinds = {one.name: one for one in settings.podpools.pools}
    own, size = kinds.get(DEFAULT, PodPool(DEFAULT)), reserved.bit_count()
    if RESERVED in kinds and kinds[RESERVED].cpu not in (0, size):
        return Denied(f"policy.podpools: the pool reserved has {kinds[RESERVED].cpu} CPUs, and {size} are reserved")
    most, left = free.bit_count(), 0
    counts = {name: instances(one.instances, max(one.cpu, 1), most - own.cpu) or 0 for name, one in kinds.items()}
    stay, stayed = dict[str, list[CpuSet]](), 0
    runs = ((name, cpus) for name, found in has.items() for cpus in found)
    for name, cpus in sorted(runs, key=lambda one: one[1].bit_count() != kinds[one[0]].cpu):
        mine, there = cpus & free & ~stayed, stay.setdefault(name, [])
        if mine and len(there) < counts[name]:
            there.append(pick(machine, mine, min(mine.bit_count(), kinds[name].cpu), CpuPriority.NORMAL))
            stayed |= there[-1]
    for one in (own, *(one for name, one in kinds.items() if name not in (DEFAULT, RESERVED))):
        count = 1 if one is own else counts[one.name]
        if not count and one.instances.rstrip().endswith("%"):
            return Denied(
                f"policy.podpools: {one.instances.rstrip()} of {most - own.cpu} CPUs is not enough for one pool "
                f"{one.name} of {one.cpu} CPUs; give a larger share, or fewer CPUs"
            )
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
            mine = (stay.get(one.name) or [0]).pop(0) & free
            more = one.cpu - mine.bit_count()
            rooms = (free & ~stayed & ~others, free & ~stayed, free & ~mine)
            room = next((room for room in rooms if room.bit_count() >= more), 0)
            cpus = mine | (pick(machine, room, more, CpuPriority.NORMAL, near=mine) if more else 0)
            free &= ~cpus
            if one is own:
                left = cpus
            else:
                pools[f"{one.name}[{i}]"] = Pool(cpus, apart=True)
    left |= free
    shared = {RESERVED: Pool(reserved, apart=bool(left)), DEFAULT: Pool(left or reserved, apart=bool(left))}
    kinds = {RESERVED: PodPool(RESERVED), DEFAULT: own, **kinds}
    return _Node(machine, settings, kinds, Pools(shared | pools))


def _order(node: _Node, at: Pools, ask: Ask) -> Iterator[Offer]:
    rules = node.settings.podpools
    for name, how in _names(node, at, ask):
        has_m = 1000 * at.pools[name].cpus.bit_count()
        reason = Reason("cpus-podpool", (name, how, requested_m(at, name) + ask.request_m, has_m))
        yield Offer(at, grant_of(ask, name, reason, rules.pin_cpu, rules.pin_memory))


def _names(node: _Node, at: Pools, ask: Ask) -> Iterator[tuple[str, str]]:
    """The pools that the container may go to, and why each."""
    yield from ((name, "pod") for name, pool in at.pools.items() if ask.pod_uid in pods_of(pool))
    if is_system((), ask):
        yield RESERVED, "system"
        return
    kind = _said(ask)
    if kind is not None and kind in node.kinds and kind != DEFAULT:
        order, pools = _ORDERS[node.kinds[kind].fill_order], at.pools
        mine = [name for name in pools if type_of(name) == kind and _has_room(node, pools[name], name)]
        mine.sort(key=lambda name: (not is_there(pools[name], ask.has), order(len(list(pods_of(pools[name]))))))
        there = [name for name in mine if is_there(pools[name], ask.has)]
        yield from ((name, "annotation") for name in there)
        if is_there(pools[DEFAULT], ask.has):
            yield DEFAULT, "full"  # when it came; who runs takes no place from others
        yield from ((name, "annotation") for name in mine[len(there) :])
    how = "none" if kind is None else "full" if kind in node.kinds else "unknown"
    yield DEFAULT, "annotation" if kind == DEFAULT else how


def _said(ask: Ask) -> str | None:
    return said(ask, POD_POOL, container=False)


_ORDERS: Mapping[FillOrder, Callable[[int], int]] = {
    FillOrder.BALANCED: lambda pods: pods,
    FillOrder.PACKED: lambda pods: -pods,
    FillOrder.FIRST_FREE: lambda _: 0,
}


def _has_room(node: _Node, pool: Pool, name: str, more: int = 1) -> bool:
    most = node.kinds[type_of(name)].max_pods
    return not most or len(list(pods_of(pool))) + more <= most


def _full(_: _Node, at: Pools, ask: Ask) -> str:
    name = RESERVED if is_system((), ask) else DEFAULT
    pods = len(list(pods_of(at.pools[name])))
    return f"the pool {name} has {pods} pods, as many as it may have (MaxPods); end a pod, or raise MaxPods"


def _resume(node: _Node, at: Pools, asks: Sequence[Ask], admit: Admit) -> Pools:
    """Other settings, or another order of the same ones, move no pod whose pool is as large as before."""
    if not any(pool.members for pool in at.pools.values()):
        has, others = dict[str, dict[CpuSet, None]](), 0
        for ask in asks:
            kind = _said(ask)
            if ask.has and kind in node.kinds and kind not in (None, DEFAULT, RESERVED) and not is_system((), ask):
                has.setdefault(str(kind), {})[ask.has] = None
            else:
                others |= ask.has
        found = _made(node.machine, node.settings, has, others)
        at = at if isinstance(found, Denied) else found.first
    return stayed(node, at, asks, admit)


PODPOOLS = replace(
    policy(
        "podpools",
        "pods share pools of a fixed size, chosen by annotation",
        Hooks(
            _node,
            lambda node: node.first,
            _order,
            lambda node, at, name: _has_room(node, at.pools[name], name, 0),
            lambda _, at, __, ___: at,
            _full,
            _resume,
        ),
        needs=("policy.reserved",),
    ),
    keeps_pools=True,
)
