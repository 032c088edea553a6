"""Applies new settings to a running relay, at SIGHUP.

Promises: faults leave everything as it was, and are logged; what needs a restart is named; calls are relayed meanwhile,
whatever becomes of the file. Must not know frames.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from nodeward.core.errors import NodewardError
from nodeward.core.modes import Mode
from nodeward.features.settings import Settings
from nodeward.host import sd_notify
from nodeward.settings.source import SettingsSource, leaves

if TYPE_CHECKING:
    from nodeward.neighbours.cri.dump_rules import Rules
    from nodeward.programs.dump.feed import Feed

OURS = (
    *("relay.", "dump.", "run_dir", "podapi.enabled", "gate.", "sizing.mode"),
    *("limits.mode", "limits.on_error", "cpus.mode", "cpus.driver", "cpus.on_error", "policy.active"),
)
"""What the relay goes by; other settings of the file are the daemon's."""
log = logging.getLogger(__name__)


class RelayReload:
    """The settings of one relay's life."""

    def __init__(self, running: Settings, source: SettingsSource | None, dump: "Feed | None") -> None:
        self.settings, self._source, self._dump, self._pushed = running, source, dump, ""
        """`settings`: those that hold now."""
        self.faults = source.faults if source is not None else ()
        """Why the source's own settings are not in force; empty where they are."""

    async def run(self, systemd: sd_notify.Notifier) -> None:
        """Reads them whenever it is asked to, by another thread: the file may lie on a disk that hangs, and rules of a
        dump take their time."""
        source = self._source
        if source is None:
            return
        self._refused(self.faults)
        while True:
            await source.asked.wait()
            source.asked.clear()
            if systemd.told_ready:
                systemd.reloading()
            try:
                self._take(*await asyncio.to_thread(self._read, source.read), source.about)
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

    def _read(self, read: Callable[[], Settings]) -> "tuple[Settings, Rules | None]":
        """The settings, and their rules of a dump where there is one."""
        wanted = read()
        if self._dump is None:
            return wanted, None
        from nodeward.neighbours.cri import dump_rules

        return wanted, dump_rules.parse(self._pushed or wanted.dump.rules)

    def follow(self, rules: str) -> None:
        """Has the dump go by these rules of a configuration that was pushed; without effect where there is none."""
        if self._dump is None:
            return
        from nodeward.neighbours.cri import dump_rules

        try:
            self._dump.follow(dump_rules.parse(rules))
        except NodewardError as error:
            log.error("dump=kept its rules why=%r", str(error))
            return
        self._pushed = rules
        log.info("settings=accepted from='the node daemon' changed=dump.rules")

    def _take(self, wanted: Settings, rules: "Rules | None", about: str) -> None:
        before = dict(leaves(self.settings))
        live = merged(self.settings, wanted, self._dump is not None)
        have = dict(leaves(live))
        late = [path for path, value in leaves(wanted) if value != have[path] and path.startswith(OURS)]
        changed = [path for path, value in have.items() if value != before[path]]
        if self._dump is not None and rules is not None:
            self._dump.follow(rules)
        self.settings = live
        log.info("settings=accepted from=%r changed=%s", about, ",".join(changed) or "nothing")
        if late:
            log.warning("settings=need-restart keys=%s", ",".join(late))


def merged(running: Settings, wanted: Settings, dump: bool) -> Settings:
    """What runs, with everything of `wanted` that can change at once: what becomes of calls that no daemon decides, and
    the rules of a dump where there is one. What is held for a feature comes and goes with a restart."""
    live = replace(running, dump=replace(running.dump, rules=wanted.dump.rules)) if dump else running
    if Mode.OFF not in (running.gate.mode, wanted.gate.mode):
        live = replace(live, gate=wanted.gate)
    if Mode.OFF not in (running.limits.mode, wanted.limits.mode):
        live = replace(live, limits=replace(live.limits, mode=wanted.limits.mode, on_error=wanted.limits.on_error))
    if Mode.OFF not in (running.cpus.mode, wanted.cpus.mode):
        live = replace(live, cpus=replace(live.cpus, mode=wanted.cpus.mode, on_error=wanted.cpus.on_error))
    return replace(live, policy=replace(live.policy, active=wanted.policy.active))
