"""The policy `topology-aware` of nri-plugins and CRI Resource Manager: a tree of pools from the machine down to caches.

A container goes to one pool. It shares the pool's CPUs, or has some of them for its own, or both. What it has for its
own leaves every pool; what it requests of the shared ones counts in its pool and in those around it, so that no pool
promises more than it has.

Choices of upstream that are others here:

- its order of pools is no strict order for Burstable containers without a limit; here each pool has a key, the least
  wins, and two pools never have the same
- there exclusive CPUs may be cut from pools within the chosen one that have promised these to others; here a part of
  the tree never gives more than it has free
- a resize that does not fit leaves a container without a place there; here it keeps what it has, and is refused
- a resize may move a container to any pool there; here it stays in its pool, or goes to one around it
- an affinity that cannot be read fails a create there; here it counts as none, and the log says so
- something near all CPUs, as where the firmware does not tell, puts containers into the root there, and here says
  nothing
- strict hints are those of CPUs here: memory may come from farther nodes where the near ones are full
- a container whose memory fits nowhere is refused there; here it has all nodes, since kubelet has let its pod in
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from nodeward.core import annotations as keys
from nodeward.core.cpuset import CpuSet, of, text
from nodeward.core.decision import SchedulingClass
from nodeward.core.hints import Hint, HintKind
from nodeward.core.refusal import Reason
from nodeward.core.tables import beside, kept
from nodeward.core.topology import Level, Machine
from nodeward.core.workload import Qos
from nodeward.features.cpus.affinity import is_wished, wishes
from nodeward.features.cpus.amounts import universe
from nodeward.features.cpus.cold_start import cold_ns
from nodeward.features.cpus.hint_words import HINT_WORDS, is_path_rule, kinds_of
from nodeward.features.cpus.near import cpus_of, is_there, is_within, usable
from nodeward.features.cpus.picker import pick
from nodeward.features.cpus.policies.balloons import KINDS
from nodeward.features.cpus.policies.pools_with_rules import (
    firsts,
    is_preserved,
    is_system,
    kept_and_others,
    memory_types,
    requested_m,
)
from nodeward.features.cpus.policies.tree_choice import (
    ISOLATED,
    RULES,
    Choice,
    Node,
    Want,
    choices_of,
    fits,
    free_m,
    given_up,
)
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.pool_settings import RESERVED, MemoryType, PoolLevel, Priority
from nodeward.features.cpus.pool_tree import Tree, tree_of
from nodeward.features.cpus.pools import joined, left
from nodeward.features.cpus.requested import UNREAD, UNREAD_STAYS, Scope, flag, scoped, shares_of
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Ask, Denied, Grant, Ground, Pool, Pools

_USUAL = (MemoryType.DRAM, MemoryType.PMEM)
"""The memory of a container that asks for no type."""
_LEVELS = {
    PoolLevel.SYSTEM: Level.SYSTEM,
    PoolLevel.PACKAGE: Level.PACKAGE,
    PoolLevel.DIE: Level.DIE,
    PoolLevel.NUMA: Level.NUMA,
    PoolLevel.L3CACHE: Level.L3,
}


# ---- the settings


@kept
def _node(machine: Machine, settings: PolicySettings) -> Node | Denied:
    found = kept_and_others(machine, settings)
    if isinstance(found, Denied):
        return found
    reserved, sharable = found
    allowed = universe(Ground(machine, settings))
    if isinstance(allowed, Denied):
        return allowed
    if not sharable:
        return Denied(
            f"policy.ReservedResources.CPU takes all CPUs that are available and not isolated ({text(reserved)}), and "
            "topology-aware needs one to share; reserve fewer"
        )
    return Node(machine, settings.topology_aware, tree_of(machine), reserved, sharable, allowed & machine.isolated)


def _begin(ground: Ground) -> Pools | Denied:
    node = _node(ground.machine, ground.rules)
    if isinstance(node, Denied):
        return node
    pools = {one.name: _pool(node, one.cpus & node.sharable) for one in node.tree.pools}
    pools[RESERVED] = _pool(node, node.reserved)
    return Pools(pools | ({ISOLATED: Pool(node.isolated)} if node.isolated else {}))


def _pool(node: Node, cpus: CpuSet, before: Pool | None = None) -> Pool:
    return replace(before or Pool(0), cpus=cpus, firsts=firsts(node.machine, cpus, 0))


# ---- what a container wants


def _flag(ask: Ask, word: str) -> tuple[bool | None, Scope]:
    """What its annotation of this word says, and for whom it was written."""
    for key in keys.OF_TREE[word]:
        found = flag(ask.annotations, key, ask.container)
        if isinstance(found, bool):
            said = scoped(ask.annotations, key, ask.container)
            return found, said[1] if said is not None else Scope.BARE
    return None, Scope.BARE


def _word(ask: Ask, word: str) -> str:
    found = (scoped(ask.annotations, key, ask.container) for key in keys.OF_TREE[word])
    return next((said[0].strip().lower() for said in found if said is not None), "")


def _faults(ask: Ask) -> Iterator[str]:
    """What is wrong with its pod's annotations, in sentences. A wrong one counts as none."""
    words: Mapping[str, tuple[str, ...]] = {
        "prefer-cpu-priority": (*(one.value for one in Priority), "default"),
        "unlimited-burstable": tuple(one.value for one in PoolLevel),
        "cpu.preserve": ("true", "false"),
    }
    yield from wishes(ask)[1] if is_wished(ask) else ()
    for key in keys.OF_TREE_LATER:
        if scoped(ask.annotations, key, ask.container) is not None:
            remedy = f"; write {keys.NEWER[key]} instead" if key in keys.NEWER else ""
            yield f"annotation {key}: is not followed by Nodeward, and changes nothing{remedy}"
    for word, spellings in keys.OF_TREE.items():
        for key in spellings:
            said = scoped(ask.annotations, key, ask.container)
            if said is not None and word in words and said[0].strip().lower() not in words[word]:
                yield f"annotation {key}: {said[0][:64]!r} is not allowed; one of {', '.join(words[word])}"
            elif said is not None and word == "memory-type" and not memory_types(ask, key):
                yield f"annotation {key}: {said[0][:64]!r} names no types of memory; write some of dram, hbm, pmem"
            elif said is not None and word in (keys.ALLOW_HINTS, keys.DENY_HINTS):
                if not is_path_rule(said[0]):
                    yield f"annotation {key}: {said[0][:64]!r} is no rule; write {{type: prefix, paths: [/dev/]}}"
            elif said is not None and word == keys.HINTS:
                if kinds_of(said[0]) is None:
                    yield f"annotation {key}: {said[0][:64]!r} is not allowed; true, false, or some of {HINT_WORDS}"
            elif said is not None and word not in (*words, "memory-type", "scheduling-class", "cold-start"):
                wrong = flag(ask.annotations, key, ask.container)
                yield from (wrong,) if isinstance(wrong, str) else ()


