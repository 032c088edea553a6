"""Reads kubelet's pods from its Pods API, without the API server.

A watch only says that something has changed; what is there is then listed, at most once a second, so what is told is
always one whole answer of kubelet's. Whatever goes wrong (no socket, an older kubelet, one that begins, a pod that
cannot be read) is told as a fault, once, and what was told before stands. Only pods that have changed are decoded.

Promises: every wait but that for the next change is bounded; what kubelet sends is bounded by the transport. Must not
judge what a pod is promised.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Protocol

from nodeward.contracts import kubepod_pb2 as kubepod
from nodeward.contracts import podsapi_pb2 as pb
from nodeward.core import ports
from nodeward.core.errors import WireError
from nodeward.core.events import PodsOfKubelet
from nodeward.core.workload import PodSpec
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.neighbours.formats.kube_objects import (
    MAX_OBJECT_BYTES,
    ContainerObject,
    ContainerStatusObject,
    PodMetadata,
    PodObject,
    Quantities,
    Resources,
    SpecObject,
    StatusOfPod,
)
from nodeward.neighbours.formats.protobuf import read
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcError

_WHAT = "v1.Pod in protobuf"


def decode_pod(data: bytes) -> PodObject:
    """The pod, in part."""
    if len(data) > MAX_OBJECT_BYTES:
        raise WireError(_WHAT, f"{len(data)} bytes, more than {MAX_OBJECT_BYTES}")
    try:
        return _part(read(_WHAT, kubepod.Pod, data))
    except UnicodeDecodeError as error:  # a text is decoded when it is looked at
        raise WireError(_WHAT, "has a text that is not UTF-8") from error


def _part(pod: kubepod.Pod) -> PodObject:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if not (meta.uid and meta.name and meta.namespace):
        raise WireError(_WHAT, "has no uid, name or namespace in its metadata")
    return PodObject(
        PodMetadata(meta.name, meta.namespace, meta.uid, meta.resourceVersion),
        SpecObject(
            runtime_class_name=spec.runtimeClassName or None,
            overhead=_quantities(spec.overhead),
            containers=_containers(spec.containers),
            init_containers=_containers(spec.initContainers),
            ephemeral_containers=_containers(one.ephemeralContainerCommon for one in spec.ephemeralContainers),
            resources=_resources(spec.resources) if spec.HasField("resources") else None,
        ),
        StatusOfPod(
            phase=status.phase or None,
            qos_class=status.qosClass or None,
            container_statuses=_statuses(status.containerStatuses),
            init_container_statuses=_statuses(status.initContainerStatuses),
            ephemeral_container_statuses=_statuses(status.ephemeralContainerStatuses),
        ),
    )


def _containers(found: Iterable[kubepod.Container]) -> tuple[ContainerObject, ...] | None:
    every = tuple(ContainerObject(one.name, _resources(one.resources), one.restartPolicy or None) for one in found)
    return every or None


def _resources(found: kubepod.ResourceRequirements) -> Resources:
    return Resources(_quantities(found.limits), _quantities(found.requests))


def _quantities(found: Mapping[str, kubepod.Quantity]) -> Quantities | None:
    return {name: quantity.string for name, quantity in found.items()} or None


def _statuses(found: Iterable[kubepod.ContainerStatus]) -> tuple[ContainerStatusObject, ...] | None:
    return tuple(ContainerStatusObject(one.name, one.containerID or None) for one in found) or None


log = logging.getLogger(__name__)
PLACE = "pods-api/pods-api.sock"
"""Below kubelet's folder."""
LIST, WATCH = "/v1alpha1.Pods/ListPods", "/v1alpha1.Pods/WatchPods"
APART_S = 1.0
"""Between two lists that nobody asked for."""
AGAIN_S = 30.0
"""What kubelet has is listed so often though it tells of no change."""
LIST_S = 2.0
NOBODY = (Code.UNAVAILABLE, Code.UNIMPLEMENTED)
"""What a call says where nobody listens at the socket, or there is no socket, or not this service behind it."""
MOST_PODS = 20_000
"""In one list; kubelet's own bound is far below."""
MANY = 50
"""After so many pods others have a turn on the loop."""


