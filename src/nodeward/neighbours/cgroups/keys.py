"""Reads the counters of TEE keys: the node's often, every pod's when the node's changed or after two seconds.

The kernel notifies nobody of `misc.current`, so the root's is read ten times a second (one pread(2)). It alone is not
enough: one VM that ends and a foreign one that begins leave it unchanged. A full sample is one job on its lane
and reads root, pods, root, pods, in this order (see `features.keys.rule` for why). Where the pods hold less than the
root, the rest is looked for in the other cgroups, from the root down, and only where something is charged. Who asks for
a sample does not wait for that where root and pods hold what they held when it was last looked for: how much is foreign
is known without it, and whose it is, is looked for anew with each sweep.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice

from nodeward.core import ports
from nodeward.core.errors import WireError
from nodeward.core.events import HeldElsewhere, KeysRead
from nodeward.core.workload import PodUid
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, Lane
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.formats import cgroup_paths, misc_files

log = logging.getLogger(__name__)
LOOK_S = 0.1
"""At most so long after foreign use has moved the root's counter the next look begins; published is what follows from
it in under half a second, with what the lane does meanwhile. A look costs one pread(2), and two threads' waking."""
SWEEP_S = 2.0
"""At most so long, and one LOOK_S, after the last sample with all that is told has landed the next one begins."""
FRESH_S = 7.5
"""So long who asks for a sample waits for it, unless it has less time: less than a start does, so that it hears why
there was none, and longer than a lane takes to give up a call that hangs."""
MAX_FOLDERS = 4096
"""So many cgroups are looked at in one search for foreign use; the rest stays unattributed."""
MAX_ELSEWHERE = 256
_GONE = (errno.ENOENT, errno.ENODEV)
_ROOM = misc_files.MAX_BYTES + 1

Homes = Mapping[PodUid, str]
"""The cgroup of each known pod."""
Amounts = Mapping[str, int]
Basis = tuple[Sequence[Amounts], Mapping[str, Amounts]]
"""What root and pods hold, the latter by cgroup."""
_NONE: Amounts = {}


