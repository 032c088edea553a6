"""The node daemon's door for the relay: hears its questions and what has passed, and calls the runtime through it.

Promises: only root opens the socket; a question is answered once, or not at all where the relay no longer waits; a
fault of one question is that question's alone; a relay of another version, or one that talks nonsense, is cut off and
that is said. Must not decide, nor know a CRI message.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Final, Protocol

from nodeward.core.errors import WireError
from nodeward.host.clock import Clock
from nodeward.neighbours.cri.calls import Call, Decides, Refuse, Replace, UndecidedError, Verdict
from nodeward.neighbours.cri.door_frames import (
    MOST_WANTED,
    UNDECIDED,
    VERSION,
    Abandoned,
    Asked,
    DumpRules,
    Frame,
    Given,
    Hello,
    Passed,
    Said,
    Wanted,
    Welcome,
    other_version,
)
from nodeward.neighbours.cri.door_link import DoorLink
from nodeward.neighbours.cri.held import failed
from nodeward.neighbours.sockets.lines import serve
from nodeward.neighbours.sockets.unary_client import NO_STATUS, CallFailedError

MOST_ASKED: Final = 4096
"""Questions of one relay that are open at a time: as many as it has calls under way on one connection."""
MOST_RELAYS: Final = 4
"""A node has one; another begins while the last one ends."""
GRACE_S: Final = 1.0
"""So much longer than the runtime itself the relay may take for a call of ours."""
log = logging.getLogger(__name__)


class Hears(Protocol):
    """Hears what passes a relay."""

    def begins(self, hello: Hello) -> str:
        """A relay has connected: nothing is known of what passed before. Returns why nothing is decided for it, else
        nothing."""

    def passed(self, number: int, passed: Passed) -> None:
        """A call has ended, by the number by which it was asked about, if it was."""

    def ends(self, why: str) -> None:
        """No relay is connected any more."""


class RelayDoor:
    """All relays that are connected. Belongs to the loop's thread."""

    def __init__(self, decider: Decides, hears: Hears, clock: Clock) -> None:
        self.decider, self.hears, self.clock = decider, hears, clock
        self.relays: dict[_Relay, None] = {}
        self.numbers = count(1)

    async def run(self, path: str, serving: Callable[[], None]) -> None:
        """Serves until cancelled; the socket's file is there meanwhile, mode 0600."""
        start = asyncio.get_running_loop().create_unix_server
        try:
            await serve(path, lambda at: start(lambda: _Relay(self, next(self.numbers)).link, sock=at), serving)
        finally:
            for relay in tuple(self.relays):
                relay.link.close("the node daemon ends")

    def follow(self, rules: str) -> None:
        """Has every relay's dump go by these rules."""
        for relay in self.relays:
            relay.follow(rules)

    async def call(self, path: str, request: bytes, within_s: float) -> bytes:
        """The runtime's answer to a call of ours, made by the relay that came last. CallFailedError or TimeoutError
        where there is none."""
        if not self.relays:
            raise CallFailedError(path, NO_STATUS, "no relay is connected")
        return await next(reversed(self.relays)).call(path, request, within_s)