def _want(node: Node, ask: Ask) -> Want:
    return replace(_wanted(node, ask), types=_types(ask))


def _wanted(node: Node, ask: Ask) -> Want:
    if ask.source == UNREAD and ask.has:
        return Want(ask.has.bit_count(), unread=True)
    wants_reserved, _ = _flag(ask, "prefer-reserved-cpus")
    if wants_reserved or (wants_reserved is None and is_system(node.rules.reserved_pool_namespaces, ask)):
        return replace(_sharing(node, ask), reserved=True)
    return _of_guaranteed(node, ask) if ask.known and ask.qos is Qos.GUARANTEED else _sharing(node, ask)


def _sharing(node: Node, ask: Ask) -> Want:
    if ask.qos is Qos.BURSTABLE:
        word = _word(ask, "unlimited-burstable")
        level = PoolLevel(word) if word in [one.value for one in PoolLevel] else node.rules.unlimited_burstable
        found = _level(node, _LEVELS[level]) if not ask.limit_m else None
        return Want(part_m=ask.request_m, limit_m=ask.limit_m, level=found)
    return Want(part_m=ask.request_m if ask.known else 0)


def _level(node: Node, asked: Level) -> Level:
    """The level that is asked for, or the next one above that the tree has."""
    return max((one.level for one in node.tree.pools if one.level <= asked), default=node.tree.pools[0].level)


