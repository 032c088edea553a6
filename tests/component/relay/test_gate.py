"""Gates at the relay: pods that wait for a verdict, and what becomes of them where no daemon answers as it should.

Kubelet and runtime are grpcio's; the daemon is the real one, or a socket in its place.
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.modes import Mode
from nodeward.features.gate.settings import GateSettings
from nodeward.features.podapi.settings import PodapiSection
from nodeward.features.settings import Settings
from nodeward.neighbours.cri.door_frames import SOCKET
from tests.component.daemon import rig as daemon
from tests.component.relay.rig import (
    WAIT_S,
    Runtime,
    client_of,
    decided_by,
    node_process,
    people,
    relayed,
    wait_for,
)
from tests.component.relay.test_limits import call, create, got, kernel, runtime
from tests.component.relay.test_sizing import run as run_pod


@contextmanager
def node(folder: Path, gate: str = "handlers: {kata: [verdict]}", *flags: str) -> Iterator[tuple[Path, Runtime]]:
    """A relay that holds pods with a gate. `flags`: those of `test_limits.kernel`, whose settings it has too."""
    settings = folder / "nodeward.yaml"
    before = settings.read_text() if flags else f"run_dir: {folder}/run\n"
    settings.write_text(f"{before}gate: {{mode: enforce, {gate}}}\n")
    words = flags or ("--config", str(settings))
    with relayed(folder, *words, behave=of_kata) as (listen, made, _):
        yield listen, made


def of_kata(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
    if name != "PodSandboxStatus":
        return runtime(name, request, context)
    told = cri.PodSandboxStatusResponse()
    told.status.id, told.status.runtime_handler = "s1", "kata"
    told.status.metadata.CopyFrom(cri.PodSandboxMetadata(name="pod", uid="u", namespace="default"))
    return told.SerializeToString()


def refused(listen: Path, name: str = "RunPodSandbox", request: bytes = run_pod()) -> str:
    with client_of(listen) as channel, pytest.raises(grpc.RpcError) as caught:
        call(channel, name, request)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(caught.value.details())


def passes(listen: Path, name: str = "RunPodSandbox", request: bytes = run_pod()) -> None:
    with client_of(listen) as channel:
        call(channel, name, request)


def tries(listen: Path) -> None:
    with client_of(listen) as channel:
        while True:
            with suppress(grpc.RpcError):
                call(channel, "RunPodSandbox", run_pod())
                return


def test_a_pod_waits_at_its_gate_until_somebody_says_pass_or_deny(tmp_path: Path) -> None:

    def change(settings: Settings) -> Settings:
        gate = GateSettings(Mode.ENFORCE, {"kata": ("verdict",)}, uids=(os.getuid(),))
        off = replace(settings.nri, enabled=False)
        return replace(settings, nri=off, gate=gate, podapi=PodapiSection(True, uids=(os.getuid(),)))

    def nodeward(*words: str) -> str:
        environ = {**os.environ, "NODEWARD_SOCKET": str(tmp_path / "run" / "nodeward.sock")}
        command = [sys.executable, "-m", "nodeward", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=WAIT_S, check=False)
        return done.stdout + done.stderr

    def story(listen: Path, made: Runtime, restart: Callable[[], None], stop: Callable[[], None]) -> None:
        passes(listen, request=run_pod("runc"))
        made.got.clear()
        waiting = threading.Thread(target=tries, args=(listen,))
        waiting.start()
        wait_for(lambda: "1 shut" in people(listen, "status").stdout, "the pod at its gate")
        why = people(listen, "explain", "default/pod").stdout
        assert "gate of default/pod: shut: verdict: no verdict was set yet" in why
        assert not [name for name, _ in made.got if name == "RunPodSandbox"]
        assert nodeward("pod", "gate", "default/pod", "--pass", "--expires", "10m") == "default/pod (uid u): PASSED\n"
        waiting.join(WAIT_S)
        assert got(made, "RunPodSandbox") == run_pod()
        assert nodeward("pod", "gate", "default/pod", "--deny", "another image") == "default/pod (uid u): DENIED\n"
        restart()
        assert "verdict: DENIED (another image), which is final" in refused(listen)
        assert "DENIED, which is final" in nodeward("pod", "gate", "default/pod", "--pass")
        shown = people(listen, "status").stdout
        assert "gates: mode enforce, 1 refused" in shown
        assert "last: default/pod: its gate is shut: verdict: DENIED" in shown
        stop()
        assert "its gate is shut: nobody could be asked (no node daemon is at" in refused(listen)
        passes(listen, request=run_pod("runc"))

    async def tale() -> None:
        async with daemon.rig(tmp_path, change=change) as rig:
            await until_it_answers(tmp_path)
            loop = asyncio.get_running_loop()

            async def again() -> None:
                await rig.stop()
                await rig.start()
                await until_it_answers(tmp_path)

            def restart() -> None:
                asyncio.run_coroutine_threadsafe(again(), loop).result(WAIT_S)

            def stop() -> None:
                asyncio.run_coroutine_threadsafe(rig.stop(), loop).result(WAIT_S)

            with node(tmp_path) as (listen, made):
                await asyncio.to_thread(story, listen, made, restart, stop)

    asyncio.run(tale())


async def until_it_answers(folder: Path) -> None:
    sockets = [folder / "run" / name for name in (SOCKET, "podapi.sock")]
    await daemon.until(lambda: all(one.exists() for one in sockets), "the daemon's sockets")


def test_a_daemon_whose_gates_are_off_decides_nothing_for_a_relay_that_has_some(tmp_path: Path) -> None:
    """Else a pod with a gate would start, since the daemon says nothing against it."""
    with node(tmp_path) as (listen, made):
        (tmp_path / "nodeward.yaml").write_text(
            f"run_dir: {tmp_path}/run\nstate_dir: {tmp_path}/state\ncgroups: {{root: {tmp_path}}}\n"
            "nri: {enabled: false}\nkube: {enabled: false}\nrelay: {limits: true}\n"
        )
        with node_process(tmp_path):
            assert "gate.mode is off in the node daemon: give it and the relay the same settings" in refused(listen)
            assert not made.got
            shown = people(listen, "status").stdout
    assert "calls are held for gate, and nobody decides them: " in shown


def test_containers_are_held_by_what_the_runtime_tells_of_their_sandbox(tmp_path: Path) -> None:
    """And have their limit once the gate is open; without a daemon the relay asks the runtime for the handler."""
    flags = kernel(tmp_path)
    gate = f"handlers: {{kata: [verdict]}}, at: container, wait_s: 0.1, uids: [{os.getuid()}]"
    with node(tmp_path, gate, *flags) as (listen, made):
        settings = tmp_path / "nodeward.yaml"
        settings.write_text(settings.read_text() + f"podapi: {{enabled: true, uids: [{os.getuid()}]}}\n")
        passes(listen)
        assert "nobody could be asked" in refused(listen, "CreateContainer", create())
        assert [name for name, _ in made.got].count("PodSandboxStatus") == 1
        with node_process(tmp_path):
            decided_by(listen)
            assert "no verdict was set yet" in refused(listen, "CreateContainer", create())
            assert not [name for name, _ in made.got if name == "CreateContainer"]
            wait_for((tmp_path / "run" / "podapi.sock").is_socket, "the Pod API")
            nodeward = [sys.executable, "-m", "nodeward", "pod", "gate", "default/pod", "--pass"]
            environ = {**os.environ, "NODEWARD_SOCKET": str(tmp_path / "run" / "nodeward.sock")}
            subprocess.run(nodeward, env=environ, timeout=WAIT_S, check=True)
            passes(listen, "CreateContainer", create())
            assert got(made, "CreateContainer").startswith(create())
            assert got(made, "CreateContainer") != create(), "it has its limit"
            assert [name for name, _ in made.got].count("PodSandboxStatus") == 2
