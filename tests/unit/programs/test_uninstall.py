"""What outlives pods is on disk before it is changed, uninstall takes it back, and says what it does not take back."""

import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from nodeward.cli import uninstall as cli
from nodeward.core.decision import Goal, Special
from nodeward.core.refusal import Reason
from nodeward.features.settings import Settings
from nodeward.host.undo import BOOT_ID, Change, UndoList, read, standing
from nodeward.neighbours.cgroups import writer
from nodeward.programs.once.uninstall import uninstall
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.goals import slots_of, target
from tests.lanes import InlineLane
from tests.unit.features.build import EPC, ManualClock
from tests.unit.formats import checkpoints

ROOT, FOLDER = "/sys/fs/cgroup", "/var/lib/nodeward"
LIST = f"{FOLDER}/undo.jsonl"
BOOT, NEXT_BOOT = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))
WHY = Reason("test")
GOALS = (
    Goal(target("subtree:/"), "+misc", WHY, undo=True),
    Goal(target("subtree:/kubepods"), "+misc", WHY, undo=True),
    Goal(target(f"misc.max:{EPC}:/kubepods/pod1"), "5", WHY),
)


def fresh() -> SimKernel:
    kernel = SimKernel({EPC: 9})
    kernel.make_cgroup(f"{ROOT}/kubepods/pod1")
    kernel.mkdir(FOLDER)
    return kernel


def work(files: SimKernel | FaultyFiles) -> UndoList:
    undo, lane = UndoList(files, FOLDER, known=standing(files, FOLDER)), InlineLane()
    slots_of(lane, files, ManualClock(), undo).set(GOALS)
    lane.drain()
    return undo


def rebooted(before: SimKernel) -> SimKernel:
    """The machine after its next boot: new cgroups, and the old disk."""
    kernel = fresh()
    kernel.replace(BOOT_ID, f"{NEXT_BOOT}\n".encode())
    kernel.replace(LIST, before.read(LIST, 1 << 20))
    return kernel


def with_a_runtime_of_its_own(kernel: SimKernel) -> SimKernel:
    """Something else has switched misc on, and written a limit."""
    for path in ("", "/kubepods"):
        kernel.write(f"{ROOT}{path}/cgroup.subtree_control", b"+misc")
    kernel.make_cgroup(f"{ROOT}/machine")
    for path in ("/kubepods/pod1", "/machine"):
        kernel.write(f"{ROOT}{path}/misc.max", b"sgx_epc 7")
    return kernel


def test_a_failed_append_is_shown_and_stops_no_limit() -> None:
    kernel = fresh()
    kernel.rmdir(FOLDER)
    assert work(kernel).not_restorable == ["subtree:/", "subtree:/kubepods", "limits:/kubepods"]
    assert kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == b"sgx_epc 5\n"


def test_a_torn_line_swallows_no_later_one() -> None:
    kernel = fresh()
    kernel.append(f"{FOLDER}/undo.jsonl", b'{"v":1,"tar', True)
    UndoList(kernel, FOLDER).remember("subtree:/", "absent")
    assert read(kernel, FOLDER) == [Change("subtree:/", "absent", BOOT)]


EARLIER = "3 change(s) of an earlier boot: gone with its cgroups, nothing to take back"
LIFTED = "/kubepods: limits taken back in 1 cgroup(s)"
SWITCHED_OFF = "/kubepods: misc switched off in 1 cgroup(s); the limits below it are gone"
STORIES: dict[str, tuple[str, list[str], list[str], str, bool]] = {
    "misc was on before us": ("other work", ["limits"], [LIFTED], "max", True),
    "others after a reboot": ("work reboot other", [], [EARLIER], "7", True),
    "we again after a reboot": (
        *("work reboot work work", ["subtree", "subtree", "limits"], [EARLIER, LIFTED, SWITCHED_OFF], "", False),
    ),
    "others, then we": ("work reboot other work", ["limits"], [EARLIER], "max", True),
}
"""What is done to the node, our changes since the boot, what uninstall says (at first), the limit and whether misc is
on after it. Limits elsewhere are nobody's business."""


