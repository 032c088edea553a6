"""Opens the file of a dump, and refuses files that cannot be one."""

import contextlib
import os
import stat

from nodeward.core.errors import NodewardError

MODE = 0o600


class DumpFileError(NodewardError):
    """A file that no dump can be written to; says which, why, and what to do."""


class DumpFile:
    """The dump. What was there before is kept beside it as FILE.1, and so is what has grown over the bound."""

    def __init__(self, path: str, max_bytes: int, go_on: bool = False, head: bytes = b"") -> None:
        """`go_on`: with the file that a writer of the same dump has left, if it is one. `head`: what each file begins
        with, once something is written to it. Raises DumpFileError."""
        self._path, self._max_bytes, self._head = path, max_bytes, head
        self._file, self._size = -1, 0
        self._torn, self._before = False, b""
        """Whether half a line could not be taken away, and what is to stand before the next one."""
        if not (go_on and self._took_over()):
            self._open()

    def write(self, data: bytes) -> None:
        """Appends. Raises OSError, or DumpFileError where the file has grown over the bound and no other can be begun;
        then none of it is written, and the next may be."""
        if self._torn:
            self._take_away()
        if self._size and self._size + len(self._before) + len(data) > self._max_bytes:
            self._open()
        data = self._before + data
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            self._torn = True
            self._take_away()
            raise
        self._size += len(data)
        self._before = b""

    def _take_away(self) -> None:
        """Half a line: the next one, which says what is missing, stands by itself."""
        os.ftruncate(self._file, self._size)
        self._torn = False

    def close(self) -> None:
        """Gives the file back."""
        os.close(self._file)

    def _took_over(self) -> bool:
        """Whether the file that is there is ours, and open now; only then nobody else may read it."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.open(self._path, flags)
        except OSError:
            return False
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != MODE or found.st_uid != os.geteuid():
            os.close(file)
            return False
        self._file, self._size, self._before = file, found.st_size, b"" if found.st_size else self._head
        if self._size and os.pread(file, 1, self._size - 1) != b"\n":
            self._before = b"\n"  # whoever wrote it was killed in the middle of a line
        return True

    def _open(self) -> None:
        """Begins a file. Where that fails, all is as it was: the one before is still at its place, and open."""
        check(self._path)
        new = f"{self._path}.new"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, MODE)
            try:
                self._take_place(new)
            except OSError:
                os.close(file)
                os.unlink(new)
                raise
        except OSError as error:
            raise DumpFileError(
                f"dump file {self._path}: no new one can be begun: {error}; look at the folder and at {self._path}.1"
            ) from error
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size, self._before = file, 0, self._head

    def _take_place(self, new: str) -> None:
        """Puts the new file where the dump is. An empty one before it is not kept: whoever made it may read it."""
        kept = os.path.lexists(self._path) and os.stat(self._path).st_size > 0
        if kept:
            os.replace(self._path, f"{self._path}.1")
        os.replace(new, self._path)


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
