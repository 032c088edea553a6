"""Keeps this node's NodeResourceTopology object in step with its CPUs.

Each round looks at the object and writes it if it does not say what it should. A round begins when the CPUs have
changed, when somebody has touched the object (a watch says so), and after a while. So a restart of ours, an object
deleted or edited by somebody, and a definition installed later are one and the same.

Promises: at most one write in GAP_S; nothing is written that is there already; what somebody takes back again and again
is put back less and less often. Must not: say what a zone is (`features.cpus.zones` does), or touch an object that is
not ours.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from random import random

from nodeward.core.topology import NodeZones
from nodeward.features.cpus.zones import NOTHING, zones
from nodeward.features.settings import Settings
from nodeward.features.wiring import FIRST_PAUSE_S, LAST_PAUSE_S, Node, Note, Wired, name_of_node
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock, SystemClock
from nodeward.host.waits import first_of
from nodeward.neighbours.kubernetes import auth
from nodeward.neighbours.kubernetes.errors import KubeError
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.kubernetes.topology_object import Found, TopologyObjectClient

KIND = "nrt"
"""Of the change on the undo list."""


def client_of(settings: Settings, environ: Mapping[str, str], clock: Clock, node: str = "") -> TopologyObjectClient:
    """Requests about a node's object; without a name, about this node's."""
    endpoint = auth.endpoint_of(settings.kube, environ)
    return TopologyObjectClient(
        KubeSettings(endpoint=endpoint, node_name=node or name_of_node(settings, environ)), clock
    )


def remove(settings: Settings, environ: Mapping[str, str], name: str) -> str:
    """Deletes the object of this name if it is ours; what became of it. NodewardError where that cannot be done."""
    return asyncio.run(_remove(client_of(settings, environ, SystemClock(), name)))


async def _remove(one: TopologyObjectClient) -> str:
    try:
        found = await one.look()
        if found is None:
            return "is gone already"
        await one.remove(found)
        return "deleted"
    finally:
        await one.aclose()


log = logging.getLogger(__name__)
NAME = "topology-object"
GAP_S = 1.0
CALM_S = 300.0
"""So long after another one has written the object, it is said; and after so long in peace it is put back at once."""
RETIRE_S = 3.0
"""So long a person waits for the end of the object."""


class TopologyReconciler:
    """One node's object."""

    def __init__(
        self,
        client: TopologyObjectClient,
        wanted: Callable[[], NodeZones | None],
        remember: Callable[[], None],
        clock: Clock,
        note: Note,
    ) -> None:
        """`wanted`: what it should say; nothing, and it is removed; None, and it stays as it is. `remember` puts it on
        the undo list; it may sleep."""
        self._client, self._wants, self._clock, self._note = client, wanted, clock, note
        self._remember, self._remembered, self._retired = remember, False, False
        self._written: NodeZones | None = None
        self._undone = Backoff(GAP_S, LAST_PAUSE_S, random)
        self._undone_ns: int | None = None
        self._others = ""

    async def forever(self) -> None:
        """Round after round."""
        delays = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random)
        while True:
            wanted = self._wanted()
            try:
                if wanted is None:
                    await self._clock.sleep(GAP_S)
                    continue
                found = await self._round(wanted)
                delays.reset()
                if found is not None or not wanted.zones:
                    self._say()
                    await self._until_next(wanted, found)
            except KubeError as error:
                self._written = None
                self._note(NAME, False, str(error))
                await self._clock.sleep(delays.next_s())
            await self._clock.sleep(GAP_S)

    async def retire(self) -> tuple[str, ...]:
        """Takes the object away for good; what became of it."""
        self._retired = True
        where = f"NodeResourceTopology {self._client.node}"
        try:
            async with asyncio.timeout(RETIRE_S):
                found = await self._client.look()
                if found is None:
                    return (f"{where} is not there",)
                await self._client.remove(found)
        except TimeoutError:
            return (f"{where} is not deleted yet: the API server does not answer; the daemon goes on trying",)
        except KubeError as error:
            return (f"{where} is not deleted: {error}; the daemon goes on trying",)
        return (f"{where} is deleted",)

    def _wanted(self) -> NodeZones | None:
        return NOTHING if self._retired else self._wants()

    async def _round(self, wanted: NodeZones) -> Found | None:
        """Makes the object what it should be; the object if it was so already."""
        found = await self._client.look()
        if not wanted.zones:
            self._written = None
            if found is not None and found.ours:
                await self._client.remove(found)
                log.info("topology-object=removed node=%s", self._client.node)
            return None
        if found is not None and found.ours and found.says(wanted):
            self._written = wanted
            return found
        if wanted == self._written:
            await self._pause(found)
            found = await self._client.look()
        if not self._remembered:
            await asyncio.to_thread(self._remember)
            self._remembered = True
        await self._client.write(wanted, found)
        self._written = wanted
        return None  # the next round reads it back

    async def _pause(self, found: Found | None) -> None:
        """Before what somebody has taken back is put back."""
        now_ns = self._clock.now_ns()
        if self._is_calm():
            self._undone.reset()
        self._undone_ns = now_ns
        self._others = self._client.writers(found) if found is not None and found.others else ""
        log.info("topology-object=taken-back node=%s others=%r", self._client.node, self._others)
        await self._clock.sleep(self._undone.next_s())

    def _is_calm(self) -> bool:
        return self._undone_ns is None or self._clock.now_ns() - self._undone_ns > CALM_S * 1e9

    def _say(self) -> None:
        if self._others and not self._is_calm():
            also = f"the object is {self._others} too, and was put back; let one alone write it"
            self._note(NAME, False, also)
        else:
            self._note(NAME, True, "written" if self._written is not None else "removed")

    async def _until_next(self, wanted: NodeZones, found: Found | None) -> None:
        """Returns when something else is wanted or the object was touched. Raises what the watch raised."""
        touched = [self._client.until_touched(found.version)] if found is not None else []
        await first_of(self._changed(wanted), *touched)

    async def _changed(self, wanted: NodeZones) -> None:
        while self._wanted() in (wanted, None):
            await self._clock.sleep(GAP_S)


def wired(node: Node) -> Wired:
    """The session where the settings choose it; or, where an earlier life has left the object, its removal."""
    enabled = node.settings.topology_objects.enabled
    left = any(change.target.partition(":")[0] == KIND for change in node.changes)
    if not node.settings.kube.enabled or not (enabled or left):
        return Wired(())
    client, core = client_of(node.settings, os.environ, node.clock), node.core
    of, last = core.state, zones(core.state) if enabled else NOTHING

    def wanted() -> NodeZones | None:
        """Made anew only where what it is made of is another object."""
        nonlocal of, last
        now = core.state
        is_same = now.cpus is of.cpus and now.settings is of.settings and now.pods.runtime == of.pods.runtime
        if enabled and not is_same:
            of, last = now, zones(now)
        return last

    def remember() -> None:
        node.undo.remember(f"{KIND}:{client.node}", "absent")

    session = TopologyReconciler(client, wanted, remember, node.clock, node.note)

    async def run() -> None:
        try:
            await session.forever()
        finally:
            await client.aclose()  # opens itself again at the next request

    return Wired(((NAME, run),), (session.retire,))
