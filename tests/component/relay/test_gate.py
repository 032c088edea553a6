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
from nodeward.neighbours.cri import facts_line
from nodeward.programs.node.relay_door import SOCKET
from tests.component.daemon import rig as daemon
from tests.component.relay.rig import WAIT_S, Runtime, client_of, log_of, relay_process, runtime_at, wait_for
from tests.component.relay.test_facts import answering
from tests.component.relay.test_limits import call, create, got, kernel, runtime
from tests.component.relay.test_sizing import run as run_pod
from tests.component.relay.test_status import people

OPEN, SHUT = facts_line.encode_gate_answer(""), facts_line.encode_gate_answer("verdict: no verdict was set yet")


@contextmanager
def node(folder: Path, gate: str = "handlers: {kata: [verdict]}", *flags: str) -> Iterator[tuple[Path, Runtime]]:
    listen, behind, settings = folder / "cri.sock", folder / "runtime.sock", folder / "nodeward.yaml"
    before = settings.read_text() if flags else f"run_dir: {folder}/run\n"
    settings.write_text(f"{before}gate: {{mode: enforce, {gate}}}\n")
    words = flags or ("--config", str(settings))
    with runtime_at(behind, of_kata) as made, relay_process(listen, behind, *words):
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
        assert nodeward("gate", "default/pod", "--pass", "--expires", "10m") == "default/pod (uid u): PASSED\n"
        waiting.join(WAIT_S)
        assert got(made, "RunPodSandbox") == run_pod()
        assert nodeward("gate", "default/pod", "--deny", "another image") == "default/pod (uid u): DENIED\n"
        restart()
        assert "verdict: DENIED (another image), which is final" in refused(listen)
        assert "DENIED, which is final" in nodeward("gate", "default/pod", "--pass")
        stop()
        assert "no node daemon answers at" in refused(listen)
        passes(listen, request=run_pod("runc"))
        shown = people(listen, "status").stdout
        assert "gates: mode enforce, 1 passed, " in shown
        assert "last refused: default/pod: its gate is shut: no node daemon answers" in shown

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


WRONG: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "ends": (lambda _: b"", "ended meanwhile"),
    "is older": (lambda _: facts_line.encode_answer(None, "cannot be read"), "does not know the question of gates"),
    "is newer": (lambda _: b'{"v":2,"gate":{"open":true}}\n', "version 2 is not known"),
    "talks nonsense": (lambda _: b'{"v":1,"gate":{"open":"yes","why":""}}\n', "cannot be read"),
    "says no": (lambda _: SHUT, "no verdict was set yet"),
    "says no and not why": (lambda _: b'{"v":1,"gate":{"open":false,"why":""}}\n', "tells no reason"),
}


def test_what_is_no_yes_is_a_no_and_holds_a_pod_no_longer_than_the_setting_says(tmp_path: Path) -> None:
    over, answers = threading.Event(), iter([answer for answer, _ in WRONG.values()])

    def answer(line: bytes) -> bytes:
        if (told := next(answers, None)) is not None:
            return told(line)
        over.wait(WAIT_S)
        return OPEN

    gate = "handlers: {kata: [verdict]}, wait_s: 0.25"
    with answering(tmp_path / "run" / SOCKET, answer), node(tmp_path, gate) as (listen, made):
        for said in (*(said for _, said in WRONG.values()), "did not answer within 0.5 s"):
            assert said in refused(listen)
        over.set()
        assert not made.got


def test_containers_are_held_by_what_the_runtime_tells_of_their_sandbox(tmp_path: Path) -> None:
    flags, gate = kernel(tmp_path), "handlers: {kata: [verdict]}, at: container"
    answers = iter((SHUT, OPEN))
    with answering(tmp_path / "run" / SOCKET, lambda line: next(answers) if b'"gate"' in line else b"") as asked:
        with node(tmp_path, gate, *flags) as (listen, made):
            passes(listen)
            assert "no verdict was set yet" in refused(listen, "CreateContainer", create())
            assert not [name for name, _ in made.got if name == "CreateContainer"]
            passes(listen, "CreateContainer", create())
            assert got(made, "CreateContainer").startswith(create())
            assert got(made, "CreateContainer") != create(), "it has its limit"
            assert [name for name, _ in made.got].count("PodSandboxStatus") == 1
        assert any(b'"conditions":["verdict"]' in line for line in asked)


def test_a_pod_that_cannot_be_read_is_refused_and_a_handler_that_nobody_has_is_said(tmp_path: Path) -> None:
    annotated = cri.RunPodSandboxRequest.FromString(run_pod("runc"))
    annotated.config.annotations["nodeward.io/gate"] = "verdict"
    with node(tmp_path) as (listen, made):
        assert "whether this pod has a gate cannot be told" in refused(listen, request=b"\x0a\xff")
        assert "no node daemon answers" in refused(listen, request=annotated.SerializeToString())
        restore = cri.RestorePodRequest(config=annotated.config, runtime_handler="runc")
        assert "no node daemon answers" in refused(listen, "RestorePod", restore.SerializeToString())
        assert not made.got
    assert "gate mode=enforce at=sandbox handlers=kata" in log_of(listen)
