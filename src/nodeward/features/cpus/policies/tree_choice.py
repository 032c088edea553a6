"""Chooses the pool for a container of `topology-aware`: each pool with room has a key, and the least wins."""

from collections.abc import Sequence
from dataclasses import dataclass

from nodeward.core.cpuset import CpuSet
from nodeward.core.hints import Hint
from nodeward.core.topology import Level, Machine
from nodeward.features.cpus.memory_nodes import types_of
from nodeward.features.cpus.near import score, usable
from nodeward.features.cpus.picker import CpuPriority, pick, preferred
from nodeward.features.cpus.pool_settings import MemoryType, TopologyAwareSettings
from nodeward.features.cpus.pool_tree import Tree
from nodeward.features.cpus.pools import own_of
from nodeward.features.cpus.values import Ask, Pools

ISOLATED = "isolated"
_COLOCATED = 10
"""Weight of each container of the same pod, or namespace."""


@dataclass(frozen=True, slots=True)
class Node:
    """What the settings make of the machine."""

    machine: Machine
    rules: TopologyAwareSettings
    tree: Tree
    reserved: CpuSet
    sharable: CpuSet
    """CPUs for containers that are neither reserved nor isolated."""
    isolated: CpuSet


@dataclass(frozen=True, slots=True)
class Want:
    """What a container is to have. `full`: CPUs of its own; `part_m`: of those that it shares."""

    full: int = 0
    part_m: int = 0
    reserved: bool = False
    isolated: bool = False
    """Whether those of its own are to be isolated ones if there are enough."""
    must: bool = False
    """Whether it has none but isolated ones for its own."""
    unread: bool = False
    """What it requests could not be read: it stays where it is, or has no place."""
    priority: CpuPriority = CpuPriority.ANY
    limit_m: int = 0
    """A Burstable container's; 0 for none."""
    level: Level | None = None
    """Of the pool for a Burstable container without a limit."""
    types: tuple[MemoryType, ...] = ()
    """Of the memory that it may have."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A pool for a container: the least key of those with room is chosen."""

    key: tuple[tuple[int, ...], ...]
    at: int


Near = tuple[tuple[int, ...], tuple[int, ...], int]
"""Of a choice's key, what is of `affinity`, `hints` and `room`."""
RULES = (
    *("kind", "affinity", "hints", "level", "limit", "memory", "room", "priority", "depth", "isolated", "members"),
    *("left", "order"),
)
"""What each part of a choice's key is."""


def free_m(node: Node, at: Pools) -> list[int]:
    """By pool, how much of its shared CPUs is promised to nobody, in thousandths of a CPU: neither there, nor within
    it, nor in a pool around it. A container that requests nothing needs one."""
    tree = node.tree
    used = [_used(at, at.pools[one.name].members) for one in tree.pools]
    for i in range(len(used) - 1, 0, -1):
        used[tree.pools[i].above] += used[i]
    free = [1000 * at.pools[one.name].cpus.bit_count() - used[i] for i, one in enumerate(tree.pools)]
    for i, one in enumerate(tree.pools[1:], 1):
        free[i] = min(free[i], free[one.above])
    return free


def _used(at: Pools, members: Sequence[str]) -> int:
    found = idle = 0
    for key in members:
        grant = at.grants[key]
        if grant.part_m:
            found += grant.part_m
        elif not grant.own:
            idle = 1
    return found + idle


def given_up(node: Node, at: Pools, free: Sequence[int], i: int, want: Want, near: CpuSet) -> CpuSet:
    """The CPUs that the pool can give to one container alone: no pool within it gives more than it has free."""
    tree, cpus = node.tree, at.pools[node.tree.pools[i].name].cpus
    count = max(free[i], 0) // 1000
    found = cpus
    for j in tree.inside[i]:
        theirs = at.pools[tree.pools[j].name].cpus
        found = found & ~theirs | given_up(node, at, free, j, want, near)
    if found.bit_count() <= count:
        return found
    stay = found & near
    if stay.bit_count() >= count:
        return pick(node.machine, stay, count, want.priority)
    return stay | pick(node.machine, found & ~stay, count - stay.bit_count(), want.priority, near=stay)


def choices_of(node: Node, at: Pools, free: Sequence[int], ask: Ask, want: Want) -> list[Choice]:
    """The pools that have room, the best first."""
    kin, full_zones = _kin(node, at, ask), _without_room(node, at, ask, want)
    hints = usable(node.machine, ask.hints)
    isolated = at.pools[ISOLATED].cpus if ISOLATED in at.pools else 0
    found = list[Choice]()
    for i in range(len(node.tree.pools)):
        rest, alone = _rest(node, free, isolated, i, want)
        if rest < 0:
            continue
        near = (-kin[i],), _beside_hints(node, i, hints), full_zones[i]
        found.append(Choice(_key(node, at, i, want, free[i], rest, alone, near), i))
    return sorted(found, key=lambda choice: choice.key)


