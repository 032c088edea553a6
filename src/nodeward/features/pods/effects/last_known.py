"""Keeps the known pods on disk, for a start while the API server is away.

Written lazily; read once at the start, when every pod in it is marked as coming from disk.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from nodeward.core.workload import PodSpec, Source
from nodeward.features.pods.state import Pods
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane
from nodeward.host.state_file import MIB, StateFile

log = logging.getLogger(__name__)
EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Remembered:
    """The pods as the disk has them, and when the API server last said something new of them."""

    pods: tuple[PodSpec, ...] = ()
    at_wall_ns: int = 0


FILE = StateFile("pods.json", Remembered, "last-known", 16 * MIB)


def read(files: HostFiles, folder: str) -> Remembered:
    """The pods on disk; none where the file is missing, damaged or of another version."""
    found = FILE.known(files, folder) or Remembered()
    return Remembered(tuple(replace(pod, source=Source.DISK) for pod in found.pods), found.at_wall_ns)


async def keep(pods: Callable[[], Pods], files: HostFiles, lane: Lane, folder: str, clock: Clock) -> None:
    """Keeps the pods on disk, at most once in EVERY_S, off the loop. What could not be written is tried again."""
    file = FILE.writer(files, folder)
    written: object = None
    failing = busy = False

    def done(specs: object, result: object) -> None:
        nonlocal written, failing, busy
        busy = False
        if not isinstance(result, BaseException):
            written, failing = specs, False
        elif not failing:
            failing = True
            log.warning("last-known=not-written path=%s error=%s", file.path, result)

    while True:
        now = pods()
        if now.specs is not written and now.api_up and not busy:
            found = Remembered(tuple(known.spec for known in now.specs.values()), clock.wall_ns())
            busy = lane.submit("pods", partial(file.replace, found), partial(done, now.specs))
        await clock.sleep(EVERY_S)
