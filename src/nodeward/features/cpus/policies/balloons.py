"""The policy `balloons` of nri-plugins and CRI Resource Manager: pools that grow and shrink with their containers.

A type says who belongs to its balloons, how many there are and how large each is. A container goes to a balloon of its
type: one that its pod or group is in, one with room, one that can be inflated, or a new one. A balloon has as many CPUs
as its containers request, rounded up. No CPU is in two balloons; idle ones may be lent to balloons near them.

Faults of upstream left out:

- a resize in place does nothing there; here the balloon grows or shrinks, or the resize is refused
- a change of settings places all containers anew there, whatever runs; here who may stay stays
- the balloon `reserved` by a cpuset has no CPUs there unless its type has `maxCPUs`, and others may take these CPUs
- CPUs that the kernel isolates are given to any balloon when others are short there; here only to types that ask for
  them, since the kernel's scheduler does not balance there
- where hyperthreads are hidden, a lent thread may take the place of the balloon's own one of that core there
- components of a composite balloon share its size there by a division that may leave one without a CPU
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeward.core import annotations as keys
from nodeward.core.cpuset import CpuSet, text
from nodeward.core.decision import SchedulingClass
from nodeward.core.hints import HintKind
from nodeward.core.refusal import Reason
from nodeward.core.tables import beside, kept, put, without
from nodeward.core.topology import Level, Machine
from nodeward.features.cpus import amounts
from nodeward.features.cpus.expression import labels_in
from nodeward.features.cpus.match import are_told, filled, globs, holds, labels_of
from nodeward.features.cpus.near import cpus_of
from nodeward.features.cpus.picker import CpuPriority
from nodeward.features.cpus.policies.pools_with_rules import (
    Admit,
    Hooks,
    Offer,
    firsts,
    grant_of,
    is_of,
    is_preserved,
    is_there,
    memory_types,
    policy,
    requested_m,
    said,
    type_of,
    used,
)
from nodeward.features.cpus.pool_settings import (
    DEFAULT,
    POD_RESOURCE,
    RESERVED,
    SYSTEM_NAMESPACE,
    BalloonsSettings,
    BalloonType,
    CoreType,
    Creation,
    Priority,
    Within,
)
from nodeward.features.cpus.pools import joined
from nodeward.features.cpus.requested import flag
from nodeward.features.cpus.settings import AmountKind, PolicySettings
from nodeward.features.cpus.tree import Wish, grow, shrink
from nodeward.features.cpus.values import Ask, Denied, Grant, Ground, Inside, Part, Pool, Pools

KINDS: Mapping[Priority, CpuPriority] = {
    Priority.HIGH: CpuPriority.HIGH,
    Priority.NORMAL: CpuPriority.NORMAL,
    Priority.LOW: CpuPriority.LOW,
    Priority.NONE: CpuPriority.ANY,
}
"""In the order in which the first balloons are made."""
_NONE: Mapping[str, CpuSet] = {}
_LEVELS = {
    Within.SYSTEM: Level.SYSTEM,
    Within.PACKAGE: Level.PACKAGE,
    Within.DIE: Level.DIE,
    Within.NUMA: Level.NUMA,
    Within.L2CACHE: Level.L2,
    Within.CORE: Level.CORE,
    Within.THREAD: Level.CORE,
}


@dataclass(frozen=True, slots=True)
class _Node:
    """What the settings make of the machine."""

    machine: Machine
    allowed: CpuSet
    rules: BalloonsSettings
    types: Mapping[str, BalloonType]
    """In the order in which they are asked whether a container is theirs."""
    wishes: Mapping[str, Wish]
    named: CpuSet
    """CPUs that are reserved by number: of the balloon `reserved` alone."""
    labels: tuple[str, ...]
    """Those that the settings name."""

    def may(self, kind: str) -> CpuSet:
        """The CPUs that a balloon of the type may have."""
        isolated = 0 if self.types[kind].prefer_isol_cpus else self.machine.isolated
        return self.allowed & ~isolated & ~(0 if kind == RESERVED else self.named)

    def free(self, at: Pools, kind: str) -> CpuSet:
        """The CPUs that a balloon of the type may have and that no balloon has."""
        return self.may(kind) & ~used(at)


# ---- the settings ----------------------------------------------------------------------------------------------------


@kept
def _node(machine: Machine, settings: PolicySettings) -> _Node | Denied:
    ground = Ground(machine, settings)
    allowed, rules = amounts.universe(ground), settings.balloons
    if isinstance(allowed, Denied):
        return allowed
    is_named = settings.reserved.kind in (AmountKind.CPUSET, AmountKind.EXCLUDE)
    named = amounts.reserved(ground, lambda _, __: 0) if is_named else 0
    if isinstance(named, Denied):
        return named
    count = named.bit_count() or max(1, -(-settings.reserved.milli // 1000))
    types = {one.name: one for one in rules.balloon_types}
    reserved = _reserved(types.get(RESERVED), rules, count, is_named)
    if RESERVED in types:
        types[RESERVED] = reserved
    else:
        types = {RESERVED: reserved, **types}
    types.setdefault(DEFAULT, BalloonType(DEFAULT, min_balloons=1, max_balloons=1, allocator_priority=Priority.LOW))
    wishes = {name: _wish(machine, rules, one, types, named) for name, one in types.items()}
    return _Node(machine, allowed, rules, types, wishes, named, labels_of(settings))


def _reserved(listed: BalloonType | None, rules: BalloonsSettings, count: int, is_named: bool) -> BalloonType:
    one = listed or BalloonType(RESERVED)
    most = min(count, one.max_cpus) if one.max_cpus > 0 else count
    return replace(
        one,
        namespaces=(*one.namespaces, SYSTEM_NAMESPACE, *rules.reserved_pool_namespaces),
        min_cpus=max(most, one.min_cpus),
        min_balloons=1,
        max_balloons=1,
        allocator_priority=Priority.NORMAL if is_named else Priority.LOW,
    )


def _wish(
    machine: Machine,
    rules: BalloonsSettings,
    one: BalloonType,
    types: Mapping[str, BalloonType],
    named: CpuSet,
    told: Mapping[str, CpuSet] = _NONE,
) -> Wish:
    """`told`: by an entry for kubelet's resources, the CPUs near those of a container."""
    near = {**machine.near, **told}
    cores = {CoreType.EFFICIENT: machine.efficient, CoreType.PERFORMANCE: machine.online & ~machine.efficient}
    own = [named] if one.name == RESERVED and named else []
    own += [near[device] for device in one.prefer_close_to_devices if near.get(device)]
    own += [machine.isolated] if one.prefer_isol_cpus else []
    own += [cores[one.prefer_core_type]] if one.prefer_core_type in cores and machine.efficient else []
    others = dict.fromkeys(other.prefer_core_type for other in types.values()) if machine.efficient else {}
    devices = dict.fromkeys(device for other in types.values() for device in other.prefer_close_to_devices)
    away = [near[device] for device in devices if near.get(device) and device not in one.prefer_close_to_devices]
    away += [cores[other] for other in others if other in cores and other is not one.prefer_core_type]
    balanced, spread = one.allocator_topology_balancing, one.prefer_spread_on_physical_cores
    return Wish(
        rules.allocator_topology_balancing if balanced is None else balanced,
        rules.prefer_spread_on_physical_cores if spread is None else spread,
        KINDS[one.allocator_priority],
        (*own, *(~cpus for cpus in away)),
    )


