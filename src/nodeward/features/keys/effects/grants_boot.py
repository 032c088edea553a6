"""In which boot of the machine a journal of grants was begun, by which one that was removed is told from a first start.

The journal lies in the run folder, which a boot empties, and so may whoever tidies up there; kubelet's checkpoint names
ids after a boot too. So once a journal is there, the state folder has the boot's id: a start in the same boot that
finds no journal has lost one. Where this note cannot be read or written, a loss is taken for a first start; no grant
waits for it.
"""

import logging
from functools import partial

import msgspec

from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane
from nodeward.host.state_file import StateFile

log = logging.getLogger(__name__)
VERSION = 1
MAX_BYTES = 4096


class _Note(msgspec.Struct, frozen=True):
    version: int
    boot: str


_note = msgspec.json.Decoder(_Note)


def path_in(folder: str) -> str:
    """The note's path in the state folder."""
    return f"{folder.rstrip('/')}/grants.boot"


def read(files: HostFiles, folder: str) -> str:
    """The boot in which a journal was begun last; empty where that is not known. May sleep."""
    try:
        found = _note.decode(files.read(path_in(folder), MAX_BYTES))
    except FileNotFoundError:
        return ""
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("grants-boot=ignored path=%s error=%s", path_in(folder), error)
        return ""
    if found.version != VERSION:
        log.warning("grants-boot=ignored path=%s version=%s", path_in(folder), found.version)
        return ""
    return found.boot


class GrantsBoot:
    """The note. Belongs to the loop's thread."""

    def __init__(self, files: HostFiles, folder: str, lane: Lane, boot: str = "") -> None:
        self.boot = boot
        """What it says, or is to say as soon as it can be written."""
        self._file, self._lane = StateFile(files, path_in(folder)), lane
        self._written, self._busy, self._failing = boot, False, False

    def note(self, boot: str) -> None:
        """A journal of this boot is there. What could not be written is tried again at the next call."""
        self.boot = boot
        if self._busy or self._written == boot:
            return
        write = partial(self._file.replace, msgspec.json.encode(_Note(VERSION, boot)))
        self._busy = True
        if not self._lane.submit("grants-boot", write, partial(self._landed, boot)):
            self._busy = False

    def _landed(self, boot: str, result: object) -> None:
        self._busy = False
        if not isinstance(result, BaseException):
            self._written, self._failing = boot, False
        elif not self._failing:
            self._failing = True
            log.warning("grants-boot=not-written path=%s error=%s", self._file.path, result)
