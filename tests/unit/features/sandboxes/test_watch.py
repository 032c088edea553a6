"""VM sandboxes: what the daemon reads of them, and a placement that is carried out."""

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.core.events import Event, HandlersRead, VmsRead
from nodeward.core.modes import Mode
from nodeward.core.vms import Handler, Place, TaskRole
from nodeward.core.workload import SandboxId
from nodeward.features.pods.state import KnownSandbox, Pods
from nodeward.features.root import State
from nodeward.features.sandboxes.effects.placing import Machine, PlacementError, machine, perform, running
from nodeward.features.sandboxes.effects.watch import BATCH, CONFIGS_S, GUESTS_S, Watch
from nodeward.features.sandboxes.plan import Act, Step, Trees
from nodeward.features.sandboxes.settings import SandboxesSettings
from nodeward.features.sandboxes.state import Sandboxes
from nodeward.features.settings import EngineSettings
from nodeward.host.hostfs import OsFiles
from nodeward.host.lanes import GivenUpError
from nodeward.neighbours.kata import shim_socket
from tests.lanes import Done, Ended, T
from tests.rigs.daemon import AtOnce
from tests.unit.features.build import ManualClock, sandbox, there

CONFIG = "/etc/kata-containers/configuration.toml"
CONTAINERD = '[plugins.cri.containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'