def _of_guaranteed(node: Node, ask: Ask) -> Want:
    full, part_m = divmod(ask.request_m, 1000)
    shared, _ = _flag(ask, "prefer-shared-cpus")
    prefers, scope = _flag(ask, "prefer-isolated-cpus")
    requires, its_scope = _flag(ask, "require-isolated-cpus")
    must = bool(requires) and (prefers is None or its_scope >= scope)
    isolated = must or (prefers if prefers is not None else full == 1 and node.rules.prefer_isolated_cpus)
    if shared is None:
        shared = node.rules.prefer_shared_cpus or (full > 1 and part_m > 0)
    if shared or not full:
        return Want(part_m=ask.request_m)
    word = _word(ask, "prefer-cpu-priority")
    known = next((one for one in Priority if one.value == word), node.rules.default_cpu_priority)
    return Want(full, part_m, isolated=isolated, must=must, priority=KINDS[known])


def _taken(node: Node, at: Pools, free: Sequence[int], i: int, want: Want, stay: CpuSet) -> CpuSet | None:
    """CPUs of its own of this pool, those of `stay` first; None where it has too few."""
    if not want.full:
        return 0
    inside = node.tree.pools[i].cpus
    isolated = at.pools[ISOLATED].cpus & inside if want.isolated and ISOLATED in at.pools else 0
    ordinary = 0 if want.must else given_up(node, at, free, i, want, stay)
    enough = [found for found in (isolated, ordinary) if found.bit_count() >= want.full]
    for found in sorted(enough, key=lambda found: (found & stay).bit_count() < want.full):  # where it is already, first
        held = found & stay
        if held.bit_count() >= want.full:
            return pick(node.machine, held, want.full, want.priority)
        return held | pick(node.machine, found & ~held, want.full - held.bit_count(), want.priority, near=held)
    return None


# ---- who comes, and goes


def _admit(ground: Ground, at: Pools, ask: Ask) -> Pools | Denied:
    node = _node(ground.machine, ground.rules)
    if isinstance(node, Denied):
        return node
    before = at.grants.get(ask.key)
    if before is not None:
        return _changed(node, at, before, ask)
    if _is_left_alone(ask):
        return joined(at, _grant(node, ask, Want(), "", 0, Reason("cpus-balloon-preserved")))
    want = _want(node, ask)
    if want.unread:
        return Denied(UNREAD_STAYS)
    try:
        cold_ns(node.machine, ask)
    except ValueError as error:
        if ask.mems is None:
            return Denied(str(error))
    strict = not ask.has and _flag(ask, "strict.topologyhints")[0] is True
    if strict and (why_not := _unknown(node, ask)):
        return Denied(f"it wants to be near what it uses (annotation strict.topologyhints), and {why_not}")
    if want.reserved and ask.was not in node.tree.at and (after := _in_reserved(node, at, ask, want)):
        is_near = all(not node.reserved & ~(cpus_of(node.machine, one) or ~0) for one in ask.hints)
        if not strict or is_near:
            return after
    free, stay = free_m(node, at), _stays(node, ask, want)
    choices, there = choices_of(node, at, free, ask, want), _there(node, at, ask, want)
    if strict:
        choices = [one for one in choices if is_within(node.machine, node.tree.pools[one.at], _hints(node, ask))]
    if after := _by_hints(node, at, free, choices, ask, want):
        return after
    for i, choice in sorted(enumerate(choices), key=lambda one: one[1].at != there):
        why = _why(node, choices, i, want) if choice.at != there else Reason("cpus-tree-there")
        if after := _placed(node, at, at, free, choice.at, ask, want, why, stay):
            return after
    return Denied(_full(node, at, free, ask, want))


def _hints(node: Node, ask: Ask) -> tuple[Hint, ...]:
    return usable(node.machine, ask.hints)


def _unknown(node: Node, ask: Ask) -> str:
    """Why it cannot be told what it is to be near to, in words; empty where that is known."""
    if ask.unhinted:
        return ask.unhinted[0]
    lost = any(not is_there(node.machine, one) for one in ask.hints)
    return "something that it uses is near CPUs or memory nodes that this machine does not have" if lost else ""


