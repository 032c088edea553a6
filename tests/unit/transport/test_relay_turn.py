"""What passes undecided: when it goes on, and when it is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from nodeward.transport.relay_turn import TURN_BYTES, Turn
from tests.unit.transport.between import HandClock

SEND_NS = 10
"""How long it takes to send something."""


@dataclass
class End:
    """By which bytes come; it writes down what it is to do."""

    name: str
    clock: HandClock
    log: list[str]

    def forward(self, data: bytes) -> None:
        self.clock.now += SEND_NS
        self.log.append(f"{self.name} sends {data[:9].decode()}")

    def look(self, data: bytes, came_ns: int, sent_ns: int) -> None:
        self.log.append(f"{self.name} looks at {data[:9].decode()} of {came_ns}, sent {sent_ns}")


def played(story: Callable[[Turn, End, End, HandClock], list[bytes]]) -> list[str]:
    """What two ends of a relay did while the story was told and in the turns of the loop after it. The bytes that it
    gives back come by the first end, each in a turn of its own."""
    clock, log = HandClock(), list[str]()
    clock.now = 0

    async def told() -> None:
        turn, one, other = Turn(clock), End("one", clock, log), End("other", clock, log)
        later = story(turn, one, other, clock)
        await asyncio.sleep(0)
        for data in later:
            turn.came(one, data)
            log.append("--")
            await asyncio.sleep(0)

    asyncio.run(told())
    return log


def test_where_one_connection_is_busy_its_bytes_go_on_at_once_and_are_looked_at_then() -> None:
    def story(turn: Turn, one: End, other: End, clock: HandClock) -> list[bytes]:
        return [b"a", b"b"]

    assert played(story) == [
        *("one sends a", "--", "one looks at a of 0, sent 10"),
        *("one sends b", "--", "one looks at b of 10, sent 20"),
    ]


def test_where_several_are_all_bytes_of_a_turn_go_on_before_any_is_looked_at() -> None:
    """In the order in which they came; the turn after a crowded one waits for its end from the first byte on."""

    def story(turn: Turn, one: End, other: End, clock: HandClock) -> list[bytes]:
        for side, data in ((one, b"a"), (other, b"b"), (one, b"c")):
            turn.came(side, data)
            clock.now += 1
        return [b"d", b"e"]

    assert played(story) == [
        *("one sends a", "other sends b", "one sends c"),
        *("one looks at a of 0, sent 10", "other looks at b of 11, sent 23", "one looks at c of 12, sent 33"),
        *("--", "one sends d", "one looks at d of 33, sent 43"),
        *("one sends e", "--", "one looks at e of 43, sent 53"),
    ]


def test_what_waits_for_the_end_of_a_turn_is_bounded() -> None:
    def story(turn: Turn, one: End, other: End, clock: HandClock) -> list[bytes]:
        turn.came(one, b"a")
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
