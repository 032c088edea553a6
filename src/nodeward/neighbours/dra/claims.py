"""Prepares a driver's claims for kubelet, and takes that back.

Kubelet asks before the sandbox of a pod is made, names the claims alone, and waits 45 seconds. Where it is refused it
tries again after a minute or more, so a claim for which nothing is free now is asked about again and again within the
call. A promise is on record before the answer, and what containers get is written anew each time: after a boot the
runtime's folder is empty, and kubelet asks for what it has asked before.

Promises: a claim of which nothing is known is taken back with success, and one that cannot be put on record is given
back. Must not: decide who gets what; the core does.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from nodeward.core.claims import Claim, ClaimUid, Promised
from nodeward.core.decision import Final
from nodeward.core.errors import NodewardError
from nodeward.core.events import Preparing, Unprepared
from nodeward.core.ports import Ask, Tell
from nodeward.core.refusal import Refusal, Refused
from nodeward.host.clock import Clock
from nodeward.host.lanes import Lane, done_on
from nodeward.neighbours.dra.book import Book, Read
from nodeward.neighbours.dra.cdi import CdiFolder, Edits
from nodeward.neighbours.dra.mapping import ClaimRef, Prepared

log = logging.getLogger(__name__)
WAIT_S, AGAIN_S = 35.0, 1.0
"""So long a claim waits for what is not free, and so often it is asked about. Kubelet gives up after 45 seconds."""
DECIDED_NS, DECIDED_S = 3_500_000_000, 4.0
TOLD_S = 2.0
"""So long an Unprepare waits until the scheduler is told of less."""
LOOK_S = 5.0
"""Between two looks whether the runtime's files are there."""
UNDECIDED = ("no-opinion",)
"""The reason of an answer where no feature decided; that promises nothing."""

OfClaim = Callable[[Promised], Mapping[str, Edits]]
"""What the containers get of each device of a claim."""