@pytest.mark.parametrize(("steps", "ours", "said", "limit", "on"), STORIES.values(), ids=STORIES)
def test_of_what_was_changed_since_the_boot_our_part_is_taken_back(
    steps: str, ours: list[str], said: list[str], limit: str, on: bool
) -> None:
    kernel = fresh()
    for step in steps.split():
        if step == "work":
            work(kernel)
        else:
            kernel = rebooted(kernel) if step == "reboot" else with_a_runtime_of_its_own(kernel)
    since = [change.target.partition(":")[0] for change in standing(kernel, FOLDER)]

    found = uninstall(Settings(), kernel)

    assert (since, found.done[: len(said)], found.failed) == (ours, tuple(said), ())
    if limit:
        assert kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == f"sgx_epc {limit}\n".encode()
    for path in ("", "/kubepods"):
        assert (b"misc" in kernel.read(f"{ROOT}{path}/cgroup.subtree_control", 99)) is on
    if "other" in steps:
        assert kernel.read(f"{ROOT}/machine/misc.max", 99) == b"sgx_epc 7\n"
    assert read(kernel, FOLDER) == []


def test_an_entry_without_a_boot_is_named_and_nothing_is_changed() -> None:
    kernel = with_a_runtime_of_its_own(fresh())
    for changed, old in (("subtree:/", "absent"), ("limits:/kubepods", "max")):
        kernel.append(LIST, json.dumps({"v": 1, "target": changed, "old": old}).encode() + b"\n", True)

    found = uninstall(Settings(), kernel)

    assert found.done == ()
    named = [line.partition(": the list does not say in which boot")[0] for line in found.failed]
    assert named == ["subtree:/", "limits:/kubepods"]
    assert kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == b"sgx_epc 7\n"
    assert b"misc" in kernel.read(f"{ROOT}/cgroup.subtree_control", 99)
    assert len(read(kernel, FOLDER)) == 2


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\n"], ids=["missing", "empty", "blank", "no text"])
def test_without_a_boot_id_a_change_is_not_restorable_and_nothing_is_taken_back(content: bytes | None) -> None:
    kernel = fresh()
    kernel.unlink(BOOT_ID)
    if content is not None:
        kernel.replace(BOOT_ID, content)
    undo = UndoList(kernel, FOLDER)
    undo.remember("subtree:/", "absent")
    assert (undo.not_restorable, read(kernel, FOLDER)) == (["subtree:/"], [])
    with pytest.raises(OSError, match="boot_id"):
        uninstall(Settings(), kernel)


def test_what_would_be_taken_back_is_shown_by_boot(tmp_path: Path) -> None:
    this = Path(BOOT_ID).read_text().strip()
    entries = [("subtree:/", this), ("subtree:/kubepods", BOOT), ("limits:/kubepods", "")]
    lines = [json.dumps({"v": 1, "target": target, "old": "max", "boot": boot}) for target, boot in entries]
    (tmp_path / "undo.jsonl").write_text("\n".join(lines) + "\n")
    config = tmp_path / "nodeward.yaml"
    config.write_text(json.dumps({"state_dir": str(tmp_path), "run_dir": str(tmp_path)}))

    shown = CliRunner().invoke(cli.command, ["--config", str(config)]).stdout.splitlines()

    assert shown[0] == "1 change(s) of an earlier boot: gone with its cgroups, nothing to take back"
    assert shown[1].startswith("limits:/kubepods: the list does not say in which boot")
    assert shown[2:] == ["would switch the misc controller off again below /", "with --yes it is done"]


class EndingPod(FaultyFiles):
    def __init__(self, kernel: SimKernel, call: int) -> None:
        super().__init__(kernel)
        self._kernel, self._call = kernel, call

    def _count(self, name: str, path: str) -> None:
        super()._count(name, path)
        if self.total == self._call:
            self._kernel.rmdir(f"{ROOT}/kubepods/pod1")


@pytest.mark.parametrize("call", range(1, 61))
def test_a_pod_that_ends_while_its_node_is_uninstalled_fails_nothing(call: int) -> None:
    kernel = fresh()
    work(kernel)
    kernel.write(f"{ROOT}/kubepods/pod1/cgroup.subtree_control", b"+misc")  # as the daemon does for its containers
    files = EndingPod(kernel, call)

    assert uninstall(Settings(), files).failed == ()

    assert files.total >= call, "it ended meanwhile"
    assert kernel.read(f"{ROOT}/cgroup.subtree_control", 99).strip() == b""


@pytest.mark.parametrize("gone", [False, True], ids=["while it is written", "when its cgroup is gone"])
def test_a_limit_is_taken_back(gone: bool) -> None:
    kernel, lane = fresh(), InlineLane()
    slots = slots_of(lane, kernel, ManualClock())
    slots.set(GOALS)
    if gone:
        lane.drain()
        kernel.rmdir(f"{ROOT}/kubepods/pod1")
    slots.set([Goal(GOALS[2].target, Special.ABSENT, WHY)])
    lane.drain()
    assert (slots.count, slots.unreached) == (2, 0)
    assert gone or kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == b"sgx_epc max\n"


