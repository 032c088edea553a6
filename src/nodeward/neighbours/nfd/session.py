"""Keeps our NodeFeature object up to date, and reports what NFD has for this node.

Each round lists what there is, tells it if it has changed, and writes our object if it is not just as it should be: so
NFD installed later or removed, an object deleted or edited by somebody, and our own restart are one and the same. A
round begins when something has happened to one of the node's objects (a watch says so), when `keys` wants something
else, when the node has another number where we wrote one (another watch says so), or after a while. Where somebody
takes back again and again what we write, we write less and less often.

Must not: decide what is shared (`keys` does), or touch an object that is not ours.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import inf
from random import random

from nodeward.core.errors import WireError
from nodeward.core.events import NfdSeen
from nodeward.core.modes import NFD_NUMBERS
from nodeward.core.ports import Tell, Wants
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.waits import first_of
from nodeward.neighbours.nfd import objects
from nodeward.neighbours.nfd.client import NfdClient, NodeFeatureList, NotOursError
from nodeward.neighbours.sockets.kube_http import KubeHttpError, KubeRefusedError

log = logging.getLogger(__name__)
_RIGHTS = (
    "allow list and watch on nodefeatures, list on pods, get and watch on nodes, and create, get, update and delete on "
    "nodefeatures in {} (deploy/node)"
)


@dataclass(frozen=True, slots=True)
class Pace:
    """The intervals of the session."""

    gap_s: float = 1.0
    """Between two rounds at least."""
    absent_s: float = 30.0
    """How often it is looked whether NFD is there."""
    resync_s: float = 120.0
    unsettled_s: float = 5.0
    """How often the node is looked at first, while it does not have the number that we wrote."""
    most_s: float = 60.0
    """Between tries that fail, and between writes that somebody takes back."""
    stale_s: float = 300.0
    """The worker's object is no longer fresh once its worker is seen not to run here for so long."""
    calm_s: float = 300.0
    """After so long in peace, what is taken back is put back at once again."""


_PACE = Pace()
RETIRE_S = 3.0
"""So long a person waits for the end of our object."""


