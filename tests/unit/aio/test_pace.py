"""Work beside the loop, with pauses."""

from types import SimpleNamespace

import pytest

from nodeward.aio import pace


@pytest.mark.parametrize(("items", "each", "pauses"), [(0, 2, 0), (2, 2, 0), (3, 2, 1), (7, 2, 3)])
def test_it_pauses_after_so_many(monkeypatch: pytest.MonkeyPatch, items: int, each: int, pauses: int) -> None:
    """Given so many items, then all come, in order, with a pause between parts and none at the end."""
    slept: list[float] = []
    monkeypatch.setattr(pace, "time", SimpleNamespace(sleep=slept.append))
    assert list(pace.paced(range(items), each)) == list(range(items))
    assert slept == [pace.PAUSE_S] * pauses
