"""`nodeward node` with a ticker on its event loop, which tells how late it was woken.

    python -m bench.ticking FILE node --config ...

On SIGUSR1 the lateness of every tick since the last one, or since the start, is written to FILE, in microseconds. The
daemon itself is the whole product, in the same process and on the same loop.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from nodeward.aio.clock import Clock
from nodeward.aio.hostfs import HostFiles
from nodeward.app import node
from nodeward.app.reload import SettingsSource
from nodeward.cli.main import main as nodeward
from nodeward.model.settings import Settings

TICK_S = 0.001


class Ticker:
    """One loop's. To be made and used on it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._late_us: list[int] = []
        self._begins = True

    async def tick(self) -> None:
        """Until cancelled."""
        while True:
            due = self._loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            late = self._loop.time() - due
            if self._begins:  # what was late by the telling itself is not counted
                self._begins = False
                continue
            self._late_us.append(int(late * 1e6))

    def tell(self) -> None:
        """Writes what there is, and begins anew."""
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._late_us))
        os.replace(new, self._file)
        self._late_us, self._begins = [], True


def main() -> None:
    """The daemon with these arguments, and the ticker beside it."""
    file, run = Path(sys.argv.pop(1)), node.run

    async def ticking(settings: Settings, files: HostFiles, clock: Clock, source: SettingsSource | None = None) -> None:
        ticker = Ticker(file)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, ticker.tell)
        task = asyncio.create_task(ticker.tick())
        try:
            await run(settings, files, clock, source)
        finally:
            task.cancel()

    node.run = ticking
    nodeward()


if __name__ == "__main__":
    main()
