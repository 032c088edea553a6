"""One relayed connection: a client's frames to the runtime and back, without I/O.

Exists because a gRPC proxy costs twice what it costs to pass the frames themselves, and loses what it does not know.
Promises: bytes go on as they came, in order, but for what is listed here; each of these is a whole frame at the edge
of frames, and none is ever a PING:

- the request DATA of a held call, until the verdict; another body in its place, if that is the verdict
- WINDOW_UPDATE of either side where bytes were kept or dropped, and of the runtime what is owed of it (relay_flow)
- for a refused call RST_STREAM to the runtime, to the client an answer of literals and, if its request is unfinished,
  RST_STREAM; from then on nothing of that stream passes, in neither direction
- once the runtime has answered a refused call nonetheless, every later block of response headers is encoded anew, since
  the client's decoder has missed one
- GOAWAY when the relay ends, or can no longer follow a connection on which calls are held

What cannot be followed is relayed on unseen where nothing is held, and ends both connections where something is: calls
never pass undecided because somebody wrote odd bytes. Must not know what a method means, nor sockets, nor tasks.
"""

from collections.abc import Callable, Mapping
from typing import Final

from nodeward.model.relayed import Fate, Pass, Refuse, Replace, Verdict
from nodeward.transport.relay_calls import MESSAGE_BYTES, CallBook, Stopwatch, Tracked
from nodeward.transport.relay_flow import FRAME_BYTES, FirstWindow, Outgoing, Window
from nodeward.transport.relay_held import Owner, hold_ns, message_if_any, message_of, refusal
from nodeward.wire import grpc_messages
from nodeward.wire import http2_frames as h2
from nodeward.wire.errors import WireError
from nodeward.wire.header_blocks import MAX_BLOCK_BYTES, SHRINK_TO_NOTHING, Headers, ShadowDecoder, encode_literals
from nodeward.wire.http2_frames import Frame

MAX_CALLS: Final = 4096
"""Calls under way on one connection; kubelet has some tens."""
MAX_REFUSED: Final = 4096
Handler = Callable[[bytes, Frame], bytes | None]
"""Takes a frame. None: it goes on as it came; else what goes on in its place."""
Handlers = Mapping[int, Handler]


