"""The Pod API: the engine's state, and the whole spec of a pod by one read at the API server, redacted.

A redacted spec is kept beside the engine's state, never in it, so that no record carries one. It holds for one UID and
for as long as the watch tells nothing new of that pod.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from nodeward.aio.clock import Clock
from nodeward.app.host.core import Core
from nodeward.app.node.gate import Gates, SetGateError
from nodeward.app.node.pods import ApiFacts, NoFacts
from nodeward.app.node.wiring import Component
from nodeward.engine.show import podapi as show
from nodeward.engine.state.pods import KnownSpec
from nodeward.model.errors import NodewardError
from nodeward.model.podapi import PodVolume, Section
from nodeward.model.podapi_gate import SetGateRequest
from nodeward.model.settings import Settings
from nodeward.model.workload import PodUid
from nodeward.wire import pod_redaction

SOCKET = "podapi.sock"
"""In the settings' `run_dir`."""
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

    def __init__(self, core: Core, pods: NoFacts | ApiFacts, clock: Clock) -> None:
        self._core, self._pods, self._clock = core, pods, clock
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
        answer = show.described(self._core.state, uid, known, at, self._clock.wall_ns())
        if spec:
            try:
                kept = await self._of(uid, known)
            except NodewardError as error:
                lost: Section[object] = Section(None, API, False, str(error))
                volumes: Section[tuple[PodVolume, ...]] = Section(None, API, False, str(error))
                images: Section[Mapping[str, str]] = Section(None, API, False, str(error))
                answer = replace(answer, spec=lost, volumes=volumes, images=images)
            else:
                pod: object = msgspec.json.decode(kept.pod)
                answer = replace(
                    answer,
                    spec=Section(pod, f"{API}, resourceVersion {kept.version}", observed_at=kept.at),
                    volumes=Section(_volumes(pod), API, observed_at=kept.at),
                    images=Section(_images(pod), API, observed_at=kept.at),
                )
        return msgspec.json.encode(answer)

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


def components(settings: Settings, core: Core, pods: NoFacts | ApiFacts, clock: Clock, gates: Gates) -> list[Component]:
    """The Pod API's socket, where the settings want it."""
    if not settings.podapi.enabled:
        return []
    from nodeward.edges.podapi import server

    async def set_gate(body: bytes, by: int) -> bytes:
        try:
            request = msgspec.json.decode(body, type=SetGateRequest)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SetGateError(400, f"the body is no request of SetGate: {error}") from error
        return msgspec.json.encode(await gates.set_gate(request, by))

    specs = Specs(core, pods, clock)
    answers = server.Answers(lambda: msgspec.json.encode(show.pods(core.state)), specs.describe, set_gate)
    path = settings.podapi.socket or f"{settings.run_dir}/{SOCKET}"
    return [("podapi", partial(server.run, path, settings.podapi.uids, answers))]
