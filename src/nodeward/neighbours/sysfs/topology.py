"""The machine's topology from /sys/devices/system: which CPUs there are, and what they share.

Promises: every read is bounded; each hole becomes an assumption and a sentence in `Machine.faults`, never a failure;
what concerns a core, a cache or a node is read once for it and not for each of its CPUs. It must not decide anything:
which CPUs may be used is the policy's.

Ids compare as kubelet's CPU manager has them, since its order decides ties: packages and nodes by the kernel's own
number, cores by their lowest CPU, level-3 caches by the kernel's cache id where each has one of its own.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from nodeward.core import cpuset
from nodeward.core.cpuset import MAX_CPU, CpuSet
from nodeward.core.topology import MOST_NODES, Group, Machine, MemoryNode
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.sysfs import devices

DEVICES = "/sys/devices"
CPU = f"{DEVICES}/system/cpu"
MAX_BYTES = cpuset.MAX_TEXT
MAX_NUMBER = 2**31 - 1
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)


class Holes:
    """The files, and what they did not tell. `reads` counts the files that were asked for."""

    def __init__(self, files: HostFiles) -> None:
        self._files = files
        self._assumed: dict[str, CpuSet] = {}
        self._faults: list[str] = []
        self.reads = 0

    def text(self, path: str) -> str | None:
        """The file's text without the line's end; None where it is not there. Another failure is a fault as well."""
        self.reads += 1
        try:
            return self._files.read(path, MAX_BYTES).decode("ascii", "replace").strip()
        except OSError as error:
            if error.errno not in _ABSENT:
                self._faults.append(f"{path} cannot be read: {error.strerror}; it counts as missing")
            return None

    def number(self, path: str) -> int | None:
        """The file's number from -1 to MAX_NUMBER."""
        found = self.text(path)
        if found is None:
            return None
        digits = found.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= 10 and -1 <= int(found) <= MAX_NUMBER:
            return int(found)
        self._faults.append(f"{path} has {found[:40]!r}, not a number from -1 to {MAX_NUMBER}; it counts as missing")
        return None

    def cpus(self, path: str) -> CpuSet | None:
        """The file's list of CPUs, or of nodes."""
        found = self.text(path)
        if found is None:
            return None
        try:
            return cpuset.parse(found)
        except ValueError as error:
            self._faults.append(f"{path}: {error}; it counts as missing")
            return None

    def names(self, path: str) -> list[str]:
        """The names in a folder; nothing where it is not there."""
        try:
            return self._files.listdir(path)
        except OSError:
            return []

    def assume(self, what: str, cpus: CpuSet) -> None:
        """Notes a hole that concerns these CPUs. `what` says what is missing and what is assumed."""
        self._assumed[what] = self._assumed.get(what, 0) | cpus

    def note(self, fault: str) -> None:
        """Notes what concerns no CPU in particular."""
        self._faults.append(fault)

    def faults(self, most: int) -> tuple[str, ...]:
        """At most so many sentences; the last then says how many are left out."""
        every = [*self._sentences(), *self._faults]
        return tuple(every) if len(every) <= most else (*every[: most - 1], f"and {len(every) - most + 1} more")

    def _sentences(self) -> Iterator[str]:
        for what, cpus in self._assumed.items():
            shown = cpuset.text(cpus)
            yield f"CPUs {shown if len(shown) <= 80 else shown[:79] + '…'}: {what}"


NODE = f"{DEVICES}/system/node"
MAX_FAULTS = 32
_CACHES = 8
"""More cache folders of one CPU are not looked at."""
_EFFICIENT = ("cpu_atom", "cpu_lowpower")
"""Performance counters of core kinds that are made for economy; a hybrid machine has them by kind."""
_PREFERENCES = ("performance", "balance_performance", "default", "balance_power", "power")
"""Values of energy_performance_preference, the best performing first."""


