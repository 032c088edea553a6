"""What `nodeward webhook` makes of its settings before it serves."""

import pytest

from nodeward.app import webhook


@pytest.mark.parametrize(
    ("may", "wanted", "taken"),
    [(1 << 20, 2000, 2000), (2064, 2000, 2000), (1024, 2000, 960), (32, 2000, 1)],
    ids=["plenty", "just enough", "too few", "hardly any"],
)
def test_no_more_connections_are_taken_than_there_are_descriptors_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, may: int, wanted: int, taken: int
) -> None:
    """Given a limit that cannot be raised, then the bound is below it: else newcomers would wait at the door."""
    monkeypatch.setattr(webhook, "raise_descriptor_limit", lambda: may)

    assert webhook.connections(wanted) == taken
    assert ("raise ulimit -n" in caplog.text) is (taken < wanted)
