"""Kubelet's device manager in one process: the double that tests and the simulated node register device plugins with.

Promises what kubelet 1.37 does, and `tests/contract/kubelet` checks on both: a registration is answered once the plugin
was called back; the last to register is asked, while of all that have the name the newest list counts; a list is whole,
and where the last one's ends every id is unhealthy; ids are chosen of the healthy ones that no pod has, as the plugin
likes them; a refused Allocate fails the pod for good, a refused PreStartContainer is tried again; what pods have is in
the checkpoint, with its checksum, and is known again after a restart, which takes every socket away first; what a pod
that has ended had is free at the next admission.

Must not: schedule, run containers, or know more of a pod than how many ids each container asks for.
"""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from nodeward.contracts import deviceplugin_pb2 as protocol
from nodeward.core.errors import WireError
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.kubelet import checkpoint_file
from nodeward.neighbours.kubelet.checkpoint_file import Data, Entry, File
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcClient, GrpcError, GrpcServer

VERSION = "v1beta1"
PLUGIN = f"/{VERSION}.DevicePlugin"
GRACE_NS = 5 * 60 * 1_000_000_000
"""So long a resource whose plugin has ended stays in the node's capacity."""
CALL_S = 10.0
START_S = 30.0
_Ids = dict[str, None]
_CODES = {Code.RESOURCE_EXHAUSTED: "ResourceExhausted", Code.UNAVAILABLE: "Unavailable"}


class AdmissionError(Exception):
    """The pod has failed, with kubelet's words."""


@dataclass(frozen=True, slots=True)
class Asks:
    """How many ids of one resource a container asks for."""

    name: str
    count: int = 1
    init: bool = False


@dataclass(eq=False, slots=True)
class _Endpoint:
    """A plugin that has registered, or has ended since `ended_ns`."""

    client: GrpcClient | None
    options: protocol.DevicePluginOptions
    ended_ns: int | None = None
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Had:
    """What a container was given of a resource."""

    ids: tuple[str, ...]
    answer: bytes


@dataclass(slots=True)
class _Manager:
    """What is lost at a restart."""

    endpoints: dict[str, _Endpoint] = field(default_factory=dict)
    replaced: list[_Endpoint] = field(default_factory=list)
    """Those whose name another one has by now."""
    healthy: dict[str, dict[str, None]] = field(default_factory=dict)
    unhealthy: dict[str, dict[str, None]] = field(default_factory=dict)
    pods: dict[str, dict[tuple[str, str], _Had]] = field(default_factory=dict)
    """By UID, then container and resource; pods that have ended too, until the next admission."""


