"""Reloads the settings of a running daemon: all of them, or none if one is refused.

Faults leave everything as it was, and are said in the log and in the status. What decisions depend on changes at once,
by an event, so that a record of it replays. The rest is named as what needs a restart. What was accepted is kept on
disk, as soon as the disk takes it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from nodeward.core.modes import Mode
from nodeward.core.ports import Tell
from nodeward.features.keys.settings import KeyKind, KeysSettings
from nodeward.features.root import SettingsChanged
from nodeward.features.sandboxes.settings import SandboxesSettings
from nodeward.features.settings import Settings
from nodeward.host import sd_notify
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane
from nodeward.settings import last_good, policy_object
from nodeward.settings.load import SettingsError
from nodeward.settings.policy_object import ChosenPolicy
from nodeward.settings.pushed import Config, in_vain
from nodeward.settings.rows import SettingsRow
from nodeward.settings.source import SettingsSource, leaves

log = logging.getLogger(__name__)
EVERY_S = 5.0


class Reload:
    """The settings of one daemon's life."""

    def __init__(
        self,
        own: Settings,
        source: SettingsSource | None,
        files: HostFiles,
        lane: Lane,
        clock: Clock,
        chosen: ChosenPolicy | None = None,
    ) -> None:
        """`own` are the source's settings; `chosen` is the policy object in the place of their policy."""
        self._source, self._lane, self._clock = source, lane, clock
        faults = source.faults if source is not None else ()
        about = "last good settings" if faults else source.about if source is not None else ""
        self.chosen = chosen
        self._own, self._running = own, policy_object.overlaid(own, chosen)
        self._file = last_good.FILE.writer(files, self._running.state_dir)
        self._object_file = policy_object.FILE.writer(files, self._running.state_dir)
        named = str(chosen.named) if chosen is not None else ""
        self.row = SettingsRow(about, clock.wall_ns(), faults, policy_object=named)
        self._unkept: Settings | None = None
        self._unkept_object = False
        self._busy = False
        self._turn = asyncio.Lock()
        if not faults:
            self._keep(own)

    @property
    def settings(self) -> Settings:
        """Those that hold now."""
        return self._running

    async def run(self, tell: Tell, systemd: sd_notify.Notifier) -> None:
        """Reads them whenever it is asked to."""
        asked = self._source.asked if self._source is not None else asyncio.Event()
        while True:
            await asked.wait()
            asked.clear()
            if systemd.told_ready:
                systemd.reloading()
            try:
                assert self._source is not None  # who else asks
                async with self._turn:
                    self._take(await self._read(self._source.read), tell)
            finally:
                if systemd.told_ready:
                    systemd.tell(sd_notify.READY)

    async def _read(self, read: Callable[[], Settings]) -> Settings | BaseException:
        """On the disk lane, since the file may lie on a disk that hangs."""
        found: asyncio.Future[Settings | BaseException] = asyncio.get_running_loop().create_future()
        if not self._lane.submit("settings", read, found.set_result):
            return OSError("the disk lane is full or hangs")
        return await found

    def _take(self, found: Settings | BaseException, tell: Tell) -> None:
        if isinstance(found, BaseException):
            faults = self._refuse(found)
            for fault in faults:
                log.error("settings=refused fault=%r", fault)
            log.error("settings=kept why='the new ones have %d fault(s)'", len(faults))
            return
        late = self._hold(found, tell)
        about = self._source.about if self._source is not None else ""
        self.row = replace(
            self.row, source=about, accepted_wall_ns=self._clock.wall_ns(), faults=(), need_restart=tuple(late)
        )
        if late:
            log.warning("settings=need-restart keys=%s", ",".join(late))
        self._keep(found)

    def choose(self, chosen: ChosenPolicy | None, tell: Tell) -> None:
        """The policy object that holds from now on; None: the settings have the policy again."""
        self.chosen = chosen
        self._hold(self._own, tell)
        self.row = replace(self.row, policy_object=str(chosen.named) if chosen is not None else "")

    def refuse(self, why: Sequence[str]) -> None:
        """Shows why the policy object that means this node is not in force; nothing where it is."""
        if self.row.policy_object_faults != tuple(why):
            self.row = replace(self.row, policy_object_faults=tuple(why))

    def _hold(self, own: Settings, tell: Tell) -> list[str]:
        """Settings of the source, and the object's policy, are in force; returns what needs a restart for that."""
        self._own = own
        live, late = merged(self._running, policy_object.overlaid(own, self.chosen))
        if live.engine != self._running.engine:
            tell(SettingsChanged(live.engine))
        changed = [path for path, value in leaves(live) if value != dict(leaves(self._running))[path]]
        self._running = live
        log.info("settings=accepted changed=%s", ",".join(changed) or "nothing")
        return late

    async def push(self, node: str, config: Config, tell: Tell, unfit: Callable[[], tuple[str, ...]]) -> str:
        """Takes a configuration that an agent pushed, whole; why not, a fault a line, else nothing. `unfit`: why the
        policy does not fit this machine, once it was told. Where a policy object holds, it stays in force, and that is
        asked once it is gone."""
        pushed = self._source.pushed if self._source is not None else None
        if pushed is None:
            return "this daemon takes no configurations"
        async with self._turn:
            if pushed.is_known(config) and (self.chosen is not None or not unfit()):
                return ""
            before = self._own
            found = await self._read(partial(pushed.tried, config))
            if isinstance(found, BaseException):
                return pushed.refused(node, "\n".join(self._refuse(found)))
            if idle := in_vain(found):
                return pushed.refused(node, idle)
            self._take(found, tell)
            if self.chosen is None and (why := unfit()):
                self._take(before, tell)
                self.row = replace(self.row, faults=why)
                return pushed.refused(node, "\n".join(f"policy {found.policy.active}: {one}" for one in why))
            pushed.taken(node, config, self._clock.wall_ns())
            await asyncio.to_thread(pushed.keep, found)
        return ""

    def _refuse(self, error: BaseException) -> tuple[str, ...]:
        """The faults, which the status has from here on."""
        faults = tuple(error.faults) if isinstance(error, SettingsError) else (str(error),)
        self.row = replace(self.row, faults=faults)
        return faults

    async def keep(self) -> None:
        """Tries again to keep what the disk did not take, for ever."""
        while True:
            await self._clock.sleep(EVERY_S)
            if self._unkept is not None and not self._busy:
                self._write(self._unkept, is_news=False)
            if self._unkept_object:
                self.remember()

    def _keep(self, accepted: Settings) -> None:
        self._unkept = accepted
        self._write(accepted, is_news=True)

    def remember(self) -> None:
        """Keeps the policy object that holds now for the next start, as soon as the disk takes it."""
        self._unkept_object, chosen = True, self.chosen

        def kept(result: object) -> None:
            if isinstance(result, BaseException):
                log.warning("policy-object=not-kept error=%s", result)
            elif chosen is self.chosen:
                self._unkept_object = False

        write = partial(self._object_file.replace, policy_object.keeps(chosen))
        if not self._lane.submit("policy-object", write, kept):
            kept(OSError("the disk lane is full or hangs"))

    def _write(self, accepted: Settings, *, is_news: bool) -> None:
        def kept(result: object) -> None:
            self._busy = False
            if not isinstance(result, BaseException):
                self._unkept = None if self._unkept is accepted else self._unkept
            elif is_news:
                log.warning("last-good=not-kept path=%s error=%s", self._file.path, result)

        write = partial(self._file.replace, last_good.plain(accepted))
        self._busy = self._lane.submit("settings", write, kept)
        if not self._busy:
            kept(OSError("the disk lane is full or hangs"))


