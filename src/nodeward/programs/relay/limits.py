"""The relay's own engine: decides limits and CPUs when containers are created and updated.

What it knows of pods the node daemon tells it (`programs.relay.facts`), else what CRI's calls carry. It sets limits of
containers only, at the runtime, and keeps nothing on disk. Goals of `limits` end here: those cgroup files belong to the
node daemon; cpusets are written here (`programs.relay.cpus`). While another process owns one of these, calls pass
untouched; the relay decides once that process has ended.
"""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from nodeward.core.conditions import HappenedRow
from nodeward.core.decision import Goal, Target
from nodeward.core.errors import WireError
from nodeward.core.events import CapacityRead, RuntimeConnected
from nodeward.core.modes import Mode, OnError
from nodeward.core.ports import Tell
from nodeward.core.workload import Container, ContainerId, Sandbox, SandboxId
from nodeward.features.all import ENGINE
from nodeward.features.cpus.ask import label_keys
from nodeward.features.cpus.settings import Driver
from nodeward.features.lately.view import lately_rows
from nodeward.features.limits.rows import CgroupRow
from nodeward.features.pods.fault import declaration
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings, Settings
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.process import LockedError, own_feature, owner_of
from nodeward.host.runner import Core
from nodeward.host.supervise import forever
from nodeward.neighbours.cgroups.hierarchy import Tree, read_capacity
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.decider import LimitsDecider, Soon
from nodeward.neighbours.cri.methods import VERSIONS
from nodeward.neighbours.cri.rows import DriverRow
from nodeward.neighbours.sockets import unary_client
from nodeward.neighbours.sockets.unary_client import UNIMPLEMENTED, CallFailedError
from nodeward.people.decisions import Latest
from nodeward.people.relay_rows import relayed_rows
from nodeward.programs.node.oci_runtimes import OciRuntimes
from nodeward.programs.relay.facts import DaemonFacts
from nodeward.programs.relay.updates import Debts, Update

