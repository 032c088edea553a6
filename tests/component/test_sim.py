"""The simulated node, run as a user runs it: every shipped scenario holds."""

import asyncio
import os
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from nodeward.app.tools import replay, what_if
from nodeward.model import cpuset
from nodeward.model.events import ApiLost, RuntimeLost
from nodeward.model.policy_rule import Amount, AmountKind, PolicySettings
from nodeward.model.settings import EngineSettings
from nodeward.sim import charges, scenario
from nodeward.sim.scenario import Happening
from nodeward.sim.shapes import Shape, make
from nodeward.sim.world import World
from nodeward.wire import record
from tests.component.lives import kills, lived
from tests.disturbances import JUDGED, judged_s, once
from tests.patience import scaled

DAILY = ("cpus-killed", "daemon-killed", "gate", "keys-shared", "pod-api", "relay-killed", "sandboxes-drift")
"""One of each domain; the simulated node lives in real time."""
FAULTS = (
    Happening(1.5, "drift"),
    Happening(2.0, "lose-api"),
    Happening(3.0, "restore-api"),
    Happening(4.0, "restart-runtime"),
    Happening(5.0, "kill-daemon"),
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name not in DAILY)) for name in scenario.names()]
)
def test_a_shipped_scenario_breaks_no_invariant(name: str, tmp_path: Path) -> None:
    """Given its events once and early, when the grace after the last is over, then nothing was broken."""
    story = once(scenario.load(name))
    world = World(story, tmp_path, seed=3)
    asyncio.run(world.run(max(8.0, judged_s(story))))

    assert world.judge.violations == []
    assert {event.do for event in story.events if event.do in JUDGED} <= world.tally.happenings.keys()
    assert world.tally.containers > 0
    assert world.judge.checks > 10


def test_a_pod_of_a_number_is_the_same_however_often_somebody_charges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[int, Shape]] = []

    def noted(number: int, random: Random) -> Shape:
        shape = make(number, random)
        made[-1][number] = deepcopy(shape)  # as it was made: its status follows the pod's life
        return shape

    monkeypatch.setattr("nodeward.sim.world.make", noted)
    for folder, charge_every_s in (("a", 0.01), ("b", 5.0)):
        made.append({})
        (tmp_path / folder).mkdir()
        lived("quiet-day", tmp_path / folder, 4.0, charge_every_s=charge_every_s, life_s=(0.3, 0.6))

    both = made[0].keys() & made[1].keys()
    assert len(both) > 10
    assert {number: made[0][number] for number in both} == {number: made[1][number] for number in both}


def test_on_a_kernel_without_the_resource_every_container_that_wants_some_says_so(tmp_path: Path) -> None:
    world = lived("kernel-without-epc", tmp_path, 5.0, life_s=(60.0, 60.0))

    assert world.view is not None
    wanting = [row for row in world.view.rows if any(resource.wanted is not None for resource in row.resources)]
    assert [row.state for row in wanting] == ["unsupported"] * len(wanting)
    assert any(row.level == "container" for row in wanting)


def test_a_sandbox_is_refused_by_its_pods_budget_and_the_pods_row_says_so(tmp_path: Path) -> None:
    """Given sandboxes that charge beside their containers, when they want more than the pod has left."""
    world = World(replace(scenario.load("pod-budget"), greedy=0.9), tmp_path, seed=3)
    told: dict[str, int] = {}

    def shown() -> None:
        for row in world.view.rows if world.view is not None else ():
            if row.level == "pod" and row.pod.startswith("sandboxed-"):
                told[row.cgroup] = sum(one.refusals_here or 0 for one in row.resources)

    asyncio.run(world.run(8.0, shown))

    assert world.judge.violations == []
    assert world.charges.refused[charges.BY_POD] >= sum(told.values()) > 0
    assert world.charges.refused[charges.BY_CONTAINER] > 0


