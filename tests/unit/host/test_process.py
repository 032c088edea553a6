"""One instance of a program, its limits, when it says that it is ready, and faults beside a decision."""

import errno
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from nodeward.cli import main
from nodeward.core import events as ev
from nodeward.core.modes import Mode
from nodeward.core.workload import PodUid, Sandbox, SandboxId
from nodeward.features.all import ENGINE
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.pods.wiring import NoFacts
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import MetricsSection, Settings
from nodeward.host.clock import SystemClock
from nodeward.host.process import LockedError, hold_lock, raise_descriptor_limit
from nodeward.host.runner import Core
from nodeward.neighbours.cgroups import writer
from nodeward.programs import webhook
from nodeward.programs.node.readiness import Readiness
from nodeward_sim.doubles.kernel import SimKernel
from tests.goals import slots_of
from tests.lanes import InlineLane
from tests.rigs.daemon import no_commit
from tests.unit.features.build import SECOND, ManualClock


def test_the_next_instance_waits_for_the_last_one_to_end(tmp_path: Path) -> None:
    last = hold_lock(str(tmp_path), "node")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            os.close(last)

    fd = hold_lock(str(tmp_path), "node", sleep=sleep)
    assert len(waits) == 3
    os.close(fd)


def test_the_daemon_takes_as_many_descriptors_as_it_may_have() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
    try:
        assert raise_descriptor_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("kind", ["a symbolic link", "a FIFO"])
def test_a_lock_is_an_ordinary_file_and_what_stands_in_its_place_is_named(kind: str, tmp_path: Path) -> None:
    place, other = tmp_path / "node.lock", tmp_path / "passwd"
    other.write_text("root")
    if kind == "a FIFO":
        os.mkfifo(place)
    else:
        place.symlink_to(other)
    with pytest.raises(LockedError, match=rf"node.lock cannot be made: is {kind}; remove it"):
        hold_lock(str(tmp_path), "node")
    assert other.read_text() == "root"


def test_folders_that_are_missing_before_a_lock_are_made_for_their_owner_to_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        os.close(hold_lock(str(tmp_path / "run" / "nodeward"), "node"))
    finally:
        os.umask(before)
    assert [stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("run", "run/nodeward")] == [0o755, 0o755]


def test_a_lock_whose_holder_cannot_be_written_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(LockedError, match=r"node.lock cannot be written: No space left on device"):
            hold_lock(str(tmp_path), "node")
    os.close(hold_lock(str(tmp_path), "node"))


