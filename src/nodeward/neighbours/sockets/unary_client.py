"""One unary gRPC call of our own to a runtime, on a connection of its own and on the relay's frame code.

Exists because the relay imports no gRPC library and has to ask the runtime what there is when it begins. Promises: ends
within its time, takes no more than `MESSAGE_BYTES`, believes nothing that is no HTTP/2, and never shares a connection
with a client's calls. Must not know what is asked. For small requests: there is no waiting for windows.
"""

import asyncio
from typing import Final

from nodeward.core.errors import NodewardError, WireError
from nodeward.neighbours.formats import grpc_messages
from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.grpc_messages import MESSAGE_BYTES, MessageReader, Pieces
from nodeward.neighbours.formats.header_blocks import MAX_BLOCK_BYTES, ShadowDecoder, encode_literals

CANCELLED, DEADLINE_EXCEEDED, UNIMPLEMENTED, UNAVAILABLE = 1, 4, 12, 14
NO_STATUS: Final = -1
_STARTING: Final = "server is not initialized yet"
"""What containerd answers between its start and the end of its recovery, with status UNKNOWN."""
_STREAM: Final = 1
_WINDOW: Final = 2 * MESSAGE_BYTES
"""Bytes of DATA that the runtime may send in all, padding among them: nothing is granted later."""
_READ_BYTES: Final = 65_536
_FORMAT: Final = "grpc"


class CallFailedError(NodewardError):
    """The runtime answered another status than OK (`status`), or none (`NO_STATUS`); the text is its message."""

    def __init__(self, path: str, status: int, text: str) -> None:
        super().__init__(f"{path}: status {status}: {text}" if status >= 0 else f"{path}: {text}")
        self.status, self.text = status, text
        self.is_absent = status in (NO_STATUS, CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE) or _STARTING in text
        """The runtime is not there, or not ready: the answer says nothing of what was asked."""


async def call(socket: str, path: str, request: bytes, within_s: float) -> bytes:
    """The answer. OSError, TimeoutError, CallFailedError or WireError where there is none."""
    async with asyncio.timeout(within_s):
        reader, writer = await asyncio.open_unix_connection(socket)
        try:
            exchange = Exchange(path, request, within_s)
            writer.write(exchange.begin())
            while not exchange.over:
                data = await reader.read(_READ_BYTES)
                if not data:
                    raise CallFailedError(path, NO_STATUS, "the runtime closed the connection")
                writer.write(exchange.feed(data))
                await writer.drain()
            return exchange.answer()
        finally:
            writer.close()


class Exchange:
    """The bytes of such a call, without its connection."""

    def __init__(self, path: str, request: bytes, within_s: float) -> None:
        if len(request) + grpc_messages.PREFIX_BYTES > h2.DEFAULT_WINDOW:
            raise ValueError(f"a request of {len(request)} bytes is more than every server has room for at once")
        self._path, self._request, self._within_s = path, request, within_s
        self._frames, self._blocks, self._decoder = (
            h2.FrameReader(False),
            h2.BlockReader(MAX_BLOCK_BYTES),
            ShadowDecoder(),
        )
        self._reader = MessageReader(MESSAGE_BYTES, lambda wanted: wanted)
        self._messages: list[Pieces] = []
        self._headers: dict[bytes, bytes] = {}
        self._received = 0
        self._ended = ""
        self.over = False
        """Nothing more comes of it."""

    def begin(self) -> bytes:
        """What the client says."""
        headers = (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", self._path.encode()),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            (b"grpc-timeout", b"%dm" % max(1, int(self._within_s * 1000))),
        )
        message, most = grpc_messages.encode_message(self._request), h2.DEFAULT_FRAME_BYTES
        pieces = [message[at : at + most] for at in range(0, len(message), most)]
        return b"".join(
            (
                h2.PREFACE,
                h2.encode_settings({h2.SETTING_INITIAL_WINDOW_SIZE: _WINDOW}),
                h2.encode_window_update(0, _WINDOW - h2.DEFAULT_WINDOW),
                h2.encode_headers(_STREAM, encode_literals(headers), 0),
                *(h2.encode(h2.DATA, 0, _STREAM, piece) for piece in pieces[:-1]),
                h2.encode(h2.DATA, h2.END_STREAM, _STREAM, pieces[-1]),
            )
        )

    def feed(self, data: bytes) -> bytes:
        """Takes the runtime's bytes; what has to be said to them."""
        out = []
        data, _, frames = self._frames.feed(data)
        for frame in frames:
            begin, end, kind, flags, stream = frame
            if self._blocks.open and kind != h2.CONTINUATION:
                self._blocks.interrupted(frame)
            if kind in (h2.HEADERS, h2.CONTINUATION):
                self._block(data, frame)
            elif kind == h2.DATA and stream == _STREAM:
                self._data(data, frame)
            elif kind == h2.SETTINGS and not flags & h2.ACK:
                out.append(h2.encode(h2.SETTINGS, h2.ACK, 0))
            elif kind == h2.PING and not flags & h2.ACK:
                out.append(h2.encode(h2.PING, h2.ACK, 0, data[begin + h2.HEADER_BYTES : end]))
            elif kind == h2.RST_STREAM and stream == _STREAM:
                self._end(f"the runtime reset the call (error {h2.reset_code(data, frame)})")
            elif kind == h2.GOAWAY and h2.last_stream(data, frame) < _STREAM:
                self._end("the runtime takes no more calls")
        return b"".join(out)

    def answer(self) -> bytes:
        """The message, once it is over."""
        said = self._headers.get(b"grpc-status", b"")
        if not said.isdigit() or len(said) > 2:
            why = self._ended or f"no gRPC status; HTTP status {self._headers.get(b':status', b'').decode('latin-1')}"
            raise CallFailedError(self._path, NO_STATUS, why)
        if int(said):
            text = grpc_messages.decode_text(self._headers.get(b"grpc-message", b""))
            raise CallFailedError(self._path, int(said), text)
        if len(self._messages) != 1 or self._reader.unfinished:
            raise WireError(_FORMAT, f"{self._path}: {len(self._messages)} messages in the answer, not one whole one")
        compressed, pieces, size = self._messages[0]
        payload = b"".join(pieces)
        if compressed or len(payload) < size:
            raise WireError(_FORMAT, f"{self._path}: an answer of {size} bytes, compressed or longer than is read")
        return payload

    def _block(self, data: bytes, frame: h2.Frame) -> None:
        taken = self._blocks.take(data, frame)
        if taken is None:
            return
        flags, block, _ = taken
        headers = self._decoder.decode(block)
        if frame[4] == _STREAM:
            self._headers.update(headers)
            if flags & h2.END_STREAM:
                self._end("")

    def _data(self, data: bytes, frame: h2.Frame) -> None:
        self._received += frame[1] - frame[0] - h2.HEADER_BYTES
        if self._received > _WINDOW:
            raise WireError("http2", f"more than the {_WINDOW} bytes of DATA that were granted")
        first, last = h2.content(data, frame)
        self._messages += self._reader.feed(data[first:last])
        if len(self._messages) > 1:
            raise WireError(_FORMAT, f"{self._path}: more than one message in the answer")
        if frame[3] & h2.END_STREAM:
            self._end("")

    def _end(self, why: str) -> None:
        self.over = True
        self._ended = self._ended or why