def _by_hints(
    node: Node, at: Pools, free: Sequence[int], choices: Sequence[Choice], ask: Ask, want: Want
) -> Pools | None:
    """With CPUs of its own near each thing that kubelet has given it, as many near each; None where its pod does not
    ask for that, or they cannot be had so."""
    told = [one for one in _hints(node, ask) if one.kind is HintKind.POD_RESOURCE]
    if not 0 < len(told) <= want.full or want.isolated or _flag(ask, "pick-resources-by-hints")[0] is not True:
        return None
    near = [cpus_of(node.machine, one) for one in told]
    around = _union(near)
    wide = [one for one in choices if not around & ~node.tree.pools[one.at].cpus]
    if not wide:
        return None
    i = max((one.at for one in wide), key=lambda at: (node.tree.pools[at].depth, -at))
    given, own = given_up(node, at, free, i, want, around), 0
    each = want.full // len(told) if want.full % len(told) == 0 else 1
    for cpus, n in (*((cpus, each) for cpus in near), (~0, want.full - each * len(told))):
        may = given & cpus & ~own
        if may.bit_count() < n:
            return None
        own |= pick(node.machine, may, n, want.priority, near=own)
    why = Reason("cpus-tree-hints", (node.tree.pools[i].name, len(told), each))
    grant = _grant(node, ask, want, node.tree.pools[i].name, own, why)
    nodes = _union(one.nodes for one in told) & of(one.id for one in node.machine.memory if one.bytes > 0)
    return _without(node, joined(at, replace(grant, memory_near=nodes if grant.pins_memory else 0)), own)


def _union(sets: Iterable[CpuSet]) -> CpuSet:
    found = 0
    for one in sets:
        found |= one
    return found


def _is_left_alone(ask: Ask) -> bool:
    return any(is_preserved(ask, key) for key in keys.OF_TREE["cpu.preserve"])


def _in_reserved(node: Node, at: Pools, ask: Ask, want: Want) -> Pools | None:
    """With the container on the reserved CPUs; None where they have no room. `at` may have it already."""
    others = left(at, ask.key)
    if 1000 * others.pools[RESERVED].cpus.bit_count() - requested_m(others, RESERVED) < want.part_m:
        return None
    return joined(at, _grant(node, ask, want, RESERVED, 0, Reason("cpus-tree-reserved", (ask.namespace,))))


def _stays(node: Node, ask: Ask, want: Want) -> CpuSet:
    """Its own CPUs, where it runs already; a larger set holds shared ones too. Where one thread of each core is hidden
    it does not run on all of its own."""
    if ask.has.bit_count() == want.full:
        return ask.has
    whole = sum(core.cpus for core in node.machine.cores if core.cpus & ask.has) if _hides(ask) else 0
    return whole if whole.bit_count() == want.full else 0


def _placed(
    node: Node,
    at: Pools,
    into: Pools,
    free: Sequence[int],
    i: int,
    ask: Ask,
    want: Want,
    why: Reason,
    stay: CpuSet,
) -> Pools | None:
    """The pools `into` with the container in this pool; None where it has too few CPUs to give. Those of `stay` come
    first. `at`: the pools without it."""
    own = _taken(node, at, free, i, want, stay)
    if own is None:
        return None
    name = node.tree.pools[i].name
    return _without(node, joined(into, _grant(node, ask, want, name, own, why)), own)


def _there(node: Node, at: Pools, ask: Ask, want: Want) -> int | None:
    """The pool in which a container is that runs already: by the record, or by its CPUs; None where it is in none."""
    tree = node.tree
    found = tree.at.get(ask.was)
    if found is None and ask.has:
        around = [i for i, one in enumerate(tree.pools) if ask.has & ~one.cpus == 0]
        is_own = want.full > 0 and _stays(node, ask, want) > 0
        same = (i for i, one in enumerate(tree.pools) if at.pools[one.name].cpus == ask.has)
        found = max(around, key=lambda i: tree.pools[i].depth, default=None) if is_own else next(same, None)
    return found


def _changed(node: Node, at: Pools, before: Grant, ask: Ask) -> Pools | Denied:
    """A restart, a resize, or a late word on what it requests. It stays in its pool, or goes to one around it."""
    if not ask.known or (not before.pool and not before.pinned):
        return at
    want, in_reserved = _want(node, ask), before.pool == RESERVED
    is_same = (want.full, want.part_m) == (before.own.bit_count(), before.part_m)
    if is_same and (want.reserved or not in_reserved):
        grant = replace(before, request_m=ask.request_m, role=ask.role, source=ask.source)
        return at if grant == before else joined(at, grant)
    freed = _with_back(node, at, before.own)
    if want.reserved and (after := _in_reserved(node, freed, ask, want)):
        return after
    others = left(freed, ask.key)
    free, known = free_m(node, others), node.tree.at.get(before.pool)
    room = [one.at for one in choices_of(node, others, free, ask, want)]
    why = Reason("cpus-tree-resized", (before.request_m, ask.request_m))
    for i in room if known is None else (i for i in node.tree.paths[known] if i in room):
        if after := _placed(node, others, freed, free, i, ask, want, why, before.own):
            return after
    return Denied(_full(node, others, free, ask, want))


