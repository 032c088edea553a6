"""Where the misc controller is found: cgroup v2, misc as a v1 hierarchy, and places that are neither."""

import errno
import os
from pathlib import Path

import pytest

from nodeward.core.cgroup import Hierarchy
from nodeward.core.decision import Goal
from nodeward.core.refusal import Reason
from nodeward.host.hostfs import OsFiles
from nodeward.host.undo import UndoList
from nodeward.host.undo import read as read_undo
from nodeward.neighbours.cgroups import writer
from nodeward.neighbours.cgroups.finder import Finder
from nodeward.neighbours.cgroups.hierarchy import Tree, find
from nodeward.neighbours.cgroups.sampler import Reader
from nodeward.neighbours.cgroups.v1_cleanup import V1Cleanup
from nodeward.neighbours.cgroups.watcher import Watcher
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.goals import slots_of, target
from tests.lanes import InlineLane
from tests.unit.features.build import ManualClock

ROOT = "/sys/fs/cgroup"
MISC = f"{ROOT}/misc"
V1 = Hierarchy(1, MISC, ROOT)
EPC = "sgx_epc"
POD = "/kubepods/pod1"
APP = f"{POD}/{'a' * 64}"


def host(folder: Path, *paths: str, mounts: str = "", controllers: str = "") -> OsFiles:
    """A host's files below `folder`, each empty."""
    texts = dict.fromkeys(paths, "") | {"proc/self/mountinfo": mounts, "proc/cgroups": controllers}
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return OsFiles(str(folder))


def mount(place: str, kind: str, options: str) -> str:
    return f"30 20 0:26 / {place} rw,nosuid shared:9 - {kind} none rw,{options}\n"


HYBRID = mount(f"{ROOT}/pids", "cgroup", "pids") + mount(f"{ROOT}/unified", "cgroup2", "nsdelegate")
KNOWN = "#subsys_name\thierarchy\tnum_cgroups\tenabled\npids\t8\t1\t1\nmisc\t0\t1\t1\n"


@pytest.fixture(name="kernel")
def _kernel() -> SimKernel:
    """Given a node with cgroup v2 on which misc is mounted as v1, and a container that runs."""
    kernel = SimKernel({EPC: 1 << 20})
    kernel.mount_misc_v1()
    kernel.make_cgroup(f"{ROOT}{APP}")
    kernel.add_process(f"{ROOT}{APP}", 7)
    return kernel


def tree(kernel: SimKernel) -> Tree:
    found = Tree(kernel, ROOT)
    found.look()
    return found


@pytest.mark.parametrize(
    ("paths", "mounts", "expected"),
    [
        pytest.param(
            ("misc/misc.capacity", "misc/tasks", "cpu/cgroup.procs"),
            MISC,
            Hierarchy(1, MISC, f"{ROOT}/cpu"),
            id="the-root-is-the-v1-hierarchy-itself",
        ),
        pytest.param(("cgroup.controllers", "misc.capacity"), "", Hierarchy(2, ROOT, ROOT), id="v2"),
        pytest.param(("cgroup.controllers",), "", Hierarchy(2, ROOT, ROOT), id="v2-without-misc"),
        pytest.param(("cgroup.controllers", "misc/misc.capacity"), "", V1, id="v2-and-misc-as-v1"),
        pytest.param(
            ("misc/misc.capacity", "pids/cgroup.procs", "systemd/cgroup.procs"),
            HYBRID + mount(MISC, "cgroup", "misc"),
            Hierarchy(1, MISC, f"{ROOT}/pids"),
            id="hybrid",
        ),
        pytest.param(
            ("pids/cgroup.procs", "odd place/misc.capacity"),
            HYBRID + mount(rf"{ROOT}/odd\040place", "cgroup", "net_cls,misc"),
            Hierarchy(1, f"{ROOT}/odd place", f"{ROOT}/pids"),
            id="mounted-under-another-name",
        ),
        pytest.param(("misc/misc.capacity",), "", Hierarchy(1, MISC, MISC), id="no-other-tree"),
    ],
)
def test_the_tree_with_misc_is_found(tmp_path: Path, paths: tuple[str, ...], mounts: str, expected: Hierarchy) -> None:
    root = MISC if mounts == MISC else ROOT
    files = host(tmp_path, *(f"{ROOT[1:]}/{path}" for path in paths), mounts="" if mounts == MISC else mounts)

    assert find(files, root) == expected


