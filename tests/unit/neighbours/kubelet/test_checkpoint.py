"""The reader of kubelet's checkpoint, told when it changes and only then; and a rival who offers the same name."""

import asyncio
import contextlib
import dataclasses
import errno
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from nodeward.core.events import Event, KeysHeld
from nodeward.core.workload import PodUid
from nodeward.host.hostfs import OsFiles
from nodeward.host.lanes import GivenUpError
from nodeward.neighbours.formats.kube_node import OnNode
from nodeward.neighbours.kubelet import checkpoint, checkpoint_file
from nodeward.neighbours.kubelet.checkpoint import CheckpointFile, CheckpointPoll, CheckpointReader
from nodeward.neighbours.kubelet.checkpoint_file import PLACE, Data, checksum
from nodeward.neighbours.kubelet.folder import Around, Folder, Offering, of_status, rival
from nodeward.neighbours.kubelet.plugin import SETTLED_S, Published
from tests.lanes import InlineLane
from tests.rigs.turned import TurnedClock
from tests.unit.features.build import SECOND, ManualClock
from tests.unit.formats import checkpoints

TDX = "devices.kubevirt.io/tdx"


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    (tmp_path / "device-plugins").mkdir()
    return tmp_path / "device-plugins" / "kubelet_internal_checkpoint"


def write(path: Path, *ids: str) -> None:
    registered = {TDX: ["tdx0", "tdx1"], "other/x": ["x"]}
    path.write_bytes(checkpoints.file([checkpoints.entry("a", {"-1": ids}, TDX)], registered))


def reader_of(path: Path) -> CheckpointReader:
    return CheckpointReader(CheckpointFile(OsFiles(), str(path.parent.parent), [TDX]))


def test_what_kubelet_has_handed_out_is_told_when_it_has_changed(path: Path) -> None:
    write(path, "tdx0")
    before = path.stat()
    reader = reader_of(path)
    registered = {TDX: ("tdx0", "tdx1")}
    assert reader.look(7) == KeysHeld(7, {PodUid("a"): {TDX: ("tdx0",)}}, registered)
    assert reader.look(8) is None
    write(path, "tdx1")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_ino == before.st_ino
    assert reader.look(9) == KeysHeld(9, {PodUid("a"): {TDX: ("tdx1",)}}, registered)


def test_a_file_that_is_not_there_yet_or_named_nobody_is_no_fault(path: Path) -> None:
    reader = reader_of(path)
    assert reader.look(1) == KeysHeld(1)
    assert reader.look(2) is None
    path.write_bytes(checkpoints.file([], {TDX: ["tdx0"]}))
    assert reader.look(3) == KeysHeld(3, {}, {TDX: ("tdx0",)})
    path.unlink()
    path.parent.rmdir()
    assert reader.look(4) == KeysHeld(4)


def test_a_file_that_named_pods_and_is_gone_is_a_fault_until_it_is_there_again(path: Path) -> None:
    reader = reader_of(path)
    write(path, "tdx0")
    assert reader.look(1) is not None
    path.unlink()
    assert reader.look(2) == KeysHeld(
        2, fault=f"{path} was there and is gone; kubelet writes it anew at its next change"
    )
    assert reader.look(3) is None
    write(path, "tdx0")
    found = reader.look(4)
    assert found is not None
    assert (found.fault, found.pods) == ("", {PodUid("a"): {TDX: ("tdx0",)}})


def test_what_cannot_be_read_is_told_once_with_the_reason(path: Path) -> None:
    path.write_text('{"Data": tdx')
    reader = reader_of(path)
    found = reader.look(1)
    assert found is not None
    assert str(path) in found.fault
    assert (found.pods, reader.look(2)) == ({}, None)
    path.unlink()
    path.mkdir()
    assert reader.look(3) == KeysHeld(3, fault=f"{path} cannot be read: {os.strerror(errno.EISDIR)}")
    path.rmdir()
    write(path, "tdx0")
    assert (found := reader.look(4)) is not None
    assert not found.fault


