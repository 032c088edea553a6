"""The calls of all relayed connections: who watches and decides them, and the memory of their copies.

Exists so that a session of frames knows one call and not who is interested in it. Promises: watchers are told of each
call in order and once of its end; what one of them raises is counted, logged once and changes nothing; copies of all
calls together stay below `COPY_BYTES`, and a message that finds no room is cut. Must not know frames.
"""

import logging
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from nodeward.host.clock import Clock
from nodeward.neighbours.cri.calls import Call, Decider, Ended, Fate, Interest, Message, Meter, Pass, Verdict, Watcher
from nodeward.neighbours.formats import grpc_messages
from nodeward.neighbours.formats.grpc_messages import MESSAGE_BYTES, PREFIX_BYTES, MessageReader

COPY_BYTES: Final = 64 << 20
"""Memory for messages that watchers wait for, of all calls together."""
HELD_BYTES: Final = 64 << 20
"""Request bytes that are kept for decisions, of all calls together."""

Shown = tuple[Watcher, bool, bool]
"""A watcher of a call, and whether it wants the request and the response."""

_WANTS: Final = {one: (Interest.REQUEST in one, Interest.RESPONSE in one) for one in map(Interest, range(8))}
_NONE, _ALL = Interest.NONE, Interest.ALL
"""To ask an enum for its member, or a table for a flag, costs as much as all the rest of a look-up."""
_log = logging.getLogger(__name__)


class Budget:
    """An amount of memory that many share."""

    __slots__ = ("left", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.left = total

    def take(self, wanted: int) -> int:
        """Takes the wanted bytes, as many as are left; a negative count gives bytes back."""
        granted = min(wanted, self.left)
        self.left -= granted
        return granted


@dataclass(slots=True)
class Counts:
    """Clients, and what went wrong, over all connections."""

    connections: int = 0
    """Clients that were connected to the runtime."""
    faults: int = 0
    """Exceptions of watchers and deciders."""
    lost_sight: int = 0
    """Connections that are relayed without being understood any more."""
    on_error: int = 0
    """Held calls that could not be decided."""
    open: int = 0
    """Those that are connected now."""

    def text(self) -> str:
        """The counts for the log."""
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)


