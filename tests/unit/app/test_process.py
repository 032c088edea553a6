"""One instance of a program: the lock waits for the last instance to end, and names it if it does not. Its limits."""

import errno
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nodeward.app.process import LockedError, hold_lock, own_domain, owner_of, raise_descriptor_limit


def test_the_next_instance_waits_for_the_last_one_to_end(tmp_path: Path) -> None:
    """Given an instance that is ending, as when a runtime restarts its plugins, then the next one gets the lock."""
    last = hold_lock(str(tmp_path), "node")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            os.close(last)

    fd = hold_lock(str(tmp_path), "node", sleep=sleep)
    assert len(waits) == 3
    os.close(fd)


def test_an_instance_that_stays_is_named(tmp_path: Path) -> None:
    """Given an instance that runs on, then the next one gives up after two seconds of waiting and says who it is."""
    last = hold_lock(str(tmp_path), "node")
    waits: list[float] = []
    with pytest.raises(LockedError, match=rf"node.lock is held by process {os.getpid()}: one nodeward node a node"):
        hold_lock(str(tmp_path), "node", sleep=waits.append)
    assert sum(waits) == pytest.approx(2.0)
    os.close(last)


def test_a_domain_has_one_driver_and_the_next_one_hears_who_it_is(tmp_path: Path) -> None:
    """Given a daemon that drives limits by NRI, then a relay gets no hold of them; once it has ended, it does."""
    daemon = own_domain(str(tmp_path), "limits")
    with pytest.raises(LockedError, match=rf"limits.owner is held by process {os.getpid()}: .* nri.enabled or relay"):
        own_domain(str(tmp_path), "limits", 0.0)
    os.close(daemon)
    os.close(own_domain(str(tmp_path), "limits", 0.0))


def test_the_daemon_takes_as_many_descriptors_as_it_may_have() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
    try:
        assert raise_descriptor_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_lock_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LockedError, match=r"cannot be made: .* set run_dir"):
        hold_lock(str(tmp_path / "file"), "node")


@pytest.mark.parametrize("kind", ["a symbolic link", "a FIFO"])
def test_a_lock_is_an_ordinary_file_and_what_stands_in_its_place_is_named(kind: str, tmp_path: Path) -> None:
    """Given a link to a file of somebody's, then that file is not emptied; a FIFO holds nobody up."""
    place, other = tmp_path / "limits.owner", tmp_path / "passwd"
    other.write_text("root")
    if kind == "a FIFO":
        os.mkfifo(place)
    else:
        place.symlink_to(other)
    with pytest.raises(LockedError, match=rf"limits.owner cannot be made: is {kind}; remove it"):
        own_domain(str(tmp_path), "limits", 0.0)
    assert (other.read_text(), owner_of(str(tmp_path), "limits")) == ("root", "")


def test_folders_that_are_missing_before_a_lock_are_made_for_their_owner_to_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        os.close(hold_lock(str(tmp_path / "run" / "nodeward"), "node"))
    finally:
        os.umask(before)
    assert [stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("run", "run/nodeward")] == [0o755, 0o755]


def test_a_program_for_people_does_not_load_the_loop_of_those_that_a_runtime_waits_for() -> None:
    """Given what every sub-command imports, then uvloop is not among it; given what `run` imports, then it is."""
    code = "import sys, nodeward.cli.main, nodeward.app.process{more}; print('uvloop' in sys.modules)"
    said = [
        subprocess.run(
            [sys.executable, "-c", code.format(more=more)], capture_output=True, text=True, check=True
        ).stdout.strip()
        for more in ("", ", nodeward.aio.loop")
    ]
    assert said == ["False", "True"]


def test_a_lock_whose_holder_cannot_be_written_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a full file system, then the next one who tries has the lock to himself."""

    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(LockedError, match=r"limits.owner cannot be written: No space left on device"):
            own_domain(str(tmp_path), "limits", 0.0)
    os.close(own_domain(str(tmp_path), "limits", 0.0))


@pytest.mark.parametrize("switch", ["debug", "info"], ids=["from the start", "by a signal"])
def test_no_secret_that_a_library_logs_at_debug_is_in_our_log(switch: str) -> None:
    """Given hpack, which logs each header that it decodes, a canary in one is not said; our own lines at debug are."""
    code = f"""if True:
        import logging, hpack
        from nodeward.app.process import debug_switch, set_up_logs
        set_up_logs({switch!r})
        {switch!r} == "debug" or debug_switch("info")()
        hpack.Decoder().decode(hpack.Encoder().encode([("authorization", "Bearer CANARY"), ("grpc-message", "CANARY")]))
        logging.getLogger("nodeward.here").debug("ours")
        logging.getLogger("hpack").warning("theirs")
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr

    assert "CANARY" not in said
    assert said.endswith("WARNING hpack theirs\n")
    assert "DEBUG nodeward.here ours\n" in said
