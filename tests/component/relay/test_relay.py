"""`nodeward relay` as it is installed, between grpcio's client and server: calls, restarts, sockets."""

import json
import os
import socket
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from nodeward.contracts import cri_pb2 as cri
from tests.component.relay import rig
from tests.component.relay.dump_rig import dump
from tests.unit.neighbours.cri.strict import MAX_STREAM, StrictEnd, message, request

ROOT = Path(__file__).resolve().parents[3]


def refused(path: Path, name: str = "Version") -> grpc.RpcError:
    with rig.client_of(path) as channel, pytest.raises(grpc.RpcError) as caught:
        rig.call(channel, name)
    return caught.value


def answered(channel: grpc.Channel) -> bool:
    try:
        return rig.call(channel, "Version", b"v", 1.0) == b"v"
    except grpc.RpcError as error:
        if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise
        return False


# ---- calls


def test_up_to_16_mib_a_message_stands_whole_in_a_dump_and_what_is_not_there_is_marked_and_counted(
    tmp_path: Path,
) -> None:
    file = tmp_path / "cri.dump"
    flags = "--dump-file", str(file), "--set", "dump.rules=full:.*", "--set", "dump.show=[commands]"
    text = "m" * ((16 << 20) - 5)
    body = cri.ExecSyncRequest(container_id=text).SerializeToString()
    with rig.relayed(tmp_path, *flags) as (listen, _, _), rig.client_of(listen) as channel:
        assert len(body) == 16 << 20
        assert rig.call(channel, "ExecSync", body) == body
        _, whole, answer = rig.lines_of_dump(file, 3)
        rig.call(channel, "ExecSync", bytes((16 << 20) + 1))
        with rig.socket_to(listen) as odd:
            odd.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while odd.recv(4096):
                pass  # the runtime's answer to it, unseen
        *_, asked, answered, unseen = rig.lines_of_dump(file, 6)
        told = rig.status(listen)
        shown = rig.people(listen, "status").stdout
    assert whole.endswith(f"REQUEST container_id: {text}")
    assert answer.endswith(f'REPLY stdout: "{b64encode(text.encode()).decode()}"')
    assert asked.endswith("REQUEST # 16777217 bytes, of which the relay kept 16777216: not shown")
    assert answered.endswith("REPLY # 16777217 bytes, of which the relay kept 16777216: not shown")
    assert "# the calls of connection 2 are relayed and have no lines from here on: the relay cannot follow" in unseen
    assert told.dump is not None
    assert (told.dump.file, told.dump.told, told.dump.lost, told.dump.cut) == (str(file), 5, 0, 2)
    assert told.doors[0].unseen == 1
    assert "5 told, 0 lost, 2 cut, " in " ".join(shown.split())
    assert "dump ends told=5 lost=0 cut=2 " in rig.log_of(listen)
    read = dump(file, "-o", "json")
    remarks = [one for one in map(json.loads, read.stdout.splitlines()) if "remark" in one]
    assert [(one["missing"], one["remark"].partition(":")[0]) for one in remarks] == [
        (0, "the calls of connection 2 are relayed and have no lines from here on")
    ]