def _carve(node: _Node) -> Pools | Denied:
    found = _with_first_ones(node, Pools())
    return found if isinstance(found, Denied) else _lent(node, found)


def _with_first_ones(node: _Node, at: Pools) -> Pools | Denied:
    """With the least number of balloons of each type."""
    for priority in KINDS:
        for one in node.types.values():
            for i in range(_count(at, one), one.min_balloons if one.allocator_priority is priority else 0):
                made = _with_new(node, at, one)
                if made is None:
                    free = node.free(at, one.name)
                    return Denied(
                        f"policy.balloons: {one.min_balloons} balloon(s) of the type {one.name} with {one.min_cpus} "
                        f"CPU(s) each do not fit: {i} are there, and free are {free.bit_count()} CPUs "
                        f"({text(free) or 'none'}); lower minCPUs or minBalloons of a type, or reserve fewer"
                    )
                at = made[0]
    return at


# ---- who belongs where -----------------------------------------------------------------------------------------------


def _kind(node: _Node, ask: Ask) -> tuple[BalloonType, str] | Denied:
    """The container's type, and by what it has it."""
    for key in keys.BALLOON_TYPES:
        name = said(ask, key)
        if name is not None:
            if name in node.types:
                return node.types[name], "annotation"
            return Denied(
                f"its annotation {key} names the balloon type {name[:64]!r}, which is not there; types are "
                f"{', '.join(node.types)}"
            )
    for one in node.types.values():
        if any(holds(expression, ask) for expression in one.match_expressions):
            return one, "expression"
        before = node.types.get(type_of(ask.was))
        if before and not are_told(labels_in(expression.key for expression in one.match_expressions), ask):
            return before, "unread"  # whether it is of this type cannot be told yet
        if is_of(one.namespaces, ask):
            return one, "namespace"
    return node.types[DEFAULT], "default"


