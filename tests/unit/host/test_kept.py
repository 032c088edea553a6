"""What a daemon keeps on disks that are full, slow or read-only, and settings that it takes while it runs."""

import asyncio
import errno
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from nodeward.core import events as ev
from nodeward.core import record
from nodeward.core.decision import Goal
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason
from nodeward.core.vms import Profile
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid, Qos, Source
from nodeward.features.all import apply
from nodeward.features.gate.settings import GateSettings
from nodeward.features.keys.settings import KeyKind, KeysSettings
from nodeward.features.limits import hook_file
from nodeward.features.limits.effects.hook_files import Keeper
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.pods.effects import last_known
from nodeward.features.pods.effects.last_known import keep, read
from nodeward.features.pods.state import KnownSpec, Pods
from nodeward.features.root import State
from nodeward.features.sandboxes.settings import SandboxesSettings
from nodeward.features.settings import Settings
from nodeward.host.lanes import GivenUpError
from nodeward.host.record_writer import RecordWriter, size
from nodeward.programs.node import assemble
from nodeward.programs.once.replay import replay
from nodeward.programs.relay.reload import merged as relay_merged
from nodeward.settings import last_good
from nodeward.settings.reload import merged
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.goals import slots_of, target
from tests.lanes import Done, Ended, InlineLane, T
from tests.rigs.daemon import FOLDER, folders
from tests.rigs.turned import TurnedClock
from tests.unit.features.build import EPC, RULE, ManualClock, container_spec, node, pod_spec, started


@pytest.fixture
def kernel() -> SimKernel:
    return folders()


