"""The files of the host, behind one small port, so that everything above it is production code everywhere.

Cgroup files answer with errno values of their own, want exactly one write(2) a value and read back something else than
was written; no file on a tmpfs does that. `OsFiles` is the operating system; `nodeward_sim.doubles.kernel.SimKernel` is
a double that runs the same contract cases (`tests/contract/kernel`); in the tests `FaultyFiles` wraps either and fails
or stops at a chosen call.

Promises:

- Every path is absolute as the *host* sees it ("/sys/fs/cgroup/...") and is resolved beneath one root. A relative path,
  a `..` component or a NUL is a ValueError before any system call.
- Failures of the operating system stay `OSError` with the errno of the kernel; a bound that was passed is EFBIG, a
  short write is EIO.
- Nothing here waits for a lock, retries, logs or caches. Calls may sleep in the kernel: run them in a lane, not on the
  loop.
- Only `os` and `select` are imported, no asyncio: programs that a runtime executes for each container use it too.

A symbolic link on the way is followed as this process sees it; with a root other than "/" an absolute link would leave
the root, so callers name real folders ("/run", not "/var/run").
"""

import errno
import os
import select
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, NamedTuple, Protocol

FAILED_S: Final = 60.0
"""So long a write that failed is told of: whoever wants it there repeats it more often."""
MOST_FAILED: Final = 256
_NEW_FILE_MODE = 0o600
_NEW_FOLDER_MODE = 0o755


class FileInfo(NamedTuple):
    """The fields of `stat` that are needed. `(device, inode)` names a folder: another one at the same path is another
    cgroup. `links` of a cgroup is the number of its children, and two."""

    is_dir: bool
    inode: int
    device: int
    size: int
    links: int = 1
    character: int = 0
    """The device number of a character device."""
    block: int = 0
    """The same of a block device."""


class HostFiles(Protocol):
    """The calls through which Nodeward touches files of the host. All are synchronous."""

    def open(self, path: str) -> int:
        """Opens a file for `pread`, until `close`. Spares path lookup for files that are read each second."""

    def pread(self, handle: int, max_bytes: int) -> bytes:
        """The file's present content from its start, at most `max_bytes`, by one pread(2). ENODEV: the cgroup is
        gone.
        """

    def close(self, handle: int) -> None:
        """Gives the handle back. EBADF for one that is not open."""

    def wait(self, handles: Sequence[int], timeout_s: float) -> list[int]:
        """Those of the cgroup files which the kernel says to have changed since their last `pread`; waits for the first
        at most `timeout_s`. One that was never read, or is gone, counts as changed. Only `*.events` files ever tell.
        """

    def read(self, path: str, max_bytes: int, *, own: bool = False) -> bytes:
        """The whole file. One larger than `max_bytes` is EFBIG, never a truncated answer; a FIFO or a device is EINVAL,
        at once. `own`: it is a file that Nodeward writes, so a symbolic link in its place is ELOOP."""

    def write(self, path: str, data: bytes) -> None:
        """Exactly one write(2) to a file that exists: the way cgroup values are set. Creates and truncates nothing."""

    def append(self, path: str, data: bytes, sync: bool) -> None:
        """Exactly one write(2) at the file's end, which is created (0600) if missing; on the disk at return if `sync`.
        EINVAL for a FIFO or a device, at once; ELOOP for a symbolic link, which is not followed.
        """

    def replace(self, path: str, data: bytes) -> None:
        """The file holds either the old content or `data` (0600), also after a crash; durable at return."""

    def listdir(self, path: str) -> list[str]:
        """Names in a folder, sorted."""

    def stat(self, path: str) -> FileInfo:
        """The file's kind, identity, size and links. ENOENT if nothing is."""

    def real(self, path: str) -> str:
        """The path of the same file without a symbolic link in it. ENOENT if nothing is; EXDEV out of the host root."""

    def mkdir(self, path: str) -> None:
        """Makes one folder (or cgroup). EEXIST if it is there."""

    def rmdir(self, path: str) -> None:
        """Removes one folder; a cgroup goes together with its files. EBUSY for one in use, ENOTEMPTY for a full
        folder.
        """

    def unlink(self, path: str) -> None:
        """Removes one file."""


def checked_path(path: str) -> str:
    """`path` without empty and `.` components. ValueError if it is relative or could leave the host root."""
    if "\0" in path:
        raise ValueError(f"path {path!r} contains a NUL; give the path without it")
    if not path.startswith("/"):
        raise ValueError(f"path {path!r} is relative; give it from the host's root, as in '/sys/fs/cgroup'")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"path {path!r} has a '..' component, which could leave the host root; name the folder itself")
    return "/" + "/".join(parts)


def is_there(files: HostFiles, path: str) -> bool:
    """Whether the path exists. OSError where that cannot be told."""
    try:
        files.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def ensure_folder(files: HostFiles, path: str) -> None:
    """Makes the folder and those above it, where they are missing."""
    if path and not is_there(files, path):
        ensure_folder(files, path.rpartition("/")[0])
        with suppress(FileExistsError):  # another process was first
            files.mkdir(path)


