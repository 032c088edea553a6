"""Bounded reads in sysfs where any file may be missing, unreadable or wrong.

A reader never fails: it returns None, and whoever asked assumes something. The assumption is noted once for all CPUs
that it concerns, so a machine of 256 CPUs without a file has one sentence and not 256.
"""

import errno
from collections.abc import Iterator

from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet
from nodeward.host.hostfs import HostFiles

MAX_BYTES = cpuset.MAX_TEXT
MAX_NUMBER = 2**31 - 1
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)


class Holes:
    """The files, and what they did not tell. `reads` counts the files that were asked for."""

    def __init__(self, files: HostFiles) -> None:
        self._files = files
        self._assumed: dict[str, CpuSet] = {}
        self._faults: list[str] = []
        self.reads = 0

    def text(self, path: str) -> str | None:
        """The file's text without the line's end; None where it is not there. Another failure is a fault as well."""
        self.reads += 1
        try:
            return self._files.read(path, MAX_BYTES).decode("ascii", "replace").strip()
        except OSError as error:
            if error.errno not in _ABSENT:
                self._faults.append(f"{path} cannot be read: {error.strerror}; it counts as missing")
            return None

    def number(self, path: str) -> int | None:
        """The file's number from -1 to MAX_NUMBER."""
        found = self.text(path)
        if found is None:
            return None
        digits = found.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= 10 and -1 <= int(found) <= MAX_NUMBER:
            return int(found)
        self._faults.append(f"{path} has {found[:40]!r}, not a number from -1 to {MAX_NUMBER}; it counts as missing")
        return None

    def cpus(self, path: str) -> CpuSet | None:
        """The file's list of CPUs, or of nodes."""
        found = self.text(path)
        if found is None:
            return None
        try:
            return cpuset.parse(found)
        except ValueError as error:
            self._faults.append(f"{path}: {error}; it counts as missing")
            return None

    def names(self, path: str) -> list[str]:
        """What is in a folder; nothing where it is not there."""
        try:
            return self._files.listdir(path)
        except OSError:
            return []

    def assume(self, what: str, cpus: CpuSet) -> None:
        """Notes a hole that concerns these CPUs. `what` says what is missing and what is assumed."""
        self._assumed[what] = self._assumed.get(what, 0) | cpus

    def note(self, fault: str) -> None:
        """Notes what concerns no CPU in particular."""
        self._faults.append(fault)

    def faults(self, most: int) -> tuple[str, ...]:
        """At most so many sentences; the last then says how many are left out."""
        every = [*self._sentences(), *self._faults]
        return tuple(every) if len(every) <= most else (*every[: most - 1], f"and {len(every) - most + 1} more")

    def _sentences(self) -> Iterator[str]:
        for what, cpus in self._assumed.items():
            shown = cpuset.text(cpus)
            yield f"CPUs {shown if len(shown) <= 80 else shown[:79] + '…'}: {what}"