class _Relay:
    """One connected relay."""

    def __init__(self, door: RelayDoor, number: int) -> None:
        self._door, self._number = door, number
        self.link = DoorLink(self._heard, self._lost)
        self._asked: dict[int, asyncio.Future[Verdict]] = {}
        self._wanted: dict[int, asyncio.Future[Given]] = {}
        self._numbers, self._free = count(1), asyncio.Semaphore(MOST_WANTED)
        self._rules = ""

    def _heard(self, frame: Frame) -> None:
        door = self._door
        if self not in door.relays:
            self._greeted(frame)
        elif isinstance(frame, Asked):
            self._ask(frame)
        elif isinstance(frame, Abandoned):
            if (task := self._asked.pop(frame.number, None)) is not None:
                task.cancel()
        elif isinstance(frame, Passed):
            door.hears.passed(self._unique(frame.number), frame)
        elif isinstance(frame, Given):
            answer = self._wanted.get(frame.number)
            if answer is not None and not answer.done():
                answer.set_result(frame)
        else:
            raise WireError("relay door", f"a frame {type(frame).__name__} of the relay's")

    def _greeted(self, frame: Frame) -> None:
        if not isinstance(frame, Hello):
            raise WireError("relay door", "the relay does not begin with Hello")
        door, why = self._door, other_version(frame)
        if not why and len(door.relays) >= MOST_RELAYS:
            why = f"there are {MOST_RELAYS} relays already"
        why = why or door.hears.begins(frame)
        self.link.send(Welcome(VERSION, os.getpid(), why))
        if why:
            log.error("relay=refused process=%d why=%r", frame.pid, why)
            assert self.link.transport is not None
            self.link.transport.close()  # once that is read
            return
        log.info("relay=connected process=%d listen=%s runtime=%s", frame.pid, frame.listen, frame.runtime)
        door.relays[self] = None

    def _lost(self, why: str) -> None:
        for task in self._asked.values():
            task.cancel()
        for answer in self._wanted.values():
            if not answer.done():  # not cancelled: who waits for it is to hear of it, and not to end
                answer.set_result(Given(0, NO_STATUS, f"the relay went: {why}", b""))
        if self in self._door.relays:
            del self._door.relays[self]
            log.info("relay=gone why=%r", why)
            if not self._door.relays:
                self._door.hears.ends(why)

    def _unique(self, number: int) -> int:
        """The number of a call among those of all relays that there ever were."""
        return self._number << 48 | number

    # ---- questions

    def _ask(self, asked: Asked) -> None:
        if len(self._asked) >= MOST_ASKED or asked.number in self._asked:
            raise WireError("relay door", f"more than {MOST_ASKED} questions at a time, or one twice")
        call = Call(self._unique(asked.number), self._number, asked.path, self._door.clock.now_ns(), held=True)
        try:
            answer = self._door.decider.decide(call, asked.message, asked.within_ms * 1_000_000)
        except Exception as error:
            self._failed(asked.number, error)
            return
        if not isinstance(answer, Awaitable):
            self._say(asked.number, answer)
            return
        task = self._asked[asked.number] = asyncio.ensure_future(answer)
        task.add_done_callback(partial(self._decided, asked.number))

    def _decided(self, number: int, task: asyncio.Future[Verdict]) -> None:
        if self._asked.pop(number, None) is not task:
            return  # nobody waits for it
        if task.cancelled():
            self.link.send(Said(number, UNDECIDED, "no decision in time"))
        elif (error := task.exception()) is not None:
            self._failed(number, error)
        else:
            self._say(number, task.result())

    def _failed(self, number: int, error: BaseException) -> None:
        if isinstance(error, WireError | UndecidedError | TimeoutError):
            self.link.send(Said(number, UNDECIDED, str(error) or "no decision in time"))
            return
        log.error("relay=question-failed number=%d", number, exc_info=error)
        self.link.send(Said(number, UNDECIDED, failed(error)))

    def _say(self, number: int, verdict: Verdict) -> None:
        if isinstance(verdict, Refuse):
            self.link.send(Said(number, verdict.status, verdict.text))
        else:
            self.link.send(Said(number, 0, message=verdict.message if isinstance(verdict, Replace) else None))

    # ---- what we want

    def follow(self, rules: str) -> None:
        """As RelayDoor.follow."""
        if rules != self._rules:
            self._rules = rules
            self.link.send(DumpRules(rules))

    async def call(self, path: str, request: bytes, within_s: float) -> bytes:
        """As RelayDoor.call."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        async with asyncio.timeout_at(end_s + GRACE_S), self._free:
            if self not in self._door.relays:
                raise CallFailedError(path, NO_STATUS, "the relay went")
            number, answer = next(self._numbers), loop.create_future()
            self._wanted[number] = answer
            self.link.send(Wanted(number, path, request, max(0, int((end_s - loop.time()) * 1000))))
            try:
                given: Given = await answer
            finally:
                del self._wanted[number]
        if given.status:
            raise CallFailedError(path, given.status, given.text)
        return given.answer
