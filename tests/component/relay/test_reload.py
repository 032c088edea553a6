"""New settings for a running relay, by SIGHUP."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from tests.component.relay.rig import Runtime, client_of, log_of, relay_process, runtime_at, wait_for
from tests.component.relay.test_limits import call, create, got, kernel, runtime


@contextmanager
def relayed(folder: Path) -> Iterator[tuple[Path, Runtime, subprocess.Popen[str]]]:
    listen, behind = folder / "cri.sock", folder / "runtime.sock"
    flags = ("--dump-file", str(folder / "dump"), *kernel(folder))
    with runtime_at(behind, runtime) as made, relay_process(listen, behind, *flags) as process:
        yield listen, made, process


def change(folder: Path, process: subprocess.Popen[str], more: str) -> None:
    settings = folder / "nodeward.yaml"
    settings.write_text(settings.read_text() + more)
    process.send_signal(signal.SIGHUP)


def test_rules_of_limits_and_dump_change_at_once_and_the_rest_is_named(tmp_path: Path) -> None:
    """Given a relay that limits and dumps everything, when limits are only observed and nothing is dumped any more,
    then the next create passes as it came and is not in the dump."""
    with relayed(tmp_path) as (listen, made, process), client_of(listen) as channel:
        call(channel, "CreateContainer", create())
        assert got(made, "CreateContainer") != create()
        dump = tmp_path / "dump"
        wait_for(lambda: dump.exists() and "CreateContainer <=" in dump.read_text(), "the dump of the first create")
        more = "limits: {mode: observe}\ndump: {rules: 'off:.*'}\npods: {wait_ms: 100}\nkube: {enabled: false}\n"
        change(tmp_path, process, more)
        wait_for(lambda: "settings=accepted" in log_of(listen), "word of the settings")
        before = dump.read_text()
        call(channel, "CreateContainer", create())
        assert got(made, "CreateContainer") == create()
    assert dump.read_text() == before
    assert "changed=limits.mode,pods.wait_ms,dump.rules" in log_of(listen)
    assert "settings=need-restart" not in log_of(listen), "the API server is the daemon's"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("limits: {mode: sometimes}\n", "settings=refused"),
        ("dump: {rules: 'full:('}\n", "settings=refused"),
        ("dump: {max_bytes: 70000000}\n", "settings=need-restart keys=dump.max_bytes"),
        ("sandboxes: {profiles: {kata: kata-go}}\n", "settings=need-restart keys=sandboxes.profiles"),
        ("- nothing\n", "settings=refused"),
    ],
)
def test_settings_with_faults_or_for_a_later_start_change_nothing(tmp_path: Path, more: str, said: str) -> None:
    with relayed(tmp_path) as (listen, made, process), client_of(listen) as channel:
        change(tmp_path, process, more)
        wait_for(lambda: said in log_of(listen), said)
        call(channel, "CreateContainer", create())
        assert got(made, "CreateContainer") != create(), "limits are decided as before"
        with pytest.raises(grpc.RpcError):
            call(channel, "Unknown", b"")


def test_an_empty_dump_file_switches_the_settings_one_off_and_faults_name_the_flag_that_was_given(
    tmp_path: Path,
) -> None:
    """Given settings with a dump, and `--dump-file ''`, then nothing is dumped. When the settings no longer have a
    section where a flag has one of its settings, then the log says by which flag, as the user gave it."""
    listen, behind, dump = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "dump"
    flags = ("--dump-file", "", "--dump", "full:.*", *kernel(tmp_path))
    settings = tmp_path / "nodeward.yaml"
    settings.write_text(f"{settings.read_text()}dump: {{file: {dump}}}\n")
    with runtime_at(behind), relay_process(listen, behind, *flags) as process, client_of(listen) as channel:
        assert call(channel, "Version", b"v") == b"v"
        settings.write_text("dump: 3\n")
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: "settings=refused" in log_of(listen), "word of the settings")
    assert not dump.exists()
    assert "dump.rules: dump is no section (flag --dump)" in log_of(listen)