class Session:
    """One client's connection and its connection to the runtime. Give it bytes, then send what is in the two lists."""

    def __init__(self, book: CallBook, owner: Owner, connection: int) -> None:
        self.client_out: list[bytes] = []
        self.runtime_out: list[bytes] = []
        self.over = ""
        """Why both connections are to be closed once everything is sent; empty while they are not."""
        self.watch = Stopwatch(book)
        """To be told when what is in the two lists was sent."""
        self._book = book
        self._owner = owner
        self._connection = connection
        self._blind = False
        self._greeted = False
        self._early: list[bytes] = []
        self._last = 0
        self._calls: dict[int, Tracked] = {}
        self._up, self._down = h2.FrameReader(preface=True), h2.FrameReader(preface=False)
        self._up_blocks, self._down_blocks = h2.BlockReader(MAX_BLOCK_BYTES), h2.BlockReader(MAX_BLOCK_BYTES)
        self._up_decoder, self._down_decoder = ShadowDecoder(), ShadowDecoder()
        self._enforces = book.decider is not None
        self._window = Window(h2.DEFAULT_WINDOW)
        self._initial = FirstWindow()
        self._outgoing: dict[int, Outgoing] = {}
        self._refused: dict[int, None] = {}
        self._reencodes = False
        self._shrunk = False
        self._from_client: Handlers = {
            h2.DATA: self._client_data,
            h2.RST_STREAM: self._client_reset,
            h2.SETTINGS: self._client_settings,
            h2.WINDOW_UPDATE: self._client_window,
            h2.HEADERS: self._client_headers,
            h2.CONTINUATION: self._client_headers,
        }
        self._from_runtime: Handlers = {
            h2.DATA: self._runtime_data,
            h2.RST_STREAM: self._runtime_reset,
            h2.SETTINGS: self._runtime_settings,
            h2.WINDOW_UPDATE: self._runtime_window,
            h2.GOAWAY: self._runtime_goaway,
            h2.PUSH_PROMISE: self._push,
            h2.HEADERS: self._runtime_headers,
            h2.CONTINUATION: self._runtime_headers,
        }

    # ---- for the owner

    @property
    def waits(self) -> bool:
        """Whether a call waits for the end of its answer that does not go on for ever."""
        return any(not tracked.endless for tracked in self._calls.values())

    def from_client(self, data: bytes) -> None:
        """The client sent these bytes."""
        if self._blind:
            self.runtime_out.append(data)
        elif not self.over:
            self._pump(data, self._up, self._up_blocks, self._from_client, self.runtime_out)

    def from_runtime(self, data: bytes) -> None:
        """The runtime sent these bytes."""
        if self._blind:
            self.client_out.append(data)
        elif not self.over:
            self._pump(data, self._down, self._down_blocks, self._from_runtime, self.client_out)

    def _pump(
        self, data: bytes, reader: h2.FrameReader, blocks: h2.BlockReader, handlers: Handlers, out: list[bytes]
    ) -> None:
        """Runs of frames that nobody minds go on as one piece of the bytes that came."""
        self.watch.read()
        run = end = 0
        try:
            data, end, frames = reader.feed(data)
            for frame in frames:
                if blocks.open and frame[2] != h2.CONTINUATION:
                    blocks.interrupted(frame)
                handler = handlers.get(frame[2])
                instead = None if handler is None else handler(data, frame)
                if instead is not None:
                    if run < frame[0]:
                        out.append(data[run : frame[0]])
                    if instead:
                        out.append(instead)
                    run = frame[1]
        except WireError as error:
            self._lose_sight(error, reader, data[run:end])
            return
        if run < end:
            out.append(data if end - run == len(data) else data[run:end])
        if not self._greeted and self.client_out:
            self._greeted = True
            self.client_out += self._early
        if self._enforces:
            self._grant()

    def verdict(self, stream: int, verdict: Verdict) -> None:
        """What was decided later of a held call. Without effect where nobody waits for it any more."""
        if (keeping := self._waiting(stream)) is not None:
            self._apply(keeping, verdict, self.runtime_out)
            self._grant()

    def undecided(self, stream: int, why: str) -> None:
        """No verdict will come of a held call: its decider says what becomes of it nonetheless."""
        if (keeping := self._waiting(stream)) is not None:
            self._undecided(keeping, why, self.runtime_out)
            self._grant()

    def end_holds(self) -> None:
        """The relay ends: no call waits for its verdict any more."""
        self.watch.read()
        for keeping in tuple(self._outgoing.values()):
            if keeping.holding and not self.over:
                self._owner.abandon(keeping.stream)
                self._undecided(keeping, "the relay ends", self.runtime_out, ending=True)
        self._grant()

    def _waiting(self, stream: int) -> Outgoing | None:
        keeping = self._outgoing.get(stream)
        self.watch.read()
        return keeping if keeping is not None and keeping.holding and not self.over else None

    def goaway(self, last: bool) -> None:
        """Tells the client that the relay ends: first that it begin no more calls here, at last that all is over."""
        if self._greeted and not self._blind and not self.over:
            self.client_out.append(h2.encode_goaway(self._last if last else h2.MAX_STREAM, h2.NO_ERROR))

    def close(self, why: str) -> None:
        """The connections are gone: every call ends."""
        self.over = self.over or why
        for stream in tuple(self._outgoing):
            self._forget(stream)
        self.watch.read()
        for stream in tuple(self._calls):
            self._end(stream, None, self.over)
        self.watch.written()

    # ---- what the client sends

    def _client_headers(self, data: bytes, frame: Frame) -> bytes | None:
        block = self._up_blocks.take(data, frame)
        if block is None:
            return b""
        flags, fragment, raw = block
        headers = self._up_decoder.decode(fragment)
        self._up_blocks.done()
        stream = frame[4]
        if stream in self._outgoing or stream in self._refused:
            raise WireError("http2", f"the request on stream {stream} has trailers; no gRPC client sends any")
        self._last = max(self._last, stream)
        if stream not in self._calls:
            self._begin(stream, headers, ended=bool(flags & h2.END_STREAM))
        return None if frame[2] == h2.HEADERS else raw

    def _begin(self, stream: int, headers: Headers, ended: bool) -> None:
        if len(self._calls) >= MAX_CALLS:
            raise WireError("http2", f"more than {MAX_CALLS} calls under way on one connection")
        tracked = self._book.begin(self._connection, headers, self.watch.now_ns)
        if tracked is not None:
            self._calls[stream] = tracked
            if tracked.call.held and not ended:
                tracked.fate = Fate.ABANDONED  # until something else becomes of it
                self._outgoing[stream] = Outgoing(stream, self._initial.window())
            else:
                self.watch.goes_on(tracked)

    def _client_data(self, data: bytes, frame: Frame) -> bytes | None:
        begin, end, _, _, stream = frame
        tracked = self._calls.get(stream)
        if tracked is not None and tracked.shows_requests:
            first, last = h2.content(data, frame)
            tracked.request(data, first, last, self.watch.now_ns)
        if not self._enforces:
            return None
        size, window = end - begin - h2.HEADER_BYTES, self._window
        window.client -= size
        if window.client < 0 and window.kept:
            raise WireError("http2", "the client sends more than it was allowed")
        keeping = self._outgoing.get(stream)
        if keeping is None:
            if stream in self._refused:
                return b""  # its size is granted again, since it is neither kept nor sent on
            if size <= window.runtime or window.client < 0:
                window.runtime -= size
                return None
            keeping = self._outgoing[stream] = Outgoing(stream, None)
        return self._keep(keeping, data[begin:end])

    def _keep(self, keeping: Outgoing, frame: bytes) -> bytes:
        """Takes a frame, and gives those that may go on."""
        out: list[bytes] = []
        size = len(frame) - h2.HEADER_BYTES
        if keeping.window is not None:
            keeping.window.client -= size
        keeping.keep(frame, self._window)
        if not keeping.holding:
            self._drain(keeping, out)
            return b"".join(out)
        granted = self._book.holds.take(cost := size + FRAME_BYTES)
        keeping.taken += granted
        assert keeping.window is not None
        if granted < cost or keeping.window.kept > MESSAGE_BYTES + h2.HEADER_BYTES:
            self._undecided(keeping, "the request is larger than what can be held", out)
        elif keeping.ended:
            self._ask(keeping, out)
        return b"".join(out)

    def _client_reset(self, data: bytes, frame: Frame) -> bytes | None:
        stream = frame[4]
        if stream in self._refused:
            return b""
        self._forget(stream)
        self._end(stream, None, "the client cancelled")
        return None

    def _client_settings(self, data: bytes, frame: Frame) -> None:
        if frame[3] & h2.ACK:
            self._up_decoder.acknowledged()
            self._shift(*self._initial.acknowledged())
            return
        announced = dict(h2.settings(data, frame))
        self._down_decoder.allowed(announced.get(h2.SETTING_HEADER_TABLE_SIZE))
        self._down.allow(announced.get(h2.SETTING_MAX_FRAME_SIZE, 0))

    def _client_window(self, data: bytes, frame: Frame) -> bytes | None:
        return b"" if frame[4] in self._refused else None

    # ---- what the runtime sends

    def _runtime_headers(self, data: bytes, frame: Frame) -> bytes | None:
        block = self._down_blocks.take(data, frame)
        if block is None:
            return b""
        flags, fragment, raw = block
        headers = self._down_decoder.decode(fragment)
        self._down_blocks.done()
        stream, ends = frame[4], flags & h2.END_STREAM
        if stream in self._refused:
            self._reencodes = True
            return b""
        tail = self._answered(stream, headers) if ends else b""
        if self._reencodes:
            return h2.encode_headers(stream, self._resized() + encode_literals(headers), ends) + tail
        if frame[2] == h2.HEADERS and not tail:
            return None
        return raw + tail

    def _resized(self) -> bytes:
        """What a block of ours to the client has to begin with."""
        if not self._reencodes:
            return self._down_decoder.shrink()
        before, self._shrunk = self._shrunk, True
        return b"" if before else SHRINK_TO_NOTHING

    def _answered(self, stream: int, headers: Headers) -> bytes:
        """The runtime's answer is complete; what the client is to be told after it."""
        named = dict(headers)
        code = named.get(b"grpc-status", b"")
        text = grpc_messages.decode_text(named.get(b"grpc-message", b""))
        if code.isdigit() and len(code) < 4:
            self._end(stream, int(code), text)
        else:
            self._end(stream, None, f"HTTP status {named.get(b':status', b'').decode('latin-1')}, no gRPC status")
        keeping = self._outgoing.get(stream)
        if keeping is None:
            return b""
        self._forget(stream)
        self.runtime_out.append(self._cut_off(stream))
        return b"" if keeping.ended else h2.encode_reset(stream, h2.NO_ERROR)

    def _runtime_data(self, data: bytes, frame: Frame) -> bytes | None:
        begin, end, _, flags, stream = frame
        if stream in self._refused:
            if end - begin > h2.HEADER_BYTES:
                self.runtime_out.append(h2.encode_window_update(0, end - begin - h2.HEADER_BYTES))
            return b""
        tracked = self._calls.get(stream)
        if tracked is not None and tracked.shows_responses:
            first, last = h2.content(data, frame)
            tracked.response(data, first, last, self.watch.now_ns)
        if flags & h2.END_STREAM:
            self._forget(stream)
            self._end(stream, None, "the runtime ended the call without a status")
        return None

    def _runtime_reset(self, data: bytes, frame: Frame) -> bytes | None:
        stream = frame[4]
        if stream in self._refused:
            return b""
        self._forget(stream)
        self._end(stream, None, f"the runtime reset the call, code {h2.reset_code(data, frame)}")
        return None

    def _runtime_goaway(self, data: bytes, frame: Frame) -> None:
        last = h2.last_stream(data, frame)
        for stream in [one for one in self._calls if one > last]:
            self._forget(stream)
            self._end(stream, None, "the runtime is going away")

    def _runtime_settings(self, data: bytes, frame: Frame) -> None:
        if frame[3] & h2.ACK:
            self._down_decoder.acknowledged()
            return
        announced = dict(h2.settings(data, frame))
        self._up_decoder.allowed(announced.get(h2.SETTING_HEADER_TABLE_SIZE))
        self._up.allow(announced.get(h2.SETTING_MAX_FRAME_SIZE, 0))
        self._shift(*self._initial.announced(announced.get(h2.SETTING_INITIAL_WINDOW_SIZE)))

    def _shift(self, client: int, runtime: int) -> None:
        """The first window of all streams changed, of those under way too."""
        for keeping in self._outgoing.values():
            if keeping.window is not None:
                keeping.window.client += client
                keeping.window.runtime += runtime

    def _runtime_window(self, data: bytes, frame: Frame) -> bytes | None:
        if not self._enforces:
            return None
        stream, opened = frame[4], h2.increment(data, frame)
        if not stream:
            self._window.runtime += opened
            due = self._window.due()
        else:
            keeping = self._outgoing.get(stream)
            if keeping is None or keeping.window is None:
                return b"" if stream in self._refused else None
            keeping.window.runtime += opened
            due = keeping.window.due(MESSAGE_BYTES)
        if due == opened:
            return None
        return h2.encode_window_update(stream, due) if due else b""

    def _push(self, data: bytes, frame: Frame) -> None:
        raise WireError("http2", "PUSH_PROMISE, which no gRPC runtime sends")

    # ---- held calls

    def _ask(self, keeping: Outgoing, out: list[bytes]) -> None:
        """The whole request is here: has it decided."""
        tracked = self._calls[keeping.stream]
        tracked.since_ns = self.watch.now_ns
        try:
            message = message_of(keeping, tracked.encoding)
        except WireError as error:
            self._undecided(keeping, str(error), out)
            return
        within = hold_ns(tracked, self.watch.now_ns)
        if within <= 0:
            self._undecided(keeping, "the client leaves no time to decide", out)
            return
        try:
            verdict = self._owner.ask(keeping.stream, tracked.call, message, within)
        except Exception:
            self._book.fault("decider")
            self._undecided(keeping, "the decision failed, see the relay's log", out)
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
            self._refuse(keeping, verdict, out)
            return
        tracked.fate = passed if isinstance(verdict, Pass) else Fate.CHANGED
        if isinstance(verdict, Replace):
            keeping.replace(grpc_messages.encode_message(verdict.message), self._window)
        self.watch.goes_on(tracked)
        self._drain(keeping, out)

    def _refuse(self, keeping: Outgoing, verdict: Refuse, out: list[bytes]) -> None:
        stream = keeping.stream
        self._forget(stream)
        out.append(self._cut_off(stream))
        answer = refusal(stream, verdict, self._resized())
        self._inject(answer if keeping.ended else answer + h2.encode_reset(stream, h2.NO_ERROR))
        self._end(stream, verdict.status, verdict.text, refused=True)

    def _drain(self, keeping: Outgoing, out: list[bytes]) -> None:
        if keeping.holding:
            return
        keeping.drain(self._window, out)
        if not keeping.frames and (keeping.ended or keeping.window is None):
            self._outgoing.pop(keeping.stream, None)

    def _cut_off(self, stream: int) -> bytes:
        """Lets nothing of the stream pass from now on; what the runtime is told of it."""
        self._refused[stream] = None
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        return h2.encode_reset(stream, h2.CANCEL)

    def _inject(self, frames: bytes) -> None:
        """Frames of ours to the client, whose first frame has to be the runtime's SETTINGS (RFC 9113, 3.4)."""
        (self.client_out if self._greeted else self._early).append(frames)

    def _grant(self) -> None:
        """Sends what the runtime takes by now, and opens the client's windows for what is kept or was dropped."""
        for keeping in tuple(self._outgoing.values()):
            self._drain(keeping, self.runtime_out)
        due = self._window.due()
        if due:
            self._inject(h2.encode_window_update(0, due))
        for keeping in self._outgoing.values():
            if keeping.window is not None and not keeping.ended:
                due = keeping.window.due(MESSAGE_BYTES)
                if due:
                    self._inject(h2.encode_window_update(keeping.stream, due))

    def _forget(self, stream: int) -> None:
        """Drops what is kept of a stream."""
        keeping = self._outgoing.pop(stream, None)
        if keeping is None:
            return
        if keeping.holding and keeping.ended:
            self._owner.abandon(stream)
        self._release(keeping)
        keeping.drop(self._window)

    def _release(self, keeping: Outgoing) -> None:
        keeping.holding = False
        self._book.holds.take(-keeping.taken)
        keeping.taken = 0

    def _end(self, stream: int, status: int | None, text: str, refused: bool = False) -> None:
        tracked = self._calls.pop(stream, None)
        if tracked is not None:
            tracked.ended(status, text, self.watch.now_ns, refused)
            self.watch.goes_on(tracked)

    def _lose_sight(self, error: WireError, reader: h2.FrameReader, rest: bytes) -> None:
        """Bytes that cannot be followed: they go on unseen, or nothing goes on any more."""
        why = f"the relay cannot follow this connection: {error}"
        self._book.counts.lost_sight += 1
        if self._enforces:
            if self._greeted:
                self.client_out.append(h2.encode_goaway(self._last, h2.PROTOCOL_ERROR, b"nodeward relay"))
            self.runtime_out.append(h2.encode_goaway(0, h2.PROTOCOL_ERROR, b"nodeward relay"))
            self.close(why)
            return
        self._blind = True
        for blocks, one, out in (
            (self._up_blocks, self._up, self.runtime_out),
            (self._down_blocks, self._down, self.client_out),
        ):
            out += (blocks.raw, rest if one is reader else b"", one.unread)
        for stream in tuple(self._calls):
            self._end(stream, None, why)
