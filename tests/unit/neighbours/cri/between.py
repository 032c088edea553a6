"""A relay's session between two strict ends, with a clock, a watcher and a decider that the test holds in its hand."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

from nodeward.neighbours.cri.book import CallBook
from nodeward.neighbours.cri.calls import Call, Ended, Fate, Interest, Message, Pass, Refuse, Verdict
from nodeward.neighbours.cri.session import RelayedConnection
from tests.unit.neighbours.cri.strict import StrictEnd, message, request

OK = ((b":status", b"200"), (b"content-type", b"application/grpc"))
TRAILERS = ((b"grpc-status", b"0"), (b"grpc-message", b""))
BUSY = Refuse(8, "pod default/web: no EPC left")


@dataclass
class HandClock:
    now: int = 1_000_000_000

    def now_ns(self) -> int:
        return self.now

    def wall_ns(self) -> int:
        return self.now

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


@dataclass
class Recorder:
    wants: Interest = Interest.ALL
    broken: bool = False
    """Raises at the first request."""
    calls: list[Call] = field(default_factory=list)
    told: list[tuple[str, int, object]] = field(default_factory=list)

    def interest(self, path: str) -> Interest:
        return self.wants

    def began(self, call: Call) -> None:
        self.calls.append(call)
        self.told.append(("began", call.number, call.path.rpartition("/")[2]))

    def request(self, call: Call, message: Message) -> None:
        if self.broken:
            raise ZeroDivisionError
        self.told.append(("request", call.number, message))

    def response(self, call: Call, message: Message) -> None:
        self.told.append(("response", call.number, message))

    def ended(self, call: Call, end: Ended) -> None:
        self.told.append(("ended", call.number, end))

    def unseen(self, connection: int, why: str) -> None:
        self.told.append(("unseen", connection, why))

    def messages(self, kind: str) -> list[Message]:
        return [item for said, _, item in self.told if said == kind and isinstance(item, Message)]

    def ends(self) -> list[Ended]:
        return [item for said, _, item in self.told if said == "ended" and isinstance(item, Ended)]


@dataclass
class Judge:
    """Holds methods that begin with `Hold`; answers at once by `at_once`, or waits for the test."""

    at_once: Callable[[Call, bytes], Verdict | None] = lambda call, message: None
    on_error: Refuse | None = None
    """The answer to calls that are not decided; None lets them pass."""
    asked: dict[int, tuple[Call, bytes, int]] = field(default_factory=dict)
    abandoned: list[int] = field(default_factory=list)
    expected: dict[int, int] = field(default_factory=dict)
    """For how long each held request may go on."""

    def holds(self, path: str) -> bool:
        return "/Hold" in path

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict:
        raise NotImplementedError("the session asks its owner")

    def expect(self, stream: int, within_ns: int) -> None:
        self.expected[stream] = within_ns

    def ask(self, stream: int, call: Call, message: bytes, within_ns: int) -> Verdict | None:
        self.asked[stream] = (call, message, within_ns)
        return self.at_once(call, message)

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        by = self.on_error
        return Pass() if by is None else Refuse(14 if ending else by.status, f"{by.text}: {why}")

    def abandon(self, stream: int) -> None:
        self.abandoned.append(stream)


@dataclass
class Tally:
    """A meter that keeps what it is told: how each call ended, what became of it, how long it waited here."""

    over_: list[tuple[int | None, Fate, int]] = field(default_factory=list)
    broken: bool = False

    def over(self, call: Call, status: int | None, fate: Fate, added_ns: int) -> None:
        self.over_.append((status, fate, added_ns))
        if self.broken:
            raise ZeroDivisionError


class Between:
    """A session, with both ends connected. `enforces` says whether there is a decider at all. What the relay says is
    written `write_ns` after it was read."""

    write_ns = 0

    def __init__(self, enforces: bool = True, on_error: Refuse | None = None, greet: bool = True) -> None:
        self.clock, self.watcher, self.judge, self.tally = HandClock(), Recorder(), Judge(), Tally()
        decider = self.judge if enforces else None
        self.judge.on_error = on_error
        self.book = CallBook(self.clock, (self.watcher,), decider, meter=self.tally)
        self.session = RelayedConnection(self.book, self.judge, self.book.connection())
        if greet:
            self.settle()

    @functools.cached_property
    def client(self) -> StrictEnd:
        return StrictEnd(client=True)

    @functools.cached_property
    def runtime(self) -> StrictEnd:
        return StrictEnd(client=False)

    def up(self, most: int | None = None) -> None:
        """Carries bytes of the client to the relay, and what it says to both ends."""
        if data := self.client.take(most):
            self.give(self.client, data)
        self.flush()

    def down(self, most: int | None = None) -> None:
        if data := self.runtime.take(most):
            self.give(self.runtime, data)
        self.flush()

    def give(self, end: StrictEnd, data: bytes, heard: bool = True) -> None:
        """Gives the session bytes of an end. Where it does not decide, the other one has `heard` them before."""
        session, came_ns = self.session, self.clock.now
        if session.decides:
            (session.from_client if end.client else session.from_runtime)(data)
            return
        self.clock.now += self.write_ns
        if heard:
            (self.runtime if end.client else self.client).feed(data)
        (session.client_sent if end.client else session.runtime_sent)(data, came_ns, self.clock.now)

    def flush(self) -> None:
        self.clock.now += self.write_ns
        self.session.watch.written()
        for out, end in ((self.session.runtime_out, self.runtime), (self.session.client_out, self.client)):
            data = b"".join(out)
            out.clear()
            if data:
                end.feed(data)

    def settle(self) -> None:
        while self.client.out or self.runtime.out:
            self.up()
            self.down()

    def verdict(self, stream: int, verdict: Verdict) -> None:
        self.session.holds.verdict(stream, verdict)
        self.settle_after()

    def settle_after(self) -> None:
        """Carries what is to be said after something that came from neither end."""
        self.flush()
        self.settle()


def ask(rig: Between, stream: int, method: str, body: bytes = b"ask", *more: tuple[bytes, bytes]) -> None:
    rig.client.headers(stream, request(method, *more))
    rig.client.data(stream, message(body), end=True)
    rig.settle()


def answer(rig: Between, stream: int, body: bytes = b"said") -> None:
    rig.runtime.headers(stream, OK)
    rig.runtime.data(stream, message(body))
    rig.runtime.headers(stream, TRAILERS, end=True)
    rig.settle()


def status(rig: Between, stream: int) -> tuple[bytes, bytes]:
    named = dict(rig.client.streams[stream].headers[-1])
    return named[b"grpc-status"], named[b"grpc-message"]


def after(rig: Between) -> None:
    for stream in range(1001, 1201, 2):
        ask(rig, stream, "Version", b"v", (b"x-number", str(stream).encode()))
        answer(rig, stream)
        assert bytes(rig.client.streams[stream].body) == message(b"said")
        assert status(rig, stream) == (b"0", b"")
