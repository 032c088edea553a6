"""The file that a dump is written to, and what cannot be one."""

import os
import stat

from nodeward.model.errors import NodewardError


class DumpFileError(NodewardError):
    """A file that no dump can be written to; says which, why, and what to do."""


class DumpFile:
    """The dump. What was there before is kept beside it as FILE.1, and so is what has grown over the bound."""

    def __init__(self, path: str, max_bytes: int) -> None:
        """Raises DumpFileError."""
        self._path, self._max_bytes = path, max_bytes
        self._file, self._size = -1, 0
        self._open()

    def write(self, data: bytes) -> None:
        """Appends. Raises OSError where not all of it is written; then none of it is."""
        if self._size and self._size + len(data) > self._max_bytes:
            os.close(self._file)
            self._open()
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            os.ftruncate(self._file, self._size)  # no half lines
            raise
        self._size += len(data)

    def close(self) -> None:
        """Gives the file back."""
        os.close(self._file)

    def _open(self) -> None:
        check(self._path)
        try:
            if os.path.lexists(self._path):
                if os.stat(self._path).st_size:
                    os.replace(self._path, f"{self._path}.1")
                else:
                    os.unlink(self._path)  # whoever made it may read what is written to it
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._file, self._size = os.open(self._path, flags, 0o600), 0
        except OSError as error:
            raise DumpFileError(f"dump file {self._path}: {error.strerror}") from error


def check(path: str) -> None:
    """Raises DumpFileError where no dump can be written to `path`."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise DumpFileError(f"dump file {path}: there is no folder {folder}; make it, or name another") from None
        return
    except OSError as error:
        raise DumpFileError(f"dump file {path}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise DumpFileError(f"dump file {path}: is a folder; name a file in it, such as {path.rstrip('/')}/cri.dump")
    if not stat.S_ISREG(mode):
        raise DumpFileError(f"dump file {path}: is no ordinary file (a link, FIFO, socket or device); name another")