def _types(ask: Ask) -> tuple[MemoryType, ...]:
    """The types of memory that it may have."""
    return next(filter(None, (memory_types(ask, key) for key in keys.OF_TREE["memory-type"])), _USUAL)


def _hides(ask: Ask) -> bool:
    return _flag(ask, "hide-hyperthreads")[0] is True


def _grant(node: Node, ask: Ask, want: Want, pool: str, own: CpuSet, why: Reason) -> Grant:
    hides = _hides(ask)
    keeps_memory, _ = _flag(ask, "memory.preserve")
    pins, is_pinned = node.rules.pin_memory and not keeps_memory, node.rules.pin_cpu and bool(pool)
    types, cold = _types(ask), 0
    if pins and ask.mems is None:  # one that runs has its memory
        try:
            cold = cold_ns(node.machine, ask)
        except ValueError:  # said at its create
            cold = 0
    shares = (want.part_m or 1000 * want.full) if ask.known and is_pinned else 0
    return Grant(
        ask.key,
        pool,
        own,
        want.part_m if pool else 0,
        shares=shares_of(shares) if shares else 0,
        request_m=ask.request_m,
        role=ask.role,
        source=ask.source,
        reason=why,
        hide=hides,
        hidden=_seconds(node.machine, own) if hides else 0,
        pinned=is_pinned,
        namespace=ask.namespace,
        pins_memory=pins,
        memory_types=types if pins else (),
        cold_ns=cold,
    )


def _seconds(machine: Machine, own: CpuSet) -> CpuSet:
    """All threads of the cores of these CPUs but the lowest of these in each."""
    found = 0
    for core in machine.cores:
        if have := core.cpus & own:
            found |= core.cpus & ~(have & -have)
    return found


def _without(node: Node, at: Pools, own: CpuSet) -> Pools:
    """With these CPUs in no pool any more, since one container has them."""
    return _each(node, at, lambda _, cpus: cpus & ~own) if own else at


def _each(node: Node, at: Pools, change: Callable[[CpuSet, CpuSet], CpuSet]) -> Pools:
    """With the CPUs of each pool changed, from those that it could have at most and those that it has."""
    most = {one.name: one.cpus & node.sharable for one in node.tree.pools} | {ISOLATED: node.isolated}
    new = dict[str, Pool]()
    for name, all_ in most.items():
        pool = at.pools.get(name)
        if pool is not None and (cpus := change(all_, pool.cpus)) != pool.cpus:
            new[name] = _pool(node, cpus, pool)
    return Pools(beside(at.pools, new), at.grants) if new else at


def _with_back(node: Node, at: Pools, own: CpuSet) -> Pools:
    """With these CPUs in each pool again that could have them."""
    return _each(node, at, lambda most, cpus: cpus | own & most) if own else at


def _release(ground: Ground, at: Pools, key: str) -> Pools:
    node, gone = _node(ground.machine, ground.rules), at.grants.get(key)
    after = left(at, key)
    return after if gone is None or isinstance(node, Denied) else _with_back(node, after, gone.own)


def _resume(ground: Ground, at: Pools, asks: Sequence[Ask]) -> Pools:
    """Places those who may stay where they are: those on the reserved CPUs, then those with CPUs of their own, since
    others leave these."""
    node = _node(ground.machine, ground.rules)
    if isinstance(node, Denied):
        return at
    once = twice = 0
    for ask in asks:
        twice |= once & ask.has
        once |= ask.has
    wants = [(ask, _want(node, ask)) for ask in asks if (ask.has or ask.was) and not _is_left_alone(ask)]

    def in_turn(one: tuple[Ask, Want]) -> tuple[bool, bool, bool]:
        ask, want = one
        return ask.was != RESERVED, not _stays(node, ask, want), not want.full

    for ask, want in sorted(wants, key=in_turn):
        if want.unread and ask.has & twice:
            continue
        if want.reserved and ask.was == RESERVED:
            at = _in_reserved(node, at, ask, want) or at
            continue
        there, free = _there(node, at, ask, want), free_m(node, at)
        if there is None or not fits(node, at, free, there, want):
            continue
        stay, why = _stays(node, ask, want), Reason("cpus-tree-there")
        after = _placed(node, at, at, free, there, ask, want, why, stay)
        if after is not None and (not want.unread or after.grants[ask.key].own == ask.has):
            at = after
    return at


