"""State files whose late write never replaces newer content.

A lane gives up a write past its deadline, but the write may still land. Until it has come back, every other write of
the same files fails with OSError; the caller repeats it later. One object for all who write a file.
"""

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nodeward.host.hostfs import HostFiles


class OneWriter:
    """Allows one write at a time of files that belong together, on whichever threads: while one writes, every other
    fails at once."""

    def __init__(self) -> None:
        self._writing = threading.Lock()

    @contextmanager
    def writes(self, path: str) -> Iterator[None]:
        """The block writes. OSError while an earlier one hangs."""
        if not self._writing.acquire(blocking=False):
            raise OSError(errno.EBUSY, "an earlier write hangs", path)
        try:
            yield
        finally:
            self._writing.release()


class StateFile:
    """One file, replaced whole. `replace` may sleep: call it on a lane."""

    def __init__(self, files: HostFiles, path: str) -> None:
        self._files, self.path = files, path
        self._writer = OneWriter()

    def replace(self, data: bytes) -> None:
        """Writes the whole file. OSError also while an earlier write hangs."""
        with self._writer.writes(self.path):
            self._files.replace(self.path, data)
