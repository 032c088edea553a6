"""Any session between two strict ends: windows, padding, settings, resets and verdicts in any order and any pieces.

The ends raise when they see what no peer may send. At the end of each history everything is decided, granted and
answered; then every request that nobody cut off has arrived as it should, and neither window has lost or gained a byte.
Where nothing is held, either end has all bytes of the other and no others; what the relay says of its own where a call
is held, test_relay_held.py has, and tests/component/relay at a socket.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from nodeward.neighbours.cri import book
from nodeward.neighbours.cri.calls import Pass, Refuse, Replace, Verdict
from nodeward.neighbours.cri.flow import FirstWindow, Outgoing, Window
from nodeward.neighbours.cri.turn import LOOK_BYTES, LOOK_LATER_S, LOOK_READS, TURN_BYTES, Turn
from tests.unit.neighbours.cri.between import OK, TRAILERS, Between, HandClock
from tests.unit.neighbours.cri.strict import FRAME, INITIAL, MAX_STREAM, TABLE, message, request

SIZES = st.sampled_from([0, 1, 100, 9_000, 40_000, 90_000])
PADDING = st.sampled_from([-1, -1, 0, 1, 200])
PIECES = st.sampled_from([1, 9, 30, 1_000, 20_000])


@dataclass
class Asked:
    body: bytes
    held: bool
    sent: int = 0
    replaced: bytes | None = None
    answered: bool = False


class Sessions(RuleBasedStateMachine):
    method_held = "HoldCreate"

    def __init__(self) -> None:
        super().__init__()
        self.rig = Between(on_error=None)
        self.asked: dict[int, Asked] = {}
        self.next = 1

    def _stream(self, number: int) -> int:
        return sorted(self.asked)[number % len(self.asked)]

    def _open(self, stream: int) -> bool:
        state = self.rig.client.streams[stream]
        return not (state.sent_end or state.gone or state.got_end)

    @precondition(lambda self: len(self.asked) < 8)
    @rule(held=st.booleans(), size=SIZES, split=st.sampled_from([0, 0, 5]), padding=PADDING, filler=st.integers(0, 9))
    def opens(self, held: bool, size: int, split: int, padding: int, filler: int) -> None:
        method = self.method_held if held else "Version"
        body = message(bytes((self.next % 251,)) * size)
        headers = request(method, (b"x-filler", b"f" * 100 * filler))
        self.rig.client.headers(self.next, headers, split=split, padding=padding, priority=bool(filler & 1))
        self.asked[self.next] = Asked(body, held)
        self.next += 2

    @precondition(lambda self: self.asked)
    @rule(number=st.integers(0, 7), size=st.sampled_from([0, 1, 5, 3_000, 16_384]), padding=PADDING)
    def sends(self, number: int, size: int, padding: int) -> None:
        stream = self._stream(number)
        if self._open(stream):
            self._send(stream, size, padding)

    def _send(self, stream: int, size: int, padding: int = -1) -> None:
        asked = self.asked[stream]
        room = self.rig.client.room(stream) - (padding + 1)
        piece = asked.body[asked.sent : asked.sent + max(0, min(size, room))]
        if room < 0 or (not piece and asked.sent < len(asked.body) and size):
            return
        asked.sent += len(piece)
        ends = asked.sent == len(asked.body) and (size == 0 or stream % 4 == 1)
        self.rig.client.data(stream, piece, end=ends, padding=padding)

    @precondition(lambda self: self.asked)
    @rule(number=st.integers(0, 7), who=st.sampled_from(["client", "runtime"]))
    def resets(self, number: int, who: str) -> None:
        stream = self._stream(number)
        if who == "client" and not self.rig.client.streams[stream].gone:
            self.rig.client.reset(stream)
        elif who == "runtime" and self._known(stream) and not self.rig.runtime.streams[stream].gone:
            self.rig.runtime.reset(stream)

    def _known(self, stream: int) -> bool:
        state = self.rig.runtime.streams.get(stream)
        return state is not None and bool(state.headers)

    @precondition(lambda self: self.rig.judge.asked)
    @rule(number=st.integers(0, 7), kind=st.sampled_from(["pass", "replace", "refuse", "nothing"]), size=SIZES)
    def decides(self, number: int, kind: str, size: int) -> None:
        waiting = sorted(self.rig.judge.asked)
        stream = waiting[number % len(waiting)]
        self._decide(stream, kind, size)

    def _decide(self, stream: int, kind: str, size: int) -> None:
        verdicts: dict[str, Verdict] = {"pass": Pass(), "replace": Replace(b"R" * size), "refuse": Refuse(8, "no")}
        del self.rig.judge.asked[stream]
        if kind == "nothing":
            self.rig.session.holds.undecided(stream, "late")
        else:
            self.rig.session.holds.verdict(stream, verdicts[kind])
        if kind == "replace":
            self.asked[stream].replaced = message(b"R" * size)
        self.rig.flush()

    @precondition(lambda self: len(self.asked) < 8)
    @rule(size=st.sampled_from([0, 100, 9_000]), padding=PADDING)
    def asks(self, size: int, padding: int) -> None:
        stream = self.next
        self.opens(True, size, 0, padding, 0)
        while self._open(stream) and self.rig.client.room(stream) > padding + 1:
            self._send(stream, 16_384, padding)
            if self._open(stream) and self.asked[stream].sent == len(self.asked[stream].body):
                self.rig.client.data(stream, b"", end=True)
        self.rig.settle()

    @precondition(lambda self: self.rig.judge.asked)
    @rule(
        number=st.integers(0, 7), kind=st.sampled_from(["refuse", "refuse", "pass", "replace"]),
        size=st.sampled_from([0, 500, 16_000]), whole=st.booleans(),
    )  # fmt: skip
    def decides_while_an_answer_is_on_its_way(self, number: int, kind: str, size: int, whole: bool) -> None:
        waiting = sorted(self.rig.judge.asked)
        stream = waiting[number % len(waiting)]
        self.answers(sorted(self.asked).index(stream), size, -1, whole)
        self._decide(stream, kind, size)

    @precondition(lambda self: self.asked)
    @rule(number=st.integers(0, 7), size=st.sampled_from([0, 500, 16_000]), padding=PADDING, whole=st.booleans())
    def answers(self, number: int, size: int, padding: int, whole: bool) -> None:
        stream = self._stream(number)
        state = self.rig.runtime.streams.get(stream)
        if state is None or not state.headers or state.gone or state.sent_end:
            return
        if not self.asked[stream].answered:
            self.asked[stream].answered = True
            self.rig.runtime.headers(stream, OK, padding=padding)
        if size + padding + 1 <= self.rig.runtime.room(stream):
            self.rig.runtime.data(stream, message(bytes(size))[:size], padding=padding)
        if whole:
            self.rig.runtime.headers(stream, (*TRAILERS, (b"x", b"y" * size)), end=True, split=size // 2)

    @rule(number=st.integers(0, 8), size=st.sampled_from([1, 70, 5_000, 60_000]), who=st.sampled_from("cr"))
    def grants(self, number: int, size: int, who: str) -> None:
        end = self.rig.client if who == "c" else self.rig.runtime
        stream = 0 if number == 8 or not self.asked else self._stream(number)
        if stream == 0 or (stream in end.streams and not end.streams[stream].gone):
            end.grant(stream, size)

    @rule(
        table=st.sampled_from([0, 60, 4_096, 9_000]), window=st.sampled_from([0, 10, 65_535, 200_000]),
        length=st.sampled_from([16_384, 30_000]), who=st.sampled_from("cr"),
    )  # fmt: skip
    def sets(self, table: int, window: int, length: int, who: str) -> None:
        end = self.rig.client if who == "c" else self.rig.runtime
        if len(end.unacknowledged) < 4:
            end.settings({TABLE: table, INITIAL: window, FRAME: length})

    @rule(most=PIECES, up=st.booleans())
    def carries(self, most: int, up: bool) -> None:
        (self.rig.up if up else self.rig.down)(most)

    @rule()
    def settles(self) -> None:
        self.rig.settle()

    def teardown(self) -> None:
        rig = self.rig
        rig.settle()
        rig.runtime.settings({INITIAL: 65_535})
        for _ in range(12):
            for stream in [one for one in self.asked if self._open(one)]:
                self._send(stream, 16_384)
                if self._open(stream) and self.asked[stream].sent == len(self.asked[stream].body):
                    rig.client.data(stream, b"", end=True)
            rig.settle()
            for stream in tuple(rig.judge.asked):
                self._decide(stream, "pass", 0)
            rig.runtime.grant(0, 200_000)
            for stream, state in rig.runtime.streams.items():
                if not state.gone:
                    rig.runtime.grant(stream, 200_000)
            rig.settle()
        self._check()

    def _check(self) -> None:
        rig = self.rig
        assert rig.session.over == ""
        assert rig.book.counts.lost_sight == 0
        assert rig.client.send_window == rig.runtime.granted
        assert rig.runtime.send_window == rig.client.granted
        assert rig.book.holds.left == book.HELD_BYTES
        for stream, asked in self.asked.items():
            near, far = rig.client.streams[stream], rig.runtime.streams[stream]
            if not (near.gone or far.gone or near.got_end):
                assert far.got_end, f"stream {stream}"
                assert bytes(far.body) == (asked.replaced or asked.body), f"stream {stream}"


class Recorded(Between):
    def __init__(self, enforces: bool) -> None:
        self.sent = {"client": bytearray(), "runtime": bytearray()}
        super().__init__(enforces)

    def up(self, most: int | None = None) -> None:
        self.sent["client"] += self.client.out[:most]
        super().up(most)

    def down(self, most: int | None = None) -> None:
        self.sent["runtime"] += self.runtime.out[:most]
        super().down(most)


class Undecided(Sessions):
    """One connection on which nothing is held, be it that nobody decides or that none of the calls is to be decided."""

    method_held = "Version"

    @initialize(enforces=st.booleans())
    def begins(self, enforces: bool) -> None:
        self.rig = Recorded(enforces)

    @rule(number=st.integers(0, 255))
    def pings(self, number: int) -> None:
        self.rig.client.ping(bytes((number,)) * 8)

    @rule(last=st.sampled_from([0, 1, 5, MAX_STREAM]), who=st.sampled_from("cr"))
    def goes(self, last: int, who: str) -> None:
        """Without ending anything: what this end still sends and takes is for the other one to judge."""
        (self.rig.client if who == "c" else self.rig.runtime).goaway(last)

    def _check(self) -> None:
        rig = self.rig
        assert isinstance(rig, Recorded)
        assert rig.session.over == ""
        assert rig.runtime.got == rig.sent["client"]
        assert rig.client.got == rig.sent["runtime"]


TestSessions, TestUndecided = Sessions.TestCase, Undecided.TestCase
TestSessions.settings = TestUndecided.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    report_multiple_bugs=False,
)


@pytest.mark.parametrize("room", [1, 7, 100])
def test_a_window_is_granted_no_more_than_its_credit(room: int) -> None:
    connection = Window(room)
    outgoing = Outgoing(1, Window(room))
    assert connection.due() == 0
    connection.client -= room
    outgoing.keep(bytes(9 + room), connection)
    assert connection.due(most_credit=3) == min(room, 3)
    assert connection.credit == min(room, 3)


def test_where_bytes_are_kept_a_client_is_granted_as_much_as_if_they_were_not() -> None:
    connection = Window(100)
    connection.client -= 60
    Outgoing(1, Window(100)).keep(bytes(9 + 60), connection)
    assert [connection.due(), connection.credit, connection.due()] == [60, 60, 0]


def test_the_client_uses_a_first_window_at_once_and_the_relay_counts_on_it_once_it_is_acknowledged() -> None:
    """What changes of the client's window, and of what the runtime is sure to take."""
    first = FirstWindow()
    assert first.announced(40) == (40 - 65_535, 40 - 65_535)
    assert first.announced(None) == (0, 0)
    assert first.acknowledged() == (0, 0)
    assert first.announced(70_000) == (70_000 - 40, 0)
    assert first.acknowledged() == (0, 0)
    assert first.acknowledged() == (0, 70_000 - 40)


