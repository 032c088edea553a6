"""The component `sandboxes` tells the engine of handlers and VM sandboxes, whatever hangs or is missing."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from nodeward.aio.hostfs import OsFiles
from nodeward.aio.lanes import GivenUpError
from nodeward.app.node.sandbox_watch import BATCH, CONFIGS_S, GUESTS_S, Watch
from nodeward.edges.sandboxes import shim_socket
from nodeward.engine.state.pods import KnownSandbox, Pods
from nodeward.engine.state.root import State
from nodeward.engine.state.sandboxes import Sandboxes
from nodeward.model.events import Event, HandlersRead, VmsRead
from nodeward.model.sandboxes import Handler, Place
from nodeward.model.settings import EngineSettings, Mode, SandboxesSettings
from nodeward.model.workload import SandboxId
from tests.unit.engine.build import ManualClock, sandbox

T = TypeVar("T")
CONFIG = "/etc/kata-containers/configuration.toml"
CONTAINERD = '[plugins.cri.containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'


class NowLane:
    """Does a job at once; the names in `hanging` are given up, once each."""

    def __init__(self) -> None:
        self.hanging: list[str] = []
        self.late: list[Callable[[], None]] = []

    def submit(
        self,
        name: str,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        ended: Callable[[], None] | None = None,
    ) -> bool:
        if name in self.hanging:
            self.hanging.remove(name)
            done(GivenUpError(f"{name} took longer than 30 s"))
            if ended is not None:
                self.late.append(ended)
            return True
        try:
            done(job())
        except OSError as error:
            done(error)
        return True


class TurnedClock(ManualClock):
    """Each sleep ends when the test has turned the clock so far."""

    async def sleep(self, seconds: float) -> None:
        until_ns = self.ns + int(seconds * 1e9)
        while self.ns < until_ns:
            await asyncio.sleep(0)


class Node:
    """A host below a folder, and what the engine was told."""

    def __init__(self, root: Path, mode: Mode = Mode.OBSERVE) -> None:
        self.root, self.lane, self.clock, self.told = root, NowLane(), TurnedClock(), list[Event]()
        self.state = State(settings=EngineSettings(sandboxes=SandboxesSettings(mode)))
        (root / "proc").mkdir()

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def shim(self, number: int, cgroup: str = "/") -> SandboxId:
        """A sandbox more."""
        made = SandboxId(f"{number:064x}")
        self.write(f"/proc/{number}/cmdline", f"containerd-shim-kata-v2\0-namespace\0k8s.io\0-id\0{made}\0")
        self.write(f"/proc/{number}/stat", f"{number} (s) S 1{' 0' * 15} 1 0 50 0 0\n")
        self.write(f"/proc/{number}/statm", "1 1 1\n")
        self.write(f"/proc/{number}/cgroup", f"0::{cgroup}\n")
        return made

    def runs(self, *steps_s: float) -> list[Event]:
        """What is told while the clock is turned so."""
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
    assert [[(one.name, one.only, one.config) for one in event.handlers] for event in told] == [
        [("kata", True, CONFIG)]
    ]


def test_a_round_is_told_in_batches_and_the_last_says_what_is_there(node: Node) -> None:
    made = [node.shim(number) for number in range(1, 2 * BATCH + 4)]
    told = node.rounds()
    assert [len(event.readings) for event in told] == [BATCH, BATCH, 3]
    assert [event.there for event in told[:-1]] == [None, None]
    assert sorted(told[-1].there or ()) == made


def test_where_there_is_no_sandbox_that_is_told(node: Node) -> None:
    assert [(event.readings, event.there) for event in node.rounds()] == [((), ())]


def test_the_sandboxes_are_read_once_a_period(node: Node) -> None:
    assert len(node.rounds(2, 2, 1, 1)) == 4


def test_while_the_mode_is_off_nothing_is_read(tmp_path: Path) -> None:
    node = Node(tmp_path, Mode.OFF)
    node.shim(1)
    assert node.runs(CONFIGS_S) == []


def test_a_round_that_hangs_is_said_and_tried_again_with_a_reader_of_its_own(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.shim(1)
    node.lane.hanging = ["sandboxes"]
    assert len(node.rounds(2)) == 1
    assert "sandboxes=unread" in caplog.text
    (late,) = node.lane.late
    late()


def test_no_descriptor_is_left_when_it_ends(node: Node) -> None:
    node.shim(1)
    before = os.listdir("/proc/self/fd")
    assert node.rounds(2)
    assert os.listdir("/proc/self/fd") == before


def test_a_host_whose_proc_cannot_be_listed_is_said_and_tried_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    (node.root / "proc").rmdir()
    assert node.rounds(2) == []
    assert caplog.text.count("sandboxes=unread error=") == 1
    (node.root / "proc").mkdir()
    assert len(node.rounds(2)) == 2


def test_a_proc_of_this_container_alone_is_no_node_without_sandboxes(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
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
    node.state = replace(
        node.state,
        pods=Pods(sandboxes={made: KnownSandbox(known, 1)}),
        sandboxes=Sandboxes(handlers={"kata": Handler("kata")}),
    )
    node.write("/sys/fs/cgroup/mine.slice/mine-one.slice/memory.current", "5\n")
    (told,) = node.rounds()
    pod = told.readings[0].cgroup(Place.POD)
    assert pod is not None
    assert pod.path == "/mine.slice/mine-one.slice"


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


def test_a_node_where_it_is_off_does_not_load_what_reads_them() -> None:
    code = "import sys, nodeward.app.node.run; print([one for one in sys.modules if 'edges.sandboxes' in one])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert printed.stdout.strip() == "[]"
