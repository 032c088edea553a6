"""The requests of one connection that do not pass freely: held, waiting for windows, or refused.

Exists so that who follows frames (relay_session) does not know why one of them stays back. Promises: a held request
goes on as it came, or with another body, or not at all, once; the windows keep to relay_flow's rule, whatever is kept;
of a call that was refused nothing passes any more. Must not know what a method means, nor header compression.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from nodeward.core.errors import WireError
from nodeward.neighbours.cri.book import CallBook, Stopwatch, Tracked
from nodeward.neighbours.cri.calls import Fate, Pass, Refuse, Replace, UndecidedError, Verdict
from nodeward.neighbours.cri.flow import FRAME_BYTES, FirstWindow, Outgoing, Window
from nodeward.neighbours.cri.held import Owner, failed, hold_ns, message_if_any, message_of
from nodeward.neighbours.formats import grpc_messages
from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.grpc_messages import MESSAGE_BYTES
from nodeward.neighbours.formats.http2_frames import Frame

MAX_REFUSED: Final = 4096


class Connection(Protocol):
    """The part of the session that held calls need."""

    runtime_out: list[bytes]
    watch: Stopwatch

    def inject(self, frames: bytes) -> None:
        """Frames of ours to the client."""

    def refuse(self, stream: int, verdict: Refuse, ended: bool) -> None:
        """Answers the client, and ends the call; `ended` says whether its request has."""


class Holds:
    """Request bytes that are held back, and refused calls. What may go on is given back, or is in `out`."""

    def __init__(self, book: CallBook, owner: Owner, calls: Mapping[int, Tracked], connection: Connection) -> None:
        self._book = book
        self._owner = owner
        self._calls = calls
        self._connection = connection
        self._window = Window(h2.DEFAULT_WINDOW)
        self._outgoing: dict[int, Outgoing] = {}
        self._touched: dict[int, None] = {}
        """Streams of which something may go on, or a window be opened, since `grant` was called last."""
        self._initial = FirstWindow()
        self.refused: dict[int, None] = {}
        """Streams of which nothing passes, in neither direction."""

    # ---- for the owner

    def verdict(self, stream: int, verdict: Verdict) -> None:
        """What was decided later of a held call. Without effect where nobody waits for it any more."""
        if (keeping := self._waiting(stream)) is not None:
            self._apply(keeping, verdict, self._connection.runtime_out)
            self.grant()

    def undecided(self, stream: int, why: str) -> None:
        """No verdict will come of a held call: its decider says what becomes of it nonetheless."""
        if (keeping := self._waiting(stream)) is not None:
            self._undecided(keeping, why, self._connection.runtime_out)
            self.grant()

    def late(self, stream: int, ending: bool) -> None:
        """A held request is not whole in time: without this an idle client had a share of what can be held for good.
        `ending`: nor will it be, since the relay ends."""
        if (keeping := self._waiting(stream)) is not None:
            why = "the relay ends" if ending else "the request did not end in time"
            self._undecided(keeping, why, self._connection.runtime_out, ending)
            self.grant()

    def end(self) -> None:
        """The relay ends: no call waits for its verdict any more."""
        self._connection.watch.read()
        for keeping in tuple(self._outgoing.values()):
            if keeping.holding:
                self._owner.abandon(keeping.stream)
                self._undecided(keeping, "the relay ends", self._connection.runtime_out, ending=True)
        self.grant()

    def _waiting(self, stream: int) -> Outgoing | None:
        keeping = self._outgoing.get(stream)
        self._connection.watch.read()
        return keeping if keeping is not None and keeping.holding else None

    # ---- for the session

    def begin(self, tracked: Tracked, stream: int) -> None:
        """Begins a call that is held until its request is whole and decided."""
        tracked.fate = Fate.ABANDONED  # until something else becomes of it
        self._outgoing[stream] = Outgoing(stream, self._initial.window())
        self._owner.expect(stream, hold_ns(tracked, self._connection.watch.now_ns))

    def has(self, stream: int) -> bool:
        """Whether bytes of its request are held back, or it was refused."""
        return stream in self._outgoing or stream in self.refused

    def data(self, data: bytes, frame: Frame) -> list[bytes] | None:
        """The client's DATA, as a session's handler."""
        begin, end, _, _, stream = frame
        size, window = end - begin - h2.HEADER_BYTES, self._window
        window.client -= size
        if window.client < 0 and window.kept:
            raise WireError("http2", "the client sends more than it was allowed")
        keeping = self._outgoing.get(stream)
        if keeping is None:
            if stream in self.refused:
                return []  # its size is granted again, since it is neither kept nor sent on
            if size <= window.runtime or window.client < 0:
                window.runtime -= size
                return None
            keeping = self._outgoing[stream] = Outgoing(stream, None)
        return self._keep(keeping, data[begin:end])

    def opened(self, data: bytes, frame: Frame) -> bytes | None:
        """The runtime's WINDOW_UPDATE, as a session's handler."""
        stream, opened = frame[4], h2.increment(data, frame)
        if not stream:
            self._window.runtime += opened
            self._touched.update(dict.fromkeys(self._outgoing))
            due = self._window.due()
        else:
            keeping = self._outgoing.get(stream)
            if keeping is None or keeping.window is None:
                return b"" if stream in self.refused else None
            keeping.window.runtime += opened
            self._touched[stream] = None
            due = keeping.window.due(MESSAGE_BYTES)
        if due == opened:
            return None
        return h2.encode_window_update(stream, due) if due else b""

    def announced(self, first_window: int | None) -> None:
        """The runtime sent SETTINGS, with the window that streams begin with, if it says so."""
        self._shift(*self._initial.announced(first_window))

    def acknowledged(self) -> None:
        """The client acknowledged SETTINGS of the runtime's."""
        self._shift(*self._initial.acknowledged())

    def _shift(self, client: int, runtime: int) -> None:
        """The first window of all streams changed, of those under way too."""
        if not (client or runtime):
            return
        self._touched.update(dict.fromkeys(self._outgoing))
        for keeping in self._outgoing.values():
            if keeping.window is not None:
                keeping.window.client += client
                keeping.window.runtime += runtime

    def answered(self, stream: int) -> bytes:
        """The runtime's answer is complete; what the client is to be told after it."""
        keeping = self._outgoing.get(stream)
        if keeping is None:
            return b""
        self.forget(stream)
        self._connection.runtime_out.append(self._cut_off(stream))
        return b"" if keeping.ended else h2.encode_reset(stream, h2.NO_ERROR)

    def forget(self, stream: int) -> None:
        """Drops all bytes of a stream."""
        keeping = self._outgoing.pop(stream, None)
        if keeping is None:
            return
        if keeping.holding:
            self._owner.abandon(stream)
        self._release(keeping)
        keeping.drop(self._window)

    def forget_all(self) -> None:
        """The connections are gone."""
        for stream in tuple(self._outgoing):
            self.forget(stream)

    def grant(self) -> None:
        """Sends the bytes that the runtime takes now, and opens the client's windows for those that are held or
        dropped: of the streams that were touched, since one connection can have thousands."""
        touched, self._touched = self._touched, {}
        for stream in touched:
            if (keeping := self._outgoing.get(stream)) is not None:
                self._drain(keeping, self._connection.runtime_out)
        due = self._window.due()
        if due:
            self._connection.inject(h2.encode_window_update(0, due))
        for stream in touched:
            keeping = self._outgoing.get(stream)
            if keeping is not None and keeping.window is not None and not keeping.ended:
                due = keeping.window.due(MESSAGE_BYTES)
                if due:
                    self._connection.inject(h2.encode_window_update(stream, due))

    # ---- a held call

    def _keep(self, keeping: Outgoing, frame: bytes) -> list[bytes]:
        """Takes a frame, and gives those that may go on."""
        out: list[bytes] = []
        size = len(frame) - h2.HEADER_BYTES
        if keeping.window is not None:
            keeping.window.client -= size
        self._touched[keeping.stream] = None
        keeping.keep(frame, self._window)
        if not keeping.holding:
            self._drain(keeping, out)
            return out
        granted = self._book.holds.take(cost := size + FRAME_BYTES)
        keeping.taken += granted
        assert keeping.window is not None
        if granted < cost or keeping.window.kept > MESSAGE_BYTES + h2.HEADER_BYTES:
            came = keeping.window.kept
            self._undecided(keeping, f"the request is larger than what can be held: {came} bytes have come", out)
        elif keeping.ended:
            self._ask(keeping, out)
        return out

    def _ask(self, keeping: Outgoing, out: list[bytes]) -> None:
        """The whole request is here: has it decided."""
        tracked, now_ns = self._calls[keeping.stream], self._connection.watch.now_ns
        tracked.since_ns = now_ns
        try:
            message = message_of(keeping, tracked.encoding)
        except WireError as error:
            self._undecided(keeping, str(error), out)
            return
        within = hold_ns(tracked, now_ns)
        if within <= 0:
            self._undecided(keeping, "the client leaves no time to decide", out)
            return
        try:
            verdict = self._owner.ask(keeping.stream, tracked.call, message, within)
        except (WireError, UndecidedError) as error:  # no fault of ours
            self._undecided(keeping, str(error), out)
            return
        except Exception as error:
            self._book.fault("decider")
            self._undecided(keeping, failed(error), out)
            return
        if verdict is not None:
            self._apply(keeping, verdict, out)

    def _undecided(self, keeping: Outgoing, why: str, out: list[bytes], ending: bool = False) -> None:
        """Has the decider say what becomes of a call without a verdict."""
        tracked = self._calls[keeping.stream]
        message = message_if_any(keeping, tracked.encoding)
        self._apply(keeping, self._book.undecided(tracked.call, message, why, ending), out, Fate.UNDECIDED)

    def _apply(self, keeping: Outgoing, verdict: Verdict, out: list[bytes], passed: Fate = Fate.ALLOWED) -> None:
        self._release(keeping)
        tracked = self._calls[keeping.stream]
        if isinstance(verdict, Refuse):
            tracked.fate = Fate.REFUSED
            self.forget(keeping.stream)
            out.append(self._cut_off(keeping.stream))
            self._connection.refuse(keeping.stream, verdict, keeping.ended)
            return
        tracked.fate = passed if isinstance(verdict, Pass) else Fate.CHANGED
        if isinstance(verdict, Replace):
            keeping.replace(grpc_messages.encode_message(verdict.message), self._window)
            self._touched[keeping.stream] = None
        self._connection.watch.goes_on(tracked)
        self._drain(keeping, out)

    def _drain(self, keeping: Outgoing, out: list[bytes]) -> None:
        if keeping.holding:
            return
        keeping.drain(self._window, out)
        if not keeping.frames and (keeping.ended or keeping.window is None):
            self._outgoing.pop(keeping.stream, None)

    def _cut_off(self, stream: int) -> bytes:
        """Lets nothing of the stream pass from now on; what the runtime is told of it."""
        self.refused[stream] = None
        if len(self.refused) > MAX_REFUSED:
            del self.refused[next(iter(self.refused))]
        return h2.encode_reset(stream, h2.CANCEL)

    def _release(self, keeping: Outgoing) -> None:
        keeping.holding = False
        self._book.holds.take(-keeping.taken)
        keeping.taken = 0
