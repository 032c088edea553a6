"""New settings for a running relay, by SIGHUP; and that limits have one owner on a node, be it relay or daemon."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import grpc
import pytest

from nodeward.host.process import LockedError, own_feature
from tests.component.relay.rig import SERVICE, WAIT_S, Runtime, client_of, log_of, relay_process, runtime_at, wait_for
from tests.component.relay.test_limits import call, create, got, kernel, node, runtime, update
from tests.component.relay.test_status import people, status


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


FUTILE = (
    ("limits: {mode: sometimes}\n", "limits.mode: 'sometimes'"),
    ("dump: {rules: 'full:('}\n", "dump.rules: dump rule"),
    ("dump: {max_bytes: 70000000}\n", "settings=need-restart keys=dump.max_bytes"),
    ("sandboxes: {profiles: {kata: kata-go}}\n", "settings=need-restart keys=sandboxes.profiles"),
    ("- nothing\n", "is no YAML"),
)


def test_settings_with_faults_or_for_a_later_start_change_nothing(tmp_path: Path) -> None:
    with relayed(tmp_path) as (listen, made, process), client_of(listen) as channel:
        before = (tmp_path / "nodeward.yaml").read_text()
        for more, said in FUTILE:
            change(tmp_path, process, more)
            wait_for(partial(says, listen, said), said)
            call(channel, "CreateContainer", create())
            assert got(made, "CreateContainer") != create(), "limits are decided as before"
            (tmp_path / "nodeward.yaml").write_text(before)
        with pytest.raises(grpc.RpcError):
            call(channel, "Unknown", b"")


def says(listen: Path, words: str) -> bool:
    return words in log_of(listen)


def test_an_empty_dump_file_switches_the_settings_one_off_and_faults_name_the_flag_that_was_given(
    tmp_path: Path,
) -> None:
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


def holders(file: Path) -> int:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            with suppress(OSError):  # it may end
                found |= {child for link in Path(f"/proc/{child}/fd").iterdir() if os.readlink(link) == str(file)}
    return len(found)


def test_a_relay_waits_for_the_one_before_it_and_then_decides(tmp_path: Path) -> None:
    listen, behind, owner = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "run" / "limits.owner"
    sits, goes_on = threading.Event(), threading.Event()

    def behave(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        if name == "StopContainer":
            sits.set()
            assert goes_on.wait(WAIT_S)
        return runtime(name, request, context)

    with (
        runtime_at(behind, behave) as made,
        relay_process(listen, behind, *kernel(tmp_path)) as before,
        client_of(listen) as channel,
        ThreadPoolExecutor(1) as threads,
    ):

        def end_when_the_next_one_tries() -> int:
            """It drains for five seconds, and the next one may take longer to start: so it stands still meanwhile."""
            try:
                wait_for(lambda: holders(owner) == 2 or "features=not-driven-here" in log_of(listen), "next relay")
                return holders(owner)
            finally:
                goes_on.set()
                before.send_signal(signal.SIGCONT)

        late = channel.unary_unary(f"{SERVICE}/StopContainer").future(b"", timeout=WAIT_S)
        assert sits.wait(WAIT_S)
        before.terminate()
        wait_for(lambda: not listen.exists(), "end of the socket")
        before.send_signal(signal.SIGSTOP)
        tried = threads.submit(end_when_the_next_one_tries)
        with relay_process(listen, behind, *kernel(tmp_path)), client_of(listen) as other:
            call(other, "CreateContainer", create())
            limited = got(made, "CreateContainer") != create()
        assert (tried.result(), limited, before.wait(WAIT_S)) == (2, True, 0)
        late.exception(WAIT_S)


def test_a_relay_passes_calls_while_another_process_drives_limits_and_decides_once_that_has_ended(
    tmp_path: Path,
) -> None:
    daemon = own_feature(str(tmp_path / "run"), "limits")
    try:
        with node(tmp_path) as (listen, made), client_of(listen) as channel:
            call(channel, "CreateContainer", create())
            assert got(made, "CreateContainer") == create()
            assert f"limits.owner is held by process {os.getpid()}" in log_of(listen)
            waiting = status(listen).limits
            assert (waiting.here, waiting.owner) == (False, f"process {os.getpid()}")
            assert f"limits: not decided by the relay; process {os.getpid()} decides" in people(listen, "status").stdout
            assert not [name for name, _ in made.got if name.startswith("List")]

            os.close(daemon)

            wait_for(lambda: "limits know sandboxes=1 containers=1" in log_of(listen), "lists of the runtime")
            call(channel, "CreateContainer", create())
            call(channel, "UpdateContainerResources", update())
            assert got(made, "CreateContainer").startswith(create())
            assert got(made, "CreateContainer") != create()
            assert got(made, "UpdateContainerResources") != update()
            assert status(listen).limits.here
            with pytest.raises(LockedError):
                own_feature(str(tmp_path / "run"), "limits", 0.0)
    finally:
        with suppress(OSError):
            os.close(daemon)
    told = [line.partition(" nodeward.")[2] for line in log_of(listen).splitlines()]
    order = ("not-driven-here", "driven-here: who drove them has ended", "limits mode=enforce", "limits know")
    places = [next(place for place, line in enumerate(told) if word in line) for word in order]
    assert places == sorted(places)
    assert "limits at-once=2" in log_of(listen)


def test_a_daemon_with_nri_does_not_start_beside_a_relay_that_limits_and_names_it(tmp_path: Path) -> None:
    listen, behind = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    own = [f"run_dir={tmp_path}/run", f"state_dir={tmp_path}/state", f"cgroups.root={tmp_path}/cgroup"]
    own += [f"nri.socket={tmp_path}/nri.sock", "kube.enabled=false"]
    command = [sys.executable, "-m", "nodeward", "node", *(word for pair in own for word in ("--set", pair))]
    with relay_process(listen, behind, *kernel(tmp_path)) as relay:
        told = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert told.returncode == 1
    assert told.stderr.splitlines()[-1].endswith(
        f"{tmp_path}/run/limits.owner is held by process {relay.pid}: limits is driven by NRI or by the relay, never "
        "by both. Set nri.enabled or relay.limits to false"
    )
