"""Counts writes of cgroup files by whoever makes them, as the kernel tells them (inotify): so a file that was written
again, with the value that it had, is seen too."""

import ctypes
import os
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final

_MODIFIED: Final = 0x2
_WRITTEN: Final = 0x8
"""A file that was open for writing was closed. With both in between each other the kernel merges no two events."""
_EVENT: Final = struct.Struct("iIII")
_LARGEST: Final = 65536


class CpusetWrites:
    """Counts from its beginning on, for as long as the block. `file`: of each cgroup; empty for all of its files."""

    def __init__(self, cgroups: Iterable[Path], file: str = "cpuset.cpus") -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._watched: dict[int, Path] = {}
        for cgroup in cgroups:
            watch = int(libc.inotify_add_watch(self._fd, bytes(cgroup / file), _MODIFIED | _WRITTEN))
            if watch < 0:
                raise OSError(ctypes.get_errno(), f"cannot watch {cgroup / file}")
            self._watched[watch] = cgroup

    def __enter__(self) -> "CpusetWrites":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        os.close(self._fd)

    def taken(self) -> Counter[Path]:
        """How often each cgroup's file was written since the last question."""
        counted = Counter[Path]()
        while True:
            try:
                data = os.read(self._fd, _LARGEST)
            except BlockingIOError:
                return counted
            while data:
                watch, mask, _, length = _EVENT.unpack_from(data)
                data = data[_EVENT.size + length :]
                if mask & _WRITTEN:
                    counted[self._watched[watch]] += 1
