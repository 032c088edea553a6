"""What TEE keys need of the daemon: who counts them, offers them to kubelet, and shares them with NFD."""

import os
import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from nodeward import __version__
from nodeward.core.claims import Promised
from nodeward.core.modes import Mode
from nodeward.features.keys.effects.front import FrontKeeper
from nodeward.features.keys.effects.grants import Grants, may_grant
from nodeward.features.keys.settings import Attestation, CapacitySource, KeyKind
from nodeward.features.keys.sums import is_tracked
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.features.wiring import FIRST_PAUSE_S, Component, Node, Note, Wired, Wiring, Withdraw
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.facts import FactsByKind, Fetch, either
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane, ThreadLane
from nodeward.host.runner import Core
from nodeward.host.slots import ByEdge

if TYPE_CHECKING:
    from nodeward.host.undo import Change, UndoList
    from nodeward.neighbours.cgroups.hierarchy import Tree
    from nodeward.neighbours.kubelet.checkpoint import CheckpointFile


def checkpoint_file(settings: Settings, files: HostFiles) -> "CheckpointFile":
    """Kubelet's checkpoint, which `keys` and all who offer read."""
    from nodeward.neighbours.kubelet.checkpoint import CheckpointFile

    return CheckpointFile(files, settings.keys.kubelet_dir, _resources(settings))


def _resources(settings: Settings) -> Sequence[str]:
    return [name for row in settings.keys.kinds.values() for name in row.resources]


def keys(
    settings: Settings,
    files: HostFiles,
    tree: "Tree",
    counting_lane: Lane,
    disk_lane: Lane,
    core: Core[State],
    clock: Clock,
    facts: FactsByKind,
    grants: Grants,
    checkpoint: Callable[[], "CheckpointFile"],
) -> tuple[list[Component], Fetch | None]:
    """Wires the counters of TEE keys, kubelet's checkpoint and the grants, by the host's files alone; and how kubelet's
    checkpoint is read anew. Nothing where keys are not counted."""
    if settings.keys.mode is Mode.OFF:
        return [], None
    from nodeward.features.keys.loss import is_frozen
    from nodeward.features.pods.found import pod_cgroups
    from nodeward.neighbours.cgroups import keys as counters
    from nodeward.neighbours.kubelet.checkpoint import CheckpointPoll, CheckpointReader

    reader, kinds = counters.KeyReader(files, tree, settings.cgroups.kubelet_root), tuple(settings.keys.kinds)
    handed_out = CheckpointReader(checkpoint())

    def homes() -> counters.Homes:
        return pod_cgroups(core.state.pods)

    def given_out() -> bool:  # by kubelet's word alone too: no grant of an earlier boot is on record
        keys = core.state.keys
        return any(offer.grants for offer in keys.offers.values()) or is_frozen(keys)

    counting = counters.KeyPoll(counting_lane, reader, kinds, homes, core.tell, core.seq, clock)
    looking = CheckpointPoll(disk_lane, handed_out, core.tell, core.seq, clock, given_out)
    facts.offer("keys", counting.fetch)
    facts.offer("held", looking.fetch)
    chosen: list[Component] = [("keys", counting.run), ("checkpoint", looking.run)]
    if may_grant(settings):
        chosen.append(("grants", lambda: grants.keep(core.tell, clock)))
    return chosen, looking.fetch


def asked_of_kubelet(
    settings: Settings, core: Core[State], clock: Clock, facts: FactsByKind, checkpoint: Fetch | None
) -> list[Component]:
    """Kubelet's own list of pods, and its PodResources where the checkpoint cannot be read. Beside the checkpoint they
    say whose ids they are that are about to start; and what pods ask for, where no API server does."""
    is_wanted = any(map(is_tracked, settings.keys.kinds.values())) or not settings.kube.enabled
    if checkpoint is None or not is_wanted:
        return []
    from nodeward.features.keys.kubelet_view import uid_of
    from nodeward.neighbours.kubelet import pod_resources, pods_api
    from nodeward.neighbours.kubernetes.mapping import pod_spec
    from nodeward.neighbours.sockets.grpc_unix import GrpcClient

    folder = settings.keys.root.rstrip("/")
    path, beside = f"{folder}/{pods_api.PLACE}", f"{folder}/{pod_resources.PLACE}"
    spec, pauses = partial(pod_spec, resources=settings.engine.declared), Backoff(FIRST_PAUSE_S, 10.0, random.random)
    pods = pods_api.PodsApi(lambda: GrpcClient(path), spec, core.tell, core.seq, clock, pauses)
    pods.newest_view = lambda: core.state.keys.held.seq if core.state.keys.held is not None else 0

    devices = pod_resources.PodResources(
        lambda: GrpcClient(beside),
        lambda namespace, name: uid_of(core.state, namespace, name),
        lambda: core.state.keys.held_fault,
        _resources(settings),
        core.tell,
        core.seq,
        clock,
    )

    facts.offer("held", partial(either, (checkpoint, pods.fetch), devices.fetch))
    return [("pods-of-kubelet", pods.run), ("pod-resources", devices.run)]


