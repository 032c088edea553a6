"""Tells the engine of VM sandboxes: of their processes once a period, of the runtime's handlers when these change.

All files are read on lanes. A round that hangs (a process whose memory is locked) is given up with its reader and its
descriptors, is said, and tried again with a new one. What a guest says of itself is asked beside all that, and a shim
that does not answer holds up nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from nodeward.core.errors import WireError
from nodeward.core.events import HandlersRead, VmsRead
from nodeward.core.modes import Mode
from nodeward.core.ports import Tell
from nodeward.core.vms import Handler, VmReading
from nodeward.core.workload import SandboxId
from nodeward.features.root import State
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import FullError, GivenUpError, Lane, done_on
from nodeward.neighbours.cgroups.hierarchy import mounted
from nodeward.neighbours.formats import cgroup_paths
from nodeward.neighbours.kata import shim_socket
from nodeward.neighbours.kata.cgroups import trees
from nodeward.neighbours.kata.handlers import read_handlers
from nodeward.neighbours.kata.reader import Reader, Round

log = logging.getLogger(__name__)
BATCH = 32
"""So many readings are told at once; each event holds up others for a while."""
CONFIGS_S = 60.0
GUESTS_S = 30.0
GUEST_OLD_NS = 90_000_000_000
AT_ONCE = 4
"""So many shims are asked at the same time."""


class Watch:
    """The component `sandboxes`. Belongs to the loop's thread."""

    def __init__(
        self, files: HostFiles, root: str, lane: Lane, disk: Lane, state: Callable[[], State], tell: Tell, clock: Clock
    ) -> None:
        """`root`: the setting `cgroups.root`. The processes are read on `lane`, everything else on `disk`."""
        self._files, self._root, self._lane, self._disk = files, root, lane, disk
        self._state, self._tell, self._clock = state, tell, clock
        self._reader: Reader | None = None
        self._handlers: tuple[Handler, ...] | None = None
        self._said = ""
        """Why the last round had no reading: it is logged once."""
        self._there: dict[SandboxId, int | None] = {}
        """The sandboxes of the last round, and how much memory each VM has."""
        self._guests: dict[SandboxId, tuple[int, int]] = {}
        """When a guest told last what it uses, and how much."""

    async def run(self) -> None:
        """Reads handlers and sandboxes, until cancelled; while the mode is off nothing is read."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._every(CONFIGS_S, self._configs))
                group.create_task(self._every(GUESTS_S, self._ask_guests))
                while True:
                    period_s = self._state().settings.sandboxes.period_ms / 1000
                    if self._is_on():
                        await self._round()
                    await self._clock.sleep(period_s)
        finally:
            if self._reader is not None:
                self._close(self._reader)

    def _is_on(self) -> bool:
        return self._state().settings.sandboxes.mode is not Mode.OFF

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            if self._is_on():
                await work()
            await self._clock.sleep(seconds)

    async def _configs(self) -> None:
        """Of handlers the engine hears only when something in them has changed."""
        profiles = self._state().settings.sandboxes.profiles
        try:
            found = await done_on(self._disk, "runtime-handlers", lambda: read_handlers(self._files, profiles))
        except (GivenUpError, FullError, OSError) as error:
            log.warning("handlers=unread error=%s", error)
            return
        if found == self._handlers:
            return
        self._handlers = found
        for one in found:
            if one.fault:
                log.warning("handler=%s fault=%r", one.name, one.fault)
        self._tell(HandlersRead(found))

    async def _round(self) -> None:
        expected = self._expected()
        reader = self._reader
        try:
            if reader is None:
                reader = self._reader = await done_on(self._lane, "cgroup-trees", self._new_reader)
            used = reader
            found = await done_on(self._lane, "sandboxes", lambda: used.read(expected), partial(self._close, used))
        except GivenUpError as error:
            self._reader = None  # its thread still has it; it closes itself once that comes back
            log.warning("sandboxes=unread at=%s error=%s", reader.at if reader is not None else "cgroups", error)
        except OSError as error:
            if str(error) != self._said:
                self._said = str(error)
                log.warning("sandboxes=unread error=%s", error)
        else:
            self._said = ""
            await self._tell_all(found)

    def _close(self, reader: Reader) -> None:
        self._lane.submit("descriptors", reader.close, lambda _: None)

    async def _tell_all(self, found: Round) -> None:
        readings = [self._with_guest(one) for one in found.readings]
        self._there = {one.sandbox: one.vm_memory for one in readings}
        there = tuple(self._there)
        for begin in range(0, max(1, len(readings)), BATCH):
            part, is_last = tuple(readings[begin : begin + BATCH]), begin + BATCH >= len(readings)
            self._tell(VmsRead(part, found.version, found.driver, there if is_last else None))
            if not is_last:
                await asyncio.sleep(0)  # others have their turn

    def _with_guest(self, one: VmReading) -> VmReading:
        at_ns, used = self._guests.get(one.sandbox, (0, 0))
        return replace(one, guest_used=used) if at_ns and one.at_ns - at_ns <= GUEST_OLD_NS else one

    def _new_reader(self) -> Reader:
        return Reader(self._files, trees(mounted(self._files, self._root), self._root), self._clock.now_ns)

    def _expected(self) -> Mapping[SandboxId, str]:
        """The sandboxes of handlers that start VMs, by the runtime, and their pods' cgroups."""
        state = self._state()
        handlers, pods = state.sandboxes.handlers, state.pods
        found: dict[SandboxId, str] = {}
        for known in pods.sandboxes.values():
            one = known.sandbox
            if one.handler in handlers or one.id in self._there:
                found[one.id] = ""
                with suppress(WireError):
                    found[one.id] = cgroup_paths.parent_path(one.cgroup_parent)
        return found

    async def _ask_guests(self) -> None:
        """One after another, AT_ONCE at a time; who has no socket is left out."""
        wanted = dict(self._there)
        self._guests = {one: told for one, told in self._guests.items() if one in wanted}
        try:
            sockets = await done_on(self._disk, "shim-sockets", lambda: there(self._files, tuple(wanted)))
        except (GivenUpError, FullError) as error:
            log.warning("guests=not-asked error=%s", error)
            return
        turn = asyncio.Semaphore(AT_ONCE)

        async def ask(sandbox: SandboxId, path: str) -> None:
            async with turn:
                used = await shim_socket.guest_used(path, wanted[sandbox])
            if used is not None:
                self._guests[sandbox] = self._clock.now_ns(), used

        await asyncio.gather(*(ask(sandbox, path) for sandbox, path in sockets.items()))


def there(files: HostFiles, sandboxes: Sequence[SandboxId]) -> dict[SandboxId, str]:
    """The sockets of those that have one."""
    found: dict[SandboxId, str] = {}
    for sandbox in sandboxes:
        for path in shim_socket.places(sandbox):
            with suppress(OSError):
                files.stat(path)
                found[sandbox] = path
                break
    return found
