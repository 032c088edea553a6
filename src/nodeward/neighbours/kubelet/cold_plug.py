"""The cold-plug socket: kubelet's PodResources v1 for VM runtimes that boot a VM with its devices (Kata).

Kata asks `Get` before it boots a VM, and makes a CDI name of each `resource_name=device_id`; it does not look at DRA.
So the CDI names of DRA claims are filled in as devices, and what would fail the VM is left out
(features.podapi.devices, which is given). All else is handed through as kubelet tells it.

Promises: no device of another pod; a source that is absent, stale or contradicts another ends the call with the
reason, at most RETRY_S and an attempt after it began. The socket's file outlives the server: a runtime that finds none
boots the VM without its devices, and one that finds a file at which nobody listens fails. Must not judge whose a device
is.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from google.protobuf.message import Message

from nodeward.contracts import podresources_pb2 as pb
from nodeward.core.devices import ContainerNuma, DeviceKind, Evidence, Judged, MemoryBlock, PodNuma, Told
from nodeward.core.errors import NodewardError, WireError
from nodeward.core.text import printable
from nodeward.host.clock import Clock
from nodeward.host.hostfs import make_folders
from nodeward.neighbours.formats.protobuf import read
from nodeward.neighbours.kubelet.pod_resources import LIST
from nodeward.neighbours.kubelet.pods_api import Client
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcError, GrpcServer

log = logging.getLogger(__name__)
SERVICE = "v1.PodResourcesLister"
GET, ALLOCATABLE = f"/{SERVICE}/Get", f"/{SERVICE}/GetAllocatableResources"
CALL_S = 2.0
"""For one call of kubelet's."""
ATTEMPT_S = 4.0
"""For kubelet and the host's files together."""
RETRY_S, APART_S = 5.0, 0.25
"""So long a call is tried again, and so far apart: kubelet may not know a new pod yet, nor may we. Kata's runtime-rs
waits for ten seconds."""
MOST_DEVICES = 512
"""Of one pod, each CDI name counted."""
MAX_REQUEST = 16 * 1024
"""Bytes: a pod's name and namespace."""
MAX_NAME = 253
"""Characters of a pod's name or namespace."""
MOST_SAID = 1024
"""Lines of the log that are remembered, so that each is written once."""
_AGAIN = (Code.NOT_FOUND, Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED, Code.FAILED_PRECONDITION)
Judge = Callable[[str, str, Sequence[Told], Evidence], Judged]
"""Of the pod with this namespace and name."""
Look = Callable[[Collection[str]], Awaitable[Evidence]]
"""What the host's files say, with the CDI devices of these names."""


class Allocations:
    """What kubelet reports of pods, merged."""

    def __init__(self, connect: Callable[[], Client], look: Look, judge: Judge) -> None:
        self._connect, self._look, self._judge = connect, look, judge

    async def pod(self, namespace: str, name: str) -> tuple[pb.PodResources, Judged]:
        """One pod. GrpcError where it is not known, cannot be read, or is refused."""
        pod = await self._pod(namespace, name)
        if pod is None:
            raise GrpcError(Code.NOT_FOUND, f"kubelet knows no pod {name} in namespace {namespace}")
        if (pod.namespace, pod.name) != (namespace, name):
            raise GrpcError(Code.INTERNAL, "kubelet answered with another pod")
        ((_, judged),) = await self._judged((pod,))
        if judged.refused:
            raise GrpcError(Code.FAILED_PRECONDITION, judged.refused)
        return pod, judged

    async def pods(self) -> list[tuple[pb.PodResources, Judged]]:
        """Every pod; GrpcError as for one, but for pods that are refused."""
        answer = await self.ask(LIST, pb.ListPodResourcesRequest().SerializeToString())
        return await self._judged(_read(pb.ListPodResourcesResponse, answer).pod_resources)

    async def ask(self, method: str, request: bytes) -> bytes:
        """Kubelet's own answer."""
        client = self._connect()
        try:
            return await client.call(method, request, CALL_S)
        finally:
            await client.close()

    async def _pod(self, namespace: str, name: str) -> pb.PodResources | None:
        request = pb.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        try:
            answer = _read(pb.GetPodResourcesResponse, await self.ask(GET, request.SerializeToString()))
        except GrpcError as error:
            if error.code is Code.NOT_FOUND or (error.code is Code.UNKNOWN and "not found" in error.text):
                return None  # kubelet 1.37 has no status for it
            if error.code is not Code.UNIMPLEMENTED and not (error.code is Code.UNKNOWN and "disabled" in error.text):
                raise
        else:
            return answer.pod_resources if answer.HasField("pod_resources") else None
        listed = _read(pb.ListPodResourcesResponse, await self.ask(LIST, b"")).pod_resources
        named = [one for one in listed if (one.namespace, one.name) == (namespace, name)]
        if len(named) > 1:
            raise GrpcError(Code.FAILED_PRECONDITION, "kubelet lists two pods of this name")
        return named[0] if named else None

    async def _judged(self, pods: Sequence[pb.PodResources]) -> list[tuple[pb.PodResources, Judged]]:
        told = [tuple(told_of(pod)) for pod in pods]
        evidence = await self._look({name for some in told for one in some for name in one.names})
        return [
            (pod, self._judge(pod.namespace, pod.name, some, evidence) if _count(some) <= MOST_DEVICES else _TOO_MANY)
            for pod, some in zip(pods, told, strict=True)
        ]


