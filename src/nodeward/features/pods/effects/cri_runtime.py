"""What the runtime behind a relay has: lists it when the relay connects and now and then, and finds cgroups.

CRI tells no cgroup, so each container's is found by its id: at once when it has started, and again while it was not
found. What passes the relay in between the decider tells (`neighbours.cri.decider`).
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from nodeward.core.cpuset import CpuSet
from nodeward.core.errors import WireError
from nodeward.core.events import Event, Listed, RuntimeConnected, RuntimeLost, Started, Updated
from nodeward.core.ports import Tell
from nodeward.core.workload import (
    NO_SHARE,
    Container,
    ContainerId,
    CpuRecord,
    HostShare,
    Keys,
    Phase,
    Sandbox,
    SandboxId,
)
from nodeward.features.root import State
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, Lane, done_on
from nodeward.host.runner import Core
from nodeward.neighbours.cgroups import cpusets, places
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.door_frames import Hello
from nodeward.neighbours.cri.methods import VERSIONS
from nodeward.neighbours.sockets.unary_client import DEADLINE_EXCEEDED, UNIMPLEMENTED, CallFailedError

LIST_S: Final = 5.0
"""How long the runtime may take for a list, or for what it remembers of one container."""
AGAIN_S: Final = 60.0
"""How often it is listed while calls tell of what changes: one may have been lost."""
UNREAD_AGAIN_S: Final = 10.0
"""The same while what a container has asked for could not be read."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.2, 1.0
"""Between tries to list: creates are held meanwhile."""
FIRST_SEEK_S, LAST_SEEK_S = 1.0, 60.0
"""Between looks for cgroups that were not found."""
UNREAD: Final = HostShare(CpuRecord(unread=True))
log = logging.getLogger(__name__)
RuntimeCall = Callable[[str, bytes, float], Awaitable[bytes]]
"""Calls the runtime: path, request, seconds. OSError, TimeoutError or CallFailedError where there is no answer."""


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Finds cgroups of containers below the mount point `root`, on a lane."""

    files: HostFiles
    lane: Lane
    root: str
    kubelet_root: str

    async def find(self, wanted: Mapping[ContainerId, str]) -> Mapping[str, str]:
        """The cgroup of each of these containers, which name their pod's where that is known."""
        by_text = {str(one): parent for one, parent in wanted.items()}
        try:
            return await done_on(self.lane, "places", partial(self._find, by_text))
        except (GivenUpError, OSError) as error:
            log.warning("cgroups=not-looked-for error=%s", error)
            return {}

    def _find(self, wanted: Mapping[str, str]) -> Mapping[str, str]:
        """In the tree that has the cpuset controller: a host with cgroup v1 has others beside it."""
        return places.find(self.files, cpusets.tree_of(self.files, self.root), self.kubelet_root, wanted)

    async def sets(self, paths: Iterable[str]) -> Mapping[str, CpuSet]:
        """The CPUs that the kernel has for each of these cgroups."""
        reading = partial(cpusets.read_sets, self.files, self.root, tuple(paths))
        return (await done_on(self.lane, "cpusets", reading)).found


