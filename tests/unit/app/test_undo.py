"""What outlives pods is on disk before it is changed, and uninstall takes it back."""

import contextlib
import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from nodeward.app.host.boot import BOOT_ID
from nodeward.app.host.undo import Change, UndoList, read, standing
from nodeward.app.tools.uninstall import uninstall
from nodeward.cli import uninstall as cli
from nodeward.doubles.kernel import SimKernel
from nodeward.model.decision import Goal, Reason, Special
from nodeward.model.settings import Settings
from tests.faults import FaultyFiles, Stopped
from tests.goals import slots_of, target
from tests.lanes import InlineLane
from tests.unit.engine.build import EPC, ManualClock

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
    kernel.write(f"{ROOT}/kubepods/pod1/misc.max", b"sgx_epc 7")
    return kernel


@pytest.mark.parametrize("call", range(1, 16))
def test_a_crash_at_any_call_leaves_nothing_changed_that_is_not_on_the_list(call: int) -> None:
    kernel = fresh()
    with contextlib.suppress(Stopped):
        work(FaultyFiles(kernel, stop_at=call))
    listed = [change.target for change in read(kernel, FOLDER)]
    for path in ("/", "/kubepods"):
        if b"misc" in kernel.read(f"{ROOT}{path.rstrip('/')}/cgroup.subtree_control", 99):
            assert f"subtree:{path}" in listed
    work(kernel)
    assert kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == b"sgx_epc 5\n"
    assert uninstall(Settings(), kernel).failed == ()
    assert kernel.read(f"{ROOT}/cgroup.subtree_control", 99).strip() == b""


def test_a_failed_append_is_shown_and_stops_no_limit() -> None:
    kernel = fresh()
    kernel.rmdir(FOLDER)
    assert work(kernel).not_restorable == ["subtree:/", "subtree:/kubepods", "limits:/kubepods"]
    assert kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == b"sgx_epc 5\n"


def test_what_could_not_be_appended_is_appended_with_the_next_entry() -> None:
    """Given a disk that was full, when there is room again, then nothing that is on the list is "not restorable"."""
    kernel = fresh()
    undo = UndoList(FaultyFiles(kernel, fail_at=1, fail_errno=errno.ENOSPC), FOLDER)
    undo.remember("subtree:/", "absent")
    assert (undo.not_restorable, read(kernel, FOLDER)) == (["subtree:/"], [])

    undo.remember("subtree:/kubepods", "absent")

    assert undo.not_restorable == []
    assert [change.target for change in read(kernel, FOLDER)] == ["subtree:/", "subtree:/kubepods"]


def test_an_entry_that_comes_late_is_on_the_list_with_those_put_off_meanwhile() -> None:
    kernel, late = fresh(), list[Callable[[], None]]()

    def within(call: Callable[[], None]) -> None:
        late.append(call)
        raise OSError(errno.ETIMEDOUT if len(late) == 1 else errno.EBUSY, "the disk hangs")

    undo = UndoList(kernel, FOLDER, within)
    undo.remember("subtree:/", "absent")
    undo.remember("subtree:/kubepods", "absent")
    undo.remember("subtree:/", "absent")
    assert undo.not_restorable == ["subtree:/", "subtree:/kubepods"]

    late[0]()

    assert undo.not_restorable == []
    assert [change.target for change in read(kernel, FOLDER)] == ["subtree:/", "subtree:/kubepods"]
    undo.remember("subtree:/", "absent")
    assert len(late) == 3, "what is on the list is not written again"


def test_a_torn_line_swallows_no_later_one() -> None:
    kernel = fresh()
    kernel.append(f"{FOLDER}/undo.jsonl", b'{"v":1,"tar', True)
    UndoList(kernel, FOLDER).remember("subtree:/", "absent")
    assert read(kernel, FOLDER) == [Change("subtree:/", "absent", BOOT)]


def test_limits_are_taken_back_where_misc_was_on_before_us() -> None:
    """Given a runtime that switches misc on itself, then uninstall lifts our limits, leaves misc on, and asks nothing
    of limits elsewhere."""
    kernel = fresh()
    for path in ("", "/kubepods"):
        kernel.write(f"{ROOT}{path}/cgroup.subtree_control", b"+misc")
    kernel.make_cgroup(f"{ROOT}/machine")
    kernel.write(f"{ROOT}/machine/misc.max", b"sgx_epc 7")
    work(kernel)
    assert read(kernel, FOLDER) == [Change("limits:/kubepods", "max", BOOT)]

    found = uninstall(Settings(), kernel)

    assert (found.done, found.failed) == (("/kubepods: limits taken back in 1 cgroup(s)",), ())
    assert kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == b"sgx_epc max\n"
    assert kernel.read(f"{ROOT}/machine/misc.max", 99) == b"sgx_epc 7\n"
    assert b"misc" in kernel.read(f"{ROOT}/kubepods/cgroup.subtree_control", 99)
    assert read(kernel, FOLDER) == []


