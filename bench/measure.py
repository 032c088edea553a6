"""What every part of the bench measures with: quantiles, processor time, memory, and lines that a person reads."""

import statistics
from collections.abc import Sequence
from pathlib import Path

KIB_PER_MIB = 1024


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    return sorted(values)[int(len(values) * share)]


def median(values: Sequence[float]) -> float:
    """The middle one, which one busy round does not move."""
    return statistics.median(values)


def cpu_us(pid: int) -> float:
    """Processor time that the process' threads have used so far, in microseconds: the scheduler's sum, no ticks."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000


def calls_of(pid: int) -> tuple[int, int]:
    """How often the process has called read(2) or pread(2), and write(2), so far; sockets' own calls are not in it."""
    rows = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(rows["syscr"]), int(rows["syscw"])


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident memory of the process, and the private part of it that nobody shares."""
    return memory_of(Path(f"/proc/{pid}/smaps_rollup").read_text())


def memory_of(rollup: str) -> tuple[float, float]:
    """The same, from the text of a smaps_rollup."""
    rows = [line.split() for line in rollup.splitlines()[1:] if line]
    fields = {row[0].rstrip(":"): int(row[1]) for row in rows}
    private = fields["Private_Clean"] + fields["Private_Dirty"]
    return fields["Rss"] / KIB_PER_MIB, private / KIB_PER_MIB
