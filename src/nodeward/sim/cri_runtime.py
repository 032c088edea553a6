"""The runtime double's CRI: the calls that kubelet's pods live by, on a real socket.

Exists so that the relay has a runtime behind it. Promises: what each call does is what the runtime double does by
itself, with no plugin; stopping and removing are idempotent, as CRI wants them; every call is told of with its mark
(`MARK`), once, however it ends, and a call that has begun ends even where its caller is gone. Must not know the relay.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from nodeward.proto import cri_pb2 as cri
from nodeward.proto import nri_pb2
from nodeward.sim.runtime import SimContainer, SimPod, SimRuntime
from nodeward.sim.runtime_plugins import RuntimeRefusalError
from nodeward.transport.grpc_unix import Code, GrpcError, GrpcServer

SERVICE = "runtime.v1.RuntimeService"
MARK = re.compile(rb"\xfa\x7f\x10sim-([0-9]{12})")
"""Field 2047 of a request, which CRI does not have: the number that the client gave the call. Whoever passes a request
on has to pass on fields that he does not know."""
_STATES = {nri_pb2.CONTAINER_CREATED: cri.CONTAINER_CREATED, nri_pb2.CONTAINER_RUNNING: cri.CONTAINER_RUNNING}
Answer = Callable[[bytes], Awaitable[bytes]]


def marked(request: bytes, number: int) -> bytes:
    """The request with its mark."""
    return request + b"\xfa\x7f\x10sim-%012d" % number


class CriRuntime:
    """CRI of `runtime` at `path`. `told` hears of each call: its method, the request, and the answer."""

    def __init__(self, runtime: SimRuntime, path: Path, told: Callable[[str, bytes, bytes], None]) -> None:
        self._runtime, self._path, self._told = runtime, path, told
        self._server: GrpcServer | None = None

    async def start(self) -> None:
        """Answers from now on."""
        calls: dict[str, Answer] = {
            "RunPodSandbox": self._run_pod,
            "StopPodSandbox": self._stop_pod,
            "RemovePodSandbox": self._remove_pod,
            "ListPodSandbox": self._list_pods,
            "CreateContainer": self._create,
            "StartContainer": self._start,
            "StopContainer": self._stop,
            "RemoveContainer": self._remove,
            "ListContainers": self._list_containers,
            "UpdateContainerResources": self._update,
        }
        self._server = GrpcServer(SERVICE, {name: self._noted(name, answer) for name, answer in calls.items()})
        await self._server.start(str(self._path))

    async def stop(self) -> None:
        """Answers nobody; what runs goes on."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def _noted(self, name: str, answer: Answer) -> Answer:
        async def whole(request: bytes) -> bytes:
            try:
                made = await answer(request)
            except RuntimeRefusalError as error:
                self._told(name, request, b"")
                raise GrpcError(Code.UNKNOWN, str(error)) from error
            self._told(name, request, made)
            return made

        async def called(request: bytes) -> bytes:
            return await asyncio.shield(asyncio.ensure_future(whole(request)))

        return called

    # ---- sandboxes

    async def _run_pod(self, request: bytes) -> bytes:
        config = cri.RunPodSandboxRequest.FromString(request).config
        named = config.metadata
        pod = SimPod(named.uid, named.name, named.namespace, config.annotations, config.labels)
        return cri.RunPodSandboxResponse(pod_sandbox_id=await self._runtime.run_pod(pod)).SerializeToString()

    async def _stop_pod(self, request: bytes) -> bytes:
        pod_id = cri.StopPodSandboxRequest.FromString(request).pod_sandbox_id
        if any(pod.id == pod_id for pod in self._runtime.pods()):
            await self._runtime.stop_pod(pod_id)
        return b""

    async def _remove_pod(self, request: bytes) -> bytes:
        pod_id = cri.RemovePodSandboxRequest.FromString(request).pod_sandbox_id
        if any(pod.id == pod_id for pod in self._runtime.pods()):
            await self._runtime.remove_pod(pod_id)
        return b""

    async def _list_pods(self, request: bytes) -> bytes:
        answer = cri.ListPodSandboxResponse()
        for pod in self._runtime.pods():
            metadata = cri.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace=pod.namespace)
            answer.items.add(id=pod.id, metadata=metadata, annotations=dict(pod.annotations))
        return answer.SerializeToString()

    # ---- containers

    async def _create(self, request: bytes) -> bytes:
        asked = cri.CreateContainerRequest.FromString(request)
        if not any(pod.id == asked.pod_sandbox_id for pod in self._runtime.pods()):
            raise GrpcError(Code.NOT_FOUND, f"sandbox {asked.pod_sandbox_id} is not there")
        wanted = SimContainer(asked.config.metadata.name, unified=asked.config.linux.resources.unified)
        made = await self._runtime.create_container(asked.pod_sandbox_id, wanted)
        return cri.CreateContainerResponse(container_id=made).SerializeToString()

    async def _start(self, request: bytes) -> bytes:
        container_id = cri.StartContainerRequest.FromString(request).container_id
        if self._state(container_id) != nri_pb2.CONTAINER_CREATED:
            raise GrpcError(Code.FAILED_PRECONDITION, f"container {container_id} is not in state created")
        await self._runtime.start(container_id)
        return b""

    async def _stop(self, request: bytes) -> bytes:
        container_id = cri.StopContainerRequest.FromString(request).container_id
        if self._state(container_id) is not None:
            await self._runtime.stop(container_id)
        return b""

    async def _remove(self, request: bytes) -> bytes:
        container_id = cri.RemoveContainerRequest.FromString(request).container_id
        if self._state(container_id) is not None:
            await self._runtime.remove_container(container_id)
        return b""

    async def _update(self, request: bytes) -> bytes:
        asked = cri.UpdateContainerResourcesRequest.FromString(request)
        if self._state(asked.container_id) is None:
            raise GrpcError(Code.NOT_FOUND, f"container {asked.container_id} is not there")
        await self._runtime.update_container(asked.container_id, asked.linux.unified)
        return b""

    async def _list_containers(self, request: bytes) -> bytes:
        answer = cri.ListContainersResponse()
        for one in self._runtime.containers():
            metadata = cri.ContainerMetadata(name=one.name)
            state = _STATES.get(one.state, cri.CONTAINER_EXITED)
            answer.containers.add(id=one.id, pod_sandbox_id=one.pod_sandbox_id, metadata=metadata, state=state)
        return answer.SerializeToString()

    def _state(self, container_id: str) -> int | None:
        return next((one.state for one in self._runtime.containers() if one.id == container_id), None)
