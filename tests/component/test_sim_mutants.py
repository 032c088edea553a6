"""Every invariant of the simulated node is shown to fire: the node is broken in one place, and the run says so."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.sim import guests, invariants, katas, offered, pinned, relayed, scenario, sharing
from nodeward.sim.scenario import Happening, Scenario
from nodeward.sim.world import World
from tests.component.lives import fires, kills, lived, made
from tests.patience import patience

HURRIED_S = 1.0
"""A grace so short that a broken node is noticed within seconds, and a sound one still holds it."""


def test_without_a_mutant_no_invariant_fires_in_the_same_hurry(tmp_path: Path) -> None:
    world = lived("noisy-neighbour", tmp_path, 9.0, life_s=(1.0, 2.0), grace_s=HURRIED_S)

    assert world.judge.violations == []
    assert world.tally.pods > 0


@pytest.mark.parametrize(
    ("mutant", "invariant", "name", "grace_s"),
    [
        ("limits-not-written", invariants.UNLIMITED, "noisy-neighbour", HURRIED_S),
        ("kernel-forgets-limits", invariants.EXCESS, "noisy-neighbour", HURRIED_S),
        ("kernel-forgets-budgets", invariants.EXCESS, "pod-budget", HURRIED_S),
        ("runtime-forgets-events", invariants.LOST, "noisy-neighbour", HURRIED_S),
        ("lane-hangs", invariants.STUCK, "noisy-neighbour", HURRIED_S),
        # In the shipped grace: a client that backs off may notice the return later than HURRIED_S allows.
        ("loss-unnoticed", invariants.UNSAID, "api-server-lost", Scenario("").grace_s),
    ],
)
def test_an_invariant_fires_when_the_node_is_broken(
    mutant: str, invariant: str, name: str, grace_s: float, tmp_path: Path
) -> None:
    fires(made(name, tmp_path, mutant=mutant, grace_s=grace_s, life_s=(1.0, 2.0)), 9.0, invariant)


@pytest.mark.parametrize(
    ("mutant", "invariant"), [("keys-uncounted", invariants.OVERSOLD), ("keys-unread", invariants.UNREAD)]
)
def test_an_invariant_about_keys_fires_when_the_node_is_broken(mutant: str, invariant: str, tmp_path: Path) -> None:
    """In the shipped pace: where pods come and go each second, some key was left at some moment of the last three."""
    fires(made("keys", tmp_path, mutant=mutant), 9.0, invariant)


@pytest.mark.parametrize(("mutant", "invariant"), [(pinned.UNWAITED, pinned.OVERLAP), (pinned.UNWRITTEN, pinned.WRONG)])
def test_an_invariant_about_cpus_fires_when_the_node_is_broken(mutant: str, invariant: str, tmp_path: Path) -> None:
    """Among them a runtime that does not wait for the answer to StartContainer."""
    fires(made("cpus-quiet", tmp_path, mutant=mutant, grace_s=HURRIED_S), 9.0, invariant)


@pytest.mark.parametrize(
    ("mutant", "invariant", "name"),
    [
        (katas.UNSEEN, katas.TRUTH, "sandboxes-quiet"),
        (katas.UNDERSTATED, katas.WARNED, "sandboxes-too-big"),
        (katas.ENFORCED, katas.UNWRITTEN, "sandboxes-quiet"),
    ],
)
def test_an_invariant_about_vm_sandboxes_fires_when_the_node_is_broken(
    mutant: str, invariant: str, name: str, tmp_path: Path
) -> None:
    """Among them a VM that takes more than it says, and a daemon that sets limits though it should observe."""
    fires(made(name, tmp_path, mutant=mutant), 13.0, invariant)


def test_an_invariant_about_pulls_fires_where_kubelet_names_no_sandbox(tmp_path: Path) -> None:
    fires(made("pod-api", tmp_path, mutant=guests.NAMELESS), 14.0, guests.TRUTH)


@pytest.mark.parametrize(
    ("mutant", "invariant", "name"),
    [
        ("grants-unasked", offered.UNSAFE, "keys-oversold"),
        ("grants-unhealthy", offered.UNHEALTHY, "keys-oversold"),
        ("grants-lost", offered.LOST, "keys-offered"),
        ("capacity-blinks", offered.BLINKED, "keys-oversold"),
    ],
)
def test_an_invariant_about_offered_keys_fires_when_it_is_broken(
    mutant: str, invariant: str, name: str, tmp_path: Path
) -> None:
    fires(made(name, tmp_path, mutant=mutant, life_s=(3.0, 7.0), vms=16), 12.0, invariant)


@pytest.mark.parametrize(
    ("mutant", "invariant", "removed_s"),
    [
        ("nfd-unfollowed", sharing.UNSAID, 4.0),
        ("nfd-frozen", sharing.WRONG, 60.0),
        ("nfd-forgets", sharing.UNWRITTEN, 60.0),
    ],
)
def test_an_invariant_about_keys_shared_with_kata_fires_when_it_is_broken(
    mutant: str, invariant: str, removed_s: float, tmp_path: Path
) -> None:
    story = replace(scenario.load("keys-shared"), events=(Happening(removed_s, "remove-nfd"),))
    fires(World(story, tmp_path, seed=3, mutant=mutant), 14.0 + 3.0 * patience(), invariant)


@pytest.mark.parametrize(
    ("mutant", "fired", "action"),
    [
        ("relay-drops-limits", (relayed.BORN, relayed.BARE), "drift"),
        ("relay-doubles", (relayed.TWICE,), "drift"),
        ("relay-forgets", (relayed.BARE,), "kill-relay"),
        ("relay-fails", (relayed.OTHER,), "drift"),
        ("relay-hangs", (relayed.LOST,), "drift"),
        ("relay-stays-away", (relayed.AWAY,), "kill-relay"),
    ],
)
def test_an_invariant_about_the_relay_fires_when_it_is_broken(
    mutant: str, fired: tuple[str, ...], action: str, tmp_path: Path
) -> None:
    story = replace(scenario.load("relay-killed"), events=kills(action))
    fires(World(story, tmp_path, seed=3, mutant=mutant), 10.0 + 3.0 * patience(), *fired)
