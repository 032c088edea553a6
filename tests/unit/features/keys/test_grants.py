"""The journal of grants: what was answered outlives any death of the daemon; what is not understood grants nothing."""

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from nodeward.core.events import Event, GrantsRecalled
from nodeward.core.modes import Mode
from nodeward.features.keys.effects.grants import BOOT as BOOT_FILE
from nodeward.features.keys.effects.grants import (
    Granted,
    Grants,
    GrantsBoot,
    Recalled,
    decode,
    encode,
    on_record,
    path_in,
    read,
)
from nodeward.features.keys.settings import KeysSettings
from nodeward.features.keys.state import Grant, Offer
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.host import journal
from nodeward.host.hostfs import HostFiles, OsFiles
from nodeward.host.journal import Journal
from nodeward.host.undo import BOOT_ID, at_once
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.lanes import InlineLane
from tests.rigs.daemon import AtOnce, folders
from tests.rigs.turned import TurnedClock

RUN, STATE = "/run/nodeward", "/var/lib/nodeward"
TDX, ESIDS = "devices.kubevirt.io/tdx", "devices.kubevirt.io/sev-esids"
SETTINGS = Settings(run_dir=RUN, state_dir=STATE, keys=KeysSettings(Mode.ENFORCE))
PATH = path_in(RUN)
BOOT = "00000000-0000-4000-8000-000000000001"
HEAD = b'{"version":1,"boot":"' + BOOT.encode() + b'"}\n'


def record(*ids: str, resource: str = TDX) -> str:
    return msgspec.json.encode({"resource": resource, "ids": ids}).decode()


def fresh() -> SimKernel:
    return folders(RUN, STATE)


def life(files: HostFiles, now: Callable[[], Granted] = dict, state: HostFiles | None = None) -> Grants:
    """A daemon's start. `state` is where its state folder is, one of its own unless that matters."""
    notes = state or fresh()
    note = GrantsBoot(notes, STATE, AtOnce(), BOOT_FILE.known(notes, STATE) or "")
    found = Grants(files, SETTINGS, Journal(files, PATH, AtOnce(), at_once), read(files, SETTINGS), note)
    found.now = now
    return found


class Ears(list[Event]):
    def __call__(self, event: Event) -> int:
        self.append(event)
        return 0


def kept(of: Grants) -> list[Event]:
    """What is told in one turn of `keep`."""
    ears = Ears()
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(of.keep(ears, TurnedClock(InlineLane(), turns=1)))
    return ears


def at_start(of: Grants) -> GrantsRecalled:
    of.recall(ears := Ears())
    (only,) = ears
    assert isinstance(only, GrantsRecalled)
    return only


def commit(of: Grants, *ids: str, resource: str = TDX) -> str:
    return asyncio.run(of.commit(record(*ids, resource=resource)))


def recalled(files: HostFiles) -> Recalled:
    return read(files, SETTINGS)


def test_grants_outlive_the_daemon_with_how_often_each_was_given() -> None:
    kernel = fresh()
    first = life(kernel)
    assert at_start(first) == GrantsRecalled()
    assert [commit(first, "a", "b"), commit(first, "b"), commit(first, "s", resource=ESIDS)] == ["", "", ""]
    assert at_start(life(kernel)) == GrantsRecalled({TDX: {"a": 1, "b": 2}, ESIDS: {"s": 1}})


@pytest.mark.parametrize("call", range(3, 9))
def test_a_full_disk_refuses_with_the_reason_and_what_is_granted_later_is_there(call: int) -> None:
    kernel = fresh()
    one = life(FaultyFiles(kernel, fail_at=call, fail_errno=errno.ENOSPC))
    whys = [commit(one, name) for name in ("a", "b", "c")]
    assert [why for why in whys if why] in ([], [f"{PATH} cannot be written: {os.strerror(errno.ENOSPC)}"])
    assert commit(one, "d") == ""
    said = {name for name, why in zip("abc", whys, strict=True) if not why} | {"d"}
    assert said <= set(recalled(kernel).granted[TDX])


