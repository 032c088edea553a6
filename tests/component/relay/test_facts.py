"""Pods' specs in the relay: from the node daemon where one runs, and what happens where none does or it makes no sense.

Daemon and relay are the real ones, on one `run_dir`; kubelet and runtime are grpcio's.
"""

import asyncio
import os
import socket
import stat
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import grpc

from nodeward.app.node.pod_facts import SOCKET
from nodeward.model.settings import Settings
from nodeward.model.sizing import NOT_TOLD
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from nodeward.proto import cri_pb2 as cri
from nodeward.wire import facts_line
from tests.component.daemon import rig as daemon
from tests.component.daemon.rig import EPC, Rig
from tests.component.relay.rig import WAIT_S, Runtime, client_of, log_of, wait_for
from tests.component.relay.test_limits import ANNOTATIONS, call, got, node, runtime

SPEC = PodSpec(PodUid("u"), "default", "pod", (ContainerSpec("app", declared={EPC: 4096}),))
"""The pod of `create`; the container `app` of the daemon's pods declares 4096, too."""


def create(uid: str = "u", name: str = "pod", annotations: dict[str, str] | None = None) -> bytes:
    metadata = cri.PodSandboxMetadata(name=name, uid=uid, namespace="default")
    config = cri.PodSandboxConfig(metadata=metadata, annotations=annotations or {})
    made = cri.CreateContainerRequest(pod_sandbox_id="s1", sandbox_config=config)
    made.config.metadata.name = "app"
    return made.SerializeToString()


def limit(made: Runtime) -> str:
    request = cri.CreateContainerRequest.FromString(got(made, "CreateContainer"))
    return request.config.linux.resources.unified.get("misc.max", "")


def says(listen: Path, what: str, times: int = 1) -> None:
    wait_for(lambda: log_of(listen).count(what) >= times, what)


def beside_a_daemon(folder: Path, tale: Callable[[Rig], Awaitable[None]]) -> None:
    """Plays `tale` with a daemon that drives nothing at creation."""

    def change(settings: Settings) -> Settings:
        return replace(settings, nri=replace(settings.nri, enabled=False))

    async def told() -> None:
        async with daemon.rig(folder, change=change) as rig:
            await daemon.until(lambda: (folder / "run" / SOCKET).exists(), "the daemon's socket for facts")
            await tale(rig)

    asyncio.run(told())


def test_a_pods_spec_is_its_containers_limit_from_birth_while_the_daemon_runs(tmp_path: Path) -> None:

    def asks(listen: Path, made: Runtime, uid: str, annotations: dict[str, str] | None = None) -> str:
        with client_of(listen) as channel:
            call(channel, "CreateContainer", create(uid, f"pod-{uid}", annotations))
        return limit(made)

    async def tale(rig: Rig) -> None:
        assert stat.S_IMODE(os.stat(tmp_path / "run" / SOCKET).st_mode) == 0o600
        with node(tmp_path, runtime) as (listen, made):
            await asyncio.to_thread(says, listen, "facts=daemon")
            assert await asyncio.to_thread(asks, listen, made, "a") == f"{EPC} 4096"
            assert await asyncio.to_thread(asks, listen, made, "b", ANNOTATIONS) == f"{EPC} 4096"
            assert await asyncio.to_thread(asks, listen, made, "stranger", ANNOTATIONS) == f"{EPC} 8192"
            await rig.stop()
            await asyncio.to_thread(says, listen, "facts=annotations")
            assert await asyncio.to_thread(asks, listen, made, "c") == "", "nobody tells of it"
            assert await asyncio.to_thread(asks, listen, made, "c", ANNOTATIONS) == f"{EPC} 8192"
            await rig.start()
            await asyncio.to_thread(says, listen, "facts=daemon", 2)
            assert await asyncio.to_thread(asks, listen, made, "good") == f"{EPC} 4096"
        assert "faults=0 facts=daemon" in log_of(listen)

    beside_a_daemon(tmp_path, tale)


def test_the_daemon_says_why_it_tells_nothing(tmp_path: Path) -> None:
    def ask(line: bytes) -> facts_line.Answer:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(WAIT_S)
            peer.connect(str(tmp_path / "run" / SOCKET))
            peer.sendall(line)
            return facts_line.decode_answer(peer.makefile("rb").readline())

    async def tale(rig: Rig) -> None:
        asked = facts_line.encode_request(facts_line.Asked("x", "default", "pod-x"))
        assert await asyncio.to_thread(ask, asked) == facts_line.Answer(
            None, "pod default/pod-x/x: no API server is configured", NOT_TOLD
        )
        newer = await asyncio.to_thread(ask, b'{"v":9,"pod":{}}\n')
        assert (newer.pod, "version 9 is not known" in newer.why) == (None, True)
        told = await asyncio.to_thread(ask, facts_line.encode_request(facts_line.Asked("a", "default", "pod-a")))
        assert told.pod is not None
        assert told.pod.containers[0].declared == {EPC: 4096}

    beside_a_daemon(tmp_path, tale)


