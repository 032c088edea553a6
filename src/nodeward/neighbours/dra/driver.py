"""One driver of Dynamic Resource Allocation, as kubelet finds and calls it.

Kubelet watches its folder plugins_registry, asks whoever listens at a new socket there who it is, and waits one second
for the answer. So the driver's own socket is served first and that one last, when the loop is free; at the end that one
goes first. Kubelet looks at the folder again when it begins anew, and calls again by itself.

Promises: a socket of a process that is gone is taken away, and never one at which somebody listens; a request that is
none is told as INVALID_ARGUMENT; what the health of a device is goes out at once when it changes. Must not decide.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from nodeward.core.errors import NodewardError
from nodeward.core.events import DriverTold
from nodeward.core.ports import Tell
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.neighbours.dra import mapping
from nodeward.neighbours.dra.mapping import ClaimRef, Health, Prepared
from nodeward.neighbours.sockets.grpc_unix import GrpcServer, ServerEndedError, Unary, checked

log = logging.getLogger(__name__)
LOOK_S = 0.5
"""Between two looks at the health of devices, and at our sockets."""
AGAIN_S, HOLDS_S = 10.0, 30
"""Health is told again so often, and holds so long."""
LATE_S = 15.0
"""So long after our socket is there kubelet has asked for it."""
PROBE_S = 1.0

Prepare = Callable[[Sequence[ClaimRef]], Awaitable[Mapping[str, Sequence[Prepared] | str]]]
Unprepare = Callable[[Sequence[ClaimRef]], Awaitable[None]]


class RivalError(NodewardError):
    """Somebody else serves a driver of our name."""


class Driver:
    """One driver. Belongs to the loop's thread."""

    def __init__(
        self,
        name: str,
        root: str,
        prepare: Prepare,
        unprepare: Unprepare,
        health: Callable[[], tuple[Health, ...]],
        tell: Tell,
        note: Callable[[bool, str], None],
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        """`root`: kubelet's --root-dir, as kubelet and we both see it."""
        self.name, self._health, self._tell, self._note = name, health, tell, note
        self._folder = f"{root.rstrip('/')}/plugins/{name}"
        self._endpoint, self._door = f"{self._folder}/dra.sock", f"{root.rstrip('/')}/plugins_registry/{name}-reg.sock"
        self._prepare, self._unprepare, self._clock, self._backoff = prepare, unprepare, clock, backoff
        self._told: DriverTold | None = None

    async def run(self) -> None:
        """Serves until cancelled."""
        while True:
            try:
                await self._serve()
            except (OSError, NodewardError) as error:
                self._say(False, str(error))
            await self._clock.sleep(self._backoff.next_s())

    async def _serve(self) -> None:
        await asyncio.to_thread(self._ready)
        calls: dict[str, Unary] = {
            "NodePrepareResources": checked(self._prepared),
            "NodeUnprepareResources": checked(self._unprepared),
        }
        first, *others = mapping.DRIVERS
        driver = GrpcServer(first, calls)
        for other in others:
            driver.also(other, calls)
        for health in mapping.HEALTHS:
            driver.also(health, {}, {"NodeWatchResources": self._watched})
        door = GrpcServer(
            mapping.REGISTRATION, {"GetInfo": self._info, "NotifyRegistrationStatus": checked(self._notified)}
        )
        try:
            await driver.start(self._endpoint)
            await door.start(self._door)
            self._backoff.reset()
            await self._until_over(driver, door)
        finally:
            await door.stop()
            await driver.stop()

    async def _until_over(self, *servers: GrpcServer) -> None:
        """Returns when a socket of ours is gone; ServerEndedError when a server has ended."""
        late_ns = self._clock.now_ns() + int(LATE_S * 1e9)
        while True:
            await self._clock.sleep(LOOK_S)
            for server in servers:
                await server.check()
            if not await asyncio.to_thread(lambda: os.path.exists(self._door) and os.path.exists(self._endpoint)):
                raise ServerEndedError(f"somebody took away {self._door} or {self._endpoint}; they are made again")
            if self._told is None and self._clock.now_ns() > late_ns:
                self._say(False, f"kubelet has not asked at {self._door}: is keys.kubelet_root its --root-dir?")

    def _ready(self) -> None:
        """Makes our folder, and takes away what an earlier life has left. May sleep."""
        os.makedirs(self._folder, mode=0o750, exist_ok=True)
        if not os.path.isdir(os.path.dirname(self._door)):
            raise FileNotFoundError(f"{os.path.dirname(self._door)} is not there: is this kubelet's --root-dir?")
        for path in (self._door, self._endpoint):
            if _is_served(path):
                raise RivalError(
                    f"somebody else serves the driver {self.name} at {path}: end it, or name ours otherwise"
                )
            if os.path.lexists(path):
                os.unlink(path)

    async def _info(self, _: bytes) -> bytes:
        return mapping.info(self.name, self._endpoint)

    async def _notified(self, request: bytes) -> bytes:
        taken, why = mapping.registered(request)
        self._say(taken, why or ("" if taken else "kubelet does not say why"))
        return mapping.noted()

    async def _prepared(self, request: bytes) -> bytes:
        return mapping.prepared(await self._prepare(mapping.claims(request)))

    async def _unprepared(self, request: bytes) -> bytes:
        claims = mapping.claims(request)
        await self._unprepare(claims)
        return mapping.unprepared(one.uid for one in claims)

    async def _watched(self, _: bytes) -> AsyncIterator[bytes]:
        said: tuple[Health, ...] | None = None
        said_ns = 0
        while True:
            now, now_ns = self._health(), self._clock.now_ns()
            if now != said or now_ns - said_ns > AGAIN_S * 1e9:
                said, said_ns = now, now_ns
                yield mapping.health(now, self._clock.wall_ns() // 1_000_000_000, HOLDS_S)
            await self._clock.sleep(LOOK_S)

    def _say(self, registered: bool, why: str) -> None:
        told = DriverTold(self.name, registered, why)
        if told == self._told:
            return
        self._told = told
        log.log(
            logging.INFO if registered else logging.WARNING,
            "driver=%s registered=%s why=%r",
            self.name,
            registered,
            why,
        )
        self._note(registered, why or f"registered with kubelet at {self._door}")
        self._tell(told)


def _is_served(path: str) -> bool:
    """Whether somebody listens at the socket."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(PROBE_S)
        try:
            one.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return os.path.lexists(path)
        return True
