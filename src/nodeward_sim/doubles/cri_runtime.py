"""The runtime double's CRI: the calls that kubelet's pods live by, on a real socket.

Exists so that the relay has a runtime behind it. Promises: what each call does is what the runtime double does by
itself, with no plugin; names, states, errors and lists are as containerd 2.4 has them, or 1.7 (tests/contract/cri);
stopping and removing are idempotent, as CRI wants them; every call that lists or changes something is told of with its
mark (`MARK`), once, however it ends, and one that has begun ends even where its caller is gone. Must not know the
relay.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from nodeward.contracts import cri_pb2 as cri
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcError, GrpcServer, Stream
from nodeward_sim.doubles.cri_shelf import NameTakenError, Pod, Shelf, container_name, pod_name
from nodeward_sim.doubles.runtime import SimContainer, SimPod, SimRuntime
from nodeward_sim.doubles.runtime_plugins import RuntimeRefusalError

SERVICE = "runtime.v1.RuntimeService"
IMAGE: Final = "localhost/nodeward/pause:1"
"""The one image that there is."""
MARK = re.compile(rb"\xfa\x7f\x10sim-([0-9]{12})")
"""Field 2047 of a request, which CRI does not have: the number that the client gave the call. Whoever passes a request
on has to pass on fields that he does not know."""
Answer = Callable[[bytes], Awaitable[bytes]]


class Shim(Protocol):
    """A runtime of VMs, which asks for itself when it is called."""

    async def started(self, config: cri.PodSandboxConfig) -> None:
        """A sandbox is to be made."""

    async def pulled(self, config: cri.PodSandboxConfig, image: str) -> str:
        """An image is pulled for that sandbox; the reference that the client is answered."""


@dataclass(frozen=True, slots=True)
class CriGeneration:
    """What a containerd serves of CRI."""

    runtime_version: str
    versions: tuple[str, ...]
    streams_lists: bool
    tells_each: bool
    """An event goes to each who listens; else to one of them, in turn."""
    taken: Code
    """Of a name that another sandbox or container holds."""
    stopped: Code
    """Of a container for a sandbox that was stopped."""


CRI_1_7 = CriGeneration("1.7.29", ("v1", "v1alpha2"), False, False, Code.UNKNOWN, Code.NOT_FOUND)
CRI_2_4 = CriGeneration("2.4.2", ("v1",), True, True, Code.FAILED_PRECONDITION, Code.UNKNOWN)


def marked(request: bytes, number: int) -> bytes:
    """The request with its mark."""
    return request + b"\xfa\x7f\x10sim-%012d" % number


class CriRuntime:
    """CRI of `runtime` at `path`. `told` hears of calls: the method, the request, and the answer."""

    def __init__(
        self,
        runtime: SimRuntime,
        path: Path,
        told: Callable[[str, bytes, bytes], None],
        generation: CriGeneration = CRI_2_4,
        shim: Shim | None = None,
    ) -> None:
        """With a `shim` any image can be pulled; else there is one and no registry."""
        self._runtime, self._path, self._told, self._generation = runtime, path, told, generation
        self._shim = shim
        self._shelf = Shelf(runtime, generation.tells_each)
        self._server: GrpcServer | None = None

    async def start(self) -> None:
        """Answers from now on."""
        server = GrpcServer(SERVICE, {**self._asked("v1"), **self._done()}, self._streams())
        server.also("runtime.v1.ImageService", self._images(), self._image_streams())
        if "v1alpha2" in self._generation.versions:
            server.also("runtime.v1alpha2.RuntimeService", {**self._asked("v1alpha2"), **self._done()})
            server.also("runtime.v1alpha2.ImageService", self._images())
        await server.start(str(self._path))
        self._server = server

    async def stop(self) -> None:
        """Stops answering; what runs goes on."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    # ---- the tables of methods

    def _asked(self, version: str) -> dict[str, Answer]:
        """Those that only ask."""

        async def who(_: bytes) -> bytes:
            said = self._generation.runtime_version
            return cri.VersionResponse(
                version="0.1.0", runtime_name="containerd", runtime_version=said, runtime_api_version=version
            ).SerializeToString()

        return {
            "Version": who,
            "Status": self._status,
            "PodSandboxStatus": self._pod_status,
            "ContainerStatus": self._container_status,
        }

    def _done(self) -> dict[str, Answer]:
        """Those that are told of."""
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
        return {name: self._noted(name, answer) for name, answer in calls.items()}

    def _streams(self) -> dict[str, Stream]:
        streams: dict[str, Stream] = {"GetContainerEvents": self._events}
        if self._generation.streams_lists:
            streams |= {"StreamPodSandboxes": self._stream_pods, "StreamContainers": self._stream_containers}
        return streams

    def _images(self) -> dict[str, Answer]:
        async def listed(_: bytes) -> bytes:
            return cri.ListImagesResponse(images=[_image()]).SerializeToString()

        async def status(request: bytes) -> bytes:
            asked = cri.ImageStatusRequest.FromString(request).image.image
            return cri.ImageStatusResponse(image=_image() if asked == IMAGE else None).SerializeToString()

        calls: dict[str, Answer] = {"ListImages": listed, "ImageStatus": status}
        return calls if self._shim is None else {**calls, "PullImage": self._noted("PullImage", self._pull)}

    def _image_streams(self) -> dict[str, Stream]:
        async def streamed(_: bytes) -> AsyncIterator[bytes]:
            yield cri.StreamImagesResponse(images=[_image()]).SerializeToString()

        return {"StreamImages": streamed} if self._generation.streams_lists else {}

    def _noted(self, name: str, answer: Answer) -> Answer:
        async def whole(request: bytes) -> bytes:
            made = b""
            try:
                made = await answer(request)
            except DecodeError as error:
                raise GrpcError(Code.INTERNAL, f"grpc: error unmarshalling request: {error}") from error
            except NameTakenError as error:
                raise GrpcError(self._generation.taken, str(error)) from error
            except RuntimeRefusalError as error:
                raise GrpcError(Code.UNKNOWN, str(error)) from error
            finally:
                self._shelf.look()
                self._told(name, request, made)
            return made

        async def called(request: bytes) -> bytes:
            return await asyncio.shield(asyncio.ensure_future(whole(request)))

        return called

    # ---- sandboxes

    async def _pull(self, request: bytes) -> bytes:
        asked = cri.PullImageRequest.FromString(request)
        assert self._shim is not None
        found = await self._shim.pulled(asked.sandbox_config, asked.image.image)
        return cri.PullImageResponse(image_ref=found).SerializeToString()

    async def _run_pod(self, request: bytes) -> bytes:
        config = cri.RunPodSandboxRequest.FromString(request).config
        named = config.metadata
        with self._shelf.reserved(pod_name(named)):
            if self._shim is not None:
                await self._shim.started(config)
            pod = SimPod(named.uid, named.name, named.namespace, config.annotations, config.labels)
            made = await self._runtime.run_pod(pod)
            self._shelf.put_pod(made, config)
        return cri.RunPodSandboxResponse(pod_sandbox_id=made).SerializeToString()

    async def _stop_pod(self, request: bytes) -> bytes:
        pod = self._shelf.find_pod(cri.StopPodSandboxRequest.FromString(request).pod_sandbox_id)
        if pod is not None:
            await self._runtime.stop_pod(pod.status.id)
            self._shelf.look()
            self._shelf.stopped(pod)
        return b""

    async def _remove_pod(self, request: bytes) -> bytes:
        pod = self._shelf.find_pod(cri.RemovePodSandboxRequest.FromString(request).pod_sandbox_id)
        if pod is not None:
            await self._runtime.remove_pod(pod.status.id)
        return b""

    async def _list_pods(self, request: bytes) -> bytes:
        wanted = cri.ListPodSandboxRequest.FromString(request).filter
        return cri.ListPodSandboxResponse(items=self._shelf.pods(wanted)).SerializeToString()

    async def _stream_pods(self, request: bytes) -> AsyncIterator[bytes]:
        found = self._shelf.pods(cri.StreamPodSandboxesRequest.FromString(request).filter)
        if found:
            yield cri.StreamPodSandboxesResponse(pod_sandboxes=found).SerializeToString()

    async def _pod_status(self, request: bytes) -> bytes:
        pod = self._pod(cri.PodSandboxStatusRequest.FromString(request).pod_sandbox_id)
        return cri.PodSandboxStatusResponse(status=pod.status).SerializeToString()

    def _pod(self, pod_id: str) -> Pod:
        found = self._shelf.find_pod(pod_id)
        if found is None:
            raise GrpcError(Code.NOT_FOUND, f"an error occurred when try to find sandbox: {pod_id}: not found")
        return found

    # ---- containers

    async def _create(self, request: bytes) -> bytes:
        asked = cri.CreateContainerRequest.FromString(request)
        pod = self._pod(asked.pod_sandbox_id)
        if pod.status.state != cri.SANDBOX_READY:
            raise GrpcError(self._generation.stopped, f"sandbox container {pod.status.id} is not running")
        if asked.config.image.image not in ("", IMAGE):
            raise GrpcError(Code.NOT_FOUND, f"failed to resolve image {asked.config.image.image!r}: not found")
        named = asked.config.metadata
        with self._shelf.reserved(container_name(named, pod.status.metadata)):
            wanted = SimContainer(named.name, unified=asked.config.linux.resources.unified)
            made = await self._runtime.create_container(pod.status.id, wanted)
            self._shelf.put_container(made, pod, asked.config)
        return cri.CreateContainerResponse(container_id=made).SerializeToString()

    async def _start(self, request: bytes) -> bytes:
        status = self._container(cri.StartContainerRequest.FromString(request).container_id)
        if status.state != cri.CONTAINER_CREATED:
            raise RuntimeRefusalError(f"container is in {cri.ContainerState.Name(status.state)} state")
        await self._runtime.start(status.id)
        return b""

    async def _stop(self, request: bytes) -> bytes:
        status = self._shelf.find_container(cri.StopContainerRequest.FromString(request).container_id)
        if status is not None:
            await self._runtime.stop(status.id)
        return b""

    async def _remove(self, request: bytes) -> bytes:
        status = self._shelf.find_container(cri.RemoveContainerRequest.FromString(request).container_id)
        if status is not None:
            await self._runtime.remove_container(status.id)
        return b""

    async def _update(self, request: bytes) -> bytes:
        asked = cri.UpdateContainerResourcesRequest.FromString(request)
        status = self._container(asked.container_id)
        await self._runtime.update_container(status.id, asked.linux.unified)
        status.resources.linux.MergeFrom(asked.linux)
        return b""

    async def _list_containers(self, request: bytes) -> bytes:
        wanted = cri.ListContainersRequest.FromString(request).filter
        return cri.ListContainersResponse(containers=self._shelf.containers(wanted)).SerializeToString()

    async def _stream_containers(self, request: bytes) -> AsyncIterator[bytes]:
        found = self._shelf.containers(cri.StreamContainersRequest.FromString(request).filter)
        if found:
            yield cri.StreamContainersResponse(containers=found).SerializeToString()

    async def _container_status(self, request: bytes) -> bytes:
        status = self._container(cri.ContainerStatusRequest.FromString(request).container_id)
        return cri.ContainerStatusResponse(status=status).SerializeToString()

    def _container(self, container_id: str) -> cri.ContainerStatus:
        found = self._shelf.find_container(container_id)
        if found is None:
            raise GrpcError(Code.NOT_FOUND, f"an error occurred when try to find container: {container_id}: not found")
        return found

    # ---- the runtime itself

    async def _status(self, _: bytes) -> bytes:
        answer = cri.StatusResponse()
        for name in ("RuntimeReady", "NetworkReady"):
            answer.status.conditions.add(type=name, status=True)
        return answer.SerializeToString()

    async def _events(self, _: bytes) -> AsyncIterator[bytes]:
        with self._shelf.listening() as heard:
            while True:
                yield (await heard.get()).SerializeToString()


def _image() -> cri.Image:
    return cri.Image(id=f"sha256:{'0' * 64}", repo_tags=[IMAGE], pinned=True)
