"""What is said to Intel's Quote Generation Service (QGS) for TDX, on its unix socket: one request that does no harm.

A message is its length (4 bytes, the highest first), then a header of 16 bytes (the lowest first): major and minor
version, type, size of header and body, error code (Intel's DCAP: qgs_msg_lib, message version 1.1, and qgsd).

Sent is GET_PLATFORM_INFO (type 4), which has no body: docs/keys.md says why that does no harm. The service looks up its
quoting enclave's versions, as for each quote, so an answer without an error says that it can work. What the answer
tells of the platform is checked for its form and not kept, since it identifies the machine. Must not do I/O.
"""

import struct

from nodeward.core.wire_errors import WireError

_LENGTH = struct.Struct(">I")
_HEADER = struct.Struct("<HHIII")
_PLATFORM = struct.Struct("<HHII")
MAJOR, MINOR = 1, 1
GET_PLATFORM_INFO_REQ, GET_PLATFORM_INFO_RESP = 4, 5
LENGTH_BYTES = _LENGTH.size
MAX_BYTES = 4096
"""The answer has some 50."""
_FORMAT = "QGS message"


def request() -> bytes:
    """The whole request, length and header. It is sent whole: the server takes a piece of it for a raw report."""
    return _LENGTH.pack(_HEADER.size) + _HEADER.pack(MAJOR, MINOR, GET_PLATFORM_INFO_REQ, _HEADER.size, 0)


def length(data: bytes) -> int:
    """How many bytes follow the length; WireError where no answer is that long, or that short."""
    (found,) = _LENGTH.unpack(data)
    if not _HEADER.size <= found <= MAX_BYTES:
        raise WireError(_FORMAT, f"of {found} bytes: {_HEADER.size} to {MAX_BYTES} were expected")
    return int(found)


def error_of(data: bytes) -> int:
    """The error code of an answer, 0 where the service can work; WireError for what is no answer to the request."""
    if len(data) < _HEADER.size:
        raise WireError(_FORMAT, f"of {len(data)} bytes has no header")
    major, minor, kind, size, error = _HEADER.unpack_from(data)
    if major != MAJOR:
        raise WireError(_FORMAT, f"of version {major}.{minor}: {MAJOR}.{MINOR} was asked for")
    if kind != GET_PLATFORM_INFO_RESP:
        raise WireError(_FORMAT, f"of type {kind}: {GET_PLATFORM_INFO_RESP} was expected")
    if size != len(data):
        raise WireError(_FORMAT, f"of {len(data)} bytes says that it has {size}")
    if not error:
        _check_body(data[_HEADER.size :])
    return int(error)


def _check_body(body: bytes) -> None:
    if len(body) < _PLATFORM.size:
        raise WireError(_FORMAT, "without an error has no platform")
    *_, id_size, svn_size = _PLATFORM.unpack_from(body)
    if _PLATFORM.size + id_size + svn_size != len(body):
        raise WireError(_FORMAT, "has parts that are not as long as it says")


def answer(error: int = 0, platform: bytes = bytes(16), svn: bytes = bytes(16)) -> bytes:
    """An answer with its length, as the double sends it: with a platform's body where there is no error."""
    parts = b"" if error else platform + svn
    sizes = (0, 0) if error else (len(platform), len(svn))
    body = _PLATFORM.pack(0, 0, *sizes) + parts
    size = _HEADER.size + len(body)
    return _LENGTH.pack(size) + _HEADER.pack(MAJOR, MINOR, GET_PLATFORM_INFO_RESP, size, error) + body
