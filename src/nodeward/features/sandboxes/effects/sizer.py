"""Sizes of VMs whose start a relay holds: asks what the decision needs, and counts what became of it.

Promises: only pods of handlers that start VMs wait, for their spec and no longer than `pods.wait_ms`; without it the
decision goes by what kubelet sent. Files are read beside the calls. Must not change a request itself.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from nodeward.core.modes import Mode
from nodeward.core.vms import NOT_TOLD, Handler, Room, Sized
from nodeward.core.workload import PodSpec, PodUid, Sandbox
from nodeward.features.root import State
from nodeward.features.sandboxes import sizing
from nodeward.features.sandboxes.rows import SizingRow
from nodeward.features.settings import Settings
from nodeward.features.wiring import PodFacts
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.runner import Core
from nodeward.neighbours.cri.sandbox_calls import SandboxSizer
from nodeward.neighbours.kata.handlers import read_handlers
from nodeward.neighbours.sysfs import topology

LOOK_S: Final = 10.0
"""How often the machine's CPUs and the runtime's configuration are read."""
FACTS_SHARE: Final = 0.8
"""Of the time that a hold has, so much for facts."""
MOST_TEXT: Final = 1000
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Has:
    """What the files say: handlers that start VMs, CPUs that are online, bytes of memory; 0 where not known."""

    handlers: Mapping[str, Handler]
    cpus: int
    memory: int


class Sizer:
    """Belongs to the loop's thread; files are read by another one."""

    def __init__(
        self, settings: Callable[[], Settings], files: HostFiles, core: Core[State], pods: PodFacts, clock: Clock
    ) -> None:
        """`settings`: those that hold now."""
        self._settings, self._files, self._core, self._pods, self._clock = settings, files, core, pods, clock
        self._has = _Has({}, 0, 0)
        self._read_once = asyncio.Event()
        self._node = NOT_TOLD
        self._counts = Counter[str]()
        self._last = ""
        self.decider = SandboxSizer(self._decide)

    async def run(self) -> None:
        """Reads what the machine and the runtime's configuration have, again and again, until cancelled."""
        said: object = None
        while True:
            self._has = await asyncio.to_thread(self._read)
            self._read_once.set()
            if said != (now := (self._has, self._settings().sizing)):
                said = now
                self._say()
            await self._clock.sleep(LOOK_S)

    def row(self) -> SizingRow:
        """How it does."""
        return SizingRow(self._settings().sizing.mode.value, dict(self._counts), self._last)

    def _read(self) -> _Has:
        """What cannot be read leaves a handler, or the machine, unknown."""
        machine = topology.read(self._files)
        found = read_handlers(self._files, self._settings().sandboxes.profiles)
        memory = sum(node.bytes for node in machine.memory)
        return _Has({one.name: one for one in found}, machine.online.bit_count(), memory)

    @property
    def _most(self) -> Room:
        return sizing.room(self._settings().sizing, self._has.cpus, self._has.memory, self._node)

    def _say(self) -> None:
        rule, most = self._settings().sizing, self._most
        names = [name for name in rule.handlers or self._has.handlers if not self._why_not(name)]
        log.info(
            "sizing mode=%s handlers=%s most_cpu_m=%s most_memory=%s by=%r",
            rule.mode.value,
            ",".join(names) or "none",
            most.cpu_m,
            most.memory,
            f"{most.cpu_by}; {most.memory_by}",
        )
        for name in rule.handlers or self._has.handlers:
            if why := self._why_not(name):
                log.warning("sizing=none handler=%s why=%r", name, why)

    def _why_not(self, handler: str) -> str:
        return sizing.why_not(handler, self._has.handlers.get(handler), self._settings().sizing)

    def _decide(self, home: Sandbox, within_s: float) -> Awaitable[Sized | None] | None:
        if self._settings().sizing.mode is Mode.OFF or (self._read_once.is_set() and self._why_not(home.handler)):
            self._counts["others"] += 1
            return None
        return self._size(home, within_s)

    async def _size(self, home: Sandbox, within_s: float) -> Sized | None:
        await self._read_once.wait()
        if self._why_not(home.handler):
            self._counts["others"] += 1
            return None
        spec, no_spec = await self._spec(home, within_s)
        rule, handler = self._settings().sizing, self._has.handlers.get(home.handler)
        found = sizing.sized(home.asked, spec, handler, rule, self._most, no_spec, home.annotations)
        sends = found.changes and rule.mode is Mode.ENFORCE
        self._counts["sized" if found.changes else "kept"] += 1
        pod, text = f"{home.namespace}/{home.name}", sizing.told(home.asked, found)
        self._last = f"{pod}: {text}"[:MOST_TEXT]
        did = "sized" if sends else "would-size" if found.changes else "kept"
        log.info("sizing=%s pod=%s handler=%s what=%r", did, pod, home.handler, text)
        return found if sends else None

    async def _spec(self, home: Sandbox, within_s: float) -> tuple[PodSpec | None, str]:
        """The pod's spec, else why not."""
        patience_s = min(within_s * FACTS_SHARE, self._settings().pods.wait_ms / 1000)
        if not home.pod_uid:
            return None, "the client told no UID"
        uid, why = PodUid(home.pod_uid), ""
        if uid not in self._core.state.pods.specs:
            try:
                async with asyncio.timeout(patience_s):
                    why = await self._pods.fetch("pod", f"{home.namespace}/{home.name}/{uid}")
            except TimeoutError:
                why = f"the API server did not tell within {patience_s:g} s"
        self._learn()
        known = self._core.state.pods.specs.get(uid)
        return (known.spec, "") if known is not None else (None, why or "the pod ended meanwhile")

    def _learn(self) -> None:
        """Keeps what is allocatable, also where the API server does not tell it any more."""
        node = self._pods.allocatable
        if node not in (NOT_TOLD, self._node):
            self._node = node
            self._say()
