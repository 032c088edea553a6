"""The two ends of a held call: the message that is decided, and the answer if it is refused.

Promises: exactly one whole message comes out, uncompressed and bounded, or a WireError; an answer that every gRPC
client reads, in one frame, and that leaves the client's header table alone. Must not know when either is called for.
"""

from collections import deque
from typing import Final, Protocol

from nodeward.core.errors import NodewardError, WireError
from nodeward.neighbours.cri.book import Tracked
from nodeward.neighbours.cri.calls import Call, Refuse, Verdict
from nodeward.neighbours.cri.flow import Outgoing
from nodeward.neighbours.formats import grpc_messages
from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.grpc_messages import MESSAGE_BYTES
from nodeward.neighbours.formats.header_blocks import encode_literals

HOLD_NS: Final = 5_000_000_000
"""The longest that a call is held, from its beginning."""
RESERVE_NS: Final = 200_000_000
"""What a held call leaves of the client's patience for the runtime."""
MAX_TEXT: Final = 2048
"""Bytes of a refusal's text, encoded: well below the 8 KiB of headers that every client takes."""


class Owner(Protocol):
    """Who brings the session its verdicts, and knows the time."""

    def expect(self, stream: int, within_ns: int) -> None:
        """A held request has begun. `Holds.late` is to be called after so long, unless it is asked or abandoned."""

    def ask(self, stream: int, call: Call, message: bytes, within_ns: int) -> Verdict | None:
        """The verdict, or None if it comes later by `RelayedConnection.verdict`."""

    def abandon(self, stream: int) -> None:
        """Ends the wait for a verdict."""


def message_of(keeping: Outgoing, encoding: bytes) -> bytes:
    """The one message of a held request, uncompressed; WireError where there is none, or more, or it cannot be read."""
    pieces = deque(_content(frame, keeping.stream) for frame in keeping.frames)
    size, prefix = sum(map(len, pieces)) - grpc_messages.PREFIX_BYTES, bytearray()
    while pieces and (missing := grpc_messages.PREFIX_BYTES - len(prefix)):
        prefix += pieces[0][:missing]
        pieces[0] = pieces[0][missing:]
        if not pieces[0]:
            pieces.popleft()
    # looked at first: of what cannot be read, which may be all that can be held, no second one is made
    if size < 0 or int.from_bytes(prefix[1:], "big") != size:
        raise WireError("grpc", "the request is not exactly one message")
    if prefix[0] and encoding != b"gzip":
        raise WireError("grpc", f"the request is compressed by {encoding.decode('latin-1') or 'nothing named'}")
    message = b"".join(pieces)
    return grpc_messages.gunzip(memoryview(message), MESSAGE_BYTES) if prefix[0] else message


def _content(frame: bytes, stream: int) -> memoryview:
    """What a DATA frame that is kept says, without its padding."""
    first, last = h2.content(frame, (0, len(frame), h2.DATA, frame[4], stream))
    return memoryview(frame)[first:last]


def message_if_any(keeping: Outgoing, encoding: bytes) -> bytes | None:
    """The same, also where the client has not said yet that this is all; None where it is not whole, or cannot be
    read."""
    try:
        return message_of(keeping, encoding)
    except WireError:
        return None


def failed(error: BaseException) -> str:
    """The reason for a missing verdict whose decider raised this. Only our own errors are fit to be shown."""
    what = str(error) if isinstance(error, NodewardError) else type(error).__name__
    return f"the decision failed ({what}), see the relay's log"


def hold_ns(tracked: Tracked, now_ns: int) -> int:
    """How long the call may be held from now on: no longer than its client waits for the runtime too."""
    patience_ns = HOLD_NS if tracked.patience_ns is None else min(HOLD_NS, tracked.patience_ns - RESERVE_NS)
    return patience_ns - (now_ns - tracked.call.began_ns)


def refusal(stream: int, verdict: Refuse, prefix: bytes) -> bytes:
    """The frame that answers a call with a status and nothing else (gRPC's trailers-only); the block begins with
    `prefix`."""
    text = grpc_messages.encode_text(verdict.text)
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT].rstrip(b"%") + b"..."
    block = encode_literals(
        (
            (b":status", b"200"),
            (b"content-type", b"application/grpc"),
            (b"grpc-status", str(verdict.status).encode()),
            (b"grpc-message", text),
        )
    )
    return h2.encode_headers(stream, prefix + block, h2.END_STREAM)
