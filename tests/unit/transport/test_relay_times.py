"""How long a call waits in the relay, and what became of it: told once to the meter, with a clock that is turned."""

from __future__ import annotations

import pytest

from nodeward.model.relayed import Call, Fate, Pass, Refuse, Replace, Verdict
from nodeward.transport.relay_calls import HELD_BYTES
from tests.unit.transport.between import OK, TRAILERS, Between, answer, ask
from tests.unit.transport.strict import message, request

BUSY = Refuse(8, "no EPC left")


def test_a_call_that_passes_waits_from_read_to_write_of_its_beginning_and_its_end() -> None:
    """What the runtime takes in between is not the relay's, nor what is streamed."""
    rig = Between(enforces=False)
    rig.write_ns = 100
    ask(rig, 1, "Version")
    rig.clock.now += 5_000_000
    rig.runtime.headers(1, OK)
    rig.runtime.data(1, message(b"part"))
    rig.settle()
    rig.write_ns = 7
    rig.runtime.headers(1, TRAILERS, end=True)
    rig.settle()

    assert rig.tally.over_ == [(0, Fate.PASSED, 107)]


@pytest.mark.parametrize(
    ("verdict", "fate", "status"),
    [
        pytest.param(Pass(), Fate.ALLOWED, 0, id="goes-on"),
        pytest.param(Replace(b"other"), Fate.CHANGED, 0, id="is-changed"),
        pytest.param(BUSY, Fate.REFUSED, 8, id="is-refused"),
    ],
)
def test_a_held_call_waits_for_its_verdict(verdict: Verdict, fate: Fate, status: int) -> None:
    """From the last byte of its request: how slowly the client sends is not the relay's."""
    rig = Between()
    rig.client.headers(1, request("HoldThis"))
    rig.settle()
    rig.clock.now += 1_000_000
    rig.client.data(1, message(b"ask"), end=True)
    rig.settle()
    rig.clock.now += 3_000
    rig.verdict(1, verdict)
    if status == 0:
        answer(rig, 1)

    assert rig.tally.over_ == [(status, fate, 3_000)]


def test_a_verdict_at_once_is_as_long_as_its_bytes_wait() -> None:
    rig = Between()
    rig.judge.at_once = lambda call, body: Pass()
    rig.write_ns = 50
    ask(rig, 1, "HoldThis")
    answer(rig, 1)

    assert rig.tally.over_ == [(0, Fate.ALLOWED, 100)]


def test_a_held_call_without_any_message_is_one_that_was_not_decided() -> None:
    rig = Between()
    rig.client.headers(1, request("HoldCreate"), end=True)
    rig.settle()
    answer(rig, 1)
    assert [one[1] for one in rig.tally.over_] == [Fate.UNDECIDED]


@pytest.mark.parametrize(
    ("on_error", "fate"), [pytest.param(None, Fate.UNDECIDED, id="pass"), pytest.param(BUSY, Fate.REFUSED, id="refuse")]
)
def test_a_call_that_cannot_be_decided_is_told_apart(on_error: Refuse | None, fate: Fate) -> None:
    rig = Between(on_error=on_error)
    ask(rig, 1, "HoldThis")
    rig.session.holds.undecided(1, "no decision in time")
    rig.settle_after()
    if on_error is None:
        answer(rig, 1)

    assert [one[1] for one in rig.tally.over_] == [fate]


def test_a_held_call_whose_client_goes_is_abandoned() -> None:
    rig = Between()
    ask(rig, 1, "HoldThis")
    ask(rig, 3, "HoldThat")
    rig.clock.now += 40
    rig.client.reset(1)
    rig.settle()
    rig.clock.now += 2
    rig.session.close("the client closed the connection")

    assert rig.tally.over_ == [(None, Fate.ABANDONED, 40), (None, Fate.ABANDONED, 42)]
    assert rig.book.holds.left == HELD_BYTES


def test_a_meter_that_fails_is_counted_and_nothing_else_changes() -> None:
    rig = Between()
    rig.tally.broken = True
    for stream in (1, 3):
        ask(rig, stream, "Version")
        answer(rig, stream)

    assert [one[0] for one in rig.tally.over_] == [0, 0]
    assert rig.book.counts.faults == 2
    assert bytes(rig.client.streams[3].body) == message(b"said")


def test_nobody_is_told_twice() -> None:
    rig = Between()

    def refuse(call: Call, body: bytes) -> Verdict:
        return BUSY

    rig.judge.at_once = refuse
    ask(rig, 1, "HoldThis")
    rig.client.headers(3, request("Version"))
    rig.client.reset(3)
    rig.settle()
    rig.session.close("gone")

    assert [one[:2] for one in rig.tally.over_] == [(8, Fate.REFUSED), (None, Fate.PASSED)]
