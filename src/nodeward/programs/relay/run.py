"""The relay's process: a listening socket and a runtime, and two more if images are a service of their own.

To relay calls it needs no file and no other part of Nodeward, neither at start nor later. Whatever is to be decided is
asked of the node daemon (`neighbours.cri.asks`); `programs.relay.away` says what becomes of calls while there is none.
It is on every node's way to its runtime, so what is imported here stays small: no engine, no grpc, no aiohttp.
"""

import asyncio
import contextlib
import gc
import logging
import os
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from nodeward.features.settings import Settings
from nodeward.host import sd_notify
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.heap import keep_freed_memory
from nodeward.host.supervise import forever
from nodeward.host.watchdog import Watchdog
from nodeward.neighbours.cri.book import CallBook
from nodeward.neighbours.cri.calls import Call, Decider, Refuse, Verdict
from nodeward.neighbours.cri.counts import CallCounts
from nodeward.neighbours.cri.methods import ENDLESS
from nodeward.neighbours.cri.sockets import Relay
from nodeward.neighbours.sockets.unix_listener import BACKLOG, ListenError, UnixListener
from nodeward.programs.dump import file as dump_file
from nodeward.programs.relay.plan import RelayPlan
from nodeward.programs.relay.reload import RelayReload
from nodeward.programs.relay.status import Status
from nodeward.settings.source import SettingsSource

RESEMBLE_S: Final = 1.0
"""How often owner and mode of the runtime's socket are looked at: a restarted runtime makes it anew."""
DRAIN_S: Final = 5.0
"""How long calls that are not answered whole yet may take when the relay ends."""

DUMP_S: Final = 10.0
"""How long the dump may take then to be written out."""
BESIDE_S: Final = 5.0
"""How long clients wait at the start for a daemon that is started beside."""
UNIMPLEMENTED: Final = 12
"""gRPC's status."""

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from nodeward.neighbours.cri.asks import Asks


@dataclass(frozen=True, slots=True)
class ImagesElsewhere:
    """A Decider: image calls where images are another service's. They are answered with where to ask; all others are
    for `beside`, if there is one."""

    listen: str
    beside: Decider | None

    def holds(self, path: str) -> bool:
        """Image calls of any version."""
        return ".ImageService/" in path or (self.beside is not None and self.beside.holds(path))

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        """Never the runtime's."""
        if ".ImageService/" not in call.path and self.beside is not None:
            return self.beside.decide(call, message, within_ns)
        return Refuse(
            UNIMPLEMENTED, f"images are served at unix://{self.listen}; set kubelet's imageServiceEndpoint so"
        )

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """The same: whatever it is, it is not this runtime's."""
        if ".ImageService/" not in call.path and self.beside is not None:
            return self.beside.undecided(call, message, why, ending)
        return Refuse(UNIMPLEMENTED, f"images are served at unix://{self.listen}")


def plan(settings: Settings, clock: Clock, source: SettingsSource | None = None) -> RelayPlan:
    """What the settings say; newer ones come from `source`. Raises DumpFileError where no dump can be written so."""
    relay, section = settings.relay, settings.dump
    dump = None
    if section.file:
        from nodeward.neighbours.cri import dump_rules
        from nodeward.programs.dump.feed import Feed, Writer  # RE2 is imported only where a dump is asked for

        dump_file.check(section.file)
        backoff = Backoff(1.0, 60.0, random.random)
        dump = Feed(dump_rules.parse(section.rules), partial(Writer, section), clock, backoff)
    reload = RelayReload(settings, source, dump)
    asks = _asks(reload, clock) if settings.relayed else None
    pulls = None
    if settings.podapi.enabled:
        from nodeward.neighbours.cri.pulls import PullBook  # it reads messages: only where somebody asks for them

        pulls = PullBook(clock.now_ns, clock.wall_ns, _soon)
    return RelayPlan(
        relay.listen,
        relay.runtime,
        watchers=tuple(one for one in (asks, pulls) if one is not None),
        decider=ImagesElsewhere(relay.image_listen, asks) if relay.image else asks,
        image_listen=relay.image_listen,
        image=relay.image,
        dump=dump,
        reload=reload,
        asks=asks,
        wants=settings.relayed,
        pulls=pulls,
        run_dir=settings.run_dir,
        dump_file=section.file,
        count_calls=relay.count_calls,
    )


def _asks(reload: RelayReload, clock: Clock) -> "Asks":
    """Who asks the node daemon."""
    from nodeward.neighbours.cri import door_frames, methods
    from nodeward.neighbours.cri.asks import Asks  # it reads messages: only where something is decided
    from nodeward.programs.relay import away

    settings = reload.settings
    hello = door_frames.Hello(
        door_frames.VERSION, os.getpid(), settings.relay.listen, settings.relay.runtime, settings.relayed
    )
    told = methods.TOLD if "containers" in settings.relayed else {}
    path = f"{settings.run_dir}/{door_frames.SOCKET}"
    rules, follow = away.Rules(lambda: reload.settings), reload.follow
    return Asks(path, hello, lambda: away.held(reload.settings), told, rules, clock, follow)


def _soon(do: Callable[[], None], after_s: float) -> None:
    asyncio.get_running_loop().call_later(after_s, do)


