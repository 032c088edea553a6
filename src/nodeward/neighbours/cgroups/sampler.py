"""Reads the misc files of the cgroups that matter, once a period, on kept descriptors.

One pass is one job on the cgroup lane. A file that a kernel lacks (misc.peak and misc.events.local before 6.11) is
simply not read. A cgroup that vanished between two calls is reported as gone, not as an error.

What is told of a pass is what differs from the readings known at that moment, and which of those the pass did not
read; the rest is said to be the same. So a quiet node's record stays small, and nothing is taken for fresh that was not
read. Where much has changed it is told in several events, each in a turn of the loop of its own, so that a full node
keeps nobody waiting; all have the pass' `as_of`, and only the last one says what is the same.

A pass that hangs is given up together with its Reader, since the hung thread still has its descriptors. The cgroup it
hangs at is left out, and so grows stale, until that call has come back; the others are read by a new Reader.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from nodeward.core import ports
from nodeward.core.errors import WireError
from nodeward.core.events import CapacityRead, CgroupsFound, FoundCgroup, MiscReading, Sampled
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, Lane
from nodeward.neighbours.cgroups.finder import Finder
from nodeward.neighbours.cgroups.hierarchy import Tree, read_capacity
from nodeward.neighbours.cgroups.v1_cleanup import V1Cleanup
from nodeward.neighbours.formats import misc_files

log = logging.getLogger(__name__)
_GONE = (errno.ENOENT, errno.ENODEV)
_OUTSIDE = "(outside)"
MOST_TOLD = 128
"""So many changed readings are told at once: less than a millisecond of the loop, with what is decided on them."""
_FILES = ("misc.max", "misc.current", "misc.peak", "misc.events", "misc.events.local")
_NOTIFIED = ("misc.events", "misc.events.local")
"""Of these the kernel tells who polls that they have changed since this descriptor read them (cgroup_file_notify), so
one poll(2) a pass takes the place of most of the reads."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass read."""

    capacity: CapacityRead | None
    """None where it was not asked for."""
    readings: dict[str, MiscReading]
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """What a pass is about, as known when it begins: the cgroups to read, those of the known pods, and which containers
    are no news."""

    paths: Sequence[str]
    pods: Sequence[str]
    is_known: Callable[[str], bool]
    search: bool = True
    """Whether unknown containers are to be searched for as well."""
    sweep: bool = False
    """Whether cgroups that were left over may be removed."""
    watched: Sequence[str] = ()
    """Cgroups that are not read, and of which is told when they are gone."""


