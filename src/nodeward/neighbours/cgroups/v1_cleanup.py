"""Removes cgroups of the v1 misc hierarchy whose pod or container has ended.

A runtime that does not join misc does not remove there what Nodeward has made. Only what was known and is no longer,
and is gone from the tree that every runtime uses, twice in a row, is tried; one with processes refuses. Synchronous;
belongs to the cgroup lane.
"""

import errno
from collections.abc import Sequence

from nodeward.core.cgroup import Hierarchy
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.cgroups.hierarchy import Tree

_GONE = (errno.ENOENT, errno.ENODEV)
TRIES = 10
"""One that still refuses then is left to whoever holds it."""


class V1Cleanup:
    """What was known, and what of it is to be looked at again."""

    def __init__(self, files: HostFiles, tree: Tree) -> None:
        self._files, self._tree = files, tree
        self._known: dict[str, None] = {}
        self._ended: dict[str, int] = {}

    def sweep(self, known: Sequence[str], remove: bool) -> None:
        """Looks at what has ended since the last time; with `remove` false it is only remembered what is known."""
        tree, now = self._tree.now, dict.fromkeys(known)
        self._ended |= {path: 0 for path in self._known if path not in now}
        self._known = now
        if tree.version != 1 or tree.members == tree.root or not remove:
            self._ended.clear()
            return
        for path in sorted(self._ended, key=len, reverse=True):  # containers before their pods
            self._ended[path] += 1
            if path in now or self._ended[path] > TRIES or self._is_done(tree, path):
                del self._ended[path]

    def _is_done(self, tree: Hierarchy, path: str) -> bool:
        if not _is_absent(self._files, f"{tree.members}{path}"):
            self._ended[path] = 0  # it has not ended there yet
            return False
        if self._ended[path] < 2:
            return False
        try:
            self._files.rmdir(f"{tree.root}{path}")
        except OSError as error:
            return error.errno in _GONE
        return True


def _is_absent(files: HostFiles, place: str) -> bool:
    try:
        files.stat(place)
    except OSError as error:
        return error.errno in _GONE
    return False