class Told:
    """A poll whose lane waits to be drained, and whose core only counts."""

    def __init__(self, path: Path, awaits: Callable[[], bool] = lambda: False) -> None:
        self.events: list[KeysHeld] = []
        self.lane, self.seq = InlineLane(), 0
        self.clock = TurnedClock(self.lane)
        self.reader = reader_of(path)
        self.poll = CheckpointPoll(self.lane, self.reader, self.tell, lambda: self.seq, self.clock, awaits)

    def tell(self, event: Event) -> int:
        assert isinstance(event, KeysHeld)
        self.events.append(event)
        self.seq += 1
        return self.seq

    def seconds(self, count: int) -> None:
        self.clock.turns = count
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self.poll.run())

    async def asked(self) -> str:
        self.seq += 1
        asked = asyncio.ensure_future(self.poll.fetch("tdx"))
        for _ in range(5):
            await asyncio.sleep(0)
            self.lane.drain()
        return await asked


def test_a_read_that_hangs_is_told_and_not_doubled_and_its_content_is_told_after_it(path: Path) -> None:
    write(path, "tdx0")
    told = Told(path)
    told.reader.look(0)
    told.reader.reading = True
    for _ in range(2):
        told.poll._landed(0, GivenUpError("checkpoint"))
    told.seconds(3)
    assert [event.fault for event in told.events] == [f"{path}: reading it hangs: its disk does not answer"] * 2
    told.reader.reading = False
    told.seconds(3)
    assert [(event.fault, event.pods) for event in told.events[2:]] == [("", {PodUid("a"): {TDX: ("tdx0",)}})]


@pytest.mark.parametrize(("awaits", "count"), [(False, 1), (True, 5)])
def test_a_view_that_agrees_is_told_every_two_seconds_while_one_waits(path: Path, awaits: bool, count: int) -> None:
    write(path, "tdx0")
    told = Told(path, lambda: awaits)
    told.seconds(10)
    assert len(told.events) == count
    assert len({repr(event.pods) for event in told.events}) == 1
    assert sorted({event.as_of for event in told.events}) == list(range(count))


def test_who_asks_has_told_what_the_file_says_now_whether_or_not_it_is_new(path: Path) -> None:
    write(path, "tdx0")
    told = Told(path)
    assert [asyncio.run(told.asked()), asyncio.run(told.asked())] == ["", ""]
    first, second = told.events
    assert (first.as_of, second.as_of) == (1, 3)
    assert second == dataclasses.replace(first, as_of=3)
    path.write_bytes(b"garbage")
    assert str(path) in asyncio.run(told.asked())
    assert told.events[-1].fault


def test_a_read_that_began_before_the_question_does_not_answer_it(path: Path) -> None:
    """Given a read under way that has seen the old file, then what is told first is followed by the new file."""

    async def story(told: Told) -> None:
        told.poll._begin(anyway=False)
        told.seq += 1
        asked = asyncio.ensure_future(told.poll.fetch("tdx"))
        await asyncio.sleep(0)
        assert told.lane.drain(1) == 1
        await asyncio.sleep(0)
        assert not asked.done()
        write(path, "tdx1")
        assert told.lane.drain() == 1
        assert await asked == ""

    write(path, "tdx0")
    told = Told(path)
    asyncio.run(story(told))
    assert [event.pods[PodUid("a")][TDX] for event in told.events] == [("tdx0",), ("tdx1",)]


def test_a_question_while_a_read_hangs_is_answered_in_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FRESH_S", 0.02)
    told = Told(path)
    told.reader.reading = True
    assert asyncio.run(told.asked()) == f"{path}: reading it hangs: its disk does not answer"
    assert told.poll._asking == []


def test_what_is_told_says_when_its_read_began(path: Path) -> None:
    write(path, "tdx0")
    told = Told(path)
    told.poll._begin(anyway=True)
    began_ns = told.clock.ns
    told.clock.ns += 20_000_000_000
    assert told.lane.drain() == 1
    assert [event.read_ns for event in told.events] == [began_ns]


RIVALS = Offering("tdx", "devices.kubevirt.io/tdx", "tdx-key-")
OWN = "example.com/tdx"
OURS, THEIRS = ("tdx-key-0000", "tdx-key-0001"), ("tdx0", "tdx1")


@pytest.fixture(name="home")
def _home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kub") as folder:
        for name in ("device-plugins", "plugins_registry"):
            (Path(folder) / name).mkdir()
        yield Path(folder)


def registered(home: Path, ids: tuple[str, ...], resource: str = RIVALS.resource) -> None:
    data = Data(None, {resource: ids, "example.com/other": ("other0",)})
    (home / PLACE).write_bytes(msgspec.json.encode({"Data": data, "Checksum": checksum(data)}))


def listening(home: Path, name: str, stack: ExitStack) -> None:
    one = stack.enter_context(socket.socket(socket.AF_UNIX))
    one.bind(str(home / name))
    one.listen()


