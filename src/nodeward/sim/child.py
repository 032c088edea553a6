"""The daemon under simulation: the production `app.node.run` on the simulated kernel's files, to be killed."""

import asyncio
import sys

from nodeward.aio.clock import SystemClock
from nodeward.app import node, process, settings
from nodeward.sim.remote_files import RemoteFiles


def main(config_path: str, kernel_socket: str) -> None:
    """Runs until SIGTERM."""
    process.set_up_logs("warning")
    chosen = settings.load(config_path, {})
    asyncio.run(process.until_signal(node.run(chosen, RemoteFiles(kernel_socket), SystemClock())))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
