"""Chooses CPUs as kubelet's static CPU manager policy does, rule for rule.

Promises the same CPUs as kubelet 1.37 on machines whose sockets, NUMA nodes, caches and cores are all of one size, and
an answer after MOST_TRIES combinations of NUMA nodes. "Free" always means: of what the caller offers. One fault of
kubelet is mended: CPUs that are spread over NUMA nodes with `align_by_socket` stay in one socket where they fit.

Wherever kubelet sorts, a group with fewer free CPUs comes first, and of equal ones that with the smaller id.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from math import comb, floor, inf, sqrt

from nodeward.core.cpuset import CpuSet, ids
from nodeward.core.tables import kept
from nodeward.core.topology import Group, Machine

MOST_TRIES = 4_000
"""Of ways to spread CPUs over NUMA nodes: eight nodes have some 2,000. Beyond this, the best so far is taken."""


@dataclass(frozen=True, slots=True)
class Options:
    """Kubelet's CPU manager policy options that bear on the choice."""

    full_pcpus_only: bool = False
    across_numa: bool = False
    align_by_socket: bool = False
    across_cores: bool = False
    by_uncore_cache: bool = False


@dataclass(frozen=True, slots=True)
class Tables:
    """A machine as the choice looks at it. Groups of each level are in the order of their ids."""

    cpus: int
    nodes: tuple[CpuSet, ...]
    sockets: tuple[CpuSet, ...]
    node_first: bool
    """A NUMA node holds one socket or more: nodes are the outer level. Else sockets are."""
    sockets_of: Mapping[CpuSet, tuple[CpuSet, ...]]
    """By node."""
    nodes_of: Mapping[CpuSet, tuple[CpuSet, ...]]
    """By socket."""
    caches_of: Mapping[CpuSet, tuple[CpuSet, ...]]
    """By node."""
    cores_of: Mapping[CpuSet, tuple[CpuSet, ...]]
    """By the inner one of node and socket, and by cache."""
    per_core: int
    """CPUs in a core, on average."""
    per_cache: int


@kept
def tables(machine: Machine) -> Tables:
    """The machine's tables."""
    sockets, nodes = _masks(machine.packages), _masks(machine.nodes)
    caches, cores = _masks(machine.l3), _masks(machine.cores)
    node_first = len(sockets) >= len(nodes)
    cpus = machine.online.bit_count()
    return Tables(
        cpus,
        nodes,
        sockets,
        node_first,
        _within(nodes, sockets),
        _within(sockets, nodes),
        _within(nodes, caches),
        _within(sockets if node_first else nodes, cores) | _within(caches, cores),
        cpus // max(1, len(cores)),
        cpus // max(1, len(caches)),
    )


def take(machine: Machine, free: CpuSet, count: int, options: Options = Options()) -> CpuSet | None:
    """`count` of the free CPUs; None where there are fewer."""
    if count > free.bit_count():
        return None
    at = tables(machine)
    if options.across_numa:
        return _across_nodes(at, free, count, options)
    return _packed(at, free, count, options)


# ---- packed ----------------------------------------------------------------------------------------------------------


class _Taking:
    """One choice under way."""

    __slots__ = ("free", "got", "need")

    def __init__(self, free: CpuSet, need: int) -> None:
        self.free, self.need, self.got = free, need, 0

    def take(self, cpus: CpuSet) -> None:
        self.got |= cpus
        self.free &= ~cpus
        self.need -= cpus.bit_count()

    def take_whole(self, groups: Iterable[CpuSet]) -> bool:
        """Each group that is free as a whole and not too large; whether that is all that was needed."""
        for cpus in groups:
            if self.need < 1:
                break
            if self.free & cpus == cpus and cpus.bit_count() <= self.need:
                self.take(cpus)
        return self.need < 1


def _packed(at: Tables, free: CpuSet, count: int, options: Options = Options()) -> CpuSet:
    taking = _Taking(free, count)
    if count < 1:
        return 0
    first, second = (_nodes, _sockets) if at.node_first else (_sockets, _nodes)
    if taking.take_whole(first(at, free)) or taking.take_whole(second(at, taking.free)):
        return taking.got
    if options.by_uncore_cache and _take_caches(at, taking):
        return taking.got
    if not options.across_cores and taking.take_whole(_whole_cores(at, taking.free)):
        return taking.got
    for cpus in _by_socket(at, taking.free) if options.across_cores else _by_core(at, taking.free):
        for cpu in ids(cpus)[: taking.need]:
            taking.take(1 << cpu)
        if taking.need < 1:
            break
    return taking.got


