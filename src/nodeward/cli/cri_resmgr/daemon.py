"""The node daemon that `cri-resmgr` starts beside its relay, with the same options: `python -m` this, and those."""

import os
import sys

from nodeward.cli.cri_resmgr.relay import Configured, first_choice
from nodeward.core.errors import NodewardError
from nodeward.host import process
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.programs.node import run as node
from nodeward.settings.source import SettingsSource


def main(words: list[str]) -> None:
    """Runs until SIGTERM, or until the relay's process is gone."""
    chosen = first_choice(words)
    process.set_up_logs(chosen.log_level)
    process.raise_descriptor_limit()
    process.end_with_parent()
    configured = Configured(words)
    first = configured.pushed.first()
    faults = chosen.faults if configured.pushed.config is None else ()
    source = SettingsSource(configured.read, "options of cri-resmgr", faults=faults, pushed=configured.pushed)
    lock = process.hold_lock(first.run_dir, "node")
    try:
        configured.start(first)
        process.run(node.run(first, OsFiles(), SystemClock(), source), source.asked.set)
    finally:
        os.close(lock)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (NodewardError, OSError) as error:
        print(f"cri-resmgr: daemon: {error}", file=sys.stderr)
        sys.exit(1)
