"""Kubelet's manager of claims in one process: the double that drivers of Dynamic Resource Allocation register with.

Promises what kubelet 1.37 does, and `tests/contract/drivers` checks on both: a new socket in plugins_registry is asked
who it is and has one second to answer, later ever more seldom; of two instances of a driver the newest is called; a pod
is prepared only where each driver of its claims is registered; claims and pod are in the checkpoint before a driver is
asked, and what the driver has answered after it; a claim that is prepared is not prepared again before a restart; a
claim is taken back when the last pod that has it has ended, and a driver that refuses is asked again; the slices of the
node are deleted at a start, and a driver's after its last connection has been gone for a while.

Must not: schedule, or free a claim; that is the API server's and the controllers' part.
"""

import asyncio
import contextlib
import json
import os
import socket
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nodeward.contracts import dra_pb2 as protocol
from nodeward.contracts import pluginregistration_pb2 as registration
from nodeward.core.errors import WireError
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.formats import kubelet_claims
from nodeward.neighbours.sockets.grpc_unix import GrpcClient, GrpcError

REGISTRATION = "/pluginregistration.Registration"
SERVICES = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1",
}
INFO_S, NOTIFY_S, CALL_S = 1.0, 5.0, 45.0
LOOK_S = 0.1
"""Between two looks at the folder; kubelet is told of changes, and looks once a second."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 122.0
WIPE_S = 30.0
_Socket = tuple[str, int, int]
"""Path, inode and time of a socket: one that is made anew is another one."""


class PrepareError(Exception):
    """The pod's claims are not prepared, with kubelet's words; it is tried again."""


@dataclass(frozen=True, slots=True)
class KubeClaim:
    """A claim of a pod: which drivers have devices of it, as its allocation says."""

    namespace: str
    name: str
    uid: str
    drivers: tuple[str, ...]


@dataclass(eq=False, slots=True)
class _Plugin:
    """An instance of a driver that has registered at this socket."""

    driver: str
    service: str
    endpoint: str
    client: GrpcClient


@dataclass(slots=True)
class _Tried:
    """A socket that was not taken: when it is asked again, and after how long the time after that."""

    at_ns: int
    pause_s: float


@dataclass(slots=True)
class _Known:
    """A claim in the cache. `prepared` is lost at a restart, what drivers have answered is not."""

    claim: KubeClaim
    pods: dict[str, None] = field(default_factory=dict)
    answers: dict[str, list[protocol.Device]] = field(default_factory=dict)
    prepared: bool = False


class SimClaims:
    """The double. Sockets are real ones in `folder`; the checkpoint is written through `files`. `wipe` deletes the
    slices of this node: a driver's, or with an empty name all."""

    def __init__(self, folder: str, files: HostFiles, clock: Clock, wipe: Callable[[str], None]) -> None:
        self._root = folder.rstrip("/")
        self.registry = f"{self._root}/plugins_registry"
        self._checkpoint = f"{self._root}/{kubelet_claims.PLACE}"
        self._files, self._clock, self._wipe = files, clock, wipe
        self._plugins: dict[_Socket, _Plugin] = {}
        """In the order in which they have registered."""
        self._tried: dict[_Socket, _Tried] = {}
        self._gone_ns: dict[str, int] = {}
        """Drivers of which no instance is connected, and since when."""
        self._claims: dict[str, _Known] = {}
        self._task: asyncio.Task[None] | None = None
        self.refused: list[str] = []
        """Why sockets were not taken."""

    async def start(self) -> None:
        """Begins, as after a reboot or a restart: the slices of the node go, and the checkpoint is read."""
        os.makedirs(self.registry, mode=0o750, exist_ok=True)
        self._claims = {known.claim.uid: known for known in self._read()}
        self._wipe("")
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Ends; to a driver a good end and a kill are the same."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for plugin in self._plugins.values():
            await plugin.client.close()
        self._plugins.clear()
        self._tried.clear()
        self._gone_ns.clear()

    def registered(self, driver: str) -> bool:
        """Whether an instance of the driver has registered."""
        return any(one.driver == driver for one in self._plugins.values())

    def held(self) -> list[str]:
        """The UIDs of the claims in the cache."""
        return list(self._claims)

    async def prepare(self, pod: str, claims: Sequence[KubeClaim]) -> list[str]:
        """The claims of a pod whose sandbox is to be made; the CDI names that its containers get. PrepareError where
        the pod has to wait."""
        for claim in claims:
            for driver in claim.drivers:
                if not self.registered(driver):
                    raise PrepareError(f"DRA driver {driver} is not registered")
            before = next((one for one in self._claims.values() if _title(one.claim) == _title(claim)), None)
            if before is not None and before.claim.uid != claim.uid:
                raise PrepareError(f"old ResourceClaim with same name {_title(claim)} and different UID is still known")
        for claim in claims:
            self._claims.setdefault(claim.uid, _Known(claim)).pods[pod] = None
        self._write()
        asked = [self._claims[claim.uid] for claim in claims if not self._claims[claim.uid].prepared]
        for driver in dict.fromkeys(name for one in asked for name in one.claim.drivers):
            await self._prepare(driver, [one for one in asked if driver in one.claim.drivers])
        for one in asked:
            one.prepared = True
        return [name for claim in claims for name in self._names(claim.uid)]

    async def unprepare(self, pod: str) -> str:
        """The pod's containers have ended; why its claims are not taken back, after which kubelet tries again, or
        nothing."""
        last = [one for one in self._claims.values() if list(one.pods) == [pod]]
        for driver in dict.fromkeys(name for one in last for name in one.claim.drivers):
            of = [one.claim for one in last if driver in one.claim.drivers]
            try:
                answer = await self._call(driver, "NodeUnprepareResources", of)
            except (GrpcError, PrepareError) as error:
                return f"unprepare dynamic resources: {error}"
            told = protocol.NodeUnprepareResourcesResponse.FromString(answer).claims
            for claim in of:
                if claim.uid not in told or told[claim.uid].error:
                    return f"unprepare of {_title(claim)}: {told[claim.uid].error or 'no answer'}"
        for one in list(self._claims.values()):
            if one.pods.pop(pod, ()) is None and not one.pods:
                del self._claims[one.claim.uid]
        self._write()
        return ""

    # ---- claims ------------------------------------------------------------------------------------------------------

    async def _prepare(self, driver: str, known: Sequence[_Known]) -> None:
        claims = [one.claim for one in known]
        try:
            answer = await self._call(driver, "NodePrepareResources", claims)
        except GrpcError as error:
            raise PrepareError(f"NodePrepareResources: {error}") from error
        told = protocol.NodePrepareResourcesResponse.FromString(answer).claims
        for uid, found in told.items():
            if uid not in [claim.uid for claim in claims]:
                raise PrepareError(f"{driver} answered for the claim {uid}, which it was not asked about")
            if found.error:
                raise PrepareError(f"NodePrepareResources failed for ResourceClaim {self._title(uid)}: {found.error}")
            self._claims[uid].answers[driver] = list(found.devices)
        self._write()
        if len(told) < len(claims):
            raise PrepareError(f"{driver} answered for {len(told)} of {len(claims)} claims")

    async def _call(self, driver: str, method: str, claims: Sequence[KubeClaim]) -> bytes:
        plugin = next((one for one in reversed(self._plugins.values()) if one.driver == driver), None)
        if plugin is None:
            raise PrepareError(f"DRA driver {driver} is not registered")
        named = [protocol.Claim(namespace=one.namespace, name=one.name, uid=one.uid) for one in claims]
        request = protocol.NodePrepareResourcesRequest(claims=named).SerializeToString()
        return await plugin.client.call(f"/{plugin.service}.DRAPlugin/{method}", request, CALL_S)

    def _names(self, uid: str) -> Iterator[str]:
        for devices in self._claims[uid].answers.values():
            for device in devices:
                yield from device.cdi_device_ids

    def _title(self, uid: str) -> str:
        return _title(self._claims[uid].claim)

    # ---- registration ------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            there = dict.fromkeys(self._sockets())
            for key in [key for key in self._plugins if key not in there]:
                await self._left(self._plugins.pop(key))
            self._tried = {key: tried for key, tried in self._tried.items() if key in there}
            for key in there:
                tried = self._tried.get(key)
                if key not in self._plugins and (tried is None or tried.at_ns <= self._clock.now_ns()):
                    await self._register(key, tried)
            for plugin in self._plugins.values():
                if not _is_served(plugin.endpoint):
                    self._gone_ns.setdefault(plugin.driver, self._clock.now_ns())
                else:
                    self._gone_ns.pop(plugin.driver, None)
            for driver, since_ns in list(self._gone_ns.items()):
                if self._clock.now_ns() - since_ns > WIPE_S * 1e9:
                    del self._gone_ns[driver]
                    self._wipe(driver)
            await self._clock.sleep(LOOK_S)

    def _sockets(self) -> Iterator[_Socket]:
        for name in sorted(os.listdir(self.registry)):
            path = f"{self.registry}/{name}"
            with contextlib.suppress(FileNotFoundError):
                found = os.lstat(path)
                if stat.S_ISSOCK(found.st_mode) and not name.startswith("."):
                    yield path, found.st_ino, found.st_ctime_ns

    async def _register(self, key: _Socket, tried: _Tried | None) -> None:
        door = GrpcClient(key[0])
        try:
            answer = await door.call(f"{REGISTRATION}/GetInfo", b"", INFO_S)
            info = registration.PluginInfo.FromString(answer)
            why = self._unfit(info)
            if not why:  # before it is told so
                version = next(one for one in info.supported_versions if one in SERVICES)
                self._plugins[key] = _Plugin(info.name, SERVICES[version], info.endpoint, GrpcClient(info.endpoint))
            status = registration.RegistrationStatus(plugin_registered=not why, error=why)
            await door.call(f"{REGISTRATION}/NotifyRegistrationStatus", status.SerializeToString(), NOTIFY_S)
        except GrpcError as error:
            why = str(error)
            if key in self._plugins:
                await self._left(self._plugins.pop(key))
        finally:
            await door.close()
        if why:
            self.refused.append(why)
            pause_s = min(tried.pause_s * 2, LAST_PAUSE_S) if tried is not None else FIRST_PAUSE_S
            self._tried[key] = _Tried(self._clock.now_ns() + int(pause_s * 1e9), pause_s)
            return
        self._gone_ns.pop(info.name, None)

    def _unfit(self, info: registration.PluginInfo) -> str:
        if info.type != "DRAPlugin":
            return f"no handler is registered for the plugin type {info.type!r}"
        if not any(one in SERVICES for one in info.supported_versions):
            return f"none of the versions {list(info.supported_versions)} is known"
        if any(one.endpoint == info.endpoint for one in self._plugins.values()):
            return f"endpoint {info.endpoint} is already registered"
        return ""

    async def _left(self, plugin: _Plugin) -> None:
        await plugin.client.close()
        if not self.registered(plugin.driver):
            self._gone_ns[plugin.driver] = self._clock.now_ns()

    # ---- the checkpoint ----------------------------------------------------------------------------------------------

    def _write(self) -> None:
        rows = [
            {
                "ClaimUID": one.claim.uid,
                "ClaimName": one.claim.name,
                "Namespace": one.claim.namespace,
                "PodUIDs": {uid: {} for uid in one.pods},
                "DriverState": {name: {"Devices": _devices(one.answers.get(name))} for name in one.claim.drivers},
            }
            for one in self._claims.values()
        ]
        data = json.dumps(
            {
                "kind": "DRACheckpoint",
                "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
                "ClaimInfoStateList": rows,
            }
        )
        whole = json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())})
        self._files.replace(self._checkpoint, whole.encode())

    def _read(self) -> Iterator[_Known]:
        try:
            data = self._files.read(self._checkpoint, kubelet_claims.MAX_BYTES)
            kubelet_claims.decode(data)
        except (FileNotFoundError, WireError):
            return
        for row in json.loads(json.loads(data)["Data"])["ClaimInfoStateList"]:
            claim = KubeClaim(row["Namespace"], row["ClaimName"], row["ClaimUID"], tuple(row["DriverState"]))
            answers = {
                name: [
                    protocol.Device(
                        request_names=one["RequestNames"],
                        pool_name=one["PoolName"],
                        device_name=one["DeviceName"],
                        cdi_device_ids=one["CDIDeviceIDs"],
                    )
                    for one in state["Devices"]
                ]
                for name, state in row["DriverState"].items()
                if state["Devices"] is not None
            }
            yield _Known(claim, dict.fromkeys(row["PodUIDs"]), answers)


def _is_served(path: str) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as one:
        one.setblocking(False)
        try:
            one.connect(path)
        except BlockingIOError:
            return True  # its backlog is full
        except OSError:
            return False
        return True


def _title(claim: KubeClaim) -> str:
    return f"{claim.namespace}/{claim.name}"


def _devices(answered: Sequence[protocol.Device] | None) -> list[dict[str, object]] | None:
    """As kubelet writes down what a driver has answered; None before it has."""
    if answered is None:
        return None
    return [
        {
            "PoolName": one.pool_name,
            "DeviceName": one.device_name,
            "RequestNames": list(one.request_names),
            "CDIDeviceIDs": list(one.cdi_device_ids),
        }
        for one in answered
    ]