class Lane(AtOnce):
    """The names in `hanging` are given up, once each."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging: list[str] = []
        self.late: list[Callable[[], None]] = []

    def submit(self, name: str, job: Callable[[], T], done: Done[T], ended: Ended = None) -> bool:
        if name not in self.hanging:
            return super().submit(name, job, done, ended)
        self.hanging.remove(name)
        done(GivenUpError(f"{name} took longer than 30 s"))
        if ended is not None:
            self.late.append(ended)
        return True


class TurnedClock(ManualClock):
    """Each sleep ends when the test has turned the clock so far."""

    async def sleep(self, seconds: float) -> None:
        until_ns = self.ns + int(seconds * 1e9)
        while self.ns < until_ns:
            await asyncio.sleep(0)


class Node:
    def __init__(self, root: Path, mode: Mode = Mode.OBSERVE) -> None:
        self.root, self.lane, self.clock, self.told = root, Lane(), TurnedClock(), list[Event]()
        self.state = State(settings=EngineSettings(sandboxes=SandboxesSettings(mode)))
        (root / "proc").mkdir()

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def shim(self, number: int, cgroup: str = "/") -> SandboxId:
        made = SandboxId(f"{number:064x}")
        self.write(f"/proc/{number}/cmdline", f"containerd-shim-kata-v2\0-namespace\0k8s.io\0-id\0{made}\0")
        self.write(f"/proc/{number}/stat", f"{number} (s) S 1{' 0' * 15} 1 0 50 0 0\n")
        self.write(f"/proc/{number}/statm", "1 1 1\n")
        self.write(f"/proc/{number}/cgroup", f"0::{cgroup}\n")
        return made

    def runs(self, *steps_s: float) -> list[Event]:
        cgroups, told = "/sys/fs/cgroup", len(self.told)

        def tell(event: Event) -> int:
            self.told.append(event)
            return len(self.told)

        async def story() -> None:
            watch = Watch(OsFiles(str(self.root)), cgroups, self.lane, self.lane, lambda: self.state, tell, self.clock)
            running = asyncio.create_task(watch.run())
            for seconds in (0.0, *steps_s):
                self.clock.ns += int(seconds * 1e9)
                for _ in range(50):
                    await asyncio.sleep(0)
                assert not running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        asyncio.run(story())
        return self.told[told:]

    def rounds(self, *steps_s: float) -> list[VmsRead]:
        return [event for event in self.runs(*steps_s) if isinstance(event, VmsRead)]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_handlers_are_told_at_the_start_and_when_they_have_changed(node: Node) -> None:
    node.write("/etc/containerd/config.toml", CONTAINERD)
    node.write(CONFIG, "[runtime]\nsandbox_cgroup_only = true\n")
    told = [event for event in node.runs(CONFIGS_S, CONFIGS_S) if isinstance(event, HandlersRead)]
    assert [[(one.name, one.only, one.config) for one in read.handlers] for read in told] == [[("kata", True, CONFIG)]]


def test_once_a_period_a_round_is_told_in_batches_and_the_last_says_what_is_there(node: Node) -> None:
    made = [node.shim(number) for number in range(1, 2 * BATCH + 4)]
    told = node.rounds(2, 2, 1, 1)
    assert [len(event.readings) for event in told] == [BATCH, BATCH, 3] * 4
    assert [event.there for event in told[:2]] == [None, None]
    assert sorted(told[2].there or ()) == made


def test_while_the_mode_is_off_nothing_is_read(tmp_path: Path) -> None:
    node = Node(tmp_path, Mode.OFF)
    node.shim(1)
    assert node.runs(CONFIGS_S) == []


def test_a_hanging_round_is_said_and_tried_again_by_a_new_reader(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.shim(1)
    before = os.listdir("/proc/self/fd")
    node.lane.hanging = ["sandboxes"]
    assert len(node.rounds(2)) == 1
    assert "sandboxes=unread" in caplog.text
    (late,) = node.lane.late
    late()
    assert os.listdir("/proc/self/fd") == before, "no descriptor is left when it ends"


def test_a_host_whose_proc_is_not_listed_is_said_and_tried_again(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    (node.root / "proc").rmdir()
    assert node.rounds(2) == []
    assert caplog.text.count("sandboxes=unread error=") == 1
    (node.root / "proc").mkdir()
    assert len(node.rounds(2)) == 2


def test_a_proc_of_one_container_is_no_node_without_sandboxes(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    own, kernels = node.root / "proc/self/stat", node.root / "proc/2/comm"
    own.parent.mkdir()
    own.write_text("1 (nodeward) S 0 1 1\n")
    assert node.rounds(1) == []
    assert "hostPID: true" in caplog.text

    kernels.parent.mkdir()
    kernels.write_text("kthreadd\n")
    assert len(node.rounds(1)) == 1


def test_the_pods_cgroup_is_the_runtimes_word(node: Node) -> None:
    made = node.shim(1, "/system.slice/containerd.service")
    known = replace(sandbox("u", sandbox_id=made), handler="kata", cgroup_parent="mine-one.slice")
    pods, vms = Pods(sandboxes={made: KnownSandbox(known, 1)}), Sandboxes(handlers={"kata": Handler("kata")})
    node.state = replace(node.state, pods=pods, sandboxes=vms)
    node.write("/sys/fs/cgroup/mine.slice/mine-one.slice/memory.current", "5\n")
    (told,) = node.rounds()
    assert there(told.readings[0].cgroup(Place.POD)).path == "/mine.slice/mine-one.slice"


def test_a_guests_word_is_in_the_readings_until_it_is_old(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    made = node.shim(1)
    node.write(f"/run/kata/{made}/shim-monitor.sock", "")
    answers = iter([77])

    async def guest_used(path: str, vm_memory: int | None) -> int | None:
        assert path.startswith("/run/kata/")
        return next(answers, None)

    monkeypatch.setattr(shim_socket, "guest_used", guest_used)
    told = node.rounds(GUESTS_S, 2, 50, 40)
    assert [event.readings[0].guest_used for event in told] == [None, 77, 77, 77, None]


V2 = Machine(2, {(): "/cg"})
MOVE = Step(Act.MOVE, "/s", file="cgroup.procs", value="20", role=TaskRole.VMM, pid=20, tid=20)


def stat(start: int, state: str = "S") -> str:
    """stat(5) of a process whose name tries to look like more fields."""
    return f"20 (a) Z 1 (b) {state} " + " ".join("0" for _ in range(18)) + f" {start} 0 0\n"


class Host(OsFiles):
    """A folder as the host. After each write the process 20 has the next of `starts`; "" for none."""

    def __init__(self, root: Path, *starts: str) -> None:
        super().__init__(str(root))
        self.root, self.starts = root, list(starts)
        self.next()

    def next(self) -> None:
        file = self.root / "proc/20/task/20/stat"
        file.parent.mkdir(parents=True, exist_ok=True)
        if self.starts:
            text = self.starts.pop(0)
            file.write_text(text) if text else file.unlink()

    def write(self, path: str, data: bytes) -> None:
        super().write(path, data)
        self.next()


def with_cgroup(host: Host, path: str = "cg/s") -> Path:
    folder = host.root / path
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").touch()
    return folder / "cgroup.procs"


@pytest.mark.parametrize(
    ("starts", "said"),
    [
        ((stat(500), ""), "process 20 .*has ended.*not moved"),
        ((stat(500), stat(501)), "process 20 .*another one than was meant.*not moved"),
        ((stat(500), stat(500, "Z")), "process 20 .*has ended.*not moved"),
        ((stat(500), stat(500), stat(501)), "take that one back"),
    ],
    ids=("gone", "reused", "zombie", "reused during the move"),
)
def test_one_that_is_gone_or_reused_is_not_moved(tmp_path: Path, starts: tuple[str, ...], said: str) -> None:
    host = Host(tmp_path, *starts)
    procs = with_cgroup(host)
    known = [running(host, 20, 20)]
    host.next()

    with pytest.raises(PlacementError, match=said):
        perform(host, V2, [MOVE], known)
    assert (procs.read_text() == "") is ("not moved" in said)


def test_a_cgroup_is_not_made_below_one_that_nobody_made(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    at = Machine(1, {("memory",): "/memory"})

    with pytest.raises(PlacementError, match=r"/pod is not there.*kubelet"):
        perform(OsFiles(str(tmp_path)), at, [Step(Act.MAKE, "/pod/s")], [])
    assert list((tmp_path / "memory").iterdir()) == []


def test_a_tree_that_no_sandbox_needs_may_lack_the_pod(tmp_path: Path) -> None:
    for folder in ("memory/s", "pids"):
        (tmp_path / folder).mkdir(parents=True)
    at = Machine(1, {("memory",): "/memory", ("pids",): "/pids"})

    perform(OsFiles(str(tmp_path)), at, [Step(Act.MAKE, "/s/t")], [])
    assert ((tmp_path / "memory/s/t").is_dir(), (tmp_path / "pids/s").exists()) == (True, False)

    perform(OsFiles(str(tmp_path)), at, [Step(Act.REMOVE, "/s/t")], [])
    assert not (tmp_path / "memory/s/t").exists()


APART = """\
30 1 0:1 / /odd\\040place/mem rw - cgroup cgroup rw,memory
31 1 0:2 / /elsewhere/cpu rw - cgroup cgroup rw,cpu,cpuacct
32 1 0:2 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
33 1 0:3 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
34 1 0:4 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