class SimKubelet:
    """The double. Its sockets are real ones in `folder`; the checkpoint is written through `files`."""

    def __init__(self, folder: str, files: HostFiles, clock: Clock) -> None:
        self.folder = f"{folder.rstrip('/')}/device-plugins"
        self._checkpoint = f"{folder.rstrip('/')}/{checkpoint_file.PLACE}"
        self._files, self._clock = files, clock
        self._manager = _Manager()
        self._server: GrpcServer | None = None
        self._active: dict[str, tuple[Asks, ...]] = {}
        self.lists: list[tuple[str, int, int]] = []
        """Of every list that came: resource, ids, healthy ones."""
        self.refuses = ""
        """What every registration is refused with; empty for none."""
        self.heard: Callable[[str, _Ids, _Ids], tuple[_Ids, _Ids]] = lambda _, healthy, unhealthy: (healthy, unhealthy)
        """What each list is taken for: the resource, its healthy and its unhealthy ids."""

    @property
    def socket(self) -> str:
        """The socket at which plugins register."""
        return f"{self.folder}/kubelet.sock"

    async def start(self) -> None:
        """Begins, as after a reboot or a restart: the sockets of plugins vanish, and the checkpoint is read."""
        os.makedirs(self.folder, mode=0o750, exist_ok=True)
        for name in os.listdir(self.folder):
            path = f"{self.folder}/{name}"
            with contextlib.suppress(FileNotFoundError):  # a plugin that ends takes its own away meanwhile
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    os.unlink(path)
        self._manager = _Manager()
        self._read_checkpoint()
        self._server = GrpcServer(f"{VERSION}.Registration", {"Register": self._register})
        await self._server.start(self.socket)

    async def stop(self) -> None:
        """Ends in good order: its socket goes."""
        server, self._server = self._server, None
        for endpoint in (*self._manager.endpoints.values(), *self._manager.replaced):
            await _close(endpoint)
        if server is not None:
            await server.stop()

    async def kill(self) -> None:
        """Ends as by kill -9: its socket stays, and nobody listens there."""
        await self.stop()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(self.socket)

    def capacity(self, resource: str) -> tuple[int, int] | None:
        """What the node's status says: capacity and allocatable; None where the resource is not there."""
        manager, now_ns = self._manager, self._clock.now_ns()
        endpoint = manager.endpoints.get(resource)
        if endpoint is None:
            return None
        if endpoint.ended_ns is not None and now_ns - endpoint.ended_ns > GRACE_NS:
            for table in (manager.endpoints, manager.healthy, manager.unhealthy):
                table.pop(resource, None)
            self._write_checkpoint()
            return None
        healthy = len(manager.healthy.get(resource, {}))
        return healthy + len(manager.unhealthy.get(resource, {})), healthy

    async def admit(self, uid: str, resource: str, containers: Sequence[Asks]) -> None:
        """A pod comes; AdmissionError where it has failed, after which it is not tried again."""
        for ended in [one for one in self._manager.pods if one not in self._active]:
            del self._manager.pods[ended]
        self._active[uid] = tuple(containers)
        reuse: dict[str, None] = {}
        try:
            for one in sorted(containers, key=lambda asks: not asks.init):
                had = self._manager.pods.get(uid, {}).get((one.name, resource))
                if had is None and one.count:
                    had = await self._allocate(uid, one, resource, reuse)
                for name in had.ids if had is not None else ():
                    if one.init:
                        reuse[name] = None
                    else:
                        reuse.pop(name, None)
        except AdmissionError:
            self._active.pop(uid, None)
            raise
        self._write_checkpoint()

    async def start_container(self, uid: str, name: str) -> str:
        """Starts one; why kubelet could not, after which it tries again, or nothing."""
        for (container, resource), had in self._manager.pods.get(uid, {}).items():
            endpoint = self._manager.endpoints.get(resource)
            if container != name or endpoint is None or not endpoint.options.pre_start_required:
                continue
            request = protocol.PreStartContainerRequest(devices_ids=had.ids)
            try:
                await self._call(endpoint, "PreStartContainer", request.SerializeToString(), START_S)
            except GrpcError as error:
                return f"device plugin PreStartContainer rpc failed with err: {_go(error)}"
        return ""

    def end(self, uid: str) -> None:
        """The pod has ended. What it had is in the checkpoint until the next admission."""
        self._active.pop(uid, None)

    def held(self, uid: str, resource: str) -> tuple[str, ...]:
        """The ids that the pod has, each once."""
        pod = self._manager.pods.get(uid, {})
        return tuple(dict.fromkeys(name for (_, kind), had in pod.items() if kind == resource for name in had.ids))

    def had(self, uid: str, container: str) -> dict[str, tuple[str, ...]]:
        """The ids that one container of the pod has, by resource."""
        pod = self._manager.pods.get(uid, {})
        return {resource: had.ids for (name, resource), had in pod.items() if name == container}

    def answers(self, uid: str, container: str) -> list[protocol.ContainerAllocateResponse]:
        """What plugins answered for one container of the pod."""
        pod = self._manager.pods.get(uid, {})
        answers = [had.answer for (name, _), had in pod.items() if name == container]
        return [protocol.ContainerAllocateResponse.FromString(one) for one in answers]

    async def drop(self, resource: str) -> None:
        """Ends a plugin's stream, as kubelets before 1.35 do when an old instance of it ends."""
        endpoint = self._manager.endpoints[resource]
        if endpoint.task is not None:
            endpoint.task.cancel()
            await asyncio.gather(endpoint.task, return_exceptions=True)

    # ---- registration ------------------------------------------------------------------------------------------------

    async def _register(self, request: bytes) -> bytes:
        asked = protocol.RegisterRequest.FromString(request)
        why = self.refuses or _unfit(asked)
        if why:
            raise GrpcError(Code.UNKNOWN, why)
        client = GrpcClient(f"{self.folder}/{asked.endpoint}")
        try:
            answer = await client.call(f"{PLUGIN}/GetDevicePluginOptions", b"", CALL_S)
            endpoint = _Endpoint(client, protocol.DevicePluginOptions.FromString(answer))
        except GrpcError as error:
            await client.close()
            raise GrpcError(Code.UNKNOWN, f"failed to dial device plugin: {error.text}") from error
        old = self._manager.endpoints.get(asked.resource_name)
        self._manager.endpoints[asked.resource_name] = endpoint
        if old is not None:
            self._manager.replaced.append(old)  # its lists are read on
        endpoint.task = asyncio.create_task(self._listen(asked.resource_name, endpoint, client, self._manager))
        return b""

    async def _listen(self, resource: str, endpoint: _Endpoint, client: GrpcClient, manager: _Manager) -> None:
        try:
            async for message in client.stream(f"{PLUGIN}/ListAndWatch", b""):
                told = protocol.ListAndWatchResponse.FromString(message).devices
                healthy = {one.ID: None for one in told if one.health == "Healthy"}
                unhealthy = {one.ID: None for one in told if one.health != "Healthy"}
                manager.healthy[resource], manager.unhealthy[resource] = self.heard(resource, healthy, unhealthy)
                self.lists.append((resource, len(told), len(manager.healthy[resource])))
                self._write_checkpoint()
        except GrpcError:
            pass
        finally:
            if manager.endpoints.get(resource) is endpoint:
                endpoint.ended_ns = self._clock.now_ns()
                sick = manager.unhealthy.setdefault(resource, {})
                sick.update(manager.healthy.get(resource, {}))
                manager.healthy[resource] = {}

    # ---- admission ---------------------------------------------------------------------------------------------------

    async def _allocate(self, uid: str, asks: Asks, resource: str, reuse: Mapping[str, None]) -> _Had:
        ids = await self._chosen(asks, resource, reuse)
        endpoint = self._manager.endpoints[resource]
        request = protocol.AllocateRequest(container_requests=[protocol.ContainerAllocateRequest(devices_ids=ids)])
        try:
            answer = await self._call(endpoint, "Allocate", request.SerializeToString(), None)
        except GrpcError as error:
            raise AdmissionError(f"Allocate failed due to {_go(error)}, which is unexpected") from error
        responses = protocol.AllocateResponse.FromString(answer).container_responses
        if not responses:
            raise AdmissionError("no containers return in allocation response")
        had = _Had(tuple(ids), responses[0].SerializeToString())
        self._manager.pods.setdefault(uid, {})[asks.name, resource] = had
        return had

    async def _chosen(self, asks: Asks, resource: str, reuse: Mapping[str, None]) -> list[str]:
        manager = self._manager
        if resource not in manager.healthy:
            raise AdmissionError(_unexpected(f"cannot allocate unregistered device {resource}"))
        if not manager.healthy[resource]:
            raise AdmissionError(
                _unexpected(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
            )
        ids = list(reuse)[: asks.count]
        given = [
            name
            for pod in manager.pods.values()
            for (_, kind), had in pod.items()
            if kind == resource
            for name in had.ids
        ]
        free = [name for name in manager.healthy[resource] if name not in given and name not in ids]
        needed = asks.count - len(ids)
        if needed > len(free):
            raise AdmissionError(
                _unexpected(
                    f"requested number of devices unavailable for {resource}. Requested: {needed}, "
                    f"Available: {len(free)}"
                )
            )
        liked = await self._liked([*ids, *free], ids, asks.count, resource) if needed else ids
        return [*ids, *[name for name in (*liked, *free) if name not in ids]][: asks.count]

    async def _liked(self, available: Sequence[str], must: Sequence[str], size: int, resource: str) -> list[str]:
        endpoint = self._manager.endpoints[resource]
        if not endpoint.options.get_preferred_allocation_available:
            return []
        one = protocol.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        request = protocol.PreferredAllocationRequest(container_requests=[one])
        try:
            answer = await self._call(endpoint, "GetPreferredAllocation", request.SerializeToString(), None)
        except GrpcError as error:
            raise AdmissionError(f"Allocate failed due to {_go(error)}, which is unexpected") from error
        responses = protocol.PreferredAllocationResponse.FromString(answer).container_responses
        return [name for name in (responses[0].deviceIDs if responses else ()) if name in available]

    async def _call(self, endpoint: _Endpoint, method: str, request: bytes, timeout_s: float | None) -> bytes:
        if endpoint.client is None or endpoint.ended_ns is not None:
            raise GrpcError(Code.UNKNOWN, "endpoint has been stopped")
        return await endpoint.client.call(f"{PLUGIN}/{method}", request, timeout_s or 4 * START_S)

    # ---- the checkpoint ----------------------------------------------------------------------------------------------

    def _write_checkpoint(self) -> None:
        entries = tuple(
            Entry(uid, container, resource, {-1: had.ids}, had.answer)
            for uid, pod in self._manager.pods.items()
            for (container, resource), had in pod.items()
        )
        data = Data(entries or None, {name: tuple(ids) for name, ids in self._manager.healthy.items()})
        file = File(data, checkpoint_file.checksum(data))
        self._files.replace(self._checkpoint, msgspec.json.encode(file))

    def _read_checkpoint(self) -> None:
        try:
            data = self._files.read(self._checkpoint, checkpoint_file.MAX_BYTES)
            found = msgspec.json.decode(data, type=File)
        except (OSError, WireError, msgspec.DecodeError):
            return
        if found.checksum != checkpoint_file.checksum(found.data):
            return
        for one in found.data.entries or ():
            table = one.ids if isinstance(one.ids, dict) else {}
            ids = tuple(name for names in table.values() for name in names or ())
            self._manager.pods.setdefault(one.pod_uid, {})[one.container, one.resource] = _Had(ids, one.answer or b"")
        for resource in found.data.registered or {}:
            self._manager.healthy[resource], self._manager.unhealthy[resource] = {}, {}
            self._manager.endpoints[resource] = _Endpoint(None, protocol.DevicePluginOptions(), self._clock.now_ns())


async def _close(endpoint: _Endpoint) -> None:
    if endpoint.task is not None:
        endpoint.task.cancel()
        await asyncio.gather(endpoint.task, return_exceptions=True)
    if endpoint.client is not None:
        await endpoint.client.close()


def _unfit(asked: protocol.RegisterRequest) -> str:
    if asked.version != VERSION:
        return f"requested API version {asked.version!r} is not supported by kubelet. Supported version is {VERSION!r}"
    domain, _, name = asked.resource_name.partition("/")
    if not name or len(name) > 63 or domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        return f"the ResourceName {asked.resource_name!r} is invalid"
    return ""


def _unexpected(why: str) -> str:
    return f"Allocate failed due to {why}, which is unexpected"


def _go(error: GrpcError) -> str:
    """As Go prints a status."""
    name = _CODES.get(error.code, error.code.value.title().replace("_", ""))
    return f"rpc error: code = {name} desc = {error.text}"
