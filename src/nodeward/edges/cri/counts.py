"""Counts relayed calls by method and result.

Promises: as many counters as CRI has methods and gRPC has codes, whatever clients send; two look-ups a call. Must not
keep anything of a call.
"""

from collections.abc import Mapping
from typing import Final

from nodeward.edges.cri.methods import BY_PATH, OTHER
from nodeward.model.relayed import Call, Ended, Interest, Message

NO_STATUS: Final = -1
"""The result of a call that ended without a gRPC status: cancelled, reset, or cut off."""
LARGEST_STATUS: Final = 16
UNKNOWN: Final = 2


class CallCounts:
    """A watcher that counts. A call is counted when it ends."""

    def __init__(self) -> None:
        self._names = {path: method.name for path, method in BY_PATH.items()}
        self._counts: dict[tuple[str, int], int] = {}
        self.refused = 0
        """Calls that Nodeward answered."""

    @property
    def calls(self) -> Mapping[tuple[str, int], int]:
        """How many calls of a method (`other` for what CRI does not have) ended with a gRPC status, or `NO_STATUS`."""
        return self._counts

    def interest(self, path: str) -> Interest:
        return Interest.CALL

    def began(self, call: Call) -> None:
        pass

    def request(self, call: Call, message: Message) -> None:
        pass

    def response(self, call: Call, message: Message) -> None:
        pass

    def ended(self, call: Call, end: Ended) -> None:
        status = NO_STATUS if end.status is None else end.status
        if status > LARGEST_STATUS:
            status = UNKNOWN  # as gRPC clients read what they do not know
        key = self._names.get(call.path, OTHER), status
        self._counts[key] = self._counts.get(key, 0) + 1
        self.refused += end.refused

    def text(self) -> str:
        """For the log: `Version=3 CreateContainer/13=1`, statuses other than OK behind a slash."""
        rows = sorted(self._counts.items())
        return " ".join(f"{name}{f'/{status}' if status else ''}={count}" for (name, status), count in rows)