def device_plugin(
    settings: Settings,
    offers: ByEdge,
    core: Core[State],
    lane: Callable[[], ThreadLane],
    clock: Clock,
    checkpoint: Callable[[], "CheckpointFile"],
    note: Note,
) -> tuple[list[Component], Withdraw | None]:
    """The device plugin of each kind of key that we publish, each a component of its own, and how to withdraw them.
    They are there while `keys` only observes too, since that changes while the daemon lives; nothing is published
    then."""
    rows = {key: row for key, row in settings.keys.kinds.items() if is_tracked(row)}
    if settings.keys.mode is Mode.OFF or not rows:
        return [], None
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC's own log, on our standard error, tells of each peer's end
    from nodeward.features import by_id
    from nodeward.features.keys.device_ids import id_name
    from nodeward.features.pods.effects import node_status
    from nodeward.neighbours.kubelet.folder import Offering

    def quoting(key: str) -> tuple[str, bool]:
        row = core.state.settings.keys.kinds.get(key, KeyKind())
        folder = os.path.dirname(row.attestation_socket)
        return ("" if row.attestation is Attestation.OFF else folder), row.attestation is Attestation.ENFORCE

    def devices(key: str) -> Sequence[str]:
        return core.state.settings.keys.kinds.get(key, KeyKind()).devices

    on_node = node_status.reader(settings, os.environ, clock)

    def offering(key: str, row: KeyKind) -> Offering:
        ids_begin = id_name(key, 0).removesuffix("0000")
        asked = partial(quoting, key), partial(on_node, row.publish), partial(devices, key)
        remedy = (
            f"keys.kinds.{key}.devices gives it to each pod with {row.publish}: load the module that makes it, let the "
            "daemon see it (docs/keys.md, Device nodes), or take it out of the setting"
        )
        return Offering(key, row.publish, ids_begin, *asked, remedy)

    offered = [offering(key, row) for key, row in rows.items()]
    return by_id.plugins(offered, settings, offers, core, lane, clock, checkpoint(), note)


def quotes(settings: Settings, core: Core[State], clock: Clock) -> list[Component]:
    """Whether the services answer that make quotes for the VMs, of each kind of key that has one."""
    if settings.keys.mode is Mode.OFF:
        return []
    from nodeward.neighbours.qgs import quotes as qgs

    def wanted(key: str) -> str:
        row = core.state.settings.keys.kinds.get(key, KeyKind())
        is_asked = core.state.settings.keys.mode is not Mode.OFF and row.attestation is not Attestation.OFF
        return row.attestation_socket if is_asked else ""

    def asks(key: str) -> Component:
        return f"quotes-{key}", lambda: qgs.run(key, lambda: wanted(key), core.tell, clock)

    return [asks(key) for key, row in settings.keys.kinds.items() if row.attestation_socket]