class KeyReader:
    """Reads `misc.current` of the root and the pods on open descriptors. Synchronous; belongs to one thread at a
    time."""

    def __init__(self, files: HostFiles, tree: Tree, kubelet_root: str = "/") -> None:
        """`kubelet_root`: the setting `cgroups.kubelet_root`."""
        self._files, self._tree, self._kubelet_root = files, tree, kubelet_root
        self._handles: dict[str, int] = {}
        self._last: Amounts | None = None
        self._avoided: dict[str, None] = {}
        self._hung_at = self._at = ""
        self._found: tuple[Basis, tuple[HeldElsewhere, ...]] | None = None
        self.searched = True
        """Whether what the last sample tells of others than the pods was looked for with it."""
        self._batch: tuple[Sequence[str], Sequence[bytes | None]] = (), ()
        """Cgroups that are read one after the other, and what those say that have been."""

    @property
    def at(self) -> str:
        """The cgroup that is being read, empty for none; any thread may ask."""
        paths, found = self._batch
        done = len(found)
        return paths[done] if done < len(paths) else self._at

    def anew(self) -> "KeyReader":
        """Another one without descriptors, which leaves out the cgroup at which this one hangs until it is closed."""
        other = KeyReader(self._files, self._tree, self._kubelet_root)
        other._avoided = self._avoided
        self._hung_at = self.at
        self._avoided[self._hung_at] = None
        return other

    def look(self, keys: Sequence[str], homes: Homes, due: bool, as_of: int, *, sweep: bool = True) -> KeysRead | None:
        """A full sample where one is due or the root has moved; None where nothing is new. Only with `sweep` are others
        than the pods looked for where root and pods hold what they did before."""
        try:
            if sweep:
                self._found = None
            return self._look(keys, homes, due, as_of)
        finally:
            self._at, self._batch = "", ((), ())

    def _look(self, keys: Sequence[str], homes: Homes, due: bool, as_of: int) -> KeysRead | None:
        before = self._read("/")
        if before is None:
            self._last = None
            return KeysRead(as_of, self._capacity(keys), unread=tuple(homes)) if due else None
        if not due and before == self._last:
            return None
        return self._sample(keys, homes, before, as_of)

    def close(self) -> None:
        """Gives every descriptor back, once no call hangs any more."""
        self._avoided.pop(self._hung_at, None)
        for path in list(self._handles):
            self._release(path)

    def _sample(self, keys: Sequence[str], homes: Homes, before: Amounts, as_of: int) -> KeysRead:
        known = dict.fromkeys(homes.values())
        for path in [path for path in self._handles if path not in known and path != "/"]:
            self._release(path)
        paths = list(homes.values())
        first = self._read_all(paths)
        again = self._read("/")
        second = self._read_all(paths)
        self._last = again
        roots = (before, again or _NONE)
        pods: dict[PodUid, dict[str, tuple[int, ...]]] = {}
        unread: list[PodUid] = []
        idle: bytes | None = b""
        for uid, said, later in zip(homes, first, second, strict=True):
            if said == idle == later and said is not None:
                continue  # as the pod before: most of a node's pods say the same, and hold nothing
            one, two = _amounts(said), _amounts(later)
            if one is None or two is None:
                unread.append(uid)
            elif held := [key for key in keys if one.get(key) or two.get(key)]:
                pods[uid] = {key: (one.get(key, 0), two.get(key, 0)) for key in held}
            else:
                idle = later
        # The kernel shows what it has any of, so absent is unknown, not 0; and one read does not tell what is free.
        shown = [key for key in keys if all(key in root for root in roots)]
        return KeysRead(
            as_of,
            capacity=self._capacity(keys),
            roots={key: tuple(root[key] for root in roots) for key in shown},
            pods=pods,
            unread=tuple(unread),
            elsewhere=self._elsewhere(roots, shown, pods, homes, dict.fromkeys(homes[uid] for uid in unread)),
        )

    def _capacity(self, keys: Sequence[str]) -> Amounts:
        try:
            told = misc_files.parse_whole(
                self._files.read(f"{self._tree.now.root}/misc.capacity", misc_files.MAX_BYTES)
            )
        except (OSError, WireError):
            return _NONE
        return {key: told.get(key, 0) for key in keys}

    def _elsewhere(
        self,
        roots: Sequence[Amounts],
        keys: Sequence[str],
        pods: Mapping[PodUid, Mapping[str, tuple[int, ...]]],
        homes: Homes,
        unread: Mapping[str, None],
    ) -> tuple[HeldElsewhere, ...]:
        """Who holds what the pods do not; nothing is looked for where they hold all of it."""
        root, self.searched = roots[-1], True
        by_pod = {homes[uid]: {key: min(reads) for key, reads in held.items()} for uid, held in pods.items()}
        missing = [key for key in keys if root.get(key, 0) > sum(held.get(key, 0) for held in by_pod.values())]
        if not missing:
            return ()
        basis = [{key: read.get(key, 0) for key in keys} for read in roots], by_pod
        if self._found is not None and self._found[0] == basis:
            self.searched = False
            return self._found[1]
        by_path = {**dict.fromkeys(homes.values(), _NONE), **by_pod}
        found = tuple(islice(self._walk(root, missing, by_path, unread), MAX_ELSEWHERE))
        self._found = basis, found
        return found

    def _walk(
        self, root: Amounts, keys: Sequence[str], pods: Mapping[str, Amounts], unread: Mapping[str, None]
    ) -> Iterator[HeldElsewhere]:
        """Goes down to where there is more than the pods beneath hold. What these hold was read a moment ago; what a
        pod holds whose counter cannot be read shows where it lies, and is nobody's that has gone."""
        beneath = _beneath(pods)
        todo: list[tuple[str, Amounts]] = [("", root)]
        left = MAX_FOLDERS
        while todo:
            path, held = todo.pop()
            below = dict.fromkeys(keys, 0)
            children, hidden = 0, False
            for name in self._children(path):
                if left <= 0:
                    return  # what is beside those that were read may hold the rest: it is nobody's, and no orphan's
                left -= 1
                child = f"{path}/{name}"
                amounts = pods[child] if child in pods else self._once(child)
                if amounts is None:
                    continue
                children += 1
                hidden = hidden or child in unread
                for key in keys:
                    below[key] += max(0, amounts.get(key, 0))
                known = beneath.get(child, _NONE)
                if child not in pods and any(amounts.get(key, 0) > known.get(key, 0) for key in keys):
                    todo.append((child, amounts))
            for key in keys:
                own = held.get(key, 0) - below[key]
                if own > 0:
                    pod = PodUid(cgroup_paths.pod_of(path, self._kubelet_root))
                    yield HeldElsewhere(path or "/", key, own, below=children > 0 and not hidden, pod=pod)

    def _children(self, path: str) -> list[str]:
        try:
            return self._files.listdir(f"{self._tree.now.root}{path}")
        except OSError:
            return []

    def _once(self, path: str) -> Amounts | None:
        """The counters of one cgroup; None for what is none, as most names in a cgroup's folder."""
        if path in self._avoided:
            return None
        self._at = path
        try:
            return misc_files.parse_whole(
                self._files.read(f"{self._tree.now.root}{path}/misc.current", misc_files.MAX_BYTES)
            )
        except (OSError, WireError):
            return None

    def _read(self, path: str) -> Amounts | None:
        """The counters of one cgroup, None where they cannot be read."""
        return _amounts(self._content(path))

    def _read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        """What the file of each says. A node's pods are read twice while kubelet waits for an Allocate, so nothing is
        done for each but its pread."""
        handles, pread = self._handles, self._files.pread
        found: list[bytes | None] = []
        self._batch = paths, found
        while len(found) < len(paths):
            try:
                for path in islice(paths, len(found), None):
                    found.append(pread(handles[path], _ROOM))
            except (KeyError, OSError):
                found.append(self._content(path))
        return found

    def _content(self, path: str) -> bytes | None:
        """What the file of one cgroup says. A cgroup made anew under the same name is opened anew, once."""
        if path in self._avoided:
            return None
        self._at = path
        try:
            return self._files.pread(self._handles[path], _ROOM)
        except KeyError:
            return self._opened(path)
        except OSError as error:
            self._release(path)
            return self._opened(path) if error.errno in _GONE else None

    def _opened(self, path: str) -> bytes | None:
        place = f"{self._tree.now.root}{'' if path == '/' else path}"
        try:
            self._handles[path] = self._files.open(f"{place}/misc.current")
            return self._files.pread(self._handles[path], _ROOM)
        except OSError:
            self._release(path)
            return None

    def _release(self, path: str) -> None:
        handle = self._handles.pop(path, None)
        if handle is not None:
            self._files.close(handle)


