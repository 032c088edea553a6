"""Ordinary folders and files in memory, for what a simulated node keeps in /run and /var/lib.

A tree of nodes with the errno values that a local file system gives for the calls of `HostFiles`. An open handle keeps
its node, so a reader sees the old content after `replace`, as with real inodes. Nothing is lost here on a crash: losing
data is what `tests.faults` is for.
"""

import errno
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from nodeward.host.hostfs import FileInfo
from nodeward_sim.doubles.misc_controller import RefusalError

PLAIN_DEVICE = 1


@dataclass(slots=True, eq=False)
class File:
    """One ordinary file."""

    inode: int
    content: bytes = b""

    def now(self) -> bytes:
        """What a reader gets at this moment."""
        return self.content


@dataclass(slots=True, eq=False)
class TellingFile(File):
    """A file with content that is made when it is read, such as those of /proc. RefusalError once what it tells of is
    gone."""

    tell: Callable[[], bytes] = bytes

    def now(self) -> bytes:
        return self.tell()


@dataclass(slots=True, eq=False)
class Folder:
    """One ordinary folder."""

    inode: int
    entries: "dict[str, File | Folder]" = field(default_factory=dict)


class PlainFiles:
    """A file system of ordinary folders and files. Paths are checked and absolute; "/" is its root."""

    def __init__(self) -> None:
        self._inodes = itertools.count(1)
        self._root = Folder(next(self._inodes))
        self.links: dict[str, str] = {}
        """Paths that are symbolic links, and where each leads."""

    def node(self, path: str) -> File | Folder:
        """What lies at `path`: ENOENT, or ENOTDIR below a file."""
        here: File | Folder = self._root
        for name in _parts(path):
            if isinstance(here, File):
                raise RefusalError(errno.ENOTDIR)
            if name not in here.entries:
                raise RefusalError(errno.ENOENT)
            here = here.entries[name]
        return here

    def file(self, path: str) -> File:
        """The file at `path`; EISDIR for a folder."""
        node = self.node(path)
        if isinstance(node, Folder):
            raise RefusalError(errno.EISDIR)
        return node

    def write(self, path: str, data: bytes) -> None:
        """Overwrites from the start without truncating, as a write(2) after a plain open does."""
        file = self.file(path)
        file.content = data + file.content[len(data) :]

    def append(self, path: str, data: bytes) -> None:
        """Adds at the end of a file that is made if it is missing."""
        folder, name = self._place(path)
        node = folder.entries.get(name)
        if isinstance(node, Folder):
            raise RefusalError(errno.EISDIR)
        if node is None:
            node = folder.entries[name] = File(next(self._inodes))
        node.content += data

    def replace(self, path: str, data: bytes) -> None:
        """A new file under an old name; who has the old one open keeps it."""
        folder, name = self._place(path)
        if isinstance(folder.entries.get(name), Folder):
            raise RefusalError(errno.EISDIR)
        folder.entries[name] = File(next(self._inodes), data)

    def tell(self, path: str, tell: Callable[[], bytes]) -> None:
        """A file that is made when it is read."""
        folder, name = self._place(path)
        folder.entries[name] = TellingFile(next(self._inodes), b"", tell)

    def drop(self, path: str) -> None:
        """Removes a file or folder, with all that is in it."""
        folder, name = self._place(path)
        folder.entries.pop(name, None)

    def listdir(self, path: str) -> list[str]:
        """Names in a folder, sorted."""
        node = self.node(path)
        if isinstance(node, File):
            raise RefusalError(errno.ENOTDIR)
        return sorted(node.entries)

    def stat(self, path: str) -> FileInfo:
        """The kind and size of what is there."""
        node = self.node(path)
        if isinstance(node, File):
            return FileInfo(is_dir=False, inode=node.inode, device=PLAIN_DEVICE, size=len(node.content))
        links = 2 + sum(isinstance(entry, Folder) for entry in node.entries.values())
        return FileInfo(is_dir=True, inode=node.inode, device=PLAIN_DEVICE, size=0, links=links)

    def real(self, path: str) -> str:
        """Where the path leads."""
        found = self.links.get(path, path)
        self.node(found)
        return found

    def mkdir(self, path: str) -> None:
        """One folder more."""
        if path == "/":
            raise RefusalError(errno.EEXIST)
        folder, name = self._place(path)
        if name in folder.entries:
            raise RefusalError(errno.EEXIST)
        folder.entries[name] = Folder(next(self._inodes))

    def rmdir(self, path: str) -> None:
        """One empty folder less."""
        node = self.node(path)
        if isinstance(node, File):
            raise RefusalError(errno.ENOTDIR)
        if node is self._root:
            raise RefusalError(errno.EBUSY)
        if node.entries:
            raise RefusalError(errno.ENOTEMPTY)
        folder, name = self._place(path)
        del folder.entries[name]

    def unlink(self, path: str) -> None:
        """One file less."""
        self.file(path)
        folder, name = self._place(path)
        del folder.entries[name]

    def _place(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rpartition("/")
        folder = self.node(parent or "/")
        if isinstance(folder, File):
            raise RefusalError(errno.ENOTDIR)
        if not name:
            raise RefusalError(errno.EISDIR)
        return folder, name


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
