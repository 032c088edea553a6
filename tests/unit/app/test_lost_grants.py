"""A journal of grants that was removed since the boot is told from a first start, by a note in the state folder."""

import errno

import pytest

from nodeward.app.node import grants_boot
from nodeward.app.node.grants import Recalled
from nodeward.app.node.grants_boot import GrantsBoot
from nodeward.model.events import GrantsRecalled
from tests.faults import FaultyFiles
from tests.unit.app.test_grants import (
    BOOT,
    HEAD,
    PATH,
    STATE,
    TDX,
    AtOnce,
    at_start,
    commit,
    fresh,
    kept,
    life,
    recalled,
)

NONE = (
    pytest.param(None, id="removed"),
    pytest.param(b"", id="empty"),
    pytest.param(HEAD[:-1], id="head unfinished"),
    pytest.param(b'{"version":1,"boot":"other"}\nrubbish\n', id="another boot"),
)
"""What a start finds that says nothing of this boot."""


@pytest.mark.parametrize("content", NONE)
def test_a_first_start_since_the_boot_has_no_grants_and_has_lost_none(content: bytes | None) -> None:
    """Given a state folder in which nothing, or another boot, is noted."""
    for noted in ("", "11111111-0000-4000-8000-000000000001"):
        kernel = fresh()
        if content is not None:
            kernel.replace(PATH, content)
        if noted:
            GrantsBoot(kernel, STATE, AtOnce()).note(noted)
        assert recalled(kernel) == Recalled({}, BOOT, missing=True)
        one = life(kernel, state=kernel)
        assert at_start(one) == GrantsRecalled()
        assert commit(one, "z") == ""
        assert recalled(kernel).granted == {TDX: {"z": 1}}


@pytest.mark.parametrize("content", NONE)
def test_a_journal_that_was_removed_since_the_boot_is_told_as_lost(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = fresh()
    first = life(kernel, lambda: {TDX: {"a": 1}}, kernel)
    assert commit(first, "a") == ""
    for _ in range(2):
        kept(first)
    if content is None:
        kernel.unlink(PATH)
    else:
        kernel.replace(PATH, content)
    assert at_start(life(kernel, state=kernel)) == GrantsRecalled(lost=True)
    assert f"grants=lost path={PATH}" in caplog.text


def test_a_loss_is_told_by_each_start_until_it_is_known_again_what_was_granted() -> None:
    """Given a journal that was removed, while the ledger asks kubelet what was granted nothing is written; then what
    it found out is."""
    kernel, asks = fresh(), True
    GrantsBoot(kernel, STATE, AtOnce()).note(BOOT)
    for _ in range(2):
        one = life(kernel, lambda: {TDX: {"a": 1}}, kernel)
        one.waits = lambda: asks
        assert at_start(one) == GrantsRecalled(lost=True)
        assert kept(one) == []
        assert recalled(kernel).missing
    asks = False
    assert kept(one) == []
    assert recalled(kernel) == Recalled({TDX: {"a": 1}}, BOOT)
    assert at_start(life(kernel, state=kernel)) == GrantsRecalled({TDX: {"a": 1}})


@pytest.mark.parametrize(
    "note",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"rubbish", id="rubbish"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b'{"version":1}', id="a field less"),
        pytest.param(b'{"version":1,"boot":7}', id="another type"),
        pytest.param(b"[" * 4000, id="deep"),
        pytest.param(b'{"version":1,"boot":"' + BOOT.encode() + b'"}' + b" " * 5000, id="long"),
        pytest.param(b'{"version":2,"boot":"' + BOOT.encode() + b'"}', id="another version"),
    ],
)
def test_a_note_that_is_not_understood_makes_a_first_start_and_is_written_anew(
    note: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = fresh()
    kernel.replace(grants_boot.path_in(STATE), note)
    one = life(kernel, state=kernel)
    assert at_start(one) == GrantsRecalled()
    assert f"grants-boot=ignored path={grants_boot.path_in(STATE)}" in caplog.text
    for _ in range(2):
        kept(one)
    assert grants_boot.read(kernel, STATE) == BOOT


def test_a_note_that_cannot_be_written_stops_no_grant_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    kernel = fresh()
    state = FaultyFiles(kernel, fail_at=2, fail_errno=errno.EROFS)
    one = life(kernel, state=state)
    for _ in range(2):
        assert kept(one) == []
    assert grants_boot.read(kernel, STATE) == ""
    assert commit(one, "a") == ""
    kept(one)
    kept(one)
    assert grants_boot.read(kernel, STATE) == BOOT
    assert caplog.text.count("grants-boot=not-written") == 1


def test_the_note_waits_until_there_is_a_journal() -> None:
    """Else a start after a full run folder would take what never was for lost."""
    kernel = fresh()
    one = life(FaultyFiles(kernel, fail_at=3, fail_errno=errno.ENOSPC), state=kernel)
    kept(one)
    assert one._failed
    assert grants_boot.read(kernel, STATE) == ""
    kept(one)
    kept(one)
    assert grants_boot.read(kernel, STATE) == BOOT


def test_a_journal_that_is_removed_from_under_a_daemon_is_there_again_within_a_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Though nobody asks for a grant: else this life's grants would be lost with it."""
    kernel = fresh()
    one = life(kernel, lambda: {TDX: {"a": 1}})
    assert commit(one, "a") == ""
    assert kept(one) == []
    for spoils in ("removes", "changes"):
        caplog.clear()
        if spoils == "removes":
            kernel.unlink(PATH)
        else:
            kernel.append(PATH, b"rubbish", sync=False)
        assert kept(one) == []
        assert recalled(kernel) == Recalled({TDX: {"a": 1}}, BOOT)
        assert f"grants=written-anew path={PATH}" in caplog.text
    caplog.clear()
    assert kept(one) == []
    assert caplog.text == ""
