"""The relay's record of events and decisions; `nodeward replay` reads it.

It is a file of its own, `relay.record`: two processes that append to one would tear each other's segments. Written by
a thread of its own, so no call waits for the disk.
"""

from typing import Final

from nodeward.features.settings import Settings
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import ThreadLane
from nodeward.host.record_writer import RecordWriter, size

FLUSH_S: Final = 0.25
"""So late at most what was recorded is handed to the disk."""
CLOSE_S: Final = 2.0
"""How long the disk may take for the rest when the relay ends."""


class RelayRecord:
    """Its writer, and the lane on which that writes."""

    def __init__(self, settings: Settings, files: HostFiles) -> None:
        """Looks how long the file is, which may sleep."""
        path = settings.relay.record
        self._lane = ThreadLane("record")
        self.writer = RecordWriter(files, self._lane, path, settings.record.max_bytes, size(files, path))
        """The core's recorder."""

    async def keep(self, clock: Clock) -> None:
        """Writes the record, until cancelled."""
        while True:
            self.writer.flush()
            await clock.sleep(FLUSH_S)

    def close(self) -> None:
        """Has the rest written, in the running loop."""
        self.writer.flush()
        self._lane.close(CLOSE_S)