SEND_NS = 10
"""How long it takes to send something."""


@dataclass
class End:
    name: str
    clock: HandClock
    log: list[str]

    def forward(self, data: bytes) -> None:
        self.clock.now += SEND_NS
        self.log.append(f"{self.name} sends {data[:9].decode()}")

    def look(self, data: bytes, came_ns: int, sent_ns: int) -> None:
        self.log.append(f"{self.name} looks at {data[:9].decode()} of {came_ns}, sent {sent_ns}")


Story = Callable[[Turn, End, End, HandClock], None]


def played(*more: bytes, story: Story = lambda *_: None, later: bool = True) -> list[str]:
    """What two ends of a relay did while the story was told in one turn of the loop, and in the turns after it. `more`
    comes by the first end then, each in a turn of its own. The loop's time stands still meanwhile: what is put off is
    done when all has come."""
    clock, log = HandClock(now=0), list[str]()

    async def told() -> None:
        turn, one, other = Turn(clock, later), End("one", clock, log), End("other", clock, log)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "time", lambda: began)
            story(turn, one, other, clock)
            await asyncio.sleep(0)
            for data in more:
                turn.came(one, data)
                await asyncio.sleep(0)
                log.append("--")
        while sum("looks" in line for line in log) < sum("sends" in line for line in log):
            await asyncio.sleep(LOOK_LATER_S)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(told())
    return log


