"""What passes undecided: when it goes on, and when it is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from nodeward.transport.relay_turn import LOOK_BYTES, LOOK_LATER_S, LOOK_READS, TURN_BYTES, Turn
from tests.unit.transport.between import HandClock

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


Story = Callable[[Turn, End, End, HandClock], list[bytes]]


def played(story: Story, later: bool = True) -> list[str]:
    """What two ends of a relay did while the story was told, in the turns of the loop after it, and then. The bytes
    that it gives back come by the first end, each in a turn of its own."""
    clock, log = HandClock(), list[str]()
    clock.now = 0

    async def told() -> None:
        turn, one, other = Turn(clock, later), End("one", clock, log), End("other", clock, log)
        more = story(turn, one, other, clock)
        await asyncio.sleep(0)
        for data in more:
            turn.came(one, data)
            await asyncio.sleep(0)
            log.append("--")
        while sum("looks" in line for line in log) < sum("sends" in line for line in log):
            await asyncio.sleep(LOOK_LATER_S)

    asyncio.run(told())
    return log


def test_where_one_connection_is_busy_its_bytes_go_on_at_once_and_are_looked_at_later() -> None:
    def story(turn: Turn, one: End, other: End, clock: HandClock) -> list[bytes]:
        return [b"a", b"b"]

    assert played(story) == [
        *("one sends a", "--", "one sends b", "--"),
        *("one looks at a of 0, sent 10", "one looks at b of 10, sent 20"),
    ]


def test_where_several_are_all_bytes_of_a_turn_go_on_together() -> None:
    """In the order in which they came; the turn after a crowded one waits for its end from the first byte on."""

    def story(turn: Turn, one: End, other: End, clock: HandClock) -> list[bytes]:
        for side, data in ((one, b"a"), (other, b"b"), (one, b"c")):
            turn.came(side, data)
            clock.now += 1
        one.log.append("told")
        return [b"d", b"e"]

    assert played(story) == [
        *("one sends a", "told", "other sends b", "one sends c", "one sends d", "--", "one sends e", "--"),
        *("one looks at a of 0, sent 10", "other looks at b of 11, sent 23", "one looks at c of 12, sent 33"),
        *("one looks at d of 33, sent 43", "one looks at e of 43, sent 53"),
    ]


def test_what_is_not_put_off_is_looked_at_at_the_end_of_its_turn() -> None:
    def story(turn: Turn, one: End, other: End, clock: HandClock) -> list[bytes]:
        turn.came(other, b"a")
        turn.came(one, b"b")
        return [b"c"]

    assert played(story, later=False) == [
        *("other sends a", "one sends b", "other looks at a of 0, sent 10", "one looks at b of 10, sent 20"),
        *("one sends c", "one looks at c of 20, sent 30", "--"),
    ]


@pytest.mark.parametrize(
    ("reads", "size"), [(LOOK_READS, 1), (2, LOOK_BYTES // 2 + 1)], ids=["many reads", "many bytes"]
)
def test_many_are_looked_at_once_they_have_gone_on(reads: int, size: int) -> None:
    """At the end of the turn that brings the last of them."""

    def story(turn: Turn, one: End, other: End, clock: HandClock) -> list[bytes]:
        return [b"x" * size] * (reads + 1)

    looks = [number for number, line in enumerate(played(story)) if "looks" in line]
    assert looks[:reads] == list(range(2 * reads - 1, 3 * reads - 1))


def test_what_waits_for_the_end_of_a_turn_is_bounded() -> None:
    def story(turn: Turn, one: End, other: End, clock: HandClock) -> list[bytes]:
        turn.came(one, b"")
        for _ in range(4):
            turn.came(other, b"x" * (TURN_BYTES // 4))
        assert not [line for line in log_of(other) if "sends x" in line]
        turn.came(other, b"y")
        assert len([line for line in log_of(other) if "sends" in line]) == 6
        return []

    def log_of(end: End) -> list[str]:
        return end.log

    assert "other looks at y" in played(story)[-1]


def test_a_turn_that_is_ended_early_has_nothing_left_at_its_end() -> None:
    """As it is before the relay says something of its own, or closes."""

    def story(turn: Turn, one: End, other: End, clock: HandClock) -> list[bytes]:
        turn.came(one, b"a")
        turn.end()
        turn.end()
        one.log.append("ours")
        return []

    assert played(story) == ["one sends a", "one looks at a of 0, sent 10", "ours"]