@pytest.mark.parametrize(
    ("root", "mounts", "controllers", "says"),
    [
        pytest.param("/nowhere", HYBRID, KNOWN, "/nowhere does not exist: correct cgroups.root", id="missing"),
        pytest.param("/etc", HYBRID, KNOWN, "no cgroup tree is mounted at /etc", id="no-cgroups"),
        pytest.param(ROOT, HYBRID, KNOWN, f"mount -t cgroup -o misc none {MISC}", id="hybrid-without-misc"),
        pytest.param(ROOT, HYBRID, KNOWN.replace("misc\t0\t1\t1", "misc\t0\t1\t0"), "", id="misc-disabled"),
        pytest.param(ROOT, HYBRID, "", "", id="kernel-without-misc"),
    ],
)
def test_an_unusable_root_says_why(tmp_path: Path, root: str, mounts: str, controllers: str, says: str) -> None:
    files = host(tmp_path, "etc/hosts", f"{ROOT[1:]}/pids/cgroup.procs", mounts=mounts, controllers=controllers)

    fault = find(files, root).fault

    assert says in fault
    assert bool(fault) == bool(says)


def test_what_cannot_be_looked_at_changes_nothing(kernel: SimKernel) -> None:
    found = tree(kernel)
    failing = Tree(FaultyFiles(kernel, fail_at=1, fail_errno=errno.EIO), ROOT)

    assert failing.look() == Hierarchy(2, ROOT, ROOT)
    assert found.now == V1


def test_misc_that_is_mounted_later_is_found_with_the_next_pass() -> None:
    kernel = SimKernel({EPC: 1 << 20})
    found = tree(kernel)
    reader = Reader(kernel, found)
    assert found.now == Hierarchy(2, ROOT, ROOT)

    kernel.mount_misc_v1()
    seen = reader.read([]).capacity

    assert seen is not None
    assert (seen.controller, seen.tree, found.now) == (True, V1, V1)
    kernel.unmount_misc_v1()
    back = reader.read([]).capacity
    assert back is not None
    assert (back.controller, back.tree.version) == (True, 2)


def test_a_limit_is_written_where_the_runtime_made_no_cgroup(kernel: SimKernel) -> None:
    with pytest.raises(FileNotFoundError):
        kernel.stat(f"{MISC}{APP}")

    writer.set_limit(kernel, V1, APP, EPC, "4096")

    assert kernel.read(f"{MISC}{APP}/misc.max", 99) == b"sgx_epc 4096\n"


@pytest.mark.parametrize(("path", "value"), [("/kubepods/pod2", "4096"), ("/kubepods/pod2", "max"), (APP, "max")])
def test_nothing_is_made_for_what_is_in_no_tree_or_to_lift_a_limit(kernel: SimKernel, path: str, value: str) -> None:
    with pytest.raises(FileNotFoundError):
        writer.set_limit(kernel, V1, path, EPC, value)

    with pytest.raises(FileNotFoundError):
        kernel.stat(f"{MISC}/kubepods")


def test_a_goal_to_hand_down_is_nothing_to_do(kernel: SimKernel) -> None:
    lane, undo = InlineLane(), UndoList(kernel, "/var/lib/nodeward")
    slots = slots_of(lane, kernel, ManualClock(), undo, tree=tree(kernel))
    slots.set([Goal(target("subtree:/kubepods"), "+misc", Reason("test"), undo=True)])
    lane.drain()

    assert slots.unreached == 0
    assert read_undo(kernel, "/var/lib/nodeward") == []


def test_the_undo_list_names_the_topmost_cgroup_once_before_the_first_limit(kernel: SimKernel) -> None:
    kernel.mkdir("/var/lib/nodeward")
    lane, undo = InlineLane(), UndoList(kernel, "/var/lib/nodeward")
    slots = slots_of(lane, kernel, ManualClock(), undo, tree=tree(kernel))
    slots.set([Goal(target(f"misc.max:{EPC}:{path}"), "4096", Reason("test")) for path in (POD, APP)])
    lane.drain()

    listed = read_undo(kernel, "/var/lib/nodeward")
    assert [(change.target, change.old) for change in listed] == [("limits:/kubepods", "max")]


