"""The cgroup files of one sandbox: its pod's cgroup, its own and the one outside the pod, on cgroup v1, v2 and both."""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nodeward.core.vms import UNLIMITED, CgroupReading, Place
from nodeward.neighbours.formats.cgroup_mounts import Mount
from nodeward.neighbours.kata.kept import Kept

_NONE_V1 = 1 << 62
"""cgroup v1 has a number near 2^63 where there is no limit."""
_MILLI = 1000
_US = 1000
_HUGE_PAGES = "/sys/kernel/mm/hugepages"
"""A folder for each size of pages, such as `hugepages-2048kB`."""
_DIGITS = 10
_MOST_BYTES = 64
_ABSENT = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)


@dataclass(frozen=True, slots=True)
class Trees:
    """The mount points of the trees with these controllers. `version` 1: memory is counted by cgroup v1."""

    version: int
    memory: str
    cpuacct: str
    cpu: str
    cpu_version: int = 0
    """Of these two; 0 for that of memory."""
    hugetlb: str = ""
    """The tree of cgroup v1 with this controller; empty where cgroup v2 has it, in `memory`'s tree or beside it."""
    unified: str = ""
    """cgroup v2 where that is another tree than `memory`."""
    memory_has_huge: bool = False
    """Huge pages are charged to memory too (mount option `memory_hugetlb_accounting`)."""

    @property
    def has_cpu_v1(self) -> bool:
        """Whether CPU time is counted by cgroup v1."""
        return (self.cpu_version or self.version) == 1


def trees(mounts: Sequence[Mount], root: str) -> Trees:
    """The trees that are mounted at or below `root`: a host that tells of nothing is taken for one with cgroup v2
    there."""
    second = next((one for one in mounts if one.kind == "cgroup2"), None)
    unified = second.place if second is not None else root
    v1: dict[str, str] = {}
    for one in mounts:
        if one.kind == "cgroup":
            v1 |= {option: one.place for option in one.options if option not in v1}
    cpu = v1.get("cpu", unified)
    version, cpu_version = (1 if one in v1 else 2 for one in ("memory", "cpu"))
    apart = cpu_version if cpu_version != version else 0
    memory = v1.get("memory", unified)
    has_huge = version == 2 and second is not None and "memory_hugetlb_accounting" in second.options
    beside = unified if second is not None and memory != unified else ""
    return Trees(version, memory, v1.get("cpuacct", cpu), cpu, apart, v1.get("hugetlb", ""), beside, has_huge)