def left(home: Path, name: str) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(home / name))


def folder_of(home: Path, offering: Offering = RIVALS, root: Path | None = None) -> Folder:
    return Folder(str(home), str(root or home), offering, CheckpointFile(OsFiles(), str(home), [offering.resource]))


def who(home: Path, offering: Offering = RIVALS, own: str = "") -> str:
    return rival(offering, folder_of(home, offering).around(own))


def test_a_hundred_deaf_sockets_are_seen_to_listen_without_a_wait(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        for number in range(100):
            name = f"device-plugins/busy-{number}.sock"
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.bind(str(home / name))
            one.listen(0)
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(home / name))
        waits = list[float | None]()

        class Watched(socket.socket):
            def connect(self, address: object) -> None:
                waits.append(self.gettimeout())
                super().connect(str(address))

        monkeypatch.setattr(socket, "socket", Watched)
        around = folder_of(home).around("")
        monkeypatch.undo()
    assert len(around.plugins) == 100
    assert waits == [0.0] * 100


def test_a_checkpoint_that_is_the_same_is_not_decoded_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor by the next who looks: its checksum takes 20 ms on a full node, and `keys` looks at it, and each kind
    that is offered, for as long as it is registered."""
    decode = mock.Mock(wraps=checkpoint_file.decode)
    monkeypatch.setattr(checkpoint_file, "decode", decode)
    file = CheckpointFile(OsFiles(), str(home), [RIVALS.resource])
    folder, keys = Folder(str(home), str(home), RIVALS, file), CheckpointReader(file)
    for number, ids in enumerate((OURS, THEIRS)):
        registered(home, ids)
        assert [folder.around("").registered for _ in range(3)] == [{RIVALS.resource: ids}] * 3
        assert keys.look(number) == KeysHeld(number, {}, {RIVALS.resource: ids})
    (home / PLACE).write_bytes(b"torn")
    assert [folder.around("").registered for _ in range(3)] == [None] * 3
    assert (keys.look(2) or KeysHeld(2)).fault.startswith(file.path)
    assert decode.call_count == 3
    assert caplog.text.count("checkpoint=unread") == 1
    (home / PLACE).unlink()
    assert folder.around("").registered == {}


def test_the_registry_is_below_kubelets_own_root_where_that_is_another_folder(home: Path) -> None:
    registered(home, THEIRS)
    with tempfile.TemporaryDirectory(prefix="kub") as root, ExitStack() as stack:
        (Path(root) / "plugins_registry").mkdir()
        listening(Path(root), "plugins_registry/them.sock", stack)
        assert rival(RIVALS, folder_of(home).around("")) == ""
        assert "them.sock" in rival(RIVALS, folder_of(home, root=Path(root)).around(""))


def test_nobody_is_a_rival_where_nobody_is(home: Path) -> None:
    assert who(home) == ""
    assert rival(RIVALS, folder_of(Path("/nonexistent")).around("")) == ""


@pytest.mark.parametrize("place", ["device-plugins/them.sock", "plugins_registry/them.sock"])
def test_other_ids_are_a_rivals_while_somebody_listens(home: Path, place: str) -> None:
    registered(home, THEIRS)
    with ExitStack() as stack:
        listening(home, place, stack)
        assert "2 ids of another plugin's registered (tdx0, tdx1)" in who(home)
        assert "them.sock" in who(home)
    assert who(home) == "", "who has left a socket and ids locks nobody out"


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda home: registered(home, OURS), id="ids of ours"),
        pytest.param(lambda home: registered(home, ()), id="none, as after a restart of kubelet"),
        pytest.param(lambda home: registered(home, THEIRS, OWN), id="another resource's"),
        pytest.param(lambda home: (home / PLACE).write_bytes(b"garbage"), id="garbage"),
        pytest.param(lambda home: (home / PLACE).write_bytes(b'{"Data": {}, "Checksum": 1}'), id="torn"),
    ],
)
def test_what_a_checkpoint_may_say_that_is_no_sign(home: Path, written: Callable[[Path], object]) -> None:
    written(home)
    with ExitStack() as stack:
        listening(home, "device-plugins/them.sock", stack)
        assert who(home) == ""


@pytest.mark.parametrize(
    ("registered", "after_s", "written_after_s", "may_be_ours"),
    [
        pytest.param(("tdx1",), SETTLED_S, 0.1, False, id="not all that we have"),
        pytest.param(("tdx1", "tdx3"), SETTLED_S, 0.1, True, id="all that we have, in any order"),
        pytest.param(("tdx2",), SETTLED_S, 0.1, False, id="one that is not healthy"),
        pytest.param(("tdx1",), SETTLED_S / 2, 0.1, True, id="kubelet may not have our last list yet"),
        pytest.param(("tdx1",), 10 * SETTLED_S, -0.1, True, id="kubelet has written nothing since"),
    ],
)
def test_ids_on_our_list_are_a_rivals_where_our_last_list_would_be_others(
    registered: tuple[str, ...], after_s: float, written_after_s: float, may_be_ours: bool
) -> None:
    """Given ids of a rival's on our list, since pods still have them, and no healthy one of our own."""
    clock = ManualClock()
    published = Published(clock)
    published.sends((("tdx3", True), ("tdx1", True), ("tdx2", False), ("tdx-key-0000", False)))
    written_ns = clock.wall_ns() + int(written_after_s * SECOND)
    clock.ns += int(after_s * SECOND)
    around = Around(("them.sock",), (), {RIVALS.resource: registered}, written_ns)
    said = rival(RIVALS, around, published.may_have_registered(registered, written_ns))
    assert (said == "") is may_be_ours


