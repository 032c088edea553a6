"""Watches this node's pods, and reads one pod when a decision waits for it.

Three watches, each simple: the single one reads one stream to its end; the continuous one lists where it must and
strings single ones together; the infinite one waits after a failure and starts again.

Promises: the first word is PodsListed or ApiLost; a PodsListed carries the sequence number from before its first page
was asked for; after a stream that ended, was cut or went silent, the watch goes on from the last version seen; after
410 (as status or as event), and after anything that could not be read, all pods are listed again, so nothing is missed.
ApiLost is said once when the server stops answering, and again when that has a cause of another kind (a connection that
broke, then a token that is refused); ApiBack once when it answers again. No two tries without a pause
unless the first one brought something.

Must not: keep pods (the core does), raise anything but cancellation out of `run`.
"""

import logging
from dataclasses import dataclass
from random import random
from typing import Protocol

from nodeward.core.events import ApiBack, ApiLost, PodSeen, PodsListed
from nodeward.core.ports import Sequence, Tell
from nodeward.core.workload import PodSpec
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.neighbours.formats.kube_objects import Bookmark, PodChange, PodListPage
from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.kubernetes.errors import KubeError, KubeExpiredError, KubeGarbageError, KubeMissingError
from nodeward.neighbours.kubernetes.mapping import pod_event, pod_spec
from nodeward.neighbours.kubernetes.settings import KubeSettings

_log = logging.getLogger(__name__)
_MAX_PAGES = 1000
_FIRST_S = 0.2
_MOST_S = 30.0
_BRIEF_NS = 1_000_000_000


class Delays(Protocol):
    """How long to wait before the next try; `nodeward.host.backoff.Backoff` is one."""

    def next_s(self) -> float: ...

    def reset(self) -> None: ...


async def run(
    settings: KubeSettings,
    tell: Tell,
    clock: Clock,
    sequence: Sequence,
    *,
    client: PodsClient | None = None,
    delays: Delays | None = None,
) -> None:
    """Reflects this node's pods until cancelled. A `client` that is given stays open; else one is made and closed."""
    used = client if client is not None else PodsClient(settings, clock)
    try:
        await Reflector(
            used, tell, clock, sequence, delays if delays is not None else Backoff(_FIRST_S, _MOST_S, random)
        ).forever()
    finally:
        if client is None:
            await used.aclose()


class Reflector:
    """The watch on this node's pods. `version` is the last one seen; empty means that a list is due."""

    def __init__(self, client: PodsClient, tell: Tell, clock: Clock, sequence: Sequence, delays: Delays) -> None:
        self._client = client
        self._tell = tell
        self._clock = clock
        self._sequence = sequence
        self._delays = delays
        self._answering: bool | None = None
        self._lost_by: type[KubeError] | None = None
        self.version = ""

    async def forever(self) -> None:
        """The infinite watch."""
        while True:
            try:
                await self.continuous()
            except KubeExpiredError as error:
                _log.info("kube watch version=expired why=%s", error)
                self.version = ""
            except KubeGarbageError as error:
                self.version = ""
                self._lost(error)
            except KubeError as error:
                self._lost(error)
            await self._clock.sleep(self._delays.next_s())

    async def continuous(self) -> None:
        """The continuous watch: lists if no version is known, then watches until something fails."""
        if not self.version:
            self.version = await self.list_all()
        while True:
            began_ns = self._clock.now_ns()
            brought = await self.single()
            if brought or self._clock.now_ns() - began_ns >= _BRIEF_NS:
                self._delays.reset()
            else:
                await self._clock.sleep(self._delays.next_s())

    async def list_all(self) -> str:
        """Lists all pods and passes them on; returns the version they had."""
        as_of = self._sequence()
        page = await self._client.list_page()
        pods = self._specs(page)
        version = page.metadata.resource_version
        for _ in range(_MAX_PAGES):
            if not page.metadata.continue_token:
                break
            page = await self._client.list_page(page.metadata.continue_token)
            pods += self._specs(page)
            version = page.metadata.resource_version or version
        else:
            raise KubeGarbageError(f"a list of pods with more than {_MAX_PAGES} pages: the server repeats itself")
        if not version:
            raise KubeGarbageError("a list of pods without a resourceVersion: no watch can start from it")
        self._back()
        self._tell(PodsListed(tuple(pods), as_of))
        return version

    async def single(self) -> bool:
        """One watch from `version` to its end; whether it brought anything."""
        brought = False
        async with self._client.watch(self.version) as events:
            self._back()
            async for event in events:
                if not brought:
                    brought = True
                    self._delays.reset()
                self._take(event)
        return brought

    def _take(self, event: PodChange | Bookmark) -> None:
        if isinstance(event, Bookmark):
            self.version = event.resource_version or self.version
            return
        self._tell(pod_event(event, self._client.settings.resources))
        self.version = event.pod.metadata.resource_version or self.version

    def _specs(self, page: PodListPage) -> list[PodSpec]:
        return [pod_spec(pod, self._client.settings.resources) for pod in page.items or ()]

    def _lost(self, error: KubeError) -> None:
        if self._answering is not False or type(error) is not self._lost_by:
            self._answering, self._lost_by = False, type(error)
            _log.warning("kube api=lost why=%s", error)
            self._tell(ApiLost(str(error)))

    def _back(self) -> None:
        if self._answering is not True:
            self._answering = True
            _log.info("kube api=answers")
            self._tell(ApiBack())


@dataclass(frozen=True, slots=True)
class Missing:
    """The pod cannot be had now. `why` is a sentence; `gone` says that the API server knows no such pod."""

    why: str
    gone: bool = False


class PodReader:
    """Reads one pod, for a decision that waits for it."""

    def __init__(self, client: PodsClient) -> None:
        self.client = client

    @property
    def heard_ns(self) -> int:
        """When the API server last said anything about the node's pods, 0 for never."""
        return self.client.heard_ns

    async def read_pod(self, namespace: str, name: str, uid: str) -> PodSeen | Missing:
        """The pod with this uid. `uid` is the runtime's: a static pod matches by its mirror pod's config hash."""
        if not _is_name(namespace) or not _is_name(name):
            return Missing(f"{namespace!r}/{name!r} is not a pod's name", gone=True)
        try:
            found = pod_spec(await self.client.get_pod(namespace, name), self.client.settings.resources)
        except KubeMissingError:
            return Missing(f"the API server has no pod {namespace}/{name}", gone=True)
        except KubeError as error:
            return Missing(str(error))
        if uid in (found.uid, found.config_hash):
            return PodSeen(found)
        return Missing(f"pod {namespace}/{name} has uid {found.uid}, not {uid}: another one took its name", gone=True)


def _is_name(text: str) -> bool:
    """Whether `text` can stand in a path: letters, digits, dots and dashes, and not a way upwards."""
    plain = text.replace("-", "").replace(".", "")
    return plain.isascii() and plain.isalnum() and len(text) <= 253
