"""Listens on a unix socket with a given owner and mode; never takes one from a living listener.

Exists because a socket's file outlives its process. Promises: the file of a dead listener is replaced; that of a living
one is not, and what is no socket is never removed; of two that start at once one wins, by the lock of `PATH.lock`; the
file is removed at the end if it is still ours. Must not know what is spoken.

    NodewardError
    └── ListenError    the socket cannot be had; the text says why and what to do
"""

import contextlib
import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Final

from nodeward.core.errors import NodewardError
from nodeward.host.hostfs import make_folders, open_own

BACKLOG: Final = 512
FIRST_MODE: Final = 0o600
"""Until the runtime's is known."""
PROBE_S: Final = 2.0


class ListenError(NodewardError):
    """The socket cannot be had."""


class UnixListener:
    """A bound, listening socket. Owns its file until `close`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = _locked(path)
        try:
            _make_room(path)
            self.socket = _bound(path)
        except BaseException:
            os.close(self._lock)
            raise
        self._made = _identity(path)

    def resemble(self, path: str) -> bool:
        """Takes over owner and mode of the socket at `path`; whether there is one."""
        try:
            wanted = os.stat(path)
        except OSError:
            return False
        if self.ours():
            have, mode = os.lstat(self.path), stat.S_IMODE(wanted.st_mode)
            if (have.st_uid, have.st_gid) != (wanted.st_uid, wanted.st_gid):
                os.chown(self.path, wanted.st_uid, wanted.st_gid, follow_symlinks=False)
            if stat.S_IMODE(have.st_mode) != mode:
                os.chmod(self.path, mode)
        return True

    def ours(self) -> bool:
        """Whether the file is still the one that we made."""
        return _identity(self.path) == self._made

    def close(self) -> None:
        """Stops listening, and removes the file if it is ours. A second time does nothing."""
        if self._lock < 0:
            return
        if self.ours():
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self.socket.close()
        os.close(self._lock)
        self._lock = -1


def _identity(path: str) -> tuple[int, int, int] | None:
    """Tells a file from one that has taken its place, and its number too."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _locked(path: str) -> int:
    """The lock of this path, so that nobody takes a stale file's place twice."""
    try:
        make_folders(str(Path(path).parent))
        lock = open_own(f"{path}.lock", os.O_RDWR)
    except OSError as error:
        raise ListenError(
            f"{path}.lock cannot be made: {error.strerror}. Run as root, or choose another path"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise ListenError(f"{path}: another relay listens here. Stop that one, or choose another path") from error
    return lock


def _make_room(path: str) -> None:
    """Makes sure that nothing stands at the path but the file of a listener that is dead."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ListenError(f"{path}: {error.strerror}") from error
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"{path} is no socket, so it is left alone. Remove it, or choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:
            raise ListenError(f"{path}: whether somebody listens there cannot be told: {error}") from error
    raise ListenError(f"{path}: somebody listens there already. Stop that one, or choose another path")


def _bound(path: str) -> socket.socket:
    """A listening socket that only root may use so far. It gets its name once it listens: nobody finds it deaf."""
    made, first = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK), f"{path}.new"
    before = os.umask(0o777 & ~FIRST_MODE)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(first)
        made.bind(first)
        made.listen(BACKLOG)
        os.rename(first, path)
    except OSError as error:
        made.close()
        remedy = "Its folder must be writable, and the path 103 bytes long at most"
        raise ListenError(f"{path} cannot be made: {error.strerror or error}. {remedy}") from error
    finally:
        os.umask(before)
    return made