class ColdPlug:
    """The socket's three methods."""

    def __init__(self, kubelet: Allocations, clock: Clock) -> None:
        self._kubelet, self._clock = kubelet, clock
        self._said: dict[str, None] = {}

    async def run(self, path: str, serving: Callable[[], None] = lambda: None) -> None:
        """Serves until cancelled. The file at `path` stays behind; one of an earlier life is replaced in one step, and
        `serving` called. ServerEndedError where a bad request has ended the server."""
        methods = {"Get": self._get, "List": self._list, "GetAllocatableResources": self._allocatable}
        server, fresh = GrpcServer(SERVICE, methods, max_request=MAX_REQUEST), f"{path}.new"
        try:
            make_folders(os.path.dirname(path))
            await server.start(fresh)
            os.rename(fresh, path)
            serving()
            await server.serve()
        finally:
            await server.stop()
            with suppress(FileNotFoundError):
                os.unlink(fresh)

    async def _get(self, request: bytes) -> bytes:
        asked = _read(pb.GetPodResourcesRequest, request, Code.INVALID_ARGUMENT)
        namespace, name = asked.pod_namespace, asked.pod_name
        if not all(0 < len(one) <= MAX_NAME and one.isprintable() for one in (namespace, name)):
            raise GrpcError(Code.INVALID_ARGUMENT, "pod_name and pod_namespace must be those of a pod")
        end_ns = self._clock.now_ns() + round(RETRY_S * 1e9)
        while True:
            try:
                pod, judged = await _bounded(self._kubelet.pod(namespace, name))
            except GrpcError as error:
                if error.code in _AGAIN and self._clock.now_ns() < end_ns:
                    await self._clock.sleep(APART_S)
                    continue
                self._say(f"cold-plug=refused pod={namespace}/{name} why={error.text!r}")
                raise
            self._say_left_out(judged, namespace, name)
            return pb.GetPodResourcesResponse(pod_resources=filled(pod, judged)).SerializeToString()

    async def _list(self, _: bytes) -> bytes:
        found: list[pb.PodResources] = []
        for pod, judged in await _bounded(self._kubelet.pods()):
            if judged.refused:
                self._say(f"cold-plug=unlisted pod={pod.namespace}/{pod.name} why={judged.refused!r}")
            else:
                found.append(filled(pod, judged))
        return pb.ListPodResourcesResponse(pod_resources=found).SerializeToString()

    async def _allocatable(self, request: bytes) -> bytes:
        return await self._kubelet.ask(ALLOCATABLE, request)

    def _say_left_out(self, judged: Judged, namespace: str, name: str) -> None:
        for one in judged.devices:
            if one.left_out and not one.name:  # else another name of it is handed on
                line = f"cold-plug=left-out resource={one.resource!r} why={one.left_out!r}"
                self._say(line, f" device={one.device!r} pod={namespace}/{name}", logging.INFO)

    def _say(self, line: str, beside: str = "", level: int = logging.WARNING) -> None:
        """Logs a line that was not logged yet, whatever stands beside it."""
        if line not in self._said:
            self._said[line] = None
            log.log(level, "%s", printable(f"{line}{beside}"))
        while len(self._said) > MOST_SAID:
            self._said.pop(next(iter(self._said)))


