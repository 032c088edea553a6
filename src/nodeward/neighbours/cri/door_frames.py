"""What the relay and the node daemon say to each other over the daemon's socket for the relay.

A frame is its length (four bytes, big-endian) and a msgpack array that begins with the frame's name. The relay begins
with Hello, and the daemon answers Welcome; both name their version, and who reads another one believes nothing more.
Then the relay asks (Asked, and Abandoned where nobody waits any more) and tells what passed (Passed); the daemon
answers each question with Said, in any order. The daemon asks the runtime by the relay (Wanted), which answers Given.
Pure.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from nodeward.core.errors import WireError
from nodeward.neighbours.formats.grpc_messages import MESSAGE_BYTES

VERSION: Final = 1
SOCKET: Final = "relay-door.sock"
"""In the settings' `run_dir`."""
MOST_WANTED: Final = 32
"""Calls of the daemon's own that one relay makes at a time."""
MOST_BYTES: Final = 2 * MESSAGE_BYTES + (64 << 10)
"""Of one frame: a call's request and its answer."""
UNDECIDED: Final = -1
_LENGTH: Final = 4
_WHAT: Final = "relay door"


class Hello(msgspec.Struct, tag="hello", array_like=True, frozen=True):
    """The relay's first frame: who it is, the runtime behind it, and which features its settings want decided."""

    version: int
    pid: int
    listen: str
    runtime: str
    wants: tuple[str, ...] = ()


class Welcome(msgspec.Struct, tag="welcome", array_like=True, frozen=True):
    """The daemon's first frame; `why` it does not decide for this relay, empty where it does."""

    version: int
    pid: int
    why: str = ""


class Asked(msgspec.Struct, tag="asked", array_like=True, frozen=True):
    """A held call: its path and its message. The relay waits for so long; `number` is the call's."""

    number: int
    path: str
    message: bytes
    within_ms: int


class Abandoned(msgspec.Struct, tag="abandoned", array_like=True, frozen=True):
    """Nobody waits for this answer any more."""

    number: int


class Passed(msgspec.Struct, tag="passed", array_like=True, frozen=True):
    """A call has ended. `request` is what the client sent. `ok`: the runtime has done it. `decided`: it went on as the
    daemon had said. `cut`: the messages were too long to be told, and are empty."""

    number: int
    path: str
    request: bytes
    answer: bytes
    ok: bool
    decided: bool
    cut: bool = False


class Said(msgspec.Struct, tag="said", array_like=True, frozen=True):
    """The answer to Asked. `status` is 0 where the call goes on, with `message` in the place of the client's if there
    is one; gRPC's status where it is refused, with `text`; UNDECIDED where the daemon could not decide, and `text` says
    why."""

    number: int
    status: int
    text: str = ""
    message: bytes | None = None


class Wanted(msgspec.Struct, tag="wanted", array_like=True, frozen=True):
    """A call of the daemon's own at the runtime."""

    number: int
    path: str
    request: bytes
    within_ms: int


class Given(msgspec.Struct, tag="given", array_like=True, frozen=True):
    """The runtime's answer to Wanted; `status` is gRPC's, below 0 where there is none."""

    number: int
    status: int
    text: str
    answer: bytes


class DumpRules(msgspec.Struct, tag="dump-rules", array_like=True, frozen=True):
    """What the relay's dump has from now on, by a configuration that an agent pushed to the daemon."""

    rules: str


Frame = Hello | Welcome | Asked | Abandoned | Passed | Said | Wanted | Given | DumpRules
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """The frame's bytes."""
    body = _encoder.encode(frame)
    return len(body).to_bytes(_LENGTH, "big") + body


class FrameReader:
    """Frames out of bytes that come in pieces."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now. WireError for a longer frame than there is, and for what is none."""
        self._kept += data
        while len(self._kept) >= _LENGTH:
            size = int.from_bytes(self._kept[:_LENGTH], "big")
            if size > MOST_BYTES:
                raise WireError(_WHAT, f"a frame of {size} bytes, of {MOST_BYTES} at most")
            if len(self._kept) < _LENGTH + size:
                return
            body = bytes(self._kept[_LENGTH : _LENGTH + size])
            del self._kept[: _LENGTH + size]
            try:
                frame = _decoder.decode(body)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                raise WireError(_WHAT, f"a frame of {size} bytes is none of ours: {error}") from error
            yield frame


def other_version(frame: Hello | Welcome) -> str:
    """Why nothing more of this peer is believed; empty where it speaks our version."""
    if frame.version == VERSION:
        return ""
    return f"it speaks version {frame.version} of the relay's questions and this process {VERSION}: update the older"