def _take_caches(at: Tables, taking: _Taking) -> bool:
    """Whole caches, and the rest of the first cache that has as many in its lowest cores; whether that is all."""
    for cache in list(_caches(at, taking.free)):
        if taking.need >= at.per_cache and taking.take_whole(list(_caches(at, taking.free))):
            return True
        cores = [core & taking.free for core in at.cores_of[cache] if core & taking.free]
        found = 0
        for core in cores[: _ceil(taking.need, at.per_core)]:
            found |= core
        if taking.need % 2 and at.per_core > 1 and found.bit_count() > taking.need:
            found &= ~(1 << found.bit_length() - 1)
        if found.bit_count() == taking.need:
            taking.take(found)
            return True
    return False


def _fewest_first(groups: Iterable[CpuSet], free: CpuSet) -> list[CpuSet]:
    """Those with a free CPU; with the fewest first, and else as they come."""
    counted = [((group & free).bit_count(), group) for group in groups if group & free]
    counted.sort(key=_count)
    return [group for _, group in counted]


def _count(counted: tuple[int, CpuSet]) -> int:
    return counted[0]


def _nodes(at: Tables, free: CpuSet) -> list[CpuSet]:
    if at.node_first:
        return _fewest_first(at.nodes, free)
    return [node for socket in _sockets(at, free) for node in _fewest_first(at.nodes_of[socket], free)]


def _sockets(at: Tables, free: CpuSet) -> list[CpuSet]:
    if not at.node_first:
        return _fewest_first(at.sockets, free)
    return [socket for node in _nodes(at, free) for socket in _fewest_first(at.sockets_of[node], free)]


def _caches(at: Tables, free: CpuSet) -> Iterator[CpuSet]:
    for node in _nodes(at, free):
        yield from _fewest_first(at.caches_of[node], free)


def _inner(at: Tables, free: CpuSet) -> list[CpuSet]:
    return _sockets(at, free) if at.node_first else _nodes(at, free)


def _whole_cores(at: Tables, free: CpuSet) -> Iterator[CpuSet]:
    for group in _inner(at, free):
        yield from _fewest_first([core for core in at.cores_of[group] if core & free == core], free)


def _by_core(at: Tables, free: CpuSet) -> Iterator[CpuSet]:
    for group in _inner(at, free):
        for core in _fewest_first(at.cores_of[group], free):
            yield core & free


def _by_socket(at: Tables, free: CpuSet) -> Iterator[CpuSet]:
    for socket in _sockets(at, free):
        yield socket & free


# ---- spread over NUMA nodes ------------------------------------------------------------------------------------------


