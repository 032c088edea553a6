"""Waits until the kernel refuses a charge, so that a refusal is shown at once and not with the next pass.

The kernel wakes who polls a cgroup's `misc.events` when a count in it goes up; `misc.current` and `misc.peak` never
tell. The wait needs a lane of its own: it must hold up no write. Descriptors are kept, one a cgroup. A burst of
refusals costs one reading in PAUSE_S, since the kernel keeps one notification a file for who does not wait just now.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from nodeward.core import ports
from nodeward.core.events import Sampled
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, Lane, done_on
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.cgroups.sampler import MOST_TOLD, Pass, Reader
from nodeward.neighbours.formats import misc_files

log = logging.getLogger(__name__)

WAIT_S = 1.0
"""One wait: after so long new cgroups are waited for as well."""

PAUSE_S = 0.1
"""Between two readings: refusals meanwhile are read together."""


class Watcher:
    """Polls misc.events of many cgroups on open descriptors. Synchronous; belongs to one lane."""

    def __init__(self, files: HostFiles, tree: Tree) -> None:
        self._files, self._tree = files, tree
        self._root = self._tree.now.root
        self._handles: dict[str, int] = {}
        self._seen: dict[str, bytes] = {}

    def anew(self) -> "Watcher":
        """Another one, without descriptors."""
        return Watcher(self._files, self._tree)

    @property
    def open_files(self) -> int:
        """Descriptors held."""
        return len(self._handles)

    def wait(self, paths: Sequence[str], timeout_s: float) -> tuple[str, ...]:
        """Those of `paths` in which a charge was refused since the last wait; none after `timeout_s`."""
        if self._root != self._tree.now.root:
            self.close()
            self._root = self._tree.now.root
        wanted = dict.fromkeys(paths)
        for path in [known for known in self._handles if known not in wanted]:
            self._release(path)
        for path in wanted:
            if path not in self._handles and not self._open(path):
                break
        if not self._handles:
            return ()
        path_of = {handle: path for path, handle in self._handles.items()}
        ready = self._files.wait(list(path_of), timeout_s)
        return tuple(path_of[handle] for handle in ready if self._has_changed(path_of[handle]))

    def read(self, paths: Sequence[str]) -> Pass:
        """All misc files of these cgroups, once."""
        reader = Reader(self._files, self._tree)
        try:
            return reader.read(paths, with_root=False)
        finally:
            reader.close()

    def close(self) -> None:
        """Gives every descriptor back."""
        for path in list(self._handles):
            self._release(path)

    def _open(self, path: str) -> bool:
        """Opens and reads, which arms the wait. False where no further descriptor is to be had."""
        try:
            self._handles[path] = self._files.open(f"{self._root}{path}/misc.events")
            self._seen[path] = self._files.pread(self._handles[path], misc_files.MAX_BYTES)
        except OSError as error:
            self._release(path)
            return error.errno not in (errno.EMFILE, errno.ENFILE)
        return True

    def _has_changed(self, path: str) -> bool:
        """Reads, which arms the wait anew."""
        try:
            data = self._files.pread(self._handles[path], misc_files.MAX_BYTES)
        except OSError:  # gone, or misc was switched off: opened again with the next wait if it is there
            self._release(path)
            return False
        before, self._seen[path] = self._seen[path], data
        return data != before

    def _release(self, path: str) -> None:
        self._seen.pop(path, None)
        handle = self._handles.pop(path, None)
        if handle is not None:
            self._files.close(handle)


async def run(
    lane: Lane,
    watcher: Watcher,
    paths: Callable[[], Sequence[str]],
    tell: ports.Tell,
    seq: ports.Sequence,
    clock: Clock,
) -> None:
    """Reports the readings of cgroups that refused a charge, until cancelled."""
    while True:
        try:
            changed = await done_on(lane, "watch", partial(watcher.wait, paths(), WAIT_S), watcher.close)
            if not changed:
                await clock.sleep(0.0 if watcher.open_files else WAIT_S)
                continue
            as_of = seq()
            found = await done_on(lane, "refusals", partial(watcher.read, changed), watcher.close)
        except GivenUpError:
            watcher = watcher.anew()
            log.warning("watch=given-up why='a call hangs in the kernel'")
            continue
        except OSError as error:
            log.warning("watch=failed error=%s", error)
            await clock.sleep(WAIT_S)
            continue
        left = iter(found.readings.items())
        while part := dict(islice(left, MOST_TOLD)):
            tell(Sampled(readings=part, as_of=as_of))
            await asyncio.sleep(0)
        await clock.sleep(PAUSE_S)