class Claims:
    """The claims of one driver. Belongs to the loop's thread."""

    def __init__(
        self,
        driver: str,
        pool: str,
        read: Read,
        book: Book,
        cdi: CdiFolder,
        lane: Lane,
        now: Callable[[], Mapping[ClaimUid, Promised]],
        edits: OfClaim,
        told: Callable[[], Awaitable[None]],
        ask: Ask,
        tell: Tell,
        clock: Clock,
    ) -> None:
        """`now`: what is promised; `told` returns once the API server has what is to be published now."""
        self._driver, self._pool, self._read, self._book, self._cdi, self._lane = driver, pool, read, book, cdi, lane
        self._now, self._edits, self._told, self._ask, self._tell, self._clock = now, edits, told, ask, tell, clock

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, Sequence[Prepared] | str]:
        """By UID the devices of each claim, or why it is not prepared."""
        answers = await asyncio.gather(*map(self._prepare, claims))
        return {one.uid: answer for one, answer in zip(claims, answers, strict=True)}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> None:
        """Takes them back. The scheduler is told of less before kubelet, since the claims are free in the API server
        soon after that."""
        ours = [one for one in claims if ClaimUid(one.uid) in self._now()]
        for one in claims:
            self._tell(Unprepared(self._driver, ClaimUid(one.uid)))
        if ours:
            try:
                async with asyncio.timeout(TOLD_S):
                    await self._told()
            except TimeoutError:
                log.warning("claims=unprepared driver=%s why='the API server has not been told of less'", self._driver)
            why = await self._book.write()
            if why:
                log.warning("claims=not-recorded driver=%s why=%r", self._driver, why)
        for one in claims:
            try:
                await done_on(self._lane, "cdi", partial(self._cdi.remove, one.uid))
            except Exception as error:
                log.warning("cdi=left claim=%s/%s why=%r", one.namespace, one.name, str(error))

    async def keep(self) -> None:
        """Finds out what was prepared before, until that is known; then puts back files that somebody took away."""
        fault = ""
        while (found := await self._book.recall(self._read)).fault:
            if found.fault != fault:
                fault = found.fault
                log.warning("claims=unknown driver=%s why=%r", self._driver, fault)
                self._tell(found)
            await self._clock.sleep(AGAIN_S)
        self._tell(found)
        fault = ""
        while True:
            wanted = {uid: edits for uid, one in self._now().items() if (edits := self._of(one))}
            why = await self._book.write()
            try:
                lost = await done_on(self._lane, "cdi", partial(self._cdi.restore, wanted))
                if lost:
                    log.warning("cdi=restored driver=%s claims=%s", self._driver, ",".join(lost))
            except Exception as error:
                why = why or f"what containers of claims get cannot be written: {error}"
            if why and why != fault:
                log.warning("claims=unkept driver=%s why=%r", self._driver, why)
            fault = why
            await self._clock.sleep(LOOK_S)

    async def _prepare(self, of: ClaimRef) -> Sequence[Prepared] | str:
        until_ns = self._clock.now_ns() + int(WAIT_S * 1e9)
        while True:
            try:
                claim = await self._read(of.namespace, of.name)
                break
            except NodewardError as error:
                if self._clock.now_ns() > until_ns:
                    return f"Nodeward cannot read the claim {of.namespace}/{of.name}: {error}"
            await self._clock.sleep(AGAIN_S)
        if claim is None or claim.uid != of.uid:
            what = "has no allocation, or is gone" if claim is None else "is another one of that name by now"
            return f"Nodeward does not prepare the claim {of.namespace}/{of.name}: it {what}; kubelet tries again"
        elsewhere = [one.pool for one in claim.allocated if one.pool != self._pool]
        if elsewhere or not claim.allocated:
            what = f"a device of the pool {elsewhere[0]!r}" if elsewhere else f"no device of {self._driver}"
            return f"Nodeward does not prepare the claim {claim.title}: it has {what}, and this is {self._pool!r}"
        is_new = claim.uid not in self._now()
        why = await self._promised(claim, until_ns)
        if why:
            return why
        why = await self._book.write()
        if why:
            if is_new:  # else its pod may run
                self._tell(Unprepared(self._driver, claim.uid))
            return f"Nodeward does not prepare the claim {claim.title}: {why}; mend that, kubelet tries again"
        promised = self._now().get(claim.uid)
        edits = self._of(promised) if promised is not None else {}
        if edits:
            try:
                await done_on(self._lane, "cdi", partial(self._cdi.write, claim.uid, edits))
            except Exception as error:
                return f"Nodeward cannot write what the containers of {claim.title} get: {error}; kubelet tries again"
        return tuple(
            Prepared(
                one.request,
                one.pool,
                one.device,
                (self._cdi.name(claim.uid, one.device),) if one.device in edits else (),
                one.share,
            )
            for one in claim.allocated
        )

    async def _promised(self, claim: Claim, until_ns: int) -> str:
        """Asks until it is promised, or no more can be waited; why not, else nothing."""
        while True:
            refusal = await self._decided(claim)
            if refusal is None:
                return ""
            if refusal.kind is Refused.BAD_VALUE or self._clock.now_ns() > until_ns:
                return refusal.message
            await self._clock.sleep(AGAIN_S)

    async def _decided(self, claim: Claim) -> Refusal | None:
        try:
            async with asyncio.timeout(DECIDED_S):
                final = self._ask(Preparing(self._driver, claim), DECIDED_NS)
                final = final if isinstance(final, Final) else await final
        except TimeoutError:
            return Refusal(f"Nodeward has not decided about {claim.title} within {DECIDED_S:g} s; see its log")
        except Exception:
            log.exception("claim=%s failed", claim.title)
            return Refusal(f"Nodeward met a fault with {claim.title}; see its log")
        if isinstance(final.value, Refusal):
            return final.value
        if final.reason.code in UNDECIDED:
            why = f"{self._driver} is not offered now, so {claim.title} is not prepared; see `nodeward status`"
            return Refusal(why, Refused.BAD_VALUE)
        return None

    def _of(self, one: Promised) -> dict[str, Edits]:
        return {device: edits for device, edits in self._edits(one).items() if edits}
