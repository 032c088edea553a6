"""Sizes of VMs in the relay: asks what the decision needs, and counts what became of it.

Promises: only pods of handlers that start VMs wait, for the node daemon's facts and no longer than `pods.wait_ms`;
without facts the decision goes by what kubelet sent. Files are read beside the calls. Must not change a request itself.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Final

from nodeward.core.errors import WireError
from nodeward.core.modes import Mode
from nodeward.core.vms import NOT_TOLD, Allocatable, Handler, Room, Sized
from nodeward.core.workload import PodSpec, Sandbox
from nodeward.features.sandboxes import sizing
from nodeward.features.sandboxes.rows import SizingRow
from nodeward.features.settings import Settings
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.cri.facts_line import Asked
from nodeward.neighbours.cri.sandbox_calls import SandboxSizer
from nodeward.neighbours.kata.handlers import read_handlers
from nodeward.neighbours.sysfs import topology
from nodeward.programs.node.relay_door import SOCKET
from nodeward.programs.relay.facts import told

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


class RelaySizing:
    """Belongs to the loop's thread; files are read by another one."""

    def __init__(self, settings: Settings, files: HostFiles, clock: Clock) -> None:
        """Reads what the machine and the runtime's configuration have."""
        self._settings, self._files, self._clock = settings, files, clock
        self._facts = f"{settings.run_dir}/{SOCKET}"
        self._has = self._read()
        self._node = NOT_TOLD
        self._counts = Counter[str]()
        self._last = ""
        self.decider = SandboxSizer(self._decide, self._undecided)
        self._say()

    async def run(self) -> None:
        """Reads again and again, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            read = await asyncio.get_running_loop().run_in_executor(None, self._read)
            if read != self._has:
                self._has = read
                self._say()

    def settle(self, settings: Settings) -> None:
        """Decides by these settings from now on."""
        self._settings = settings
        self._say()

    def row(self) -> SizingRow:
        """How it does."""
        return SizingRow(self._settings.sizing.mode.value, dict(self._counts), self._last)

    def _read(self) -> _Has:
        """What cannot be read leaves a handler, or the machine, unknown."""
        machine = topology.read(self._files)
        found = read_handlers(self._files, self._settings.sandboxes.profiles)
        memory = sum(node.bytes for node in machine.memory)
        return _Has({one.name: one for one in found}, machine.online.bit_count(), memory)

    @property
    def _most(self) -> Room:
        return sizing.room(self._settings.sizing, self._has.cpus, self._has.memory, self._node)

    def _say(self) -> None:
        rule, most = self._settings.sizing, self._most
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
        return sizing.why_not(handler, self._has.handlers.get(handler), self._settings.sizing)

    def _decide(self, home: Sandbox, within_s: float) -> Awaitable[Sized | None] | None:
        if self._settings.sizing.mode is Mode.OFF or self._why_not(home.handler):
            self._counts["others"] += 1
            return None
        return self._size(home, within_s)

    async def _size(self, home: Sandbox, within_s: float) -> Sized | None:
        spec, no_spec = await self._spec(home, within_s)
        rule, handler = self._settings.sizing, self._has.handlers.get(home.handler)
        found = sizing.sized(home.asked, spec, handler, rule, self._most, no_spec, home.annotations)
        sends = found.changes and rule.mode is Mode.ENFORCE
        self._counts["sized" if found.changes else "kept"] += 1
        pod, text = f"{home.namespace}/{home.name}", sizing.told(home.asked, found)
        self._last = f"{pod}: {text}"[:MOST_TEXT]
        did = "sized" if sends else "would-size" if found.changes else "kept"
        log.info("sizing=%s pod=%s handler=%s what=%r", did, pod, home.handler, text)
        return found if sends else None

    async def _spec(self, home: Sandbox, within_s: float) -> tuple[PodSpec | None, str]:
        """The pod's spec by the node daemon, else why not."""
        patience_s = min(within_s * FACTS_SHARE, self._settings.pods.wait_ms / 1000)
        if not home.pod_uid:
            return None, "the client told no UID"
        try:
            answer = await told(self._facts, Asked(home.pod_uid, home.namespace, home.name), patience_s)
        except TimeoutError:
            return None, f"the node daemon did not tell within {patience_s:g} s"
        except (OSError, WireError) as error:
            return None, f"no node daemon told: {error}"
        self._learn(answer.allocatable)
        return answer.pod, answer.why

    def _learn(self, node: Allocatable | None) -> None:
        """Keeps what is allocatable, also while the daemon does not know: it has just begun, or is an older one."""
        if node is not None and node not in (NOT_TOLD, self._node):
            self._node = node
            self._say()

    def _undecided(self, why: str) -> None:
        self._counts["undecided"] += 1
        log.warning("sizing=undecided why=%r; the request passes as it came", why)