def _is_preserved(node: _Node, ask: Ask) -> bool:
    return is_preserved(ask) or any(holds(one, ask) for one in node.rules.preserve)


def _order(node: _Node, at: Pools, ask: Ask) -> Iterator[Offer] | Denied:
    if _is_preserved(node, ask):
        return iter((Offer(at, grant_of(ask, "", Reason("cpus-balloon-preserved"))),))
    found = _kind(node, ask)
    return found if isinstance(found, Denied) else _offers(node, at, ask, *found)


def _offers(node: _Node, at: Pools, ask: Ask, one: BalloonType, by: str) -> Iterator[Offer]:
    for how, there, name in _chain(node, at, ask, one):
        yield Offer(there, _grant(node, ask, one, by, name, how))


def _grant(node: _Node, ask: Ask, one: BalloonType, by: str, name: str, how: str) -> Grant:
    found = flag(ask.annotations, keys.HIDE_HYPERTHREADS, ask.container)
    hides = one.hide_hyperthreads if found is None else found is True
    grant = grant_of(ask, name, Reason("cpus-balloon", (one.name, by, name, how)), node.rules.pin_cpu)
    pins = node.rules.pin_memory if one.pin_memory is None else one.pin_memory
    types = memory_types(ask) or one.memory_types
    grant = replace(grant, pins_memory=pins, memory_types=types if pins else ())
    return replace(grant, hide=hides, group=filled(one.group_by, ask), waits=not are_told(node.labels, ask))


