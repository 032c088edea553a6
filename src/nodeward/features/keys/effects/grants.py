"""The grants of TEE keys, written down before kubelet is answered, so that they outlive this process.

The answer waits for one line in `<run_dir>/grants.journal`, which a start reads before anybody may ask. The first line
is `{"version": 1, "boot": ...}`; each other one is a record of `keys`, `{"resource": ..., "ids": [...]}`: these ids
were given to one pod more. With `"released": [...]` those ids had been given back by then.

The file may say more than was granted (a record whose answer never came, an id that is free again), never less; once a
second it is compared with what `keys` has, and written anew where it differs. What is not understood is not
guessed: then nothing is granted, and `keys` is told why. It is told too of a journal that was lost
(features.keys.effects.grants_boot); while it finds out what was granted nothing is written, so that a start in between
tells the same.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from nodeward.core.events import GrantsRecalled
from nodeward.core.modes import Mode
from nodeward.core.ports import Tell
from nodeward.features.keys.sums import is_tracked
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.journal import Journal, Written
from nodeward.host.lanes import Lane
from nodeward.host.state_file import StateFile
from nodeward.host.undo import BOOT_ID, boot_id

log = logging.getLogger(__name__)
BOOT = StateFile("grants.boot", str, "grants-boot", 4096)
"""The boot in which a journal was begun last."""


class GrantsBoot:
    """Keeps `BOOT`. Belongs to the loop's thread."""

    def __init__(self, files: HostFiles, folder: str, lane: Lane, boot: str = "") -> None:
        self.boot = boot
        """What it says, or is to say as soon as it can be written."""
        self._file, self._lane = BOOT.writer(files, folder), lane
        self._written, self._busy, self._failing = boot, False, False

    def note(self, boot: str) -> None:
        """A journal of this boot is there. What could not be written is tried again at the next call."""
        self.boot = boot
        if self._busy or self._written == boot:
            return
        self._busy = True
        if not self._lane.submit("grants-boot", partial(self._file.replace, boot), partial(self._landed, boot)):
            self._busy = False

    def _landed(self, boot: str, result: object) -> None:
        self._busy = False
        if not isinstance(result, BaseException):
            self._written, self._failing = boot, False
        elif not self._failing:
            self._failing = True
            log.warning("grants-boot=not-written path=%s error=%s", self._file.path, result)


VERSION = 1
MAX_BYTES = 4 * 1024 * 1024
EVERY_S = 1.0
LATE_S = 0.15
"""So long a record may take; `Allocate` has 400 ms."""

Granted = Mapping[str, Mapping[str, int]]
"""By resource: each id that was granted, with how many times."""


class _Head(msgspec.Struct, frozen=True):
    version: int
    boot: str


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resource: str
    ids: tuple[str, ...]
    released: tuple[str, ...] = ()


_head, _record = msgspec.json.Decoder(_Head), msgspec.json.Decoder(_Record)


@dataclass(frozen=True, slots=True)
class Recalled:
    """What the journal said, or in `fault` why it cannot be gone by."""

    granted: Granted = field(default_factory=dict)
    boot: str = ""
    fault: str = ""
    missing: bool = False
    """There is no journal of this boot: none at all, an empty one, or one of an earlier boot."""


def path_in(folder: str) -> str:
    """The journal's path in the run folder."""
    return f"{folder.rstrip('/')}/grants.journal"


def may_grant(settings: Settings) -> bool:
    """Whether keys are granted by these settings, or by what a reload may make of them."""
    keys = settings.keys
    offers = keys.mode is Mode.OBSERVE and any(map(is_tracked, keys.kinds.values()))
    return keys.mode is Mode.ENFORCE or offers


def read(files: HostFiles, settings: Settings) -> Recalled:
    """What was granted since the boot. May sleep: not for the loop's thread."""
    if not may_grant(settings):
        return Recalled(fault="the settings offer no keys")
    path = path_in(settings.run_dir)
    try:
        boot = boot_id(files)
    except OSError as error:
        return Recalled(fault=f"{BOOT_ID}, by which grants of an earlier boot are told, cannot be read: {_why(error)}")
    try:
        data = files.read(path, MAX_BYTES)
    except FileNotFoundError:
        return Recalled(boot=boot, missing=True)
    except OSError as error:
        return Recalled({}, boot, f"{path} cannot be read: {_why(error)}")
    try:
        granted = decode(data, boot)
    except ValueError as error:
        return Recalled({}, boot, f"{path} {error}: nothing is granted until it is removed")
    return Recalled(granted or {}, boot, missing=granted is None)


def decode(data: bytes, boot: str) -> Granted | None:
    """The grants of this boot; None where nothing is of this boot. ValueError with the reason where something is not
    understood; an unfinished last line was never answered, and is passed over."""
    lines = data.split(b"\n")
    del lines[-1]
    if not lines:
        return None
    try:
        head = _head.decode(lines[0])
    except msgspec.MsgspecError as error:
        raise ValueError(f"does not begin as a journal of grants: {error}") from error
    if head.version != VERSION:
        raise ValueError(f"is of version {head.version}, and version {VERSION} is understood")
    if head.boot != boot:
        return None
    found: dict[str, Mapping[str, int]] = {}
    for number, line in enumerate(lines[1:], 2):
        try:
            one = _record.decode(line)
        except msgspec.MsgspecError as error:
            raise ValueError(f"has no grant in line {number}: {error}") from error
        found[one.resource] = _after(found.get(one.resource, {}), one)
    return found


