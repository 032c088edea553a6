"""Runs all probes of doctor at once, each with a deadline, and writes support bundles.

A probe that hangs or fails is a finding and takes no other down: each has a daemon thread of its own, which is left
behind. What goes into a bundle is what `bundle` names, and nothing else: no file is copied but the kernel's counters.
"""

import dataclasses
import io
import os
import platform
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from nodeward import __version__
from nodeward.core.errors import NodewardError
from nodeward.core.finding import Finding, Neighbour, Severity
from nodeward.core.vms import Handler
from nodeward.features.cpus.findings import CpuFacts
from nodeward.features.cpus.rows import CpusView
from nodeward.features.cpus.settings import Driver
from nodeward.features.keys.findings import KeyFacts
from nodeward.features.limits.findings import CgroupFacts, Layout
from nodeward.features.podapi.effects import cold_plug as probe_cold_plug
from nodeward.features.podapi.findings import ColdPlugFacts
from nodeward.features.sandboxes.findings import VmFacts
from nodeward.features.settings import Settings
from nodeward.host.clock import Clock, SystemClock
from nodeward.host.hostfs import HostFiles, OsFiles
from nodeward.neighbours.cri import relay_line
from nodeward.neighbours.kata.handlers import read_handlers
from nodeward.people import client
from nodeward.people.doctor import cluster, machine
from nodeward.people.doctor import hook as probe_hook
from nodeward.people.doctor import kubelet as probe_kubelet
from nodeward.people.doctor.facts import (
    ApiFacts,
    DaemonFacts,
    Facts,
    HookFacts,
    KubeletFacts,
    ProcessFacts,
    RelayFacts,
    RuntimeFacts,
)
from nodeward.people.doctor.findings import findings, worst
from nodeward.people.relay_view import RelayView
from nodeward.people.rows import NodeView
from nodeward.settings import last_good

CPU_MANAGER = "cpu_manager_state"
"""Kubelet's file below its --root-dir."""
PATIENCE_S = 12.0
"""Longer than what any probe allows itself."""
BLANK = "(blanked)"
_CGROUP_FILES = (
    "misc.capacity",
    "misc.current",
    "misc.max",
    "misc.events",
    "cgroup.controllers",
    "cgroup.subtree_control",
)

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Around:
    """What the probes reach: the host's files and programs, the environment, the clock, the daemon's status."""

    files: HostFiles
    run: machine.Run
    synchronised: Callable[[], bool | None]
    environ: Mapping[str, str]
    clock: Clock
    status: Callable[[], bytes]
    """The daemon's view as JSON; NodewardError where it does not answer."""
    status_at: str
    """The socket that `status` asks."""
    patience_s: float = PATIENCE_S
    relay: Callable[[], RelayView | str] = lambda: ""
    """What the relay beside it says of itself; else why it does not answer, empty where none listens."""


def here(place: str) -> Around:
    """This machine, with the daemon whose socket is at `place` and the relay beside it."""
    return Around(
        files=OsFiles(),
        run=machine.said_by,
        synchronised=machine.synchronised,
        environ=os.environ,
        clock=SystemClock(),
        status=lambda: client.get("/v1/status", place),
        status_at=place,
        relay=lambda: (heard := client.relay(place)).view or heard.fault,
    )


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found out and what it means. `view` is the daemon's, None where it does not answer."""

    facts: Facts
    findings: tuple[Finding, ...]
    worst: Severity
    view: NodeView | None