def read(files: HostFiles, named: Sequence[str] = ()) -> Machine:
    """The machine now. One without any CPU that is online says so in its faults. `named`: the devices, as paths below
    /sys or /dev, of which it is asked which CPUs are near."""
    return read_counted(files, named)[0]


def read_counted(files: HostFiles, named: Sequence[str] = ()) -> tuple[Machine, int]:
    """The machine, and how many files of its own were asked for."""
    holes = Holes(files)
    online = _online(holes)
    if not online:
        holes.note(f"{CPU} names no CPU that is online, so nothing can be decided; is /sys mounted here?")
        return Machine(0, (), (), (), (), (), (), faults=holes.faults(MAX_FAULTS)), holes.reads
    cores = _cores(holes, online)
    packages, dies = _packages(holes, cores)
    l3, l2 = _caches(holes, online, cores, packages)
    nodes, memory = _nodes(holes, online)
    efficient = _efficient(holes, online)
    high, low = _priorities(holes, cores, packages, efficient)
    near = _near(files, holes, named, memory)
    machine = Machine(
        online,
        packages,
        dies,
        nodes,
        l3,
        l2,
        cores,
        isolated=(holes.cpus(f"{CPU}/isolated") or 0) & online,
        efficient=efficient,
        high=high,
        low=low,
        memory=memory,
        faults=holes.faults(MAX_FAULTS),
        offline=(holes.cpus(f"{CPU}/present") or 0) & ~online,
        near={path: cpus & online for path, cpus in near.items()},
    )
    return machine, holes.reads


def _near(files: HostFiles, holes: Holes, named: Sequence[str], memory: Sequence[MemoryNode]) -> dict[str, CpuSet]:
    found = dict[str, CpuSet]()
    for path in named:
        cpus = 0
        with suppress(OSError, ValueError):
            for local, nodes in devices.of_named(files, path).values():
                cpus |= local
                for one in memory:
                    cpus |= one.cpus if nodes >> one.id & 1 else 0
        if cpus:
            found[path] = cpus
        else:
            holes.note(f"which CPUs are near {path} is not told; nothing is placed near it")
    return found


def _first(cpus: CpuSet) -> int:
    return (cpus & -cpus).bit_length() - 1


def _online(holes: Holes) -> CpuSet:
    found = holes.cpus(f"{CPU}/online")
    if found:
        return found
    for other in ("present", "possible"):
        if some := holes.cpus(f"{CPU}/{other}"):
            holes.assume(f"{CPU}/online is missing; those that are {other} are taken as online", some)
            return some
    some = cpuset.of(_numbered(holes.names(CPU), "cpu", MAX_CPU))
    if some:
        holes.assume(f"{CPU}/online is missing; every cpuN folder is taken as online", some)
    return some


def _numbered(names: Iterable[str], word: str, most: int) -> list[int]:
    """The numbers of folders such as cpu0, ascending; others are in the same folder."""
    ends = [name.removeprefix(word) for name in names if name.startswith(word)]
    return sorted(int(one) for one in ends if one.isascii() and one.isdigit() and len(one) <= 4 and int(one) <= most)


def _cores(holes: Holes, online: CpuSet) -> tuple[Group, ...]:
    """One group a core, read at its lowest CPU."""
    found, rest = list[Group](), online
    while rest:
        cpu = _first(rest)
        where = f"{CPU}/cpu{cpu}/topology"
        threads = holes.cpus(f"{where}/core_cpus_list")
        if threads is None:
            threads = holes.cpus(f"{where}/thread_siblings_list")
        if threads is None or not threads >> cpu & 1:
            holes.assume("the threads of the core are not told; each CPU is taken as a core of its own", 1 << cpu)
            threads = 1 << cpu
        found.append(Group(cpu, threads & rest))
        rest &= ~threads
    return tuple(found)


