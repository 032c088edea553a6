"""Settings for a running daemon: accepted or refused whole, kept for the next start, and carried out."""

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.aio.sd_notify import Notifier
from nodeward.app.relay.reload import merged as relay_merged
from nodeward.app.settings import last_good
from nodeward.app.settings import load as settings
from nodeward.app.settings.reload import Reload, SettingsSource, merged
from nodeward.doubles.kernel import SimKernel
from nodeward.model.decision import Goal, Reason
from nodeward.model.events import Event
from nodeward.model.gate import GateSettings
from nodeward.model.sandboxes import Profile
from nodeward.model.sandboxes_rule import SandboxesSettings
from nodeward.model.settings import KeySettings, LedgerSettings, LimitsSettings, Mode, Settings
from tests.faults import FaultyFiles
from tests.goals import slots_of, target
from tests.lanes import InlineLane
from tests.rigs.daemon import FOLDER, YieldingClock, folders
from tests.unit.engine.build import EPC, ManualClock

ROOT = "/sys/fs/cgroup"


class Node:
    """A reload on an inline lane, with a file that a test writes."""

    def __init__(self, folder: Path, kernel: SimKernel | None = None, fail_at: int = 0) -> None:
        self.file = folder / "nodeward.yaml"
        self.file.write_text("")
        self.kernel, self.lane, self.told = kernel or folders(), InlineLane(), list[Event]()
        self.source = SettingsSource(lambda: settings.load(str(self.file), {}), "the file")
        files = FaultyFiles(self.kernel, fail_at=fail_at, fail_errno=errno.ENOSPC)
        self.reload = Reload(self.source.read(), self.source, files, self.lane, YieldingClock())
        self.lane.drain()

    def _tell(self, event: Event) -> int:
        self.told.append(event)
        return len(self.told)

    def hup(self, text: str) -> None:
        """The file is written and SIGHUP comes."""

        async def story() -> None:
            self.file.write_text(text)
            running = asyncio.create_task(self.reload.run(self._tell, Notifier()))
            self.source.asked.set()
            before = self.reload.row
            async with asyncio.timeout(10):
                while self.reload.row is before:
                    self.lane.drain()
                    await asyncio.sleep(0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        asyncio.run(story())
        self.lane.drain()

    def kept(self) -> Settings | None:
        """What the next start would fall back to."""
        return last_good.read(self.kernel, FOLDER, {})


def test_a_full_disk_keeps_the_older_last_good_ones_and_changes_the_running_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, fail_at=2)
    node.hup("limits: {mode: observe}\n")

    assert len(node.told) == 1
    assert node.kept() == Settings()
    assert "last-good=not-kept" in caplog.text


def test_nothing_of_a_damaged_or_unknown_last_good_file_is_used() -> None:
    kernel = folders()
    for data in (b"{", b"[]", b'{"v": 99, "settings": {}}', b'{"v": 1, "settings": {"limits": {"new_in_v9": 1}}}'):
        kernel.replace(last_good.path_in(FOLDER), data)
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
    rows = {"tdx": KeySettings(("a.b/c",), reserve=reserve), "sev": KeySettings((sev,))}
    return Settings(ledger=LedgerSettings(mode, rows))


def of_limits(strict: bool = False, node: str = "", **resources: str) -> Settings:
    limits = replace(LimitsSettings(), strict=strict)
    return Settings(node_name=node, limits=replace(limits, resources=resources) if resources else limits)


WATCHED = SandboxesSettings(Mode.OBSERVE)
ACTED = SandboxesSettings(Mode.ENFORCE, 500, {"kata": Profile.KATA_RS}, 10)


@pytest.mark.parametrize(
    ("running", "wanted", "live", "late"),
    [
        (Settings(), of_limits(True, "n", a="c"), of_limits(True), ["node_name", "limits.resources"]),
        (of_keys(Mode.OBSERVE), of_keys(Mode.ENFORCE, 2, "g.h/i"), of_keys(Mode.ENFORCE, 2), ["ledger.keys"]),
        (of_keys(Mode.OBSERVE), of_keys(Mode.OFF), of_keys(Mode.OBSERVE), ["ledger.mode"]),
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
    assert relay_merged(running, wanted, limits=False, dump=False, gate=True) == wanted
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
