"""The relay's record of events and decisions, where one is asked for; `nodeward replay` reads it, as the daemon's.

It is a file of its own, `relay.record`: two processes that append to one would tear each other's segments. Written by
a thread of its own, so no call waits for the disk.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from nodeward.aio.clock import Clock
from nodeward.aio.hostfs import HostFiles
from nodeward.aio.lanes import ThreadLane
from nodeward.app.host.record import RecordWriter, size
from nodeward.model.settings import Settings

T = TypeVar("T")
FLUSH_S: Final = 0.25
"""So late at most what was recorded is handed to the disk."""
CLOSE_S: Final = 2.0
"""How long the disk may take for the rest when the relay ends."""
log = logging.getLogger(__name__)


class RelayRecord:
    """The lane of its writer, which begins with the first job, in the running loop."""

    def __init__(self, settings: Settings, files: HostFiles) -> None:
        """Looks how long the file is, which may sleep."""
        path = settings.relay.record
        self._lane: ThreadLane | None = None
        self.writer = RecordWriter(files, self, path, settings.record.max_bytes, size(files, path))
        """The core's recorder."""

    def submit(
        self,
        name: str,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        ended: Callable[[], None] | None = None,
    ) -> bool:
        """A Lane's."""
        if self._lane is None:
            self._lane = ThreadLane(name, asyncio.get_running_loop(), lambda job: log.warning("stuck job=%s", job))
        return self._lane.submit(name, job, done, ended)

    async def keep(self, clock: Clock) -> None:
        """Has what is recorded written, until cancelled."""
        while True:
            self.writer.flush()
            await clock.sleep(FLUSH_S)

    def close(self) -> None:
        """Has the rest written, in the running loop."""
        self.writer.flush()
        if self._lane is not None:
            self._lane.close(CLOSE_S)
