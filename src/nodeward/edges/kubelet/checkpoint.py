"""Reads what kubelet has handed out from its checkpoint of devices, once a second, and tells it when it has changed.

Nothing is ever written or locked there. Kubelet replaces the file, and gives a new one an inode that was free, so no
stat tells for certain that it is the same; its content is compared instead, by a digest. Whatever cannot be read is
told once, with the reason, and what was told before stands. An absent file is no fault: no device plugin has registered
yet.
"""

import errno
import hashlib
import logging
from collections.abc import Sequence
from functools import partial

from nodeward.aio.clock import Clock
from nodeward.aio.hostfs import HostFiles
from nodeward.aio.lanes import GivenUpError, Lane
from nodeward.model import ports
from nodeward.model.events import KeysHeld
from nodeward.model.workload import PodUid
from nodeward.wire import kubelet_checkpoint
from nodeward.wire.errors import WireError

log = logging.getLogger(__name__)
PERIOD_S = 1.0
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_HANGS = "reading it hangs: its disk does not answer"


class CheckpointReader:
    """The newest content that was read. Synchronous; belongs to one thread at a time."""

    def __init__(self, files: HostFiles, kubelet_dir: str, resources: Sequence[str]) -> None:
        self.path = f"{kubelet_dir.rstrip('/')}/{kubelet_checkpoint.PLACE}"
        self._files, self._resources = files, tuple(resources)
        self._last = b""
        self.reading = False
        """Whether a call is under way; it may be one that was given up."""

    def look(self, as_of: int) -> KeysHeld | None:
        """What kubelet says; None where that is what was said the last time."""
        self.reading = True
        try:
            return self._look(as_of)
        finally:
            self.reading = False

    def late(self, as_of: int) -> KeysHeld:
        """What is told where `look` hangs."""
        return KeysHeld(as_of, fault=f"{self.path}: {_HANGS}")

    def forget(self) -> None:
        """The next `look` tells in any case: nobody heard what one said that was given up."""
        self._last = b""

    def _look(self, as_of: int) -> KeysHeld | None:
        try:
            data = self._files.read(self.path, kubelet_checkpoint.MAX_BYTES)
        except OSError as error:
            if error.errno in _ABSENT:
                return self._new(b"absent", KeysHeld(as_of))
            why = f"{self.path} cannot be read: {error.strerror or error}"
            return self._new(f"fault {error.errno}".encode(), KeysHeld(as_of, fault=why))
        digest = hashlib.blake2b(data).digest()
        return None if digest == self._last else self._new(digest, self._decoded(data, as_of))

    def _new(self, digest: bytes, found: KeysHeld) -> KeysHeld | None:
        same, self._last = digest == self._last, digest
        return None if same else found

    def _decoded(self, data: bytes, as_of: int) -> KeysHeld:
        try:
            found = kubelet_checkpoint.decode(data, self._resources)
        except WireError as error:
            return KeysHeld(as_of, fault=f"{self.path}: {error.fault}")
        return KeysHeld(as_of, {PodUid(uid): held for uid, held in found.pods.items()}, found.registered)


async def run(lane: Lane, reader: CheckpointReader, tell: ports.Tell, seq: ports.Sequence, clock: Clock) -> None:
    """Looks once a second until cancelled. A job is never doubled, not even while one hangs."""
    busy = hung = False

    def landed(as_of: int, result: KeysHeld | BaseException | None) -> None:
        nonlocal busy, hung
        busy = False
        if isinstance(result, GivenUpError):
            hung, result = True, reader.late(as_of)
        if isinstance(result, KeysHeld):
            if result.fault:
                log.warning("checkpoint=unread why=%r", result.fault)
            tell(result)

    while True:
        if not busy and not reader.reading:
            if hung:
                reader.forget()
                hung = False
            as_of = seq()
            busy = lane.submit("checkpoint", partial(reader.look, as_of), partial(landed, as_of))
        await clock.sleep(PERIOD_S)
