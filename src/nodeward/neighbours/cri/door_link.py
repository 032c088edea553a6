"""One end of the connection between the relay and the node daemon.

Promises: frames go out whole and in order; what is no frame of ours ends the connection, and that is said once; a peer
that does not read is cut off before more waits for it than UNREAD_BYTES. Must not know what a frame means.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from nodeward.core.errors import WireError
from nodeward.neighbours.cri.door_frames import Frame, FrameReader, encode

UNREAD_BYTES: Final = 96 << 20
"""More than all that the relay holds at a time."""
log = logging.getLogger(__name__)


class DoorLink(asyncio.Protocol):
    """`heard` is called with each frame, `lost` once with why the connection ended."""

    def __init__(
        self,
        heard: Callable[[Frame], None],
        lost: Callable[[str], None],
        foreign: Callable[[asyncio.Transport], str] = lambda _: "",
    ) -> None:
        """`foreign`: why the other end is not to be heard at all; empty where it is."""
        self._heard, self._lost, self._foreign, self._reader = heard, lost, foreign, FrameReader()
        self._why = ""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        if why := self._foreign(self.transport):
            self.close(why)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        try:
            for frame in self._reader.feed(data):
                if self._why:
                    return
                self._heard(frame)
        except WireError as error:
            self.close(str(error))
        except Exception as error:
            log.exception("relay-door fault")
            self.close(f"a fault of ours: {type(error).__name__}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._lost(self._why or str(exc or "the other end closed the connection"))

    def send(self, frame: Frame) -> None:
        """Sends a frame; without effect where the connection has ended."""
        if self.transport is None or self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size() > UNREAD_BYTES:
            self.close("the other end does not read")
            return
        self.transport.write(encode(frame))

    def close(self, why: str) -> None:
        """Ends the connection at once."""
        self._why = self._why or why
        if self.transport is not None:
            self.transport.abort()