async def run(plan: RelayPlan, clock: Clock, begins: Callable[[], object] = lambda: None) -> None:
    """Relays until cancelled; then says so to the clients, waits for what is under way, and ends. ListenError if it
    cannot begin: then nothing of a relay that runs was touched. `begins` is called once the sockets are had."""
    counts = CallCounts()
    meter = counts if plan.count_calls else None
    watchers = (*plan.watchers, *((plan.dump,) if plan.dump is not None else ()))
    numbers = count(1)
    doors = [Door(plan.listen, plan.runtime, CallBook(clock, watchers, plan.decider, numbers, meter, ENDLESS))]
    if plan.image:
        doors.append(Door(plan.image_listen, plan.image, CallBook(clock, watchers, numbers=numbers, meter=meter)))
    with contextlib.ExitStack() as bound:
        listeners = [bound.enter_context(contextlib.closing(door.bind())) for door in doors]
        begins()
        await _serve(plan, doors, listeners, counts, clock)


async def _serve(
    plan: RelayPlan, doors: Sequence["Door"], listeners: Sequence[UnixListener], counts: CallCounts, clock: Clock
) -> None:
    if plan.dump is not None:
        plan.dump.open()
    systemd = sd_notify.from_environment(os.environ, os.getpid())
    watchdog = Watchdog(partial(systemd.tell, sd_notify.WATCHDOG), systemd.watchdog_s / 2)
    sys.setswitchinterval(0.0005)  # the watchdog's thread gives the loop thread back within half a millisecond
    watchdog.start()
    try:
        async with asyncio.TaskGroup() as group:
            if plan.asks is not None:
                group.create_task(_harmless(plan.asks.keep), name="asks")
            if plan.beside is not None:
                group.create_task(_harmless(plan.beside), name="beside")
                if plan.asks is not None:  # its daemon: clients that have connected wait for it
                    await plan.asks.until_there(BESIDE_S)
            for door, listener in zip(doors, listeners, strict=True):
                ending = partial(systemd.tell, sd_notify.STOPPING)
                group.create_task(door.run(listener, clock, ending), name=door.listen)
            if plan.reload is not None:
                group.create_task(_harmless(partial(plan.reload.run, systemd)), name="reload")
            if plan.run_dir:
                status = Status(plan, [(door.listen, door.relay) for door in doors], counts, clock)
                group.create_task(status.serve(clock), name="status")
            for door in doors:
                await door.open.wait()
            systemd.tell(sd_notify.READY)
    finally:
        watchdog.close()
        systemd.close()
        if plan.dump is not None:
            plan.dump.close(DUMP_S)
            told, lost, cut, behind = plan.dump.told, plan.dump.lost, plan.dump.cut, plan.dump.hurries
            log.info("dump ends told=%d lost=%d cut=%d behind=%d", told, lost, cut, behind)
        if plan.asks is not None:
            plan.asks.close()
        log.info("relayed calls %s", counts.text() if plan.count_calls else "not counted")


async def _harmless(work: Callable[[], Awaitable[None]]) -> None:
    """The work. Whatever becomes of it, calls are relayed."""
    try:
        await work()
    except Exception:
        log.exception("relay goes on without what failed")


class Door:
    """One listening socket, and the neighbour behind it."""

    def __init__(self, listen: str, runtime: str, book: CallBook) -> None:
        self.listen, self._runtime, self._book = listen, runtime, book
        self.relay = Relay(book, runtime)
        self.open = asyncio.Event()
        """Clients are served."""

    def bind(self) -> UnixListener:
        """The socket; who connects waits until clients are served. Raises ListenError, also where it would be the
        runtime's own."""
        self._check()
        listener = UnixListener(self.listen)
        try:
            listener.resemble(self._runtime)
        except OSError as error:
            listener.close()
            raise ListenError(
                f"{self.listen} cannot have the owner and mode of {self._runtime}: {error.strerror}. Run as root with "
                "CAP_CHOWN and CAP_FOWNER, as the shipped unit does"
            ) from error
        return listener

    def _check(self) -> None:
        same = os.path.realpath(self.listen) == os.path.realpath(self._runtime)
        with contextlib.suppress(OSError):
            same = same or os.path.samefile(self.listen, self._runtime)
        if same:
            raise ListenError(f"{self.listen} is the runtime's own socket. Choose another path to listen at")

    async def run(self, listener: UnixListener, clock: Clock, ending: Callable[[], object]) -> None:
        """Relays by the socket that `bind` gave until cancelled; then calls `ending`, and ends."""
        relay = self.relay
        try:
            loop = asyncio.get_running_loop()
            server = await loop.create_unix_server(relay.protocol, sock=listener.socket, backlog=BACKLOG)
            self.open.set()
            log.info("relaying listen=%s runtime=%s", self.listen, self._runtime)
            keep_freed_memory()
            gc.collect()
            gc.freeze()
            try:
                await self._look_alike(listener, clock)
            finally:
                ending()
                server.close()
                listener.close()  # the next relay may begin; one that decides waits for our lock
                # as a task of its own: before Python 3.11.3 `asyncio.timeout` in a cancelled one is a cancellation
                # (cpython 102780), and calls under way would not be told that the relay ends
                await asyncio.ensure_future(relay.drain(DRAIN_S))
        finally:
            listener.close()
            log.info("relay ends listen=%s %s", self.listen, self._book.counts.text())

    async def _look_alike(self, listener: UnixListener, clock: Clock) -> None:
        """Keeps owner and mode of our socket those of the runtime's."""

        async def watch() -> None:
            while True:
                listener.resemble(self._runtime)
                await clock.sleep(RESEMBLE_S)

        await forever("socket", watch, clock, Backoff(0.2, 10.0, random.random), lambda _, __: None)