@pytest.mark.parametrize(
    ("mounts", "found"),
    [
        (APART, Machine(1, {("memory",): "/odd place/mem", ("cpu", "cpuacct"): "/sys/fs/cgroup/cpu"})),
        ("34 1 0:4 / /cg2 rw - cgroup2 cgroup2 rw\n", Machine(2, {(): "/cg2"})),
        ("", None),
    ],
    ids=("v1 mounted apart", "v2 elsewhere", "none"),
)
def test_trees_are_found_by_the_mount_table(tmp_path: Path, mounts: str, found: Machine | None) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(mounts)

    with nullcontext() if found is not None else pytest.raises(PlacementError, match="no cgroup tree"):
        assert machine(OsFiles(str(tmp_path))) == found


def test_a_limit_without_its_tree_is_refused(tmp_path: Path) -> None:
    step = Step(Act.LIMIT, "/s", Trees.CPU, file="cpu.cfs_quota_us", value="1000")
    with pytest.raises(PlacementError, match="no tree of cgroup v1 is mounted for cpu"):
        perform(OsFiles(str(tmp_path)), Machine(1, {("memory",): "/memory"}), [step], [])


@pytest.mark.parametrize(
    ("asked", "file", "has", "then"),
    [
        ("memory.max", "memory.max", "500\n", "500\n"),
        ("memory.max", "memory.max", "max\n", "900\n"),  # written at the start of the file
        ("memory.limit_in_bytes", "memory.limit_in_bytes", "9223372036854771712", "9003372036854771712"),
        ("cpu.cfs_quota_us", "cpu.cfs_quota_us", "-1\n", "900"),
        ("cpu.cfs_period_us", "cpu.cfs_quota_us", "5000\n", "5000\n"),
    ],
)
def test_a_pods_limit_is_set_only_where_it_has_none(tmp_path: Path, asked: str, file: str, has: str, then: str) -> None:
    (tmp_path / "cg").mkdir()
    (tmp_path / "cg" / file).write_text(has)

    perform(OsFiles(str(tmp_path)), V2, [Step(Act.LIMIT, "/", file=asked, value="900", if_unset=True)], [])

    assert (tmp_path / "cg" / file).read_text() == then


def test_only_controllers_that_are_there_and_missing_are_passed_on(tmp_path: Path) -> None:
    folder = tmp_path / "cg"
    folder.mkdir()
    (folder / "cgroup.controllers").write_text("cpu memory pids\n")
    (folder / "cgroup.subtree_control").write_text("memory\n")

    perform(OsFiles(str(tmp_path)), V2, [Step(Act.PASS_ON, "/", value="cpu cpuset memory")], [])

    assert (folder / "cgroup.subtree_control").read_text() == "+cpury\n"  # one write, at the start of the file


def test_a_busy_threaded_cgroup_is_named_with_its_threads(tmp_path: Path) -> None:
    """The kernel gives no list of processes there."""

    class Threaded(OsFiles):
        def read(self, path: str, max_bytes: int, *, own: bool = False) -> bytes:
            if path.endswith("cgroup.procs"):
                raise OSError(errno.EOPNOTSUPP, "Operation not supported", path)
            return super().read(path, max_bytes, own=own)

        def rmdir(self, path: str) -> None:
            raise OSError(errno.EBUSY, "Device or resource busy", path)

    (tmp_path / "cg/s").mkdir(parents=True)
    (tmp_path / "cg/s/cgroup.threads").write_text("21\n22\n")
    with pytest.raises(PlacementError, match=r"/cg/s is still used \(2 thread\(s\) in it: 21, 22\)"):
        perform(Threaded(str(tmp_path)), V2, [Step(Act.REMOVE, "/s")], [])
