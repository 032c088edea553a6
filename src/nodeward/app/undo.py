"""The undo list: what Nodeward changed that outlives pods, with the old value, on disk *before* the change.

One JSON line an entry, appended with fsync to `<state_dir>/undo.jsonl`. `nodeward uninstall` reads it backwards. A
reader skips what it does not know. An append that fails is said aloud and stops no limit (DESIGN 2).
"""

import errno
import json
import logging
from dataclasses import dataclass

from nodeward.aio.hostfs import HostFiles

log = logging.getLogger(__name__)
MAX_BYTES = 4 * 1024 * 1024
VERSION = 1


@dataclass(frozen=True, slots=True)
class Change:
    """One change to take back: a goal's target and its value before."""

    target: str
    old: str


class UndoList:
    """Append-only; belongs to the lane that makes the changes."""

    def __init__(self, files: HostFiles, folder: str) -> None:
        self._files, self._path = files, f"{folder.rstrip('/')}/undo.jsonl"
        self._known: dict[str, str] = {change.target: change.old for change in read(files, folder)}
        self._busy = False
        self.not_restorable: list[str] = []

    def remember(self, target: str, old: str) -> None:
        """Makes the entry durable, once a target; after a failure the target is listed as not restorable. While another
        thread hangs in here (a disk that stands), the answer is that failure and not a second wait."""
        if target in self._known:
            return
        # a line break first: what a crash left of an earlier line must not swallow this one
        line = b"\n" + json.dumps({"v": VERSION, "target": target, "old": old}).encode() + b"\n"
        try:
            if self._busy:
                raise OSError(errno.EBUSY, "an earlier entry is still being written: the disk hangs")
            self._busy = True
            try:
                self._files.append(self._path, line, sync=True)
            finally:
                self._busy = False
        except OSError as error:
            log.warning("undo=not-restorable target=%s path=%s error=%s", target, self._path, error)
            if target not in self.not_restorable:
                self.not_restorable.append(target)
            return
        self._known[target] = old
        if target in self.not_restorable:
            self.not_restorable.remove(target)


def read(files: HostFiles, folder: str) -> list[Change]:
    """The changes on disk, oldest first. A missing list is an empty one; a torn or unknown line is skipped."""
    try:
        data = files.read(f"{folder.rstrip('/')}/undo.jsonl", MAX_BYTES)
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("undo=unreadable folder=%s error=%s", folder, error)
        return []
    changes: list[Change] = []
    for line in data.splitlines():
        try:
            entry: object = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and entry.get("v") == VERSION:
            target, old = entry.get("target"), entry.get("old")
            if isinstance(target, str) and isinstance(old, str):
                changes.append(Change(target, old))
    return changes
