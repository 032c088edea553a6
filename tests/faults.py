"""Failures at a chosen call of the host's files, so that crash points are counted out instead of hoped for.

A test runs an operation once to learn how many calls it makes (`FaultyFiles.total`), then once for each of them with
`fail_at` (the disk says ENOSPC there) or `stop_at` (the process dies there), and looks at what is left behind.
`Stopped` is a BaseException: no `except Exception` on the way can keep a dead process alive, and once stopped every
later call stops too.

A call that is chosen has no effect; calls are counted from 1, `close` included.
"""

import os
from collections import Counter
from collections.abc import Sequence

from nodeward.host.hostfs import FileInfo, HostFiles


class Stopped(BaseException):
    """The process died at this call of the host's files. `call` is its number, `name` the method's name."""

    def __init__(self, call: int, name: str) -> None:
        super().__init__(f"stopped at call {call} ({name})")
        self.call = call
        self.name = name


class FaultyFiles:
    """A `HostFiles` that passes everything on to `inner`, counts, and fails or stops where it was told to."""

    def __init__(self, inner: HostFiles, fail_at: int = 0, fail_errno: int = 0, stop_at: int = 0) -> None:
        self.calls: Counter[str] = Counter()
        self._inner = inner
        self._fail_at = fail_at
        self._fail_errno = fail_errno
        self._stop_at = stop_at

    @property
    def total(self) -> int:
        """How many calls were made so far, with those that failed."""
        return self.calls.total()

    def open(self, path: str) -> int:
        self._count("open", path)
        return self._inner.open(path)

    def pread(self, handle: int, max_bytes: int) -> bytes:
        self._count("pread", "")
        return self._inner.pread(handle, max_bytes)

    def close(self, handle: int) -> None:
        self._count("close", "")
        self._inner.close(handle)

    def wait(self, handles: Sequence[int], timeout_s: float) -> list[int]:
        self._count("wait", "")
        return self._inner.wait(handles, timeout_s)

    def read(self, path: str, max_bytes: int, *, own: bool = False) -> bytes:
        self._count("read", path)
        return self._inner.read(path, max_bytes, own=own)

    def write(self, path: str, data: bytes) -> None:
        self._count("write", path)
        self._inner.write(path, data)

    def append(self, path: str, data: bytes, sync: bool) -> None:
        self._count("append", path)
        self._inner.append(path, data, sync)

    def replace(self, path: str, data: bytes) -> None:
        self._count("replace", path)
        self._inner.replace(path, data)

    def listdir(self, path: str) -> list[str]:
        self._count("listdir", path)
        return self._inner.listdir(path)

    def stat(self, path: str) -> FileInfo:
        self._count("stat", path)
        return self._inner.stat(path)

    def real(self, path: str) -> str:
        self._count("real", path)
        return self._inner.real(path)

    def mkdir(self, path: str) -> None:
        self._count("mkdir", path)
        self._inner.mkdir(path)

    def rmdir(self, path: str) -> None:
        self._count("rmdir", path)
        self._inner.rmdir(path)

    def unlink(self, path: str) -> None:
        self._count("unlink", path)
        self._inner.unlink(path)

    def _count(self, name: str, path: str) -> None:
        self.calls[name] += 1
        number = self.calls.total()
        if self._stop_at and number >= self._stop_at:
            raise Stopped(number, name)
        if number == self._fail_at:
            raise OSError(self._fail_errno, os.strerror(self._fail_errno), path)
