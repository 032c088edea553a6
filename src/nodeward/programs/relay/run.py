"""The relay's process: a listening socket and a runtime, and two more if images are a service of their own.

To relay calls it needs no file and no other part of Nodeward, neither at start nor later; where gates are enforced,
pods with a gate wait for the node daemon. On disk is at most the last policy, and what an agent pushed. It is on every
node's way to its runtime, so what is imported here stays small: no grpc, no aiohttp (a test looks).
"""

import asyncio
import contextlib
import gc
import logging
import os
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from nodeward.core.modes import Mode, OnError
from nodeward.features.cpus.settings import Driver
from nodeward.features.settings import Settings
from nodeward.host import sd_notify
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.heap import keep_freed_memory
from nodeward.host.hostfs import HostFiles
from nodeward.host.supervise import forever
from nodeward.host.watchdog import Watchdog
from nodeward.neighbours.cri.book import CallBook
from nodeward.neighbours.cri.calls import Call, Decider, Pass, Refuse, Replace, Verdict
from nodeward.neighbours.cri.counts import CallCounts
from nodeward.neighbours.cri.methods import ENDLESS
from nodeward.neighbours.cri.sockets import Relay
from nodeward.neighbours.sockets.unix_listener import BACKLOG, ListenError, UnixListener
from nodeward.programs.dump import file as dump_file
from nodeward.programs.relay.plan import RelayPlan
from nodeward.programs.relay.reload import RelayReload
from nodeward.programs.relay.status import Status
from nodeward.settings.reload import SettingsSource

RESEMBLE_S: Final = 1.0
"""How often owner and mode of the runtime's socket are looked at: a restarted runtime makes it anew."""
DRAIN_S: Final = 5.0
"""How long calls that are not answered whole yet may take when the relay ends."""

DUMP_S: Final = 10.0
"""How long the dump may take then to be written out."""
OWNER_S: Final = DRAIN_S + DUMP_S + 3.0
"""How long the one that drives limits may take to end before this one passes calls undecided: a relay before it frees
its socket first of all. Without a relay no container starts meanwhile; with one that does not decide, all would start
without limits."""
UNIMPLEMENTED: Final = 12
"""gRPC's status."""

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from nodeward.programs.relay.sizing import RelaySizing


@dataclass(frozen=True, slots=True)
class ImagesElsewhere:
    """A Decider: image calls where images are another service's. They are answered with where to ask."""

    listen: str

    def holds(self, path: str) -> bool:
        """Image calls of any version."""
        return ".ImageService/" in path

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict:
        """Never the runtime's."""
        return Refuse(
            UNIMPLEMENTED, f"images are served at unix://{self.listen}; set kubelet's imageServiceEndpoint so"
        )

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """The same: whatever it is, it is not this runtime's."""
        return self.decide(call, b"", 0)


@dataclass(frozen=True, slots=True)
class Chain:
    """A Decider of several. Those that hold a call decide it one after another: the first that refuses it ends that,
    and what one replaces is handed on to the next."""

    deciders: tuple[Decider, ...]
    now_ns: Callable[[], int]

    def holds(self, path: str) -> bool:
        """Whether any does."""
        return any(one.holds(path) for one in self.deciders)

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        """Their verdict, at once where none of them has to wait."""
        left = tuple(one for one in self.deciders if one.holds(call.path))
        return self._by(left, call, message, Pass(), self.now_ns() + within_ns)

    def _by(
        self, left: tuple[Decider, ...], call: Call, message: bytes, verdict: Verdict, end_ns: int
    ) -> Verdict | Awaitable[Verdict]:
        """The verdict of those who are left; `verdict` is that of those before them."""
        for place, one in enumerate(left, 1):
            found = one.decide(call, message, max(0, end_ns - self.now_ns()))
            if isinstance(found, Awaitable):
                if place == len(left) and isinstance(verdict, Pass):
                    return found  # it is cancelled itself where nobody waits any more
                return self._later(found, left[place:], call, message, verdict, end_ns)
            if isinstance(found, Refuse):
                return found
            if isinstance(found, Replace):
                verdict, message = found, found.message
        return verdict

    async def _later(
        self,
        awaited: Awaitable[Verdict],
        left: tuple[Decider, ...],
        call: Call,
        message: bytes,
        verdict: Verdict,
        end_ns: int,
    ) -> Verdict:
        found = await awaited
        if isinstance(found, Refuse):
            return found
        if isinstance(found, Replace):
            verdict, message = found, found.message
        rest = self._by(left, call, message, verdict, end_ns)
        return await rest if isinstance(rest, Awaitable) else rest

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """The first refusal; all that hold the call hear of it."""
        said = [one.undecided(call, message, why, ending) for one in self.deciders if one.holds(call.path)]
        return next((one for one in said if not isinstance(one, Pass)), Pass())