# ---- what is said


def _why(node: Node, choices: Sequence[Choice], i: int, want: Want) -> Reason:
    """Which rule decided for this pool, and against which one that had room too."""
    mine, others = choices[i], choices[i + 1 :]
    one, beside = node.tree.pools[mine.at], int(want.reserved)
    if not others:
        return Reason("cpus-tree", (one.name, len(choices), "only", "", 0, 0, beside))
    second = others[0]
    rule, a, b = next((rule, a, b) for rule, a, b in zip(RULES, mine.key, second.key, strict=True) if a != b)
    at = next(k for k in range(len(a)) if a[k] != b[k])
    what = {1: "room", 2: "left"}.get(at, rule) if rule == "level" else rule
    name = node.tree.pools[second.at].name
    return Reason("cpus-tree", (one.name, len(choices), what, name, abs(a[at]), abs(b[at]), beside))


def _full(node: Node, at: Pools, free: Sequence[int], ask: Ask, want: Want) -> str:
    best = max(range(len(free)), key=lambda i: (free[i], -i))
    has = f"most is free in {node.tree.pools[best].name}, {max(free[best], 0)} milliCPU"
    if want.must:
        alone = at.pools[ISOLATED].cpus.bit_count() if ISOLATED in at.pools else 0
        has = f"it takes isolated CPUs only, and {alone} of these are free"
    elif want.full:
        whole = given_up(node, at, free, best, want, 0)
        has += f", and {whole.bit_count()} of its CPUs are promised to nobody ({text(whole) or 'none'})"
    own = f", {want.full} CPU(s) of its own among these" if want.full else ""
    if not ask.has and _flag(ask, "strict.topologyhints")[0] and choices_of(node, at, free, ask, want):
        return (
            f"its annotation strict.topologyhints lets it run only near what it uses, and no pool with "
            f"{ask.request_m} milliCPU free lies near all of that; request less, or remove the annotation"
        )
    return f"it requests {ask.request_m} milliCPU{own}, and no pool has that: {has}; request less, or end a container"


def _scheduling(rules: PolicySettings, ask: Ask, _: Grant) -> tuple[Sequence[SchedulingClass], str]:
    """By its namespace, else by its QoS class."""
    own = rules.topology_aware
    by_name = {one.name: one.scheduling_class for one in own.namespace_scheduling_classes}
    by_qos = {one.name.lower(): one.scheduling_class for one in own.pod_qos_scheduling_classes}
    return own.scheduling_classes, by_name.get(ask.namespace) or by_qos.get(ask.qos.value.lower(), "")


def _tree(ground: Ground) -> Tree | None:
    node = _node(ground.machine, ground.rules)
    return None if isinstance(node, Denied) else node.tree


def _room_m(ground: Ground, at: Pools, pool: str) -> int:
    node = _node(ground.machine, ground.rules)
    if isinstance(node, Denied) or pool not in node.tree.at:
        return 1000 * at.pools[pool].cpus.bit_count()
    return requested_m(at, pool) + max(free_m(node, at)[node.tree.at[pool]], 0)


TOPOLOGY_AWARE = Policy(
    "topology-aware",
    "a tree of pools by packages, NUMA nodes and caches; Guaranteed containers have exclusive CPUs there",
    _begin,
    _admit,
    _release,
    dedicates=lambda rules: rules.topology_aware.pin_cpu and not rules.topology_aware.prefer_shared_cpus,
    keeps=False,
    resume=_resume,
    guesses=False,
    room_m=_room_m,
    tree=_tree,
    faults=_faults,
    scheduling=_scheduling,
    hints=lambda rules: tuple(HintKind) if rules.pod_resources else (HintKind.MOUNT, HintKind.DEVICE),
    memory=lambda ask: ask.memory_request or ask.memory_limit,
    needs=("policy.reserved",),
)
