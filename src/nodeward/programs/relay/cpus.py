"""CPUs in the relay's process: what it does beside its decisions at create and update.

CRI tells no cgroup, so each container's is found by its id. A container's program starts once everyone else is off its
CPUs: its StartContainer is held until the kernel's sets were read back. What the runtime remembers of a container that
is about to start is put right before, by an update of the relay's own: it makes the cgroup by what it remembers.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from nodeward.core.decision import Adjustment
from nodeward.core.decision import Final as Said
from nodeward.core.errors import WireError
from nodeward.core.events import Event, Started, TopologyRead, Updated, Updating
from nodeward.core.ports import Tell
from nodeward.core.workload import Container, ContainerId, CpuRecord, Phase, Sandbox
from nodeward.features.cpus.effects import grants
from nodeward.features.cpus.effects.grants import CpuGrants
from nodeward.features.cpus.effects.start_barrier import StartBarrier, pins
from nodeward.features.cpus.effects.watch import watch_drift, watch_topology, watch_use
from nodeward.features.cpus.place import wanted
from nodeward.features.cpus.pools import apart
from nodeward.features.limits.answer import leaves_rest
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.host.backoff import Backoff
from nodeward.host.bounded import BoundedCalls
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, ThreadLane, done_on
from nodeward.host.runner import Core
from nodeward.host.slots import ByEdge, Slots
from nodeward.neighbours.cgroups import cpusets, places
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.sockets.unary_client import CallFailedError
from nodeward.neighbours.sysfs import topology

CLOSE_S: Final = 1.0
"""How long what is under way in the kernel may take when the relay ends."""
UPDATE_NS: Final = 1_000_000_000
AGAIN_S: Final = 0.01
AGAIN_SEEK_S, LAST_SEEK_S = 1.0, 60.0
"""Between looks for cgroups that were not found."""
UNREAD: Final = CpuRecord(unread=True)
log = logging.getLogger(__name__)
Update = Callable[[bytes], Awaitable[object]]
"""Has the runtime take an UpdateContainerResourcesRequest."""
Status = Callable[[bytes], Awaitable[bytes]]
"""Has the runtime answer a ContainerStatusRequest."""


class RelayCpus:
    """Belongs to the loop's thread."""

    def __init__(self, settings: Settings, files: HostFiles, tree: Tree, clock: Clock, update: Update) -> None:
        self._settings, self._files, self._tree, self._clock, self._update = settings, files, tree, clock, update
        self._lane, self._journal = ThreadLane("cgroup"), ThreadLane("journal")
        others = {kind: ByEdge(kind) for kind in ("misc.max", "subtree", "offer", "nfd")}
        self.slots = Slots(self._lane, {**others, **cpusets.performers(files, tree.root)}, clock)
        """They write cpusets. Goals of `limits` end here: its cgroup files belong to the node daemon."""
        self._starting: dict[int, ContainerId] = {}
        """Starts that the runtime has been given and has not answered, by the call's number."""
        self._finding: dict[ContainerId, asyncio.Task[None]] = {}

    def begins(self, core: Core[State], drives: bool) -> Tell:
        """Tells the core the machine's topology, and sets how the core hears of events. Reads files. `drives`: this
        process drives the policy from the start; else from `recall` on."""
        self._core, self._gate = core, StartBarrier(core, self.slots, leaves_rest)
        within = BoundedCalls("nodeward-cpus", grants.LATE_S)
        self._record = CpuGrants(core, self._files, self._settings.run_dir, self._journal, within)
        if drives:
            self._record.begin(*grants.read(self._files, self._settings.run_dir))
        machine = topology.read(self._files)
        if machine.online:
            core.tell(TopologyRead(machine))
        return self._listens(core.tell)

    def parts(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """The work besides the calls, until cancelled."""
        return {
            "places": self._seek,
            "topology": lambda: watch_topology(self._files, self._lane, self._core, self._clock),
            "use": lambda: watch_use(self._files, self._lane, self._core, self._clock),
            "cpusets": lambda: watch_drift(self._files, self._tree.root, self._lane, self._core, self._clock),
            "cpus-record": lambda: self._record.keep(self._clock),
        }

    async def recall(self) -> None:
        """Goes on from what the process that drove the policy until now has written down."""
        reading = partial(grants.read, self._files, self._settings.run_dir)
        self._record.begin(*await asyncio.get_running_loop().run_in_executor(None, reading))

    def close(self) -> None:
        """Ends its lanes."""
        self._lane.close(CLOSE_S)
        self._journal.close(CLOSE_S)

    def hold(self) -> bool:
        """Whether programs have to wait."""
        return pins(self._core.state)

    async def may_begin(self, number: int, container_id: ContainerId, within_s: float) -> str:
        """Returns when the container may be started; why it must not, else nothing. It counts as being started until
        `ended`."""
        end_s = asyncio.get_running_loop().time() + within_s
        await self._put_right(container_id, end_s)
        while self._is_met(container_id) and asyncio.get_running_loop().time() < end_s:
            await asyncio.sleep(AGAIN_S)
        why = await self._gate.written(container_id, max(0.0, end_s - asyncio.get_running_loop().time()))
        if not why:
            self._starting[number] = container_id
        return why

    def ended(self, number: int) -> None:
        """The call is over."""
        self._starting.pop(number, None)

    def _is_met(self, container_id: ContainerId) -> bool:
        """Whether another container, whose start is under way, may run on this one's own CPUs by what the runtime
        remembers of it."""
        cpus = self._core.state.cpus
        held = cpus.held.get(container_id)
        grant = cpus.pools.grants.get(held.key) if held is not None else None
        alone = apart(cpus.pools, grant) if grant is not None else 0
        if held is None or not alone:
            return False
        starting = [cpus.held.get(one) for one in self._starting.values() if one != container_id]
        others = [other for other in starting if other is None or not alone & wanted(cpus.pools, other.key)]
        return any(other is None or not other.given or other.given & alone for other in others)

    async def _put_right(self, container_id: ContainerId, end_s: float) -> None:
        """What the runtime remembers of the container, where that was decided anew since its create."""
        cpus = self._core.state.cpus
        held, known = cpus.held.get(container_id), self.find(container_id)
        if held is None or known is None or held.given == wanted(cpus.pools, held.key):
            return
        try:
            async with asyncio.timeout_at(end_s):
                asked = self._core.ask(Updating(*known), UPDATE_NS)
                final = asked if isinstance(asked, Said) else await asked
                if not isinstance(final.value, Adjustment) or not final.value.sets():
                    return
                await self._update(mapping.changed_update(mapping.update_of(container_id), final.value))
        except (OSError, TimeoutError, CallFailedError) as error:
            log.warning("cpus=record-not-put-right container=%s error=%s", container_id, error)

    def find(self, container_id: ContainerId) -> tuple[Sandbox, Container] | None:
        """The container and its sandbox, as far as they are known."""
        pods = self._core.state.pods
        known = pods.container(container_id)
        home = pods.sandboxes.get(known.container.sandbox_id) if known is not None else None
        return (home.sandbox, known.container) if known is not None and home is not None else None

    # ---- cgroups

    def _listens(self, tell: Tell) -> Tell:
        """`tell`; and the cgroup of a container that has started is looked for."""

        def told(event: Event) -> int:
            seq = tell(event)
            if isinstance(event, Started) and not event.container.cgroups_path and pins(self._core.state):
                one = event.container.id
                if one not in self._finding:
                    self._finding[one] = task = asyncio.ensure_future(self._place(one))
                    task.add_done_callback(lambda _: self._finding.pop(one, None))
            return seq

        return told

    async def _place(self, container_id: ContainerId) -> None:
        known = self.find(container_id)
        if known is not None:
            await self._find_all({container_id: known[0].cgroup_parent})

    async def _seek(self) -> None:
        """The places of running containers that were not found at their start, or that a list has told of."""
        pauses = Backoff(AGAIN_SEEK_S, LAST_SEEK_S, random.random)
        while True:
            await self._clock.sleep(pauses.next_s())
            pods = self._core.state.pods
            running = [one for one, known in pods.containers.items() if known.container.phase is Phase.RUNNING]
            homes = {one: known[0] for one in running if (known := self.find(one)) and not known[1].cgroups_path}
            parents = {one: home.cgroup_parent for one, home in homes.items()}
            if not parents or not pins(self._core.state) or await self._find_all(parents):
                pauses.reset()

    async def _find_all(self, wanted_of: Mapping[ContainerId, str]) -> bool:
        """Tells the cgroups of these containers that are found; whether any is."""
        found = await self.places(wanted_of)
        for container_id in wanted_of:
            known = self.find(container_id)
            if known is not None and container_id in found:
                self._core.tell(Updated(known[0], replace(known[1], cgroups_path=found[container_id])))
        return bool(found)

    async def places(self, wanted_of: Mapping[ContainerId, str]) -> Mapping[str, str]:
        """The cgroup of each of these containers, which name their pod's where that is known."""
        by_text = {str(one): parent for one, parent in wanted_of.items()}
        try:
            return await done_on(self._lane, "places", partial(self._find_places, by_text))
        except (GivenUpError, OSError) as error:
            log.warning("cpus=places-not-looked-for error=%s", error)
            return {}

    def _find_places(self, by_text: Mapping[str, str]) -> Mapping[str, str]:
        """In the tree that has the cpuset controller: a host with cgroup v1 has others beside it."""
        root = cpusets.tree_of(self._files, self._tree.root)
        return places.find(self._files, root, self._settings.cgroups.kubelet_root, by_text)

    async def details(self, ids: Sequence[ContainerId], status: Status) -> Mapping[ContainerId, mapping.Placed]:
        """The values that the runtime's lists do not carry, of containers that were there before: their cgroups, and
        which CPUs they have and were asked for. Those that are known stay as they are. OSError, TimeoutError or
        CallFailedError where the runtime went away meanwhile: nothing of this look may be believed then."""
        news = [one for one in ids if (known := self.find(one)) is None or _is_unknown(known[1])]
        if not news:
            return {}
        found = await self.places(dict.fromkeys(news, ""))
        reading = partial(cpusets.read_sets, self._files, self._tree.root, tuple(found.values()))
        sets = (await done_on(self._lane, "cpusets", reading)).found
        placed = dict[ContainerId, mapping.Placed]()
        for one in news:
            path = found.get(str(one), "")
            try:
                cpu = mapping.status_cpu(await status(mapping.status_of(one)))
            except (CallFailedError, WireError) as error:
                if isinstance(error, CallFailedError) and error.is_absent:
                    raise
                if self.find(one) is None:  # it is asked about again and again
                    log.warning("cpus=status-unread container=%s error=%s", one, error)
                cpu = UNREAD
            placed[one] = mapping.Placed(path, replace(cpu, cpus=cpu.cpus or sets.get(path, 0)))
        return placed

    def unread(self) -> bool:
        """Whether the runtime is to be asked again, since it did not tell what a container has asked for."""
        return any(known.container.cpu.unread for known in self._core.state.pods.containers.values())


def _is_unknown(one: Container) -> bool:
    return not one.cgroups_path or one.cpu.unread
