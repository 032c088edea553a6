"""Passes bytes on first and reads them afterwards, where nothing is decided.

Exists because who waits for bytes must not wait for what the relay thinks of them, and because each write wakes
somebody: writes that follow each other closely wake a runtime once for several calls, which is worth a tenth of all
calls where many connections are busy. Promises: each connection's bytes go on in order; where one connection is busy
they go on at once; nothing is looked at before all that came in its turn of the event loop has gone on; what waits for
either is bounded. Must not know what bytes say.
"""

import asyncio
from typing import Final, Protocol

from nodeward.host.clock import Clock

TURN_BYTES: Final = 1 << 20
"""No more than this, and one more read, waits for the end of a turn."""
LOOK_BYTES: Final = 1 << 17
"""What has gone on, and is to be looked at later, is so when it is more than this,"""
LOOK_READS: Final = 16
"""or came in so many reads,"""
LOOK_LATER_S: Final = 0.001
"""or so long ago, which is when nobody calls."""


class Side(Protocol):
    """One end of a relayed connection, by which bytes came."""

    def forward(self, data: bytes) -> None:
        """Sends them to the other end."""

    def look(self, data: bytes, came_ns: int, sent_ns: int) -> None:
        """They came and have gone on then, by the relay's clock."""


class Turn:
    """The turn that all connections of a relay share."""

    def __init__(self, clock: Clock, later: bool) -> None:
        """`later`: to look at something takes longer than to send it, so that it is put off until nobody calls. Else it
        is done at the end of the turn: to go to sleep and to wake once more for it would take longer."""
        self._now_ns, self._later = clock.now_ns, later
        self._sent: list[tuple[Side, bytes, int, int]] = []
        self._waiting: list[tuple[Side, bytes, int]] = []
        self._bytes = 0
        self._reads = 0
        """In this turn, up to now."""
        self._crowded = False
        """There was more than one read in the last turn, so that this one is likely to bring more too."""
        self._looks = False
        """It is looked later at what is there then."""

    def came(self, side: Side, data: bytes) -> None:
        """Bytes by this side."""
        came_ns = self._now_ns()
        self._bytes += len(data)
        self._reads += 1
        if self._reads == 1:
            asyncio.get_running_loop().call_soon(self._ends)
            if not self._crowded:
                side.forward(data)
                self._sent.append((side, data, came_ns, self._now_ns()))
                return
        self._waiting.append((side, data, came_ns))
        if self._bytes > TURN_BYTES:
            self.end()

    def _ends(self) -> None:
        """The turn of the loop does."""
        self._crowded, self._reads = self._reads > 1, 0
        self._send()
        if not self._later or len(self._sent) >= LOOK_READS or self._bytes > LOOK_BYTES:
            self._look()
        elif self._sent and not self._looks:
            self._looks = True
            asyncio.get_running_loop().call_later(LOOK_LATER_S, self._put_off)

    def _put_off(self) -> None:
        self._looks = False
        self.end()

    def end(self) -> None:
        """Sends what waits, and has all of it looked at."""
        self._send()
        self._look()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for side, data, came_ns in waiting:
            side.forward(data)
            self._sent.append((side, data, came_ns, self._now_ns()))

    def _look(self) -> None:
        sent, self._sent, self._bytes = self._sent, [], 0
        for side, data, came_ns, sent_ns in sent:
            side.look(data, came_ns, sent_ns)