def _packages(holes: Holes, cores: Iterable[Group]) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    packages, dies = dict[int, CpuSet](), dict[tuple[int, int], CpuSet]()
    for core in cores:
        where = f"{CPU}/cpu{core.id}/topology"
        package = holes.number(f"{where}/physical_package_id")
        if package is None or package < 0:
            holes.assume("the package is not told; package 0 is assumed", core.cpus)
            package = 0
        die = holes.number(f"{where}/die_id")  # older kernels, and machines without dies, have none: no hole
        packages[package] = packages.get(package, 0) | core.cpus
        at = (package, -1 if die is None else die)
        dies[at] = dies.get(at, 0) | core.cpus
    unique = len(dict.fromkeys(die for _, die in dies)) == len(dies) and all(die >= 0 for _, die in dies)
    return (
        _groups(packages.items()),
        _groups((die if unique else _first(cpus), cpus) for (_, die), cpus in dies.items()),
    )


def _groups(found: Iterable[tuple[int, CpuSet]]) -> tuple[Group, ...]:
    return tuple(Group(number, cpus) for number, cpus in sorted(found))


def _caches(
    holes: Holes, online: CpuSet, cores: Iterable[Group], packages: Iterable[Group]
) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """The caches of level 3 and 2. A core's folders are read only while one of the two is not known for it yet."""
    caches: dict[int, dict[CpuSet, int | None]] = {2: {}, 3: {}}
    known = {2: 0, 3: 0}
    for core in cores:
        for index in range(_CACHES):
            if all(cpus & core.cpus for cpus in known.values()):
                break
            where = f"{CPU}/cpu{core.id}/cache/index{index}"
            level = holes.number(f"{where}/level")
            if level is None:
                break
            if level not in caches or known[level] & core.cpus:
                continue
            cpus = holes.cpus(f"{where}/shared_cpu_list")
            if not cpus or not cpus >> core.id & 1:
                holes.assume(f"who shares the cache of level {level} is not told; it counts as missing", core.cpus)
                continue
            shared = cpus & online & ~known[level]
            caches[level][shared] = holes.number(f"{where}/id") if level == 3 else None
            known[level] |= shared
    l3 = _cache_groups(caches[3])
    if bare := online & ~known[3]:
        rest = [Group(one.id, one.cpus & bare) for one in packages if one.cpus & bare]
        l3 = tuple(rest) if not l3 else _by_lowest((*l3, *rest))
    l2 = (*_cache_groups(caches[2]), *(Group(one.id, one.cpus & ~known[2]) for one in cores if one.cpus & ~known[2]))
    return l3, _by_lowest(l2)


def _cache_groups(caches: Mapping[CpuSet, int | None]) -> tuple[Group, ...]:
    ids = [number for number in caches.values() if number is not None and number >= 0]
    unique = len(ids) == len(caches) == len(dict.fromkeys(ids))
    return _groups((number if unique and number is not None else _first(cpus), cpus) for cpus, number in caches.items())


def _by_lowest(groups: Iterable[Group]) -> tuple[Group, ...]:
    return _groups((_first(one.cpus), one.cpus) for one in groups)


def _nodes(holes: Holes, online: CpuSet) -> tuple[tuple[Group, ...], tuple[MemoryNode, ...]]:
    numbers = cpuset.ids((holes.cpus(f"{NODE}/online") or 0) & ((1 << MOST_NODES) - 1))
    if not numbers:
        numbers = _numbered(holes.names(NODE), "node", MOST_NODES - 1)
    if not numbers:
        return (Group(0, online),), ()  # a kernel without NUMA: nothing is missing
    normal = holes.cpus(f"{NODE}/has_normal_memory")
    rest, sets = online, dict[int, CpuSet]()
    for number in numbers:
        listed = holes.cpus(f"{NODE}/node{number}/cpulist")
        if listed is None:
            holes.note(f"{NODE}/node{number}/cpulist is missing; the node is taken as one without CPUs")
        sets[number] = (listed or 0) & rest
        rest &= ~sets[number]
    if rest:
        home = next((number for number in numbers if sets[number]), numbers[0])
        holes.assume(f"no NUMA node has them; node {home} is assumed", rest)
        sets[home] |= rest
    distances = _distances(holes, numbers)
    memory = tuple(
        MemoryNode(
            number,
            sets[number],
            _memory_bytes(holes, number),
            normal is None or bool(normal >> number & 1),
            distances.get(number, {}),
        )
        for number in numbers
    )
    return _groups((number, cpus) for number, cpus in sets.items() if cpus), memory