def test_nothing_is_written_while_the_api_server_has_never_answered() -> None:
    kernel, lane = folders(), InlineLane()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(keep(Pods, kernel, lane, FOLDER, TurnedClock(lane, 2)))
    with pytest.raises(FileNotFoundError):
        kernel.stat(last_known.FILE.path_in(FOLDER))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "Input data was truncated", id="empty"),
        pytest.param(b'{"v":1,"holds":{"pods":[', "Input data was truncated", id="torn"),
        pytest.param(b"\xff" * 10, "malformed", id="no text"),
        pytest.param(b'{"v":1,"holds":{"pods":[{}]}}', "missing required field", id="a field less"),
        pytest.param(b'{"v":99,"holds":[]}', "it is of version 99; this program reads 1", id="another version"),
        pytest.param(b'{"v":1,"holds":' + b"[" * 100_000, "it is nested too deeply", id="deep"),
        pytest.param(b" " * (last_known.FILE.max_bytes + 1), "larger than the 16777216 bytes", id="huge"),
    ],
)
def test_a_state_file_that_cannot_be_understood_is_not_used_and_why_is_said(
    kernel: SimKernel, data: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.replace(last_known.FILE.path_in(FOLDER), data)
    assert read(kernel, FOLDER).pods == ()
    assert re.search(f"last-known=ignored path={last_known.FILE.path_in(FOLDER)} error=.*{why}", caplog.text)


def test_a_folder_that_cannot_be_made_is_said_and_no_end(caplog: pytest.LogCaptureFixture) -> None:
    assemble.make_own_folder(FaultyFiles(SimKernel({}), fail_at=2, fail_errno=errno.ENOSPC), "/data/nodeward")

    assert "folder=missing path=/data error=" in caplog.text


def test_what_pods_request_of_the_cpus_comes_back_and_an_older_release_has_not_said_it(kernel: SimKernel) -> None:
    asking = replace(container_spec("app", 5), cpu_m=1500, cpu_limit_m=2000)
    spec = replace(pod_spec("u", asking), qos=Qos.BURSTABLE, pod_level=True, source=Source.DISK)
    data = last_known.FILE.encode(last_known.Remembered((spec,), 1))
    kernel.replace(last_known.FILE.path_in(FOLDER), data)
    assert read(kernel, FOLDER).pods == (spec,)
    for new in (b',"cpu_m":1500', b',"cpu_limit_m":2000', b',"qos":"Burstable"', b',"pod_level":true'):
        assert new in data
        data = data.replace(new, b"")
    kernel.replace(last_known.FILE.path_in(FOLDER), data)
    (old,) = read(kernel, FOLDER).pods
    assert (old.qos, old.pod_level) == (None, False)
    assert (old.containers[0].cpu_m, old.containers[0].declared) == (None, {EPC: 5})


RUN_FOLDER = "/run/nodeward"


def specs(*uids: str) -> dict[PodUid, KnownSpec]:
    containers = (ContainerSpec("app", declared={"sgx_epc": 1}),)
    return {PodUid(uid): KnownSpec(PodSpec(PodUid(uid), "ns", uid, containers), 1) for uid in uids}


def left(kernel: SimKernel) -> list[str]:
    return kernel.listdir(f"{RUN_FOLDER}/pods")


def test_a_pods_file_goes_with_the_pod_but_not_while_the_api_server_is_away() -> None:
    kernel = folders("/run")
    Keeper(kernel, RUN_FOLDER).bring(RULE, specs("a", "b"), complete=True)
    later = Keeper(kernel, RUN_FOLDER)
    later.bring(RULE, specs("b"), complete=False)
    assert left(kernel) == ["a.json", "b.json"], "left by an earlier daemon"
    later.bring(RULE, specs("b"), complete=True)

    assert left(kernel) == ["b.json"]


def test_a_static_pods_file_has_the_uid_that_the_runtime_uses() -> None:
    kernel = folders("/run")
    known = specs("mirror")[PodUid("mirror")]
    Keeper(kernel, RUN_FOLDER).bring(RULE, {PodUid("hash"): known}, complete=True)

    assert hook_file.decode_pod(kernel.read(f"{RUN_FOLDER}/pods/hash.json", 9999)).uid == "hash"


@pytest.mark.parametrize("uid", ["../../etc/x", "a/b", "", ".", "a\n", "x" * 200])
def test_a_uid_that_is_no_plain_name_gets_no_file(uid: str) -> None:
    kernel = folders("/run")
    Keeper(kernel, RUN_FOLDER).bring(RULE, specs(uid, "a"), complete=True)

    assert left(kernel) == ["a.json"]


def test_a_full_disk_is_made_up_for_by_the_next_one() -> None:
    kernel = folders("/run")
    for number in range(1, 5):
        with pytest.raises(OSError, match="No space left"):
            Keeper(FaultyFiles(kernel, number, errno.ENOSPC), RUN_FOLDER).bring(RULE, specs("a"), complete=True)
        Keeper(kernel, RUN_FOLDER).bring(RULE, specs("a"), complete=True)
        assert left(kernel) == ["a.json"]
        kernel.unlink(f"{RUN_FOLDER}/pods/a.json")


PATH = "/var/lib/nodeward/record"


class Impatient(InlineLane):
    give_up: Callable[[], None]

    def submit(self, name: str, job: Callable[[], T], done: Done[T], ended: Ended = None) -> bool:
        over = False

        def once(result: T | BaseException) -> None:
            nonlocal over
            if not over:
                over = True
                done(result)

        def runs() -> T:
            self.give_up = lambda: once(GivenUpError("took longer"))
            return job()

        return super().submit(name, runs, once, ended)


class Life:
    def __init__(self, files: SimKernel | FaultyFiles, max_bytes: int = 1 << 20) -> None:
        self.lane = Impatient()
        self.writer = RecordWriter(files, self.lane, PATH, max_bytes, size(files, PATH))
        self._state, self._seq = State(), 0

    def decides(self, count: int, *, lands: bool = True) -> None:
        for _ in range(count):
            self._seq += 1
            event: ev.Event = ev.ApiLost("away", seq=self._seq, at_ns=self._seq)
            before = self._state
            self._state, decision = apply(before, event)
            self.writer(event, decision, before)
        self.writer.flush()
        if lands:
            self.lane.drain()


def lines(kernel: SimKernel) -> list[bytes]:
    return kernel.read(PATH, 1 << 24).splitlines(keepends=True)


def test_a_record_does_not_outgrow_its_bound_by_more_than_a_batch(kernel: SimKernel) -> None:
    life = Life(kernel, max_bytes=65_536)
    for _ in range(400):
        life.decides(20)

    assert kernel.stat(PATH).size < 2 * 65_536
    assert replay(lines(kernel)).difference == ""


class FullDisk(FaultyFiles):
    full = False

    def _count(self, name: str, path: str) -> None:
        super()._count(name, path)
        if self.full and name in ("append", "replace"):
            raise OSError(errno.ENOSPC, "No space left on device", path)


def test_what_a_full_disk_did_not_take_does_not_count_towards_the_bound(kernel: SimKernel) -> None:
    files = FullDisk(kernel)
    life = Life(files, max_bytes=65_536)
    life.decides(3)
    files.full = True
    for _ in range(400):
        life.decides(20)
    files.full = False
    life.decides(2)
    life.decides(2)

    found = replay(lines(kernel))
    assert (found.segments, found.torn, found.difference) == (2, 1, "")
    assert found.events >= 5


def test_what_gathers_behind_a_lost_batch_is_lost_with_it(kernel: SimKernel) -> None:
    life = Life(FaultyFiles(kernel, fail_at=3, fail_errno=errno.ENOSPC))
    life.decides(2)
    life.decides(2, lands=False)  # this batch fails
    life.decides(2)  # and these gather meanwhile: they cannot be decided again without it
    life.decides(1)

    found = replay(lines(kernel))

    assert (found.segments, found.events, found.torn, found.difference) == (2, 3, 1, "")
    heads = [line[:8] for line in lines(kernel)]
    assert heads.index(b'["torn",') == heads.index(b'["segmen', 1) - 1, "nothing stands between"


def test_replay_believes_no_gap_and_no_line_that_comes_late(kernel: SimKernel) -> None:
    Life(kernel).decides(6)
    head, *pairs = lines(kernel)
    steps = [pairs[at : at + 2] for at in range(0, len(pairs), 2)]

    late = [head, *steps[0], *steps[1], *steps[0], *steps[2]]
    gap = [head, *steps[0], *steps[3]]
    cut = [head, *steps[0], steps[1][0], *steps[3]]

    assert [(one.events, one.torn, one.difference) for one in map(replay, (late, gap, cut))] == [
        *((3, 0, ""), (1, 1, ""), (2, 1, ""))
    ]


class LateDisk(FaultyFiles):
    """The first rotation is given up, and only lands after another one was to be made."""

    life: Life | None = None

    def _count(self, name: str, path: str) -> None:
        super()._count(name, path)
        if self.life is not None and name == "replace":
            life, self.life = self.life, None
            life.lane.give_up()
            life.decides(2)


def test_a_rotation_that_lands_late_replaces_nothing_newer_and_what_is_lost_is_said(kernel: SimKernel) -> None:
    files = LateDisk(kernel)
    files.life = life = Life(files, max_bytes=4_096)
    for _ in range(400):
        if files.life is not None:
            life.decides(1)
    life.decides(3)

    found = replay(lines(kernel))
    assert files.life is None
    assert (found.torn, found.difference) == (1, "")


def test_a_full_nodes_head_is_encoded_bit_by_bit() -> None:
    told = node()
    for number in range(300):
        told(ev.PodSeen(pod_spec(f"{number}", container_spec("app", 4096))))
        told(started(f"{number}", "app"))
    at_once = msgspec.json.encode(["segment", record.FORMAT, "x", told.state]) + b"\n"
    pieces = list(record.segment_pieces("x", told.state))

    assert b"".join(pieces) == at_once
    assert max(map(len, pieces)) < len(at_once) / 5


ROOT = "/sys/fs/cgroup"


def test_nothing_of_a_damaged_or_unknown_last_good_file_is_used(kernel: SimKernel) -> None:
    for data in (b"{", b'{"v": 99, "holds": {}}', b'{"v": 1, "holds": {"limits": {"new_in_v9": 1}}}'):
        kernel.replace(last_good.FILE.path_in(FOLDER), data)
        assert last_good.read(kernel, FOLDER, {}) is None


@pytest.mark.parametrize(
    ("text", "flags", "environ", "folder"),
    [
        ("state_dir: /a\nlimits: {stritc: 1}\n", {}, {}, "/a"),
        ("state_dir: /a\n", {"state_dir": "/b"}, {"NODEWARD_STATE_DIR": "/c"}, "/b"),
        ("state_dir: /a\n", {}, {"NODEWARD_STATE_DIR": "/c"}, "/c"),
        ("state_dir: 7\n", {}, {}, FOLDER),
        ("state_dir: /a\n", {"state_dir": "/b/../c"}, {"NODEWARD_STATE_DIR": "d"}, "/a"),
        ("a: [", {}, {}, FOLDER),
    ],
)
def test_the_last_good_settings_are_looked_for_where_the_broken_ones_point(
    text: str, flags: dict[str, str], environ: dict[str, str], folder: str, tmp_path: Path
) -> None:
    file = tmp_path / "nodeward.yaml"
    file.write_text(text)
    assert last_good.folder_of(str(file), environ, flags) == folder


def of_keys(mode: Mode, reserve: int = 0, sev: str = "d.e/f") -> Settings:
    rows = {"tdx": KeyKind(("a.b/c",), reserve=reserve), "sev": KeyKind((sev,))}
    return Settings(keys=KeysSettings(mode, rows))


def of_limits(strict: bool = False, node: str = "", **resources: str) -> Settings:
    limits = replace(LimitsSettings(), strict=strict)
    return Settings(node_name=node, limits=replace(limits, resources=resources) if resources else limits)


WATCHED = SandboxesSettings(Mode.OBSERVE)
ACTED = SandboxesSettings(Mode.ENFORCE, 500, {"kata": Profile.KATA_RS}, 10)


@pytest.mark.parametrize(
    ("running", "wanted", "live", "late"),
    [
        (Settings(), of_limits(True, "n", a="c"), of_limits(True), ["node_name", "limits.resources"]),
        (of_keys(Mode.OBSERVE), of_keys(Mode.ENFORCE, 2, "g.h/i"), of_keys(Mode.ENFORCE, 2), ["keys.kinds"]),
        (of_keys(Mode.OBSERVE), of_keys(Mode.OFF), of_keys(Mode.OBSERVE), ["keys.mode"]),
        (
            *(Settings(sandboxes=WATCHED), Settings(sandboxes=ACTED)),
            *(Settings(sandboxes=replace(ACTED, period_ms=2000)), ["sandboxes.period_ms"]),
        ),
        (Settings(sandboxes=WATCHED), Settings(), Settings(sandboxes=WATCHED), ["sandboxes.mode"]),
    ],
    ids=["limits", "keys enforced", "keys off", "sandboxes enforced", "sandboxes off"],
)
def test_what_can_changes_at_once_and_what_waits_for_a_restart_is_named(
    running: Settings, wanted: Settings, live: Settings, late: list[str]
) -> None:
    assert merged(running, wanted) == (live, late)


def test_the_rules_of_gates_hold_at_once_where_there_were_some() -> None:
    running = replace(Settings(), gate=GateSettings(Mode.OBSERVE))
    wanted = replace(running, gate=GateSettings(Mode.ENFORCE, {"kata": ("verdict",)}, wait_s=1.0))

    assert merged(running, wanted) == (wanted, [])
    assert relay_merged(running, wanted, dump=False) == wanted
    assert merged(Settings(), wanted)[0] == Settings()


def test_a_goal_that_is_only_observed_now_is_not_tried_again() -> None:
    kernel, lane, clock = SimKernel({EPC: 9}), InlineLane(), ManualClock()
    slots = slots_of(lane, kernel, clock)
    goal = Goal(target(f"misc.max:{EPC}:/late"), "5", Reason("test"))
    slots.set([goal])
    lane.drain()
    assert slots.unreached == 1

    slots.set([replace(goal, perform=False)])
    assert slots.unreached == 0
    assert slots.next_due_ns() is None
    kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
    kernel.make_cgroup(f"{ROOT}/late")
    clock.ns += 10**12
    slots.run_due()
    lane.drain()
    assert kernel.read(f"{ROOT}/late/misc.max", 99) == b"sgx_epc max\n"

    slots.set([goal])
    lane.drain()
    assert kernel.read(f"{ROOT}/late/misc.max", 99) == b"sgx_epc 5\n"
