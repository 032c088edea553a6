"""The relay's door of the daemon: who decides what a relay holds, and who hears of what passes it."""

import logging
from collections.abc import Callable
from functools import partial

from nodeward.core.ports import ReadHints, Tell
from nodeward.core.workload import Keys
from nodeward.features.cpus.ask import label_keys
from nodeward.features.cpus.effects.cri_starts import UPDATE, CriStarts
from nodeward.features.cpus.effects.start_barrier import StartBarrier
from nodeward.features.cpus.settings import Driver
from nodeward.features.gate.wiring import Gates
from nodeward.features.pods.effects.cri_runtime import Cgroups, CriRuntime
from nodeward.features.root import State
from nodeward.features.sandboxes.effects.sizer import Sizer
from nodeward.features.sandboxes.effects.vm_guard import VmGuard
from nodeward.features.settings import Settings
from nodeward.features.wiring import Component, Node, serving
from nodeward.host.runner import Core
from nodeward.neighbours.cri.calls import Decides
from nodeward.neighbours.cri.chain import Chain
from nodeward.neighbours.cri.decider import ContainersDecider
from nodeward.neighbours.cri.door import RelayDoor
from nodeward.neighbours.cri.door_frames import SOCKET, Hello, Passed
from nodeward.neighbours.cri.sandbox_calls import Gatekeeper, Homes
from nodeward.programs.node.held_rows import HeldRows
from nodeward.programs.node.oci_runtimes import OciRuntimes

FOLLOW_S = 1.0
"""How often it is looked whether an agent has pushed other rules for the relay's dump."""
log = logging.getLogger(__name__)


class _Hears:
    """`neighbours.cri.door.Hears`: hands on what containers want to know."""

    def __init__(self, settings: Settings) -> None:
        self._decided = settings.relayed
        self.runtime: CriRuntime | None = None
        self.starts: CriStarts | None = None
        self.decider: ContainersDecider | None = None

    def begins(self, hello: Hello) -> str:
        """A relay has connected."""
        unwanted = [one for one in hello.wants if one not in self._decided]
        if "gate" in unwanted:
            return "gate.mode is off in the node daemon: give it and the relay the same settings, and restart both"
        if unwanted:
            what = "give it and this daemon the same settings"
            log.warning("relay=wants %s decided, which these settings leave off: %s", ",".join(unwanted), what)
        if self.runtime is not None:
            self.runtime.begins(hello)
        return ""

    def passed(self, number: int, passed: Passed) -> None:
        """A call has ended."""
        if self.decider is not None:
            self.decider.passed(number, passed)

    def ends(self, why: str) -> None:
        """No relay is connected any more."""
        if self.runtime is not None and self.starts is not None:
            self.starts.gone()
            self.runtime.ends(why)


def components(
    node: Node, core: Core[State], tell: Tell, leaves_rest: Callable[[State], bool], read_hints: ReadHints
) -> tuple[Component, ...]:
    """The door, and what its deciders do beside."""
    settings, clock, rows, chosen = node.settings, node.clock, node.part(HeldRows), node.settings.relayed
    deciders, parts, hears = list[Decides](), list[Component](), _Hears(settings)
    door = RelayDoor(Chain((), clock.now_ns), hears, clock)
    if "checkpoints" in chosen or "resizes" in chosen:
        guard = VmGuard(settings, node.files, door.call)
        deciders.append(guard.decider)
        rows.guard = guard.row
    if "sizing" in chosen:
        sizer = Sizer(node.now, node.files, core, node.pods, clock)
        deciders.append(sizer.decider)
        parts.append(("sizing", sizer.run))
        rows.sizing = sizer.row
    if "gate" in chosen:  # before CPUs are reserved for a container that has to wait
        gates = node.part(Gates)
        wait = partial(gates.holds, partial(node.pods.fetch, "pod"))
        deciders.append(Gatekeeper(lambda: core.state.settings.gate.at, wait, Homes(door.call)))
        rows.gate = gates.row
    if "containers" in chosen:
        containers, beside = _containers(node, core, tell, leaves_rest, door, hears, read_hints)
        deciders.append(containers)
        parts += beside
        rows.unread = lambda: containers.unread
    door.decider = Chain(tuple(deciders), clock.now_ns)
    if settings.agent.config_socket:
        parts.append(("relay-dump", partial(_follow, door, node)))
    path = f"{settings.run_dir}/{SOCKET}"
    return (serving("relay-door", node.note, path, partial(door.run, path)), *parts)


async def _follow(door: RelayDoor, node: Node) -> None:
    """Has the relay's dump go by the rules that an agent pushes here."""
    while True:
        door.follow(node.now().dump.rules)
        await node.clock.sleep(FOLLOW_S)


def _containers(
    node: Node,
    core: Core[State],
    tell: Tell,
    leaves_rest: Callable[[State], bool],
    door: RelayDoor,
    hears: _Hears,
    read_hints: ReadHints,
) -> tuple[ContainersDecider, list[Component]]:
    """Limits and CPUs: the core hears of what the runtime has by the relay, as it does by NRI."""

    def labels() -> Keys:
        return label_keys(core.state)

    cgroups = Cgroups(node.files, node.lanes.cgroup, node.settings.cgroups.root, node.settings.cgroups.kubelet_root)
    lines = node.part(OciRuntimes).joins
    pins = node.settings.cpus.driver is Driver.RELAY
    runtime = CriRuntime(core, tell, door.call, lines, labels, node.clock, cgroups, pins)
    starts = CriStarts(core, runtime, StartBarrier(core, node.slots, leaves_rest), partial(door.call, UPDATE))
    hears.runtime, hears.starts = runtime, starts
    asks = core.ask, runtime.told, runtime, starts, labels, node.clock.now_ns
    decider = hears.decider = ContainersDecider(*asks, read_hints)
    return decider, [("relay-lists", runtime.keep_listed), ("relay-places", runtime.keep_placed)]
