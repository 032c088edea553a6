"""What a test changes in the daemon to see that it would notice a fault (see `forked.started`)."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nodeward.core import cpuset
from nodeward.core.workload import ContainerId
from nodeward.features.cpus.effects.start_barrier import StartBarrier
from nodeward.host.hostfs import OsFiles
from tests.patience import patience

RECORDS: Final = Path("/dev/shm/cpus/out")
"""Where each program leaves the record of its first act."""
_SLOW_S: Final = 0.3
_SLOWEST_S: Final = 1.0
"""Below what the daemon bears of a write."""
_ASKED_WITHIN_S: Final = 3.0
_asked: Final = threading.Event()
"""A container is to be started; nobody's CPUs have become more since."""
_known: Final[set[str]] = set()
"""The records that there were then."""


def _slow() -> None:
    time.sleep(min(_SLOWEST_S, _SLOW_S * patience()))


def _until_it_has_begun() -> None:
    end = time.monotonic() + _ASKED_WITHIN_S * patience()
    while {path.name for path in RECORDS.iterdir() if not path.suffix} <= _known and time.monotonic() < end:
        time.sleep(0.02)


def late_writes(wait: Callable[[], None] = _slow) -> None:
    """No fault, but a machine on which one shows: a set shrinks only some time after a program was to be started."""
    write, written = OsFiles.write, StartBarrier.written

    def late(files: OsFiles, path: str, data: bytes) -> None:
        if path.endswith("/cpuset.cpus"):
            if cpuset.parse(files.read(path, cpuset.MAX_TEXT).decode()) & ~cpuset.parse(data.decode()):
                _asked.wait(_ASKED_WITHIN_S)
                wait()
            else:
                _asked.clear()
        write(files, path, data)

    async def noted(gate: StartBarrier, container_id: ContainerId, within_s: float) -> str:
        _known.update(os.listdir(RECORDS))
        _asked.set()
        return await written(gate, container_id, within_s)

    _put(OsFiles, "write", late)
    _put(StartBarrier, "written", noted)


def no_wait() -> None:
    """Programs begin before others are off their CPUs, for which sets shrink only after the first act."""

    async def at_once(_: StartBarrier, __: ContainerId, ___: float) -> str:
        return ""

    _put(StartBarrier, "written", at_once)
    late_writes(_until_it_has_begun)


def _put(owner: type, name: str, function: object) -> None:
    setattr(owner, name, function)
