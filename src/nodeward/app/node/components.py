"""Which components the settings choose. A component's modules are imported here and only when it is chosen."""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from nodeward import __version__
from nodeward.aio.backoff import Backoff
from nodeward.aio.clock import Clock
from nodeward.aio.hostfs import HostFiles
from nodeward.aio.lanes import Lane, ThreadLane
from nodeward.aio.supervise import WorkEndedError
from nodeward.app.doctor.oci_runtimes import OciRuntimes
from nodeward.app.host.calls import Calls
from nodeward.app.host.core import Core
from nodeward.app.host.facts import FactsByKind, Fetch, either
from nodeward.app.host.slots import Slots
from nodeward.app.node.grants import Grants, may_grant
from nodeward.app.process import cannot_listen
from nodeward.app.settings.load import address, name_of_node
from nodeward.engine.ledger.sums import is_tracked
from nodeward.engine.limits.answer import leaves_rest
from nodeward.model.events import Event, Hooked, PodSeen, SandboxStarted
from nodeward.model.ports import Tell
from nodeward.model.settings import Attestation, CapacitySource, KeySettings, Mode, Settings, Share
from nodeward.model.workload import ContainerId

if TYPE_CHECKING:
    from nodeward.app.host.performers import ByEdge
    from nodeward.app.host.undo import Change, UndoList
    from nodeward.edges.cgroups.hierarchy import Tree
    from nodeward.edges.kube.reflector import PodReader
    from nodeward.edges.kubelet.checkpoint import CheckpointFile
    from nodeward.edges.metrics.server import Snapshot

Component = tuple[str, Callable[[], Awaitable[None]]]
"""A name and how to start it; it runs until cancelled."""


log = logging.getLogger(__name__)
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 60.0
"""Between Events that fail."""
MOST_AHEAD = 16
"""So many requests for pods are under way at once before a create waits for one."""


class NoFacts:
    """Facts where no API server is chosen."""

    async def fetch(self, fact: str, key: str) -> str:
        """Nothing can be asked."""
        return f"{fact} {key}: no API server is configured"

    heard_ns = 0
    """Nobody is ever heard."""

    def listens(self, tell: Tell) -> Tell:
        """`tell` as it is."""
        return tell


class ApiFacts:
    """Facts from the API server, told to the core as they are found: at most one request a pod under way at a time."""

    def __init__(self, reader: "PodReader", core: Callable[[], Core]) -> None:
        self._reader, self._core = reader, core
        self._under_way: dict[str, asyncio.Task[str]] = {}

    @property
    def heard_ns(self) -> int:
        """When the API server last said anything about the node's pods, 0 for never."""
        return self._reader.heard_ns

    @property
    def under_way(self) -> int:
        """How many requests there are now."""
        return len(self._under_way)

    def listens(self, tell: Tell) -> Tell:
        """`tell`; and the sandbox of a pod that nobody knows yet starts the request which its creates will wait for."""

        def told(event: Event) -> int:
            seq = tell(event)
            if isinstance(event, SandboxStarted | Hooked):
                pods, home = self._core().state.pods, event.sandbox
                if pods.api_up and home.pod_uid not in pods.specs and len(self._under_way) < MOST_AHEAD:
                    self._begin(f"{home.namespace}/{home.name}/{home.pod_uid}")
            return seq

        return told

    async def fetch(self, fact: str, key: str) -> str:
        """Reads the pod NAMESPACE/NAME/UID; why it was not found, or nothing. The request outlives who waits for it."""
        task = self._begin(key)
        await asyncio.wait((task,))
        return "the watch on the API server ended" if task.cancelled() else task.result()

    def close(self) -> None:
        """Ends what is under way."""
        for task in self._under_way.values():
            task.cancel()

    def _begin(self, key: str) -> asyncio.Task[str]:
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.get_running_loop().create_task(self._read(key), name=f"pod {key}")
            task.add_done_callback(lambda _: self._under_way.pop(key))
        return task

    async def _read(self, key: str) -> str:
        try:
            namespace, name, uid = key.split("/", 2)
            found = await self._reader.read_pod(namespace, name, uid)
            if not isinstance(found, PodSeen):
                return found.why
            pods = self._core().state.pods
            if found.pod.uid in pods.ended:
                return f"pod {namespace}/{name} was deleted meanwhile"
            if uid not in pods.specs:  # else the watch was faster, and may know better
                self._core().tell(found)
            return ""
        except Exception as error:  # nobody may be waiting for it
            log.exception("pod=unread key=%s", key)
            return f"{type(error).__name__}: {error}"