LIST_S: Final = 5.0
"""How long the runtime may take for a list, or for an update."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.2, 10.0
"""Between tries to ask it."""
HELD_PAUSE_S: Final = 1.0
"""The longest where creates are held until the runtime has answered."""
CAPACITY_S: Final = 10.0
"""How often it is looked what the kernel has: a module that has misc resources may be loaded later."""
OWNER_AGAIN_S: Final = 1.0
"""How often it is looked whether another process owns the feature still."""
OWNER_GONE: Final = 5
"""After so many looks that found none it has ended. One that is only restarted finds the feature free: a daemon that
finds a relay there does not start. A create that passes in between has no limit by this relay."""
WAITS_MS: Final = 60_000
"""So long creates may wait for facts in any ten seconds, all together: here they do not wait for one another, as they
do with NRI, for which the setting `pods.wait_budget_ms` is."""
log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from nodeward.features.cpus.rows import CpusView
    from nodeward.programs.relay.cpus import RelayCpus
    from nodeward.programs.relay.record import RelayRecord


class NoGoals:
    """Performs nothing: a limit that this process wants is set by the runtime, at its word."""

    def connect(self, tell: Tell, rearm: Callable[[], None]) -> None:
        """Does nothing: there are no outcomes."""

    def set(self, goals: Iterable[Goal], forget: Iterable[Target] = ()) -> None:
        """Drops them."""

    def next_due_ns(self) -> int | None:
        """Never."""
        return None

    def run_due(self) -> None:
        """Nothing is tried again."""


class RelayLimits:
    """The core, and what the relay gives its calls to."""

    def __init__(self, settings: Settings, files: HostFiles, clock: Clock, soon: Soon, drives: bool = True) -> None:
        """Reads what the kernel has. `drives`: this process owns the feature; else `run` waits until it does."""
        self._settings, self._files, self._tree = settings, files, Tree(files, settings.cgroups.root)
        self._oci, self._clock = OciRuntimes(settings, files), clock
        self.facts = DaemonFacts(settings.run_dir, lambda: self.core, clock)
        """Its `source` says by what pods are known."""
        self._record = _record(settings, files) if settings.relay.record else None
        recorder = self._record.writer if self._record is not None else None
        update = partial(self._update, settings.relay.runtime)
        self.cpus = _cpus(settings, files, self._tree, clock, update) if "cpus" in decides(settings) else None
        goals = self.cpus.slots if self.cpus is not None else NoGoals()
        state = State(settings=_engine(settings))
        core = self.core = Core(state, ENGINE, clock, goals, self.facts, _commit, recorder, seen=Latest().add)
        self._has = self._read()
        if drives:
            _say(self._has, settings)
        core.tell(self._has)
        tell = core.tell if self.cpus is None else self.cpus.begins(core, drives)
        core.tell(RuntimeConnected("CRI", ""))
        self.debts = Debts(core, self._container)
        self.decider = LimitsDecider(
            core.ask,
            self.debts.listens(self.facts.listens(tell)),
            core.seq,
            self._container,
            self._sandbox,
            lambda home, container: declaration(core.state, home, container),
            self.facts.ahead,
            self._refuses,
            self.debts.owe,
            clock.now_ns,
            soon,
            drives,
            self.cpus,
            lambda: label_keys(core.state),
        )

    @property
    def drives(self) -> bool:
        """Whether calls are decided here."""
        return self.decider.takes_part

    def _read(self) -> CapacityRead:
        self._tree.look()
        return read_capacity(self._files, self._tree)

    async def run(self, runtime: str, clock: Clock) -> None:
        """Does the work besides the calls, until cancelled. First it waits until the feature is ours."""
        if not self.drives:
            await self._take_over(clock)
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "lists": lambda: self.learn(runtime, clock),
            "facts": self.facts.keep,
            "capacity": lambda: self.look(clock),
            "debts": lambda: self.debts.pay(partial(self._update, runtime), partial(self._ask_all, runtime), clock),
        }
        if self.cpus is not None:
            parts |= self.cpus.parts()
        if self._record is not None:
            parts["record"] = partial(self._record.keep, clock)
        async with asyncio.TaskGroup() as group:
            for name, start in parts.items():
                backoff = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random.random)
                group.create_task(forever(name, start, clock, backoff, lambda _, __: None), name=name)

    async def _take_over(self, clock: Clock) -> None:
        """Waits for the end of the process that owns the feature; from then on calls are decided here."""
        loop, free = asyncio.get_running_loop(), 0
        while free < OWNER_GONE or not await loop.run_in_executor(None, self._owns):
            await clock.sleep(OWNER_AGAIN_S)
            owner = await loop.run_in_executor(None, owners_of, self._settings)
            free = 0 if owner else free + 1
        try:
            if self.cpus is not None:
                await self.cpus.recall()
            await self._look()  # modules may have come since the start
            await self.join_lines()
        except Exception:
            log.exception("%s begin by what was known at the start", self._domains)
        self.decider.takes_part = True
        log.warning(
            "features=driven-here: who drove them has ended; %s of what was created meanwhile are not by this relay",
            self._domains,
        )
        _say(self._has, self._settings)

    def _owns(self) -> bool:
        """Whether the features are ours from here on."""
        return owns(self._settings, 0.0) == ""

    async def join_lines(self) -> None:
        """Puts every limit into creates from here on if the OCI runtimes can write several; else one each."""
        if await self._oci.joins():
            self.core.tell(RuntimeConnected("CRI", "", multi_line=True))

    def settle(self, settings: Settings) -> None:
        """Decides by these settings from now on."""
        self._settings = settings
        self.core.tell(SettingsChanged(_engine(settings)))

    async def look(self, clock: Clock) -> None:
        """Tells the core what the kernel has whenever that has changed; the files are read by another thread."""
        while True:
            await clock.sleep(CAPACITY_S)
            if await self._look():
                _say(self._has, self._settings)

    async def _look(self) -> bool:
        """Whether the kernel has other than before."""
        read = await asyncio.get_running_loop().run_in_executor(None, self._read)
        if read == self._has:
            return False
        self._has = read
        self.core.tell(read)
        return True

    def _refuses(self) -> str:
        """The setting by which what cannot be decided is refused; empty where it goes on."""
        now = self.core.state.settings
        rules = (("limits", now.limits.on_error, now.limits.mode), ("cpus", now.cpus.on_error, now.cpus.mode))
        refusing = (feature for feature, on_error, mode in rules if on_error is OnError.REFUSE and mode is Mode.ENFORCE)
        return next((f"{feature}.on_error" for feature in refusing), "")

    @property
    def _domains(self) -> str:
        """What is decided here, for the log."""
        return ",".join(decides(self._settings))

    def _container(self, container_id: ContainerId) -> tuple[Sandbox, Container] | None:
        pods = self.core.state.pods
        known = pods.containers.get(container_id)
        home = pods.sandboxes.get(known.container.sandbox_id) if known is not None else None
        return (home.sandbox, known.container) if known is not None and home is not None else None

    def _sandbox(self, sandbox_id: SandboxId) -> Sandbox | None:
        known = self.core.state.pods.sandboxes.get(sandbox_id)
        return known.sandbox if known is not None else None

    async def learn(self, runtime: str, clock: Clock) -> None:
        """Asks the runtime what it has, until that is known: what was before this process is known by nothing else.
        Later only where no whole lists have passed for long, be it that nobody asks for them or reads the answers."""
        most_s = LAST_PAUSE_S if self.cpus is None else HELD_PAUSE_S
        pauses = Backoff(FIRST_PAUSE_S, most_s, random.random)
        told = False
        while True:
            if not (self.decider.overdue or (self.cpus is not None and self.cpus.unread())):
                await clock.sleep(LAST_PAUSE_S)
                continue
            try:
                version = await self._ask_all(runtime)
                pods = self.core.state.pods
                counts = len(pods.sandboxes), len(pods.containers)
                pauses.reset()
                told = False
                log.info("%s know sandboxes=%d containers=%d by=%s", self._domains, *counts, version)
            except (OSError, TimeoutError, CallFailedError, WireError) as error:
                if not told:
                    why = error or type(error).__name__
                    log.warning("%s wait for the runtime's lists error=%s", self._domains, why)
                told = True
                await clock.sleep(pauses.next_s())
            else:
                await clock.sleep(LAST_PAUSE_S)

    async def _ask_all(self, runtime: str) -> str:
        """Both lists; by which version of CRI that was."""
        return await _by_newest(partial(self._ask_by, runtime))

    async def _ask_by(self, runtime: str, version: str) -> None:
        as_of, place = self.core.seq(), f"/runtime.{version}.RuntimeService"
        sandboxes = await unary_client.call(runtime, f"{place}/ListPodSandbox", b"", LIST_S)
        containers = await unary_client.call(runtime, f"{place}/ListContainers", b"", LIST_S)
        placed = None
        if self.cpus is not None:
            status = partial(unary_client.call, runtime, f"{place}/ContainerStatus", within_s=LIST_S)
            placed = await self.cpus.details([one.id for one in mapping.containers((containers,))], status)
        self.decider.asked(sandboxes, containers, as_of, placed)

    async def _update(self, runtime: str, request: bytes) -> None:
        async def by(version: str) -> None:
            path = f"/runtime.{version}.RuntimeService/UpdateContainerResources"
            await unary_client.call(runtime, path, request, LIST_S)

        await _by_newest(by)

    def row(self) -> DriverRow:
        """How it does."""
        core, decider = self.core, self.decider
        return DriverRow(
            here="limits" in decides(self._settings),
            owner="this relay",
            mode=core.state.settings.limits.mode.value,
            facts=self.facts.source or "annotations",
            listed=decider.listed,
            asks=dict(core.asks),
            unknown=decider.unknown,
            unread=decider.unread,
            faults=sum(core.faults.values()),
        )

    def containers(self) -> Callable[[], tuple[CgroupRow, ...]]:
        """Those that are known now, still to be drawn, on any thread."""
        return partial(relayed_rows, self.core.state)

    def lately(self) -> "Callable[[], tuple[HappenedRow, ...]]":
        """What happened lately by decisions made here, to be drawn on any thread."""
        return partial(lately_rows, self.core.state, self._clock.now_ns())

    def cpu_view(self) -> "Callable[[], CpusView | None]":
        """The CPUs as they are now, still to be drawn, on any thread."""
        if self.cpus is None:
            return lambda: None
        from nodeward.features.cpus.view import cpus_view

        return partial(cpus_view, self.core.state, self.core.state.at_ns)

    def close(self) -> None:
        """Has what was decided written down, where it is. While another process drives limits the file may be its."""
        if self.cpus is not None:
            self.cpus.close()
        if self._record is not None and self.drives:
            self.core.close()
            self._record.close()

    def text(self) -> str:
        """The counts for the log, at the end."""
        asks = " ".join(f"{outcome}={count}" for outcome, count in self.core.asks.items())
        faults = sum(self.core.faults.values())
        facts = self.facts.source or "annotations"
        return (
            f"{asks} unknown={self.decider.unknown} lists={self.decider.lists} unread={self.decider.unread} "
            f"mended={self.debts.paid} faults={faults} facts={facts}".lstrip()
        )


def decides(settings: Settings) -> tuple[str, ...]:
    """The features that are decided in the relay, by the settings."""
    limits = settings.relay.limits and settings.limits.mode is not Mode.OFF
    cpus = settings.cpus.driver is Driver.RELAY and settings.cpus.mode is not Mode.OFF
    return (*(("limits",) if limits else ()), *(("cpus",) if cpus else ()))


def owns(settings: Settings, patience_s: float) -> str:
    """Takes the features for the life of the process, all or none; why they cannot be had, else nothing."""
    taken = list[int]()
    for feature in decides(settings):
        try:
            taken.append(own_feature(settings.run_dir, feature, patience_s))
        except LockedError as error:
            for lock in taken:
                os.close(lock)
            return str(error)
    return ""


def owners_of(settings: Settings) -> str:
    """Another process that drives one of them."""
    return next((who for feature in decides(settings) if (who := owner_of(settings.run_dir, feature))), "")


def _engine(settings: Settings) -> EngineSettings:
    by_relay = settings.cpus.driver is Driver.RELAY
    limits = replace(settings.limits, mode=Mode.OFF) if by_relay and not settings.relay.limits else settings.limits
    cpus = settings.cpus if by_relay else replace(settings.cpus, mode=Mode.OFF)
    pods = replace(settings.pods, wait_budget_ms=WAITS_MS)
    gate = replace(settings.gate, mode=Mode.OFF)  # the node daemon knows verdicts (programs.relay.gate)
    return replace(settings.engine, pods=pods, limits=limits, cpus=cpus, gate=gate)


def soon(do: Callable[[], None], after_s: float) -> None:
    """Calls `do` after so long, in the running loop's next turn at the earliest."""
    loop = asyncio.get_running_loop()
    if after_s:
        loop.call_later(after_s, do)
    else:
        loop.call_soon(do)


