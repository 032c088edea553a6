"""The kernel's misc controller as a value machine: limits, charges, events and what its files print.

One `MiscController` is the part that the whole machine shares (which resources the kernel knows, how much of each there
is); one `MiscState` is what a cgroup has while the controller is on for it. The rules are those of kernel/cgroup/misc.c
and Documentation/admin-guide/cgroup-v2.rst (section "Misc") as observed on 6.12; the contract cases keep them so.

Kept on purpose, because the product must live with them: a refused charge leaves its mark in misc.peak of the levels
below the one that refused; events count at that level and above, never below; the root counts a refusal where no file
shows it; a counter that is uncharged too often wraps to 2^64-1.
"""

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

MAX: Final = 2**64 - 1
"""What `max` means in misc.max: the largest unsigned 64-bit number."""

_SPACE: Final = " \t\n\v\f\r\xa0"


class RefusalError(Exception):
    """The kernel says no; `number` is the errno. The file layer turns it into an OSError with the path."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode[number])
        self.number = number


@dataclass(slots=True, eq=False)
class MiscState:
    """What one cgroup has while misc is on for it. It lives on, reachable from charges only, when the cgroup is
    gone.
    """

    parent: "MiscState | None"
    alive: bool = True
    usage: dict[str, int] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    limit: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    events_local: dict[str, int] = field(default_factory=dict)

    def upwards(self) -> "Iterator[MiscState]":
        """This level, then each above it, the root last."""
        level: MiscState | None = self
        while level is not None:
            yield level
            level = level.parent


class MiscController:
    """What the kernel knows of misc resources as a whole. `resources` is the kernel's own order of names."""

    def __init__(self, resources: tuple[str, ...], capacity: Mapping[str, int]) -> None:
        unknown = sorted(set(capacity) - set(resources))
        if unknown:
            raise ValueError(f"capacity names {unknown} are not among the kernel's resources {list(resources)}")
        self.resources = resources
        self._capacity = {name: capacity.get(name, 0) for name in resources}

    def capacity(self, resource: str) -> int:
        """What the host has of it; 0 means that the name is known and nothing is there."""
        return self._capacity[resource]

    def set_capacity(self, resource: str, value: int) -> None:
        """Sets the capacity, as a driver does when it loads, unloads or is reconfigured (misc_cg_set_capacity)."""
        if resource not in self._capacity:
            raise RefusalError(errno.EINVAL)
        self._capacity[resource] = value & MAX

    def charge(self, state: MiscState, resource: str, amount: int) -> None:
        """Walks from `state` to the root; each level adds, then refuses. A refusal is rolled back everywhere."""
        if not self._capacity.get(resource):
            raise RefusalError(errno.EINVAL)
        charged: list[MiscState] = []
        for level in state.upwards() if amount else ():
            usage = (level.usage.get(resource, 0) + amount) & MAX
            level.usage[resource] = usage
            charged.append(level)
            if usage > level.limit.get(resource, MAX) or usage > self._capacity[resource]:
                _count_refusal(level, resource)
                for one in charged:
                    _take(one, resource, amount)
                raise RefusalError(errno.EBUSY)
            level.peak[resource] = max(level.peak.get(resource, 0), usage)

    def uncharge(self, state: MiscState, resource: str, amount: int) -> None:
        """Gives back at every level. The kernel does not check that so much was charged: the counter then wraps."""
        for level in state.upwards():
            _take(level, resource, amount)

    def write_max(self, state: MiscState, data: bytes) -> None:
        """One write(2) to misc.max: one resource, one value. A refused write leaves the old limit."""
        text = c_string(data).strip(_SPACE)
        name, separator, value = text.partition(" ")
        if not separator or name not in self._capacity:
            raise RefusalError(errno.EINVAL)
        limit = MAX if value == "max" else parse_u64(value)
        if not self._capacity[name]:
            raise RefusalError(errno.EINVAL)
        state.limit[name] = limit

    def show(self, state: MiscState, file: str) -> bytes:
        """Content of `misc.<file>` for this cgroup. Resources without capacity show only where a count is left over."""
        if file == "capacity":
            lines = [f"{name} {have}" for name, have in self._capacity.items() if have]
        elif file == "max":
            limits = ((name, state.limit.get(name, MAX)) for name, have in self._capacity.items() if have)
            lines = [f"{name} {'max' if limit == MAX else limit}" for name, limit in limits]
        else:
            counts, label = _counts(state, file)
            shown = ((name, counts.get(name, 0)) for name in self.resources)
            lines = [f"{name}{label} {count}" for name, count in shown if count or self._capacity[name]]
        return "".join(line + "\n" for line in lines).encode()


def c_string(data: bytes) -> str:
    """What a kernel parser sees of written bytes: everything before the first NUL."""
    return data.split(b"\0", 1)[0].decode("latin-1")


def parse_u64(text: str) -> int:
    """kstrtou64 with base 0: `+` allowed, 0x is hexadecimal, a leading 0 octal, ERANGE from 2^64 on, else EINVAL."""
    digits = text.removeprefix("+")
    base = 10
    if digits[:1] == "0":
        is_hex = digits[1:2] in ("x", "X") and digits[2:3] != "" and digits[2] in "0123456789abcdefABCDEF"
        base = 16 if is_hex else 8
        digits = digits[2:] if is_hex else digits
    allowed = "0123456789abcdefABCDEF" if base == 16 else "0123456789"[:base]
    end = 0
    while end < len(digits) and digits[end] in allowed:
        end += 1
    if end == 0:
        raise RefusalError(errno.EINVAL)
    value = int(digits[:end], base)
    if value > MAX:
        raise RefusalError(errno.ERANGE)
    if digits[end:] not in ("", "\n"):
        raise RefusalError(errno.EINVAL)
    return value


def _count_refusal(level: MiscState, resource: str) -> None:
    level.events_local[resource] = level.events_local.get(resource, 0) + 1
    for one in level.upwards():
        if one.parent is not None:
            one.events[resource] = one.events.get(resource, 0) + 1


def _take(level: MiscState, resource: str, amount: int) -> None:
    level.usage[resource] = (level.usage.get(resource, 0) - amount) & MAX


def _counts(state: MiscState, file: str) -> tuple[Mapping[str, int], str]:
    tables = {
        "current": (state.usage, ""),
        "peak": (state.peak, ""),
        "events": (state.events, ".max"),
        "events.local": (state.events_local, ".max"),
    }
    return tables[file]
