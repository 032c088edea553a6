"""The ends of CRI's contract: the double in both its generations, and the containerds that they are made after."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from nodeward.contracts import cri_pb2 as cri
from nodeward_sim.doubles.cri_runtime import CRI_1_7, CRI_2_4, IMAGE, CriGeneration, CriRuntime
from nodeward_sim.doubles.runtime import SimRuntime
from tests.contract.kubelet.sides import Looped
from tests.patience import scaled
from tests.peers.containerd import NEWEST, OLD, Containerd, running_containerd

GENERATIONS = {"1.7": CRI_1_7, "2.4": CRI_2_4}
RELEASES = {"1.7": OLD, "2.4": NEWEST}
SIDES = tuple(f"{kind}-{release}" for release in GENERATIONS for kind in ("double", "containerd"))
"""Every end on which every case runs."""
CALL_S = scaled(60.0)
_M = TypeVar("_M", bound=Message)


class Client:
    def __init__(self, side: Side) -> None:
        local = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 200)]
        self.side = side
        self._channel = grpc.insecure_channel(f"unix:{side.socket}", options=local)

    def ask(self, path: str, request: Message | bytes, answer: type[_M]) -> _M:
        data = request if isinstance(request, bytes) else request.SerializeToString()
        said: bytes = self._channel.unary_unary(_path(path))(data, timeout=CALL_S)
        return answer.FromString(said)

    def refused(self, path: str, request: Message | bytes) -> str:
        try:
            self.ask(path, request, cri.StopContainerResponse)
        except grpc.RpcError as error:
            return code_of(error)
        return "OK"

    def streamed(self, path: str, request: Message, answer: type[_M]) -> list[_M]:
        stream = self._channel.unary_stream(_path(path))(request.SerializeToString(), timeout=CALL_S)
        return [answer.FromString(one) for one in stream]

    @contextmanager
    def events(self) -> Iterator[Heard]:
        call = self._channel.unary_stream(_path("GetContainerEvents"))(b"", timeout=CALL_S)
        heard = Heard()
        thread = threading.Thread(target=heard.follow, args=(call,), daemon=True)
        thread.start()
        yield heard
        call.cancel()
        thread.join(CALL_S)

    def close(self) -> None:
        self._channel.close()


def code_of(error: grpc.RpcError) -> str:
    return str(error.code().name) if isinstance(error, grpc.Call) else str(error)


class Heard:
    def __init__(self) -> None:
        self.all: list[cri.ContainerEventResponse] = []
        self.ended = ""

    def follow(self, call: Iterator[bytes]) -> None:
        try:
            for one in call:
                self.all.append(cri.ContainerEventResponse.FromString(one))
        except grpc.RpcError as error:
            self.ended = code_of(error)

    def kinds(self, about: str) -> list[str]:
        found = [one.container_event_type for one in self.all if one.container_id == about]
        return [cri.ContainerEventType.Name(one).removesuffix("_EVENT").removeprefix("CONTAINER_") for one in found]


def _path(path: str) -> str:
    return f"/runtime.{path}" if "/" in path else f"/runtime.v1.RuntimeService/{path}"


class DoubleSide(Looped):
    def __init__(self, folder: Path, generation: CriGeneration) -> None:
        self.generation, self.socket = generation, folder / "cri.sock"
        super().__init__()
        self._cri = self.do(self._made(folder))
        self.start()

    async def _made(self, folder: Path) -> CriRuntime:
        return CriRuntime(SimRuntime(folder / "nri.sock"), self.socket, lambda *_: None, self.generation)

    def parent(self) -> str:
        return "/kubepods"

    def logs(self) -> str:
        return ""

    def stop(self) -> None:
        self.do(self._cri.stop())

    def start(self) -> None:
        self.do(self._cri.start())

    def close(self) -> None:
        self.stop()
        super().close()


class RealSide:
    def __init__(self, daemon: Containerd, generation: CriGeneration) -> None:
        self._daemon = daemon
        self.generation, self.socket = generation, daemon.cri_socket

    def parent(self) -> str:
        return self._daemon.cgroup_parent

    def logs(self) -> str:
        return str(self._daemon.folder / "logs")

    def stop(self) -> None:
        self._daemon.stop()

    def start(self) -> None:
        self._daemon.start()


Side = DoubleSide | RealSide


def pod(side: Side, name: str, attempt: int = 0) -> cri.PodSandboxConfig:
    made = cri.PodSandboxConfig(log_directory=side.logs(), labels={"app": name}, annotations={"noted": f"of {name}"})
    made.metadata.CopyFrom(cri.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default", attempt=attempt))
    made.linux.cgroup_parent = f"{side.parent()}/pod{name}"
    made.linux.security_context.namespace_options.network = cri.NODE
    return made


def container(name: str, attempt: int = 0) -> cri.ContainerConfig:
    made = cri.ContainerConfig(command=["/pause"], labels={"part": name}, annotations={"noted": f"of {name}"})
    made.metadata.CopyFrom(cri.ContainerMetadata(name=name, attempt=attempt))
    made.image.image, made.log_path = IMAGE, f"{name}.log"
    made.linux.resources.cpu_shares = 10
    return made


def run_pod(client: Client, name: str, attempt: int = 0) -> str:
    request = cri.RunPodSandboxRequest(config=pod(client.side, name, attempt))
    return client.ask("RunPodSandbox", request, cri.RunPodSandboxResponse).pod_sandbox_id


def creation(client: Client, pod_id: str, of_pod: str, name: str, attempt: int = 0) -> cri.CreateContainerRequest:
    return cri.CreateContainerRequest(
        pod_sandbox_id=pod_id, config=container(name, attempt), sandbox_config=pod(client.side, of_pod)
    )


def create(client: Client, pod_id: str, of_pod: str, name: str = "app", attempt: int = 0) -> str:
    request = creation(client, pod_id, of_pod, name, attempt)
    return client.ask("CreateContainer", request, cri.CreateContainerResponse).container_id


def start(client: Client, container_id: str) -> None:
    client.ask("StartContainer", cri.StartContainerRequest(container_id=container_id), cri.StartContainerResponse)


def stop(client: Client, container_id: str) -> None:
    client.ask("StopContainer", cri.StopContainerRequest(container_id=container_id), cri.StopContainerResponse)


def pods(client: Client, wanted: cri.PodSandboxFilter | None = None) -> list[cri.PodSandbox]:
    request = cri.ListPodSandboxRequest(filter=wanted)
    return list(client.ask("ListPodSandbox", request, cri.ListPodSandboxResponse).items)


def containers(client: Client, wanted: cri.ContainerFilter | None = None) -> list[cri.Container]:
    request = cri.ListContainersRequest(filter=wanted)
    return list(client.ask("ListContainers", request, cri.ListContainersResponse).containers)


def remove_all(client: Client) -> None:
    for one in pods(client):
        client.ask("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=one.id), cri.StopPodSandboxResponse)
        for inner in containers(client, cri.ContainerFilter(pod_sandbox_id=one.id)):
            request = cri.RemoveContainerRequest(container_id=inner.id)
            client.ask("RemoveContainer", request, cri.RemoveContainerResponse)
        client.ask("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=one.id), cri.RemovePodSandboxResponse)


def within(client: Client, path: str, request: Message | bytes, until: str) -> None:
    end = time.monotonic() + CALL_S
    while (said := client.refused(path, request)) != until:
        assert time.monotonic() < end, f"{path} ends with {said}, not with {until}"
        time.sleep(0.05)


@contextmanager
def opened(side: str) -> Iterator[Side]:
    kind, _, release = side.rpartition("-")
    generation = GENERATIONS[release]
    with tempfile.TemporaryDirectory(prefix="cri") as folder:
        if kind == "containerd":
            with running_containerd(Path(folder), release=RELEASES[release]) as daemon:
                yield RealSide(daemon, generation)
            return
        with contextlib.closing(DoubleSide(Path(folder), generation)) as double:
            yield double