def test_the_keys_of_each_kind_of_vm_are_seen_and_none_is_shown_as_free_that_is_not(tmp_path: Path) -> None:
    """Given VMs of KubeVirt's kind that live long enough to take their key, Kata's, a foreign one and an orphan."""
    story = replace(scenario.load("keys"), life_s=(4.0, 7.0))
    world = World(story, tmp_path, seed=3)
    classes: dict[str, None] = {}
    names: dict[str, None] = {}

    def shown() -> None:
        for row in world.view.keys if world.view is not None else ():
            classes.update(dict.fromkeys(one.holder for one in row.elsewhere))
            names.update(dict.fromkeys(one.pod.split("-")[0] for one in row.holders if one.charged))

    asyncio.run(world.run(14.0, shown))

    assert world.judge.violations == []
    assert sorted(classes) == ["kata", "machine", "orphan"]
    assert "vm" in names
    assert "kata" not in names
    assert world.machines.refused == 0


def test_keys_are_sold_through_every_fault_and_never_twice(tmp_path: Path) -> None:
    """Given more VMs than keys, when kubelet and the daemon are killed and the quotes fail, then what was granted
    stays granted; the public proposal would have sold keys that were not left."""
    faults = (
        *(Happening(at_s, "start-vm") for at_s in (1.0, 2.0, 3.0)),
        Happening(3.5, "restart-kubelet"),
        Happening(4.0, "leave-orphan"),
        Happening(7.0, "kill-daemon"),
        Happening(10.0, "lose-quotes"),
        Happening(12.0, "restore-quotes"),
        Happening(12.5, "end-vm"),
    )
    story = replace(scenario.load("keys-oversold"), events=faults, vms=16, life_s=(4.0, 8.0))
    world = World(story, tmp_path, seed=3)
    asyncio.run(world.run(16.0))

    assert world.judge.violations == []
    assert world.tally.happenings["kill-daemon"] == world.tally.happenings["restart-kubelet"] == 1
    assert world.offered is not None
    assert world.offered.counts.granted > 3
    assert world.offered.proposal.most > 0
    assert world.offered.ours.oversold == 0
    assert world.offered.ours.samples > 5


def test_katas_number_follows_the_ledger_while_nfd_is_there_and_is_left_alone_while_it_is_not(tmp_path: Path) -> None:
    """Given NFD that is removed and installed again while VMs of both kinds come and go, then it is found again within
    45 seconds, and the daemon shows and does in each phase what `auto` says."""
    faults = (Happening(9.0, "remove-nfd"), Happening(13.0, "install-nfd"))
    world = World(replace(scenario.load("keys-shared"), events=faults), tmp_path, seed=3)
    asyncio.run(world.run(54.0))

    assert world.judge.violations == []
    assert world.sharing is not None
    phases = [told.partition(": ")[2].partition(":")[0] for told in world.sharing.story]
    assert [phase for phase in phases if phase in (WITH, WITHOUT)] == [WITH, WITHOUT, WITH]
    assert world.sharing.written is not None
    assert world.sharing.on_node.isdecimal()


WITH, WITHOUT = "NFD there, share override", "NFD gone, share own"


def test_a_start_is_put_off_while_nobody_makes_quotes(tmp_path: Path) -> None:
    """Given a pod that has its ids and pulls its image when the service dies, then it starts when that is back."""
    faults = (Happening(2.0, "lose-quotes"), Happening(12.0, "restore-quotes"))
    world = World(replace(scenario.load("keys-offered"), events=faults), tmp_path, seed=3)
    asyncio.run(world.run(16.0))

    assert world.judge.violations == []
    assert world.offered is not None
    assert world.offered.counts.starts_refused > 0
    assert "PreStartContainer" in world.offered.counts.why_put_off


def test_a_runtime_of_vms_is_told_its_pod_and_whose_its_pulls_are(tmp_path: Path) -> None:
    """Given pods that live shortly, then some were known at RunPodSandbox, when their pulls were still pending, and
    some were compared after their guests had reported."""
    world = World(replace(scenario.load("pod-api"), events=()), tmp_path, seed=3)
    asyncio.run(world.run(8.0))

    assert world.judge.violations == []
    assert world.guests is not None
    counts = world.guests.counts
    assert counts.described >= counts.pending > 0
    assert counts.resolved >= counts.reported >= counts.compared > 0