class NfdReconciler:
    """One node's objects."""

    def __init__(
        self,
        client: NfdClient,
        goals: Wants,
        resources: Mapping[str, tuple[str, ...]],
        tell: Tell,
        clock: Clock,
        remember: Callable[[], None],
        ready: Callable[[], bool] = lambda: True,
        asked: Callable[[], bool] = lambda: True,
        pace: Pace = _PACE,
        ours: Collection[str] = (),
    ) -> None:
        """`goals`: the numbers that our object is to have, by key. `resources`: each key's extended resources.
        `remember` puts our object on the undo list; it may sleep.
        `ready`: `keys` knows enough to want anything; till then an object of an earlier life stands as it is.
        `asked`: the settings need NFD at all, or something of ours may be left; else nothing is requested. `ours`: the
        resources whose number on the node is our device plugin's."""
        self._client, self._goals, self._tell, self._clock, self._pace = client, goals, tell, clock, pace
        self._keys = tuple(key for key in resources if key in NFD_NUMBERS)
        self._theirs = {key: [name for name in names if name not in ours] for key, names in resources.items()}
        self._names = tuple(name for names in resources.values() for name in names)
        self._remember, self._remembered = remember, False
        self._ready, self._asked, self._clean = ready, asked, True
        self._retired = False
        self._told: NfdSeen | None = None
        self._outcomes: dict[str, str] = {}
        self._written: Mapping[str, int] = {}
        self._undone = Backoff(pace.gap_s, pace.most_s, random)
        self._not_before_ns, self._waits = 0, False
        self._unsettled = Backoff(pace.unsettled_s, pace.most_s, random)
        self._unkept_ns = 0
        self._unwatched = ""

    async def forever(self) -> None:
        """Round after round."""
        delays = Backoff(self._pace.gap_s, self._pace.most_s, random)
        while True:
            if self._clean and not self._asked():
                await self._clock.sleep(self._pace.absent_s)
                continue
            number = self._goals.number
            try:
                seen = await self._client.look(self._names)
            except (KubeHttpError, WireError) as error:
                self._failed(self._why(error))
                await self._clock.sleep(delays.next_s())
                continue
            why = await self._round(seen)
            self._outcomes_of(why)
            if why and seen is not None and not self._waits:
                await self._clock.sleep(delays.next_s())
                continue
            delays.reset()
            await self._until_next(number, seen)
            await self._clock.sleep(self._pace.gap_s)

    async def retire(self) -> tuple[str, ...]:
        """Takes our object away for good, whatever `keys` wants; what became of it, nothing where NFD is not
        needed."""
        if self._clean and not self._asked():
            return ()
        self._retired = True
        place = self._client.place
        where = f"NodeFeature {place.namespace}/{place.name}"
        try:
            async with asyncio.timeout(RETIRE_S):
                found = await self._client.named(place.name)
                if found is None:
                    return (f"{where} is not there",)
                await self._client.remove(found)
        except TimeoutError:
            return (f"{where} is not deleted yet: the API server does not answer; the daemon goes on trying",)
        except (KubeHttpError, WireError, NotOursError) as error:
            return (f"{where} is not deleted: {self._why(error)}; the daemon goes on trying",)
        return (f"{where} is deleted",)

    async def _round(self, seen: NodeFeatureList | None) -> str:
        """Tells what was seen and writes what is wanted; why it could not be written, else nothing."""
        self._waits = False
        if seen is None:
            self._written = {}
            self._say(NfdSeen())
            return "NodeFeature objects are not served: Node Feature Discovery is not installed"
        here = self._of(seen)
        self._say(here)
        if not (self._retired or self._ready()):
            return "not enough is known of keys yet"
        wanted = self._wanted()
        try:
            if await self._perform(seen, wanted):
                self._say(replace(here, written=wanted))
        except (KubeHttpError, WireError, NotOursError) as error:
            why = self._why(error)
            log.warning("nfd=unwritten why=%r", why)
            return why
        return "somebody deletes or edits it again and again; it is written again soon" if self._waits else ""

    def _of(self, seen: NodeFeatureList) -> NfdSeen:
        workers = [one for one in seen.objects if one.worker and not one.ours and not one.going]
        discovered: dict[str, int] = {}
        for one in workers:
            for key, number in one.numbers.items():
                discovered[key] = min(number, discovered.get(key, number))
        mine = self._mine(seen)
        return NfdSeen(
            served=True,
            worker=bool(workers) and self._is_fresh(seen),
            discovered=discovered,
            written=mine.numbers if mine is not None and mine.ours else {},
            on_node=seen.on_node,
        )

    def _is_fresh(self, seen: NodeFeatureList) -> bool:
        """Whether the worker that made the object runs here, or did so until lately: one that is replaced is away for
        a while."""
        self._unkept_ns = 0 if seen.kept else self._unkept_ns or self._clock.now_ns() or 1
        return self._fresh_s() > 0

    def _fresh_s(self) -> float:
        """How long the worker's object stays fresh if its worker does not come back."""
        unkept_ns = self._clock.now_ns() - self._unkept_ns
        return self._pace.stale_s - unkept_ns / 1e9 if self._unkept_ns else inf

    def _mine(self, seen: NodeFeatureList) -> objects.NodeFeature | None:
        place = self._client.place
        found = [one for one in seen.objects if (one.namespace, one.name) == (place.namespace, place.name)]
        return found[0] if found else None

    def _wanted(self) -> dict[str, int]:
        if self._retired:
            return {}
        texts = {key: self._goals.value(key) for key in self._keys}
        return {key: int(text) for key, text in texts.items() if text is not None}

    async def _perform(self, seen: NodeFeatureList, wanted: Mapping[str, int]) -> bool:
        """Makes our object what it should be; whether something was written."""
        mine = self._mine(seen)
        if not wanted:
            self._written = {}
            if mine is None or not mine.ours or mine.going:
                self._clean = True
                return False
            await self._client.remove(mine)
            log.info("nfd=removed object=%s/%s", mine.namespace, mine.name)
            return True
        if mine is not None:
            self._client.check_ours(mine)
        owner = await self._client.owner(seen.node_uid)
        if mine is not None and objects.says(mine, self._client.place.node, owner, wanted):
            self._written = wanted
            return False
        if self._written == wanted and self._is_too_soon():
            self._waits = True
            return False
        self._clean = False
        if not self._remembered:
            await asyncio.to_thread(self._remember)
            self._remembered = True
        await self._client.write(wanted, owner, mine)
        self._written = wanted
        log.info("nfd=written object=%s numbers=%s", self._client.place.name, dict(wanted))
        return True

    def _is_too_soon(self) -> bool:
        """Whether what somebody has undone is not to be written again yet."""
        now_ns = self._clock.now_ns()
        if now_ns < self._not_before_ns:
            return True
        if now_ns - self._not_before_ns > self._pace.calm_s * 1e9:
            self._undone.reset()
        self._not_before_ns = now_ns + int(self._undone.next_s() * 1e9)
        log.warning("nfd=taken-back object=%s why='somebody deleted or edited it'", self._client.place.name)
        return False

    async def _until_next(self, number: int, seen: NodeFeatureList | None) -> None:
        left_s = self._fresh_s()
        next_s = min(self._next_s(seen), left_s if left_s > 0 else inf)
        touched = [self._touched(seen.version)] if seen is not None else []
        renumbered = [self._renumbered(seen.on_node)] if seen is not None and self._written else []
        await first_of(self._goals.changed(number), self._clock.sleep(next_s), *touched, *renumbered)

    async def _touched(self, version: str) -> None:
        try:
            await self._client.until_touched(version)
        except (KubeHttpError, WireError) as error:
            log.info("nfd=unwatched why=%r", str(error))
            await self._clock.sleep(self._pace.unsettled_s)

    async def _renumbered(self, there: Mapping[str, int]) -> None:
        """Returns when the node has other numbers, as when NFD's master has taken ours over, or has no rule for it any
        more. Never where the node cannot be watched: then the next round tells."""
        try:
            if await self._client.until_renumbered(self._names, there):
                return
        except (KubeHttpError, WireError) as error:
            if str(error) != self._unwatched:
                log.info("nfd=node-unwatched why=%r so='it is read now and then'", str(error))
            self._unwatched = str(error)
        await asyncio.Event().wait()

    def _next_s(self, seen: NodeFeatureList | None) -> float:
        pace = self._pace
        if seen is None:
            return pace.absent_s
        ahead_s = (self._not_before_ns - self._clock.now_ns()) / 1e9
        if ahead_s > 0:
            return min(ahead_s, pace.most_s)
        if self._is_settled(seen):
            self._unsettled.reset()
            return pace.resync_s
        return self._unsettled.next_s()

    def _is_settled(self, seen: NodeFeatureList) -> bool:
        """Whether the node has what we wrote, so that NFD's master is at work and somebody goes by the number."""
        return all(
            number in [seen.on_node.get(name) for name in self._theirs.get(key, ())]
            for key, number in self._written.items()
        )

    # ---- what is told ----------------------------------------------------------------------------------------------

    def _say(self, here: NfdSeen) -> None:
        if here != self._told:
            self._told = here
            self._tell(here)

    def _outcomes_of(self, why: str) -> None:
        """Says what became of each number that is wanted, where that is news."""
        wanted = self._wanted()
        self._outcomes = {key: said for key, said in self._outcomes.items() if key in wanted}
        for key in wanted:
            if self._outcomes.get(key) == why:
                continue
            self._outcomes[key] = why
            if why:
                self._goals.missed(key, why)
            else:
                self._goals.reached(key)

    def _failed(self, why: str) -> None:
        if self._told is None or self._told.fault != why:
            log.warning("nfd=away why=%r", why)
        self._say(NfdSeen(fault=why))
        self._outcomes_of(why)

    def _why(self, error: Exception) -> str:
        if isinstance(error, KubeRefusedError) and error.status in (401, 403):
            return f"{error}; {_RIGHTS.format(self._client.place.namespace)}"
        if isinstance(error, KubeRefusedError) and error.status == 404:
            return f"{error}; make the namespace {self._client.place.namespace}, or install NFD again"
        return str(error)
