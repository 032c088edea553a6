"""What came in one turn of the event loop, where nothing is decided: it goes on first, and is looked at then.

Exists because who waits for bytes must not wait for what the relay thinks of them, and because each write wakes
somebody: writes that follow each other closely wake a runtime once for several calls, which is worth a tenth of all
calls where many connections are busy. Promises: each connection's bytes go on in order; where one connection is busy
they go on at once; nothing is looked at before all has gone on; what waits for that is bounded. Must not know what
bytes say.
"""

import asyncio
from typing import Final, Protocol

from nodeward.aio.clock import Clock

TURN_BYTES: Final = 1 << 20
"""No more than this, and one more read, waits for the end of a turn."""


class Side(Protocol):
    """One end of a relayed connection, by which bytes came."""

    def forward(self, data: bytes) -> None:
        """Sends them to the other end."""

    def look(self, data: bytes, came_ns: int, sent_ns: int) -> None:
        """They came and have gone on then, by the relay's clock."""


class Turn:
    """Of all connections of a relay."""

    def __init__(self, clock: Clock) -> None:
        self._now_ns = clock.now_ns
        self._sent: list[tuple[Side, bytes, int, int]] = []
        self._waiting: list[tuple[Side, bytes, int]] = []
        self._bytes = 0
        self._crowded = False
        """There was more than one read in the last turn, so that this one is likely to bring more too."""

    def came(self, side: Side, data: bytes) -> None:
        """Bytes by this side."""
        came_ns = self._now_ns()
        if not (self._sent or self._waiting):
            asyncio.get_running_loop().call_soon(self.end)
            if not self._crowded:
                side.forward(data)
                self._sent.append((side, data, came_ns, self._now_ns()))
                return
        self._waiting.append((side, data, came_ns))
        self._bytes += len(data)
        if self._bytes > TURN_BYTES:
            self.end()

    def end(self) -> None:
        """Sends what waits, and has all of it looked at."""
        sent, self._sent = self._sent, []
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        self._crowded = len(sent) + len(waiting) > 1
        for side, data, came_ns in waiting:
            side.forward(data)
            sent.append((side, data, came_ns, self._now_ns()))
        for side, data, came_ns, sent_ns in sent:
            side.look(data, came_ns, sent_ns)
