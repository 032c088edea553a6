"""A state file whose late write never replaces newer content.

A lane gives up a write past its deadline, but the write may still land. Until it has come back, every other write of
the file fails with OSError; the caller repeats it later. One object a file, shared by all who write it.
"""

import errno
import threading

from nodeward.aio.hostfs import HostFiles


class StateFile:
    """One file, replaced whole. `replace` may sleep: call it on a lane."""

    def __init__(self, files: HostFiles, path: str) -> None:
        self._files, self.path = files, path
        self._writing = threading.Lock()

    def replace(self, data: bytes) -> None:
        """Writes the whole file. OSError also while an earlier write hangs."""
        if not self._writing.acquire(blocking=False):
            raise OSError(errno.EBUSY, "an earlier write hangs", self.path)
        try:
            self._files.replace(self.path, data)
        finally:
            self._writing.release()