class AtStart:
    """What a container's program waits for where its create could not carry every limit."""

    def __init__(self, core: Core, slots: Slots) -> None:
        self._core, self._slots = core, slots

    def needed(self) -> bool:
        """Whether creates may leave something to be written."""
        return leaves_rest(self._core.state)

    async def written(self, container_id: ContainerId) -> None:
        """Returns when each limit of this container was written, or could not be for now."""
        known = self._core.state.pods.containers.get(container_id)
        if known is not None:
            await self._slots.tried(known.container.cgroups_path)


def nri(
    settings: Settings, core: Core, tell: Tell, clock: Clock, oci: OciRuntimes, at_start: AtStart | None = None
) -> list[Component]:
    """The NRI plugin."""
    if not settings.nri.enabled:
        return []
    from nodeward.edges.nri import session
    from nodeward.edges.nri.errors import RuntimeGoneError

    wanted = session.NriSettings(
        socket_path=settings.nri.socket,
        plugin_name=settings.nri.plugin_name,
        plugin_index=settings.nri.plugin_index,
    )
    chosen = session.from_environment(wanted, os.environ)
    session.check(chosen)

    async def be_a_plugin() -> None:
        try:
            await session.run(chosen, core.ask, tell, core.seq, clock, random.random, at_start, oci.joins)
        except RuntimeGoneError as gone:
            raise WorkEndedError(str(gone)) from gone  # the next instance, started by the runtime, needs our lock

    return [("nri", be_a_plugin)]


def facts(settings: Settings, core: Core, api: NoFacts | ApiFacts) -> list[Component]:
    """What the relay asks of pods. With NRI no relay decides anything."""
    if settings.nri.enabled:
        return []
    from nodeward.app.node.pod_facts import serve

    return [("facts", partial(serve, settings.run_dir, lambda: core.state.pods, partial(api.fetch, "pod")))]


Note = Callable[[str, bool, str], None]
"""Name of a source, whether it is ready, and in what state."""


def hook(
    settings: Settings, core: Core, tell: Tell, note: Note, files: HostFiles, lane: Lane, clock: Clock
) -> list[Component]:
    """What the OCI hook asks, and what it goes by while nobody answers."""
    if not settings.hook.enabled:
        return []
    from nodeward.app.node import hook_files
    from nodeward.edges.hook.server import HookServer

    folder = settings.hook.folder.rstrip("/")
    path = f"{folder}/hook.sock"
    server = HookServer(core.ask, tell, lambda: core.state.settings.limits.on_error.value)

    async def answer_hooks() -> None:
        try:
            await server.run(path, lambda: note("hook", True, f"answers at {path}"))
        finally:
            note("hook", False, f"no socket at {path}")

    return [
        ("hook", answer_hooks),
        ("hook-files", lambda: hook_files.keep(lambda: core.state, files, lane, folder, clock)),
    ]


def metrics(settings: Settings, snapshot: "Snapshot", lane: Callable[[], ThreadLane], note: Note) -> list[Component]:
    """What Prometheus reads. Where the address cannot be had, that is noted, and tried again."""
    found = address(settings.metrics.listen)
    if not settings.metrics.enabled or found is None:
        return []
    from nodeward.edges.metrics import server

    host, port = found

    async def be_read() -> None:
        drawing, why = lane(), "not served"
        try:
            texts = server.Texts(snapshot, drawing)
            await server.run(host, port, texts, lambda: note("metrics", True, f"served at {settings.metrics.listen}"))
        except OSError as error:
            failed = cannot_listen(f"metrics.listen {settings.metrics.listen}", error)
            why = str(failed)
            raise failed from error
        finally:
            note("metrics", False, why)
            drawing.close(0.0)

    return [("metrics", be_read)]


def checkpoint_file(settings: Settings, files: HostFiles) -> "CheckpointFile":
    """Kubelet's word of what it has handed out, for the ledger and for all who offer."""
    from nodeward.edges.kubelet.checkpoint import CheckpointFile

    return CheckpointFile(files, settings.ledger.kubelet_dir, _resources(settings))


def _resources(settings: Settings) -> Sequence[str]:
    return [name for row in settings.ledger.keys.values() for name in row.resources]