class Tracked:
    """One call under way."""

    __slots__ = (
        "_asked",
        "_book",
        "_said",
        "_watchers",
        "added_ns",
        "call",
        "encoding",
        "endless",
        "fate",
        "over",
        "patience_ns",
        "shows_requests",
        "shows_responses",
        "since_ns",
        "status",
    )

    def __init__(self, book: "CallBook", call: Call, watchers: list[Shown]) -> None:
        self._book = book
        self._watchers = watchers
        self.call = call
        self.endless = False
        """It goes on until somebody ends it: nobody waits for its end."""
        self.encoding = b""
        """How the client compresses what it marks as compressed."""
        self.patience_ns: int | None = None
        """How long the client waits for the answer, counted from the call's headers."""
        self.fate = Fate.ABANDONED if call.held else Fate.PASSED
        self.status: int | None = None
        self.over = False
        """It has ended, and the meter has not been told."""
        self.since_ns = 0
        """Since when something of it waits here; 0 while nothing does."""
        self.added_ns = 0
        """How long it waited here before that."""
        self.shows_requests = self.shows_responses = False
        """Somebody wants to see what the client sends, or the runtime."""
        self._asked: MessageReader | None = None
        self._said: MessageReader | None = None
        """Where a message comes in pieces, or several do in one."""
        for one in tuple(watchers):
            self.shows_requests = self.shows_requests or one[1]
            self.shows_responses = self.shows_responses or one[2]
            try:
                one[0].began(call)
            except Exception:
                self._broken(one)

    def request(self, data: bytes, begin: int, end: int, at_ns: int) -> None:
        """The client sent this much more."""
        if self._asked is None:
            if self._is_whole(data, begin, end):
                self._show_request(_whole(data, begin, end, at_ns))
                return
            self._asked = MessageReader(MESSAGE_BYTES, self._book.copies.take)
        for compressed, pieces, size in self._asked.feed(data, begin, end):
            self._show_request(Message(pieces, size, compressed, at_ns))

    def response(self, data: bytes, begin: int, end: int, at_ns: int) -> None:
        """The runtime answered this much more."""
        if self._said is None:
            if self._is_whole(data, begin, end):
                self._show_response(_whole(data, begin, end, at_ns))
                return
            self._said = MessageReader(MESSAGE_BYTES, self._book.copies.take)
        elif self._said.goes_on(data, begin, end):
            return
        for compressed, pieces, size in self._said.feed(data, begin, end):
            self._show_response(Message(pieces, size, compressed, at_ns))

    def _is_whole(self, data: bytes, begin: int, end: int) -> bool:
        """Whether this is one message, as most are, and there is memory for it."""
        size = end - begin - PREFIX_BYTES
        return (
            0 <= size <= self._book.copies.left
            and int.from_bytes(data[begin + 1 : begin + PREFIX_BYTES], "big") == size
        )

    def _show_request(self, message: Message) -> None:
        watchers = self._watchers
        for one in watchers if len(watchers) == 1 else tuple(watchers):
            try:
                if one[1]:
                    one[0].request(self.call, message)
            except Exception:
                self._broken(one)

    def _show_response(self, message: Message) -> None:
        watchers = self._watchers
        for one in watchers if len(watchers) == 1 else tuple(watchers):
            try:
                if one[2]:
                    one[0].response(self.call, message)
            except Exception:
                self._broken(one)

    def ended(self, status: int | None, text: str, at_ns: int, refused: bool = False) -> None:
        """Nothing more comes."""
        self.status, self.over = status, True
        if not self._watchers:
            return
        if self._asked is not None:
            self._asked.drop()
        if self._said is not None:
            self._said.drop()
        end = Ended(status, text, at_ns, refused)
        watchers, self._watchers = self._watchers, []
        for watcher, _, _ in watchers:
            try:
                watcher.ended(self.call, end)
            except Exception:
                self._book.fault("watcher")

    def _broken(self, one: Shown) -> None:
        self._book.fault("watcher")
        self._watchers.remove(one)


def _whole(data: bytes, begin: int, end: int, at_ns: int) -> Message:
    return Message((data[begin + PREFIX_BYTES : end],), end - begin - PREFIX_BYTES, data[begin] != 0, at_ns)