def test_after_a_reboot_nothing_of_others_is_taken_back() -> None:
    """Given a boot in which we had switched misc on, and another in which the runtime did, then uninstall leaves what
    it finds in cgroups alone, and the list goes."""
    before = fresh()
    work(before)
    assert [change.target for change in read(before, FOLDER)] == ["subtree:/", "subtree:/kubepods", "limits:/kubepods"]
    kernel = with_a_runtime_of_its_own(rebooted(before))

    found = uninstall(Settings(), kernel)

    said = "3 change(s) of an earlier boot: gone with its cgroups, nothing to take back"
    assert (found.done, found.failed) == ((said,), ())
    assert kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == b"sgx_epc 7\n"
    for path in ("", "/kubepods"):
        assert b"misc" in kernel.read(f"{ROOT}{path}/cgroup.subtree_control", 99)
    assert read(kernel, FOLDER) == []


def test_a_daemon_that_comes_again_after_a_reboot_puts_its_changes_on_the_list_anew() -> None:
    """Given the list of an earlier boot, when the daemon switches misc on again, then that is on the list, once, and
    is taken back."""
    before = fresh()
    work(before)
    kernel = rebooted(before)
    assert standing(kernel, FOLDER) == []
    for _life in range(2):
        work(kernel)

    boots = [change.boot for change in read(kernel, FOLDER)]
    assert boots == [BOOT] * 3 + [NEXT_BOOT] * 3

    assert uninstall(Settings(), kernel).failed == ()
    assert kernel.read(f"{ROOT}/cgroup.subtree_control", 99).strip() == b""


def test_where_only_the_runtime_had_switched_misc_on_since_the_boot_our_limits_alone_are_taken_back() -> None:
    before = fresh()
    work(before)
    kernel = with_a_runtime_of_its_own(rebooted(before))
    work(kernel)
    assert standing(kernel, FOLDER) == [Change("limits:/kubepods", "max", NEXT_BOOT)]

    assert uninstall(Settings(), kernel).failed == ()

    assert kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == b"sgx_epc max\n"
    assert b"misc" in kernel.read(f"{ROOT}/cgroup.subtree_control", 99)


def test_an_entry_without_a_boot_is_named_and_nothing_is_changed() -> None:
    kernel = with_a_runtime_of_its_own(fresh())
    for changed, old in (("subtree:/", "absent"), ("limits:/kubepods", "max")):
        kernel.append(LIST, json.dumps({"v": 1, "target": changed, "old": old}).encode() + b"\n", True)

    found = uninstall(Settings(), kernel)

    assert found.done == ()
    assert [line.partition(": the list does not say in which boot")[0] for line in found.failed] == [
        "subtree:/",
        "limits:/kubepods",
    ]
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
    """Before the call of this number the pod's cgroup goes."""

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


def test_a_limit_written_while_it_was_taken_back_is_taken_back() -> None:
    kernel, lane = fresh(), InlineLane()
    slots = slots_of(lane, kernel, ManualClock())
    slots.set(GOALS)
    slots.set([Goal(GOALS[2].target, Special.ABSENT, WHY)])
    lane.drain()
    assert kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == b"sgx_epc max\n"
    assert slots.count == 2


def test_a_limit_that_went_with_its_cgroup_needs_no_taking_back() -> None:
    kernel, lane = fresh(), InlineLane()
    slots = slots_of(lane, kernel, ManualClock())
    slots.set(GOALS)
    lane.drain()
    kernel.rmdir(f"{ROOT}/kubepods/pod1")
    slots.set([Goal(GOALS[2].target, Special.ABSENT, WHY)])
    lane.drain()
    assert (slots.count, slots.unreached) == (2, 0)


def test_a_missing_cgroup_is_tried_again() -> None:
    kernel, lane, clock = SimKernel({EPC: 9}), InlineLane(), ManualClock()
    slots = slots_of(lane, kernel, clock)
    slots.set([GOALS[1]])
    lane.drain()
    assert slots.unreached == 1
    kernel.make_cgroup(f"{ROOT}/kubepods")
    kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
    clock.ns = slots.next_due_ns() or 0
    slots.run_due()
    lane.drain()
    assert slots.unreached == 0


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
