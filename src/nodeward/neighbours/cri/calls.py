"""The values that observers and deciders of relayed calls see.

By it the dump, the counts and the features that decide know calls and messages, and neither frames nor sockets.
Promises: what a watcher is given is a copy, and nothing that it does, raises or forgets changes what is relayed. Must
not know a CRI message: payloads are bytes here.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import Protocol

from nodeward.core.errors import NodewardError


class Interest(Flag):
    """What somebody wants to see of a method's calls. What nobody wants is not copied."""

    NONE = 0
    CALL = auto()
    """That it began and how it ended."""
    REQUEST = auto()
    """The messages that the client sent, too."""
    RESPONSE = auto()
    """The messages that the runtime answered, too; of a streaming call each one, when it passes."""
    ALL = CALL | REQUEST | RESPONSE


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `number` rises with each call of this process; `connection` is the number of the client's connection.

    `path` is as the client wrote it, for example `/runtime.v1.RuntimeService/Version`; only a first slash that lacks is
    there, since older runtimes serve such calls all the same. Times are of the relay's clock (`Clock.now_ns`).
    A held call waits for a decision before the runtime gets its message."""

    number: int
    connection: int
    path: str
    began_ns: int
    held: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One gRPC message: the payload without its five bytes of prefix, still compressed where the sender did so.

    It is in the pieces in which it came, for who copies it at once and elsewhere; nobody else keeps these, since much
    more may lie in memory for them. `size_bytes` is its whole size; a payload that is shorter was cut for want of
    memory, and is the message's head."""

    pieces: tuple[bytes | memoryview, ...]
    size_bytes: int
    compressed: bool
    at_ns: int

    @property
    def payload(self) -> bytes:
        """The pieces as one."""
        return b"".join(self.pieces)

    @property
    def cut(self) -> bool:
        """Whether bytes are missing."""
        return sum(map(len, self.pieces)) < self.size_bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended. `status` is gRPC's, and `text` its message.

    None is a call that ended without one: the client or the runtime reset it or went, or the relay can no longer follow
    the connection; then `text` says which."""

    status: int | None
    text: str
    at_ns: int
    refused: bool = False
    """Nodeward answered, not the runtime."""


class Watcher(Protocol):
    """Sees calls pass. Called in the relay's loop while the bytes wait, so it does little and never blocks; what it
    raises is counted and ends the watching of that call."""

    def interest(self, path: str) -> Interest:
        """What to show of this method's calls. Asked once for each call; should be a look-up."""

    def began(self, call: Call) -> None:
        """The call's headers have passed."""

    def request(self, call: Call, message: Message) -> None:
        """The client has sent a message whole: of a held call what the client sent, not what replaced it."""

    def response(self, call: Call, message: Message) -> None:
        """The runtime has answered a message whole."""

    def ended(self, call: Call, end: Ended) -> None:
        """Nothing more comes of this call. Told once for each call that began."""

    def unseen(self, connection: int, why: str) -> None:
        """This connection cannot be followed any more: its calls that were under way have `ended`, and those that come
        go on and are told to nobody."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The request goes on as it came, byte for byte."""


@dataclass(frozen=True, slots=True)
class Replace:
    """The request goes on with another message (uncompressed, without its prefix)."""

    message: bytes


@dataclass(frozen=True, slots=True)
class Refuse:
    """The client is answered this gRPC status and text, and the runtime never gets the message."""

    status: int
    text: str


Verdict = Pass | Replace | Refuse


class UndecidedError(NodewardError):
    """Nobody can decide the call now; the text says why."""


class Fate(StrEnum):
    """What Nodeward did with a call."""

    PASSED = "passed"
    """Nobody was to decide it."""
    ALLOWED = "allowed"
    """It was held, and went on as it came."""
    CHANGED = "changed"
    """It was held, and went on with another message."""
    REFUSED = "refused"
    """It was held, and Nodeward answered it."""
    UNDECIDED = "undecided"
    """It was held, and went on as it came since it could not be decided (`on_error`)."""
    ABANDONED = "abandoned"
    """It was held, and its caller or the runtime went before the verdict."""


class Meter(Protocol):
    """Counts calls. Called once for each, when the last bytes of it have gone on."""

    def over(self, call: Call, status: int | None, fate: Fate, added_ns: int) -> None:
        """A call has ended, with gRPC's status or without one. `added_ns` is how long it waited in this process."""


class Decides(Protocol):
    """Decides calls before the runtime gets them."""

    def holds(self, path: str) -> bool:
        """Whether calls of this method are to be decided. Asked for each call; should be a look-up."""

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        """The verdict on an uncompressed message, at once or later. Later than `within_ns`, or with an exception, the
        call is undecided; the awaitable is cancelled then, and where the caller or the runtime goes."""


class Decider(Decides, Protocol):
    """The same, and what becomes of those that could not be decided."""

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """The verdict for a call that could not be decided. `message` is None where it could not be read either;
        `ending`: the relay ends, and another one may decide it."""
