"""Sets of logical CPUs as bit masks: bit i stands for CPU i. Written as the kernel writes them (`0-3,8`).

Promises: a text from outside is bounded (a CPU's number is at most MAX_CPU, the text at most MAX_TEXT characters), so
that `0-4000000000` costs nothing. An empty set is 0, and its text is empty.
"""

from collections.abc import Iterable

CpuSet = int
"""A mask. Python's integers have any width, so machines with sparse numbers above 1023 need nothing special."""

MAX_CPU = 8191
"""The largest number of a CPU: Linux is built for 8192 at most (CONFIG_NR_CPUS)."""
MAX_TEXT = 65536
_ERROR = "write CPUs as the kernel does, such as 0-3,8"


def of(cpus: Iterable[int]) -> CpuSet:
    """The set of these CPUs."""
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


def ids(cpus: CpuSet) -> list[int]:
    """The numbers of its CPUs, ascending."""
    found = []
    while cpus:
        low = cpus & -cpus
        found.append(low.bit_length() - 1)
        cpus ^= low
    return found


def text(cpus: CpuSet) -> str:
    """The set in the kernel's list format."""
    firsts, lasts = ids(cpus & ~(cpus << 1)), ids(cpus & ~(cpus >> 1))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True))


def parse(written: str) -> CpuSet:
    """The set of a kernel list. ValueError says what is wrong. Spaces, a line's end and an empty text are fine."""
    if len(written) > MAX_TEXT:
        raise ValueError(f"a list of {len(written)} characters, more than {MAX_TEXT}; {_ERROR}")
    mask = 0
    for part in written.strip().split(","):
        part = part.strip()
        if not part:
            if written.strip():
                raise ValueError(f"{written.strip()[:64]!r} has an empty part; {_ERROR}")
            continue
        first, dash, last = part.partition("-")
        if not (_is_number(first) and (_is_number(last) or not dash)):
            raise ValueError(f"{part[:64]!r} is neither a CPU nor a range; {_ERROR}")
        low, high = int(first), int(last or first)
        if high > MAX_CPU:
            raise ValueError(f"CPU {high} is above {MAX_CPU}, the largest that Linux knows")
        if low > high:
            raise ValueError(f"the range {part[:64]!r} runs backwards; {_ERROR}")
        mask |= ((1 << (high - low + 1)) - 1) << low
    return mask


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit() and len(part) < 10
