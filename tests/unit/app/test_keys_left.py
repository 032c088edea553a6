"""What uninstall says of the TEE keys that it does not take back, on a node whose daemon has ended."""

import json
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from nodeward.cli import uninstall
from tests.unit.wire import checkpoints

TDX, SEV = "devices.kubevirt.io/tdx", "devices.kubevirt.io/sev-esids"
KATA = "tdx.intel.com/keys"
OURS = [f"tdx-key-{number:04d}" for number in range(16)]


class Node:
    """The files that a daemon and kubelet have left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plugins = folder / "kubelet" / "device-plugins"
        for made in (folder / "run", folder / "state", self.plugins):
            made.mkdir(parents=True)
        self.begun = folder / "state" / "grants.boot"
        self.journal = folder / "run" / "grants.journal"
        self.journal.write_text('{"version":1,"boot":"b"}\n')
        self.checkpoint = self.plugins / "kubelet_internal_checkpoint"
        rows = {
            "tdx": {"resources": [TDX], "publish": TDX, "publisher": "device-plugin"},
            "sev_es": {"resources": [SEV], "publish": SEV},
        }
        settings = {
            "state_dir": str(folder / "state"),
            "run_dir": str(folder / "run"),
            "ledger": {"kubelet_dir": str(folder / "kubelet"), "keys": rows},
        }
        (folder / "nodeward.yaml").write_text(yaml.safe_dump(settings))

    def printed(self, *flags: str) -> list[str]:
        """What the command prints."""
        done = CliRunner().invoke(uninstall.command, ["--config", str(self.folder / "nodeward.yaml"), *flags])
        assert done.exit_code == 0, done.output
        return done.output.splitlines()

    def said(self, *flags: str) -> list[str]:
        """The same, where all of it is what is not taken back."""
        first, *others = self.printed(*flags)
        assert first.startswith("nothing to take back: ")
        assert all(one.startswith("not taken back: ") for one in others)
        return [one.removeprefix("not taken back: ") for one in others]

    def stays(self) -> str:
        return (
            f"{self.journal} stays, and {self.begun}: by them a daemon that comes again knows which TEE keys pods were "
            "given; a reboot voids them"
        )


NAMED = f"the node's status goes on naming {TDX}, with 0 once the ids are gone: kubelet takes no name back"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("flags", [(), ("--yes",)], ids=["asked", "done"])
def test_ids_that_kubelet_has_of_ours_are_named_with_what_takes_them_back(node: Node, flags: tuple[str, ...]) -> None:
    """Given another's ids of a second kind, then they are none of our business."""
    node.checkpoint.write_bytes(checkpoints.file([], {TDX: OURS, SEV: ["sev0", "sev1"]}))

    assert node.said(*flags) == [
        f"kubelet has 16 healthy id(s) of {TDX} from us: nodeward decommission takes them back while the daemon runs; "
        "else they are in the node's capacity until five minutes after its end",
        NAMED,
        node.stays(),
    ]
    assert node.journal.exists()


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(lambda file: None, id="no-checkpoint"),
        pytest.param(lambda file: file.write_bytes(checkpoints.file([], {TDX: []})), id="decommissioned"),
    ],
)
def test_after_decommission_only_the_name_and_the_journal_are_left(node: Node, left: Callable[[Path], object]) -> None:
    left(node.checkpoint)

    assert node.said() == [NAMED, node.stays()]


def test_a_checkpoint_that_cannot_be_read_is_told(node: Node) -> None:
    node.checkpoint.write_bytes(b"torn")

    unknown, named, stays = node.said("--yes")

    assert unknown.startswith(f"whether kubelet still has ids of ours is not known: {node.checkpoint}: ")
    assert (named, stays) == (NAMED, node.stays())


def test_nothing_is_said_where_no_daemon_could_grant_keys_since_the_boot(node: Node) -> None:
    node.journal.unlink()
    node.checkpoint.write_bytes(b"torn")

    assert node.said() == node.said("--yes") == []


@pytest.fixture
def short() -> Iterator[Node]:
    """A node in a folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="nwl") as folder:
        yield Node(Path(folder))


def test_sockets_that_a_killed_daemon_has_left_are_removed_and_nobody_elses(short: Node) -> None:
    """Given a dead socket of ours, one of ours at which another daemon listens, and another plugin's dead one."""
    short.journal.unlink()
    dead, alive, other = (short.plugins / name for name in ("nodeward-tdx-1-1.sock", "nodeward-tdx-2-1.sock", "a.sock"))
    for path in (dead, other):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(alive))
        listener.listen()
        would = [f"would remove {dead}, which a daemon that was killed has left", "with --yes it is done"]
        assert short.printed() == would
        assert short.printed("--yes") == [f"{dead}: removed, a daemon that was killed had left it"]
        assert sorted(short.plugins.iterdir()) == sorted([alive, other])
        assert short.said() == short.said("--yes") == []


def test_a_number_of_nfds_stays_until_its_master_has_passed(node: Node) -> None:
    node.journal.unlink()
    settings = yaml.safe_load((node.folder / "nodeward.yaml").read_text())
    settings["ledger"]["keys"]["tdx"] = {"resources": [TDX, KATA], "publish": TDX}
    settings["ledger"]["mode"] = "enforce"
    (node.folder / "nodeward.yaml").write_text(yaml.safe_dump(settings))
    assert node.said() == [], "no object of ours was written, as without NFD"
    written = {"v": 1, "target": "nfd:nodeward/zzz-nodeward-n1", "old": "absent"}
    (node.folder / "state" / "undo.jsonl").write_text(f"{json.dumps(written)}\n")

    assert node.printed() == [
        "would delete our NodeFeature object nodeward/zzz-nodeward-n1 from the API server",
        "with --yes it is done",
        f"not taken back: the node's number of {KATA} stays as we had it until NFD's master has taken it back; where "
        "NFD has gone, nodeward doctor (keys-nfd-left) says what to do",
    ]