def _across_nodes(at: Tables, free: CpuSet, count: int, options: Options) -> CpuSet:
    size = at.per_core if options.full_pcpus_only else 1
    if count < 1 or count % size:
        return _packed(at, free, count, options)
    nodes = _nodes(at, free)
    groups, per_node = count // size, _ceil(_ceil(at.cpus, size), len(at.nodes))
    for aligned in (True, False) if options.align_by_socket else (False,):
        spreading = _Spreading(at, [(node & free).bit_count() for node in nodes], nodes, count, size, options, aligned)
        for number in range(_ceil(groups, per_node), min(groups, len(nodes)) + 1):
            found = spreading.best(number)
            if found is None:
                continue
            chosen, extra = found
            got = _spread(at, free, count, size, [nodes[i] for i in chosen], [nodes[i] for i in extra])
            if got is not None:
                return got
            break
        for socket in _sockets(at, free) if aligned else ():  # after MOST_TRIES
            if sum((node & free).bit_count() // size for node in at.nodes_of[socket]) >= groups:
                return _packed(at, free & socket, count, options)
    return _packed(at, free, count, options)


def _spread(
    at: Tables, free: CpuSet, count: int, size: int, chosen: Sequence[CpuSet], extra: Sequence[CpuSet]
) -> CpuSet | None:
    """The same number from each chosen node, and groups of what remains from the extra ones in turn. None where these
    have not enough: kubelet would try for ever."""
    taking = _Taking(free, count)
    most = min((node & free).bit_count() for node in chosen) // size * size
    each = min(count // len(chosen) // size * size, most)
    for node in chosen:
        taking.take(_packed(at, taking.free & node, each))
    while taking.need > 0:
        before = taking.need
        for node in extra:
            if taking.need > 0 and (taking.free & node).bit_count() >= size:
                taking.take(_packed(at, taking.free & node, size))
        if taking.need == before:
            return None
    return taking.got


class _Spreading:
    """Which nodes CPUs are spread over: those after which all nodes have most evenly much free. `aligned`: of the nodes
    of one socket only."""

    __slots__ = ("aligned", "at", "balances", "count", "free", "nodes", "options", "size", "squares", "tries")

    def __init__(
        self,
        at: Tables,
        free: Sequence[int],
        nodes: Sequence[CpuSet],
        count: int,
        size: int,
        options: Options,
        aligned: bool,
    ) -> None:
        self.at, self.free, self.nodes, self.count, self.size, self.options = at, free, nodes, count, size, options
        self.aligned = aligned
        self.squares = sum(n * n for n in free)
        self.balances = {-1: inf}
        self.tries = 0

    def best(self, number: int) -> tuple[Sequence[int], Sequence[int]] | None:
        """The best of all combinations of so many nodes: these, and those of them that give what remains."""
        best, chosen, extra = inf, tuple[int, ...](), tuple[int, ...]()
        shared = self._shared(number)
        for combination in self._combinations(number):
            if chosen and combination[:shared] == chosen[:shared]:
                chosen = combination
            if best == 0 and (self.aligned or not self.options.align_by_socket):
                break
            balance, rest = self._balance(combination)
            if self.tries > MOST_TRIES:
                break
            if balance is not None and balance < best:
                best, chosen, extra = balance, combination, rest
        return (chosen, extra) if chosen else None

    def _combinations(self, number: int) -> Iterator[tuple[int, ...]]:
        """Of so many nodes, in kubelet's order."""
        every = range(len(self.nodes))
        if not self.aligned:
            return combinations(every, number)
        sockets = dict.fromkeys(self.at.sockets_of[node] for node in self.nodes)
        inside = ([i for i in every if self.at.sockets_of[self.nodes[i]] == one] for one in sockets if len(one) == 1)
        return chain.from_iterable(combinations(nodes, number) for nodes in inside)

    def _balance(self, combination: tuple[int, ...]) -> tuple[float | None, tuple[int, ...]]:
        """How uneven all nodes are afterwards, and which nodes give what remains. None where it cannot be."""
        self.tries += 1
        free, size = self.free, self.size
        if sum(free[i] // size for i in combination) * size < self.count:
            return None, ()
        least = min(free[i] for i in combination)
        each = self.count // len(combination) // size * size
        if each > least:
            if not self.options.align_by_socket:
                return None, ()
            each = least // size * size
        squares = self.squares - sum(each * (2 * free[i] - each) for i in combination)
        remain = (self.count - each * len(combination)) // size
        if remain == 0:
            return self._unevenness(squares), ()
        best, extra, known = inf, tuple[int, ...](), self.balances
        able = tuple(i for i in combination if free[i] - each >= size)
        gives = {i: size * (2 * (free[i] - each) - size) for i in able}
        for number in range(len(able), 0, -1):
            self.tries += comb(len(able), number)
            if self.tries > MOST_TRIES:
                break
            found = tuple[int, ...]()
            for subset in combinations(able, number):
                if remain <= number:
                    after = squares - sum([gives[i] for i in subset[:remain]])
                else:
                    after = self._after(squares, each, remain, subset)
                balance = known[after] if after in known else self._unevenness(after)
                if balance < best:
                    best, found = balance, subset
            if found:
                shared = self._shared(number)
                extra = found[:shared] + able[len(able) - number + shared :]
        return best, extra

    def _after(self, squares: int, each: int, remain: int, subset: Sequence[int]) -> int:
        """The sum of squares when the nodes of the subset have given groups in turn. -1 where they have not enough:
        kubelet would try for ever if they have the CPUs."""
        size = self.size
        left = [self.free[i] - each for i in subset]
        if sum(n // size for n in left) < remain:
            return -1
        while remain > 0:
            for i, n in enumerate(left):
                if remain > 0 and n >= size:
                    squares -= size * (2 * n - size)
                    left[i] = n - size
                    remain -= 1
        return squares

    def _unevenness(self, squares: int) -> float:
        """The standard deviation of the free CPUs of all nodes, to three decimals, as is the mean."""
        nodes, total = len(self.free), sum(self.free) - self.count
        mean = _rounded(total / nodes)
        found = _rounded(sqrt(max(0.0, (squares - 2 * mean * total + nodes * mean * mean) / nodes)))
        self.balances[squares] = found
        return found

    def _shared(self, number: int) -> int:
        """How many first elements of its best combination kubelet keeps. It remembers the combination as a slice of Go,
        and later combinations with the same first elements overwrite the last ones where the slice has room: with four
        nodes, and with six to eight. So what it takes in the end is the last combination that begins like the best one.
        That led it out of the socket, so in one socket the best one stays."""
        return number if self.aligned or number == 1 else (1 << (number - 1).bit_length() - 1) + 1


def _ceil(number: int, by: int) -> int:
    return -(-number // by)


def _rounded(value: float) -> float:
    return floor(value * 1000 + 0.5) / 1000


def _masks(groups: tuple[Group, ...]) -> tuple[CpuSet, ...]:
    return tuple(group.cpus for group in sorted(groups, key=lambda group: group.id))


def _within(outer: Iterable[CpuSet], inner: Iterable[CpuSet]) -> dict[CpuSet, tuple[CpuSet, ...]]:
    """By outer group, the inner ones that have a CPU in it."""
    inner = tuple(inner)
    return {group: tuple(one for one in inner if one & group) for group in outer}