def _say(read: CapacityRead, settings: Settings) -> None:
    rule = settings.limits
    here = {name: read.capacity[name] for name in rule.resources.values() if read.capacity.get(name, 0) > 0}
    if read.tree.fault:
        log.error("limits=unenforced fault=%r", read.tree.fault)
    elif read.tree.version == 1:
        log.error("limits=unenforced cgroup=v1: a runtime takes no misc limit there; use the OCI hook (docs/hook.md)")
    elif not here and rule.mode is Mode.ENFORCE:
        log.warning("limits=unenforced: the kernel has none of %s", ", ".join(rule.resources.values()))
    else:
        log.info("limits mode=%s here=%s", rule.mode.value, here)


async def _by_newest(call: Callable[[str], Awaitable[None]]) -> str:
    """Calls by the newest version of CRI that the runtime has; which that is."""
    *newer, oldest = VERSIONS
    for version in newer:
        try:
            await call(version)
        except CallFailedError as error:
            if error.status != UNIMPLEMENTED:
                raise
        else:
            return version
    await call(oldest)
    return oldest


def _cpus(settings: Settings, files: HostFiles, tree: Tree, clock: Clock, update: Update) -> "RelayCpus":
    from nodeward.programs.relay.cpus import RelayCpus  # only where CPUs are given

    return RelayCpus(settings, files, tree, clock, update)


def _record(settings: Settings, files: HostFiles) -> "RelayRecord":
    from nodeward.programs.relay.record import RelayRecord  # only where a record is asked for

    return RelayRecord(settings, files)


async def _commit(record: str) -> str:
    return "the relay keeps nothing on disk"
