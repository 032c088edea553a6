"""The Pod API: the engine's state, and the whole spec of a pod by one read at the API server, redacted.

A redacted spec is kept beside the engine's state, never in it, so that no record carries one. It holds for one UID and
for as long as the watch tells nothing new of that pod. Each change of a pod is told, also one of which the state keeps
nothing, such as an annotation's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from nodeward.core.annotations import CONFIG_HASH, MIRROR
from nodeward.core.errors import NodewardError
from nodeward.core.pulls import PullsView
from nodeward.core.workload import PodUid
from nodeward.features.gate.rows import SetGateRequest
from nodeward.features.gate.wiring import Gates
from nodeward.features.podapi import view as show
from nodeward.features.podapi.effects import redaction
from nodeward.features.podapi.effects.devices import PodDevices
from nodeward.features.podapi.effects.watch import Watchers
from nodeward.features.podapi.rows import (
    ComputeSizeRequest,
    ConfirmVolumeRequest,
    DescribePodRequest,
    HoldVolumeRequest,
    Json,
    ListPodsRequest,
    ListVolumeClaimsRequest,
    OfferVolumesRequest,
    ReportPullRequest,
    ReportSandboxRequest,
    ResolvePullRequest,
    Section,
)
from nodeward.features.pods.state import KnownSpec
from nodeward.features.pods.wiring import ApiFacts, NoFacts
from nodeward.features.root import State
from nodeward.features.wiring import Component, Node, serving
from nodeward.host.clock import Clock
from nodeward.host.runner import Core

SOCKET, GRPC_SOCKET = "podapi.sock", "podapi-grpc.sock"
"""In the settings' `run_dir`."""
MOST_ASKING = 24
"""Sections that wait for a read at once: eight pods with all three of theirs. Twice as many reads for volumes' owners,
of which the section `volumes` has at most half."""
MOST_KEPT, MOST_KEPT_BYTES = 256, 16 * 1024 * 1024
API = "the API server"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A redacted pod, as JSON, its images by container, and of which telling of the watch it is."""

    seq: int
    version: str
    pod: bytes
    images: Mapping[str, str]
    at: int


class Specs:
    """Redacted specs by UID, read where they are asked for; one read of a pod at a time."""

    def __init__(self, core: Core[State], pods: NoFacts | ApiFacts, clock: Clock) -> None:
        self._core, self._pods, self._clock = core, pods, clock
        self._kept: dict[PodUid, _Kept] = {}
        self._reading: dict[PodUid, asyncio.Task[_Kept]] = {}
        self._asking, self._deciding = asyncio.Semaphore(MOST_ASKING), asyncio.Semaphore(2 * MOST_ASKING)

    async def in_turn(self, section: Callable[[], Awaitable[T]]) -> T:
        """A section that waits for a read. They are bounded apart from decisions, which they may not keep waiting."""
        async with self._asking:
            return await section()

    async def spec(self, uid: str, _: str, __: str, ___: str) -> Section[Json]:
        """The whole spec, redacted."""
        kept = await self.in_turn(lambda: self._kept_of(uid))
        return Section(Json(kept.pod), f"{API}, resourceVersion {kept.version}", *self._seen(kept))

    async def redacted(self, uid: str) -> tuple[object, int]:
        """The redacted spec, and when it was read. NodewardError where it cannot be had."""
        async with self._deciding:
            kept = await self._kept_of(uid)
        return msgspec.json.decode(kept.pod), kept.at

    async def images(self, uid: str) -> Section[Mapping[str, str]]:
        """The images of the spec by container."""
        kept = await self.in_turn(lambda: self._kept_of(uid))
        return Section(kept.images, API, *self._seen(kept))

    def _seen(self, kept: _Kept) -> tuple[bool, str, int]:
        """Whether that is still so, why not, and when it was read."""
        up = self._core.state.pods.api_up
        return up, "" if up else show.AWAY, kept.at

    async def _kept_of(self, uid: str) -> _Kept:
        of = PodUid(uid)
        known = self._core.state.pods.specs.get(of)
        if known is None:
            raise NodewardError(show.NO_SPEC)
        kept = self._kept.get(of)
        while kept is None or kept.seq < known.seq:  # a read that began before the change may have missed it
            task = self._reading.get(of)
            if task is None:
                task = self._reading[of] = asyncio.get_running_loop().create_task(self._read(of, known))
                task.add_done_callback(partial(self._read_ended, of))
            kept = await asyncio.shield(task)
        return kept

    def _read_ended(self, uid: PodUid, task: asyncio.Task[_Kept]) -> None:
        self._reading.pop(uid, None)
        if not task.cancelled():
            task.exception()  # it may be that nobody waits any longer

    async def _read(self, uid: PodUid, known: KnownSpec) -> _Kept:
        if isinstance(self._pods, NoFacts):
            raise NodewardError("no API server is configured: set kube.enabled to true")
        namespace, name = known.spec.namespace, known.spec.name
        data = await self._pods.reader.client.get_json(namespace, name, redaction.MAX_BYTES)
        # a large one takes long, and runtimes wait for the loop
        pod, mirrored = await asyncio.get_running_loop().run_in_executor(None, _redacted, data)
        metadata = _within(pod, "metadata")
        if metadata.get("uid") != known.spec.uid and not (mirrored and mirrored == known.spec.config_hash):
            raise NodewardError("another pod has this name at the API server now")
        version, text = str(metadata.get("resourceVersion", "")), msgspec.json.encode(pod)
        kept = _Kept(known.seq, version, text, _images(pod), self._clock.wall_ns())
        self._kept.pop(uid, None)
        self._kept[uid] = kept
        while len(self._kept) > MOST_KEPT or sum(len(one.pod) for one in self._kept.values()) > MOST_KEPT_BYTES:
            self._kept.pop(next(iter(self._kept)))
        return kept


def _redacted(data: bytes) -> tuple[object, str]:
    """The pod, and the UID of the static pod whose mirror it says it is. Kubelet makes a mirror that was deleted anew,
    with another UID of its own."""
    pod = redaction.decode(data)
    notes = _within(pod, "metadata", "annotations")
    mirrored = _text(notes.get(MIRROR))
    return redaction.redacted(pod), mirrored if mirrored == notes.get(CONFIG_HASH) else ""


def _within(value: object, *names: str) -> Mapping[str, object]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _rows(pod: object, name: str) -> list[Mapping[str, object]]:
    found = _within(pod, "spec").get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _images(pod: object) -> Mapping[str, str]:
    kinds = ("initContainers", "containers", "ephemeralContainers")
    return {_text(one.get("name")): _text(one.get("image")) for kind in kinds for one in _rows(pod, kind)}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def components(node: Node, pods: NoFacts | ApiFacts, devices: PodDevices) -> list[Component]:
    """The Pod API's sockets and what they answer from, where the settings want it."""
    settings = node.settings
    if not settings.podapi.enabled:
        return []
    from nodeward.features.podapi.door import grpc, http, methods
    from nodeward.features.podapi.effects.answers import Answers, Provider
    from nodeward.features.podapi.effects.pulls import PodPulls  # it reads what VMs are configured with
    from nodeward.features.podapi.effects.volumes import PodVolumeClaims

    core, files, clock = node.core, node.files, node.clock
    specs, watchers = Specs(core, pods, clock), Watchers(lambda: core.state)
    core.followers.append(watchers.changed)
    pulls = PodPulls(settings, files, clock, lambda: core.state.pods)
    lane = node.lane("volumes")

    async def relayed() -> tuple[PullsView | None, bool]:
        view, _ = await pulls.sandboxes()
        return view, pulls.absent and not settings.nri.enabled

    volumes = PodVolumeClaims(lambda: core.state, specs.redacted, files, lane, clock, settings.run_dir, relayed)

    async def images(uid: str, namespace: str, name: str, sandbox: str) -> Section[object]:
        return await pulls.images(uid, namespace, name, sandbox, await specs.images(uid))

    async def device(uid: str, namespace: str, name: str, _: str) -> Section[object]:
        return (await devices.sections(uid, namespace, name))[0]

    async def numa(uid: str, namespace: str, name: str, _: str) -> Section[object]:
        return (await devices.sections(uid, namespace, name))[1]

    providers: Mapping[str, Provider] = {
        "numa": numa,
        "devices": device,
        "volumes": lambda uid, *_: specs.in_turn(lambda: volumes.volumes(PodUid(uid))),
        "network": lambda *of: volumes.network(of[3]),
        "images": images,
        "pulls": pulls.pulls,
        "spec": specs.spec,
    }
    answers = Answers(node, watchers, providers, pulls.sandboxes)
    served = (
        methods.Method("DescribePod", DescribePodRequest, answers.describe_pod),
        methods.Method("ListPods", ListPodsRequest, answers.list_pods),
        methods.Method("ComputeSize", ComputeSizeRequest, answers.compute_size),
        methods.Method("ReportSandbox", ReportSandboxRequest, answers.report_sandbox),
        methods.Method(
            "SetGate", SetGateRequest, lambda asked: node.part(Gates).set_gate(asked, methods.asked_by.get())
        ),
        methods.Method("ResolvePull", ResolvePullRequest, pulls.resolve),
        methods.Method("ReportPull", ReportPullRequest, pulls.report),
        methods.Method("OfferVolumes", OfferVolumesRequest, volumes.offer),
        methods.Method("ConfirmVolume", ConfirmVolumeRequest, volumes.confirm),
        methods.Method("ListVolumeClaims", ListVolumeClaimsRequest, volumes.claims),
        methods.Method("HoldVolume", HoldVolumeRequest, volumes.hold),
    )
    api = methods.Api({one.name: one for one in served}, watchers.opened)
    desk = methods.Desk()
    path = settings.podapi.socket or f"{settings.run_dir}/{SOCKET}"
    of_grpc = settings.podapi.grpc_socket or f"{settings.run_dir}/{GRPC_SOCKET}"
    return [
        serving("podapi", node.note, path, partial(http.run, path, settings.podapi.uids, api, desk)),
        serving("podapi-grpc", node.note, of_grpc, partial(grpc.run, of_grpc, api, desk)),
        ("podapi-watch", watchers.run),
        ("podapi-volumes", volumes.run),
    ]