def told_of(pod: pb.PodResources) -> Iterator[Told]:
    """Every device of the pod."""
    for container in pod.containers:
        for some in container.devices:
            nodes = tuple(node.ID for node in some.topology.nodes)
            for one in some.device_ids:
                names = (f"{some.resource_name}={one}",)
                yield Told(container.name, DeviceKind.PLUGIN, some.resource_name, one, names, nodes)
        for claim in container.dynamic_resources:
            name = f"{claim.claim_namespace}/{claim.claim_name}"
            for part in claim.claim_resources:
                device = f"{part.driver_name}/{part.pool_name}/{part.device_name}"
                named = tuple(one.name for one in part.cdi_devices)
                yield Told(container.name, DeviceKind.DRA, name, device, named)


def _count(told: Sequence[Told]) -> int:
    return sum(max(1, len(one.names)) for one in told)


def filled(pod: pb.PodResources, judged: Judged) -> pb.PodResources:
    """The pod as a VM runtime gets it: its devices are what may be handed on, under their CDI names."""
    made = pb.PodResources()
    made.CopyFrom(pod)
    handed = judged.handed()
    numa = {one.name: one.numa for one in judged.devices}
    for container in made.containers:
        del container.devices[:]
        for name in handed.get(container.name, ()):
            kind, _, device = name.partition("=")
            one = container.devices.add(resource_name=kind, device_ids=[device])
            one.topology.nodes.extend(pb.NUMANode(ID=node) for node in numa[name])
    return made


def numa_of(pod: pb.PodResources, judged: Judged) -> PodNuma:
    """The NUMA nodes of its CPUs, memory and devices."""
    whole = _numa("", pod.cpu_ids, pod.memory)
    rows = (whole, *(_numa(one.name, one.cpu_ids, one.memory) for one in pod.containers))
    of_memory = {node for row in rows for block in row.memory for node in block.nodes}
    of_devices = {node for one in judged.devices for node in one.numa}
    return PodNuma(tuple(sorted(of_memory | of_devices)), tuple(row for row in rows if row.cpus or row.memory))


def _numa(name: str, cpus: Iterable[int], memory: Iterable[pb.ContainerMemory]) -> ContainerNuma:
    blocks = (MemoryBlock(one.memory_type, one.size, tuple(node.ID for node in one.topology.nodes)) for one in memory)
    return ContainerNuma(name, tuple(cpus), tuple(blocks))


_TOO_MANY = Judged(None, refused=f"it has more than {MOST_DEVICES} devices, which is the most that are read")
_M = TypeVar("_M", bound=Message)
_T = TypeVar("_T")


async def _bounded(asked: Awaitable[_T]) -> _T:
    """What kubelet and the host's files say, within ATTEMPT_S; GrpcError where they do not."""
    try:
        async with asyncio.timeout(ATTEMPT_S):
            return await asked
    except TimeoutError as error:
        text = f"kubelet and the host's files were not read within {ATTEMPT_S:g} s"
        raise GrpcError(Code.DEADLINE_EXCEEDED, text) from error
    except (NodewardError, OSError) as error:
        if isinstance(error, GrpcError):
            raise
        raise GrpcError(Code.UNAVAILABLE, f"the host's files cannot be read: {error}") from error


def _read(kind: type[_M], data: bytes, code: Code = Code.INTERNAL) -> _M:
    try:
        return read("PodResources", kind, data)
    except WireError as error:
        raise GrpcError(code, str(error)) from error
