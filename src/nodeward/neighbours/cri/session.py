"""One relayed connection: a client's frames to the runtime and back, without I/O.

Exists because a gRPC proxy costs twice what it costs to pass the frames themselves, and loses what it does not know.
Promises: bytes go on as they came, in order, but for what is listed here; each of these is a whole frame at the edge
of frames, and none is ever a PING. Where nobody decides, that is the GOAWAY at the end alone: bytes go on before the
session has seen them, half frames too.

- the request DATA of a held call, until the verdict; another body in its place, if that is the verdict; and DATA of
  other calls behind what is kept, while the connection's window has no room for it
- what was kept goes on in frames as the windows allow, without padding
- RST_STREAM to both sides where the runtime has answered a held call before its request was whole
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

from nodeward.core.errors import WireError
from nodeward.neighbours.cri.book import CallBook, Stopwatch, Tracked
from nodeward.neighbours.cri.calls import Fate, Refuse
from nodeward.neighbours.cri.held import Owner, refusal
from nodeward.neighbours.cri.holds import Holds
from nodeward.neighbours.formats import grpc_messages
from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.header_blocks import (
    MAX_BLOCK_BYTES,
    SHRINK_TO_NOTHING,
    Headers,
    ShadowDecoder,
    encode_literals,
)
from nodeward.neighbours.formats.http2_frames import Frame

MAX_CALLS: Final = 4096
"""Calls under way on one connection; kubelet has some tens."""
Handler = Callable[[bytes, Frame], bytes | list[bytes] | None]
"""Takes a frame. None: it goes on as it came; else what goes on in its place, in one piece or several."""
Handlers = Mapping[int, Handler]


class RelayedConnection:
    """One client's connection and its connection to the runtime. Give it bytes, then send what is in the two lists."""

    def __init__(self, book: CallBook, owner: Owner, connection: int) -> None:
        self.client_out: list[bytes] = []
        self.runtime_out: list[bytes] = []
        self.over = ""
        """Why both connections are to be closed once everything is sent; empty while they are not."""
        self.watch = Stopwatch(book)
        """To be told when what is in the two lists was sent."""
        self._book = book
        self._connection = connection
        self._blind = False
        self._greeted = False
        self._early: list[bytes] = []
        self._last = 0
        self._calls: dict[int, Tracked] = {}
        self._up, self._down = h2.FrameReader(preface=True), h2.FrameReader(preface=False)
        self._up_blocks, self._down_blocks = h2.BlockReader(MAX_BLOCK_BYTES), h2.BlockReader(MAX_BLOCK_BYTES)
        self._up_decoder, self._down_decoder = ShadowDecoder(), ShadowDecoder()
        self.decides = book.decider is not None
        """Whether bytes may go on only once the session has seen them. Else they are to go on first."""
        self.holds = Holds(book, owner, self._calls, self)
        """The calls that wait for a verdict; to be told of it."""
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
        """The client sent these bytes, of which is to go on what `runtime_out` says then."""
        if not self.over:
            self._sift(data, self._up, self._up_blocks, self._from_client, self.runtime_out)

    def from_runtime(self, data: bytes) -> None:
        """The runtime sent these bytes; the same with `client_out`."""
        if not self.over:
            self._sift(data, self._down, self._down_blocks, self._from_runtime, self.client_out)

    def client_sent(self, data: bytes, came_ns: int, sent_ns: int) -> None:
        """The client sent these bytes, and they have gone on. For a session that does not decide."""
        if not (self._blind or self.over):
            self.watch.went_on(came_ns, sent_ns)
            self._look(data, self._up, self._up_blocks, self._from_client)

    def runtime_sent(self, data: bytes, came_ns: int, sent_ns: int) -> None:
        """The same of the runtime's. Then what is in `client_out` is to be sent."""
        if not (self._blind or self.over):
            self.watch.went_on(came_ns, sent_ns)
            self._look(data, self._down, self._down_blocks, self._from_runtime)
            if not self._blind:
                self._greet()

    def _look(self, data: bytes, reader: h2.FrameReader, blocks: h2.BlockReader, handlers: Handlers) -> None:
        try:
            data, _, frames = reader.feed(data)
            for frame in frames:
                if blocks.open and frame[2] != h2.CONTINUATION:
                    blocks.interrupted(frame)
                handler = handlers.get(frame[2])
                if handler is not None:
                    handler(data, frame)
        except WireError as error:
            self._lose_sight(error)

    def _greet(self) -> None:
        """The client has heard of the runtime; it is told what had to wait for that, or for the end of a frame."""
        self._greeted = True
        if self._early and self._at_edge:
            self.client_out += self._early
            self._early.clear()

    def _sift(
        self, data: bytes, reader: h2.FrameReader, blocks: h2.BlockReader, handlers: Handlers, out: list[bytes]
    ) -> None:
        """Runs of frames that nobody minds go on as one piece of the bytes that came."""
        self.watch.read()
        run = 0
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
                        out += [instead] if isinstance(instead, bytes) else instead
                    run = frame[1]
        except WireError as error:
            self._lose_sight(error)
            return
        if run < end:
            out.append(data if end - run == len(data) else data[run:end])
        if not self._greeted and self.client_out:
            self._greet()
        self.holds.grant()

    def goaway(self, last: bool) -> None:
        """Announces the relay's end to the client: first that it begin no more calls here, at last that all is over."""
        if self._greeted and not self._blind and not self.over:
            self.inject(h2.encode_goaway(self._last if last else h2.MAX_STREAM, h2.NO_ERROR))

    @property
    def _at_edge(self) -> bool:
        """Whether a frame of ours may follow what the client has got: where nothing is decided, half a frame goes on
        too."""
        return self.decides or not (self._down.unread or self._down_blocks.open)

    def close(self, why: str) -> None:
        """The connections are gone: every call ends."""
        self.over = self.over or why
        self.holds.forget_all()
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
        stream = frame[4]
        if self.holds.has(stream):
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
                self.holds.begin(tracked, stream)
            else:
                if tracked.call.held:
                    tracked.fate = Fate.UNDECIDED  # it has no message to decide by, which the runtime says itself
                self.watch.goes_on(tracked)

    def _client_data(self, data: bytes, frame: Frame) -> list[bytes] | None:
        tracked = self._calls.get(frame[4])
        if tracked is not None and tracked.shows_requests:
            first, last = h2.content(data, frame)
            tracked.request(data, first, last, self.watch.now_ns)
        return self.holds.data(data, frame) if self.decides else None

    def _client_reset(self, data: bytes, frame: Frame) -> bytes | None:
        stream = frame[4]
        if stream in self.holds.refused:
            return b""
        self.holds.forget(stream)
        self._end(stream, None, "the client cancelled")
        return None

    def _client_settings(self, data: bytes, frame: Frame) -> None:
        if frame[3] & h2.ACK:
            self._up_decoder.acknowledged()
            self.holds.acknowledged()
            return
        announced = dict(h2.settings(data, frame))
        self._down_decoder.allowed(announced.get(h2.SETTING_HEADER_TABLE_SIZE))
        self._down.allow(announced.get(h2.SETTING_MAX_FRAME_SIZE, 0))

    def _client_window(self, data: bytes, frame: Frame) -> bytes | None:
        return b"" if frame[4] in self.holds.refused else None

    # ---- what the runtime sends

    def _runtime_headers(self, data: bytes, frame: Frame) -> bytes | None:
        block = self._down_blocks.take(data, frame)
        if block is None:
            return b""
        flags, fragment, raw = block
        headers = self._down_decoder.decode(fragment)
        stream, ends = frame[4], flags & h2.END_STREAM
        if stream in self.holds.refused:
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
        return self.holds.answered(stream)

    def _runtime_data(self, data: bytes, frame: Frame) -> bytes | None:
        begin, end, _, flags, stream = frame
        if stream in self.holds.refused:
            if end - begin > h2.HEADER_BYTES:
                self.runtime_out.append(h2.encode_window_update(0, end - begin - h2.HEADER_BYTES))
            return b""
        tracked = self._calls.get(stream)
        if tracked is not None and tracked.shows_responses:
            first, last = h2.content(data, frame)
            tracked.response(data, first, last, self.watch.now_ns)
        if flags & h2.END_STREAM:
            self.holds.forget(stream)
            self._end(stream, None, "the runtime ended the call without a status")
        return None

    def _runtime_reset(self, data: bytes, frame: Frame) -> bytes | None:
        stream = frame[4]
        if stream in self.holds.refused:
            return b""
        self.holds.forget(stream)
        self._end(stream, None, f"the runtime reset the call, code {h2.reset_code(data, frame)}")
        return None

    def _runtime_goaway(self, data: bytes, frame: Frame) -> None:
        last = h2.last_stream(data, frame)
        for stream in [one for one in self._calls if one > last]:
            self.holds.forget(stream)
            self._end(stream, None, "the runtime is going away")

    def _runtime_settings(self, data: bytes, frame: Frame) -> None:
        if frame[3] & h2.ACK:
            self._down_decoder.acknowledged()
            return
        announced = dict(h2.settings(data, frame))
        self._up_decoder.allowed(announced.get(h2.SETTING_HEADER_TABLE_SIZE))
        self._up.allow(announced.get(h2.SETTING_MAX_FRAME_SIZE, 0))
        self.holds.announced(announced.get(h2.SETTING_INITIAL_WINDOW_SIZE))

    def _runtime_window(self, data: bytes, frame: Frame) -> bytes | None:
        return self.holds.opened(data, frame) if self.decides else None

    def _push(self, data: bytes, frame: Frame) -> None:
        raise WireError("http2", "PUSH_PROMISE, which no gRPC runtime sends")

    # ---- what is ours

    def inject(self, frames: bytes) -> None:
        """Frames of ours to the client, once they may come: its first has to be the runtime's SETTINGS (RFC 9113,
        3.4)."""
        (self.client_out if self._greeted and self._at_edge else self._early).append(frames)

    def refuse(self, stream: int, verdict: Refuse, ended: bool) -> None:
        """Answers the client, and ends the call; `ended` says whether its request has."""
        answer = refusal(stream, verdict, self._resized())
        self.inject(answer if ended else answer + h2.encode_reset(stream, h2.NO_ERROR))
        self._end(stream, verdict.status, verdict.text, refused=True)

    def _end(self, stream: int, status: int | None, text: str, refused: bool = False) -> None:
        tracked = self._calls.pop(stream, None)
        if tracked is not None:
            tracked.ended(status, text, self.watch.now_ns, refused)
            self.watch.goes_on(tracked)

    def _lose_sight(self, error: WireError) -> None:
        """Bytes that cannot be followed: what comes goes on unseen, or nothing goes on any more."""
        why = f"the relay cannot follow this connection: {error}"
        self._book.counts.lost_sight += 1
        if self.decides:
            if self._greeted:
                self.client_out.append(h2.encode_goaway(self._last, h2.PROTOCOL_ERROR, b"nodeward relay"))
            self.runtime_out.append(h2.encode_goaway(0, h2.PROTOCOL_ERROR, b"nodeward relay"))
            self.close(why)
            return
        self._blind = True
        for stream in tuple(self._calls):
            self._end(stream, None, why)
        self._book.unseen(self._connection, why)
