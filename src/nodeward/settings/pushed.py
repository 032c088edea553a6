"""Merges a configuration that a node agent pushed into the settings, and keeps the last good one on disk.

Promises: what was accepted last holds again after a restart, unless it has faults by then. Must not know how a
configuration is written: who starts the process does.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from nodeward.core.errors import NodewardError
from nodeward.core.modes import Mode
from nodeward.features.settings import Settings
from nodeward.host.hostfs import HostFiles, make_folders
from nodeward.host.state_file import OneWriter, StateFile
from nodeward.neighbours.cri.rows import ConfigRow

log = logging.getLogger(__name__)
FILE: Final = StateFile("agent-config.json", dict[str, str], "config")
MOST_BYTES: Final = 48 * 1024
"""Of a configuration, names included: YAML of this size is read in moments, and a call of it waits for no windows."""
Config = Mapping[str, str]
"""A module each, and its YAML."""
Overlaid = Callable[[Config | None], Settings]
"""The settings with this configuration over them, or with none. NodewardError where it has faults, a fault a line."""


class Pushed:
    """The configuration of one process's life. `check` raises NodewardError for settings that must not be in force, and
    `accepted` hears of those that are."""

    def __init__(
        self,
        overlaid: Overlaid,
        files: HostFiles,
        check: Callable[[Settings], None] = lambda _: None,
        accepted: Callable[[Settings], None] = lambda _: None,
    ) -> None:
        self._overlaid, self._files, self._check, self._accepted = overlaid, files, check, accepted
        self._writer = OneWriter()
        self.config: Config | None = None
        """In force; None where there is none."""
        self.row = ConfigRow()

    def first(self) -> Settings:
        """The settings to start with: by the last good configuration where that still has no faults."""
        plain = self._overlaid(None)
        kept, path = self._kept(plain), FILE.path_in(plain.state_dir)
        if kept is not None:
            try:
                settings = self.tried(kept)
            except NodewardError as error:
                for fault in str(error).splitlines():
                    log.error("config=not-used path=%s fault=%r", path, fault)
            else:
                self.config = kept
                log.info("config=last-good path=%s", path)
                return settings
        self._check(plain)
        return plain

    def go_on(self, last: Settings) -> None:
        """The process starts by its last good settings, `last`, since its own have faults: what was pushed is among
        them."""
        self.config = self._kept(last)

    def _kept(self, settings: Settings) -> Config | None:
        self.row = ConfigRow(settings.agent.config_socket)
        return FILE.known(self._files, settings.state_dir) if settings.agent.config_socket else None

    def read(self) -> Settings:
        """The settings as they are now, with the configuration that is in force."""
        return self.tried(self.config)

    def tried(self, config: Config | None) -> Settings:
        """The settings as they would be with this configuration. NodewardError where they have faults."""
        settings = self._overlaid(config)
        self._check(settings)
        return settings

    def is_known(self, config: Config) -> bool:
        """Whether it is in force already."""
        return config == self.config and not self.row.faults

    def refused(self, node: str, why: str) -> str:
        """Notes the faults of one that was not taken, and returns them. It is pushed again and again, and said once."""
        faults = tuple(why.splitlines())
        for fault in faults if faults != self.row.faults else ():
            log.error("config=refused node=%s fault=%r", node, fault)
        self.row = ConfigRow(self.row.socket, node, self.row.taken_wall_ns, faults)
        return why

    def taken(self, node: str, config: Config, wall_ns: int) -> None:
        """It is in force."""
        self.config, self.row = config, ConfigRow(self.row.socket, node, wall_ns)
        log.info("config=accepted node=%s modules=%s", node, ",".join(sorted(config)))

    def keep(self, settings: Settings) -> None:
        """Writes the configuration in force to disk. May sleep. What the disk does not take is said in the log: it is
        pushed again after the next start anyway."""
        file = FILE.writer(self._files, settings.state_dir)
        try:
            with self._writer.writes(file.path):
                try:
                    make_folders(settings.state_dir)
                    file.replace(dict(self.config or {}))
                finally:
                    self._accepted(settings)
        except OSError as error:
            log.warning("config=not-kept path=%s error=%s", file.path, error)


def in_vain(settings: Settings) -> str:
    """Why a pushed policy would not be in force with these settings; empty where it would."""
    if settings.cpus.mode is not Mode.OFF or settings.policy.active == "none":
        return ""
    return f"policy {settings.policy.active}: cpus.mode is off in the settings of this node: no policy is in force"


def size(config: Config) -> int:
    """Its bytes."""
    return sum(len(name.encode(errors="replace")) + len(text.encode(errors="replace")) for name, text in config.items())


def forget(files: HostFiles, folder: str) -> bool:
    """Forgets the last good configuration; whether there was one. OSError where that cannot be done."""
    try:
        files.unlink(FILE.path_in(folder))
    except FileNotFoundError:
        return False
    return True