def diagnose(settings: Settings, around: Around, settings_faults: tuple[str, ...] = ()) -> Diagnosis:
    """Looks at everything. `settings_faults` are those of the settings that could not be used."""
    files, look = around.files, _Looks(around.patience_s)
    kernel = look.begin("kernel", lambda: machine.kernel(files))
    cgroups = look.begin(
        "cgroups", lambda: machine.cgroups(files, settings.cgroups.root, settings.cgroups.kubelet_root)
    )
    nri = look.begin("nri", lambda: machine.nri(files, settings))
    hook = look.begin("hook", lambda: probe_hook.hook(files, settings))
    programs = look.begin("programs", lambda: machine.programs(files, around.run))
    process = look.begin("process", lambda: machine.process(files))
    neighbours = look.begin("neighbours", lambda: machine.neighbours(files))
    state = f"{settings.keys.root.rstrip('/')}/{CPU_MANAGER}"
    cpu_manager = look.begin("cpu-manager", lambda: machine.cpu_manager(files, state))
    hiding = look.begin("ciphertext-hiding", lambda: machine.hiding(files))
    clock = look.begin("clock", around.synchronised)
    api = look.begin("api", lambda: cluster.api(settings, around.environ, around.clock))
    # made before two threads read views: msgspec 0.22 crashes where both meet a type for the first time
    views = msgspec.json.Decoder(NodeView)
    daemon = look.begin("daemon", lambda: _view(around.status, views))
    kubelet = look.begin("kubelet", lambda: probe_kubelet.kubelet(files))
    relay = look.begin("relay", around.relay)
    handlers = look.begin("handlers", lambda: read_handlers(files, settings.sandboxes.profiles))
    cold_plug = look.begin("cold-plug", lambda: probe_cold_plug.cold_plug(files, settings))
    view, asked = look.end("daemon", daemon, None), look.end("api", api, ApiFacts())
    relayed = _relay(settings, around.status_at, look.end("relay", relay, ""), look.end("kubelet", kubelet, None))
    tree = look.end("cgroups", cgroups, CgroupFacts())
    facts = Facts(
        kernel=look.end("kernel", kernel, ""),
        resources=tuple(dict.fromkeys(settings.limits.resources.values())),
        cgroups=tree,
        runtime=dataclasses.replace(
            look.end("nri", nri, RuntimeFacts()), versions=look.end("programs", programs, None)
        ),
        hook=look.end("hook", hook, HookFacts()),
        api=asked,
        process=look.end("process", process, ProcessFacts()),
        synchronised=look.end("clock", clock, None),
        neighbours=_others(look.end("neighbours", neighbours, ()), relayed.view),
        cpus=CpuFacts(
            _policy(settings), look.end("cpu-manager", cpu_manager, ""), state, view.cpus if view is not None else None
        ),
        daemon=_daemon(around.status_at, view),
        view=view,
        keys=_keys(view, asked, look.end("ciphertext-hiding", hiding, 0)),
        relay=relayed,
        vms=_vms(look.end("handlers", handlers, None), asked, tree),
        cold_plug=look.end("cold-plug", cold_plug, ColdPlugFacts()),
        settings_faults=settings_faults,
        failed=look.failed,
    )
    found = findings(facts)
    return Diagnosis(facts, found, worst(found), view)