def test_kubevirts_own_socket_is_a_rival_before_it_has_registered(home: Path) -> None:
    left(home, "device-plugins/kubevirt-tdx.sock")
    assert who(home) == ""
    (home / "device-plugins/kubevirt-tdx.sock").unlink()
    with ExitStack() as stack:
        listening(home, "device-plugins/kubevirt-tdx.sock", stack)
        listening(home, "device-plugins/kubevirt-kvm.sock", stack)
        assert who(home) == "KubeVirt's own device plugin listens at kubevirt-tdx.sock"
        assert who(home, Offering("tdx", OWN, "tdx-key-")) == "", "another name is another resource"
        assert who(home, Offering("sev_es", "devices.kubevirt.io/sev-esids", "sev-es-key-")) == ""


def test_another_nodeward_is_a_rival_while_it_lives_and_what_a_dead_one_left_is_taken_away(home: Path) -> None:
    left(home, "device-plugins/nodeward-tdx-1.sock")
    left(home, "device-plugins/nodeward-sev_es-1.sock")
    with ExitStack() as stack:
        listening(home, "device-plugins/nodeward-tdx-2.sock", stack)
        listening(home, "device-plugins/nodeward-sev_es-2.sock", stack)
        assert who(home) == "another nodeward listens at nodeward-tdx-2.sock"
        assert who(home, own="nodeward-tdx-2.sock") == ""
    found = sorted(path.name for path in (home / "device-plugins").iterdir())
    assert found == ["nodeward-sev_es-1.sock", "nodeward-sev_es-2.sock", "nodeward-tdx-2.sock"]


def test_what_the_nodes_status_has_and_no_plugin_ever_had_is_somebodys(home: Path) -> None:
    def found() -> str:
        return of_status(RIVALS, folder_of(home).around(""), OnNode(3))

    assert "the node's status has 3 of it" in found()
    registered(home, THEIRS, "example.com/tdx")
    assert "somebody writes it there; if its author is gone, an administrator has to take it out" in found()
    registered(home, ())
    assert found() == "", "a plugin's, that has gone; kubelet takes it back"
    (home / PLACE).write_bytes(b"garbage")
    assert found() == "", "nobody knows whose"


@pytest.mark.parametrize(
    ("there", "is_somebodys"),
    [
        pytest.param(OnNode(), False, id="nothing"),
        pytest.param(OnNode(0, "kubelet", by_kubelet=True), False, id="what kubelet leaves of a plugin that has gone"),
        pytest.param(OnNode(0, "nfd-master"), False, id="somebody's none"),
        pytest.param(OnNode(8, "kubelet", by_kubelet=True), False, id="a plugin's, ours too, before kubelet died"),
        pytest.param(OnNode(8, "nfd-master"), True, id="somebody's"),
    ],
)
def test_what_the_status_has_is_somebodys_if_kubelet_did_not_write_it(there: OnNode, is_somebodys: bool) -> None:
    """Whatever the checkpoint says: its ids may be ours, of before somebody began to write there."""
    for registered in ({}, {RIVALS.resource: OURS}, {RIVALS.resource: ()}, None):
        said = of_status(RIVALS, Around(registered=registered), there)
        assert bool(said) is is_somebodys
        assert not said or "if its author is gone, an administrator has to take it out" in said
