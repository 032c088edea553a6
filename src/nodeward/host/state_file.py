"""Files by which a program goes on after a restart: what they hold, how they are read and replaced.

Promises: a file is written whole or not at all; what is damaged, too large or of another version is not used, and why
is told; a late write never replaces newer content. A lane gives up a write past its deadline, but the write may still
land. Until it has come back, every other write of the same file fails with OSError; the caller repeats it later.
"""

import errno
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from nodeward.host.hostfs import HostFiles

log = logging.getLogger(__name__)
T = TypeVar("T")
MIB = 1024 * 1024


class OneWriter:
    """Allows one write at a time of files that belong together, on whichever threads: while one writes, every other
    fails at once."""

    def __init__(self) -> None:
        self._writing = threading.Lock()

    @contextmanager
    def writes(self, path: str) -> Iterator[None]:
        """The block writes. OSError while an earlier one hangs."""
        if not self._writing.acquire(blocking=False):
            raise OSError(errno.EBUSY, "an earlier write hangs", path)
        try:
            yield
        finally:
            self._writing.release()


class _File(msgspec.Struct):
    v: int
    holds: msgspec.Raw


@dataclass(frozen=True, slots=True)
class StateFile(Generic[T]):
    """One kind of file: `{"v": VERSION, "holds": ...}` under this name in a folder. `word` names it in the log."""

    name: str
    holds: type[T]
    word: str
    max_bytes: int = MIB
    version: int = 1

    def path_in(self, folder: str) -> str:
        """The file's path in this folder."""
        return f"{folder.rstrip('/')}/{self.name}"

    def encode(self, content: T) -> bytes:
        """The file's bytes."""
        return msgspec.json.encode(_File(self.version, msgspec.Raw(msgspec.json.encode(content))))

    def read(self, files: HostFiles, folder: str) -> T | None:
        """What the file holds; None where there is none. OSError where it cannot be read, ValueError where it cannot be
        understood. May sleep."""
        try:
            data = files.read(self.path_in(folder), self.max_bytes)
        except FileNotFoundError:
            return None
        try:
            found = msgspec.json.decode(data, type=_File)
            if found.v != self.version:
                raise ValueError(f"it is of version {found.v}; this program reads {self.version}")
            return msgspec.json.decode(found.holds, type=self.holds)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error

    def known(self, files: HostFiles, folder: str) -> T | None:
        """As `read`; what cannot be read or understood counts as none, and is said in the log."""
        try:
            return self.read(files, folder)
        except (OSError, ValueError) as error:
            log.warning("%s=ignored path=%s error=%s", self.word, self.path_in(folder), error)
            return None

    def writer(self, files: HostFiles, folder: str) -> "StateWriter[T]":
        """Who writes it in this folder."""
        return StateWriter(self, files, folder)


class StateWriter(Generic[T]):
    """Replaces one file. One object for all who write it."""

    def __init__(self, kind: StateFile[T], files: HostFiles, folder: str) -> None:
        self.path = kind.path_in(folder)
        self._encode, self._files, self._writer = kind.encode, files, OneWriter()

    def replace(self, content: T) -> None:
        """Writes the whole file. OSError also while an earlier write hangs. May sleep: call it on a lane."""
        with self._writer.writes(self.path):
            self._files.replace(self.path, self._encode(content))
