"""`nodeward node`: runs the daemon."""

import logging
import os
from typing import TYPE_CHECKING

import click

from nodeward.cli.flags import own_name, set_option

if TYPE_CHECKING:
    from nodeward.features.settings import Settings
    from nodeward.host.hostfs import HostFiles
    from nodeward.settings.source import SettingsSource

log = logging.getLogger(__name__)

_LEVELS = click.Choice(["debug", "info", "warning", "error"])


@click.command("node")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@set_option("limits.mode=observe")
@click.option(
    "--record",
    "record_path",
    type=click.Path(dir_okay=False),
    help="Record events and decisions here, at the end of what is there.",
)
@click.option("--wait", is_flag=True, help="If another daemon runs on this node: start once it ends. Without, exit.")
@click.option("--log-level", type=_LEVELS, default="info", show_default=True)
def command(
    config_path: str | None, flags: dict[str, str], record_path: str | None, wait: bool, log_level: str
) -> None:
    """Run the daemon on this node, as root, until SIGTERM. SIGHUP reads the settings again.

    \b
    Examples:
      nodeward node --config /etc/nodeward.yaml
      nodeward node --set limits.mode=observe --set kube.enabled=false
      NODEWARD_LIMITS__STRICT=true nodeward node --config /etc/nodeward.yaml
    """
    from nodeward.host import process
    from nodeward.host.clock import SystemClock
    from nodeward.host.hostfs import OsFiles
    from nodeward.programs.node import run as node

    pairs = dict(flags)
    if record_path:
        pairs["record.path"] = os.path.abspath(record_path)
    process.set_up_logs(log_level)
    process.raise_descriptor_limit()
    files = OsFiles()
    chosen, source = _settings(files, config_path, pairs)
    folder = chosen.run_dir
    lock, waited = (
        process.wait_for_lock(folder, "node", own_name()) if wait else (process.hold_lock(folder, "node"), False)
    )
    if waited:  # the settings of then may be days old
        chosen, source = _settings(files, config_path, pairs)
    try:
        process.run(node.run(chosen, files, SystemClock(), source), source.asked.set)
    finally:
        os.close(lock)


def _settings(files: "HostFiles", config_path: str | None, pairs: dict[str, str]) -> "tuple[Settings, SettingsSource]":
    """The settings to start with, and where newer ones come from. A file with faults: the last good ones, if any."""
    from nodeward.programs.cri_resmgr import pushed as cri_resmgr_pushed
    from nodeward.settings import last_good
    from nodeward.settings import load as settings
    from nodeward.settings.pushed import Pushed
    from nodeward.settings.source import SettingsSource

    settings.warn(os.environ)
    about = f"file {config_path}" if config_path else "environment and flags"
    pushed = Pushed(cri_resmgr_pushed.over_file(config_path, os.environ, pairs), files)
    source = SettingsSource(pushed.read, about, pushed=pushed)
    try:
        return pushed.first(), source
    except settings.SettingsError as error:
        folder = last_good.folder_of(config_path or "", os.environ, pairs)
        found = last_good.read(files, folder, os.environ, pairs) if config_path else None
        if found is None:
            raise
        for fault in error.faults:
            log.error("settings=refused fault=%r", fault)
        where = last_good.FILE.path_in(folder)
        log.error("settings=last-good path=%s why='the settings of this start have faults'", where)
        source.faults = tuple(error.faults)
        pushed.go_on(found)
        return found, source