def _beneath(pods: Mapping[str, Amounts]) -> Mapping[str, Amounts]:
    """What the pods beneath each cgroup hold together."""
    found: dict[str, dict[str, int]] = {}
    for path, held in pods.items():
        above = path.rpartition("/")[0] if any(held.values()) else ""
        while above:
            sums = found.setdefault(above, {})
            for key, amount in held.items():
                sums[key] = sums.get(key, 0) + amount
            above = above.rpartition("/")[0]
    return found


@lru_cache(maxsize=1024)
def _amounts(content: bytes | None) -> Amounts | None:
    """What a file says, None where it could not be read or says nothing that is understood. Most pods' files say the
    same as each other's, and as the last time."""
    try:
        return None if content is None else misc_files.parse_whole(content)
    except WireError:
        return None


class KeyPoll:
    """Looks for `keys` ten times a second, and at once when asked. A job is never doubled: what fell due while one was
    under way begins when that has landed."""

    def __init__(
        self,
        lane: Lane,
        reader: KeyReader,
        keys: Sequence[str],
        homes: Callable[[], Homes],
        tell: ports.Tell,
        seq: ports.Sequence,
        clock: Clock,
    ) -> None:
        self._lane, self._reader, self._keys, self._homes = lane, reader, keys, homes
        self._tell, self._seq, self._clock = tell, seq, clock
        self._busy = self._missed = False
        self._swept_ns = 0
        self._asking: list[tuple[int, asyncio.Future[str]]] = []

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            if self._busy:
                self._missed = True
            else:
                self._begin(due=self._is_due() or bool(self._asking))
            await self._clock.sleep(LOOK_S)

    async def fetch(self, _: str) -> str:
        """Waits for a whole sample that began after now; why there is none, or nothing. Every kind of key is in it."""
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asking.append((self._seq(), told))
        if not self._busy:
            self._begin(due=True)
        try:
            await asyncio.wait((told,), timeout=FRESH_S)
        finally:
            self._asking = [one for one in self._asking if one[1] is not told]
        return told.result() if told.done() else f"the counters of keys are not read in time: {self._under_way()}"

    def _is_due(self) -> bool:
        return not self._swept_ns or self._clock.now_ns() - self._swept_ns >= SWEEP_S * 1e9

    def _under_way(self) -> str:
        at = self._reader.at
        return f"the read of cgroup {at} hangs" if at else "other calls on cgroups take long"

    def _begin(self, *, due: bool) -> None:
        self._missed = False
        as_of, used, began_ns = self._seq(), self._reader, self._clock.now_ns()
        job = partial(used.look, self._keys, self._homes(), due, as_of, sweep=self._is_due())
        landed = partial(self._landed, used, began_ns)
        self._busy = self._lane.submit("keys", job, landed, partial(_released, self._lane, used))

    def _landed(self, used: KeyReader, began_ns: int, result: KeysRead | BaseException | None) -> None:
        self._busy = False
        if isinstance(result, GivenUpError):
            log.warning("keys=unread path=%s why='a call hangs in the kernel'", used.at)
            self._reader = used.anew()
        elif isinstance(result, KeysRead):
            if used.searched:
                self._swept_ns = self._clock.now_ns()
            self._tell(replace(result, read_ns=began_ns))
            self._answer(result.as_of, "")
        elif isinstance(result, Exception):
            log.error("keys=unread error=%r", result)
            self._answer(self._seq(), f"reading the counters of keys failed: {result!r}")
        if any(not told.done() for _, told in self._asking):
            self._begin(due=True)
        elif self._missed:
            self._begin(due=self._is_due())

    def _answer(self, as_of: int, why: str) -> None:
        """Those who had asked when the sample began: it does not tell how it is at a later question."""
        for asked_at, told in self._asking:
            if as_of >= asked_at and not told.done():
                told.set_result(why)


def _released(lane: Lane, used: KeyReader) -> None:
    """The call that hung has come back: its descriptors go back too."""
    lane.submit("descriptors", used.close, lambda _: None)
