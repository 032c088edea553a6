"""Reads the misc files of the cgroups that matter, once a period, on kept descriptors.

One pass is one job on the cgroup lane. A file that a kernel lacks (misc.peak and misc.events.local before 6.11) is
simply not read. A cgroup that vanished between two calls is reported as gone, not as an error.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from nodeward.aio.clock import Clock
from nodeward.aio.hostfs import HostFiles
from nodeward.aio.lanes import Lane
from nodeward.model import ports
from nodeward.model.events import CapacityRead, MiscReading, Sampled
from nodeward.wire import misc_files
from nodeward.wire.errors import WireError

_GONE = (errno.ENOENT, errno.ENODEV)
_FILES = ("misc.max", "misc.current", "misc.peak", "misc.events", "misc.events.local")


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass read."""

    capacity: CapacityRead
    readings: dict[str, MiscReading]
    gone: tuple[str, ...]


class Reader:
    """Kept descriptors over the misc files of many cgroups. Synchronous; belongs to one lane."""

    def __init__(self, files: HostFiles, root: str) -> None:
        self._files, self._root = files, root
        self._handles: dict[str, dict[str, int]] = {}

    @property
    def open_files(self) -> int:
        """Descriptors held."""
        return sum(len(handles) for handles in self._handles.values())

    def read(self, paths: Sequence[str]) -> Pass:
        """One pass over `paths`; descriptors of cgroups that are not among them are given back."""
        for path in [known for known in self._handles if known not in paths]:
            self._release(path)
        readings: dict[str, MiscReading] = {}
        gone: list[str] = []
        for path in paths:
            reading = self._one(path)
            if reading is None:
                gone.append(path)
            else:
                readings[path] = reading
        return Pass(read_capacity(self._files, self._root), readings, tuple(gone))

    def close(self) -> None:
        """Gives every descriptor back."""
        for path in list(self._handles):
            self._release(path)

    def _one(self, path: str) -> MiscReading | None:
        try:
            return self._parsed(path)
        except WireError:
            return None
        except OSError as error:
            self._release(path)
            if error.errno not in _GONE:
                return None
        try:  # a new cgroup of that name, or misc switched off and on: open anew, once
            return self._parsed(path)
        except (OSError, WireError):
            self._release(path)
        try:
            self._files.stat(f"{self._root}{path}")
        except OSError:
            return None
        return MiscReading(controller=False)

    def _parsed(self, path: str) -> MiscReading:
        handles = self._handles.get(path)
        if handles is None:
            handles = self._handles[path] = {}
            for name in _FILES:
                try:
                    handles[name] = self._files.open(f"{self._root}{path}/{name}")
                except OSError as error:
                    if error.errno != errno.ENOENT or name in ("misc.max", "misc.current"):
                        raise
        raw = {name: self._files.pread(handle, misc_files.MAX_BYTES + 1) for name, handle in handles.items()}
        return MiscReading(
            limit=misc_files.parse_limits(raw["misc.max"]),
            usage=misc_files.parse(raw["misc.current"]),
            peak=misc_files.parse(raw.get("misc.peak", b"")),
            refusals=misc_files.parse(raw.get("misc.events", b""), suffix=".max"),
            refusals_local=misc_files.parse(raw.get("misc.events.local", b""), suffix=".max"),
        )

    def _release(self, path: str) -> None:
        for handle in self._handles.pop(path, {}).values():
            self._files.close(handle)


def read_capacity(files: HostFiles, root: str) -> CapacityRead:
    """What the node has of each misc resource. No controller where the file is not there or cannot be read."""
    try:
        capacity = misc_files.parse(files.read(f"{root}/misc.capacity", misc_files.MAX_BYTES))
    except (OSError, WireError):
        return CapacityRead(controller=False)
    try:
        usage = misc_files.parse(files.read(f"{root}/misc.current", misc_files.MAX_BYTES))
    except (OSError, WireError):
        usage = {}  # the root has misc.current since Linux 6.6
    return CapacityRead(controller=True, capacity=capacity, usage=usage)


async def run(
    lane: Lane,
    reader: Reader,
    paths: Callable[[], Sequence[str]],
    tell: ports.Tell,
    seq: ports.Sequence,
    clock: Clock,
    period_s: float,
) -> None:
    """Samples once a period until cancelled. A pass that has not come back yet is waited for, never doubled."""
    busy = False
    last: CapacityRead | None = None

    def landed(as_of: int, result: Pass | BaseException) -> None:
        nonlocal busy, last
        busy = False
        if isinstance(result, BaseException):
            return  # the lane has reported it; readings grow stale and say so
        if result.capacity != last:
            last = result.capacity
            tell(result.capacity)
        tell(Sampled(readings=result.readings, as_of=as_of, gone=result.gone))

    while True:
        if not busy:
            as_of, wanted = seq(), list(paths())
            busy = lane.submit("sample", partial(reader.read, wanted), partial(landed, as_of))
        await clock.sleep(period_s)