def test_where_one_connection_is_busy_its_bytes_go_on_at_once_and_are_looked_at_later() -> None:
    assert played(b"a", b"b") == [
        *("one sends a", "--", "one sends b", "--"),
        *("one looks at a of 0, sent 10", "one looks at b of 10, sent 20"),
    ]


def test_where_several_are_all_bytes_of_a_turn_go_on_together() -> None:
    """In the order in which they came; the turn after a crowded one waits for its end from the first byte on."""

    def story(turn: Turn, one: End, other: End, clock: HandClock) -> None:
        for side, data in ((one, b"a"), (other, b"b"), (one, b"c")):
            turn.came(side, data)
            clock.now += 1
        one.log.append("told")

    assert played(b"d", b"e", story=story) == [
        *("one sends a", "told", "other sends b", "one sends c", "one sends d", "--", "one sends e", "--"),
        *("one looks at a of 0, sent 10", "other looks at b of 11, sent 23", "one looks at c of 12, sent 33"),
        *("one looks at d of 33, sent 43", "one looks at e of 43, sent 53"),
    ]


def test_what_is_not_put_off_is_looked_at_at_the_end_of_its_turn() -> None:
    def story(turn: Turn, one: End, other: End, clock: HandClock) -> None:
        turn.came(other, b"a")
        turn.came(one, b"b")

    assert played(b"c", story=story, later=False) == [
        *("other sends a", "one sends b", "other looks at a of 0, sent 10", "one looks at b of 10, sent 20"),
        *("one sends c", "one looks at c of 20, sent 30", "--"),
    ]