class Torn(FaultyFiles):
    """Has room for half of the next line only."""

    def append(self, path: str, data: bytes, sync: bool) -> None:
        super().append(path, data[: len(data) // 2], sync)
        raise OSError(errno.EIO, "only half was written", path)


def test_after_half_a_line_the_next_record_is_whole() -> None:
    kernel = fresh()
    one = life(kernel)
    kept(one)
    one._journal._files = Torn(kernel)
    assert commit(one, "a") == f"{PATH} cannot be written: only half was written"
    assert recalled(kernel) == Recalled({}, BOOT)
    assert commit(one, "b") == ""
    assert recalled(kernel).granted[TDX]["b"] == 1


@pytest.mark.parametrize(
    ("content", "granted"),
    [
        pytest.param(HEAD + record("a").encode() + b'\n{"resou', {TDX: {"a": 1}}, id="torn tail"),
        pytest.param(HEAD + record("a").encode(), {}, id="tail without its end"),
        pytest.param(
            HEAD
            + record("a", "b").encode()
            + b'\n{"resource":"'
            + TDX.encode()
            + b'","ids":["c","b"],"released":["b"]}\n',
            {TDX: {"a": 1, "b": 1, "c": 1}},
            id="released and given again",
        ),
        pytest.param(HEAD + record("a", "a").encode() + b"\n", {TDX: {"a": 2}}, id="one id twice"),
    ],
)
def test_what_a_start_goes_by(content: bytes, granted: Granted) -> None:
    kernel = fresh()
    kernel.replace(PATH, content)
    assert recalled(kernel) == Recalled(granted, BOOT)
    one = life(kernel)
    assert commit(one, "z") == ""
    assert recalled(kernel).granted[TDX] == {**granted.get(TDX, {}), "z": 1}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b'{"version":2,"boot":"x"}\n', "is of version 2, and version 1 is understood", id="version"),
        pytest.param(b"rubbish\n", "does not begin as a journal of grants", id="no head"),
        pytest.param(HEAD + b"rubbish\n" + record("a").encode() + b"\n", "has no grant in line 2", id="rubbish inside"),
        pytest.param(HEAD + b'{"resource":"x","ids":["a"],"pod":1}\n', "has no grant in line 2", id="another field"),
        pytest.param(HEAD + b'{"resource":"x"}\n', "has no grant in line 2", id="a field less"),
        pytest.param(HEAD + b"[" * 100_000 + b"\n", "has no grant in line 2", id="deep"),
    ],
)
def test_what_is_not_understood_grants_nothing_and_stays(content: bytes, why: str) -> None:
    kernel = fresh()
    kernel.replace(PATH, content)
    one = life(kernel)
    assert at_start(one).grants == {}
    assert why in at_start(one).fault
    assert "nothing is granted until it is removed" in at_start(one).fault
    assert commit(one, "a") == at_start(one).fault
    assert kept(one) == []
    assert kernel.read(PATH, 1 << 20) == content
    kernel.unlink(PATH)
    assert kept(one) == [GrantsRecalled(lost=True)], "whatever it said is not known"
    assert commit(one, "a") == ""


def test_a_journal_that_could_not_be_read_is_told_once_it_can() -> None:
    kernel = fresh()
    assert commit(life(kernel), "a") == ""
    one = life(FaultyFiles(kernel, fail_at=2, fail_errno=errno.EIO))
    assert at_start(one) == GrantsRecalled(fault=f"{PATH} cannot be read: {os.strerror(errno.EIO)}")
    assert commit(one, "b") == at_start(one).fault
    assert kept(one) == [GrantsRecalled({TDX: {"a": 1}})]
    assert commit(one, "b") == ""
    assert recalled(kernel).granted == {TDX: {"a": 1, "b": 1}}


def test_without_a_boot_id_nothing_is_granted() -> None:
    kernel = fresh()
    kernel.unlink(BOOT_ID)
    assert "by which grants of an earlier boot are told, cannot be read" in at_start(life(kernel)).fault


