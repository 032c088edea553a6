"""Applies new settings to a running relay, at SIGHUP and by an agent's push.

Promises: faults leave everything as it was, and are logged; what needs a restart is named; calls are relayed meanwhile,
whatever becomes of the file. Must not know frames.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from nodeward.core.errors import NodewardError
from nodeward.core.modes import Mode
from nodeward.features.settings import Settings
from nodeward.host import sd_notify
from nodeward.settings.pushed import Config, Pushed, in_vain
from nodeward.settings.reload import SettingsSource, leaves

if TYPE_CHECKING:
    from nodeward.neighbours.cri.dump_rules import Rules
    from nodeward.programs.dump.feed import Feed
    from nodeward.programs.relay.gate import RelayGate
    from nodeward.programs.relay.limits import RelayLimits
    from nodeward.programs.relay.sizing import RelaySizing

_OTHERS = ("run_dir", "cgroups.root", "nri.enabled", "nri.multi_line", "podapi.enabled", "sandboxes.profiles")
OURS = ("relay.", "limits.", "pods.", "cpus.", "policy.", "sizing.", "gate.", "dump.", *_OTHERS)
"""What the relay goes by; other settings of the file are the daemon's."""
log = logging.getLogger(__name__)
T = TypeVar("T")


class RelayReload:
    """The settings of one relay's life."""

    def __init__(
        self,
        running: Settings,
        source: SettingsSource,
        limits: "RelayLimits | None",
        dump: "Feed | None",
        sizing: "RelaySizing | None" = None,
        gate: "RelayGate | None" = None,
    ) -> None:
        self._running, self._source, self._limits, self._dump = running, source, limits, dump
        self._sizing, self._gate = sizing, gate
        self._turn = asyncio.Lock()
        self.faults = source.faults
        """Why the source's own settings are not in force; empty where they are."""

    async def run(self, systemd: sd_notify.Notifier) -> None:
        """Reads them whenever it is asked to, by another thread: the file may lie on a disk that hangs, and rules of a
        dump take their time."""
        self._refused(self.faults)
        while True:
            await self._source.asked.wait()
            self._source.asked.clear()
            if systemd.told_ready:
                systemd.reloading()
            try:
                async with self._turn:
                    self._take(*await self._later(self._read, self._source.read))
                    self.faults = ()
            except (NodewardError, OSError, RuntimeError) as error:
                self._refused(tuple(str(error).splitlines()))
            finally:
                if systemd.told_ready:
                    systemd.tell(sd_notify.READY)

    def _refused(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        for fault in faults:
            log.error("settings=refused and kept as they were fault=%r", fault)

    @property
    def pushed(self) -> Pushed | None:
        """What an agent pushed; None where nobody may."""
        return self._source.pushed

    async def push(self, node: str, config: Config) -> str:
        """Takes a configuration that an agent pushed, whole; why not, a fault a line, else nothing."""
        pushed = self._source.pushed
        if pushed is None:
            return "this relay takes no configurations"
        async with self._turn:
            if pushed.is_known(config) and not self._unfit():
                return ""
            try:
                wanted, rules = await self._later(self._read, partial(pushed.tried, config))
            except (NodewardError, OSError, RuntimeError) as error:
                return pushed.refused(node, str(error))
            if idle := in_vain(wanted):
                return pushed.refused(node, idle)
            before, policy = self._running, wanted.policy
            if merged(before, wanted, self._limits is not None, False).policy != policy:
                remedy = "set cpus.driver to relay and cpus.mode to enforce in its settings, and restart it"
                return pushed.refused(node, f"policy.active: this relay gives no container CPUs; {remedy}")
            back = None if rules is None else await self._later(self._rules, before)  # the agent may go meanwhile
            self._take(wanted, rules)
            if why := self._unfit():
                self._take(before, back)
                return pushed.refused(node, "\n".join(f"policy {policy.active}: {one}" for one in why))
            pushed.taken(node, config, time.time_ns())
            self.faults = ()
            await self._later(pushed.keep, wanted)
        return ""

    def _unfit(self) -> tuple[str, ...]:
        """Why the policy does not fit this machine."""
        return self._limits.core.state.cpus.refused if self._limits is not None else ()

    async def _later(self, work: Callable[..., T], *given: object) -> T:
        """The same by another thread."""
        return await asyncio.get_running_loop().run_in_executor(None, partial(work, *given))

    def _rules(self, wanted: Settings) -> "Rules":
        from nodeward.neighbours.cri import dump_rules

        return dump_rules.parse(wanted.dump.rules)

    def _read(self, read: Callable[[], Settings]) -> "tuple[Settings, Rules | None]":
        """The settings, and their rules of a dump where there is one."""
        wanted = read()
        if self._dump is None:
            return wanted, None
        return wanted, self._rules(wanted)

    def _take(self, wanted: Settings, rules: "Rules | None") -> None:
        before = dict(leaves(self._running))
        parts = (self._limits, self._dump, self._sizing, self._gate)
        live = merged(self._running, wanted, *(part is not None for part in parts))
        have = dict(leaves(live))
        late = [path for path, value in leaves(wanted) if value != have[path] and path.startswith(OURS)]
        changed = [path for path, value in have.items() if value != before[path]]
        if self._dump is not None and rules is not None:
            self._dump.follow(rules)
        if self._limits is not None and _decided_by(live) != _decided_by(self._running):
            self._limits.settle(live)
        if self._sizing is not None and live.sizing != self._running.sizing:
            self._sizing.settle(live)
        if self._gate is not None:
            self._gate.settle(live)
        self._running = live
        log.info("settings=accepted from=%r changed=%s", self._source.about, ",".join(changed) or "nothing")
        if late:
            log.warning("settings=need-restart keys=%s", ",".join(late))


def merged(
    running: Settings, wanted: Settings, limits: bool, dump: bool, sizing: bool = False, gate: bool = False
) -> Settings:
    """What runs, with everything of `wanted` that can change at once in a relay that decides (`limits`), dumps, gives
    sizes, or has gates."""
    live = replace(running, sizing=wanted.sizing) if sizing else running
    live = replace(live, gate=wanted.gate) if gate else live
    if limits:  # pods are read by this table as they come
        rules = replace(wanted.limits, resources=live.limits.resources)
        live = replace(live, limits=rules, pods=wanted.pods, policy=wanted.policy)
        if Mode.OFF not in (live.cpus.mode, wanted.cpus.mode):  # else what writes cpusets would have to come or go
            live = replace(live, cpus=replace(wanted.cpus, driver=live.cpus.driver))
    return replace(live, dump=replace(live.dump, rules=wanted.dump.rules)) if dump else live


def _decided_by(settings: Settings) -> tuple[object, ...]:
    """What the relay decides by."""
    return settings.engine, settings.cpus
