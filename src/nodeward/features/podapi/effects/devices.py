"""Devices of pods: for the cold-plug socket, and for the Pod API's sections `devices` and `numa`.

The sections are made of one list of kubelet's, which all who ask within FRESH_S share: kubelet answers few calls a
second, and VMs that boot come first.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from nodeward.core.cpuset import of
from nodeward.core.devices import Evidence, Judged, PodDevice, PodNuma, Told
from nodeward.core.errors import NodewardError
from nodeward.core.hints import Hint, HintKind
from nodeward.core.text import printable_name
from nodeward.core.topology import MOST_NODES
from nodeward.core.workload import Sandbox
from nodeward.features.podapi.devices import judged
from nodeward.features.podapi.effects import cold_plug
from nodeward.features.podapi.rows import Section
from nodeward.features.podapi.view import pod_named
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.features.wiring import Component, Note, serving
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, ThreadLane, done_on
from nodeward.host.runner import Core

if TYPE_CHECKING:
    from nodeward.contracts.podresources_pb2 import PodResources
    from nodeward.neighbours.kubelet.cold_plug import Allocations, Judge
    from nodeward.neighbours.kubelet.device_files import DeviceFiles

log = logging.getLogger(__name__)
SOURCE = "kubelet's PodResources, its checkpoints, CDI specs"
FRESH_S, LIST_S = 2.0, 2.5
_Listed = dict[tuple[str, str], list[tuple["PodResources", Judged]]]
Sections = tuple[Section[tuple[PodDevice, ...]], Section[PodNuma]]


class PodDevices:
    """The devices of this node's pods."""

    def __init__(self, settings: Settings, files: HostFiles, core: Core[State], clock: Clock) -> None:
        self._settings, self._files, self._core, self._clock = settings, files, core, clock
        self._lane: ThreadLane | None = None
        self._reader: DeviceFiles | None = None
        self._listing: asyncio.Task[tuple[_Listed, int]] | None = None
        self._listed_ns = 0

    def components(self, lane: Callable[[str], ThreadLane], note: Note) -> list[Component]:
        """What runs for it, where the settings want the socket or the Pod API."""
        settings = self._settings
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC's own log tells of each peer's end
        chosen: list[Component] = [("pod-devices", partial(self._hold, lane))]
        if settings.cold_plug.enabled:
            from nodeward.neighbours.kubelet.cold_plug import ColdPlug

            if not settings.kube.enabled:
                log.warning(
                    "cold_plug=no-api why='kube.enabled is false, so UIDs of pods are unknown and each pod with "
                    "devices is refused: set it to true'"
                )
            path = settings.cold_plug.socket or f"{settings.run_dir}/{cold_plug.NAME}"
            chosen.append(
                serving(
                    "cold-plug", note, path, lambda begun: ColdPlug(self._allocations(), self._clock).run(path, begun)
                )
            )
        return chosen

    async def hints(self, home: Sandbox, container: str) -> list[Hint]:
        """The memory nodes of what kubelet has given a container that is being created. NodewardError says why that is
        not known, also where kubelet's checkpoint names another pod's UID."""

        def judge(_: str, __: str, told: Sequence[Told], evidence: Evidence) -> Judged:
            return judged(told, home.pod_uid, evidence)

        _, known = await self._allocations(judge).pod(home.namespace, home.name)
        mine = (one for one in known.devices if one.container == container and one.numa)
        return [
            Hint(HintKind.POD_RESOURCE, nodes=of(node for node in one.numa if 0 <= node < MOST_NODES), resource=name)
            for one in mine
            for name in (printable_name(one.resource),)
        ]

    async def sections(self, uid: str, namespace: str, name: str) -> Sections:
        """The sections `devices` and `numa` of the pod with this UID."""
        try:
            async with asyncio.timeout(LIST_S):
                listed, at = await asyncio.shield(self._fresh())
        except (NodewardError, OSError, TimeoutError) as error:
            return _lacking(self._why(error))
        found = listed.get((namespace, name), [])
        if len(found) != 1:
            return _lacking(
                "kubelet lists two pods of this name" if found else "kubelet lists no such pod that runs", at
            )
        from nodeward.neighbours.kubelet.cold_plug import numa_of

        ((pod, known),) = found
        if known.refused or known.uid not in (None, uid):
            return _lacking(known.refused or "another pod has this name by now", at)
        return Section(known.devices, SOURCE, observed_at=at), Section(numa_of(pod, known), SOURCE, observed_at=at)

    def _why(self, error: Exception) -> str:
        from nodeward.neighbours.sockets.grpc_unix import Code, GrpcError

        if isinstance(error, GrpcError) and error.code is Code.UNAVAILABLE:
            return f"kubelet does not answer at {self._kubelet()}: does it run, and is keys.kubelet_root its folder?"
        return str(error) or f"not read within {LIST_S:g} s"

    def _kubelet(self) -> str:
        from nodeward.neighbours.kubelet import pod_resources

        return f"{self._settings.keys.root.rstrip('/')}/{pod_resources.PLACE}"

    def _fresh(self) -> "asyncio.Task[tuple[_Listed, int]]":
        now_ns, task = self._clock.now_ns(), self._listing
        is_failed = task is not None and task.done() and (task.cancelled() or task.exception() is not None)
        if task is None or is_failed or (task.done() and now_ns - self._listed_ns > FRESH_S * 1e9):
            task = self._listing = asyncio.get_running_loop().create_task(self._list())
            self._listed_ns = now_ns
        return task

    async def _list(self) -> tuple[_Listed, int]:
        at, found = self._clock.wall_ns(), _Listed()
        async with asyncio.timeout(LIST_S):
            for pod, known in await self._allocations().pods():
                found.setdefault((pod.namespace, pod.name), []).append((pod, known))
        return found, at

    def _allocations(self, judge: "Judge | None" = None) -> "Allocations":
        from nodeward.neighbours.kubelet.cold_plug import Allocations
        from nodeward.neighbours.sockets.grpc_unix import GrpcClient

        path = self._kubelet()
        return Allocations(lambda: GrpcClient(path), self._look, judge or self._judge)

    def _judge(self, namespace: str, name: str, told: Sequence[Told], evidence: Evidence) -> Judged:
        found = pod_named(self._core.state, namespace, name)
        return judged(told, found[0] if found is not None else None, evidence)

    async def _look(self, names: Collection[str]) -> Evidence:
        if self._lane is None:
            raise NodewardError("the host's files are not read yet")
        if self._reader is None:
            from nodeward.neighbours.kubelet.device_files import DeviceFiles

            self._reader = DeviceFiles(self._files, self._settings.keys.kubelet_dir, self._settings.keys.root)
        try:
            return await done_on(self._lane, "pod-devices", partial(self._reader.read, names))
        except GivenUpError as error:
            raise NodewardError("reading the host's files hangs") from error

    async def _hold(self, lane: Callable[[str], ThreadLane]) -> None:
        """Has the lane on which the host's files are read."""
        self._lane = lane("devices")
        try:
            await asyncio.Event().wait()
        finally:
            self._lane.close(0.0)
            self._lane = None


def _lacking(why: str, at: int = 0) -> Sections:
    return Section(None, SOURCE, False, why, at), Section(None, SOURCE, False, why, at)
