"""New settings for a running relay, by SIGHUP."""

import signal
import subprocess
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import grpc
import pytest

from tests.component.relay.rig import Runtime, client_of, log_of, relayed, wait_for
from tests.component.relay.test_limits import call, create, got, kernel, runtime


def dumping(folder: Path) -> AbstractContextManager[tuple[Path, Runtime, subprocess.Popen[str]]]:
    return relayed(folder, "--dump-file", str(folder / "dump"), *kernel(folder), behave=runtime)


def change(folder: Path, process: subprocess.Popen[str], more: str) -> None:
    settings = folder / "nodeward.yaml"
    settings.write_text(settings.read_text() + more)
    process.send_signal(signal.SIGHUP)


def test_rules_of_the_dump_and_what_undecided_calls_become_change_at_once(tmp_path: Path) -> None:
    with dumping(tmp_path) as (listen, made, process), client_of(listen) as channel:
        call(channel, "CreateContainer", create())
        assert got(made, "CreateContainer") == create(), "nobody decides, and on_error is pass"
        dump = tmp_path / "dump"
        wait_for(lambda: dump.exists() and "CreateContainer <=" in dump.read_text(), "the dump of the first create")
        change(tmp_path, process, "limits: {on_error: refuse, strict: true}\ndump: {rules: 'off:.*'}\n")
        wait_for(lambda: "settings=accepted" in log_of(listen), "word of the settings")
        before = dump.read_text()
        with pytest.raises(grpc.RpcError) as refused:
            call(channel, "CreateContainer", create())
        assert "and limits.on_error is refuse" in str(refused.value.details())
    assert dump.read_text() == before
    assert "changed=limits.on_error,dump.rules" in log_of(listen)
    assert "settings=need-restart" not in log_of(listen), "the rest is the daemon's"


FUTILE = (
    ("limits: {mode: sometimes}\n", "limits.mode: 'sometimes'"),
    ("dump: {rules: 'full:('}\n", "dump.rules: dump rule"),
    ("dump: {max_bytes: 70000000}\n", "settings=need-restart keys=dump.max_bytes"),
    ("sizing: {mode: enforce}\n", "settings=need-restart keys=sizing.mode"),
    ("- nothing\n", "is no YAML"),
)


def test_settings_with_faults_or_for_a_later_start_change_nothing(tmp_path: Path) -> None:
    with dumping(tmp_path) as (listen, made, process), client_of(listen) as channel:
        before = (tmp_path / "nodeward.yaml").read_text()
        for more, said in FUTILE:
            change(tmp_path, process, more)
            wait_for(partial(says, listen, said), said)
            call(channel, "CreateContainer", create())
            assert got(made, "CreateContainer") == create()
            (tmp_path / "nodeward.yaml").write_text(before)
        with pytest.raises(grpc.RpcError):
            call(channel, "Unknown", b"")


def says(listen: Path, words: str) -> bool:
    return words in log_of(listen)


def test_an_empty_dump_file_switches_the_settings_one_off_and_faults_name_the_flag_that_was_given(
    tmp_path: Path,
) -> None:
    dump, flags = tmp_path / "dump", ("--dump-file", "", "--dump", "full:.*", *kernel(tmp_path))
    settings = tmp_path / "nodeward.yaml"
    settings.write_text(f"{settings.read_text()}dump: {{file: {dump}}}\n")
    with relayed(tmp_path, *flags) as (listen, _, process), client_of(listen) as channel:
        assert call(channel, "Version", b"v") == b"v"
        settings.write_text("dump: 3\n")
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: "settings=refused" in log_of(listen), "word of the settings")
    assert not dump.exists()
    assert "dump.rules: dump is no section (flag --dump)" in log_of(listen)