def plan(settings: Settings, clock: Clock, files: HostFiles, source: SettingsSource | None = None) -> RelayPlan:
    """What the settings say of a host with these files; newer ones come from `source`. Raises DumpFileError where no
    dump can be written so."""
    relay, section = settings.relay, settings.dump
    dump = None
    if section.file:
        from nodeward.neighbours.cri import dump_rules
        from nodeward.programs.dump.feed import Feed, Writer  # RE2 is imported only where a dump is asked for

        dump_file.check(section.file)
        backoff = Backoff(1.0, 60.0, random.random)
        dump = Feed(dump_rules.parse(section.rules), partial(Writer, section), clock, backoff)
    deciders: list[Decider] = [ImagesElsewhere(relay.image_listen)] if relay.image else []
    made = RelayPlan(
        relay.listen,
        relay.runtime,
        image_listen=relay.image_listen,
        image=relay.image,
        dump=dump,
        run_dir=settings.run_dir,
        dump_file=section.file,
        count_calls=relay.count_calls,
    )
    if OnError.REFUSE in (relay.vm_checkpoint, relay.vm_resize):
        from nodeward.programs.relay.vm_guard import VmGuard  # only where it is chosen

        guard = VmGuard(settings, files)
        deciders.append(guard.decider)
        made = replace(made, guard=guard)
    if settings.sizing.mode is not Mode.OFF and (sizes := _sizing(settings, clock, files)) is not None:
        deciders.append(sizes.decider)
        made = replace(made, sizing=sizes)
    if settings.gate.mode is not Mode.OFF:  # before CPUs are reserved for a container that has to wait
        from nodeward.programs.relay.gate import RelayGate  # only where it is chosen

        gate = RelayGate(settings, files)
        deciders.append(gate.decider)
        made = replace(made, gate=gate)
    if settings.relay.limits or settings.cpus.driver is Driver.RELAY:
        from nodeward.programs.relay import (
            limits as relay_limits,  # the engine is imported only where something is decided
        )

        if relay_limits.decides(settings):
            drives = _owns(relay_limits.owns(settings, OWNER_S))
            limits = relay_limits.RelayLimits(settings, files, clock, relay_limits.soon, drives)
            deciders.append(limits.decider)
            beside = partial(limits.run, relay.runtime, clock)
            made = replace(made, watchers=(limits.decider,), beside=beside, limits=limits)
    if settings.podapi.enabled:
        from nodeward.neighbours.cri.pulls import PullBook  # it reads messages: only where somebody asks for them

        pulls = PullBook(clock.now_ns, clock.wall_ns, _soon)
        made = replace(made, pulls=pulls, watchers=(*made.watchers, pulls))
    if source is not None:
        made = replace(made, reload=RelayReload(settings, source, made.limits, dump, made.sizing, made.gate))
        if source.pushed is not None and settings.cpus.driver is Driver.RELAY:
            made = replace(made, config_socket=settings.agent.config_socket)
    return replace(made, decider=Chain(tuple(deciders), clock.now_ns)) if deciders else made


def _soon(do: Callable[[], None], after_s: float) -> None:
    asyncio.get_running_loop().call_later(after_s, do)


def _sizing(settings: Settings, clock: Clock, files: HostFiles) -> "RelaySizing | None":
    """Who gives VMs their size. A fault of ours leaves it out: pods get the size that kubelet sent."""
    from nodeward.programs.relay.sizing import RelaySizing  # only where it is chosen

    try:
        return RelaySizing(settings, files, clock)
    except Exception:
        log.exception("sizing=off: what it needs could not be read")
        return None


def _owns(why_not: str) -> bool:
    """Whether calls are decided here from the start. While another process drives a feature, calls pass."""
    if why_not:
        log.error("features=not-driven-here why=%r; calls pass undecided until they can be driven here", why_not)
    return not why_not


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
        if plan.limits is not None and plan.limits.drives:
            await _harmless(plan.limits.join_lines)  # before the first create
        async with asyncio.TaskGroup() as group:
            for door, listener in zip(doors, listeners, strict=True):
                ending = partial(systemd.tell, sd_notify.STOPPING)
                group.create_task(door.run(listener, clock, ending), name=door.listen)
            if plan.beside is not None:
                group.create_task(_harmless(plan.beside), name="beside")
            if plan.sizing is not None:
                pauses = Backoff(1.0, 60.0, random.random)
                work = partial(forever, "sizing", plan.sizing.run, clock, pauses, lambda _, __: None)
                group.create_task(_harmless(work), name="sizing")
            if plan.reload is not None:
                group.create_task(_harmless(partial(plan.reload.run, systemd)), name="reload")
            if plan.config_socket and plan.reload is not None:
                from nodeward.neighbours.resmgr import config  # it reads messages: only where somebody may push

                taking = partial(config.serve, plan.config_socket, plan.reload.push)
                pauses = Backoff(1.0, 60.0, random.random)
                work = partial(forever, "config-socket", taking, clock, pauses, lambda _, __: None)
                group.create_task(_harmless(work), name="config-socket")
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
        if plan.limits is not None:
            plan.limits.close()
        if plan.limits is not None and plan.limits.drives:
            log.info("limits %s", plan.limits.text())
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