# ---- a daemon that is none


@contextmanager
def answering(path: Path, answer: Callable[[bytes], bytes]) -> Iterator[list[bytes]]:
    """A socket in the daemon's place; gives what it was asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = server.accept()
                    with peer, suppress(OSError):
                        if line := peer.makefile("rb").readline():  # else its relay ended before it asked
                            asked.append(line)
                            peer.sendall(answer(line))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_S)
    path.unlink()


def of_spec(line: bytes) -> bytes:
    return facts_line.encode_answer(SPEC if facts_line.decode_request(line).uid else None)


def test_an_answer_without_end_is_said_once_and_annotations_hold(tmp_path: Path) -> None:

    def once_greeted(line: bytes) -> bytes:
        greeting = facts_line.decode_request(line).uid == ""
        return facts_line.encode_answer(None, "no pod") if greeting else b"x" * (facts_line.MAX_ANSWER + 100)

    with answering(tmp_path / "run" / SOCKET, once_greeted), node(tmp_path, runtime) as (listen, made):
        says(listen, "facts=daemon")
        with client_of(listen) as channel:
            for _ in range(2):
                call(channel, "CreateContainer", create(annotations=ANNOTATIONS))
                assert limit(made) == f"{EPC} 8192"
        says(listen, "facts=annotations")


def test_an_answer_about_another_pod_concerns_that_pod_alone(tmp_path: Path) -> None:
    def tells(line: bytes) -> bytes:
        uid = facts_line.decode_request(line).uid
        if uid == "u":
            return facts_line.encode_answer(replace(SPEC, uid=PodUid("v")))
        return facts_line.encode_answer(replace(SPEC, uid=PodUid(uid), name="other") if uid else None)

    with answering(tmp_path / "run" / SOCKET, tells), node(tmp_path, runtime) as (listen, made):
        says(listen, "facts=daemon")
        with client_of(listen) as channel:
            for _ in range(2):
                call(channel, "CreateContainer", create(annotations=ANNOTATIONS))
                assert limit(made) == f"{EPC} 8192"
                call(channel, "CreateContainer", create("v2", "other", ANNOTATIONS))
                assert limit(made) == f"{EPC} 4096"
    assert "facts=annotations" not in log_of(listen)
    assert log_of(listen).count("facts make no sense pod=default/pod") == 1


def test_a_daemon_that_hangs_costs_creates_little_and_then_nothing(tmp_path: Path) -> None:
    over = threading.Event()

    def hang(line: bytes) -> bytes:
        if facts_line.decode_request(line).uid:
            over.wait(WAIT_S)
        return facts_line.encode_answer(None, "no pod")

    with answering(tmp_path / "run" / SOCKET, hang), node(tmp_path, runtime) as (listen, made):
        says(listen, "facts=daemon")
        with client_of(listen) as channel:
            call(channel, "CreateContainer", create(annotations=ANNOTATIONS))
            assert limit(made) == f"{EPC} 8192"
            says(listen, "facts=annotations")
        over.set()


def test_a_pod_is_asked_for_when_its_sandbox_is_made(tmp_path: Path) -> None:
    with answering(tmp_path / "run" / SOCKET, of_spec) as asked, node(tmp_path, runtime) as (listen, made):
        says(listen, "facts=daemon")
        with client_of(listen) as channel:
            config = cri.CreateContainerRequest.FromString(create()).sandbox_config
            call(channel, "RunPodSandbox", cri.RunPodSandboxRequest(config=config).SerializeToString())
            wait_for(lambda: any(facts_line.decode_request(line).uid == "u" for line in asked), "the pod's line")
            call(channel, "CreateContainer", create())
            assert limit(made) == f"{EPC} 4096"


def test_pods_from_before_are_asked_for(tmp_path: Path) -> None:

    def lists(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        found = runtime(name, request, context)
        if name == "ListPodSandbox":
            listed = cri.ListPodSandboxResponse.FromString(found)
            listed.items[0].annotations.clear()
            return listed.SerializeToString()
        return found

    with answering(tmp_path / "run" / SOCKET, of_spec) as asked, node(tmp_path, lists) as (listen, made):
        wait_for(lambda: any(facts_line.decode_request(line).uid == "u" for line in asked), "the pod's line")
        update = cri.UpdateContainerResourcesRequest(container_id="c1").SerializeToString()

        def updated() -> bool:
            with client_of(listen) as channel:
                call(channel, "UpdateContainerResources", update)
            told = cri.UpdateContainerResourcesRequest.FromString(got(made, "UpdateContainerResources"))
            return dict(told.linux.unified) == {"misc.max": f"{EPC} 4096"}

        wait_for(updated, "an update with the spec's limit")
