"""Keeps the known pods on disk, for a start while the API server is away.

Written lazily, whole and atomically; read once at the start, when every pod in it is marked as coming from disk.
The file has a version; what is not understood is ignored, never guessed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from nodeward.core.workload import PodSpec, Source
from nodeward.features.pods.state import Pods
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane
from nodeward.host.state_file import StateFile

log = logging.getLogger(__name__)
MAX_BYTES = 16 * 1024 * 1024
VERSION = 2
EVERY_S = 5.0
_decoder = msgspec.json.Decoder(tuple[int, int, tuple[PodSpec, ...]])


@dataclass(frozen=True, slots=True)
class Remembered:
    """The pods as the disk has them, and when the API server last said something new of them."""

    pods: tuple[PodSpec, ...] = ()
    at_wall_ns: int = 0


def path_in(folder: str) -> str:
    """The file's path in the state folder."""
    return f"{folder.rstrip('/')}/pods.json"


def encode(pods: tuple[PodSpec, ...], at_wall_ns: int) -> bytes:
    """The file's content."""
    return msgspec.json.encode((VERSION, at_wall_ns, pods))


def read(files: HostFiles, folder: str) -> Remembered:
    """The pods on disk; none where the file is missing, damaged or of another version."""
    try:
        version, at_wall_ns, pods = _decoder.decode(files.read(path_in(folder), MAX_BYTES))
    except FileNotFoundError:
        return Remembered()
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        log.warning("last-known=ignored path=%s error=%s", path_in(folder), error)
        return Remembered()
    if version != VERSION:
        log.warning("last-known=ignored path=%s version=%s", path_in(folder), version)
        return Remembered()
    return Remembered(tuple(replace(pod, source=Source.DISK) for pod in pods), at_wall_ns)


async def keep(pods: Callable[[], Pods], files: HostFiles, lane: Lane, folder: str, clock: Clock) -> None:
    """Keeps the pods on disk, at most once in EVERY_S, off the loop. What could not be written is tried again."""
    file = StateFile(files, path_in(folder))
    written: object = None
    failing = busy = False

    def done(specs: object, result: object) -> None:
        nonlocal written, failing, busy
        busy = False
        if not isinstance(result, BaseException):
            written, failing = specs, False
        elif not failing:
            failing = True
            log.warning("last-known=not-written path=%s error=%s", path_in(folder), result)

    while True:
        now = pods()
        if now.specs is not written and now.api_up and not busy:
            data = encode(tuple(known.spec for known in now.specs.values()), clock.wall_ns())
            busy = lane.submit("pods", partial(file.replace, data), partial(done, now.specs))
        await clock.sleep(EVERY_S)