def _chain(node: _Node, at: Pools, ask: Ask, one: BalloonType) -> Iterator[tuple[str, Pools, str]]:
    """Balloons for the container, the best first, and why each."""
    group = filled(one.group_by, ask)
    mine = {name: pool for name, pool in at.pools.items() if type_of(name) == one.name}
    sums = {name: requested_m(at, name) for name in mine}
    rooms = {name: _room_m(node, at, name) - sums[name] for name in mine}
    frees = {name: 1000 * pool.cpus.bit_count() - sums[name] for name, pool in mine.items()}

    def has_room(of: Mapping[str, int], name: str) -> bool:
        return of[name] >= max(ask.request_m, 1 - sums[name])  # a balloon with containers has a CPU

    def best(of: Mapping[str, int], are: Callable[[str], bool]) -> Iterator[tuple[Pools, str]]:
        good = [name for name in mine if has_room(rooms, name) and are(name)]
        good.sort(key=lambda name: (-of[name], len(mine[name].members)))
        yield from ((at, name) for name in good)

    def new() -> Iterator[tuple[Pools, str]]:
        yield from best(rooms, lambda name: not mine[name].members)
        made = _with_new(_near(node, one, ask), at, one)
        if made is not None:
            yield made

    def members(name: str) -> Iterator[str]:
        yield from mine[name].members

    pod = f"{ask.pod_uid}/"
    steps: list[tuple[str, Iterator[tuple[Pools, str]]]] = []
    if ask.has:
        steps.append(("there", best(frees, lambda name: is_there(mine[name], ask.has))))
    if group:
        steps.append(("group", best(frees, lambda name: any(at.grants[key].group == group for key in members(name)))))
    if not one.prefer_spreading_pods:
        steps.append(("pod", best(frees, lambda name: any(key.startswith(pod) for key in members(name)))))
    if one.prefer_per_namespace_balloon:
        its = ask.namespace
        steps.append(("space", best(frees, lambda name: any(at.grants[key].namespace == its for key in members(name)))))
        steps.append(("new", new()))
    fits = ("fits", best(frees, lambda name: has_room(frees, name)))
    grows = ("grows", best(rooms, lambda _: True))
    steps += [("new", new()), fits, grows] if one.prefer_new_balloons else [fits, grows, ("new", new())]
    for how, found in steps:
        yield from ((how, there, name) for there, name in found)


def _near(node: _Node, one: BalloonType, ask: Ask) -> _Node:
    """With the wish of a new balloon of the type: near what kubelet has given the container for which it is made."""
    told = dict[str, CpuSet]()
    for entry in one.prefer_close_to_devices:
        pattern = entry.removeprefix(POD_RESOURCE)
        for hint in ask.hints if pattern != entry else ():
            if hint.resource and globs(pattern, hint.resource):
                told[entry] = told.get(entry, 0) | cpus_of(node.machine, hint)
    if not told:
        return node
    wish = _wish(node.machine, node.rules, one, node.types, node.named, told)
    return replace(node, wishes=put(node.wishes, one.name, wish))


def _asks_kubelet(rules: PolicySettings) -> tuple[HintKind, ...]:
    devices = (one for kind in rules.balloons.balloon_types for one in kind.prefer_close_to_devices)
    return (HintKind.POD_RESOURCE,) if any(one.startswith(POD_RESOURCE) for one in devices) else ()


def _full(node: _Node, at: Pools, ask: Ask) -> str:
    found = _kind(node, ask)
    if isinstance(found, Denied):
        return ""
    one, free = found[0], node.free(at, found[0].name)
    most = "no limit" if not one.max_cpus else f"at most {max(one.max_cpus, 0)} CPUs each"
    many = "no limit" if not one.max_balloons else f"at most {one.max_balloons}"
    return (
        f"no suitable balloon instance available: it requests {ask.request_m} milliCPU; balloons of the type "
        f"{one.name} are {_count(at, one)} ({many}, {most}), and CPUs of no balloon are "
        f"{free.bit_count()} ({text(free) or 'none'}); request less, or raise maxCPUs or maxBalloons of the type"
    )


# ---- sizes -----------------------------------------------------------------------------------------------------------


def _capacity(node: _Node, at: Pools, name: str) -> bool:
    return _room_m(node, at, name) >= max(1, requested_m(at, name))


def _room_m(node: _Node, at: Pools, name: str) -> int:
    """How much its containers may request together, if it gets all free CPUs that it may have."""
    one, pool = node.types[type_of(name)], at.pools[name]
    room = 1000 * one.max_cpus if one.max_cpus > 0 else 1000 * node.allowed.bit_count()
    for part in pool.parts:
        top = part.cpus.bit_count() + node.free(at, part.type).bit_count()
        room = min(room, part.shares * 1000 * min(top, _most(node, part)))
    return 0 if one.max_cpus < 0 else room