def nfd(
    settings: Settings, goals: ByEdge, undo: "UndoList", known: "Sequence[Change]", core: Core[State], clock: Clock
) -> tuple[list[Component], Withdraw | None]:
    """Wires NFD's numbers for this node and our object beside them, and its removal for good. While `keys.mode` is off
    it runs only where `known` changes say that an object of an earlier life may stand, and takes that away."""
    there = any(change.target.startswith("nfd:") for change in known)
    if not settings.kube.enabled or (settings.keys.mode is Mode.OFF and not there):
        return [], None
    from nodeward.features.keys.effects import nfd_object
    from nodeward.features.keys.share import may_follow
    from nodeward.features.keys.sums import can_share
    from nodeward.neighbours.kubernetes import auth
    from nodeward.neighbours.nfd.client import NfdClient
    from nodeward.neighbours.nfd.session import NfdReconciler
    from nodeward.neighbours.sockets.kube_http import KubeHttp

    place = nfd_object.place(settings, os.environ)
    endpoint = auth.endpoint_of(settings.kube, os.environ)
    resources = {key: row.resources for key, row in settings.keys.kinds.items()}

    def ready() -> bool:
        return core.state.settings.keys.mode is not Mode.ENFORCE or can_share(core.state)

    def asked() -> bool:
        keys = core.state.settings.keys
        return there or any(
            (keys.mode is Mode.ENFORCE and may_follow(key, row)) or row.capacity_from is CapacitySource.NFD
            for key, row in keys.kinds.items()
        )

    def remember() -> None:
        undo.remember(nfd_object.target(place), "absent")

    http = KubeHttp(endpoint, clock, user_agent=f"nodeward/{__version__}")
    ours = [row.publish for row in settings.keys.kinds.values()]
    session = NfdReconciler(
        NfdClient(http, place), goals, resources, core.tell, clock, remember, ready, asked, ours=ours
    )

    async def share() -> None:
        try:
            await session.forever()
        finally:
            await http.aclose()  # opens itself again at the next request

    return [("nfd", share)], session.retire


def _components(node: Node) -> Wired:
    settings, files, clock, core = node.settings, node.files, node.clock, node.core
    checkpoint = cache(partial(checkpoint_file, settings, files))
    looking = partial(node.lane, "plugin")
    plugin, withdraw = device_plugin(settings, node.by_edge["offer"], core, looking, clock, checkpoint, node.note)
    counted, handed_out = keys(
        *(settings, files, node.tree, node.lanes.keys or node.lanes.cgroup, node.lanes.disk, core, clock, node.facts),
        *(node.part(Grants), checkpoint),
    )
    shared, retire = nfd(settings, node.by_edge["nfd"], node.undo, node.changes, core, clock)
    asked = asked_of_kubelet(settings, core, clock, node.facts, handed_out)
    sold = sold_by_claim(node)
    front = FrontKeeper(settings, files, node.lanes.disk, core)
    chosen: list[Component] = [("front", front.run)] if settings.keys.dra.mode is not Mode.OFF else []
    return Wired(
        (*plugin, *counted, *asked, *quotes(settings, core, clock), *shared, *sold.components, *chosen),
        (*(one for one in (withdraw, retire) if one is not None), *sold.withdraw),
        {"keys/move": front.choose},
    )


def sold_by_claim(node: Node) -> Wired:
    """Our driver of Dynamic Resource Allocation, or what is left of it."""
    dra = node.settings.keys.dra
    wants = Mode.OFF not in (node.settings.keys.mode, dra.mode)
    if not wants and not node.changes:
        return Wired(())
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from nodeward.features import by_claim
    from nodeward.features.keys import claims
    from nodeward.neighbours.dra.cdi import Edits

    def edits(state: State, one: Promised) -> dict[str, Edits]:
        rows = state.settings.keys.kinds
        return {claims.device_of(key): _edits(rows[key]) for key in one.amounts if key in rows}

    def _edits(kind: KeyKind) -> Edits:
        """The device nodes of the setting, and the folder of the service that makes quotes."""
        asked = kind.attestation is not Attestation.OFF
        return Edits(kind.devices, (os.path.dirname(kind.attestation_socket),) if asked else ())

    sold = by_claim.Sold(
        *("keys", dra.driver, dra.cdi_dir, "keys.dra.mode", "keys-slice", wants),
        is_sold=claims.are_sold,
        is_known=lambda state: state.keys.claims_recalled,
        promised=lambda state: state.keys.claims,
        edits=edits,
        health=lambda state: [
            (claims.device_of(key), *claims.standing(state, key)) for key in state.settings.keys.kinds
        ],
    )
    return by_claim.wired(node, sold)


WIRING = Wiring(_components, lambda *_: {kind: ByEdge(kind) for kind in ("offer", "nfd", "keys-slice")})