class Client(Protocol):
    """A connection to kubelet's socket (neighbours.sockets.grpc_unix.GrpcClient)."""

    async def call(self, method: str, request: bytes, timeout_s: float) -> bytes: ...

    def stream(self, method: str, request: bytes) -> AsyncGenerator[bytes]: ...

    async def close(self) -> None: ...


class PodsApi:
    """The pods of one kubelet. `spec` says what a pod is promised (neighbours.kubernetes.mapping.pod_spec)."""

    def __init__(
        self,
        connect: Callable[[], Client],
        spec: Callable[[PodObject], PodSpec],
        tell: ports.Tell,
        seq: ports.Sequence,
        clock: Clock,
        delays: Backoff,
    ) -> None:
        self._connect, self._spec, self._tell, self._seq = connect, spec, tell, seq
        self._clock, self._delays = clock, delays
        self._client: Client | None = None
        self._pods: dict[bytes, PodSpec] = {}
        """What was told last, by digest of its bytes."""
        self.newest_view: ports.Sequence = int
        """When the checkpoint last changed. A list from before that proves no pod absent, so a newer one is told."""
        self._told: PodsOfKubelet | None = None

    async def run(self) -> None:
        """Follows kubelet until cancelled."""
        while True:
            self._client = client = self._connect()
            try:
                await self._follow(client)
            except GrpcError as error:
                self._failed(str(error), absent=error.code in NOBODY)
            except WireError as error:
                self._failed(str(error))
            finally:
                self._client = None
                await client.close()
            await self._clock.sleep(self._delays.next_s())

    async def fetch(self, _: str) -> str:
        """Waits for a list of kubelet that began after now; why that could not be, or nothing."""
        if self._client is None:
            return self._told.fault if self._told is not None else "kubelet's Pods API has not been reached yet"
        try:
            await self._list(self._client, LIST_S, asked=True)
        except (GrpcError, WireError) as error:
            return f"kubelet's Pods API: {error}"
        return ""

    async def _follow(self, client: Client) -> None:
        await self._list(client, LIST_S, asked=self._told is None or bool(self._told.fault))
        self._delays.reset()
        changed = asyncio.Event()
        watching = asyncio.ensure_future(_watch(client, changed))
        try:
            while not watching.done():
                await self._clock.sleep(APART_S)
                waking = asyncio.ensure_future(changed.wait())
                await asyncio.wait((watching, waking), timeout=AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                changed.clear()
                await self._list(client, LIST_S)
            watching.result()
        finally:
            watching.cancel()
            await asyncio.wait((watching,))
        raise WireError("kubelet's Pods API", "its watch ended")

    async def _list(self, client: Client, within_s: float, *, asked: bool = False) -> None:
        as_of = self._seq()
        request = pb.ListPodsRequest().SerializeToString()
        answer = await client.call(LIST, request, within_s)
        every = read("Pods API", pb.ListPodsResponse, answer).pods
        if len(every) > MOST_PODS:
            raise WireError("kubelet's Pods API", f"lists {len(every)} pods: at most {MOST_PODS} are read")
        found: dict[bytes, PodSpec] = {}
        for number, data in enumerate(every, 1):
            digest = hashlib.blake2b(data, digest_size=16).digest()
            found[digest] = self._pods.get(digest) or self._spec(decode_pod(data))
            if number % MANY == 0:
                await asyncio.sleep(0)
        told = self._told
        is_known = told is not None and found.keys() == self._pods.keys() and told.as_of >= self.newest_view()
        if (is_known and not asked) or (told is not None and as_of < told.as_of):
            return
        self._pods = found
        self._told = PodsOfKubelet(as_of, tuple(found.values()))
        self._tell(self._told)

    def _failed(self, why: str, *, absent: bool = False) -> None:
        if self._told is None or (self._told.fault, self._told.absent) != (why, absent):
            level = logging.INFO if absent and self._told is None else logging.WARNING  # kubelets before 1.37 have none
            log.log(level, "pods-api=lost why=%r", why)
            self._told = PodsOfKubelet(self._seq(), fault=why, absent=absent)
            self._tell(self._told)


async def _watch(client: Client, changed: asyncio.Event) -> None:
    """Says that something has changed, whatever it was."""
    async with aclosing(client.stream(WATCH, pb.WatchPodsRequest().SerializeToString())) as events:
        async for _ in events:
            changed.set()