def test_processes_that_are_not_in_the_hierarchy_are_seen(kernel: SimKernel) -> None:
    writer.set_limit(kernel, V1, APP, EPC, "4096")
    reader = Reader(kernel, tree(kernel))
    assert reader.read([APP, POD]).readings[APP].outside
    assert not reader.read([APP, POD]).readings[POD].outside

    kernel.write(f"{MISC}{APP}/cgroup.procs", b"7")

    assert not reader.read([APP]).readings[APP].outside


def test_a_container_that_is_only_in_the_other_tree_is_not_gone(kernel: SimKernel) -> None:
    seen = Reader(kernel, tree(kernel)).read([APP, "/kubepods/pod2"])

    assert (seen.gone, seen.readings[APP].controller) == (("/kubepods/pod2",), False)


def test_a_container_is_gone_with_what_the_runtime_made(kernel: SimKernel) -> None:
    writer.set_limit(kernel, V1, APP, EPC, "4096")
    reader = Reader(kernel, tree(kernel))
    assert reader.read([APP]).gone == ()
    kernel.end_process(7)
    kernel.rmdir(f"{ROOT}{APP}")

    seen = reader.read([APP])

    assert (seen.gone, seen.readings, reader.open_files) == ((APP,), {}, 0)


def test_a_tree_that_changes_is_searched_anew(kernel: SimKernel) -> None:
    found = Tree(kernel, "/nowhere")
    finder = Finder(kernel, found)
    assert finder.find([], lambda _: False) == ()

    found.now = V1

    assert [one.path for one in finder.find([], lambda _: False)] == [APP]


def test_a_refusal_is_waited_for_in_the_hierarchy(kernel: SimKernel) -> None:
    writer.set_limit(kernel, V1, APP, EPC, "4096")
    watch = Watcher(kernel, Tree(kernel, ROOT))
    assert watch.wait([APP], 0) == ()  # not found yet: the v2 tree has no such file
    watch._tree.look()
    watch.wait([APP], 0)
    with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
        kernel.charge(f"{MISC}{APP}", EPC, 8192)

    assert watch.wait([APP], 0) == (APP,)


def test_what_was_made_goes_after_the_container(kernel: SimKernel) -> None:
    writer.set_limit(kernel, V1, APP, EPC, "4096")
    leftovers = V1Cleanup(kernel, tree(kernel))
    leftovers.sweep([POD, APP], remove=True)
    leftovers.sweep([], remove=True)
    kernel.end_process(7)
    for path in (APP, POD):
        kernel.rmdir(f"{ROOT}{path}")
    leftovers.sweep([], remove=True)
    kernel.stat(f"{MISC}{APP}")

    leftovers.sweep([], remove=True)

    assert not [name for name in kernel.listdir(f"{MISC}/kubepods") if name.startswith("pod")]


@pytest.mark.parametrize("case", ["not-asked", "known-again", "in-use"])
def test_what_may_be_needed_is_left(kernel: SimKernel, case: str) -> None:
    writer.set_limit(kernel, V1, APP, EPC, "4096")
    leftovers = V1Cleanup(kernel, tree(kernel))
    leftovers.sweep([APP], remove=True)
    if case == "in-use":
        kernel.write(f"{MISC}{APP}/cgroup.procs", b"7")
        kernel.write(f"{ROOT}/cgroup.procs", b"7")
    else:
        kernel.end_process(7)
    kernel.rmdir(f"{ROOT}{APP}")

    leftovers.sweep([], remove=case != "not-asked")
    for _ in range(12):
        leftovers.sweep([APP] if case == "known-again" else [], remove=case != "not-asked")

    kernel.stat(f"{MISC}{APP}")


def test_limits_are_taken_back_in_the_whole_hierarchy(kernel: SimKernel) -> None:
    writer.set_limit(kernel, V1, POD, EPC, "8192")
    writer.set_limit(kernel, V1, APP, EPC, "4096")
    kernel.make_cgroup(f"{MISC}/kubepods/pod9/old")
    writer.set_limit(kernel, V1, "/kubepods/pod9/old", EPC, "1")

    assert writer.lift_limits(kernel, V1, "/kubepods") == (3, 2)

    assert kernel.read(f"{MISC}{APP}/misc.max", 99) == b"sgx_epc max\n"
    assert kernel.read(f"{MISC}{POD}/misc.max", 99) == b"sgx_epc max\n"
    assert writer.lift_limits(kernel, V1, "/kubepods") == (0, 0)
    assert writer.lift_limits(kernel, V1, "/never") == (0, 0)
