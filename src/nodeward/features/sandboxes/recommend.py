"""Overheads as they were measured, and what a RuntimeClass should declare for them.

Samples are counted in bounds that rise by about 3 %, so what is kept does not grow with time, and older samples count
less than newer ones. A recommendation is the
99th percentile and a margin, once there are enough samples; until then there is none, and `why` says so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from nodeward.core.tables import put
from nodeward.features.sandboxes.settings import SandboxesSettings
from nodeward.features.sandboxes.usage import added
from nodeward.features.sandboxes.values import Measured, Recommended, Usage

MIB = 1 << 20
MEMORY_STEP, CPU_STEP = 10 * MIB, 10
MARGIN_PERCENT = 10
PERCENTILES = (50, 95, 99)
MOST_COUNTED = 20_000
_STEPS_AN_OCTAVE = 32
"""Of each doubling. So a bound is between 1.6 and 3.1 % above the one before it."""


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """What VM sandboxes cost this node that no pod is charged with."""

    memory: int | None
    """None where that of no sandbox is known."""
    cpu_m: int | None
    """None where that of one of these sandboxes is not known, as after a single reading."""
    sandboxes: int = 0
    """Of how many a part is not charged to the pod."""
    unknown: int = 0
    """Of how many that cannot be told."""
    reserved_memory: int | None = None
    """Kubelet's `system-reserved` would cover it with so much more."""
    reserved_cpu_m: int | None = None


def with_sample(measured: Measured, usage: Usage, is_new: bool, needed: int = 0) -> Measured:
    """The tables with one more sample of a sandbox. `is_new`: there is none of it yet. `needed`: so many make a
    recommendation."""
    memory, cpu_m = usage.overhead, usage.overhead_cpu_m
    if memory is None and cpu_m is None:
        return measured
    most = max(MOST_COUNTED, 4 * needed)
    return replace(
        measured,
        memory=_counted(_aged(measured.memory, most), memory),
        cpu=_counted(_aged(measured.cpu, most), cpu_m),
        samples=measured.samples + 1,
        sandboxes=measured.sandboxes + is_new,
    )


def bound(value: int) -> int:
    """The lowest bound that is not below `value`."""
    step = 1 << max(value.bit_length() - _STEPS_AN_OCTAVE.bit_length(), 0)
    return -(-value // step) * step


def percentile(table: Mapping[int, int], percent: int) -> int | None:
    """The bound at or below which so many of the samples are; None without samples."""
    rank = -(-sum(table.values()) * percent // 100)
    if rank <= 0:
        return None
    seen = 0
    for upper in sorted(table):
        seen += table[upper]
        if seen >= rank:
            return upper
    return None


def recommend(measured: Measured, settings: SandboxesSettings) -> Recommended:
    """What `overhead.podFixed` should be."""
    memory, cpu_m = (_enough(table, settings.samples) for table in (measured.memory, measured.cpu))
    have, lacks = min(sum(measured.memory.values()), sum(measured.cpu.values())), settings.samples
    of = f"{measured.sandboxes} sandbox{'' if measured.sandboxes == 1 else 'es'}"
    if memory is None or cpu_m is None:
        why = f"{have} of {lacks} samples so far, of {of}"
    else:
        why = f"the 99th percentile of {have} samples of {of}, and {MARGIN_PERCENT} % more"
    return Recommended(
        None if memory is None else with_margin(memory, MEMORY_STEP),
        None if cpu_m is None else with_margin(cpu_m, CPU_STEP),
        why,
    )


def unaccounted(usages: Iterable[Usage | None]) -> Unaccounted:
    """What the sandboxes of this node cost outside their pods, together."""
    known = list(usages)
    told = [one for one in known if one is not None and one.outside is not None]
    memory = added(one.outside for one in told) if told else None
    cpu_m = added(one.outside_cpu_m for one in told) if told else None
    return Unaccounted(
        memory,
        cpu_m,
        sum(1 for one in told if one.outside),
        len(known) - len(told),
        None if memory is None else with_margin(memory, MEMORY_STEP),
        None if cpu_m is None else with_margin(cpu_m, CPU_STEP),
    )


def with_margin(amount: int, step: int) -> int:
    """The amount with the margin, rounded up to whole steps."""
    return -(-amount * (100 + MARGIN_PERCENT) // (100 * step)) * step


def _enough(table: Mapping[int, int], samples: int) -> int | None:
    return percentile(table, 99) if sum(table.values()) >= samples else None


def _aged(table: Mapping[int, int], most: int) -> Mapping[int, int]:
    """Half of each count once there are so many samples, so that what is measured now outweighs what was."""
    if sum(table.values()) < most:
        return table
    return {upper: count // 2 for upper, count in table.items() if count > 1}


def _counted(table: Mapping[int, int], value: int | None) -> Mapping[int, int]:
    if value is None:
        return table
    upper = bound(value)
    return put(table, upper, table.get(upper, 0) + 1)