def _memory_bytes(holes: Holes, number: int) -> int:
    for line in (holes.text(f"{NODE}/node{number}/meminfo") or "").splitlines():
        words = line.split()
        if len(words) == 5 and words[2] == "MemTotal:" and words[3].isascii() and words[3].isdigit():
            return min(int(words[3][:15]) * 1024, 1 << 60)
    holes.note(f"{NODE}/node{number}/meminfo does not tell MemTotal; the node is taken as one without memory")
    return 0


def _distances(holes: Holes, numbers: list[int]) -> dict[int, dict[int, int]]:
    """By node; the same in both directions. Those that differ are averaged."""
    told = dict[int, list[int]]()
    for number in numbers:
        words = (holes.text(f"{NODE}/node{number}/distance") or "").split()
        if len(words) != len(numbers) or not all(one.isascii() and one.isdigit() and len(one) < 6 for one in words):
            holes.note(f"{NODE}/node{number}/distance does not tell {len(numbers)} distances; no distances are known")
            return {}
        told[number] = [int(one) for one in words]
    place = {number: at for at, number in enumerate(numbers)}
    uneven = [(a, b) for a in numbers for b in numbers if a < b and told[a][place[b]] != told[b][place[a]]]
    if uneven:
        a, b = uneven[0]
        holes.note(
            f"the distance from node {a} to {b} is {told[a][place[b]]}, back it is {told[b][place[a]]}; "
            f"{len(uneven)} such pair(s) count with their average"
        )
    return {a: {b: (told[a][place[b]] + told[b][place[a]]) // 2 for b in numbers} for a in numbers}


def _efficient(holes: Holes, online: CpuSet) -> CpuSet:
    found = 0
    for name in _EFFICIENT:
        found |= holes.cpus(f"{DEVICES}/{name}/cpus") or 0
    return 0 if found & online == online else found & online  # all alike: not a hybrid machine


def _priorities(
    holes: Holes, cores: Iterable[Group], packages: Iterable[Group], efficient: CpuSet
) -> tuple[CpuSet, CpuSet]:
    """High and low, by package: by base frequency where it differs, else by energy preference where that does. CPUs
    made for economy are always low."""
    high, low = 0, efficient
    for package in packages:
        inside = [core for core in cores if core.cpus & package.cpus]
        worst = _worst(inside, lambda cpu: _rank(holes.number(f"{CPU}/cpu{cpu}/cpufreq/base_frequency")))
        worst = worst or _worst(inside, lambda cpu: _preference(holes, cpu))
        if worst:
            low |= worst
            high |= package.cpus & ~worst
    return high & ~low, low


def _worst(cores: Iterable[Group], rank: Callable[[int], int | None]) -> CpuSet:
    """The CPUs with the lowest rank, 0 where all are alike or the first is not ranked."""
    ranked = dict[int, CpuSet]()
    for core in cores:
        found = rank(core.id)
        if found is None:
            return 0
        ranked[found] = ranked.get(found, 0) | core.cpus
    return ranked[min(ranked)] if len(ranked) > 1 else 0


def _rank(found: int | None) -> int | None:
    return None if found is None or found < 0 else found


def _preference(holes: Holes, cpu: int) -> int | None:
    """A higher one performs better. Numbers are the hardware's own, where 0 performs best."""
    word = holes.text(f"{CPU}/cpu{cpu}/cpufreq/energy_performance_preference")
    if word is not None and word in _PREFERENCES:
        return -_PREFERENCES.index(word)
    return -int(word) if word is not None and word.isascii() and word.isdigit() and len(word) <= 3 else None