@pytest.mark.parametrize("action", ["kill-relay", "restart-runtime"])
def test_kubelet_is_told_unavailable_while_relay_or_runtime_are_away_and_goes_on_after(
    action: str, tmp_path: Path
) -> None:
    """Given pods behind the relay, then no container is born without its limit, what runs keeps it, no call is lost or
    doubled, and the updates of a relay that has begun anew carry the limits of containers that it found."""
    story = replace(scenario.load("relay-killed"), events=kills(action), life_s=(60.0, 60.0))
    world = World(story, tmp_path, seed=3)
    asyncio.run(world.run(12.0))

    assert world.judge.violations == []
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
    states = [
        row.state for row in world.view.rows if row.level == "container" and row.container in ("enclave", "proxy")
    ]
    assert "enforced" in states
    assert set(states) <= {"enforced", "pending"}, "one that has just begun is still looked for"


def test_who_asks_for_more_cpus_than_there_are_is_refused_with_the_numbers_and_starts_when_there_is_room(
    tmp_path: Path,
) -> None:
    world = lived("cpus-crowded", tmp_path, 8.0)

    assert world.judge.violations == []
    assert world.pinned is not None
    counts = world.pinned.counts
    assert "not enough cpus available to satisfy request: requested=" in counts.why
    assert counts.refused > 3
    assert counts.exclusive > 10
    assert counts.unplaced == 0


def test_containers_grow_and_shrink_in_place_and_the_record_tells_who_would_have_other_cpus(tmp_path: Path) -> None:
    path = "/var/lib/nodeward/node.record"
    world = World(scenario.load("cpus-resize"), tmp_path, seed=3, record=path)
    asyncio.run(world.run(8.0))
    lines = world.kernel.read(path, 1 << 28).splitlines(keepends=True)

    assert world.judge.violations == []
    assert world.pinned is not None
    assert world.pinned.counts.resized > 2
    assert replay.replay(lines).difference == ""
    kept = PolicySettings("static", reserved=Amount(AmountKind.CPUSET, cpuset.of(range(4))))
    moved = what_if.what_if(lines, EngineSettings(policy=kept)).cpus
    assert any(one.recorded.startswith("exclusive ") and one.other.startswith("exclusive ") for one in moved)


def test_a_vm_that_is_larger_than_its_pods_limit_is_said_to_be_killed_before_it_is(tmp_path: Path) -> None:
    world = lived("sandboxes-too-big", tmp_path, 14.0, oversized=1.0)

    assert world.judge.violations == []
    assert world.katas is not None
    counts = world.katas.counts
    assert counts.warned >= counts.killed >= counts.counted > 1


def test_a_vmm_that_somebody_moves_out_of_its_pod_is_said_until_it_is_back(tmp_path: Path) -> None:
    world = lived("sandboxes-drift", tmp_path, 14.0)

    assert world.judge.violations == []
    assert world.katas is not None
    counts = world.katas.counts
    assert counts.moved == counts.told == counts.told_back == 1


def asked(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """`nodeward` in a process of its own, with another hash seed."""
    nodeward = Path(sys.executable).parent / "nodeward"
    return subprocess.run(
        [nodeward, *words],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        timeout=scaled(60),
        check=False,
    )


def test_a_record_of_a_faulted_run_replays_in_another_process_with_another_hash_seed(tmp_path: Path) -> None:
    chosen = replace(scenario.load("daemon-killed"), events=FAULTS)
    world = World(chosen, tmp_path, seed=5, record="/var/lib/nodeward/node.record")
    asyncio.run(world.run(10.0))
    assert world.tally.happenings == {fault.do: 1 for fault in FAULTS}
    path = tmp_path / "node.record"
    path.write_bytes(world.kernel.read("/var/lib/nodeward/node.record", 1 << 28))

    done = asked("replay", path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "every decision is the same, byte for byte" in done.stdout
    assert ", 0 event(s)" not in done.stdout
    kinds = [type(line) for line in record.read(iter(path.read_bytes().splitlines(keepends=True)))]
    assert kinds.count(record.Segment) == 2, "one of each daemon, the killed one and the next"
    assert {ApiLost, RuntimeLost} <= set(kinds)

    (tmp_path / "same.yaml").write_text("{}\n")
    (tmp_path / "strict.yaml").write_text("limits: {strict: true}\n")
    same = asked("replay", path, "--settings", tmp_path / "same.yaml")
    assert same.returncode == 0, same.stdout + same.stderr
    strict = asked("replay", path, "--settings", tmp_path / "strict.yaml")
    assert strict.returncode == 1, strict.stdout + strict.stderr
    assert strict.stdout.count("[first]") == 1
    assert "(strict web)" in strict.stdout