def keys(
    settings: Settings,
    files: HostFiles,
    tree: "Tree",
    counting_lane: Lane,
    disk_lane: Lane,
    core: Core,
    clock: Clock,
    facts: FactsByKind,
    grants: Grants,
    checkpoint: Callable[[], "CheckpointFile"],
) -> tuple[list[Component], Fetch | None]:
    """The counters of TEE keys, what kubelet has handed out of them, and what is granted, by the host's files alone;
    and how kubelet's checkpoint is read anew. Nothing where keys are not counted."""
    if settings.ledger.mode is Mode.OFF:
        return [], None
    from nodeward.edges.cgroups import keys as counters
    from nodeward.edges.kubelet.checkpoint import CheckpointPoll, CheckpointReader
    from nodeward.engine.ledger.loss import is_frozen
    from nodeward.engine.pods.found import pod_cgroups

    reader, kinds = counters.KeyReader(files, tree), tuple(settings.ledger.keys)
    handed_out = CheckpointReader(checkpoint())

    def homes() -> counters.Homes:
        return pod_cgroups(core.state.pods)

    def given_out() -> bool:  # by kubelet's word alone too: no grant of an earlier boot is on record
        ledger = core.state.ledger
        return any(offer.grants for offer in ledger.offers.values()) or is_frozen(ledger)

    counting = counters.KeyPoll(counting_lane, reader, kinds, homes, core.tell, core.seq, clock)
    looking = CheckpointPoll(disk_lane, handed_out, core.tell, core.seq, clock, given_out)
    facts.offer("keys", counting.fetch)
    facts.offer("held", looking.fetch)
    chosen: list[Component] = [("keys", counting.run), ("checkpoint", looking.run)]
    if may_grant(settings):
        chosen.append(("grants", lambda: grants.keep(core.tell, clock)))
    return chosen, looking.fetch


def asked_of_kubelet(
    settings: Settings, core: Core, clock: Clock, facts: FactsByKind, checkpoint: Fetch | None
) -> list[Component]:
    """Kubelet's own list of pods, and its PodResources where the checkpoint cannot be read. Beside the checkpoint they
    say whose ids they are that are about to start; and what pods ask for, where no API server does."""
    is_wanted = any(map(is_tracked, settings.ledger.keys.values())) or not settings.kube.enabled
    if checkpoint is None or not is_wanted:
        return []
    from nodeward.edges.kube.mapping import pod_spec
    from nodeward.edges.kubelet import pod_resources, pods_api
    from nodeward.engine.ledger.kubelet_view import uid_of
    from nodeward.transport.grpc_unix import GrpcClient

    folder = settings.ledger.root.rstrip("/")
    path, beside = f"{folder}/{pods_api.PLACE}", f"{folder}/{pod_resources.PLACE}"
    spec, pauses = partial(pod_spec, resources=settings.engine.declared), Backoff(FIRST_PAUSE_S, 10.0, random.random)
    pods = pods_api.PodsApi(lambda: GrpcClient(path), spec, core.tell, core.seq, clock, pauses)

    devices = pod_resources.PodResources(
        lambda: GrpcClient(beside),
        lambda namespace, name: uid_of(core.state, namespace, name),
        lambda: core.state.ledger.held_fault,
        _resources(settings),
        core.tell,
        core.seq,
        clock,
    )

    facts.offer("held", partial(either, (checkpoint, pods.fetch), devices.fetch))
    return [("pods-of-kubelet", pods.run), ("pod-resources", devices.run)]


Withdraw = Callable[[], Awaitable[tuple[str, ...]]]
"""Takes back what kubelet is offered; a sentence for each resource."""


def device_plugin(
    settings: Settings,
    offers: "ByEdge",
    core: Core,
    lane: Callable[[], ThreadLane],
    clock: Clock,
    checkpoint: Callable[[], "CheckpointFile"],
) -> tuple[list[Component], Withdraw | None]:
    """The device plugin of each kind of key that we publish, each a component of its own, and how to withdraw them.
    They are there while the ledger only observes too, since that changes while the daemon lives; nothing is published
    then."""
    rows = {key: row for key, row in settings.ledger.keys.items() if is_tracked(row)}
    if settings.ledger.mode is Mode.OFF or not rows:
        return [], None
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC's own log, on our standard error, tells of each peer's end
    from nodeward.app.node import node_status
    from nodeward.edges.kubelet.folder import Folder, Offering
    from nodeward.edges.kubelet.plugin import Plugin
    from nodeward.engine.ledger.device_ids import id_name

    def quoting(key: str) -> tuple[str, bool]:
        row = core.state.settings.ledger.keys.get(key, KeySettings())
        folder = os.path.dirname(row.attestation_socket)
        return ("" if row.attestation is Attestation.OFF else folder), row.attestation is Attestation.ENFORCE

    on_node = node_status.reader(settings, os.environ, clock)

    def plugin(key: str, row: KeySettings) -> Plugin:
        ids_begin = id_name(key, 0).removesuffix("0000")
        one = Offering(key, row.publish, ids_begin, partial(quoting, key), partial(on_node, row.publish))
        folder = Folder(settings.ledger.kubelet_dir, settings.ledger.root, one, checkpoint())
        return Plugin(one, folder, offers, core.ask, core.tell, clock)

    plugins = {f"device-plugin-{key}": plugin(key, row) for key, row in rows.items()}

    async def offer(one: Plugin) -> None:
        looking = lane()
        try:
            await one.run(looking, random.random)
        finally:
            looking.close(0.0)

    async def withdraw() -> tuple[str, ...]:
        return tuple(await asyncio.gather(*(one.withdraw() for one in plugins.values())))

    return [(name, partial(offer, one)) for name, one in plugins.items()], withdraw


