"""What the daemon makes of `nri.multi_line` by the OCI runtimes that it sees: programs that it really runs."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.aio.hostfs import OsFiles
from nodeward.app.doctor import machine, oci_runtimes
from nodeward.app.doctor.oci_runtimes import OciRuntimes
from nodeward.model.settings import NriSection, Settings

ASKED = replace(Settings(), nri=NriSection(multi_line=True))


def program(folder: Path, name: str, does: str) -> Path:
    """An executable file of a few words of shell."""
    made = folder / name
    made.write_text(f"#!/bin/sh\n{does}\n")
    made.chmod(0o755)
    return made


def on_path(folder: Path, *programs: Path) -> OsFiles:
    """A host whose containerd has handlers for these programs, and no others in the usual folders."""
    config = folder / "root/etc/containerd/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    table = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes"
    config.write_text("".join(f"[{table}.h{n}.options]\nBinaryName = '{one}'\n" for n, one in enumerate(programs)))
    for one in programs:
        seen = folder / "root" / one.relative_to("/")
        seen.parent.mkdir(parents=True, exist_ok=True)
        seen.write_text("")
    return OsFiles(str(folder / "root"))


OUTCOMES = {
    "all are new": (("echo runc version 1.5.2", "echo crun version 1.21"), True, "on", "runc 1.5.2, crun 1.21"),
    "one is old": (("echo runc version 1.5.2", "echo runc version 1.1.5"), False, "held", "runc 1.1.5 cannot write"),
    "none is there": ((), True, "unverified", "neither runc nor crun was found"),
    "one says nothing": (("echo runc version 1.5.2", "exit 1"), False, "held", "/"),
}


@pytest.mark.parametrize(("does", "joins", "state", "why"), OUTCOMES.values(), ids=OUTCOMES)
def test_lines_are_joined_unless_a_program_says_that_it_is_too_old(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, does: tuple[str, ...], joins: bool, state: str, why: str
) -> None:
    caplog.set_level(logging.INFO)
    files = on_path(tmp_path, *(program(tmp_path, f"p{number}", one) for number, one in enumerate(does)))
    asked = OciRuntimes(ASKED, files)

    assert [asyncio.run(asked.joins()) for _ in range(2)] == [joins, joins]
    assert asked.row.state == state
    assert asked.row.why.startswith(why)
    told = [record for record in caplog.records if record.name == oci_runtimes.__name__]
    assert [record.getMessage() for record in told] == [asked.row.text]  # once, though it was asked twice
    assert told[0].levelno == (logging.INFO if state == "on" else logging.WARNING)


def test_after_an_upgrade_lines_are_joined_at_the_next_connection(tmp_path: Path) -> None:
    runc = program(tmp_path, "runc", "echo runc version 1.1.5")
    asked = OciRuntimes(ASKED, on_path(tmp_path, runc))

    assert asyncio.run(asked.joins()) is False
    program(tmp_path, "runc", "echo runc version 1.2.0")
    assert asyncio.run(asked.joins()) is True
    assert asked.row.state == "on"


def test_nobody_is_asked_where_the_setting_is_off(tmp_path: Path) -> None:
    asked = OciRuntimes(Settings(), on_path(tmp_path, program(tmp_path, "runc", f"touch {tmp_path}/ran")))

    assert asyncio.run(asked.joins()) is False
    assert asked.row.state == "off"
    assert not (tmp_path / "ran").exists()


def test_programs_that_hang_hold_nobody_up_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given programs that do not end, when lines are asked for, then none are joined after the bound."""
    monkeypatch.setattr(oci_runtimes, "LOOK_S", 0.05)
    monkeypatch.setattr(machine, "RUN_S", 0.3)
    files = on_path(tmp_path, *(program(tmp_path, f"p{number}", "exec sleep 60") for number in range(2)))
    asked = OciRuntimes(ASKED, files)

    assert asyncio.run(asked.joins()) is False
    assert asked.row.state == "held"
    assert "did not tell their versions within" in asked.row.why
