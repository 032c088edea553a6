"""The daemon under simulation: the production `app.node.run` on the simulated kernel's files, to be killed."""

import asyncio
import sys

from nodeward.aio.clock import SystemClock
from nodeward.app import node, process, settings
from nodeward.app.reload import SettingsSource
from nodeward.sim.remote_files import RemoteFiles


def main(config_path: str, kernel_socket: str) -> None:
    """Runs until SIGTERM."""
    process.set_up_logs("warning")
    source = SettingsSource(lambda: settings.load(config_path, {}), f"file {config_path}")
    running = node.run(source.read(), RemoteFiles(kernel_socket), SystemClock(), source)
    asyncio.run(process.until_signal(running, source.asked.set))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
