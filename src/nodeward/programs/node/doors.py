"""The doors that limits, CPUs and gates share: the NRI plugin, the OCI hook's socket, the relay's questions."""

import os
import random
from functools import partial

from nodeward.core.ports import ReadHints, ReadSets, Tell
from nodeward.core.workload import Keys
from nodeward.features.cpus.ask import label_keys
from nodeward.features.cpus.effects.hints import HintReader
from nodeward.features.cpus.effects.start_barrier import StartBarrier
from nodeward.features.cpus.effects.watch import reads_sets
from nodeward.features.limits.answer import leaves_rest
from nodeward.features.podapi.effects.devices import PodDevices
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.features.wiring import Component, Node, Note, Wired, Wiring, serving
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane
from nodeward.host.runner import Core
from nodeward.host.supervise import WorkEndedError
from nodeward.programs.node.oci_runtimes import OciRuntimes


def nri(
    settings: Settings,
    core: Core[State],
    tell: Tell,
    clock: Clock,
    oci: OciRuntimes,
    at_start: StartBarrier | None = None,
    read_sets: ReadSets | None = None,
    read_hints: ReadHints | None = None,
) -> list[Component]:
    """The NRI plugin."""
    if not settings.nri.enabled:
        return []
    from nodeward.neighbours.nri import session
    from nodeward.neighbours.nri.session import RuntimeGoneError

    def labels() -> Keys:
        return label_keys(core.state)

    wanted = session.NriSettings(
        socket_path=settings.nri.socket,
        plugin_name=settings.nri.plugin_name,
        plugin_index=settings.nri.plugin_index,
    )
    chosen = session.from_environment(wanted, os.environ)
    session.check(chosen)

    async def be_a_plugin() -> None:
        try:
            await session.run(
                *(chosen, core.ask, tell, core.seq, clock, random.random, at_start, oci.joins, read_sets, labels),
                read_hints,
            )
        except RuntimeGoneError as gone:
            raise WorkEndedError(str(gone)) from gone  # the next instance, started by the runtime, needs our lock

    return [("nri", be_a_plugin)]


def hook(
    settings: Settings, core: Core[State], tell: Tell, note: Note, files: HostFiles, lane: Lane, clock: Clock
) -> list[Component]:
    """Wires the OCI hook's socket, and the files that it reads while the daemon is away."""
    if not settings.hook.enabled:
        return []
    from nodeward.features.limits.effects import hook_files
    from nodeward.neighbours.hook.server import HookServer

    folder = settings.hook.folder.rstrip("/")
    path = f"{folder}/hook.sock"
    server = HookServer(core.ask, tell, lambda: core.state.settings.limits.on_error.value)
    return [
        serving("hook", note, path, partial(server.run, path)),
        ("hook-files", lambda: hook_files.keep(lambda: core.state, files, lane, folder, clock)),
    ]


def relay(node: Node) -> tuple[Component, ...]:
    """The relay's door, where something is decided for one."""
    if not node.settings.relayed:
        return ()
    from nodeward.programs.node import relay_door  # it reads CRI

    return relay_door.components(node, node.core, node.tell, leaves_rest, _hints(node))


def _hints(node: Node) -> ReadHints:
    return HintReader(lambda: node.core.state, node.files, node.lanes.disk, node.part(PodDevices).hints)


def _components(node: Node) -> Wired:
    settings, core, clock = node.settings, node.core, node.clock
    sets = reads_sets(node.files, node.tree.root, node.lanes.cgroup, core)
    return Wired(
        (
            *nri(
                settings,
                core,
                node.tell,
                clock,
                node.part(OciRuntimes),
                StartBarrier(core, node.slots, leaves_rest),
                sets,
                _hints(node),
            ),
            *hook(settings, core, node.tell, node.note, node.files, node.lanes.disk, clock),
            *relay(node),
        )
    )


WIRING = Wiring(_components)
