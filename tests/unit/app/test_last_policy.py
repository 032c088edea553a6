"""The note of `cri-resmgr`'s last policy: a switch is refused where it must not be, and forgotten on demand."""

import errno
from pathlib import Path

import pytest

from nodeward.aio.hostfs import OsFiles
from nodeward.app.relay import last_policy
from nodeward.app.relay.last_policy import PolicySwitchError
from nodeward.doubles.kernel import SimKernel
from tests.faults import FaultyFiles


def test_another_policy_than_the_last_is_refused_until_that_one_is_forgotten(tmp_path: Path) -> None:
    files, folder = OsFiles(), f"{tmp_path}/state"
    last_policy.check(files, folder, "static")
    last_policy.note(files, folder, "static")

    last_policy.check(files, folder, "static")
    with pytest.raises(PolicySwitchError, match=r"^policy static-plus: the last one was static .*--reset-policy"):
        last_policy.check(files, folder, "static-plus")

    assert [last_policy.erase(files, folder), last_policy.erase(files, folder)] == ["static", ""]
    last_policy.check(files, folder, "static-plus")


def test_a_relay_that_never_had_a_policy_writes_nothing_and_one_that_had_notes_that_it_has_none(tmp_path: Path) -> None:
    files, folder = OsFiles(), f"{tmp_path}/state"
    last_policy.note(files, folder, "none")
    assert not Path(folder).exists()

    last_policy.note(files, folder, "static")
    last_policy.note(files, folder, "none")
    assert last_policy.read(files, folder) == "none"


def test_a_note_that_cannot_be_read_is_no_leave_to_switch(tmp_path: Path) -> None:
    Path(last_policy.path_in(str(tmp_path))).write_bytes(b"x" * (last_policy.MAX_BYTES + 1))
    with pytest.raises(PolicySwitchError, match="cannot be read"):
        last_policy.check(OsFiles(), str(tmp_path), "static")


def test_a_disk_that_is_full_stops_no_relay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kernel = SimKernel({})
    last_policy.note(FaultyFiles(kernel, fail_at=1, fail_errno=errno.ENOSPC), str(tmp_path), "static")
    assert "last-policy=not-noted" in caplog.text