def _wanted(node: _Node, one: BalloonType, part: Part, milli: int) -> int:
    """How many CPUs the part of a balloon has whose containers request so much."""
    milli = max(milli, 1000 * one.min_cpus)
    if one.max_cpus > 0:
        milli = min(milli, 1000 * one.max_cpus)
    least = (-(-node.types[each.type].min_cpus * each.shares // part.shares) for each in part.inside)
    count = min(-(-milli // (1000 * part.shares)), _most(node, part))
    return max(count, node.types[part.type].min_cpus, *least)


def _most(node: _Node, part: Part) -> int:
    """How many CPUs the part may have, by its own type and by those around it, whose CPUs their parts divide."""
    most = node.allowed.bit_count()
    for kind, of in ((part.type, 1), *((each.type, part.shares // each.shares) for each in part.inside)):
        if limit := node.types[kind].max_cpus:
            most = min(most, max(limit, 0) // of)
    return most


def _size(node: _Node, at: Pools, name: str, shrinks: bool) -> Pools | None:
    one, pool = node.types[type_of(name)], at.pools[name]
    if shrinks and not pool.members and _count(at, one) > one.min_balloons:
        return _lent(node, Pools(without(at.pools, (name,)), at.grants))
    milli = max(1, requested_m(at, name)) if pool.members else 0
    found = _filled(node, at, name, milli, shrinks=shrinks)
    return _lent(node, found) if found is not None else None


def _filled(node: _Node, at: Pools, name: str, milli: int, *, shrinks: bool) -> Pools | None:
    """With as many CPUs in each part of the balloon as it needs; None where there are too few."""
    one, pool = node.types[type_of(name)], at.pools[name]
    for i, part in enumerate(pool.parts):
        more = _wanted(node, one, part, milli) - part.cpus.bit_count()
        if not more or (more < 0 and not shrinks):
            continue
        free, wish = node.free(at, part.type), node.wishes[part.type]
        if more > free.bit_count():
            return None
        if more > 0:
            cpus = part.cpus | grow(node.machine, part.cpus, free, more, wish)
        else:
            cpus = part.cpus & ~shrink(node.machine, part.cpus, free, -more, wish)
        pool = _made(node, pool, (*pool.parts[:i], replace(part, cpus=cpus), *pool.parts[i + 1 :]))
        at = Pools(put(at.pools, name, pool), at.grants)
    return at


def _with_new(node: _Node, at: Pools, one: BalloonType) -> tuple[Pools, str] | None:
    """With one more balloon of the type, and its name; None where there may be none, or too few CPUs are free."""
    parts = tuple(_parts(node, at, one))
    if _is_beyond(node, at, one, parts):
        return None
    name = _next_name(at, one)
    found = _filled(node, Pools(put(at.pools, name, Pool(0, parts=parts)), at.grants), name, 0, shrinks=False)
    return (found, name) if found is not None else None


def _is_beyond(node: _Node, at: Pools, one: BalloonType, parts: tuple[Part, ...]) -> bool:
    """Whether one more balloon of the type, made of these parts, is more than it or a component may have."""
    new = _instances_of({f"{one.name}[new]": Pool(0, parts=parts)})
    return any(0 < node.types[kind].max_balloons < _instances(at, kind) + more for kind, more in new.items())


def _next_name(at: Pools, one: BalloonType) -> str:
    """There is one balloon `reserved`, under this name."""
    if one.name == RESERVED:
        return RESERVED
    return next(name for i in range(len(at.pools) + 1) if (name := f"{one.name}[{i}]") not in at.pools)


def _parts(node: _Node, at: Pools, one: BalloonType) -> Iterator[Part]:
    """Of what a new balloon of the type is made."""
    if not one.components:
        yield Part(one.name, 1)
        return
    chosen = one.components
    if one.component_creation is Creation.BALANCE:
        chosen = (min(chosen, key=lambda name: _instances(at, name)),)
    count = len(chosen)
    for number, name in enumerate(chosen):
        for part in _parts(node, at, node.types[name]):
            around = (Inside(name, number, 1), *part.inside) if node.types[name].components else part.inside
            inside = tuple(replace(each, shares=each.shares * count) for each in around)
            yield Part(part.type, part.shares * count, inside=inside)


def _count(at: Pools, one: BalloonType) -> int:
    return sum(type_of(name) == one.name for name in at.pools)


def _instances(at: Pools, kind: str) -> int:
    """How many balloons of the type there are, in composite ones too."""
    return _instances_of(at.pools)[kind]


@kept
def _instances_of(pools: Mapping[str, Pool]) -> Counter[str]:
    found = Counter[str]()
    for name, pool in pools.items():
        found.update(part.type for part in pool.parts)
        within = dict.fromkeys(part.inside[: i + 1] for part in pool.parts for i in range(len(part.inside)))
        found.update(one[-1].type for one in within)
        if (kind := type_of(name)) not in [part.type for part in pool.parts]:
            found[kind] += 1
    return found


def _made(node: _Node, pool: Pool, parts: tuple[Part, ...]) -> Pool:
    cpus = 0
    for part in parts:
        cpus |= part.cpus
    return replace(pool, cpus=cpus, parts=parts, apart=True, firsts=firsts(node.machine, cpus, pool.lent))


def _lent(node: _Node, at: Pools) -> Pools:
    """With the idle CPUs lent. A pool that is lent the same as before stays the same one."""
    idle = node.allowed & ~used(at) & ~node.machine.isolated
    new = dict[str, Pool]()
    for name, pool in at.pools.items():
        level = _LEVELS.get(node.types[type_of(name)].share_idle_cpus_in_same)
        near = 0
        if level is not None:
            for group in node.machine.groups(level):
                near |= group.cpus if group.cpus & pool.cpus else 0
        if pool.lent != near & idle:
            lent = near & idle
            new[name] = replace(pool, lent=lent, firsts=firsts(node.machine, pool.cpus, lent))
    return Pools(beside(at.pools, new), at.grants) if new else at


# ---- containers that run already -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """Containers of one type that are on the same CPUs: they were in one balloon."""

    kind: BalloonType
    by: str
    has: CpuSet
    asks: list[Ask]
    parts: tuple[Part, ...] = ()


def _resume(node: _Node, at: Pools, asks: Sequence[Ask], _: Admit) -> Pools:
    """With balloons made where these containers are: of those CPUs that no others are on first, then of their CPUs,
    then of any. Balloons without containers are made anew after that. As before where that leaves no room for them."""
    groups = _groups(node, at, asks)
    if not groups:
        return at
    found = Pools({name: pool for name, pool in at.pools.items() if pool.members}, at.grants)
    there = dict(at.pools)
    for group in groups:
        group.parts = tuple(_parts(node, Pools(there), group.kind))
        there[f"{group.kind.name}[of group {len(there)}]"] = Pool(0, parts=group.parts)
    _choose(node, found, groups)
    run = 0
    for group in groups:
        found = _with_group(node, found, group)
        run |= group.has
    wishes = {kind: replace(wish, hints=(*wish.hints, ~run)) for kind, wish in node.wishes.items()}
    whole = _with_first_ones(replace(node, wishes=wishes), found)
    return at if isinstance(whole, Denied) else _lent(node, whole)


def _groups(node: _Node, at: Pools, asks: Sequence[Ask]) -> list[_Group]:
    """The balloons that there were, by the containers that are there; each with as many as its type may have."""
    found = list[_Group]()
    for ask in asks:
        has = ask.has & node.allowed
        kind = _kind(node, ask) if has else None
        if kind is None or isinstance(kind, Denied) or _is_preserved(node, ask):
            continue
        one, by = kind
        if any(type_of(name) == one.name and is_there(pool, has) for name, pool in at.pools.items() if pool.members):
            continue
        known = (g for g in found if g.kind is one and (has & ~g.has == 0 or g.has & ~has == 0))
        group = next(known, None)
        most = 1000 * one.max_cpus or 1000 * node.allowed.bit_count()
        if group is None:
            if ask.request_m <= most or not one.max_cpus:
                found.append(_Group(one, by, has, [ask]))
            continue
        if sum(other.request_m for other in group.asks) + ask.request_m <= most:
            group.asks.append(ask)
            group.has |= has
    return found


def _choose(node: _Node, at: Pools, groups: list[_Group]) -> None:
    """Gives each group's parts CPUs."""
    taken = used(at)
    once = twice = taken
    for group in groups:
        twice |= once & group.has
        once |= group.has
    passes: tuple[Callable[[CpuSet], CpuSet], ...] = (
        lambda _: node.named,  # they may be others than before, and nobody else may have them
        lambda has: has & ~twice,
        lambda has: has,
        lambda has: _siblings(node.machine, has) & ~once,
        lambda _: ~once,
        lambda _: ~0,
    )
    for among in passes:
        for group in groups:
            milli = max(1, sum(ask.request_m for ask in group.asks))
            for i, part in sorted(enumerate(group.parts), key=lambda one: node.may(one[1].type).bit_count()):
                free = among(group.has) & node.may(part.type) & ~taken
                more = min(_wanted(node, group.kind, part, milli) - part.cpus.bit_count(), free.bit_count())
                if more > 0:
                    got = grow(node.machine, part.cpus, free, more, node.wishes[part.type])
                    taken |= got
                    group.parts = (*group.parts[:i], replace(part, cpus=part.cpus | got), *group.parts[i + 1 :])


def _siblings(machine: Machine, cpus: CpuSet) -> CpuSet:
    """The further threads of these cores, which a container with hidden hyperthreads is not told: it has the first."""
    found = 0
    for core in machine.cores:
        low = core.cpus & cpus & -(core.cpus & cpus)
        found |= core.cpus & -low
    return found


def _with_group(node: _Node, at: Pools, group: _Group) -> Pools:
    one, milli = group.kind, max(1, sum(ask.request_m for ask in group.asks))
    wanted = [_wanted(node, one, part, milli) for part in group.parts]
    short = any(part.cpus.bit_count() < count for part, count in zip(group.parts, wanted, strict=True))
    if short and node.machine.offline and group.has.bit_count() < sum(wanted):
        # some of its CPUs are offline and no others are free: it goes on by those that are left
        short = not all(part.cpus for part in group.parts)
    if short or one.max_cpus < 0 or _is_beyond(node, at, one, group.parts):
        return at
    name = _next_name(at, one)
    found = Pools(put(at.pools, name, _made(node, Pool(0), group.parts)), at.grants)
    for ask in group.asks:
        found = joined(found, _grant(node, ask, one, group.by, name, "there"))
    return found if node.machine.offline or _capacity(node, found, name) else at


def _scheduling(rules: PolicySettings, _: Ask, grant: Grant) -> tuple[Sequence[SchedulingClass], str]:
    """By the balloon's type."""
    of = {one.name: one.scheduling_class for one in rules.balloons.balloon_types}
    return rules.balloons.scheduling_classes, of.get(type_of(grant.pool), "")


BALLOONS = policy(
    "balloons",
    "containers of a type share balloons: pools of CPUs that grow and shrink with what they request",
    Hooks(
        *(_node, _carve, _order, _capacity, _size, _full, _resume),
        room_m=_room_m,
        scheduling=_scheduling,
        hints=_asks_kubelet,
    ),
)
