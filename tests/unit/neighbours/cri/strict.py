"""An HTTP/2 end that forgives nothing, without sockets: the relay is between two of these in the tests.

It is written apart from the product's frame code, by RFC 9113 and 7541, and raises ViolationError where an end would
have to answer with an error: frames between HEADERS and CONTINUATION, more DATA than was granted, windows over 2^31-1,
DATA or headers of a stream that has ended, header blocks that its decoder does not understand.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hpack import Decoder, Encoder, HPACKError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 32
TABLE, INITIAL, FRAME = 1, 4, 5
MAX_WINDOW = MAX_STREAM = 2**31 - 1

Headers = Sequence[tuple[bytes, bytes]]


class ViolationError(AssertionError):
    """The relay made an end see what no peer may send."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


@dataclass
class Stream:
    send_window: int
    granted: int
    """What the other end may still send."""
    sent_end: bool = False
    got_end: bool = False
    gone: bool = False
    """Reset, by either end."""
    sent_reset: bool = False
    headers: list[Headers] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    resets: list[int] = field(default_factory=list)


class StrictEnd:
    """One end. What it sends is in `out`; what it is sent is given to `feed`."""

    def __init__(self, client: bool) -> None:
        self.client = client
        self.out = bytearray(PREFACE if client else b"")
        self.got = bytearray()
        """All that came."""
        self.streams: dict[int, Stream] = {}
        self.pings: list[bytes] = []
        self.goaways: list[tuple[int, int]] = []
        self.send_window = 65535
        self.granted = 65535
        self.unacknowledged: list[dict[int, int]] = []
        self._encoder, self._decoder = Encoder(), Decoder(1 << 20)
        self._peer_initial, self._own_initial = 65535, 65535
        self._peer_frame, self._own_frame = 16384, 16384
        self._tables: list[int] = []
        self._buffer = b""
        self._block: tuple[int, int, bytes] | None = None
        self._greeted = False
        self.settings({})

    # ---- sending

    def settings(self, values: dict[int, int]) -> None:
        """Announces settings, which hold once they are acknowledged; longer frames at once.

        A smaller window is not enforced for streams that are open: their DATA may be on its way for long."""
        self.unacknowledged.append(values)
        self._own_frame = max(self._own_frame, values.get(FRAME, 0))
        pairs = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in values.items())
        self.out += frame(SETTINGS, 0, 0, pairs)

    def headers(
        self,
        stream: int,
        headers: Headers,
        end: bool = False,
        split: int = 0,
        padding: int = -1,
        priority: bool = False,
    ) -> None:
        """A header block, in pieces of `split` bytes if that is not 0."""
        self._resize()
        block = bytes(self._encoder.encode(headers))
        pieces = [block[at : at + split] for at in range(0, len(block), split)] if split else [block]
        for number, piece in enumerate(pieces):
            flags = END_HEADERS if number == len(pieces) - 1 else 0
            if number:
                self.out += frame(CONTINUATION, flags, stream, piece)
                continue
            flags |= END_STREAM if end else 0
            body = (b"\0\0\0\0\x10" if priority else b"") + piece
            if padding >= 0:
                flags, body = flags | PADDED, bytes((padding,)) + body + bytes(padding)
            self.out += frame(HEADERS, flags | (PRIORITY if priority else 0), stream, body)
        state = self._stream(stream)
        state.sent_end = state.sent_end or end

    def _resize(self) -> None:
        """Tells the smallest table size since the last block, and the last one (RFC 7541, 4.2)."""
        sizes, self._tables = self._tables, []
        for size in (min(sizes), sizes[-1]) if sizes else ():
            if size != self._encoder.header_table_size:  # hpack forgets the first of two equal ones
                self._encoder.header_table_size = size

    def data(self, stream: int, body: bytes, end: bool = False, padding: int = -1) -> None:
        """DATA; the caller looks at `room` first."""
        flags = END_STREAM if end else 0
        if padding >= 0:
            flags, body = flags | PADDED, bytes((padding,)) + body + bytes(padding)
        state = self.streams[stream]
        assert len(body) <= self.room(stream) or not body, "the test itself sends too much"
        self.send_window -= len(body)
        state.send_window -= len(body)
        state.sent_end = state.sent_end or end
        self.out += frame(DATA, flags, stream, body)

    def room(self, stream: int) -> int:
        """How much DATA may be sent in a frame now."""
        return max(0, min(self.send_window, self.streams[stream].send_window, self._peer_frame))

    def grant(self, stream: int, count: int) -> None:
        self.out += frame(WINDOW, 0, stream, count.to_bytes(4, "big"))
        if stream:
            self.streams[stream].granted += count
        else:
            self.granted += count

    def reset(self, stream: int, code: int = 8) -> None:
        self.out += frame(RST, 0, stream, code.to_bytes(4, "big"))
        self.streams[stream].gone = self.streams[stream].sent_reset = True

    def ping(self, body: bytes) -> None:
        self.out += frame(PING, 0, 0, body)

    def goaway(self, last: int) -> None:
        """GOAWAY without an error: no stream after `last` was worked on."""
        self.out += frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + bytes(4))

    def take(self, most: int | None = None) -> bytes:
        taken = bytes(self.out[:most])
        del self.out[: len(taken)]
        return taken

    # ---- receiving

    def feed(self, data: bytes) -> None:
        self.got += data
        self._buffer += data
        if not self.client and not self._greeted:
            if len(self._buffer) < len(PREFACE):
                return
            if not self._buffer.startswith(PREFACE):
                raise ViolationError("no preface")
            self._buffer, self._greeted = self._buffer[len(PREFACE) :], True
        while len(self._buffer) >= 9:
            length = int.from_bytes(self._buffer[:3], "big")
            if length > self._own_frame:
                raise ViolationError(f"a frame of {length} bytes, {self._own_frame} are allowed")
            if len(self._buffer) < 9 + length:
                return
            kind, flags = self._buffer[3], self._buffer[4]
            stream, payload = int.from_bytes(self._buffer[5:9], "big"), self._buffer[9 : 9 + length]
            self._buffer = self._buffer[9 + length :]
            self._frame(kind, flags, stream, payload)

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self.client and not self._greeted:
            if kind != SETTINGS:
                raise ViolationError("the first frame of a server is SETTINGS")
            self._greeted = True
        if self._block is not None and (kind != CONTINUATION or stream != self._block[0]):
            raise ViolationError(f"frame {kind} of stream {stream} inside a header block")
        if kind == DATA:
            self._data(flags, stream, payload)
        elif kind in (HEADERS, CONTINUATION):
            self._headers(kind, flags, stream, payload)
        elif kind == RST:
            if self.client and stream not in self.streams:
                raise ViolationError("RST_STREAM of an idle stream")
            self._stream(stream).gone = True
            self._stream(stream).resets.append(int.from_bytes(payload, "big"))
        elif kind == SETTINGS:
            self._settings(flags, payload)
        elif kind == PING:
            self._ping(flags, payload)
        elif kind == GOAWAY:
            self.goaways.append((int.from_bytes(payload[:4], "big"), int.from_bytes(payload[4:8], "big")))
        elif kind == WINDOW:
            self._window(stream, int.from_bytes(payload, "big"))

    def _ping(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            self.pings.append(payload)
        else:
            self.out += frame(PING, ACK, 0, payload)

    def _data(self, flags: int, stream: int, payload: bytes) -> None:
        state = self.streams.get(stream)
        if state is None or not state.headers:
            raise ViolationError(f"DATA of stream {stream} before its headers")
        self.granted -= len(payload)
        state.granted -= len(payload)
        if self.granted < 0:
            raise ViolationError(f"{-self.granted} bytes more than the connection's window")
        if state.granted < 0:
            raise ViolationError(f"{-state.granted} bytes more than the window of stream {stream}")
        if state.got_end or (state.gone and not state.sent_reset):
            raise ViolationError(f"DATA of stream {stream}, which has ended")
        state.body += payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
        state.got_end = bool(flags & END_STREAM)

    def _headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS:
            if flags & PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            block = payload[5:] if flags & PRIORITY else payload
            self._block = (stream, flags, block)
        else:
            assert self._block is not None
            self._block = (stream, self._block[1], self._block[2] + payload)
        if not flags & END_HEADERS:
            return
        _, first, block = self._block
        self._block = None
        try:
            headers = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except HPACKError as error:
            raise ViolationError(f"a header block that cannot be decoded: {error}") from error
        if self.client and stream not in self.streams:
            raise ViolationError(f"headers of stream {stream}, which is idle")
        state = self._stream(stream)
        if state.got_end or (state.gone and not state.sent_reset):
            raise ViolationError(f"headers of stream {stream}, which has ended")
        state.headers.append(headers)
        state.got_end = bool(first & END_STREAM)

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            values = self.unacknowledged.pop(0)
            more = values.get(INITIAL, self._own_initial) - self._own_initial
            self._own_initial += more
            for each in self.streams.values():
                each.granted += max(0, more)
            if TABLE in values:
                self._decoder.max_allowed_table_size = values[TABLE]
            return
        for at in range(0, len(payload), 6):
            key, value = int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big")
            if key == TABLE:
                self._tables.append(value)
            elif key == INITIAL:
                for stream in self.streams.values():
                    stream.send_window += value - self._peer_initial
                self._peer_initial = value
            elif key == FRAME:
                self._peer_frame = value
        self.out += frame(SETTINGS, ACK, 0)

    def _window(self, stream: int, count: int) -> None:
        if not count:
            raise ViolationError("WINDOW_UPDATE by 0")
        if stream:
            state = self._stream(stream)
            state.send_window += count
            window = state.send_window
        else:
            self.send_window += count
            window = self.send_window
        if window > MAX_WINDOW:
            raise ViolationError(f"a window of {window}")

    def _stream(self, stream: int) -> Stream:
        if stream not in self.streams:
            self.streams[stream] = Stream(self._peer_initial, self._own_initial)
        return self.streams[stream]


def request(method: str, *more: tuple[bytes, bytes]) -> Headers:
    path = f"/runtime.v1.RuntimeService/{method}".encode()
    first = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"localhost"))
    return (*first, (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more)


def message(payload: bytes, compressed: bool = False) -> bytes:
    return bytes((compressed,)) + len(payload).to_bytes(4, "big") + payload


def frames(data: Iterable[int]) -> list[tuple[int, int, int, bytes]]:
    """Type, flags, stream and payload of whole frames."""
    rest, out = bytes(data), []
    while rest:
        length = int.from_bytes(rest[:3], "big")
        out.append((rest[3], rest[4], int.from_bytes(rest[5:9], "big"), rest[9 : 9 + length]))
        rest = rest[9 + length :]
    return out
