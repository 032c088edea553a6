"""The annotation `cold-start`: a container begins without DRAM, and gets it some time after its start, so that what it
only touches at first stays in slower memory (`topology-aware`)."""

import json
import re

from nodeward.core import annotations as keys
from nodeward.core.topology import Machine
from nodeward.features.cpus.memory_nodes import types_of
from nodeward.features.cpus.pool_settings import MemoryType
from nodeward.features.cpus.requested import scoped
from nodeward.features.cpus.values import Ask

MOST_NS = 3600 * 10**9
_UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": MOST_NS}
_PART = re.compile(r"([0-9]{1,9})(ms|s|m|h)")


def cold_ns(machine: Machine, ask: Ask) -> int:
    """How long it has no DRAM, in nanoseconds; 0 where it has it at once: also where the machine has no PMEM, or some
    that the kernel cannot take its own memory from. ValueError says what is wrong with its annotation."""
    found = next((one for key in keys.OF_TREE["cold-start"] if (one := _said(ask, key)) is not None), 0)
    pmem = [node for node, kind in types_of(machine).items() if kind is MemoryType.PMEM]
    normal = {node.id: node.normal for node in machine.memory}
    return found if pmem and all(normal[node] for node in pmem) else 0


def _said(ask: Ask, key: str) -> int | None:
    given = scoped(ask.annotations, key, ask.container)
    if given is None:
        return None
    try:
        said = json.loads(given[0])
    except (ValueError, RecursionError):
        said = None
    length = said.get("duration") if isinstance(said, dict) and [*said] == ["duration"] else None
    parts = _PART.findall(length) if isinstance(length, str) else []
    total = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if not parts or "".join(number + unit for number, unit in parts) != length or total > MOST_NS:
        raise ValueError(f"annotation {key}: {given[0][:64]!r} is no time up to an hour; write `duration: 60s`")
    return total
