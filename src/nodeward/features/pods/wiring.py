"""What pods need of the daemon: the watch on this node's pods, and reads of single pods."""

import asyncio
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

from nodeward.core.events import Event, Hooked, PodSeen, SandboxStarted
from nodeward.core.modes import Mode
from nodeward.core.ports import Tell
from nodeward.core.vms import NOT_TOLD, Allocatable
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.features.wiring import Component, Node, Wired, Wiring, name_of_node
from nodeward.host.clock import Clock
from nodeward.host.runner import Core

if TYPE_CHECKING:
    from nodeward.neighbours.kubernetes.reflector import PodReader

log = logging.getLogger(__name__)
MOST_AHEAD = 16
"""So many requests for pods are under way at once before a create waits for one."""


class NoFacts:
    """Facts where no API server is chosen."""

    async def fetch(self, fact: str, key: str) -> str:
        """Nothing can be asked."""
        return f"{fact} {key}: no API server is configured"

    heard_ns = 0
    """Nobody is ever heard."""
    allocatable = NOT_TOLD

    def listens(self, tell: Tell) -> Tell:
        """`tell` as it is."""
        return tell


class ApiFacts:
    """Facts that are fetched from the API server, and told to the core as they come: at most one request a pod under
    way at a time."""

    def __init__(self, reader: "PodReader", core: Core[State]) -> None:
        self.reader, self.core = reader, core
        self._under_way: dict[str, asyncio.Task[str]] = {}
        self.allocatable = NOT_TOLD
        """By the Node object, as it was read last."""

    def learn(self, allocatable: Allocatable) -> None:
        """Keeps what was read of the Node object."""
        self.allocatable = allocatable

    @property
    def heard_ns(self) -> int:
        """When the API server last said anything about the node's pods, 0 for never."""
        return self.reader.heard_ns

    @property
    def under_way(self) -> int:
        """How many requests there are now."""
        return len(self._under_way)

    def listens(self, tell: Tell) -> Tell:
        """`tell`; and the sandbox of a pod that nobody knows yet starts the request which its creates will wait for."""

        def told(event: Event) -> int:
            seq = tell(event)
            if isinstance(event, SandboxStarted | Hooked):
                pods, home = self.core.state.pods, event.sandbox
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
        """Ends the fetches under way."""
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
            found = await self.reader.read_pod(namespace, name, uid)
            if not isinstance(found, PodSeen):
                return found.why
            pods = self.core.state.pods
            if found.pod.uid in pods.ended:
                return f"pod {namespace}/{name} was deleted meanwhile"
            if uid not in pods.specs:  # else the watch was faster, and may know better
                self.core.tell(found)
            return ""
        except Exception as error:  # nobody may be waiting for it
            log.exception("pod=unread key=%s", key)
            return f"{type(error).__name__}: {error}"


def known_pods(settings: Settings, clock: Clock, core: Core[State]) -> NoFacts | ApiFacts:
    """What the API server says of pods, where the settings choose one."""
    if not settings.kube.enabled:
        return NoFacts()
    from nodeward.neighbours.kubernetes import auth, reflector
    from nodeward.neighbours.kubernetes.client import PodsClient
    from nodeward.neighbours.kubernetes.settings import KubeSettings

    chosen = KubeSettings(
        endpoint=auth.endpoint_of(settings.kube, os.environ),
        node_name=name_of_node(settings, os.environ),
        resources=settings.engine.declared,
    )
    return ApiFacts(reflector.PodReader(PodsClient(chosen, clock)), core)


def kube(settings: Settings, clock: Clock, facts: ApiFacts, tell: Tell) -> list[Component]:
    """Wires the watch on this node's pods and on the node's allocatable."""
    from nodeward.neighbours.kubernetes import reflector

    client = facts.reader.client

    async def reflect() -> None:
        try:
            await reflector.run(client.settings, tell, clock, facts.core.seq, client=client)
        finally:
            facts.close()
            await client.aclose()  # opens itself again at the next request

    chosen: list[Component] = [("kube", reflect)]
    if settings.sizing.mode is not Mode.OFF or settings.podapi.enabled:
        from nodeward.features.pods.effects.node_status import keep_allocatable

        chosen.append(("allocatable", partial(keep_allocatable, client, facts.learn, clock)))
    return chosen


def _components(node: Node) -> Wired:
    pods = node.pods
    node.facts.offer("pod", partial(pods.fetch, "pod"))
    return Wired(tuple(kube(node.settings, node.clock, pods, node.tell)) if isinstance(pods, ApiFacts) else ())


WIRING = Wiring(_components)