def test_the_journal_is_not_touched_where_no_keys_can_be_offered() -> None:
    files = FaultyFiles(fresh())
    settings = replace(SETTINGS, keys=KeysSettings(Mode.OBSERVE))
    assert read(files, settings) == Recalled(fault="the settings offer no keys")
    assert files.total == 0


def test_a_grant_that_is_over_leaves_the_file_within_a_turn() -> None:
    kernel, now = fresh(), dict[str, dict[str, int]]()
    one = life(kernel, lambda: now)
    assert [commit(one, "a"), commit(one, "b"), commit(one, "s", resource=ESIDS)] == ["", "", ""]
    now[TDX] = {"b": 1}
    assert kept(one) == []
    assert recalled(kernel).granted == {TDX: {"b": 1}, ESIDS: {"s": 1}}
    files = one._journal._files = FaultyFiles(kernel)
    kept(one)
    assert dict(files.calls) == {"stat": 1}, "whether somebody has removed it"


def test_a_long_file_is_written_anew_before_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_LINES", 20)
    kernel, now = fresh(), dict[str, dict[str, int]]()
    one = life(kernel, lambda: now)
    for number in range(100):
        now[TDX] = {str(number): 1}
        assert commit(one, str(number)) == ""
        assert kernel.read(PATH, 1 << 20).count(b"\n") <= 20
    assert "99" in recalled(kernel).granted[TDX]


def test_what_is_written_is_what_is_read() -> None:
    granted = {TDX: {"a": 3, "b": 1, "c": 2}, ESIDS: {}, "x": {"é\n": 1}}
    assert decode(encode(granted, "boot"), "boot") == {TDX: granted[TDX], "x": granted["x"]}
    assert decode(encode(granted, "boot"), "later") is None


def test_own_grants_are_to_be_there_and_what_only_kubelet_tells_is_not() -> None:
    offers = {
        "tdx": Offer(8, {"a": Grant(1, 7, 1, recorded=2), "gone": Grant(1, 7, 0), "kubelets": Grant(1, 0)}),
        "odd": Offer(1),
    }
    state = State(settings=SETTINGS.engine)
    assert on_record(replace(state, keys=replace(state.keys, offers=offers))) == {TDX: {"a": 2, "gone": 1}}


class Host(OsFiles):
    """The machine's own files, beneath a folder, with a boot id."""

    def __init__(self, root: Path) -> None:
        (root / RUN[1:]).mkdir(parents=True)
        (root / BOOT_ID[1:]).parent.mkdir(parents=True)
        (root / BOOT_ID[1:]).write_text(f"{BOOT}\n")
        super().__init__(str(root))
        self.hangs = threading.Event()
        self.hangs.set()

    def append(self, path: str, data: bytes, sync: bool) -> None:
        self.hangs.wait(60)
        super().append(path, data, sync)


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_is_no_file_refuses_at_once(kind: str, tmp_path: Path) -> None:
    files = Host(tmp_path)
    place = tmp_path / PATH[1:]
    if kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    one = life(files)
    assert commit(one, "a").startswith(f"{PATH} cannot be read: ")
    (place.unlink if kind == "fifo" else place.rmdir)()
    assert kept(one) == [GrantsRecalled(lost=True)]