def quotes(settings: Settings, core: Core, clock: Clock) -> list[Component]:
    """Whether the services answer that make quotes for the VMs, of each kind of key that has one."""
    if settings.ledger.mode is Mode.OFF:
        return []
    from nodeward.edges import qgs

    def wanted(key: str) -> str:
        row = core.state.settings.ledger.keys.get(key, KeySettings())
        is_asked = core.state.settings.ledger.mode is not Mode.OFF and row.attestation is not Attestation.OFF
        return row.attestation_socket if is_asked else ""

    def asks(key: str) -> Component:
        return f"quotes-{key}", lambda: qgs.run(key, lambda: wanted(key), core.tell, clock)

    return [asks(key) for key, row in settings.ledger.keys.items() if row.attestation_socket]


def nfd(
    settings: Settings, goals: "ByEdge", undo: "UndoList", known: "Sequence[Change]", core: Core, clock: Clock
) -> tuple[list[Component], Withdraw | None]:
    """What NFD has for this node, and our object beside it; and how to take that away for good. While the ledger is off
    it runs only where `known` changes say that an object of an earlier life may stand, and takes that away."""
    there = any(change.target.startswith("nfd:") for change in known)
    if not settings.kube.enabled or (settings.ledger.mode is Mode.OFF and not there):
        return [], None
    from nodeward.app.node import nfd_object
    from nodeward.edges.kube import auth
    from nodeward.edges.nfd.client import NfdClient
    from nodeward.edges.nfd.session import Session
    from nodeward.engine.ledger.sums import can_share
    from nodeward.transport.kube_http import KubeHttp

    place = nfd_object.place(settings, os.environ)
    endpoint = auth.endpoint_of(settings.kube, os.environ)
    resources = {key: row.resources for key, row in settings.ledger.keys.items()}

    def ready() -> bool:
        return core.state.settings.ledger.mode is not Mode.ENFORCE or can_share(core.state)

    def asked() -> bool:
        return there or any(
            row.share is not Share.OWN or row.capacity_from is CapacitySource.NFD
            for row in core.state.settings.ledger.keys.values()
        )

    def remember() -> None:
        undo.remember(nfd_object.target(place), "absent")

    http = KubeHttp(endpoint, clock, user_agent=f"nodeward/{__version__}")
    ours = [row.publish for row in settings.ledger.keys.values()]
    session = Session(NfdClient(http, place), goals, resources, core.tell, clock, remember, ready, asked, ours=ours)

    async def share() -> None:
        try:
            await session.forever()
        finally:
            await http.aclose()  # opens itself again at the next request

    return [("nfd", share)], session.retire


def all_withdrawn(*parts: Withdraw | None) -> Withdraw:
    """Every part's withdrawal as one."""

    async def withdraw() -> tuple[str, ...]:
        said = [await part() for part in parts if part is not None]
        return tuple(line for lines in said for line in lines)

    return withdraw


def kube(
    settings: Settings, clock: Clock, core: Callable[[], Core], tell: Tell, calls: Calls
) -> tuple[NoFacts | ApiFacts, list[Component]]:
    """The watch on this node's pods, the facts that come from the API server, and the Events that go there."""
    if not settings.kube.enabled:
        return NoFacts(), []
    from nodeward.edges.kube import auth, reflector
    from nodeward.edges.kube.client import PodsClient
    from nodeward.edges.kube.settings import KubeSettings

    chosen = KubeSettings(
        endpoint=auth.endpoint_of(settings.kube, os.environ),
        node_name=name_of_node(settings, os.environ),
        resources=settings.engine.declared,
    )
    client = PodsClient(chosen, clock)
    facts = ApiFacts(reflector.PodReader(client), core)

    async def reflect() -> None:
        try:
            await reflector.run(chosen, tell, clock, core().seq, client=client)
        finally:
            facts.close()
            await client.aclose()  # opens itself again at the next request

    if not settings.kube.events:
        return facts, [("kube", reflect)]
    from nodeward.edges.kube.events import EventSender

    async def send_events() -> None:
        await calls.run(EventSender(client), Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random.random))

    return facts, [("kube", reflect), ("events", send_events)]
