"""Asks the node daemon, for the relay, what becomes of held calls, and tells it what has passed.

Promises: a daemon that is not there is known at once, and a call then waits for nothing; one that hangs costs a call
its hold and no more; whoever answers at the socket is root or this user, speaks our version, and answers what was
asked, or is not believed; a call that was asked about when the daemon went is asked about again if it is back. Nothing
of what passes is kept while no daemon is there: it asks the runtime for what there is when it comes. Must not decide,
nor know a CRI message.
"""

import asyncio
import contextlib
import logging
import os
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Container, Coroutine
from dataclasses import dataclass, field
from typing import Final, Protocol

from nodeward.core.errors import NodewardError, WireError
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.neighbours.cri.calls import (
    Call,
    Ended,
    Interest,
    Message,
    Pass,
    Refuse,
    Replace,
    UndecidedError,
    Verdict,
)
from nodeward.neighbours.cri.door_frames import (
    MOST_WANTED,
    UNDECIDED,
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
from nodeward.neighbours.sockets import unary_client
from nodeward.neighbours.sockets.unary_client import DEADLINE_EXCEEDED, NO_STATUS, CallFailedError

WELCOME_S: Final = 5.0
"""How long the daemon may take to say that it is there: as long as a call is held at most."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.2, 2.0
"""Between looks for a daemon that is not there. A held call looks for itself."""
TRIES: Final = 2
"""So often one call is asked about, where the daemon goes meanwhile."""
MOST_KEPT: Final = 1 << 20
"""Bytes that are kept of a call that is told of."""
LEARN_S: Final = 1.0
"""After so long without an answer the rules for an absent daemon learn what they need: at the hold's end it is too
late."""
SLOW: Final = "the runtime did not answer the relay in time"
log = logging.getLogger(__name__)


class DaemonAwayError(NodewardError):
    """No daemon answers; the text says why."""


class Away(Protocol):
    """What becomes of calls that no daemon decides."""

    async def learn(self, call: Call, message: bytes, within_s: float) -> None:
        """Finds out what `undecided` needs, within that time."""

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """As `Decider.undecided`."""


@dataclass(slots=True)
class _Seen:
    """What is kept of a call that is to be told of."""

    request: bytes = b""
    answer: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    cut: bool = False
    decided: bool = False


class Asks:
    """A Decider and a Watcher. Belongs to the loop's thread."""

    def __init__(
        self,
        path: str,
        hello: Hello,
        held: Callable[[], Container[str]],
        told: Container[str],
        away: Away,
        clock: Clock,
        follow: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`path`: the daemon's socket. `held`: the paths of calls that are decided now. `told`: those that it hears of
        when they have ended. `follow` hears of the rules that the dump is to have."""
        self._path, self._hello, self._held, self._told = path, hello, held, told
        self._away, self._clock, self._follow = away, clock, follow
        self._link: DoorLink | None = None
        self._connecting: asyncio.Task[DoorLink] | None = None
        self._lost, self._there = asyncio.Event(), asyncio.Event()
        self._waiting: dict[int, asyncio.Future[Said]] = {}
        self._seen: dict[int, _Seen] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._given = 0
        self.why = "not looked for yet"
        """Why no daemon decides; empty while one does."""
        self.daemon = 0
        """Its process; 0 while none is there."""
        self.strays = 0
        """Answers to what nobody has asked, or waited for any more."""

    # ---- Decider

    def holds(self, path: str) -> bool:
        """Whether the settings want this method's calls decided."""
        return path in self._held()

    def decide(self, call: Call, message: bytes, within_ns: int) -> Awaitable[Verdict]:
        """The daemon's verdict; UndecidedError where there is no daemon, or it cannot decide."""
        if (seen := self._seen.get(call.number)) is not None and len(message) <= MOST_KEPT:
            seen.request = message
        return self._decide(call, message, self._clock.now_ns() + within_ns)

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """By the rules for an absent daemon."""
        return self._away.undecided(call, message, why, ending)

    async def _decide(self, call: Call, message: bytes, end_ns: int) -> Verdict:
        why = ""
        for _ in range(TRIES):
            try:
                link = self._link or await self._connected()
                said = await self._asked(link, call, message, end_ns)
            except DaemonAwayError as error:
                why = str(error)
                continue
            if said.status == UNDECIDED:
                why = said.text
                break
            if (seen := self._seen.get(call.number)) is not None:
                seen.decided = True
            if said.status:
                return Refuse(said.status, said.text)
            return Pass() if said.message is None else Replace(said.message)
        await self._away.learn(call, message, self._left_s(end_ns))
        raise UndecidedError(why)

    async def _asked(self, link: DoorLink, call: Call, message: bytes, end_ns: int) -> Said:
        if link is not self._link:
            raise DaemonAwayError(self.why or f"the node daemon at {self._path} went")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Said] = loop.create_future()
        late = loop.call_later(LEARN_S, self._learn, call, message, end_ns)
        self._waiting[call.number] = answer
        link.send(Asked(call.number, call.path, message, int(self._left_s(end_ns) * 1000)))
        try:
            return await answer
        except asyncio.CancelledError:
            link.send(Abandoned(call.number))
            raise
        finally:
            late.cancel()
            del self._waiting[call.number]

    def _learn(self, call: Call, message: bytes, end_ns: int) -> None:
        self._beside(self._away.learn(call, message, self._left_s(end_ns)))

    def _beside(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _left_s(self, end_ns: int) -> float:
        return max(0.0, (end_ns - self._clock.now_ns()) / 1e9)

    # ---- the connection

    async def keep(self) -> None:
        """Keeps the connection, so that the daemon hears of what passes; until cancelled."""
        pauses = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random.random)
        while True:
            try:
                await self._connected()
            except DaemonAwayError:
                await self._clock.sleep(pauses.next_s())
                continue
            pauses.reset()
            await self._lost.wait()

    async def until_there(self, within_s: float) -> None:
        """Returns once a daemon answers, or after so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._there.wait()

    def close(self) -> None:
        """The relay ends."""
        for task in (self._connecting, *self._tasks):
            if task is not None:
                task.cancel()
        if self._link is not None:
            self._link.close("the relay ends")

    async def _connected(self) -> DoorLink:
        """The connection, made where there is none. All who ask meanwhile wait for the same one."""
        if self._link is not None:
            return self._link
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect())
            self._connecting.add_done_callback(self._tried)
        return await asyncio.shield(self._connecting)

    def _tried(self, task: asyncio.Task[DoorLink]) -> None:
        self._connecting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._now(0, str(error))

    async def _connect(self) -> DoorLink:
        welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        link = DoorLink(
            lambda frame: self._heard(welcome, frame), lambda why: self._ended(welcome, link, why), _foreign
        )
        try:
            async with asyncio.timeout(WELCOME_S):
                await asyncio.get_running_loop().create_unix_connection(lambda: link, self._path)
                link.send(self._hello)
                first = await welcome
            if why := other_version(first) or first.why:
                raise DaemonAwayError(f"{self._path}: {why}")
        except (OSError, TimeoutError, DaemonAwayError) as error:
            why = str(error) if isinstance(error, DaemonAwayError) else _why(self._path, error)
            link.close(why)
            raise DaemonAwayError(why) from error
        except asyncio.CancelledError:
            link.close("the relay ends")
            raise
        self._link = link
        self._lost.clear()
        self._there.set()
        self._now(first.pid, "")
        return link

    def _ended(self, welcome: asyncio.Future[Welcome], link: DoorLink, why: str) -> None:
        error = DaemonAwayError(f"the node daemon at {self._path} went: {why}")
        if not welcome.done():
            welcome.set_exception(error)
            return
        if self._link is not link:
            return
        self._link = None
        self._there.clear()
        self._lost.set()
        self._now(0, str(error))
        for answer in tuple(self._waiting.values()):
            if not answer.done():
                answer.set_exception(error)

    def _now(self, daemon: int, why: str) -> None:
        before, self.daemon, self.why = self.daemon, daemon, why
        if daemon and daemon != before:
            log.info("daemon=answers socket=%s process=%d", self._path, daemon)
        elif before and not daemon:
            log.warning("daemon=away why=%r", why)

    def _heard(self, welcome: asyncio.Future[Welcome], frame: Frame) -> None:
        if isinstance(frame, Welcome) and not welcome.done():
            welcome.set_result(frame)
        elif not welcome.done() or isinstance(frame, Welcome):
            raise WireError("relay door", "the daemon does not begin with one Welcome")
        elif (first := welcome.result()).why or other_version(first):
            return  # nothing of it is believed
        elif isinstance(frame, Said):
            answer = self._waiting.get(frame.number)
            if answer is None or answer.done():
                self.strays += 1
            else:
                answer.set_result(frame)
        elif isinstance(frame, Wanted):
            self._beside(self._give(frame))
        elif isinstance(frame, DumpRules):
            self._follow(frame.rules)
        else:
            raise WireError("relay door", f"a frame {type(frame).__name__} of the daemon's")

    async def _give(self, wanted: Wanted) -> None:
        link, status, text, answer = self._link, NO_STATUS, "", b""
        self._given += 1
        try:
            if self._given > 2 * MOST_WANTED:  # some that it gave up may still be under way
                raise OSError("the daemon makes too many calls at a time")
            answer = await unary_client.call(
                self._hello.runtime, wanted.path, wanted.request, min(WELCOME_S, wanted.within_ms / 1000)
            )
            status = 0
        except CallFailedError as error:
            status, text = error.status, error.text
        except TimeoutError:  # an OSError too
            status, text = DEADLINE_EXCEEDED, SLOW
        except (OSError, WireError, ValueError) as error:
            text = str(error) or type(error).__name__
        finally:
            self._given -= 1
        if link is not None:
            link.send(Given(wanted.number, status, text, answer))

    # ---- Watcher

    def interest(self, path: str) -> Interest:
        """All of what the daemon is told of; what is held comes to `decide`, and is not copied twice."""
        if path not in self._told:
            return Interest.NONE
        return Interest.CALL | Interest.RESPONSE if path in self._held() else Interest.ALL

    def began(self, call: Call) -> None:
        self._seen[call.number] = _Seen()

    def request(self, call: Call, message: Message) -> None:
        self._keep(call, message, lambda seen, payload: setattr(seen, "request", payload))

    def response(self, call: Call, message: Message) -> None:
        self._keep(call, message, lambda seen, payload: seen.answer.append(payload))

    def _keep(self, call: Call, message: Message, put: Callable[[_Seen, bytes], None]) -> None:
        seen = self._seen[call.number]
        seen.size_bytes += message.size_bytes
        seen.cut = seen.cut or message.compressed or message.cut or seen.size_bytes > MOST_KEPT
        if seen.cut:
            seen.request, seen.answer = b"", []
        else:
            put(seen, message.payload)

    def ended(self, call: Call, end: Ended) -> None:
        seen = self._seen.pop(call.number)
        if self._link is not None:
            ok = end.status == 0 and not end.refused
            answer = b"".join(seen.answer)
            cut = seen.cut or (call.held and not seen.request)  # it was too large to be kept, or to be held
            self._link.send(Passed(call.number, call.path, seen.request, answer, ok, seen.decided, cut))

    def unseen(self, connection: int, why: str) -> None:
        """Nothing: where calls are decided, such a connection is closed."""


def _foreign(transport: asyncio.Transport) -> str:
    """What is wrong where another user than root, and not ours, serves the socket; else nothing."""
    peer = transport.get_extra_info("socket")
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return "" if uid in (0, os.geteuid()) else f"user {uid} serves the socket, and not root: it is not asked"


def _why(path: str, error: OSError | TimeoutError) -> str:
    if isinstance(error, TimeoutError):
        return f"the node daemon at {path} does not answer"
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return f"no node daemon is at {path}"
    return f"the node daemon at {path} cannot be asked: {error}"
