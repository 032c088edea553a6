"""What is turned away is in the log at once, and a flood of it in a line a minute."""

import asyncio

import pytest

from nodeward.edges.webhook.refusal_log import APART_S, RefusalLog


class Later:
    """A loop's clock by hand: what was asked to be called, and in how many seconds."""

    def __init__(self) -> None:
        self.due: list[tuple[float, object, tuple[object, ...]]] = []

    def call_later(self, seconds: float, call: object, *args: object) -> None:
        self.due.append((seconds, call, args))

    def pass_(self) -> None:
        due, self.due = self.due, []
        for seconds, call, args in due:
            assert seconds == APART_S
            assert callable(call)
            call(*args)


def test_a_reason_is_one_line_of_bounded_length(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may name what a client sent."""
    monkeypatch.setattr(asyncio, "get_running_loop", Later)
    RefusalLog().tell("400", "not a review: a\nturned_away=b\x1b[2J" + "c" * 9999)
    (record,) = caplog.records

    said = record.getMessage()
    assert said.startswith("turned_away=400 times=1 because=not a review: a\\u000aturned_away=b\\u001b[2Jccc")
    assert said.endswith("c...")
    assert len(said) < 500


def test_the_first_is_told_at_once_and_the_rest_of_a_minute_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Later()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: later)
    turned = RefusalLog()

    def lines() -> list[str]:
        said = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return said

    for _ in range(1000):
        turned.tell("503", "too many")
    turned.tell("415", "not JSON")
    assert lines() == ["turned_away=503 times=1 because=too many", "turned_away=415 times=1 because=not JSON"]
    later.pass_()
    assert lines() == ["turned_away=503 times=999 because=too many"]
    turned.tell("503", "too many")
    assert lines() == []
    later.pass_()
    assert lines() == ["turned_away=503 times=1 because=too many"]
    later.pass_()
    assert (lines(), later.due) == ([], [])
    turned.tell("503", "too many")
    assert lines() == ["turned_away=503 times=1 because=too many"]