class CgroupFiles:
    """Reads the files of cgroups on open descriptors. What is kept of a cgroup is to be dropped when its sandbox is
    gone."""

    def __init__(self, kept: Kept, where: Trees) -> None:
        self._kept, self.where = kept, where
        self._limits: dict[str, tuple[int | None, int | None]] = {}
        self._huge: dict[str, int | None] = {}

    def read(
        self, place: Place, path: str, faults: list[str], *, limits: bool, huge: bool = False
    ) -> CgroupReading | None:
        """None where no such cgroup is there. `limits` false: those of the reading before are still good. `huge`: a
        VM's memory is on huge pages, whose limit is read too."""
        if limits or path not in self._limits:
            self._limits[path] = self._memory_limit(path, faults), self._cpu_limit(path, faults)
        if huge and (limits or path not in self._huge):
            self._huge[path] = self._huge_limit(path, faults)
        memory_limit, cpu_limit = self._limits[path]
        if self.where.version == 1:
            memory = self._value(f"{self.where.memory}{path}/memory.usage_in_bytes", faults, _whole)
            kills = self._value(f"{self.where.memory}{path}/memory.oom_control", faults, _row(b"oom_kill"))
        else:
            memory = self._value(f"{self.where.memory}{path}/memory.current", faults, _whole)
            kills = self._value(f"{self.where.memory}{path}/memory.events", faults, _row(b"oom_kill"))
        if self.where.has_cpu_v1:
            cpu_ns = self._value(f"{self.where.cpuacct}{path}/cpuacct.usage", faults, _whole)
        else:
            us = self._value(f"{self.where.cpuacct}{path}/cpu.stat", faults, _row(b"usage_usec"))
            cpu_ns = None if us is None else us * _US
        if memory is None and cpu_ns is None:
            return None
        return CgroupReading(
            place, path, memory, memory_limit, cpu_ns, cpu_limit, kills, self._huge.get(path) if huge else None
        )

    def drop(self, path: str) -> None:
        """Closes the descriptors of this cgroup."""
        self._limits.pop(path, None)
        self._huge.pop(path, None)
        where = self.where
        for name in ("usage_in_bytes", "limit_in_bytes", "oom_control", "current", "max", "events"):
            self._kept.drop(f"{where.memory}{path}/memory.{name}")
        self._kept.drop(f"{where.cpuacct}{path}/cpuacct.usage", f"{where.cpuacct}{path}/cpu.stat")
        self._kept.drop(*(f"{where.cpu}{path}/cpu.{name}" for name in ("max", "cfs_quota_us", "cfs_period_us")))

    def _memory_limit(self, path: str, faults: list[str]) -> int | None:
        name = "limit_in_bytes" if self.where.version == 1 else "max"
        found = self._value(f"{self.where.memory}{path}/memory.{name}", faults, _limit)
        return UNLIMITED if found is not None and found >= _NONE_V1 else found

    def _huge_limit(self, path: str, faults: list[str]) -> int | None:
        """Of the size of pages that is used most; where none is used yet, of all sizes if these are alike. A cgroup
        without the controller sets no limit."""
        has_v1 = bool(self.where.hugetlb)
        folder = f"{self.where.hugetlb or self.where.unified or self.where.memory}{path}"
        limit_name, used_name = ("limit_in_bytes", "usage_in_bytes") if has_v1 else ("max", "current")
        found = list[tuple[int, int]]()
        try:
            sizes = _sizes(self._kept.files.listdir(_HUGE_PAGES))
        except OSError as error:
            faults.append(f"{_HUGE_PAGES} cannot be read: {error.strerror}")
            return None
        for size in sizes:
            limit = self._value(f"{folder}/hugetlb.{size}.{limit_name}", faults, _limit, once=True, absent=UNLIMITED)
            used = self._value(f"{folder}/hugetlb.{size}.{used_name}", faults, _whole, once=True, absent=0)
            if limit is None or used is None:
                return None
            found.append((used, UNLIMITED if limit >= _NONE_V1 else limit))
        used, limit = max(found, default=(0, None))
        return limit if used or len({one for _, one in found}) == 1 else None

    def _cpu_limit(self, path: str, faults: list[str]) -> int | None:
        folder = f"{self.where.cpu}{path}"
        if self.where.has_cpu_v1:
            quota = self._value(f"{folder}/cpu.cfs_quota_us", faults, _whole)
            period = self._value(f"{folder}/cpu.cfs_period_us", faults, _whole)
            if quota is None or period is None:
                return None
            return UNLIMITED if quota < 0 or period <= 0 else quota * _MILLI // period
        return self._value(f"{folder}/cpu.max", faults, _cpu_max)

    def _value(
        self,
        file: str,
        faults: list[str],
        parse: Callable[[bytes], int | None],
        *,
        once: bool = False,
        absent: int | None = None,
    ) -> int | None:
        try:
            data = self._kept.once(file, _MOST_BYTES) if once else self._kept.read(file)
        except OSError as error:
            if error.errno not in _ABSENT:
                faults.append(f"{file} cannot be read: {error.strerror}")
                return None
            return absent
        try:
            return parse(data)
        except ValueError:
            faults.append(f"{file} has no number: {data[:60]!r}")
            return None


def _sizes(names: Sequence[str]) -> list[str]:
    """The sizes of huge pages as hugetlb's files have them: 64KB, 2MB, 1GB."""
    told = [name.removeprefix("hugepages-").removesuffix("kB") for name in names]
    kib = [int(one) for one in told if one.isascii() and one.isdecimal() and len(one) < _DIGITS]
    return [f"{one >> 20}GB" if one >> 20 else f"{one >> 10}MB" if one >> 10 else f"{one}KB" for one in kib]


def with_child(pod: CgroupReading, child: CgroupReading | None) -> CgroupReading:
    """cgroup v1 counts a kill where the killed process was, and not above; what is told of a pod has both."""
    if child is None or child.oom_kills is None or pod.oom_kills is None:
        return pod
    return replace(pod, oom_kills=pod.oom_kills + child.oom_kills)


def _whole(data: bytes) -> int | None:
    return int(data)


def _limit(data: bytes) -> int | None:
    return UNLIMITED if data.strip() == b"max" else int(data)


def _cpu_max(data: bytes) -> int | None:
    quota, _, period = data.strip().partition(b" ")
    if quota == b"max":
        return UNLIMITED
    return int(quota) * _MILLI // int(period) if int(period) > 0 else None


def _row(name: bytes) -> Callable[[bytes], int | None]:
    """The number behind a name. A file that has no such row is older than it: that is no fault, and not 0."""

    def parse(data: bytes) -> int | None:
        for line in data.splitlines():
            left, _, right = line.partition(b" ")
            if left == name:
                return int(right)
        return None

    return parse