def temporary_path(path: str) -> str:
    """The path at which `replace` prepares the new content: one fixed name a file, so that a crash leaves at most one
    leftover."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.new"


class OsFiles:
    """The operating system's files beneath `root` ("/" for a daemon on the host, "/host" for one in a container)."""

    __slots__ = ("_failed", "_root")

    def __init__(self, root: str = "/") -> None:
        self._root = checked_path(root).rstrip("/")
        self._failed = dict[str, float]()
        """When a write of this file failed last."""

    def open(self, path: str) -> int:
        return os.open(self._at(path), os.O_RDONLY | os.O_CLOEXEC)

    def pread(self, handle: int, max_bytes: int) -> bytes:
        return os.pread(handle, max_bytes, 0)

    def close(self, handle: int) -> None:
        os.close(handle)

    def wait(self, handles: Sequence[int], timeout_s: float) -> list[int]:
        poller = select.poll()
        for handle in handles:
            poller.register(handle, select.POLLPRI | select.POLLERR)
        return [handle for handle, _ in poller.poll(timeout_s * 1000)]

    def read(self, path: str, max_bytes: int, *, own: bool = False) -> bytes:
        place = self._at(path)
        if own:
            _check_kind(os.lstat(place).st_mode, path)
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if own else 0))
        try:
            _check_kind(os.fstat(fd).st_mode, path)
            pieces, room = list[bytes](), max_bytes + 1
            while room > 0 and (piece := os.read(fd, room)):
                pieces.append(piece)
                room -= len(piece)
        finally:
            os.close(fd)
        if room <= 0:
            raise OSError(errno.EFBIG, f"larger than the {max_bytes} bytes allowed here", path)
        return b"".join(pieces)

    def write(self, path: str, data: bytes) -> None:
        fd = os.open(self._at(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            _write_once(fd, data, path)
        finally:
            os.close(fd)

    def append(self, path: str, data: bytes, sync: bool) -> None:
        with self._noted(path):
            self._append(path, data, sync)

    def replace(self, path: str, data: bytes) -> None:
        with self._noted(path):
            self._replace(path, data)

    def unwritten(self) -> list[str]:
        """Nodeward's own files (`append`, `replace`) whose last write failed, within the last minute."""
        since = time.monotonic() - FAILED_S
        return [path for path, at in tuple(self._failed.items()) if at >= since]

    @contextmanager
    def _noted(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError:
            if path in self._failed or len(self._failed) < MOST_FAILED:
                self._failed[path] = time.monotonic()
            raise
        self._failed.pop(path, None)

    def _append(self, path: str, data: bytes, sync: bool) -> None:
        place = self._at(path)
        fd = open_own(place, os.O_WRONLY | os.O_APPEND)
        try:
            is_new = sync and os.fstat(fd).st_size == 0
            _write_once(fd, data, path)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        if is_new:
            _sync_folder(place)

    def _replace(self, path: str, data: bytes) -> None:
        place = self._at(path)
        fresh = temporary_path(place)
        fd = open_own(fresh, os.O_WRONLY | os.O_TRUNC)
        try:
            try:
                os.fchmod(fd, _NEW_FILE_MODE)
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(fresh, place)
        except OSError:
            os.unlink(fresh)
            raise
        _sync_folder(place)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(self._at(path)))

    def stat(self, path: str) -> FileInfo:
        found = os.stat(self._at(path))
        character = found.st_rdev if stat.S_ISCHR(found.st_mode) else 0
        block = found.st_rdev if stat.S_ISBLK(found.st_mode) else 0
        identity = found.st_ino, found.st_dev, found.st_size, found.st_nlink
        return FileInfo(stat.S_ISDIR(found.st_mode), *identity, character, block)

    def real(self, path: str) -> str:
        found = os.path.realpath(self._at(path), strict=True)
        root = os.path.realpath(self._root) if self._root else ""
        if not found.startswith(f"{root}/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        return found.removeprefix(root)

    def mkdir(self, path: str) -> None:
        os.mkdir(self._at(path), _NEW_FOLDER_MODE)

    def rmdir(self, path: str) -> None:
        os.rmdir(self._at(path))

    def unlink(self, path: str) -> None:
        os.unlink(self._at(path))

    def _at(self, path: str) -> str:
        return self._root + checked_path(path)


def make_folders(path: str) -> None:
    """Makes a folder and those above it that are missing: whatever the umask, only their owner may write there."""
    if not os.path.isdir(path):
        if (above := os.path.dirname(path)) != path:
            make_folders(above)
        with suppress(FileExistsError):  # or the next who needs it meets what is there
            os.mkdir(path, _NEW_FOLDER_MODE)


def opened(path: str) -> BinaryIO:
    """A file that a person has named, to be read. OSError for a FIFO, at which one may wait for ever; what the shell
    makes (`/dev/stdin`, `<(...)`) is no file of that kind."""
    mode = os.lstat(path).st_mode
    if stat.S_ISFIFO(mode):
        _check_kind(mode, path)
    return open(path, "rb")


def open_own(path: str, flags: int) -> int:
    """A descriptor of an ordinary file, which is made (0600) if it is missing. At once an OSError that names what else
    is there: a symbolic link (ELOOP), a FIFO or a device (EINVAL)."""
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, _NEW_FILE_MODE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            _check_kind(os.lstat(path).st_mode, path)
        raise
    try:
        _check_kind(os.fstat(fd).st_mode, path)
    except OSError:
        os.close(fd)
        raise
    return fd


def _check_kind(mode: int, path: str) -> None:
    """Refuses a link, and what could be waited for without end, or never ends. A folder fails by itself."""
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return
    link = stat.S_ISLNK(mode)
    what = "a symbolic link" if link else "a FIFO" if stat.S_ISFIFO(mode) else "a device or a socket"
    raise OSError(errno.ELOOP if link else errno.EINVAL, f"is {what}; remove it, or name another path", path)


def _write_once(fd: int, data: bytes, path: str) -> None:
    written = os.write(fd, data)
    if written != len(data):
        raise OSError(errno.EIO, f"only {written} of {len(data)} bytes were written", path)


def _sync_folder(place: str) -> None:
    fd = os.open(place.rpartition("/")[0] or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
