"""The undo list: what Nodeward changed that outlives pods, with the old value, on disk *before* the change.

One JSON line an entry, appended with fsync to `<state_dir>/undo.jsonl`. `nodeward uninstall` reads it backwards. A
reader skips what it does not know. An append that fails or takes long is said aloud and stops no limit; it is tried
again with the next change, and every EVERY_S. A change in cgroups has the boot's id and belongs to that boot only: at
the next one the runtime may have switched on what Nodeward had before. One without it, of a version before the first
release, may be of any: `nodeward uninstall` names it and leaves the cgroups alone.
"""

import contextlib
import errno
import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MAX_ID_BYTES = 64


def boot_id(files: HostFiles) -> str:
    """The kernel's name of this boot; never empty. OSError where it cannot be told. May sleep."""
    try:
        boot = files.read(BOOT_ID, MAX_ID_BYTES).decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, "is no text", BOOT_ID) from error
    if not boot:
        raise OSError(errno.ENODATA, "is empty", BOOT_ID)
    return boot


log = logging.getLogger(__name__)
MAX_BYTES = 4 * 1024 * 1024
VERSION = 1
EVERY_S = 5.0
_IN_CGROUPS = ("subtree", "limits")


@dataclass(frozen=True, slots=True)
class Change:
    """One change to take back: a goal's target and its value before; `boot` where it is one in cgroups."""

    target: str
    old: str
    boot: str = ""

    @property
    def in_cgroups(self) -> bool:
        """Whether it went with its boot."""
        return _is_in_cgroups(self.target)


def at_once(call: Callable[[], None]) -> None:
    """The way of a caller that has nothing else to do: waits for the disk, however long."""
    call()


class UndoList:
    """Append-only; belongs to the lane that makes the changes.

    `within` waits for the disk at most so long, since a limit may be next on that lane. An entry that comes late is
    written when the disk goes on, with all that were put off meanwhile."""

    def __init__(
        self,
        files: HostFiles,
        folder: str,
        within: Callable[[Callable[[], None]], None] = at_once,
        known: Iterable[Change] = (),
    ) -> None:
        """`known` is what the list on disk has of this boot (`standing`); what is missing there is merely written once
        more."""
        self._files, self._path, self._within = files, f"{folder.rstrip('/')}/undo.jsonl", within
        self._known: dict[str, str] = {change.target: change.old for change in known}
        self._owed: dict[str, str] = {}
        self._lock = threading.Lock()
        """Over the tables: a late call writes them from its own thread."""
        self._boot = ""
        self.not_restorable: list[str] = []

    def remember(self, target: str, old: str) -> None:
        """Makes the entry durable, once a target. One that is not on disk when this returns is listed as not restorable
        until it is."""
        with self._lock:
            if target in self._known:
                return
            self._owed[target] = old
        try:
            self._within(self._write)
        except OSError as error:
            with self._lock:
                if target not in self._owed:
                    return  # it came just now
                if target in self.not_restorable:
                    return  # said already; a limits entry is tried again with each limit
                self.not_restorable.append(target)
            log.warning("undo=not-restorable target=%s path=%s error=%s", target, self._path, error)

    async def keep(self, lane: Lane, clock: Clock) -> None:
        """Tries again what could not be written, for ever. `lane` is the one that makes the changes."""
        busy = False

        def tried(_: object) -> None:
            nonlocal busy
            busy = False

        while True:
            await clock.sleep(EVERY_S)
            if self.not_restorable and not busy:
                busy = lane.submit("undo", self._again, tried)

    def _again(self) -> None:
        with contextlib.suppress(OSError):  # said when it was remembered
            self._within(self._write)

    def _write(self) -> None:
        """Appends what is owed, and what becomes owed while the disk takes its time."""
        boot = self._boot = self._boot or boot_id(self._files)
        while True:
            with self._lock:
                owed = dict(self._owed)
            if not owed:
                return
            lines = b"".join(_line(target, old, boot) for target, old in owed.items())
            self._files.append(self._path, lines, sync=True)
            with self._lock:
                self._known.update(owed)
                self._owed = {target: old for target, old in self._owed.items() if target not in owed}
                self.not_restorable = [target for target in self.not_restorable if target not in owed]


def _is_in_cgroups(target: str) -> bool:
    return target.partition(":")[0] in _IN_CGROUPS


def _line(target: str, old: str, boot: str) -> bytes:
    """An entry, after a line break: what a crash left of an earlier line must not swallow it."""
    of_boot = {"boot": boot} if _is_in_cgroups(target) else {}
    return b"\n" + json.dumps({"v": VERSION, "target": target, "old": old, **of_boot}).encode() + b"\n"


def read(files: HostFiles, folder: str) -> list[Change]:
    """The changes on disk, oldest first. A missing list is an empty one; a torn or unknown line is skipped. OSError
    where the list cannot be read. May sleep."""
    try:
        data = files.read(f"{folder.rstrip('/')}/undo.jsonl", MAX_BYTES)
    except FileNotFoundError:
        return []
    changes: list[Change] = []
    for line in data.splitlines():
        try:
            entry: object = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and entry.get("v") == VERSION:
            target, old, boot = entry.get("target"), entry.get("old"), entry.get("boot", "")
            if isinstance(target, str) and isinstance(old, str) and isinstance(boot, str):
                changes.append(Change(target, old, boot))
    return changes


def standing(files: HostFiles, folder: str) -> list[Change]:
    """Those of them that hold in this boot and need not be written again. OSError as `read`. May sleep."""
    boot = boot_id(files)
    return [change for change in read(files, folder) if not change.in_cgroups or change.boot == boot]