class Reader:
    """Reads the misc files of many cgroups on open descriptors. Synchronous; belongs to one thread at a time."""

    def __init__(self, files: HostFiles, tree: Tree) -> None:
        self._files, self._tree = files, tree
        self._now = self._tree.now
        self._handles: dict[str, dict[str, int]] = {}
        self._last: dict[str, tuple[dict[str, bytes], MiscReading]] = {}
        """What was read last and what it means: most files say the same as a second ago."""
        self._stirred: Mapping[int, None] | None = None
        """Descriptors of `_NOTIFIED` files that have changed; None where nobody tells."""
        self.at = ""
        """The cgroup under way, `/` for the root's own files; empty before a pass has begun."""
        self.given_up = False
        """Set by the loop: nobody waits for this pass any more, so it ends at the next cgroup."""

    def anew(self) -> "Reader":
        """Another one on the same files, without descriptors."""
        return Reader(self._files, self._tree)

    @property
    def open_files(self) -> int:
        """Descriptors held."""
        return sum(len(handles) for handles in self._handles.values())

    def read(self, paths: Sequence[str], with_root: bool = True, watched: Sequence[str] = ()) -> Pass:
        """One pass over `paths`; descriptors of cgroups that are not among them are given back. Of those `watched` it
        tells only whether they are gone."""
        self.at = "(descriptors)"
        if self._now != self._tree.now:
            self.close()
            self._now = self._tree.now
        wanted = dict.fromkeys(paths)
        for path in [known for known in self._handles if known not in wanted]:
            self._release(path)
        self._stirred = self._notified()
        readings: dict[str, MiscReading] = {}
        gone: list[str] = []
        for path in paths:
            self.at = path
            if self.given_up:
                break
            reading = self._one(path)
            if reading is not None:
                readings[path] = reading
            elif self._is_gone(path):
                gone.append(path)
        for path in watched:
            self.at = path
            if self.given_up:
                break
            if self._is_gone(path):
                gone.append(path)
        self.at = "/"
        capacity = read_capacity(self._files, self._tree) if with_root and not self.given_up else None
        return Pass(capacity, readings, tuple(gone))

    def close(self) -> None:
        """Gives every descriptor back."""
        for path in list(self._handles):
            self._release(path)

    def _notified(self) -> Mapping[int, None] | None:
        handles = [of[name] for of in self._handles.values() for name in _NOTIFIED if name in of]
        try:
            return dict.fromkeys(self._files.wait(handles, 0.0)) if handles else {}
        except OSError:
            return None

    def _one(self, path: str) -> MiscReading | None:
        if self._now.members != self._now.root and self._is_gone(path):
            self._release(path)
            return None
        try:
            return self._parsed(path)
        except WireError:
            self._last.pop(path, None)  # what was read is not what is known, and nobody tells of it again
            return None
        except OSError as error:
            self._release(path)
            if error.errno not in _GONE:
                return None
        try:  # a new cgroup of that name, or misc switched off and on: open anew, once
            return self._parsed(path)
        except (OSError, WireError):
            self._release(path)
        return None if self._is_gone(path) else MiscReading(controller=False)

    def _is_gone(self, path: str) -> bool:
        """Whether the cgroup is not there. One that cannot be read for another reason is not gone.

        Nor is one of which not even the topmost cgroup is there: the pods then live in another tree, as with cgroup v1.
        """
        top = "/" + path.split("/", 2)[1]
        return self._is_absent(path) and (top == path or not self._is_absent(top))

    def _is_absent(self, path: str) -> bool:
        """Looked for in the tree of the runtimes: what is in the v1 misc hierarchy alone may be of our making."""
        try:
            self._files.stat(f"{self._now.members}{path}")
        except OSError as error:
            return error.errno in _GONE
        return False

    def _is_outside(self, path: str) -> bool:
        """Whether processes that are in this cgroup are not so in the misc hierarchy; those that come or go just now
        are not meant."""
        root, members = self._now.root, self._now.members
        return (
            root != members
            and not self._has_processes(root, path)
            and self._has_processes(members, path)
            and not self._has_processes(root, path)
        )

    def _has_processes(self, root: str, path: str) -> bool:
        try:
            handle = self._files.open(f"{root}{path}/cgroup.procs")
        except OSError:
            return False
        try:
            return bool(self._files.pread(handle, 1))
        except OSError:
            return False
        finally:
            self._files.close(handle)

    def _parsed(self, path: str) -> MiscReading:
        handles = self._handles.get(path)
        if handles is None:
            handles = self._handles[path] = {}
            for name in _FILES:
                try:
                    handles[name] = self._files.open(f"{self._now.root}{path}/{name}")
                except OSError as error:
                    if error.errno != errno.ENOENT or name in ("misc.max", "misc.current"):
                        raise
        last, stirred = self._last.get(path), self._stirred
        raw: dict[str, bytes] = {}
        for name, handle in handles.items():
            if last is not None and stirred is not None and name in _NOTIFIED and handle not in stirred:
                raw[name] = last[0][name]
            else:
                raw[name] = self._files.pread(handle, misc_files.MAX_BYTES + 1)
        if self._is_outside(path):
            raw[_OUTSIDE] = b"1"
        if last is not None and last[0] == raw:
            return last[1]
        reading = MiscReading(
            limit=misc_files.parse_limits(raw["misc.max"]),
            usage=misc_files.parse(raw["misc.current"]),
            peak=misc_files.parse(raw.get("misc.peak", b"")),
            refusals=misc_files.parse(raw.get("misc.events", b""), suffix=".max"),
            refusals_local=misc_files.parse(raw.get("misc.events.local", b""), suffix=".max"),
            outside=_OUTSIDE in raw,
        )
        self._last[path] = raw, reading
        return reading

    def _release(self, path: str) -> None:
        self._last.pop(path, None)
        for handle in self._handles.pop(path, {}).values():
            self._files.close(handle)


Known = Callable[[], Mapping[str, MiscReading]]