def test_writes_that_keep_failing_are_told_and_one_alone_is_not(tmp_path: Path) -> None:
    """What is told withdraws every free id; the Allocate that one write fails is refused by itself."""
    files = Host(tmp_path)
    one = life(files)
    (tmp_path / RUN[1:]).rmdir()
    gone = f"{PATH} cannot be written: {os.strerror(errno.ENOENT)}"
    assert commit(one, "a") == gone
    assert kept(one) == []
    assert kept(one) == [GrantsRecalled(fault=gone)]
    assert kept(one) == []
    (tmp_path / RUN[1:]).mkdir()
    assert kept(one) == [GrantsRecalled()]
    (tmp_path / PATH[1:]).unlink()
    (tmp_path / RUN[1:]).rmdir()
    assert kept(one) == []


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="removed"),
        pytest.param(b"", id="empty"),
        pytest.param(HEAD[:-1], id="head unfinished"),
        pytest.param(b'{"version":1,"boot":"other"}\nrubbish\n', id="another boot"),
    ],
)
def test_a_first_start_since_the_boot_has_no_grants_and_has_lost_none(content: bytes | None) -> None:
    for noted in ("", "11111111-0000-4000-8000-000000000001"):
        kernel = fresh()
        if content is not None:
            kernel.replace(PATH, content)
        if noted:
            GrantsBoot(kernel, STATE, AtOnce()).note(noted)
        assert recalled(kernel) == Recalled({}, BOOT, missing=True)
        one = life(kernel, state=kernel)
        assert at_start(one) == GrantsRecalled()
        assert commit(one, "z") == ""
        assert recalled(kernel).granted == {TDX: {"z": 1}}


@pytest.mark.parametrize(
    "note",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"v":1}', id="a field less"),
        pytest.param(b"[" * 4000, id="deep"),
        pytest.param(b'{"v":1,"holds":"' + BOOT.encode() + b'"}' + b" " * 5000, id="long"),
        pytest.param(b'{"v":2,"holds":"' + BOOT.encode() + b'"}', id="another version"),
    ],
)
def test_an_unknown_note_makes_a_first_start_and_is_written_anew(note: bytes, caplog: pytest.LogCaptureFixture) -> None:
    kernel = fresh()
    kernel.replace(BOOT_FILE.path_in(STATE), note)
    one = life(kernel, state=kernel)
    assert at_start(one) == GrantsRecalled()
    assert f"grants-boot=ignored path={BOOT_FILE.path_in(STATE)}" in caplog.text
    for _ in range(2):
        kept(one)
    assert BOOT_FILE.known(kernel, STATE) == BOOT


def test_a_note_that_cannot_be_written_stops_no_grant_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    kernel = fresh()
    state = FaultyFiles(kernel, fail_at=2, fail_errno=errno.EROFS)
    one = life(kernel, state=state)
    for _ in range(2):
        assert kept(one) == []
    assert BOOT_FILE.known(kernel, STATE) is None
    assert commit(one, "a") == ""
    kept(one)
    kept(one)
    assert BOOT_FILE.known(kernel, STATE) == BOOT
    assert caplog.text.count("grants-boot=not-written") == 1


def test_a_journal_that_is_removed_from_under_a_daemon_is_back_within_a_turn(caplog: pytest.LogCaptureFixture) -> None:
    """Though nobody asks for a grant: else this life's grants would be lost with it."""
    kernel = fresh()
    one = life(kernel, lambda: {TDX: {"a": 1}})
    assert commit(one, "a") == ""
    assert kept(one) == []
    for spoils in ("removes", "changes"):
        caplog.clear()
        if spoils == "removes":
            kernel.unlink(PATH)
        else:
            kernel.append(PATH, b"rubbish", sync=False)
        assert kept(one) == []
        assert recalled(kernel) == Recalled({TDX: {"a": 1}}, BOOT)
        assert f"grants=written-anew path={PATH}" in caplog.text
    caplog.clear()
    assert kept(one) == []
    assert caplog.text == ""


def test_a_record_that_was_written_for_nobody_leaves_the_file_within_a_turn() -> None:
    kernel = fresh()
    one = life(kernel, lambda: {TDX: {}})
    kept(one)
    lane = one._journal._lane = InlineLane()

    async def story() -> None:
        asked = asyncio.ensure_future(one.commit(record("a")))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait({asked})
        assert lane.drain() == 1

    asyncio.run(story())
    assert recalled(kernel).granted == {TDX: {"a": 1}}
    one._journal._lane = AtOnce()
    kept(one)
    assert recalled(kernel).granted == {}