class Stopwatch:
    """How long calls wait in one session: from when bytes were read to when what comes of them was written.

    Of a call two waits are added up, that of its beginning and that of its end; a held call begins with the last byte
    of its request, and waits for the verdict. What streams in between is not timed, nor what kernel and sockets take.
    The clock is read once for what comes and once for what goes."""

    __slots__ = ("_book", "_clock_ns", "_sent_ns", "_waiting", "now_ns")

    def __init__(self, book: "CallBook") -> None:
        self._book = book
        self._clock_ns = book.clock.now_ns
        self._waiting: list[Tracked] = []
        self._sent_ns = 0
        self.now_ns = 0
        """When the bytes were read that are being looked at."""

    def read(self) -> None:
        """Bytes have come, or a verdict."""
        self.now_ns = self._clock_ns()
        self._sent_ns = 0

    def went_on(self, came_ns: int, sent_ns: int) -> None:
        """Bytes have come and gone on then, before anybody looked at them."""
        self.now_ns, self._sent_ns = came_ns, sent_ns

    def goes_on(self, tracked: Tracked) -> None:
        """Something of the call is about to be written."""
        if not tracked.since_ns:
            tracked.since_ns = self.now_ns
        self._waiting.append(tracked)

    def written(self) -> None:
        """What was to be written has been."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        meter, now_ns = self._book.meter, self._sent_ns or self._clock_ns()
        for tracked in waiting:
            if tracked.since_ns:
                tracked.added_ns += now_ns - tracked.since_ns
                tracked.since_ns = 0
            if tracked.over and meter is not None:
                tracked.over = False
                try:
                    meter.over(tracked.call, tracked.status, tracked.fate, tracked.added_ns)
                except Exception:
                    self._book.fault("meter")


class CallBook:
    """What all sessions of a relay share."""

    def __init__(
        self,
        clock: Clock,
        watchers: Sequence[Watcher] = (),
        decider: Decider | None = None,
        numbers: Iterator[int] | None = None,
        meter: Meter | None = None,
        endless: Container[str] = (),
    ) -> None:
        """`numbers` are for its calls, where several books share them; `endless` are paths of calls that never end by
        themselves."""
        self.clock = clock
        self.troubled_ns: int | None = None
        """When a fault was met last, or a call could not be decided."""
        self.meter = meter
        self.decider = decider
        self.copies = Budget(COPY_BYTES)
        self.holds = Budget(HELD_BYTES)
        self.counts = Counts()
        self._watchers = tuple(watchers)
        self._endless = endless
        self._numbers = numbers if numbers is not None else count(1)
        self._logged = False

    @property
    def watched(self) -> bool:
        """Whether anybody looks into calls."""
        return bool(self._watchers)

    def connection(self) -> int:
        """The number of a new connection."""
        self.counts.connections += 1
        return self.counts.connections

    def begin(self, connection: int, headers: Sequence[tuple[bytes, bytes]], at_ns: int) -> Tracked | None:
        """The call that begins with these headers, or None if it needs no attention."""
        path = ""
        for name, value in headers:
            if name == b":path":
                path = value.decode("latin-1")
        if not path.startswith("/"):
            path = f"/{path}"  # containerd 1.7 serves it, so it must not be a way past the decider
        held = self._holds(path)
        interested = self._interested(path)
        if not held and not interested and self.meter is None:
            return None
        tracked = Tracked(self, Call(next(self._numbers), connection, path, at_ns, held), interested)
        tracked.endless = path in self._endless
        if held:
            named = dict(headers)
            tracked.encoding = named.get(b"grpc-encoding", b"")
            tracked.patience_ns = grpc_messages.timeout_ns(named.get(b"grpc-timeout", b""))
        return tracked

    def unseen(self, connection: int, why: str) -> None:
        """Tells watchers that calls of the connection are not seen from here on."""
        for watcher in self._watchers:
            try:
                watcher.unseen(connection, why)
            except Exception:
                self.fault("watcher")

    def fault(self, who: str) -> None:
        """An exception of somebody's who watches or decides. The first is told whole."""
        self.counts.faults += 1
        self.troubled_ns = self.clock.now_ns()
        if not self._logged:
            self._logged = True
            _log.exception("relay fault who=%s (the first; later ones are only counted)", who)

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """What becomes of a held call without a verdict. Where the decider fails in this too, it passes."""
        self.counts.on_error += 1
        self.troubled_ns = self.clock.now_ns()
        if self.counts.on_error == 1:
            _log.warning("call undecided number=%d why=%r (the first; later ones are only counted)", call.number, why)
        try:
            return self.decider.undecided(call, message, why, ending) if self.decider is not None else Pass()
        except Exception:
            self.fault("decider")
            return Pass()

    def _holds(self, path: str) -> bool:
        if self.decider is None:
            return False
        try:
            return self.decider.holds(path)
        except Exception:
            self.fault("decider")
            return True  # then `decide` fails too, and the call is `undecided`

    def _interested(self, path: str) -> list[Shown]:
        found: list[Shown] = []
        for watcher in self._watchers:
            try:
                interest = watcher.interest(path)
            except Exception:
                self.fault("watcher")
                continue
            if interest is _ALL:
                found.append((watcher, True, True))
            elif interest is not _NONE:
                found.append((watcher, *_WANTS[interest]))
        return found
