"""The record of CPU grants on a disk that somebody has damaged: it is void, and the reason names the file."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.aio.hostfs import OsFiles
from nodeward.app.host import cpu_grants
from nodeward.app.host.boot import BOOT_ID
from nodeward.engine.cpus import recorded
from nodeward.model.cpus import Grant, Pool, Pools, Recorded
from nodeward.model.policy_rule import PolicySettings
from nodeward.wire import cpus_journal
from tests.unit.engine.cpus.machines import W

GRANT = Grant("uid/app", own=12, request_m=2000)
RECORDED = Recorded(W, PolicySettings("static"), Pools({"shared": Pool(0xFFF0)}, {"uid/app": GRANT}))
MORE = replace(RECORDED, pools=Pools(RECORDED.pools.pools, {"uid/app": GRANT, "b/c": Grant("b/c", own=3)}))
CHANGE = recorded.change(RECORDED, MORE)


@pytest.fixture(name="path")
def a_file(tmp_path: Path) -> Path:
    """Where the record is, on a host with a boot id."""
    boot = tmp_path / BOOT_ID[1:]
    boot.parent.mkdir(parents=True)
    boot.write_text("this-boot\n")
    (tmp_path / "run").mkdir()
    return tmp_path / "run/cpus.journal"


def read(path: Path) -> tuple[Recorded | None, str]:
    _, found = cpu_grants.read(OsFiles(str(path.parent.parent)), "/run")
    return found.recorded, found.fault


def whole(what: Recorded = RECORDED) -> bytes:
    return cpus_journal.whole(what, "this-boot")


def linked(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(whole())
    path.symlink_to(other)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)


def granted(*grants: Grant) -> bytes:
    return whole(replace(RECORDED, pools=Pools(RECORDED.pools.pools, {grant.key: grant for grant in grants})))


def test_what_was_written_is_read_again_and_a_line_that_nobody_has_seen_is_passed_over(path: Path) -> None:
    assert CHANGE is not None
    line = cpus_journal.line(CHANGE)
    path.write_bytes(whole() + line)
    assert read(path) == (MORE, "")
    path.write_bytes(whole() + line[:-1])
    assert read(path) == (RECORDED, "")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        pytest.param(lambda path: path.write_bytes(whole() + b"{}x\n" + whole()), "line 2", id="torn in the middle"),
        pytest.param(lambda path: path.write_bytes(whole()[:-1]), "its first line is cut off", id="cut off"),
        pytest.param(lambda path: path.write_bytes(b"\0" * 99), "does not begin as a record of CPUs", id="zeros"),
        pytest.param(lambda path: path.write_bytes(b"[" * 100_000), "does not begin as", id="nested"),
        pytest.param(linked, "is a symbolic link", id="a symbolic link"),
        pytest.param(lambda path: os.mkfifo(path), "is a FIFO", id="a FIFO"),
        pytest.param(lambda path: path.mkdir(), "Is a directory", id="a folder"),
        pytest.param(huge, "larger than", id="1 GiB"),
        pytest.param(
            lambda path: path.write_bytes(granted(Grant("a/b", own=1 << 70))),
            "the machine has none of these",
            id="a CPU that the machine lacks",
        ),
        pytest.param(
            lambda path: path.write_bytes(granted(Grant("a/b", own=1), Grant("a/c", own=1))),
            "alone, which another one has too",
            id="a CPU that two have alone",
        ),
        pytest.param(
            lambda path: path.write_bytes(granted(Grant("a/b", pool="nowhere"))),
            "not a member of its pool",
            id="a pool that is not there",
        ),
        pytest.param(
            lambda path: path.write_bytes(whole(replace(RECORDED, rules=PolicySettings("newer")))),
            "its policy 'newer' is not known",
            id="a policy of another version",
        ),
    ],
)
def test_a_damaged_record_is_void_and_named(path: Path, damage: Callable[[Path], object], why: str) -> None:
    damage(path)
    found, fault = read(path)
    assert found is None
    assert why in fault
    assert "/run/cpus.journal" in fault


@pytest.mark.parametrize("content", [b"", cpus_journal.whole(RECORDED, "the boot before")], ids=["empty", "other boot"])
def test_what_another_boot_wrote_is_nothing(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert read(path) == (None, "")
