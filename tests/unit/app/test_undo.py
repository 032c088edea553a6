"""What outlives pods is on disk before it is changed, and uninstall takes it back."""

import contextlib
import errno
from collections.abc import Callable

import pytest

from nodeward.aio.lanes import InlineLane
from nodeward.app.goals import Slots
from nodeward.app.undo import Change, UndoList, read
from nodeward.app.uninstall import uninstall
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.model.decision import Goal, Reason, Special
from nodeward.model.settings import Settings
from nodeward.sim.faults import FaultyFiles, Stopped
from nodeward.sim.kernel import SimKernel
from tests.unit.engine.build import EPC, ManualClock

ROOT, FOLDER = "/sys/fs/cgroup", "/var/lib/nodeward"
WHY = Reason("test")
GOALS = (
    Goal("subtree:/", "+misc", WHY, undo=True),
    Goal("subtree:/kubepods", "+misc", WHY, undo=True),
    Goal(f"misc.max:{EPC}:/kubepods/pod1", "5", WHY),
)


def fresh() -> SimKernel:
    kernel = SimKernel({EPC: 9})
    kernel.make_cgroup(f"{ROOT}/kubepods/pod1")
    kernel.mkdir(FOLDER)
    return kernel


def work(files: SimKernel | FaultyFiles) -> UndoList:
    undo, lane = UndoList(files, FOLDER), InlineLane()
    Slots(lane, files, Tree(files, ROOT), undo, ManualClock()).set(GOALS)
    lane.drain()
    return undo


@pytest.mark.parametrize("call", range(1, 12))
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
    assert read(kernel, FOLDER) == [Change("subtree:/", "absent")]


def test_limits_are_taken_back_where_misc_was_on_before_us() -> None:
    """Given a runtime that switches misc on itself, then uninstall lifts our limits, leaves misc on, and asks nothing
    of limits elsewhere."""
    kernel = fresh()
    for path in ("", "/kubepods"):
        kernel.write(f"{ROOT}{path}/cgroup.subtree_control", b"+misc")
    kernel.make_cgroup(f"{ROOT}/machine")
    kernel.write(f"{ROOT}/machine/misc.max", b"sgx_epc 7")
    work(kernel)
    assert read(kernel, FOLDER) == [Change("limits:/kubepods", "max")]

    found = uninstall(Settings(), kernel)

    assert (found.done, found.failed) == (("/kubepods: limits taken back in 1 cgroup(s)",), ())
    assert kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == b"sgx_epc max\n"
    assert kernel.read(f"{ROOT}/machine/misc.max", 99) == b"sgx_epc 7\n"
    assert b"misc" in kernel.read(f"{ROOT}/kubepods/cgroup.subtree_control", 99)
    assert read(kernel, FOLDER) == []


def test_a_limit_written_while_it_was_taken_back_is_taken_back() -> None:
    kernel, lane = fresh(), InlineLane()
    slots = Slots(lane, kernel, Tree(kernel, ROOT), UndoList(kernel, FOLDER), ManualClock())
    slots.set(GOALS)
    slots.set([Goal(GOALS[2].target, Special.ABSENT, WHY)])
    lane.drain()
    assert kernel.read(f"{ROOT}/kubepods/pod1/misc.max", 99) == b"sgx_epc max\n"
    assert slots.count == 2


def test_a_limit_that_went_with_its_cgroup_needs_no_taking_back() -> None:
    kernel, lane = fresh(), InlineLane()
    slots = Slots(lane, kernel, Tree(kernel, ROOT), UndoList(kernel, FOLDER), ManualClock())
    slots.set(GOALS)
    lane.drain()
    kernel.rmdir(f"{ROOT}/kubepods/pod1")
    slots.set([Goal(GOALS[2].target, Special.ABSENT, WHY)])
    lane.drain()
    assert (slots.count, slots.unreached) == (2, 0)


def test_a_missing_cgroup_is_tried_again() -> None:
    kernel, lane, clock = SimKernel({EPC: 9}), InlineLane(), ManualClock()
    slots = Slots(lane, kernel, Tree(kernel, ROOT), UndoList(kernel, FOLDER), clock)
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

    left = uninstall(Settings(), kernel)
    assert left.failed == (
        "NodeFeature nodeward/zzz-nodeward-n1 cannot be deleted: no API server was named; delete it with kubectl",
    )
    assert read(kernel, FOLDER)

    asked: list[str] = []

    def remove(path: str) -> str:
        asked.append(path)
        return "deleted"

    assert uninstall(Settings(), kernel, remove).done == ("NodeFeature nodeward/zzz-nodeward-n1: deleted",)
    assert asked == ["nodeward/zzz-nodeward-n1"]
    assert read(kernel, FOLDER) == []