def test_the_runtimes_errors_trailers_and_deadlines_stay_end_to_end(tmp_path: Path) -> None:
    left: list[float] = []

    def behave(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        left.append(context.time_remaining())
        context.set_trailing_metadata((("x-detail-bin", b"\0\xff"),))
        context.abort(grpc.StatusCode.NOT_FOUND, "no such container: ü %")
        return b""

    with (
        rig.relayed(tmp_path, behave=behave) as (listen, _, _),
        rig.client_of(listen) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        rig.call(channel, "ContainerStatus", timeout_s=20)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "no such container: ü %"
    assert dict(caught.value.trailing_metadata()) == {"x-detail-bin": b"\0\xff"}
    assert 10 < left[0] <= 20.1  # gRPC writes a timeout in tenths of a second here, rounded up


# ---- the runtime comes and goes


def test_a_relay_that_starts_before_the_runtime_serves_once_it_is_there(tmp_path: Path) -> None:
    listen, runtime = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    with rig.relay_process(listen, runtime):
        assert refused(listen).code() == grpc.StatusCode.UNAVAILABLE
        assert stat.S_IMODE(listen.stat().st_mode) == 0o600
        with rig.runtime_at(runtime), rig.client_of(listen) as channel:
            assert rig.call(channel, "Version", b"v") == b"v"
            os.chmod(runtime, 0o640)
            rig.wait_for(lambda: stat.S_IMODE(listen.stat().st_mode) == 0o640, "the runtime's mode")
        runtime.unlink(missing_ok=True)  # grpcio closes the socket some time after the server has stopped
        assert refused(listen).code() == grpc.StatusCode.UNAVAILABLE
        with rig.runtime_at(runtime), rig.client_of(listen) as channel:
            assert rig.call(channel, "Version", b"v") == b"v"
    assert rig.log_of(listen).count("runtime absent") == rig.log_of(listen).count("runtime present") == 2


def test_sigterm_is_told_by_goaway_that_names_no_stream_and_at_last_the_last_one(tmp_path: Path) -> None:
    """A call that was on its way when the relay began to end is answered too."""
    gate, release = os.pipe()
    end = StrictEnd(client=True)
    with (
        rig.relayed(tmp_path, behave=lambda *_: os.read(gate, 1)) as (listen, server, process),
        rig.socket_to(listen) as client,
        open(release, "wb", buffering=0) as released,
    ):

        def ask(stream: int, how_many: int) -> None:
            end.headers(stream, request("Version"))
            end.data(stream, message(b""), end=True)
            client.sendall(end.take())
            rig.wait_for(lambda: len(server.got) == how_many, "call")

        ask(1, 1)
        process.terminate()
        while not end.goaways and (data := client.recv(65_536)):
            end.feed(data)
        assert end.goaways == [(MAX_STREAM, 0)]
        ask(3, 2)
        released.write(b"!!")
        with suppress(ConnectionResetError):
            while data := client.recv(65_536):
                end.feed(data)
        assert process.wait(rig.WAIT_S) == 0
    assert end.goaways == [(MAX_STREAM, 0), (3, 0)]
    assert "cut off" not in rig.log_of(listen)
    assert "relayed calls Version=2" in rig.log_of(listen)
    for stream in (1, 3):
        assert bytes(end.streams[stream].body) == message(b"!")
        assert (b"grpc-status", b"0") in end.streams[stream].headers[-1]


def test_sigterm_does_not_wait_for_a_stream_of_events_that_never_ends(tmp_path: Path) -> None:
    with rig.relayed(tmp_path) as (listen, server, process), rig.client_of(listen) as channel:
        events = channel.unary_stream(f"{rig.SERVICE}/GetContainerEvents")(b"", timeout=rig.WAIT_S)
        rig.wait_for(lambda: bool(server.begun), "stream")
        process.terminate()
        with pytest.raises(grpc.RpcError) as caught:
            next(events)
        process.wait(rig.WAIT_S)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "cut off" not in rig.log_of(listen)
    assert "relayed calls GetContainerEvents/-1=1" in rig.log_of(listen)


# ---- the socket


def test_a_stale_socket_is_replaced_with_the_runtimes_owner_and_mode(tmp_path: Path) -> None:
    listen, runtime = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(listen))
    with rig.runtime_at(runtime):
        os.chmod(runtime, 0o660)
        if os.geteuid() == 0:
            os.chown(runtime, 12, 34)
        with rig.relay_process(listen, runtime), rig.client_of(listen) as channel:
            rig.wait_for(lambda: "relaying" in rig.log_of(listen), "new socket")
            assert rig.call(channel, "Version", b"v") == b"v"
            found, wanted = listen.stat(), runtime.stat()
            assert (found.st_mode, found.st_uid, found.st_gid) == (wanted.st_mode, wanted.st_uid, wanted.st_gid)


def _with_only(*capabilities: str) -> list[str]:
    """A command before another one that runs it as root with no more than these capabilities."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    bounds = ",".join(("-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in capabilities)))
    return ["setpriv", "--no-new-privs", f"--bounding-set={bounds}", "--inh-caps=-all"]


def test_the_unit_may_do_what_a_runtime_of_another_user_asks_of_it(tmp_path: Path) -> None:
    unit = (ROOT / "deploy/systemd/nodeward-relay.service").read_text()
    within = _with_only(*unit.partition("\nCapabilityBoundingSet=")[2].partition("\n")[0].split())
    listen, runtime = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    with rig.runtime_at(runtime), rig.client_of(listen) as channel:
        os.chown(runtime, 12, 34)
        os.chmod(runtime, 0o660)
        for mode in (0o660, 0o606):
            with rig.relay_process(listen, runtime, within=within) as process:
                rig.wait_for(lambda: answered(channel), "answer")
                os.chmod(runtime, mode)
                rig.wait_for(lambda: listen.stat().st_mode == runtime.stat().st_mode, "the mode of the runtime's")
                assert (listen.stat().st_uid, listen.stat().st_gid) == (12, 34)
                process.kill()
                process.wait(rig.WAIT_S)


def test_who_may_not_take_over_the_owner_is_told_what_it_takes(tmp_path: Path) -> None:
    listen, runtime = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    within = _with_only("CAP_CHOWN")
    with rig.runtime_at(runtime):
        os.chown(runtime, 12, 34)
        os.chmod(runtime, 0o660)
        assert (
            f"{listen} cannot have the owner and mode of {runtime}: Operation not permitted. Run as root with "
            in _says(listen, runtime, within)
        )
    assert not listen.exists()


def test_a_living_socket_a_file_and_the_runtimes_own_are_left_alone(tmp_path: Path) -> None:
    listen, runtime = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    with rig.runtime_at(runtime):
        with rig.relay_process(listen, runtime), rig.client_of(listen) as channel:
            second = tmp_path / "second.sock"
            os.symlink(listen, second)
            assert "another relay listens here" in _says(listen, runtime)
            assert "is no socket" in _says(second, runtime)
            assert rig.call(channel, "Version", b"v") == b"v"
        with socket.socket(socket.AF_UNIX) as living:
            living.bind(str(listen))
            living.listen()
            assert "somebody listens there already" in _says(listen, runtime)
        (tmp_path / "file").write_text("kept")
        assert "is no socket" in _says(tmp_path / "file", runtime)
        assert (tmp_path / "file").read_text() == "kept"
        os.symlink(runtime, tmp_path / "link")
        assert "is the runtime's own socket" in _says(runtime, tmp_path / "link")


def _says(listen: Path, runtime: Path, within: Sequence[str] = ()) -> str:
    command = [*within, rig.NODEWARD, "relay", "--listen", str(listen), "--runtime", str(runtime)]
    command += ["--set", f"run_dir={listen.parent}/run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=rig.WAIT_S, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_runtime_behind_a_link_is_found_wherever_the_link_points(tmp_path: Path) -> None:
    link, first, second = (tmp_path / name for name in ("link", "first", "second"))
    (tmp_path / "folder").mkdir()
    os.symlink("folder", tmp_path / "linked")
    listen = tmp_path / "linked" / "cri.sock"
    os.symlink(first, link)

    def named(name: str) -> rig.Behave:
        return lambda *_: name.encode()

    with rig.relay_process(listen, link):
        assert refused(listen).code() == grpc.StatusCode.UNAVAILABLE
        with (
            rig.runtime_at(first, named("first")),
            rig.runtime_at(second, named("second")),
            rig.client_of(listen) as before,
        ):
            assert rig.call(before, "Version") == b"first"
            os.chmod(second, 0o640)
            os.symlink(second, tmp_path / "new")
            os.replace(tmp_path / "new", link)
            with rig.client_of(listen) as after:
                assert rig.call(after, "Version") == b"second"
            assert rig.call(before, "Version") == b"first"
            rig.wait_for(lambda: stat.S_IMODE(listen.stat().st_mode) == 0o640, "the second runtime's mode")
        with rig.runtime_at(second, named("again")), rig.client_of(listen) as after:
            assert rig.call(after, "Version") == b"again"
    assert not listen.exists()


# ---- what it is made of


@pytest.mark.parametrize(
    ("chosen", "never"),
    [
        ({}, {"google", "re2", "nodeward.programs.dump.feed", "nodeward.core.apply", "nodeward.neighbours.cgroups"}),
        (
            {"relay.limits": "true", "nri.enabled": "false"},
            {"re2", "nodeward.programs.dump.feed", "nodeward.core.apply", "nodeward.features.root", "aiohttp", "grpc"},
        ),
    ],
    ids=["passing", "limits"],
)
def test_what_is_not_chosen_is_not_imported_before_the_first_call(
    tmp_path: Path, chosen: dict[str, str], never: set[str]
) -> None:
    """Each import is time before kubelet's first call."""
    story = (
        "import sys\n"
        "from nodeward.host.clock import SystemClock\n"
        "from nodeward.host import process\n"
        "from nodeward.programs.relay import run as relay\n"
        "from nodeward.settings import load as settings\n"
        "from nodeward.settings.source import SettingsSource\n"
        "import nodeward.cli.relay, uvloop\n"
        "chosen = settings.load(None, {}, eval(sys.argv[1]))\n"
        "relay.plan(chosen, SystemClock(), SettingsSource(lambda: chosen, 'a test'))\n"
        "print(*sys.modules)\n"
    )
    pairs = {**chosen, "run_dir": str(tmp_path)}
    command = [sys.executable, "-c", story, repr(pairs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=rig.WAIT_S, check=True, cwd=ROOT)
    loaded = set(done.stdout.split())
    assert ("google" in loaded) == bool(chosen)
    assert not never & loaded
