"""Counts relayed calls by method, result and what became of them, and how long they waited in this process.

Promises: as many counters as CRI has methods, gRPC codes and a call fates, whatever clients send; two look-ups a call,
and a line in the log at debug. Must not keep anything of a call.
"""

import logging
from collections.abc import Mapping
from typing import Final

from nodeward.core.quantity import at_most
from nodeward.neighbours.cri.calls import Call, Fate
from nodeward.neighbours.cri.methods import BY_PATH, OTHER
from nodeward.neighbours.cri.rows import AddedRow, CallRow
from nodeward.neighbours.formats.grpc_messages import STATUSES

NO_STATUS: Final = -1
"""The result of a call that ended without a gRPC status: cancelled, reset, or cut off."""
RESULTS: Final = (*STATUSES, "none")
"""gRPC's statuses by their numbers, and last the word for `NO_STATUS`."""
UNKNOWN: Final = 2
MOST_BITS: Final = 34
"""A wait of more bits of nanoseconds (17 seconds) is counted with those."""

BOUNDS_BITS: Final = (13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33)
"""Bounds of the histogram, as powers of two of nanoseconds: 8 microseconds, then four times as much each."""

MOST_PATH: Final = 128
"""Letters of a path that CRI does not have, in the log."""
_log = logging.getLogger(__name__)

Key = tuple[str, int, Fate]
"""Method (`other` for what CRI does not have), gRPC status or `NO_STATUS`, and what became of it."""


class CallCounts:
    """A Meter."""

    def __init__(self) -> None:
        self._names = {path: method.name for path, method in BY_PATH.items()}
        self._counts: dict[Key, int] = {}
        self.passed = [0] * (MOST_BITS + 2)
        """How long calls waited that nobody decides: how many by the bits of their nanoseconds, last their sum."""
        self.held = [0] * (MOST_BITS + 2)
        """The same of calls that somebody does."""

    @property
    def calls(self) -> Mapping[Key, int]:
        """How many calls have ended so."""
        return self._counts

    def over(self, call: Call, status: int | None, fate: Fate, added_ns: int) -> None:
        code = NO_STATUS if status is None else UNKNOWN if status >= len(STATUSES) else status  # as gRPC clients do
        key = self._names.get(call.path, OTHER), code, fate
        self._counts[key] = self._counts.get(key, 0) + 1
        waited = self.held if call.held else self.passed
        waited[added_ns.bit_length() if added_ns >> MOST_BITS == 0 else MOST_BITS] += 1
        waited[-1] += added_ns
        if _log.isEnabledFor(logging.DEBUG):
            name = repr(call.path[:MOST_PATH]) if key[0] == OTHER else key[0]
            line = "call number=%d connection=%d method=%s status=%s fate=%s added_us=%.1f"
            _log.debug(line, call.number, call.connection, name, RESULTS[code], fate.value, added_ns / 1000)

    def rows(self) -> tuple[CallRow, ...]:
        """The counts, a row for each method."""
        found: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        for (name, status, fate), count in self._counts.items():
            results, fates = found.setdefault(name, ({}, {}))
            results[RESULTS[status]] = results.get(RESULTS[status], 0) + count
            fates[fate.value] = fates.get(fate.value, 0) + count
        return tuple(CallRow(name, *found[name]) for name in sorted(found))

    def added(self) -> tuple[AddedRow, ...]:
        """How long calls waited, those that pass and those that are held."""
        rows = (("passed", self.passed), ("held", self.held))
        return tuple(AddedRow(how, sum(row[:-1]), row[-1], at_most(row, BOUNDS_BITS)) for how, row in rows)

    def text(self) -> str:
        """The counts for the log: `Version=3 CreateContainer/13=1`, statuses other than OK behind a slash."""
        rows: dict[tuple[str, int], int] = {}
        for (name, status, _), count in self._counts.items():
            rows[name, status] = rows.get((name, status), 0) + count
        return " ".join(
            f"{name}{f'/{status}' if status else ''}={count}" for (name, status), count in sorted(rows.items())
        )
