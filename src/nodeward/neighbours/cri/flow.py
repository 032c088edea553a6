"""Flow control of requests that the relay keeps back.

Exists because frames that are forwarded as they come need no accounts (each end's windows are the other's), and frames
that are kept back do. Promises: at all times the client's window <= the runtime's unused grant less what we keep for
it, plus our own credit, for each stream and for the connection; credit is given only for bytes that are kept, and only
when the client's window runs low, so that an ordinary held call causes no frame at all; what we owe is taken out of the
runtime's later grants. Must not know why something is kept.

All figures are bytes of DATA with padding, as HTTP/2 counts them (RFC 9113, 5.2 and 6.9.1).
"""

from collections import deque
from typing import Final

from nodeward.core.errors import WireError
from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.http2_frames import Frame

FRAME_BYTES: Final = 64
"""What a kept frame takes of memory beside its DATA: nearly all, where a message comes in frames of one byte."""
MAX_WAITING: Final = 1 << 16
"""Frames of one request that wait for the runtime's windows. 16 MiB come in 1024 from every known client."""
LOW_BYTES: Final = 32 * 1024
"""A client whose window is below this, while bytes of it are kept, is given credit: half of HTTP/2's first window."""


class Window:
    """One window, of a stream or of the connection, as both ends see it."""

    __slots__ = ("client", "kept", "runtime")

    def __init__(self, opened: int) -> None:
        self.client = opened
        """What the client may still send."""
        self.runtime = opened
        """What the runtime still takes."""
        self.kept = 0
        """What the client has sent and the runtime not got."""

    @property
    def credit(self) -> int:
        """How many bytes the client may send beyond what the runtime would take; never negative but for a moment."""
        return self.client - self.runtime + self.kept

    def due(self, most_credit: int = h2.MAX_WINDOW) -> int:
        """What the client is to be granted now; counted as granted."""
        grant = self.runtime - self.kept - self.client
        if grant <= 0:
            if not self.kept or self.client >= LOW_BYTES:
                return 0
            grant = min(self.runtime - self.client, most_credit - self.credit)
            if grant <= 0:
                return 0
        self.client += grant
        return grant


class FirstWindow:
    """The window that a stream begins with (SETTINGS_INITIAL_WINDOW_SIZE), which the runtime may change at any time.

    The client uses a new one as soon as it hears of it. We keep to the smallest of those that the client has not
    acknowledged yet and the last one that it has, since the runtime cannot know which of them we go by."""

    __slots__ = ("_acknowledged", "_announced", "_client", "_runtime")

    def __init__(self) -> None:
        self._client = self._runtime = self._acknowledged = h2.DEFAULT_WINDOW
        self._announced: deque[int | None] = deque()

    def window(self) -> Window:
        """The window of a new stream."""
        window = Window(self._client)
        window.runtime = self._runtime
        return window

    def announced(self, opened: int | None) -> tuple[int, int]:
        """The runtime sent SETTINGS; by how much the client's and our windows change."""
        self._announced.append(opened)
        before = self._client
        self._client = before if opened is None else opened
        return self._client - before, self._settle()

    def acknowledged(self) -> tuple[int, int]:
        """The client acknowledged the oldest SETTINGS; the same."""
        opened = self._announced.popleft() if self._announced else None
        if opened is not None:
            self._acknowledged = opened
        return 0, self._settle()

    def _settle(self) -> int:
        before = self._runtime
        self._runtime = min((one for one in self._announced if one is not None), default=self._acknowledged)
        self._runtime = min(self._runtime, self._acknowledged)
        return self._runtime - before


class Outgoing:
    """The request DATA of one stream that is held back: held for a decision, or waiting for the runtime's windows.

    `window` is None for a stream of which nothing was held: the client keeps to the runtime's own grants there."""

    __slots__ = ("ended", "frames", "holding", "stream", "taken", "window")

    def __init__(self, stream: int, window: Window | None) -> None:
        self.stream = stream
        self.window = window
        self.holding = window is not None
        """A verdict is awaited; nothing goes on before it."""
        self.taken = 0
        """What of the memory for held requests is this stream's."""
        self.ended = False
        """The last frame kept ends the request."""
        self.frames: deque[bytes] = deque()

    def keep(self, frame: bytes, connection: Window) -> None:
        """Takes a frame that the client sent. WireError where too many wait already that hold no byte, or few: windows
        do not bound those."""
        if not self.holding and len(self.frames) >= MAX_WAITING:
            raise WireError("http2", f"{MAX_WAITING} frames of stream {self.stream} wait for the runtime's window")
        size = len(frame) - h2.HEADER_BYTES
        connection.kept += size
        if self.window is not None:
            self.window.kept += size
        self.ended = self.ended or bool(frame[4] & h2.END_STREAM)
        self.frames.append(frame)

    def drop(self, connection: Window) -> None:
        """Drops the bytes that are held back."""
        while self.frames:
            self._lose(len(self.frames.popleft()) - h2.HEADER_BYTES, connection)

    def replace(self, body: bytes, connection: Window) -> None:
        """Replaces the body that is held back; it ends the request."""
        self.drop(connection)
        for at in range(0, len(body), h2.DEFAULT_FRAME_BYTES):
            piece = body[at : at + h2.DEFAULT_FRAME_BYTES]
            last = at + h2.DEFAULT_FRAME_BYTES >= len(body)
            self.keep(h2.encode(h2.DATA, h2.END_STREAM if last else 0, self.stream, piece), connection)

    def drain(self, connection: Window, out: list[bytes]) -> None:
        """Puts into `out` what the runtime's windows allow: frames as they came, or in pieces where they do not fit."""
        window = self.window
        while self.frames:
            frame = self.frames[0]
            size = len(frame) - h2.HEADER_BYTES
            room = connection.runtime if window is None else min(connection.runtime, window.runtime)
            if size and size > room:
                if room <= 0:
                    return
                self._split(room, connection)
                continue
            out.append(self.frames.popleft())
            connection.runtime -= size
            if window is not None:
                window.runtime -= size
            self._lose(size, connection)

    def _split(self, room: int, connection: Window) -> None:
        """Cuts the first frame so that its first piece fits; padding says nothing and is left out."""
        frame = self.frames.popleft()
        flags = frame[4]
        whole: Frame = (0, len(frame), h2.DATA, flags, self.stream)
        begin, end = h2.content(frame, whole)
        self._lose(len(frame) - h2.HEADER_BYTES - (end - begin), connection)
        rest = frame[begin + room : end]
        ends = flags & h2.END_STREAM
        if rest:
            self.frames.appendleft(h2.encode(h2.DATA, ends, self.stream, rest))
            ends = 0
        self.frames.appendleft(h2.encode(h2.DATA, ends, self.stream, frame[begin : min(begin + room, end)]))

    def _lose(self, size: int, connection: Window) -> None:
        connection.kept -= size
        if self.window is not None:
            self.window.kept -= size
