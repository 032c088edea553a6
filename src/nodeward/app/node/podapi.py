"""The Pod API: the engine's state, and the whole spec of a pod by one read at the API server, redacted.

A redacted spec is kept beside the engine's state, never in it, so that no record carries one. It holds for one UID and
for as long as the watch tells nothing new of that pod.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from nodeward.aio.clock import Clock
from nodeward.aio.hostfs import HostFiles
from nodeward.app.host.core import Core
from nodeward.app.node.pods import ApiFacts, NoFacts
from nodeward.app.node.wiring import Component
from nodeward.engine.show import podapi as show
from nodeward.engine.state.pods import KnownSpec
from nodeward.model.errors import NodewardError
from nodeward.model.podapi import PodVolume, Section
from nodeward.model.podapi_pulls import ReportPullRequest, ResolvePullRequest
from nodeward.model.settings import Settings
from nodeward.model.workload import PodUid
from nodeward.wire import pod_redaction

if TYPE_CHECKING:
    from nodeward.app.node.pod_pulls import PodPulls

SOCKET = "podapi.sock"
"""In the settings' `run_dir`."""
T = TypeVar("T")
MOST_KEPT, MOST_KEPT_BYTES = 256, 16 * 1024 * 1024
API = "the API server"


@dataclass(frozen=True, slots=True)
class _Kept:
    """A redacted pod, as JSON, and of which telling of the watch it is."""

    seq: int
    version: str
    pod: bytes
    at: int


class Specs:
    """Redacted specs by UID, read where they are asked for; one read of a pod at a time."""

    def __init__(self, core: Core, pods: NoFacts | ApiFacts, clock: Clock, pulls: "PodPulls") -> None:
        self._core, self._pods, self._clock, self._pulls = core, pods, clock, pulls
        self._kept: dict[PodUid, _Kept] = {}
        self._reading: dict[PodUid, asyncio.Task[_Kept]] = {}

    async def describe(self, namespace: str, name: str, spec: bool) -> bytes | None:
        """The pod's description as JSON; None for one that is not known."""
        found = show.pod_named(self._core.state, namespace, name)
        if found is None:
            return None
        uid, known = found
        heard = self._pods.heard_ns
        at = self._clock.wall_ns() - (self._clock.now_ns() - heard) if heard else 0
        answer = show.described(self._core.state, uid, known, at)
        images: Section[Mapping[str, str]] = Section(None, API, False, answer.images.why)
        if spec:
            try:
                kept = await self._of(uid, known)
            except NodewardError as error:
                lost: Section[object] = Section(None, API, False, str(error))
                volumes: Section[tuple[PodVolume, ...]] = Section(None, API, False, str(error))
                images = Section(None, API, False, str(error))
                answer = replace(answer, spec=lost, volumes=volumes)
            else:
                pod: object = msgspec.json.decode(kept.pod)
                answer = replace(
                    answer,
                    spec=Section(pod, f"{API}, resourceVersion {kept.version}", observed_at=kept.at),
                    volumes=Section(_volumes(pod), API, observed_at=kept.at),
                )
                images = Section(_images(pod), API, observed_at=kept.at)
        of = (uid, namespace, name, self._core.state.pods.sandbox_of.get(uid, ""))
        pulls, rows = await self._pulls.pulls(*of), await self._pulls.images(*of, images)
        return msgspec.json.encode(replace(answer, pulls=pulls, images=rows))

    async def redacted(self, uid: PodUid) -> tuple[object, int]:
        """A pod's redacted spec, and when it was read. NodewardError where it cannot be had."""
        known = self._core.state.pods.specs.get(uid)
        if known is None:
            raise NodewardError("the pod is not known on this node")
        kept = await self._of(uid, known)
        pod: object = msgspec.json.decode(kept.pod)
        return pod, kept.at

    async def _of(self, uid: PodUid, known: KnownSpec) -> _Kept:
        kept = self._kept.get(uid)
        if kept is not None and kept.seq == known.seq:
            return kept
        task = self._reading.get(uid)
        if task is None:
            task = self._reading[uid] = asyncio.get_running_loop().create_task(self._read(uid, known))
            task.add_done_callback(partial(self._read_ended, uid))
        return await asyncio.shield(task)

    def _read_ended(self, uid: PodUid, task: asyncio.Task[_Kept]) -> None:
        self._reading.pop(uid, None)
        if not task.cancelled():
            task.exception()  # it may be that nobody waits any longer

    async def _read(self, uid: PodUid, known: KnownSpec) -> _Kept:
        if isinstance(self._pods, NoFacts):
            raise NodewardError("no API server is configured: set kube.enabled to true")
        namespace, name = known.spec.namespace, known.spec.name
        data = await self._pods.reader.client.get_json(namespace, name, pod_redaction.MAX_BYTES)
        # a large one takes long, and runtimes wait for the loop
        pod = await asyncio.get_running_loop().run_in_executor(None, _redacted, data)
        metadata = _within(pod, "metadata")
        if metadata.get("uid") != known.spec.uid:
            raise NodewardError("another pod has this name at the API server now")
        kept = _Kept(
            known.seq, str(metadata.get("resourceVersion", "")), msgspec.json.encode(pod), self._clock.wall_ns()
        )
        self._kept.pop(uid, None)
        self._kept[uid] = kept
        while len(self._kept) > MOST_KEPT or sum(len(one.pod) for one in self._kept.values()) > MOST_KEPT_BYTES:
            self._kept.pop(next(iter(self._kept)))
        return kept


def _redacted(data: bytes) -> object:
    return pod_redaction.redacted(pod_redaction.decode(data))


def _within(value: object, *names: str) -> Mapping[str, object]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _rows(pod: object, name: str) -> list[Mapping[str, object]]:
    found = _within(pod, "spec").get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _volumes(pod: object) -> tuple[PodVolume, ...]:
    return tuple(
        PodVolume(_text(one.get("name")), next((kind for kind in one if kind != "name"), ""))
        for one in _rows(pod, "volumes")
    )


def _images(pod: object) -> Mapping[str, str]:
    kinds = ("initContainers", "containers", "ephemeralContainers")
    return {_text(one.get("name")): _text(one.get("image")) for kind in kinds for one in _rows(pod, kind)}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


async def _called(kind: type[T], answer: Callable[[T], Awaitable[object]], body: bytes) -> bytes:
    """The answer as JSON. NodewardError where the body is no such request; the message repeats nothing of it."""
    try:
        asked = msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise NodewardError(f"the body is no {kind.__name__}: {error}") from error
    return msgspec.json.encode(await answer(asked))


def components(
    settings: Settings, files: HostFiles, core: Core, pods: NoFacts | ApiFacts, clock: Clock
) -> list[Component]:
    """The Pod API's socket, where the settings want it."""
    if not settings.podapi.enabled:
        return []
    from nodeward.app.node.pod_pulls import PodPulls  # it reads what VMs are configured with
    from nodeward.edges.podapi import server

    pulls = PodPulls(settings, files, clock, lambda: core.state.pods)
    specs = Specs(core, pods, clock, pulls)
    methods = {
        "ResolvePull": partial(_called, ResolvePullRequest, pulls.resolve),
        "ReportPull": partial(_called, ReportPullRequest, pulls.report),
    }
    answers = server.Answers(lambda: msgspec.json.encode(show.pods(core.state)), specs.describe, methods)
    path = settings.podapi.socket or f"{settings.run_dir}/{SOCKET}"
    return [("podapi", partial(server.run, path, settings.podapi.uids, answers))]
