"""Reads small files again and again, on open descriptors.

A descriptor of a file below /proc stays with its process: once that has ended it says ESRCH, also where its number has
been given to another one. So what is read by it is of no other process.
"""

from nodeward.host.hostfs import HostFiles

MOST = 16 * 1024
"""So many descriptors are kept; what is beyond is opened for each reading."""
SMALL = 4096


class Kept:
    """Belongs to one thread at a time."""

    def __init__(self, files: HostFiles, most: int = MOST) -> None:
        self.files, self._most = files, most
        self._handles: dict[str, int] = {}

    @property
    def open_files(self) -> int:
        """Descriptors held."""
        return len(self._handles)

    def read(self, path: str, max_bytes: int = SMALL) -> bytes:
        """What the file has now, at most `max_bytes`. OSError where it is gone; it is opened anew the next time."""
        handle = self._handles.get(path)
        if handle is None:
            if len(self._handles) >= self._most:
                return self.once(path, max_bytes)
            handle = self._handles[path] = self.files.open(path)
        try:
            return self.files.pread(handle, max_bytes)
        except OSError:
            self.drop(path)
            raise

    def once(self, path: str, max_bytes: int) -> bytes:
        """The same without keeping it."""
        handle = self.files.open(path)
        try:
            return self.files.pread(handle, max_bytes)
        finally:
            self.files.close(handle)

    def drop(self, *paths: str) -> None:
        """Gives back their descriptors, where there are any."""
        for path in paths:
            handle = self._handles.pop(path, None)
            if handle is not None:
                self.files.close(handle)

    def close(self) -> None:
        """Gives all back."""
        self.drop(*list(self._handles))