def test_our_object_in_the_api_server_is_removed_or_named() -> None:
    kernel = fresh()
    UndoList(kernel, FOLDER).remember("nfd:nodeward/zzz-nodeward-n1", "absent")
    UndoList(kernel, FOLDER).remember("nrt:n1", "absent")

    left = uninstall(Settings(), kernel)
    assert left.failed == (
        "NodeResourceTopology n1 cannot be deleted: no API server was named; delete it with kubectl",
        "NodeFeature nodeward/zzz-nodeward-n1 cannot be deleted: no API server was named; delete it with kubectl",
    )
    assert read(kernel, FOLDER)

    asked: list[str] = []

    def remove(path: str) -> str:
        asked.append(path)
        return "deleted"

    assert uninstall(Settings(), kernel, {"nfd": remove, "nrt": remove}).done == (
        "NodeResourceTopology n1: deleted",
        "NodeFeature nodeward/zzz-nodeward-n1: deleted",
    )
    assert asked == ["n1", "nodeward/zzz-nodeward-n1"]
    assert read(kernel, FOLDER) == []


TDX, SEV = "devices.kubevirt.io/tdx", "devices.kubevirt.io/sev-esids"
KATA = "tdx.intel.com/keys"
OURS = [f"tdx-key-{number:04d}" for number in range(16)]


class Node:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plugins = folder / "kubelet" / "device-plugins"
        for made in (folder / "run", folder / "state", self.plugins):
            made.mkdir(parents=True)
        self.begun = folder / "state" / "grants.boot"
        self.journal = folder / "run" / "grants.journal"
        self.journal.write_text('{"version":1,"boot":"b"}\n')
        self.checkpoint = self.plugins / "kubelet_internal_checkpoint"
        self.configure({"resources": [TDX], "publish": TDX, "publisher": "device-plugin"})

    def configure(self, tdx: dict[str, object], mode: str = "off") -> None:
        kinds = {"tdx": tdx, "sev_es": {"resources": [SEV], "publish": SEV}}
        keys = {"kubelet_dir": str(self.folder / "kubelet"), "kinds": kinds, "mode": mode}
        places = {"state_dir": str(self.folder / "state"), "run_dir": str(self.folder / "run")}
        (self.folder / "nodeward.yaml").write_text(yaml.safe_dump(places | {"keys": keys}))

    def printed(self, *flags: str) -> list[str]:
        done = CliRunner().invoke(cli.command, ["--config", str(self.folder / "nodeward.yaml"), *flags])
        assert done.exit_code == 0, done.output
        return done.output.splitlines()

    def said(self, *flags: str) -> list[str]:
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
    node.checkpoint.write_bytes(checkpoints.file([], {TDX: OURS, SEV: ["sev0", "sev1"]}))

    assert node.said(*flags) == [
        f"kubelet has 16 healthy id(s) of {TDX} from us: `nodeward uninstall --keys --yes` takes them back "
        "while the daemon runs; else they are in the node's capacity until five minutes after its end",
        NAMED,
        node.stays(),
    ]
    assert node.journal.exists()


def test_after_decommission_only_the_name_and_the_journal_are_left(node: Node) -> None:
    assert node.said() == [NAMED, node.stays()], "as without a checkpoint"
    node.checkpoint.write_bytes(checkpoints.file([], {TDX: []}))
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
    node.configure({"resources": [TDX, KATA], "publish": TDX}, "enforce")
    assert node.said() == [], "no object of ours was written, as without NFD"
    written = {"v": 1, "target": "nfd:nodeward/zzz-nodeward-n1", "old": "absent"}
    (node.folder / "state" / "undo.jsonl").write_text(f"{json.dumps(written)}\n")

    assert node.printed() == [
        "would delete our NodeFeature object nodeward/zzz-nodeward-n1 from the API server",
        "with --yes it is done",
        f"not taken back: the node's number of {KATA} stays as we had it until NFD's master has taken it back; where "
        "NFD has gone, nodeward doctor (keys-nfd-left) says what to do",
    ]


def test_taking_back_reaches_cgroups_with_a_dot_in_their_name() -> None:
    kernel = SimKernel({"sgx_epc": 1 << 20})
    kernel.make_cgroup(f"{ROOT}/kubepods/pod1.2")
    for path in ("/", "/kubepods", "/kubepods/pod1.2"):
        writer.enable_misc(kernel, ROOT, path)

    assert writer.disable_misc(kernel, ROOT, "/") == 3
    assert not writer.subtree_has_misc(kernel, ROOT, "/")