@pytest.mark.parametrize(
    ("reads", "size"), [(LOOK_READS, 1), (2, LOOK_BYTES // 2 + 1)], ids=["many reads", "many bytes"]
)
def test_many_are_looked_at_once_they_have_gone_on(reads: int, size: int) -> None:
    """At the end of the turn that brings the last of them."""
    lines = played(*[b"x" * size] * (reads + 1))
    looks = [number for number, line in enumerate(lines) if "looks" in line]
    assert looks[:reads] == list(range(2 * reads - 1, 3 * reads - 1))


def test_what_waits_for_the_end_of_a_turn_is_bounded() -> None:
    def story(turn: Turn, one: End, other: End, clock: HandClock) -> None:
        turn.came(one, b"")
        for _ in range(4):
            turn.came(other, b"x" * (TURN_BYTES // 4))
        assert not [line for line in other.log if "sends x" in line]
        turn.came(other, b"y")
        assert len([line for line in other.log if "sends" in line]) == 6

    assert "other looks at y" in played(story=story)[-1]


def test_a_turn_that_is_ended_early_has_nothing_left_at_its_end() -> None:
    """As it is before the relay says something of its own, or closes."""

    def story(turn: Turn, one: End, other: End, clock: HandClock) -> None:
        turn.came(one, b"a")
        turn.end()
        turn.end()
        one.log.append("ours")

    assert played(story=story) == ["one sends a", "one looks at a of 0, sent 10", "ours"]
