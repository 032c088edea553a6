"""Reads kubelet's checkpoint of devices once a second, and reports changes.

Nothing is ever written or locked there. Kubelet replaces the file, and gives a new one an inode that was free, so no
stat tells for certain that it is the same; its content is compared instead, by a digest. Whatever cannot be read is
told once, with the reason, and what was told before stands. An absent file is no fault where no device plugin has
registered yet; where it named pods before, somebody removed it, and kubelet itself still knows what they were given.
"""

import asyncio
import errno
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from nodeward.core import ports
from nodeward.core.errors import WireError
from nodeward.core.events import KeysHeld
from nodeward.core.workload import PodUid
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, Lane
from nodeward.host.pace import paced
from nodeward.neighbours.kubelet import checkpoint_file
from nodeward.neighbours.kubelet.checkpoint_file import Checkpoint

log = logging.getLogger(__name__)
PERIOD_S = 1.0
AGREED_S = 1.5
"""What is the same as before is told at least so often where that is waited for (with PERIOD_S: every two seconds)."""
FRESH_S = 7.5
"""So long who asks for a read waits for it, unless it has less time."""
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_HANGS = "reading it hangs: its disk does not answer"


class CheckpointFile:
    """The file for all who look at it: each reads it, and the first decodes what is new, with pauses, since with 500
    pods its checksum takes 10 to 20 ms of a core. Synchronous, for any thread but the loop's."""

    def __init__(self, files: HostFiles, kubelet_dir: str, resources: Sequence[str]) -> None:
        self.path = f"{kubelet_dir.rstrip('/')}/{checkpoint_file.PLACE}"
        self._files, self._resources = files, tuple(resources)
        self._last = Content(b"", Checkpoint({}, {}))

    def read(self) -> "Content":
        """Reads the file now. Raises OSError."""
        data = self._files.read(self.path, checkpoint_file.MAX_BYTES)
        digest = hashlib.blake2b(data).digest()
        last = self._last
        if digest != last.digest:
            last = self._last = Content(digest, self._decoded(data))
        return last

    def _decoded(self, data: bytes) -> Checkpoint | WireError:
        try:
            return checkpoint_file.decode(data, self._resources, partial(paced, each=1))
        except WireError as error:
            return error


class Content(NamedTuple):
    """The content of a checkpoint or its fault, and the mark that tells a changed one."""

    digest: bytes
    found: Checkpoint | WireError


class CheckpointReader:
    """The newest content that was read. Synchronous; belongs to one thread at a time."""

    def __init__(self, file: CheckpointFile) -> None:
        self.path, self._file = file.path, file
        self._last, self._said = b"", KeysHeld(0)
        self._named = False
        """Whether the content that was read last named a pod."""
        self.reading = False
        """Whether a call is under way; it may be one that was given up."""

    def look(self, as_of: int, *, anyway: bool = False) -> KeysHeld | None:
        """What kubelet says; None where that is what was said the last time, unless it is wanted anyway: nobody heard
        what one said that was given up, or somebody asks."""
        self.reading = True
        try:
            is_new = self._read(as_of)
            return self._said if is_new else replace(self._said, as_of=as_of) if anyway else None
        finally:
            self.reading = False

    def late(self, as_of: int) -> KeysHeld:
        """The event for a `look` that hangs."""
        return KeysHeld(as_of, fault=f"{self.path}: {_HANGS}")

    def _read(self, as_of: int) -> bool:
        """Whether it is something else than the last time."""
        try:
            content = self._file.read()
        except OSError as error:
            why = f"{self.path} cannot be read: {error.strerror or error}"
            if error.errno in _ABSENT:
                why = (
                    f"{self.path} was there and is gone; kubelet writes it anew at its next change"
                    if self._named
                    else ""
                )
            said = KeysHeld(as_of, fault=why)
            return self._is_new(f"fault {why}".encode(), lambda: said)
        return self._is_new(content.digest, lambda: self._told(content.found, as_of))

    def _is_new(self, digest: bytes, told: Callable[[], KeysHeld]) -> bool:
        if digest == self._last:
            return False
        self._said, self._last = told(), digest
        return True

    def _told(self, found: Checkpoint | WireError, as_of: int) -> KeysHeld:
        if isinstance(found, WireError):
            return KeysHeld(as_of, fault=f"{self.path}: {found.fault}")
        self._named = bool(found.pods)
        return KeysHeld(as_of, {PodUid(uid): held for uid, held in found.pods.items()}, found.registered)


class CheckpointPoll:
    """Looks once a second, and at once when asked. A job is never doubled, not even while one hangs.

    `awaits` says whether somebody counts the looks that find nothing new; they are told then too, every AGREED_S."""

    def __init__(
        self,
        lane: Lane,
        reader: CheckpointReader,
        tell: ports.Tell,
        seq: ports.Sequence,
        clock: Clock,
        awaits: Callable[[], bool] = lambda: False,
    ) -> None:
        self._lane, self._reader, self._tell, self._seq, self._clock = lane, reader, tell, seq, clock
        self._awaits = awaits
        self._busy = self._hung = False
        self._began_ns = 0
        self._told_ns, self._fault = 0, ""
        self._asking: list[tuple[int, asyncio.Future[str]]] = []

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            due = self._awaits() and self._clock.now_ns() - self._told_ns >= AGREED_S * 1e9
            self._begin(anyway=due or bool(self._asking))
            await self._clock.sleep(PERIOD_S)

    async def fetch(self, _: str) -> str:
        """Waits for a read that began after now; why that could not be, or nothing."""
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asking.append((self._seq(), told))
        self._begin(anyway=True)
        try:
            await asyncio.wait((told,), timeout=FRESH_S)
        finally:
            self._asking = [one for one in self._asking if one[1] is not told]
        return told.result() if told.done() else f"{self._reader.path}: {_HANGS}"

    def _begin(self, *, anyway: bool) -> None:
        if self._busy or self._reader.reading:
            return
        as_of, anyway = self._seq(), anyway or self._hung
        self._began_ns, self._hung = self._clock.now_ns(), False
        job = partial(self._reader.look, as_of, anyway=anyway)
        self._busy = self._lane.submit("checkpoint", job, partial(self._landed, as_of))

    def _landed(self, as_of: int, result: KeysHeld | BaseException | None) -> None:
        self._busy = False
        if isinstance(result, GivenUpError):
            self._hung, result = True, self._reader.late(as_of)
        elif isinstance(result, Exception):
            log.error("checkpoint=unread error=%r", result)
            self._hung, result = True, KeysHeld(as_of, fault=f"{self._reader.path}: {result!r}")
        if isinstance(result, KeysHeld):
            self._told_ns = self._clock.now_ns()
            if result.fault and result.fault != self._fault:
                log.warning("checkpoint=unread why=%r", result.fault)
            self._fault = result.fault
            self._tell(replace(result, read_ns=self._began_ns))
            self._answer(as_of, result.fault)
        if any(not told.done() for _, told in self._asking):
            self._begin(anyway=True)

    def _answer(self, as_of: int, why: str) -> None:
        """Those who had asked when the read began."""
        for asked_at, told in self._asking:
            if as_of >= asked_at and not told.done():
                told.set_result(why)