class _Looks:
    """Probes under way, with one deadline for all."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s, self._end = patience_s, time.monotonic() + patience_s
        self.failed: dict[str, str] = {}

    def begin(self, name: str, probe: Callable[[], T]) -> "Future[T]":
        """Starts a probe in a thread of its own."""
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(probe())
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=work, name=f"nodeward-doctor-{name}", daemon=True).start()
        return future

    def end(self, name: str, future: "Future[T]", otherwise: U) -> T | U:
        """What it found; `otherwise` where it failed, or hangs."""
        try:
            return future.result(max(0.0, self._end - time.monotonic()))
        except TimeoutError:
            self.failed[name] = f"no answer within {self._patience_s:g} s"
        except Exception as error:
            self.failed[name] = f"{type(error).__name__}: {error}"
        return otherwise


def _view(status: Callable[[], bytes], views: msgspec.json.Decoder[NodeView]) -> NodeView | None:
    try:
        body = status()
    except NodewardError:
        return None
    return views.decode(body)


def _daemon(where: str, view: NodeView | None) -> DaemonFacts:
    if view is None:
        return DaemonFacts(False, where)
    return DaemonFacts(
        True,
        where,
        tuple(row.name for row in view.components if row.needed and not row.ready),
        paths_of(view.settings.faults),
        _unready(view, "metrics"),
        view.lines.state in ("on", "unverified"),
        paths_of(view.settings.policy_object_faults),
        _unready(view, "topology-object"),
        view.waiting,
        _unready(view, "node-epc"),
    )


def _unready(view: NodeView, name: str) -> str:
    """Why this component is not ready; empty for one that is, or is not there."""
    return next((row.detail for row in view.components if row.name == name and not row.ready), "")


def _keys(view: NodeView | None, api: ApiFacts, hiding: int) -> KeyFacts:
    rows = view.keys if view is not None else ()
    has_checkpoint = any(row.registered for row in rows)
    return KeyFacts(rows, api.our_object, has_checkpoint, hiding, api.on_node, api.left_by_nfd)


def _vms(handlers: tuple[Handler, ...] | None, api: ApiFacts, tree: CgroupFacts) -> VmFacts:
    versions = {Layout.V1: 1, Layout.HYBRID: 1, Layout.V2: 2}
    return VmFacts(handlers, api.classes, api.policies, api.where, versions.get(tree.layout, 0))


def _policy(settings: Settings) -> str:
    """The CPU policy that is carried out."""
    return settings.policy.active if settings.pins_by(Driver.RELAY) or settings.pins_by(Driver.NRI) else ""


def _cpus(view: NodeView | None) -> CpusView | None:
    return view.cpus if view is not None else None


def _others(found: tuple[Neighbour, ...], relay: RelayView | None) -> tuple[Neighbour, ...]:
    """The neighbours without our own relay, which may bear the name and socket of CRI Resource Manager."""
    ours = () if relay is None else (f"process {relay.pid}", *(door.listen for door in relay.doors))
    return tuple(one for one in found if one.seen_at not in ours)


def _relay(settings: Settings, daemon: str, said: RelayView | str, kubelet: KubeletFacts | None) -> RelayFacts:
    return RelayFacts(
        where=f"{daemon.rpartition('/')[0]}/{relay_line.SOCKET}",
        view=said if isinstance(said, RelayView) else None,
        fault=said if isinstance(said, str) else "",
        listen=settings.relay.listen,
        wants=settings.relayed,
        sizing=settings.sizing,
        kubelet=kubelet or KubeletFacts(),
    )


def paths_of(faults: tuple[str, ...]) -> tuple[str, ...]:
    """The paths of faults in settings, without the values that they quote."""
    return tuple(dict.fromkeys(fault.partition(":")[0] for fault in faults))


# ---- the support bundle ----------------------------------------------------------------------------------------------


def bundle(settings: Settings, diagnosis: Diagnosis, around: Around) -> bytes:
    """A tar.gz of findings, versions, settings without secrets, the daemon's status, and the misc and cgroup files."""
    facts = diagnosis.facts
    told = findings(dataclasses.replace(facts, settings_faults=paths_of(facts.settings_faults)))
    versions = {"nodeward": __version__, "python": platform.python_version(), "kernel": facts.kernel}
    members = {
        "findings.json": _json({"worst": diagnosis.worst, "findings": told}),
        "versions.json": _json(versions | dict(facts.runtime.versions or {})),
        "settings.json": _json(last_good.plain(redacted(settings))),
    }
    if diagnosis.view is not None:
        shown = diagnosis.view.settings
        rows = dataclasses.replace(
            shown, faults=paths_of(shown.faults), policy_object_faults=paths_of(shown.policy_object_faults)
        )
        members["status.json"] = _json(dataclasses.replace(diagnosis.view, settings=rows))
    at = facts.cgroups
    v1 = at.tree.root if at.tree.version == 1 else ""
    for folder, name in ((at.root, "root"), (v1, "misc"), (at.kubepods, "kubepods")):
        for file in _CGROUP_FILES if folder else ():
            try:
                members[f"cgroups/{name}/{file}"] = around.files.read(f"{folder}/{file}", machine.SMALL)
            except OSError:
                continue
    return _tar(members, around.clock.wall_ns() // 10**9)


def redacted(settings: Settings) -> Settings:
    """The settings without what may be secret: an address keeps its scheme, host and port."""
    url = settings.kube.url
    if url:
        try:
            parts = urlsplit(url)
            url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        except ValueError:
            url = BLANK
    return dataclasses.replace(settings, kube=dataclasses.replace(settings.kube, url=url))


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _tar(members: Mapping[str, bytes], at_s: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(f"nodeward-bundle/{name}")
            entry.size, entry.mtime, entry.mode = len(data), at_s, 0o600
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
