"""Writes the record of events and decisions, off the loop, bounded; `programs.once.replay` reads it.

Lines gather in memory and one job at a time appends them to the file. A segment's head, which is megabytes on a full
node, is encoded by that job. When the disk is slower than the events, or full,
the segment is torn and a new one with a checkpoint of the state begins: a record never lies about a gap.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

from nodeward import __version__
from nodeward.core import record
from nodeward.core.decision import Decision
from nodeward.core.events import Event
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane
from nodeward.host.state_file import OneWriter

log = logging.getLogger(__name__)
MAX_BUFFER = 8 * 1024 * 1024
ENOUGH = 512 * 1024
"""So much is written at once; less waits for the next `flush`, since each job wakes a thread that takes the
interpreter from a runtime's call. A burst of 300 creates fits."""

Head = Callable[[], Iterator[bytes]]
"""A segment's, still to be encoded. The state never changes, so that is done on any thread."""


class RecordWriter:
    """The recorder of a Core. `dropped` counts events that are in no segment.

    `there` is how many bytes the file has already (`size`): a record of an earlier life is kept, up to the same bound.
    """

    def __init__(self, files: HostFiles, lane: Lane, path: str, max_bytes: int, there: int) -> None:
        self._files, self._lane, self._path, self._max_bytes = files, lane, path, max_bytes
        self._writer = OneWriter()
        self._lines: list[bytes | Head] = []
        self._buffered = 0
        self._written = there
        self._busy = False
        self._torn = True
        self._rotate = False
        if self._written:
            self._put(b"\n")  # the life before this one may have ended within a line
        self.dropped = 0
        self._lost_by = ""
        """Why the last batch was lost, empty once one is written."""

    def __call__(self, event: Event, decision: Decision, state: object) -> None:
        """Records one step. `state` is the state before it."""
        if self._buffered > MAX_BUFFER:
            self._tear("the disk is slower than the events")
            self.dropped += 1
            self.flush()
            return
        if self._torn or self._written > self._max_bytes:
            if self._written > self._max_bytes:
                self._rotate, self._written = True, 0
            self._lines.append(partial(record.segment_pieces, __version__, state))
            self._torn = False
        self._put(record.encode_event(event))
        self._put(record.encode_decision(decision))
        if self._buffered >= ENOUGH:
            self.flush()

    def flush(self) -> None:
        """Starts a job for the gathered lines, unless one is under way."""
        if self._busy or not self._lines:
            return
        lines, known, self._lines, self._buffered = self._lines, self._buffered, [], 0
        self._written += known
        rotate, self._rotate = self._rotate, False

        def job() -> int:
            data = b"".join(chain.from_iterable((line,) if isinstance(line, bytes) else line() for line in lines))
            with self._writer.writes(self._path):
                if rotate:
                    self._files.replace(self._path, data)
                else:
                    self._files.append(self._path, data, sync=False)
            return len(data)

        def done(result: int | BaseException) -> None:
            self._busy = False
            if isinstance(result, BaseException):
                self._lost(str(result), known, rotate)
            else:
                self._written += result - known
                self._lost_by = ""
                self.flush()

        self._busy = self._lane.submit("record", job, done)
        if not self._busy:
            self._lost("the lane is full", known, rotate)

    def _lost(self, why: str, known: int, rotate: bool) -> None:
        """What was to be written is not, or half: what gathered since then follows from it, and goes too."""
        if why != self._lost_by:  # else four lines a second, for as long as the disk is full
            log.warning("record=lost path=%s error=%s", self._path, why)
        self._lost_by = why
        self.dropped += 1
        self._written = max(0, self._written - known)  # else the record from before would soon make room for nothing
        self._lines, self._buffered, self._torn = [], 0, False
        self._rotate = self._rotate or rotate
        self._tear(why)

    def _tear(self, why: str) -> None:
        if not self._torn:
            self._torn = True
            self._put(b"\n" + record.encode_torn(why))  # what stands before may be half a line

    def _put(self, line: bytes) -> None:
        self._lines.append(line)
        self._buffered += len(line)


def size(files: HostFiles, path: str) -> int:
    """How many bytes an earlier life has recorded. May sleep."""
    try:
        return files.stat(path).size if path else 0
    except OSError:
        return 0