def fits(node: Node, at: Pools, free: Sequence[int], i: int, want: Want) -> bool:
    """Whether the pool has room."""
    return _rest(node, free, at.pools[ISOLATED].cpus if ISOLATED in at.pools else 0, i, want)[0] >= 0


def _rest(node: Node, free: Sequence[int], isolated: CpuSet, i: int, want: Want) -> tuple[int, int]:
    """What is left free of the pool with the container, below 0 where it has no room; and the isolated CPUs there, 0
    where these do not suffice."""
    alone = (isolated & node.tree.pools[i].cpus).bit_count()
    spare = want.isolated and want.full > 0 and alone >= want.full
    rest = free[i] - want.part_m - (0 if spare else 1000 * want.full)
    is_short = (want.must and not spare) or (not want.full and not want.part_m and rest < 1)
    return -1 if is_short else rest, alone if spare else 0


def _key(
    node: Node, at: Pools, i: int, want: Want, free: int, rest: int, isolated: int, near: Near
) -> tuple[tuple[int, ...], ...]:
    """By `RULES`; the least is the best."""
    one = node.tree.pools[i]
    pool = at.pools[one.name]
    alike = preferred(node.machine, want.priority)
    return (
        (int(want.isolated and want.full > 0 and not isolated),),
        *near[:2],
        _beside_level(one.level, want.level, (near[2], -free, i)),
        (int(want.limit_m > free),),
        (one.memory.bit_count(),),
        (near[2],),
        (int(want.full > 0 and not isolated and (pool.cpus & alike).bit_count() < want.full),),
        (-one.depth,),
        (-isolated,),
        (0 if want.full else len(pool.members),),
        (-rest,),
        (i,),
    )


def _beside_hints(node: Node, i: int, hints: Sequence[Hint]) -> tuple[int, ...]:
    """The nearest to the things that it uses; of several that are as near, the deepest, then the first."""
    pool = node.tree.pools[i]
    product, above = score(node.machine, pool, hints) if hints else (0, 0)
    return (-product, -above, -pool.depth, i) if above else (0, 0, 0, 0)


def _without_room(node: Node, at: Pools, ask: Ask, want: Want) -> list[int]:
    """By pool, 1 where its memory nodes have too little left for what the container requests."""
    pools, types = node.tree.pools, types_of(node.machine)
    size = {one.id: one.bytes for one in node.machine.memory if types.get(one.id) in want.types}
    bytes_ = ask.memory_request or ask.memory_limit
    if not bytes_ or not node.rules.pin_memory:
        return [0] * len(pools)
    taken, found = own_of(at.grants), list[int]()
    for one in pools:
        has = sum(amount for number, amount in size.items() if one.memory >> number & 1)
        used = sum(amount for zone, amount in taken.items() if not zone & ~one.memory)
        found.append(int(bool(one.memory) and has - used < bytes_))
    return found


def _beside_level(level: Level, asked: Level | None, order: tuple[int, int, int]) -> tuple[int, ...]:
    """For a container that is to have a pool of a level: one at that level before one below it, and that before one
    above; of several at the level by this order: whose memory has room, where most is free."""
    if asked is None:
        return (0,)
    if level is asked:
        return 0, *order
    return 1 if level > asked else 2, 0, 0, order[-1]


def _kin(node: Node, at: Pools, ask: Ask) -> list[int]:
    """By pool, how much those are near that it wants to be near to: by its own wishes, else of the same pod and
    namespace, as far as these are placed together."""
    rules, tree = node.rules, node.tree
    own = [0] * len(tree.pools)
    if ask.kin is not None:
        for key, weight in ask.kin.items():
            i = tree.at.get(at.grants[key].pool) if key in at.grants else None
            if i is not None:
                own[i] += weight
        return [_near(tree, own, i) for i in range(len(own))]
    if not (rules.colocate_pods or rules.colocate_namespaces):
        return own
    pod = f"{ask.pod_uid}/"
    for key, grant in at.grants.items():
        i = tree.at.get(grant.pool)
        if i is not None and key != ask.key:
            same = rules.colocate_pods and key.startswith(pod)
            own[i] += _COLOCATED * (same + (rules.colocate_namespaces and grant.namespace == ask.namespace))
    return [_near(tree, own, i) for i in range(len(own))]


def _near(tree: Tree, own: Sequence[int], i: int) -> int:
    """The weights of the pools above and below this one, and its own: three quarters for each step. In whole numbers,
    so that the same containers give the same sum."""
    far = 2 * max(one.depth for one in tree.pools)
    found, depth = 0, tree.pools[i].depth
    for j, weight in enumerate(own):
        if weight and (i in tree.paths[j] or j in tree.paths[i]):
            steps = abs(tree.pools[j].depth - depth)
            found += weight * 3**steps * 4 ** (far - steps)
    return found
