"""Keeps the record of CPU grants on disk: read at a start, written before the runtime is answered.

`<run_dir>/cpus.journal` is the one file of whichever process drives the policy (`cpus.driver`), so a change of driver
loses nothing. It is void after a boot: no container outlives that. A write takes at most LATE_S of its lane's time, and
an answer waits for its line no longer than its runtime does. A line that cannot be written stops no container: the log
says so, and the write is repeated until it succeeds.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from functools import partial

from nodeward.core.errors import WireError
from nodeward.features.cpus import recorded
from nodeward.features.cpus.effects import journal
from nodeward.features.cpus.state import Cpus
from nodeward.features.cpus.values import CpusRecalled, Recorded
from nodeward.features.root import State
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.journal import Journal, Within, Written
from nodeward.host.lanes import Lane
from nodeward.host.runner import Core
from nodeward.host.undo import boot_id

EVERY_S = 1.0
"""How often it is looked whether the file is there as it was written."""
LATE_S = 0.15
log = logging.getLogger(__name__)


def path_in(folder: str) -> str:
    """The file's path in the run folder."""
    return f"{folder.rstrip('/')}/cpus.journal"


def boot_of(files: HostFiles) -> str:
    """The boot by which a record is written; empty where that cannot be told."""
    try:
        return boot_id(files)
    except OSError as error:
        log.error("cpus-record=off why='the boot cannot be told: %s'", error)
        return ""


def read(files: HostFiles, run_dir: str) -> tuple[str, CpusRecalled]:
    """`boot_of`, and what the process before this one wrote down. May sleep."""
    path, boot = path_in(run_dir), boot_of(files)
    if not boot:
        return "", CpusRecalled(fault=f"the boot that {path} is of cannot be told")
    try:
        found = journal.read(files.read(path, journal.MAX_BYTES, own=True), boot)
    except FileNotFoundError:
        return boot, CpusRecalled()
    except OSError as error:
        return boot, CpusRecalled(fault=f"{path} cannot be read: {error.strerror or error}")
    except WireError as error:
        return boot, CpusRecalled(fault=f"{path} {error.fault}")
    if found is None:
        log.info("cpus-record=void path=%s why='it is of another boot'", path)
        return boot, CpusRecalled()
    if found.torn:
        log.warning("cpus-record=torn path=%s so='its last line, which no runtime has seen, is passed over'", path)
    now = found.recorded
    for change in found.changes:
        now = recorded.changed(now, change)
    why = recorded.fault(now)
    return boot, CpusRecalled(None, f"{path}: {why}") if why else CpusRecalled(now)


class CpuGrants:
    """The record of one process. Belongs to the loop's thread."""

    def __init__(self, core: Core[State], files: HostFiles, run_dir: str, lane: Lane, within: Within) -> None:
        self._core, self._files = core, files
        self._boot = ""
        """Until that is known, the file is another process's."""
        self._journal = Journal(files, path_in(run_dir), lane, within)
        self._known: Cpus | None = None
        """As it was when a write was begun last."""
        self._there: Recorded | None = None
        """What that write was of."""
        self._writing: asyncio.Future[None] | None = None
        self._failing = False
        core.settles = self.settles
        core.followers.append(self.follow)

    def begin(self, boot: str, recalled: CpusRecalled) -> None:
        """Makes this process the one that drives the policy: it goes on from what `read` has found."""
        self._boot = boot
        self._core.tell(recalled)

    def settles(self) -> Awaitable[None] | None:
        """Writes down what was decided; None where nothing is to be waited for."""
        cpus, known = self._core.state.cpus, self._known
        if not self._boot or cpus.recorded is not None:
            return None  # of what is recorded nothing is forgotten before the runtime has told what is left
        if known is not None and known.pools is cpus.pools:
            return None
        if cpus.machine is None or (known is None and not cpus.pools.grants):
            return None
        before, after = self._there, Recorded(cpus.machine, cpus.rules, cpus.pools, recorded.mems(self._core.state))
        self._known, self._there = cpus, after
        change = None
        if before is not None and before.machine is after.machine and before.rules is after.rules:
            change = recorded.change(before, after)
        whole = partial(journal.whole, after, self._boot)
        line = journal.line(change) if change is not None else b""
        job = self._journal.append(line, whole) if line else self._journal.rewrite(whole)
        self._writing = writing = asyncio.ensure_future(self._written(job))
        return asyncio.shield(writing)

    def follow(self) -> None:
        """Records the grants of a decision that has no caller."""
        self.settles()

    async def end(self) -> None:
        """What was decided last is written; from here on nothing is."""
        waits = self.settles() or self._writing
        self._boot = ""
        if waits is not None:
            await asyncio.wait((asyncio.ensure_future(waits),), timeout=2 * LATE_S)

    async def keep(self, clock: Clock) -> None:
        """Writes the record again while the last write failed or the file was changed, until cancelled."""
        while True:
            await clock.sleep(EVERY_S)
            if self._there is None or (self._writing is not None and not self._writing.done()):
                continue
            if self._failing or not await self._journal.stands():
                now = self._there  # something may have been decided meanwhile
                await self._written(self._journal.rewrite(partial(journal.whole, now, self._boot)))
            if self._failing:  # what is there is older than what the runtime tells
                with contextlib.suppress(OSError):
                    await self._journal.do(partial(self._files.unlink, self._journal.path))

    async def _written(self, job: Awaitable[Written]) -> None:
        written = await job
        if written.why_not and not self._failing:
            so = "containers start all the same; after a restart now, the runtime's own record counts"
            log.error("cpus-record=unwritten path=%s why=%r so=%r", self._journal.path, written.why_not, so)
        elif self._failing and not written.why_not:
            log.info("cpus-record=written path=%s", self._journal.path)
        self._failing = bool(written.why_not)