def encode(granted: Granted, boot: str) -> bytes:
    """The journal's whole content."""
    lines = [msgspec.json.encode(_Head(VERSION, boot)), *(msgspec.json.encode(one) for one in _records(granted)), b""]
    return b"\n".join(lines)


def on_record(state: State) -> Granted:
    """What the journal should say of the state of `keys`: of every resource that it may offer, the ids that it granted,
    with how many pods kubelet may name with each. The next life of the daemon knows of no pod's end yet.
    What only kubelet tells of is not, since `keys` knows by that whether an id was asked for since the boot."""
    offers, kinds = state.keys.offers, state.settings.keys.kinds
    return {
        kinds[key].publish: {name: one.recorded for name, one in offer.grants.items() if one.seq}
        for key, offer in offers.items()
        if key in kinds
    }


def _records(granted: Granted) -> Iterator[_Record]:
    for resource, ids in granted.items():
        times = 1
        while left := tuple(name for name, count in ids.items() if count >= times):
            yield _Record(resource, left)
            times += 1


def _after(ids: Mapping[str, int], one: _Record) -> dict[str, int]:
    """The grants of a resource after a record of it."""
    after = dict(ids)
    for name in one.released:
        after.pop(name, None)
    for name in one.ids:
        after[name] = after.get(name, 0) + 1
    return after


class Grants:
    """The journal of one daemon's life. `now` is what `keys` has granted, with every resource that it offers;
    `waits` whether it still finds out what was granted by a journal that was lost."""

    def __init__(
        self, files: HostFiles, settings: Settings, journal: Journal, recalled: Recalled, begun: GrantsBoot
    ) -> None:
        self._files, self._settings, self._journal, self._recalled = files, settings, journal, recalled
        self._begun = begun
        self._there: Granted = recalled.granted
        """What the file says at most."""
        self._told = recalled.fault
        self._failed = bool(recalled.fault)
        """The newest turn failed."""
        self._tried = False
        """Whether this life has written to it."""
        self.now: Callable[[], Granted] = dict
        self.waits: Callable[[], bool] = bool

    def recall(self, tell: Tell) -> None:
        """Passes the journal's content to `keys` before the first question."""
        found = self._found()
        self._say(found)
        tell(found)

    async def commit(self, record: str) -> str:
        """Writes a record down; why that could not be, or nothing."""
        if self._recalled.fault:
            return self._recalled.fault
        try:
            one = _record.decode(record)
        except msgspec.MsgspecError as error:
            return f"keys' record {record[:80]!r} is no grant: {error}"
        due = self._due()
        ids = {**dict.fromkeys(one.ids, 1), **due.get(one.resource, {})}  # `keys` has reserved them already
        whole = {**due, one.resource: ids}
        written = Written()
        try:
            written = await self._journal.append(record.encode() + b"\n", partial(encode, whole, self._recalled.boot))
        finally:  # it may be there where that failed, and where nobody waits for it any more
            there = {**self._there, one.resource: _after(self._there.get(one.resource, {}), one)}
            self._there = whole if written.anew else there
        return self._fault(written)

    async def keep(self, tell: Tell, clock: Clock) -> None:
        """Finds out whether the file can be written, and keeps it as short as can be, until cancelled. Tells when it
        begins or ceases to be as it should. One turn that fails is not told: that would withdraw every free id, and
        each Allocate that cannot be put on record meanwhile is refused by itself."""
        while True:
            event = await self._kept()
            is_first, self._failed = bool(event.fault) and not self._failed, bool(event.fault)
            if (event.fault != self._told and not is_first) or event.grants or event.lost:
                self._told = event.fault
                self._say(event)
                tell(event)
            await clock.sleep(EVERY_S)

    async def _kept(self) -> GrantsRecalled:
        found = GrantsRecalled()
        if self._recalled.fault:
            if self._recalled.boot:
                self._begun.note(self._recalled.boot)  # one is there, whatever it says
            try:
                self._recalled = await self._journal.do(partial(read, self._files, self._settings))
            except OSError as error:
                return GrantsRecalled(fault=self._cannot("read", _why(error)))
            found = self._found()
            if found.fault or found.lost:
                return found
            self._there = found.grants
        if self.waits():
            return GrantsRecalled(fault=self._told)
        due = found.grants or self._due()
        if self._tried and due == self._there:
            if await self._journal.stands():
                self._begun.note(self._recalled.boot)
                return GrantsRecalled(fault=self._told)
            log.warning("grants=written-anew path=%s why='somebody removed or changed it'", self._journal.path)
        written = await self._journal.rewrite(partial(encode, due, self._recalled.boot))
        if written.anew:
            self._there = due
        return GrantsRecalled(found.grants, self._fault(written))

    def _found(self) -> GrantsRecalled:
        """What was read, as it is told."""
        lost = self._recalled.missing and self._begun.boot == self._recalled.boot
        return GrantsRecalled(self._recalled.granted, self._recalled.fault, lost)

    def _say(self, event: GrantsRecalled) -> None:
        if event.fault:
            log.error("grants=refused why=%r", event.fault)
        if event.lost:
            why = "one was begun since the boot, and it is gone: what kubelet names is taken for granted"
            log.warning("grants=lost path=%s why=%r", self._journal.path, why)

    def _due(self) -> Granted:
        """What the file should say: of a resource that is not offered, what it says."""
        return {**self._there, **self.now()}

    def _fault(self, written: Written) -> str:
        self._tried = not written.why_not
        return self._cannot("written", written.why_not) if written.why_not else ""

    def _cannot(self, what: str, why: str) -> str:
        return f"{self._journal.path} cannot be {what}: {why}"


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
