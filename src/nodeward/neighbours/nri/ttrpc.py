"""ttrpc, containerd's small RPC: `be32 length | be32 stream | u8 kind | u8 flags`, then that many bytes of protobuf.

Exists because nothing on PyPI speaks it. Promises: any chunking of the same bytes gives the same messages; a message
over 4 MiB or of an unknown kind is a WireError, and so is an envelope that is no protobuf; at most one message is held
back. After a WireError a decoder stays failed. Must not know what travels in a payload, nor who calls whom.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from nodeward.contracts import ttrpc_pb2
from nodeward.core.errors import WireError
from nodeward.neighbours.formats.protobuf import read

MAX_PAYLOAD_BYTES = 4 << 20
_HEADER = Struct(">IIBB")
HEADER_BYTES = _HEADER.size


class MessageType(IntEnum):
    """What a message is. DATA belongs to streaming calls, which NRI has none of."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3


_KINDS = {kind.value: kind for kind in MessageType}  # asking the enum itself costs as much as all the rest of a header


class Code(IntEnum):
    """The gRPC status codes that Nodeward gives or acts upon."""

    OK = 0
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13


@dataclass(frozen=True, slots=True)
class Message:
    """One ttrpc message. Streams that a client opens are odd and rise."""

    stream: int
    kind: MessageType
    flags: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A call. `timeout_ns` 0: the caller sets no limit."""

    service: str
    method: str
    payload: bytes = b""
    timeout_ns: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """Why a call failed: `code` is one of gRPC's, usually of `Code`."""

    code: int
    message: str = ""


class MessageDecoder:
    """Bytes of one connection to messages, incrementally."""

    __slots__ = ("_buffer", "_failed")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._failed: WireError | None = None

    @property
    def buffered_bytes(self) -> int:
        """What is held of an unfinished message."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes."""
        if self._failed is not None:
            raise self._failed
        buffer = self._buffer
        if not buffer and len(data) >= HEADER_BYTES:  # most often one whole message: no need to gather it
            length, stream, kind, flags = _HEADER.unpack_from(data)
            if length == len(data) - HEADER_BYTES:
                self._check(length, kind)
                return [Message(stream, _KINDS[kind], flags, data[HEADER_BYTES:])]
        buffer += data
        messages: list[Message] = []
        start = 0
        while len(buffer) - start >= HEADER_BYTES:
            length, stream, kind, flags = _HEADER.unpack_from(buffer, start)
            self._check(length, kind)
            end = start + HEADER_BYTES + length
            if end > len(buffer):
                break
            messages.append(Message(stream, _KINDS[kind], flags, bytes(buffer[start + HEADER_BYTES : end])))
            start = end
        del buffer[:start]
        return messages

    def _check(self, length: int, kind: int) -> None:
        if length > MAX_PAYLOAD_BYTES:
            fault = f"message of {length} bytes, at most {MAX_PAYLOAD_BYTES} are read"
        elif kind not in _KINDS:
            fault = f"message of kind {kind}, known are 1 to 3"
        else:
            return
        self._buffer.clear()
        self._failed = WireError("ttrpc", fault)
        raise self._failed


def encode(message: Message) -> bytes:
    """The message's bytes. Over 4 MiB is a WireError: no peer would read it."""
    if len(message.payload) > MAX_PAYLOAD_BYTES:
        raise WireError("ttrpc", f"message of {len(message.payload)} bytes, at most {MAX_PAYLOAD_BYTES} may be sent")
    return _HEADER.pack(len(message.payload), message.stream, message.kind, message.flags) + message.payload


def decode_request(payload: bytes) -> Request:
    """The call in a REQUEST's payload."""
    raw = read("ttrpc", ttrpc_pb2.Request, payload)
    return Request(raw.service, raw.method, raw.payload, raw.timeout_nano)


def encode_request(request: Request) -> bytes:
    """A REQUEST's payload."""
    return ttrpc_pb2.Request(
        service=request.service, method=request.method, payload=request.payload, timeout_nano=request.timeout_ns
    ).SerializeToString()


def decode_response(payload: bytes) -> bytes | Status:
    """The reply in a RESPONSE's payload: its bytes, or why there are none."""
    raw = read("ttrpc", ttrpc_pb2.Response, payload)
    if raw.HasField("status") and raw.status.code != Code.OK:
        return Status(raw.status.code, raw.status.message)
    return raw.payload


def encode_response(reply: bytes | Status) -> bytes:
    """A RESPONSE's payload. Success has no status, so an empty reply is no bytes."""
    if isinstance(reply, Status):
        status = ttrpc_pb2.Status(code=reply.code, message=reply.message)
        return ttrpc_pb2.Response(status=status).SerializeToString()
    return ttrpc_pb2.Response(payload=reply).SerializeToString()
