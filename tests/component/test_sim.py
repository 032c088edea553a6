"""The simulated node, run as a user runs it: every shipped scenario holds.

It lives in real time, so four do each day: DAILY, and `daemon-killed`, `relay-killed` and `sandboxes-drift` by cases of
their own. Limits through kills, losses and drift are in tests/unit/simulated, too, and keys in
tests/unit/features/keys.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodeward.core import cpuset, record
from nodeward.core.events import ApiLost, RuntimeLost
from nodeward.features.all import EVENTS
from nodeward.features.cpus.settings import Amount, AmountKind, PolicySettings
from nodeward.features.settings import EngineSettings
from nodeward.programs.once import replay, what_if
from nodeward_sim import charges, scenario
from nodeward_sim.scenario import Happening
from nodeward_sim.world import World
from tests.component.lives import kills, lived
from tests.disturbances import JUDGED, judged_s, once
from tests.patience import scaled

DAILY = "cpus-killed"
RECORD = "/var/lib/nodeward/node.record"
FAULTS = (
    Happening(1.5, "drift"),
    Happening(2.0, "lose-api"),
    Happening(3.0, "restore-api"),
    Happening(4.0, "restart-runtime"),
    Happening(5.0, "kill-daemon"),
)
OF_KEYS = (
    *(Happening(at_s, "start-vm") for at_s in (1.0, 2.0, 3.0)),
    Happening(3.5, "restart-kubelet"),
    Happening(4.0, "leave-orphan"),
    Happening(7.0, "kill-daemon"),
    Happening(10.0, "lose-quotes"),
    Happening(12.0, "restore-quotes"),
    Happening(12.5, "end-vm"),
)


OF_CLAIMS = (
    *(Happening(at_s, "start-vm") for at_s in (1.0, 2.0)),
    *(Happening(at_s, "force-delete") for at_s in (4.0, 6.0, 12.0)),
    Happening(5.0, "delete-slice"),
    Happening(8.0, "restart-kubelet"),
    Happening(11.0, "kill-daemon"),
    Happening(14.0, "end-vm"),
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name != DAILY)) for name in scenario.names()]
)
def test_a_shipped_scenario_breaks_no_invariant(name: str, tmp_path: Path) -> None:
    story = once(scenario.load(name))
    world = lived(name, tmp_path, max(8.0, judged_s(story)), events=story.events)

    assert {event.do for event in story.events if event.do in JUDGED} <= world.tally.happenings.keys()
    assert world.tally.containers > 0
    assert world.judge.checks > 10


@pytest.mark.nightly
def test_a_sandbox_is_refused_by_its_pods_budget_and_the_pods_row_says_so(tmp_path: Path) -> None:
    told: dict[str, int] = {}

    def shown(world: World) -> None:
        for row in world.view.rows if world.view is not None else ():
            if row.level == "pod" and row.pod.startswith("sandboxed-"):
                told[row.cgroup] = sum(one.refusals_here or 0 for one in row.resources)

    world = lived("pod-budget", tmp_path, 8.0, shown, greedy=0.9)
    assert world.charges.refused[charges.BY_POD] >= sum(told.values()) > 0
    assert world.charges.refused[charges.BY_CONTAINER] > 0


@pytest.mark.nightly
def test_the_keys_of_each_kind_of_vm_are_seen_and_none_is_shown_as_free_that_is_not(tmp_path: Path) -> None:
    classes, names = set[str](), set[str]()

    def shown(world: World) -> None:
        for row in world.view.keys if world.view is not None else ():
            classes.update(one.holder for one in row.elsewhere)
            names.update(one.pod.split("-")[0] for one in row.holders if one.charged)

    world = lived("keys", tmp_path, 14.0, shown, life_s=(4.0, 7.0))
    assert classes == {"kata", "machine", "orphan"}
    assert ("vm" in names, "kata" in names) == (True, False)
    assert world.machines.refused == 0


@pytest.mark.nightly
def test_keys_are_sold_through_every_fault_and_never_twice(tmp_path: Path) -> None:
    """Given more VMs than keys, when kubelet and the daemon are killed and the quotes fail, then what was granted
    stays granted; the public proposal would have sold keys that were not left."""
    world = lived("keys-oversold", tmp_path, 16.0, events=OF_KEYS, vms=16, life_s=(4.0, 8.0))

    assert world.tally.happenings["kill-daemon"] == world.tally.happenings["restart-kubelet"] == 1
    assert world.offered is not None
    assert world.offered.counts.granted > 3
    assert world.offered.proposal.most > 0
    assert world.offered.ours.oversold == 0
    assert world.offered.ours.samples > 5


@pytest.mark.nightly
def test_claims_are_prepared_through_every_fault_and_no_key_is_sold_twice(tmp_path: Path) -> None:
    """Given more VMs than keys and foreign ones beside them, when pods are deleted by force, the slice is deleted and
    kubelet and the daemon die, then claims are prepared, and taken back in the end."""
    world = lived("claims", tmp_path, 18.0, events=OF_CLAIMS, claims=12, life_s=(3.0, 6.0))

    assert world.claimed is not None
    counts = world.claimed.counts
    assert world.tally.happenings["kill-daemon"] == world.tally.happenings["restart-kubelet"] == 1
    assert counts.prepared > 8
    assert counts.taken_back > 3
    assert counts.forced > 1


@pytest.mark.nightly
def test_a_node_moves_to_claims_and_back_while_vms_of_both_kinds_run(tmp_path: Path) -> None:
    faults = (Happening(4.0, "move-to-dra"), Happening(20.0, "kill-daemon"), Happening(45.0, "move-to-plugin"))
    told = dict[str, int]()

    def shown(world: World) -> None:
        assert world.claimed is not None
        assert world.offered is not None
        front = next((row.claims.front for row in world.view.keys if row.claims), "") if world.view else ""
        if front:  # a daemon that has begun anew does not know it at once
            told[front] = world.claimed.counts.prepared if front == "dra" else world.offered.counts.granted

    world = lived("keys-moved", tmp_path, 110.0, shown, events=faults)
    assert list(told) == ["settings", "dra", "plugin"]
    assert told["dra"] > 2
    assert told["plugin"] > told["settings"] > 0
    assert world.machines.refused == 0


@pytest.mark.nightly
def test_katas_number_follows_what_is_sold_while_nfd_is_there_and_is_left_alone_while_it_is_not(tmp_path: Path) -> None:
    faults = (Happening(9.0, "remove-nfd"), Happening(13.0, "install-nfd"))
    world = lived("keys-shared", tmp_path, 54.0, events=faults)

    there, gone = "NFD there, share override", "NFD gone, share own"
    assert world.sharing is not None
    phases = [told.partition(": ")[2].partition(":")[0] for told in world.sharing.story]
    assert [phase for phase in phases if phase in (there, gone)] == [there, gone, there]
    assert world.sharing.written is not None
    assert world.sharing.on_node.isdecimal()


@pytest.mark.parametrize("action", ["kill-relay", pytest.param("restart-runtime", marks=pytest.mark.nightly)])
def test_kubelet_is_told_unavailable_while_relay_or_runtime_are_away_and_goes_on_after(
    action: str, tmp_path: Path
) -> None:
    """Given pods behind the relay, then no container is born without its limit, what runs keeps it, no call is lost or
    doubled, and the updates of a relay that has begun anew carry the limits of containers that it found."""
    world = lived("relay-killed", tmp_path, 12.0, **kills(action), life_s=(60.0, 60.0))

    assert world.tally.happenings == {action: 1}
    assert world.relayed is not None
    counts = world.relayed.counts
    assert counts.unavailable > 0
    assert counts.born > 3
    assert counts.updates > counts.judged_updates > 3
    assert world.relayed.fates["changed"] > counts.born
    assert world.relayed.fates["refused"] == 0
    assert world.relayed.view is not None
    assert world.view is not None
    states = {row.state for row in world.view.rows if row.container in ("enclave", "proxy")}
    assert {"enforced"} <= states <= {"enforced", "pending"}, "one that has just begun is still looked for"
    assert "enforced" in [row.state for row in world.view.rows if row.level == "pod"], "their budgets are, too"


@pytest.mark.nightly
def test_who_asks_for_more_cpus_than_there_are_is_refused_with_the_numbers_and_starts_when_there_is_room(
    tmp_path: Path,
) -> None:
    world = lived("cpus-crowded", tmp_path, 8.0)

    assert world.pinned is not None
    counts = world.pinned.counts
    assert "not enough cpus available to satisfy request: requested=" in counts.why
    assert counts.refused > 3
    assert counts.exclusive > 10
    assert counts.unplaced == 0


@pytest.mark.nightly
def test_containers_grow_and_shrink_in_place_and_the_record_tells_who_would_have_other_cpus(tmp_path: Path) -> None:
    world = lived("cpus-resize", tmp_path, 8.0, record=RECORD)
    lines = world.kernel.read(RECORD, 1 << 28).splitlines(keepends=True)

    assert world.pinned is not None
    assert world.pinned.counts.resized > 2
    assert replay.replay(lines).difference == ""
    kept = PolicySettings("static", reserved=Amount(AmountKind.CPUSET, cpuset.of(range(4))))
    moved = what_if.what_if(lines, EngineSettings(policy=kept)).cpus
    assert any(one.recorded.startswith("exclusive ") and one.other.startswith("exclusive ") for one in moved)


def test_a_vmm_that_somebody_moves_out_of_its_pod_is_said_until_it_is_back(tmp_path: Path) -> None:
    world = lived("sandboxes-drift", tmp_path, 14.0)

    assert world.katas is not None
    counts = world.katas.counts
    assert counts.moved == counts.told == counts.told_back == 1


def asked(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """`nodeward` in a process of its own, with another hash seed."""
    nodeward, environ = Path(sys.executable).parent / "nodeward", {**os.environ, "PYTHONHASHSEED": "77"}
    line = [nodeward, *words]
    return subprocess.run(line, env=environ, capture_output=True, text=True, timeout=scaled(60), check=False)


def test_a_record_of_a_faulted_run_replays_in_another_process_with_another_hash_seed(tmp_path: Path) -> None:
    world = lived("daemon-killed", tmp_path, 10.0, record=RECORD, events=FAULTS)
    assert world.tally.happenings == {fault.do: 1 for fault in FAULTS}
    path = tmp_path / "node.record"
    path.write_bytes(world.kernel.read(RECORD, 1 << 28))

    done = asked("replay", path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "every decision is the same, byte for byte" in done.stdout
    assert ", 0 event(s)" not in done.stdout
    kinds = [type(line) for line in record.read(iter(path.read_bytes().splitlines(keepends=True)), EVENTS)]
    assert kinds.count(record.Segment) == 2, "one of each daemon, the killed one and the next"
    assert {ApiLost, RuntimeLost} <= set(kinds)

    (tmp_path / "strict.yaml").write_text("limits: {strict: true}\n")
    strict = asked("replay", path, "--settings", tmp_path / "strict.yaml")
    assert strict.returncode == 1, strict.stdout + strict.stderr
    assert strict.stdout.count("[first]") == 1
    assert "(strict web)" in strict.stdout