def merged(running: Settings, wanted: Settings) -> tuple[Settings, list[str]]:
    """`running` with everything of `wanted` that can change at once, and the paths of what cannot."""
    # What serves devices and claims is there or is not, and pods are read by the table of resources as they come.
    own = running.limits
    limits = replace(wanted.limits, resources=own.resources, dra=own.dra, devices=own.devices, node_epc=own.node_epc)
    old = running.cpus
    cpus = replace(wanted.cpus, driver=old.driver, kubevirt_label=old.kubevirt_label, dra=old.dra)
    live = replace(running, limits=limits, pods=wanted.pods, keys=_keys(running.keys, wanted.keys))
    live = replace(live, dump=replace(live.dump, rules=wanted.dump.rules))
    live = replace(live, cpus=cpus, policy=wanted.policy, sandboxes=_sandboxes(running.sandboxes, wanted.sandboxes))
    if Mode.OFF not in (running.sizing.mode, wanted.sizing.mode):
        live = replace(live, sizing=wanted.sizing)
    if Mode.OFF not in (running.gate.mode, wanted.gate.mode):  # else the socket that the relay asks would come or go
        live = replace(live, gate=wanted.gate)
    have = dict(leaves(live))
    return live, [path for path, value in leaves(wanted) if value != have[path]]


def _sandboxes(running: SandboxesSettings, wanted: SandboxesSettings) -> SandboxesSettings:
    """As much as needs no other reader: not whether sandboxes are read, nor how often."""
    if Mode.OFF in (running.mode, wanted.mode):
        return running
    return replace(wanted, period_ms=running.period_ms)


def _keys(running: KeysSettings, wanted: KeysSettings) -> KeysSettings:
    """As much of the settings of `keys` as needs no other component and no other reading of pods: observe and enforce,
    the amounts and rules of the kinds that are there, and how many keys go by claim."""
    if Mode.OFF in (running.mode, wanted.mode):
        return running
    kinds = dict(running.kinds)
    for key, row in running.kinds.items():
        new = wanted.kinds.get(key, row)
        if _shape(new) == _shape(row):
            kinds[key] = new
    dra = running.dra
    if Mode.OFF not in (dra.mode, wanted.dra.mode):
        dra = replace(dra, mode=wanted.dra.mode, share=wanted.dra.share)
    return replace(running, mode=wanted.mode, kinds=kinds, dra=dra)


def _shape(row: KeyKind) -> tuple[object, ...]:
    """What the components of a kind are made by."""
    return row.resources, row.publisher, row.publish, row.capacity_from, row.share, row.attestation_socket
