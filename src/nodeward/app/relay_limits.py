"""The domain `limits` in the relay's process: a core of its own, which decides at a container's creation and update.

It keeps nothing on disk and asks nobody: what it knows of pods is what CRI's calls carry, their annotations among it,
so it sets limits of containers only. Goals end here: cgroup files belong to the node daemon (DESIGN 8), which reads
limits back and mends them where one runs.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from functools import partial

from nodeward.aio.backoff import Backoff
from nodeward.aio.clock import Clock
from nodeward.aio.hostfs import HostFiles
from nodeward.app.core import Core
from nodeward.edges.cgroups import sampler
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.edges.cri.decider import INTERNAL, LimitsDecider
from nodeward.edges.cri.methods import VERSIONS
from nodeward.engine.relayed import relayed_rows
from nodeward.engine.state import State
from nodeward.model.decision import Goal
from nodeward.model.events import CapacityRead, RuntimeConnected
from nodeward.model.ports import Tell
from nodeward.model.relayed import Refuse
from nodeward.model.settings import Mode, OnError, Settings
from nodeward.model.view import CgroupRow, DriverRow
from nodeward.model.workload import Container, ContainerId, Sandbox, SandboxId
from nodeward.transport import unary_client
from nodeward.transport.unary_client import UNIMPLEMENTED, CallFailedError
from nodeward.wire.errors import WireError

LIST_S = 5.0
"""How long the runtime may take for a list."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.2, 10.0
"""Between tries to ask it."""
log = logging.getLogger(__name__)


class NoGoals:
    """Performs nothing: a limit that this process wants is set by the runtime, at its word."""

    def connect(self, tell: Tell, rearm: Callable[[], None]) -> None:
        """Nothing is ever told."""

    def set(self, goals: Iterable[Goal], forget: Iterable[str] = ()) -> None:
        """Drops them."""

    def next_due_ns(self) -> int | None:
        """Never."""
        return None

    def run_due(self) -> None:
        """Nothing is tried again."""


class NoFacts:
    """Whatever could be asked for, CRI's calls carried it or nobody has it."""

    async def fetch(self, fact: str, key: str) -> str:
        """Why not."""
        return f"{fact} {key}: the relay asks no API server"


class RelayLimits:
    """The core, and what the relay gives its calls to."""

    def __init__(
        self, settings: Settings, files: HostFiles, clock: Clock, soon: Callable[[Callable[[], None]], object]
    ) -> None:
        """Reads what the kernel has, once: a misc resource comes and goes with a boot."""
        self.core = Core(State(settings=settings.engine), clock, NoGoals(), NoFacts(), _commit)
        tree = Tree(files, settings.cgroups.root)
        tree.look()
        read = sampler.read_capacity(files, tree)
        _say(read, settings)
        self.core.tell(read)
        self.core.tell(RuntimeConnected("CRI", "", multi_line=settings.nri.multi_line))
        core = self.core
        self.decider = LimitsDecider(core.ask, core.tell, core.seq, self._container, self._sandbox, clock.now_ns, soon)

    def _container(self, container_id: ContainerId) -> tuple[Sandbox, Container] | None:
        pods = self.core.state.pods
        known = pods.containers.get(container_id)
        home = pods.sandboxes.get(known.container.sandbox_id) if known is not None else None
        return (home.sandbox, known.container) if known is not None and home is not None else None

    def _sandbox(self, sandbox_id: SandboxId) -> Sandbox | None:
        known = self.core.state.pods.sandboxes.get(sandbox_id)
        return known.sandbox if known is not None else None

    async def learn(self, runtime: str, clock: Clock) -> None:
        """Asks the runtime what it has, until that is known: what was before this process is known by nothing else."""
        pauses = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random.random)
        told = False
        while not self.decider.listed:
            try:
                version = await self._ask_all(runtime)
                pods = self.core.state.pods
                counts = len(pods.sandboxes), len(pods.containers)
                log.info("limits know sandboxes=%d containers=%d by=%s", *counts, version)
            except (OSError, TimeoutError, CallFailedError, WireError) as error:
                if not told:
                    log.warning("limits wait for the runtime's lists error=%s", error or type(error).__name__)
                told = True
                await clock.sleep(pauses.next_s())

    async def _ask_all(self, runtime: str) -> str:
        """Both lists, by the newest version of CRI that the runtime has; which that is."""
        *newer, oldest = VERSIONS
        for version in newer:
            try:
                return await self._ask_by(version, runtime)
            except CallFailedError as error:
                if error.status != UNIMPLEMENTED:
                    raise
        return await self._ask_by(oldest, runtime)

    async def _ask_by(self, version: str, runtime: str) -> str:
        as_of, place = self.core.seq(), f"/runtime.{version}.RuntimeService"
        sandboxes = await unary_client.call(runtime, f"{place}/ListPodSandbox", b"", LIST_S)
        containers = await unary_client.call(runtime, f"{place}/ListContainers", b"", LIST_S)
        self.decider.asked(sandboxes, containers, as_of)
        return version

    def row(self) -> DriverRow:
        """How it does."""
        core, decider = self.core, self.decider
        return DriverRow(
            here=True,
            owner="this relay",
            mode=core.state.settings.limits.mode.value,
            facts="annotations",
            listed=decider.listed,
            asks=dict(core.asks),
            unknown=decider.unknown,
            unread=decider.unread,
            faults=sum(core.faults.values()),
        )

    def containers(self) -> Callable[[], tuple[CgroupRow, ...]]:
        """Those that are known now, still to be drawn, on any thread."""
        return partial(relayed_rows, self.core.state)

    def text(self) -> str:
        """For the log, at the end."""
        asks = " ".join(f"{outcome}={count}" for outcome, count in self.core.asks.items())
        faults = sum(self.core.faults.values())
        return f"{asks} unknown={self.decider.unknown} unread={self.decider.unread} faults={faults}".lstrip()


def on_error(settings: Settings) -> Refuse | None:
    """The answer to a create or update that cannot be decided."""
    if settings.limits.on_error is not OnError.REFUSE:
        return None
    return Refuse(INTERNAL, "Nodeward's relay could not decide the limits, and limits.on_error is refuse")


def soon(do: Callable[[], None]) -> None:
    """In the running loop's next turn."""
    asyncio.get_running_loop().call_soon(do)


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
        log.info("limits mode=%s here=%s pods=by-annotation", rule.mode.value, here)


async def _commit(record: str) -> str:
    return "the relay keeps nothing on disk"