class _Passes:
    """One pass of the reader after another. One that hangs is given up with its reader."""

    def __init__(self, lane: Lane, reader: Reader, leftovers: V1Cleanup | None, known: Known, tell: ports.Tell) -> None:
        self._lane, self._reader, self._leftovers, self._known, self._tell = lane, reader, leftovers, known, tell
        self._busy = False
        self._last: CapacityRead | None = None
        self._held: dict[str, Reader] = {}

    def begin(self, scope: Callable[[], Scope], seq: ports.Sequence) -> None:
        """Starts a pass unless one is under way."""
        if self._busy:
            return
        as_of, now, reader = seq(), scope(), self._reader
        reader.at = ""
        job = partial(self._pass, reader, now)
        self._busy = self._lane.submit(
            "sample", job, partial(self._landed, as_of, reader), partial(self._released, reader)
        )

    def _pass(self, reader: Reader, now: Scope) -> Pass:
        """On the lane."""
        held = self._held
        paths, watched = ([path for path in of if path not in held] for of in (now.paths, now.watched))
        found = reader.read(paths, "/" not in held, watched)
        if self._leftovers is not None and not reader.given_up:
            self._leftovers.sweep(now.paths, now.sweep)
        return found

    def _landed(self, as_of: int, used: Reader, result: Pass | BaseException) -> None:
        if isinstance(result, BaseException):
            if isinstance(result, GivenUpError) and used.at:
                used.given_up = True
                self._held[used.at], self._reader = used, used.anew()
                log.warning("cgroup=quarantined path=%s why='a call hangs in the kernel'", used.at)
            self._busy = False
            return  # the lane has reported it; readings grow stale and say so
        if result.capacity is not None and result.capacity != self._last:
            self._last = result.capacity
            self._tell(result.capacity)
        self._tell_on(result, as_of, iter(result.readings.items()))

    def _tell_on(self, result: Pass, as_of: int, left: Iterator[tuple[str, MiscReading]]) -> None:
        """Tells what is `left` of a pass, in as many turns of the loop as it takes. What is known may change between
        two of them, so the last one looks at everything again. No pass begins before that."""
        part = dict(islice(_changed(left, self._known()), MOST_TOLD))
        if len(part) == MOST_TOLD:
            asyncio.get_running_loop().call_soon(self._tell_on, result, as_of, left)
            self._tell(Sampled(part, as_of))
            return
        self._busy = False
        self._tell(news(result, as_of, self._known()))

    def _released(self, used: Reader) -> None:
        for path in [path for path, by in self._held.items() if by is used]:
            log.warning("cgroup=released path=%s", path)
            del self._held[path]
        self._lane.submit("descriptors", used.close, lambda _: None)


class _Searches:
    """One search of the finder after another."""

    def __init__(self, lane: Lane, finder: Finder, tell: ports.Tell) -> None:
        self._lane, self._finder, self._tell = lane, finder, tell
        self._busy = False

    def begin(self, scope: Callable[[], Scope], seq: ports.Sequence) -> None:
        """Starts a search unless one is under way, or makes no sense now."""
        if self._busy or not (now := scope()).search:
            return
        finder = self._finder
        job = partial(finder.find, now.pods, now.is_known)
        self._busy = self._lane.submit("search", job, partial(self._done, seq(), finder), finder.released)

    def _done(self, as_of: int, used: Finder, result: tuple[FoundCgroup, ...] | BaseException) -> None:
        self._busy = False
        if isinstance(result, GivenUpError) and used.at:
            self._finder = used.anew()
            log.warning("cgroup=not-searched path=%s why='a call hangs in the kernel'", used.at)
        elif not isinstance(result, BaseException) and result:
            self._tell(CgroupsFound(result, as_of))


def news(result: Pass, as_of: int, known: Mapping[str, MiscReading]) -> Sampled:
    """The event for a reader who knows these readings, of a pass that began at `as_of`."""
    read, gone = result.readings, result.gone
    seen = dict.fromkeys((*read, *gone))
    unread = tuple(path for path in known if path not in seen)
    return Sampled(dict(_changed(read.items(), known)), as_of, gone, rest_same=True, unread=unread)


def _changed(
    read: Iterable[tuple[str, MiscReading]], known: Mapping[str, MiscReading]
) -> Iterator[tuple[str, MiscReading]]:
    for path, reading in read:
        before = known.get(path)
        if before is not reading and before != reading:  # the reader keeps what says the same
            yield path, reading


async def run(
    lane: Lane,
    reader: Reader,
    finder: Finder,
    scope: Callable[[], Scope],
    known: Known,
    tell: ports.Tell,
    seq: ports.Sequence,
    clock: Clock,
    period_s: float,
    leftovers: V1Cleanup | None = None,
) -> None:
    """Samples once a period until cancelled. A pass that has not come back yet is waited for, never doubled.

    `known` are the readings that whoever hears `tell` has, asked for when a pass has come back."""
    passes, searches = _Passes(lane, reader, leftovers, known, tell), _Searches(lane, finder, tell)
    while True:
        passes.begin(scope, seq)
        searches.begin(scope, seq)
        await clock.sleep(period_s)