class CriRuntime:
    """`neighbours.cri.decider.Known`. Belongs to the loop's thread."""

    def __init__(
        self,
        core: Core[State],
        tell: Tell,
        call: RuntimeCall,
        lines: Callable[[], Awaitable[bool]],
        labels: Callable[[], Keys],
        clock: Clock,
        cgroups: "Cgroups",
        pins: bool,
    ) -> None:
        """`pins`: CPUs are given by what is told here, so each container's record of them is asked for. `lines`:
        whether the OCI runtimes write `misc.max` line by line. `labels`: the keys of labels that are copied."""
        self._core, self._tell, self._call, self._lines, self._labels = core, tell, call, lines, labels
        self._clock, self._cgroups, self._pins = clock, cgroups, pins
        self._listed, self._due = asyncio.Event(), asyncio.Event()
        self._there, self._begun = False, 0
        self._finding: dict[ContainerId, asyncio.Task[bool]] = {}

    # ---- Known

    @property
    def listed(self) -> bool:
        """Whether all of it was told since the relay connected."""
        return self._listed.is_set()

    async def until_listed(self) -> None:
        """Returns once it was."""
        await self._listed.wait()

    def list_soon(self) -> None:
        """Has it told again."""
        self._due.set()

    def container(self, container_id: ContainerId) -> tuple[Sandbox, Container] | None:
        """The container and its sandbox, also while it is only being created."""
        known = self._core.state.pods.container(container_id)
        home = self.sandbox(known.container.sandbox_id) if known is not None else None
        return (home, known.container) if known is not None and home is not None else None

    def sandbox(self, sandbox_id: SandboxId) -> Sandbox | None:
        """The sandbox."""
        known = self._core.state.pods.sandboxes.get(sandbox_id)
        return known.sandbox if known is not None else None

    # ---- the relay

    def begins(self, hello: Hello) -> None:
        """A relay has connected: what passed before is not known."""
        self._there = True
        self._begun += 1
        self._listed.clear()
        self._due.set()

    def ends(self, why: str) -> None:
        """None is connected any more."""
        self._there = False
        self._listed.clear()
        self._tell(RuntimeLost(why))

    def told(self, event: Event) -> int:
        """Tells the core; and the cgroup of a container that has started is looked for."""
        seq = self._tell(event)
        if isinstance(event, Started) and not event.container.cgroups_path:
            one = event.container.id
            if one not in self._finding:
                self._finding[one] = task = asyncio.ensure_future(self._place({one: event.sandbox.cgroup_parent}))
                task.add_done_callback(lambda _: self._finding.pop(one, None))
        return seq

    # ---- lists

    async def keep_listed(self) -> None:
        """Lists what there is, again and again, until cancelled."""
        pauses = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random.random)
        warned = False
        while True:
            await self._until_due()
            if not self._there:
                continue
            try:
                version = await self._list()
            except (OSError, TimeoutError, CallFailedError, WireError, GivenUpError) as error:
                if not warned:
                    log.warning("relay=waits for the runtime's lists error=%s", error or type(error).__name__)
                warned = True
                self._due.set()
                await self._clock.sleep(pauses.next_s())
                continue
            warned = False
            pauses.reset()
            pods = self._core.state.pods
            log.info(
                "relay=listed sandboxes=%d containers=%d by=%s", len(pods.sandboxes), len(pods.containers), version
            )

    async def _until_due(self) -> None:
        containers = self._core.state.pods.containers.values()
        unread = any(known.container.cpu.unread for known in containers)
        asleep = asyncio.ensure_future(self._clock.sleep(UNREAD_AGAIN_S if unread else AGAIN_S))
        due = asyncio.ensure_future(self._due.wait())
        try:
            await asyncio.wait((asleep, due), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asleep.cancel()
            due.cancel()
        self._due.clear()

    async def _list(self) -> str:
        """Tells all that the runtime has; by which version of CRI."""
        as_of, begun = self._core.seq(), self._begun
        if not self.listed:
            self._tell(RuntimeConnected("CRI", "", multi_line=await self._lines()))
        version, labels = VERSIONS[0], self._labels()
        try:
            answers = await self._both(version)
        except CallFailedError as error:
            if error.status != UNIMPLEMENTED:
                raise
            version = VERSIONS[-1]
            answers = await self._both(version)
        homes, ones = mapping.sandboxes((answers[0],), labels), mapping.containers((answers[1],), labels)
        placed = await self._details([one for one in ones if self._is_new(one.id)], version)
        known = mapping.still_known(homes, ones, self.sandbox, self.container)
        self._tell(Listed(*mapping.placed(*known, placed), as_of))
        if self._there and begun == self._begun:  # else another relay has come: what passed before it is not known
            self._listed.set()
        return version

    async def _both(self, version: str) -> tuple[bytes, bytes]:
        place = f"/runtime.{version}.RuntimeService"
        return (
            await self._call(f"{place}/ListPodSandbox", b"", LIST_S),
            await self._call(f"{place}/ListContainers", b"", LIST_S),
        )

    def _is_new(self, container_id: ContainerId) -> bool:
        known = self.container(container_id)
        return known is None or not known[1].cgroups_path or known[1].cpu.unread

    async def _details(self, news: list[Container], version: str) -> Mapping[ContainerId, mapping.Placed]:
        """The values that CRI's lists do not carry: cgroups, which CPUs containers have and were asked for, and memory
        limits."""
        if not news:
            return {}
        path = f"/runtime.{version}.RuntimeService/ContainerStatus"
        found = await self._cgroups.find({one.id: "" for one in news})
        sets = await self._cgroups.sets(found.values())
        placed = dict[ContainerId, mapping.Placed]()
        for one in news:
            place, known = found.get(str(one.id), ""), self.container(one.id)
            if known is not None and not known[1].cpu.unread:
                share = HostShare(known[1].cpu, known[1].memory)
            elif not self._pins:
                share = NO_SHARE
            else:
                share = await self._record(path, one.id, is_new=known is None)
            cpu = replace(share.cpu, cpus=sets.get(place, 0) or share.cpu.cpus)  # what it has is what the kernel says
            placed[one.id] = mapping.Placed(place, replace(share, cpu=cpu))
        return placed

    async def _record(self, path: str, container_id: ContainerId, is_new: bool) -> HostShare:
        """What the runtime remembers of the container's CPUs and memory."""
        try:
            return mapping.status_share(await self._call(path, mapping.status_of(container_id), LIST_S)) or NO_SHARE
        except (CallFailedError, WireError) as error:
            if isinstance(error, CallFailedError) and error.is_absent and error.status != DEADLINE_EXCEEDED:
                raise
            if is_new:  # it is asked about again and again
                log.warning("cpus=status-unread container=%s error=%s", container_id, error)
            return UNREAD

    # ---- cgroups

    async def keep_placed(self) -> None:
        """Looks for the cgroups of running containers that were not found, again and again, until cancelled."""
        pauses = Backoff(FIRST_SEEK_S, LAST_SEEK_S, random.random)
        while True:
            await self._clock.sleep(pauses.next_s())
            pods = self._core.state.pods
            running = [one for one, known in pods.containers.items() if known.container.phase is Phase.RUNNING]
            homes = {one: known[0] for one in running if (known := self.container(one)) and not known[1].cgroups_path}
            if not homes or await self._place({one: home.cgroup_parent for one, home in homes.items()}):
                pauses.reset()

    async def _place(self, wanted: Mapping[ContainerId, str]) -> bool:
        """Tells the cgroups of these containers, which name their pod's, as far as they are found; whether any is. A
        pod whose cgroup nobody has told, as one that was listed before it had a container, has the one above."""
        found = await self._cgroups.find(wanted)
        for one in wanted:
            known, path = self.container(one), found.get(str(one), "")
            if known is not None and path:
                home = replace(known[0], cgroup_parent=known[0].cgroup_parent or path.rpartition("/")[0])
                self._tell(Updated(home, replace(known[1], cgroups_path=path)))
        return bool(found)