@pytest.mark.parametrize("switch", ["debug", "info"], ids=["from the start", "by a signal"])
def test_no_secret_that_a_library_logs_at_debug_is_in_our_log(switch: str) -> None:
    """Given hpack, which logs each header that it decodes, a canary in one is not said; our own lines at debug are."""
    code = f"""if True:
        import logging, hpack
        from nodeward.host.process import debug_switch, set_up_logs
        set_up_logs({switch!r})
        {switch!r} == "debug" or debug_switch("info")()
        hpack.Decoder().decode(hpack.Encoder().encode([("authorization", "Bearer CANARY"), ("grpc-message", "CANARY")]))
        logging.getLogger("nodeward.here").debug("ours")
        logging.getLogger("hpack").warning("theirs")
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr

    assert "CANARY" not in said
    assert said.endswith("WARNING hpack theirs\n")
    assert "DEBUG nodeward.here ours\n" in said


class Told:
    def __init__(self, settings: Settings | None = None) -> None:
        self.clock, self.changes = ManualClock(), 0
        self.readiness = Readiness(settings or Settings(), self.clock, self._changed)
        self.passed: list[ev.Event] = []
        self.tell = self.readiness.listens(self._tell)

    def _changed(self) -> None:
        self.changes += 1

    def _tell(self, event: ev.Event) -> int:
        self.passed.append(event)
        return len(self.passed)

    def all_synchronised(self) -> None:
        for event, _ in STEPS:
            self.tell(event)


STEPS: list[tuple[ev.Event, list[str]]] = [
    (ev.Sampled({}, 0), ["nri", "kube"]),
    (ev.RuntimeConnected("containerd", "2.4"), ["nri", "kube"]),
    (ev.Listed((), (), 0), ["kube"]),
    (ev.ApiBack(), ["kube"]),
    (ev.PodsListed((), 0), []),
]
"""What synchronises a node, and who is waited for after it."""


def test_each_source_has_to_be_synchronised_and_not_only_reached() -> None:
    told = Told()
    for event, waiting in STEPS:
        assert not told.readiness.ready
        told.tell(event)
        assert told.readiness.waiting(("nri", "kube", "cgroups")) == waiting
    assert told.readiness.ready
    assert told.passed == [event for event, _ in STEPS]


def test_a_sampler_that_tells_nothing_more_is_not_ready() -> None:
    told = Told()
    told.all_synchronised()
    told.clock.ns += 3 * SECOND

    assert told.readiness.sample_age_ms == 3000
    assert told.readiness.waiting(("cgroups",)) == ["cgroups"]
    told.tell(ev.Sampled({}, 0))
    assert told.readiness.ready


@pytest.mark.parametrize(("mode", "ready"), [(Mode.ENFORCE, True), (Mode.OBSERVE, False)], ids=["enforce", "observe"])
def test_metrics_that_are_not_served_are_waited_for_only_where_nothing_is_enforced(mode: Mode, ready: bool) -> None:
    told = Told(Settings(limits=LimitsSettings(mode=mode), metrics=MetricsSection(enabled=True)))
    told.all_synchronised()
    assert told.readiness.ready is ready
    told.readiness.note("metrics", False, "somebody holds it")
    assert told.readiness.ready is ready
    row = next(row for row in told.readiness.rows() if row.name == "metrics")
    assert (row.ready, row.detail, row.needed) == (False, "somebody holds it", not ready)

    told.tell(SettingsChanged(Settings(limits=LimitsSettings(mode=Mode.ENFORCE)).engine))
    assert told.readiness.ready
    told.tell(SettingsChanged(Settings(limits=LimitsSettings(mode=Mode.OFF)).engine))
    assert not told.readiness.ready
    told.readiness.note("metrics", True, "served")
    assert told.readiness.ready


@pytest.mark.parametrize(
    ("may", "wanted", "taken"),
    [(1 << 20, 2000, 2000), (2064, 2000, 2000), (1024, 2000, 960), (32, 2000, 1)],
    ids=["plenty", "just enough", "too few", "hardly any"],
)
def test_no_more_connections_are_taken_than_there_are_descriptors_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, may: int, wanted: int, taken: int
) -> None:
    """Given a limit that cannot be raised, then the bound is below it: else newcomers would wait at the door."""
    monkeypatch.setattr(webhook, "raise_descriptor_limit", lambda: may)

    assert webhook.connections(wanted) == taken
    assert ("raise ulimit -n" in caplog.text) is (taken < wanted)


ROOT = "/sys/fs/cgroup"


def test_a_recorder_that_fails_stops_no_goal() -> None:
    broken = mock.Mock(side_effect=ValueError("cannot be encoded"))
    kernel, lane, clock = SimKernel({"sgx_epc": 1 << 20}), InlineLane(), SystemClock()
    kernel.make_cgroup(f"{ROOT}/kubepods/pod1")
    slots = slots_of(lane, kernel, clock)
    core = Core(State(), ENGINE, clock, slots, NoFacts(), no_commit, broken)

    core.tell(ev.CapacityRead(controller=True, capacity={"sgx_epc": 1 << 20}))
    core.tell(ev.SandboxStarted(Sandbox(SandboxId("s"), PodUid("1"), "default", "web", cgroup_parent="/kubepods/pod1")))
    lane.drain()

    assert writer.subtree_has_misc(kernel, ROOT, "/kubepods/pod1")
    assert core.faults["record"] >= 2


def test_a_command_without_rights_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    refused = mock.Mock(side_effect=PermissionError(13, "Permission denied", "/run/nodeward"))
    monkeypatch.setattr(main, "cli", refused)
    with pytest.raises(SystemExit) as ended:
        main.main()

    assert ended.value.code == 1
    assert "/run/nodeward" in capsys.readouterr().err
