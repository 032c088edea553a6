"""Who else offers a resource, by what stands in kubelet's folder: real sockets, and a checkpoint with its checksum."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from nodeward.aio.hostfs import OsFiles
from nodeward.edges.kubelet.checkpoint import CheckpointFile, CheckpointReader
from nodeward.edges.kubelet.folder import Around, Folder, Offering, of_status, rival
from nodeward.edges.kubelet.plugin import SETTLED_S, Published
from nodeward.model.events import KeysHeld
from nodeward.wire import kubelet_checkpoint
from nodeward.wire.kube_node import OnNode
from nodeward.wire.kubelet_checkpoint import PLACE, Data, checksum
from tests.unit.engine.build import SECOND, ManualClock

TDX = Offering("tdx", "devices.kubevirt.io/tdx", "tdx-key-")
OWN = "example.com/tdx"
OURS, THEIRS = ("tdx-key-0000", "tdx-key-0001"), ("tdx0", "tdx1")


@pytest.fixture(name="home")
def _home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kub") as folder:
        for name in ("device-plugins", "plugins_registry"):
            (Path(folder) / name).mkdir()
        yield Path(folder)


def registered(home: Path, ids: tuple[str, ...], resource: str = TDX.resource) -> None:
    data = Data(None, {resource: ids, "example.com/other": ("other0",)})
    (home / PLACE).write_bytes(msgspec.json.encode({"Data": data, "Checksum": checksum(data)}))


def listening(home: Path, name: str, stack: ExitStack) -> None:
    one = stack.enter_context(socket.socket(socket.AF_UNIX))
    one.bind(str(home / name))
    one.listen()


def left(home: Path, name: str) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(home / name))


def folder_of(home: Path, offering: Offering = TDX, root: Path | None = None) -> Folder:
    return Folder(str(home), str(root or home), offering, CheckpointFile(OsFiles(), str(home), [offering.resource]))


def who(home: Path, offering: Offering = TDX, own: str = "") -> str:
    return rival(offering, folder_of(home, offering).around(own))


def test_a_hundred_who_take_no_connection_are_seen_to_listen_without_a_wait(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    """Nor by the next who looks: its checksum takes 20 ms on a full node, and the ledger looks at it, and each kind
    that is offered, for as long as it is registered."""
    decoded = list[bytes]()
    really = kubelet_checkpoint.decode

    def decode(
        data: bytes, resources: Iterable[str], pieces: kubelet_checkpoint.Pieces = iter
    ) -> kubelet_checkpoint.Checkpoint:
        decoded.append(data)
        return really(data, resources, pieces)

    monkeypatch.setattr(kubelet_checkpoint, "decode", decode)
    file = CheckpointFile(OsFiles(), str(home), [TDX.resource])
    folder, ledger = Folder(str(home), str(home), TDX, file), CheckpointReader(file)
    for number, ids in enumerate((OURS, THEIRS)):
        registered(home, ids)
        assert [folder.around("").registered for _ in range(3)] == [{TDX.resource: ids}] * 3
        assert ledger.look(number) == KeysHeld(number, {}, {TDX.resource: ids})
    (home / PLACE).write_bytes(b"torn")
    assert [folder.around("").registered for _ in range(3)] == [None] * 3
    assert (ledger.look(2) or KeysHeld(2)).fault.startswith(file.path)
    assert len(decoded) == 3
    assert caplog.text.count("checkpoint=unread") == 1
    (home / PLACE).unlink()
    assert folder.around("").registered == {}


def test_the_registry_is_below_kubelets_own_root_where_that_is_another_folder(home: Path) -> None:
    registered(home, THEIRS)
    with tempfile.TemporaryDirectory(prefix="kub") as root, ExitStack() as stack:
        (Path(root) / "plugins_registry").mkdir()
        listening(Path(root), "plugins_registry/them.sock", stack)
        assert rival(TDX, folder_of(home).around("")) == ""
        assert "them.sock" in rival(TDX, folder_of(home, root=Path(root)).around(""))


def test_nobody_is_a_rival_where_nobody_is(home: Path) -> None:
    assert who(home) == ""
    assert rival(TDX, folder_of(Path("/nonexistent")).around("")) == ""


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
    around = Around(("them.sock",), (), {TDX.resource: registered}, written_ns)
    said = rival(TDX, around, published.may_have_registered(registered, written_ns))
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
        return of_status(TDX, folder_of(home).around(""), OnNode(3))

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
    for registered in ({}, {TDX.resource: OURS}, {TDX.resource: ()}, None):
        said = of_status(TDX, Around(registered=registered), there)
        assert bool(said) is is_somebodys
        assert not said or "if its author is gone, an administrator has to take it out" in said
