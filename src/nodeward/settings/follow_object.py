"""Follows the BalloonsPolicy object that selects this node, and writes its status.

Each round looks at what there is; the strongest object counts, and it is in force whole or not at all. A round begins
when such an object comes, goes or gets another spec, when the node changes its group, and after a while.

Promises: an object with faults leaves the policy that is in force, and its status has every fault. While the API
server is away, and after a restart, the last object that was in force goes on. Without any object the settings have the
policy.
Must not: translate a spec (`settings.policy_object` does), or decide about containers.
"""

import asyncio
import contextlib
import logging
import os
from random import random

from nodeward.core.modes import Mode
from nodeward.core.ports import Tell
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.features.wiring import FIRST_PAUSE_S, LAST_PAUSE_S, Component, Note, name_of_node
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.runner import Core
from nodeward.host.waits import first_of
from nodeward.neighbours.kubernetes import auth
from nodeward.neighbours.kubernetes.errors import KubeError, KubeMissingError
from nodeward.neighbours.kubernetes.policy_format import MAX_ERRORS
from nodeward.neighbours.kubernetes.policy_object import PolicyKind, PolicyObject, Said
from nodeward.neighbours.kubernetes.policy_objects import PolicyObjectList, PolicyObjectsClient
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.settings.load import SettingsError
from nodeward.settings.policy_object import translated
from nodeward.settings.reload import Reload

log = logging.getLogger(__name__)
GAP_S = 0.5
"""Between two rounds at least: nobody makes the daemon place all containers anew more often."""
ABSENT_S = 30.0
"""How often it is looked whether the kinds are served, while they are not."""
SUCCESS, FAILURE = "Success", "Failure"
NAME = "policy-objects"
_Key = tuple[PolicyKind, str]


class PolicyObjectFollower:
    """The objects that mean one node."""

    def __init__(
        self, client: PolicyObjectsClient, core: Core[State], tell: Tell, reload: Reload, clock: Clock, note: Note
    ) -> None:
        self._note = note
        self._client, self._core, self._tell, self._reload, self._clock = client, core, tell, reload, clock
        of = reload.chosen.named if reload.chosen is not None else None
        self._spoken: _Key | None = (of.kind, of.name) if of is not None else None
        self._judged: tuple[_Key, tuple[str, int]] | None = None
        self._why: tuple[str, ...] = ()
        self._unserved = False

    async def forever(self) -> None:
        """Round after round."""
        delays = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random)
        while True:
            try:
                seen = await self._client.look()
                if self._is_doubtful(seen):
                    await self._clock.sleep(ABSENT_S)
                    continue
                await self._round(seen)
                self._note(NAME, True, "watched")
                delays.reset()
                await self._until_next(seen)
            except KubeError as error:
                self._note(NAME, False, f"{error}; what is in force stays")
                await self._clock.sleep(delays.next_s())
            await self._clock.sleep(GAP_S)

    def _is_doubtful(self, seen: PolicyObjectList) -> bool:
        """Whether an object is in force of a kind that is not served for the first time: an API server that starts does
        not serve it yet."""
        was, self._unserved = self._unserved, PolicyKind.BALLOONS not in seen.versions
        return self._unserved and not was and self._reload.chosen is not None

    async def _round(self, seen: PolicyObjectList) -> None:
        """Puts in force what counts, and says so."""
        found = seen.objects[0] if seen.objects else None
        key = (found.kind, found.name) if found is not None else None
        judged = (key, found.mark) if found is not None and key is not None else None
        if judged is None:
            self._give_back()
        elif found is not None and (judged != self._judged or self._why or self._core.state.cpus.refused):
            await self._take(found)  # also again: what was refused may fit the machine by now, or the other way round
        self._judged = judged
        if self._spoken is not None and self._spoken != key:
            await self._unsay(*self._spoken)
        self._spoken = key
        if found is not None:
            errors = "; ".join(self._why)[:MAX_ERRORS]
            said = Said(FAILURE if errors else SUCCESS, found.generation, errors)
            if found.said != said:
                await self._client.say(found.kind, found.name, said)

    def _give_back(self) -> None:
        """Nothing means this node: the settings have the policy."""
        self._why = ()
        self._reload.refuse(())
        if self._reload.chosen is not None:
            log.info("policy-object=gone so='the settings have the policy'")
            self._reload.choose(None, self._tell)
            self._reload.remember()

    async def _take(self, found: PolicyObject) -> None:
        why = await self._judge(found)
        if why != self._why:
            for fault in why:
                log.error("policy-object=refused object=%r fault=%r", str(found), fault)
        self._why = why
        self._reload.refuse(why)

    async def _judge(self, found: PolicyObject) -> tuple[str, ...]:
        """Puts the object in force; why it is not, nothing where it is."""
        try:
            chosen = await asyncio.to_thread(translated, found)  # a mebibyte takes a second, and creates do not wait
        except SettingsError as error:
            return tuple(error.faults)
        before = self._reload.chosen
        if self._core.state.settings.cpus.mode is Mode.OFF:
            return ("cpus.mode is off in the settings of this node: no policy is in force",)
        self._reload.choose(chosen, self._tell)
        if refused := self._core.state.cpus.refused:
            self._reload.choose(before, self._tell)
            return refused
        log.info("policy-object=in-force object=%r", str(found))
        self._reload.remember()
        return ()

    async def _unsay(self, kind: PolicyKind, name: str) -> None:
        """Takes this node out of the status of an object that counts no more, where that is still there."""
        with contextlib.suppress(KubeMissingError):
            await self._client.say(kind, name, None)

    async def _until_next(self, seen: PolicyObjectList) -> None:
        """Returns when something was touched, or a watch ended. Raises what a watch raised."""
        watches = [self._client.until_touched(seen, kind) for kind in seen.versions]
        again = [self._clock.sleep(ABSENT_S)] if len(watches) < len(PolicyKind) else []
        await first_of(*watches, self._client.until_moved(seen.group), *again)


def components(
    settings: Settings, clock: Clock, core: Core[State], tell: Tell, reload: Reload, note: Note
) -> list[Component]:
    """The session."""
    name = name_of_node(settings, os.environ)
    chosen = KubeSettings(endpoint=auth.endpoint_of(settings.kube, os.environ), node_name=name)

    async def run() -> None:
        client = PolicyObjectsClient(chosen, settings.policy_objects.namespace, clock)
        try:
            await PolicyObjectFollower(client, core, tell, reload, clock, note).forever()
        finally:
            await client.aclose()

    return [(NAME, run)]
