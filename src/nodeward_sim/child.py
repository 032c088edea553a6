"""The daemon under simulation: the production `programs.node.run.run` on the simulated kernel's files, to be killed.

Its standard input is a pipe that the simulation holds open: when the simulation is gone, however it went, the daemon
ends in good order and leaves no process behind.
"""

import sys

from nodeward.host import process
from nodeward.host.clock import SystemClock
from nodeward.programs.node import run as node
from nodeward.settings import load as settings
from nodeward.settings.source import SettingsSource
from nodeward_sim.doubles.remote_files import RemoteFiles


def main(config_path: str, kernel_socket: str) -> None:
    """Runs until SIGTERM."""
    process.set_up_logs("warning")
    process.end_with_parent()
    source = SettingsSource(lambda: settings.load(config_path, {}), f"file {config_path}")
    running = node.run(source.read(), RemoteFiles(kernel_socket), SystemClock(), source)
    process.run(running, source.asked.set)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
