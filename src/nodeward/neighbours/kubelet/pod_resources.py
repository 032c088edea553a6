"""Asks kubelet's PodResources which pods have which ids, only while its checkpoint cannot be read.

It has no UIDs, so each pod is looked up by its name; of one that nobody knows, or of whose name there are two, nothing
is told but that somebody is missing. It does not say what is registered, and not whether what it leaves out is free:
its answer is told beside the fault of the checkpoint. One without any pod is told as well, and that there is no answer
any more after there was one.

Promises: at most one call in APART_S, each bounded. Must not judge who owns what, nor whether an answer is enough.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from nodeward.contracts import podresources_pb2 as pb
from nodeward.core import ports
from nodeward.core.errors import WireError
from nodeward.core.events import KeysHeld
from nodeward.core.workload import PodUid
from nodeward.host.clock import Clock
from nodeward.neighbours.formats.protobuf import read
from nodeward.neighbours.kubelet.pods_api import Client
from nodeward.neighbours.sockets.grpc_unix import GrpcError

log = logging.getLogger(__name__)
PLACE = "pod-resources/kubelet.sock"
"""Below kubelet's folder."""
LIST = "/v1.PodResourcesLister/List"
APART_S = 10.0
LOOK_S = 1.0
"""So often it is looked whether somebody needs it."""
LIST_S = 2.0


class PodResources:
    """What one kubelet says of these resources.

    `uid_of` finds a pod by namespace and name; `lost` says why the checkpoint cannot be read, empty while it can."""

    def __init__(
        self,
        connect: Callable[[], Client],
        uid_of: Callable[[str, str], PodUid | None],
        lost: Callable[[], str],
        resources: Collection[str],
        tell: ports.Tell,
        seq: ports.Sequence,
        clock: Clock,
    ) -> None:
        self._connect, self._uid_of, self._lost, self._resources = connect, uid_of, lost, frozenset(resources)
        self._tell, self._seq, self._clock = tell, seq, clock
        self._asked_ns: int | None = None
        self._why = ""
        self._answered = False
        """Whether the last time was an answer."""

    async def run(self) -> None:
        """Asks while it is needed, until cancelled."""
        while True:
            if self._lost():
                await self.fetch("")
            await self._clock.sleep(LOOK_S)

    async def fetch(self, _: str) -> str:
        """Waits for an answer of kubelet that began after now; why that could not be, or nothing."""
        now_ns = self._clock.now_ns()
        if self._asked_ns is not None and now_ns - self._asked_ns < APART_S * 1e9:
            return "kubelet's PodResources was asked a moment ago"
        self._asked_ns = now_ns
        why = await self._ask(now_ns)
        if why and why != self._why:
            log.warning("pod-resources=unread why=%r", why)
        self._why = why
        return f"kubelet's PodResources: {why}" if why else ""

    async def _ask(self, began_ns: int) -> str:
        as_of, client = self._seq(), self._connect()
        try:
            answer = await client.call(LIST, pb.ListPodResourcesRequest().SerializeToString(), LIST_S)
            every = read("PodResources", pb.ListPodResourcesResponse, answer).pod_resources
        except (GrpcError, WireError) as error:
            if self._answered:
                self._told(KeysHeld(as_of, read_ns=began_ns, answered=False))
            self._answered = False
            return str(error)
        finally:
            await client.close()
        found: dict[PodUid, dict[str, tuple[str, ...]]] = {}
        named = 0
        for pod in every:
            held = self._held(pod)
            named += bool(held)
            uid = self._uid_of(pod.namespace, pod.name) if held else None
            if uid is not None:
                found[uid] = held
        self._answered = True
        self._told(KeysHeld(as_of, found, read_ns=began_ns, answered=len(found) == named))
        return ""

    def _told(self, held: KeysHeld) -> None:
        fault = self._lost()
        if fault:  # else the checkpoint has been read meanwhile, and knows better
            self._tell(replace(held, fault=fault))

    def _held(self, pod: pb.PodResources) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        for container in pod.containers:
            for one in container.devices:
                if one.resource_name in self._resources:
                    found.setdefault(one.resource_name, {}).update(dict.fromkeys(one.device_ids))
        return {name: tuple(sorted(ids)) for name, ids in found.items() if ids}
