"""Every invariant of the simulated node is shown to fire: the node is broken in one place, and the run says so."""

from pathlib import Path
from typing import Any

import pytest

from nodeward_sim import claimed, gated, guests, invariants, katas, offered, pinned, relayed, sharing
from nodeward_sim.scenario import Happening
from tests.component.lives import fires, kills, lived, made
from tests.patience import patience

HURRIED_S = 1.0
"""A grace so short that a broken node is noticed within seconds, and a sound one still holds it."""
HURRIED: dict[str, Any] = {"grace_s": HURRIED_S, "life_s": (1.0, 2.0)}
# In the shipped grace: a client that backs off may notice the return later than HURRIED_S allows.
LOST: dict[str, Any] = {"life_s": (1.0, 2.0)}
CPUS: dict[str, Any] = {"grace_s": HURRIED_S}
OFFERED: dict[str, Any] = {"life_s": (3.0, 7.0), "vms": 16}
CLAIMED: dict[str, Any] = {"claims": 16, "life_s": (5.0, 9.0)}
LATER_S = 3.0 * patience()


def removed(at_s: float) -> dict[str, Any]:
    return {"events": (Happening(at_s, "remove-nfd"),)}


BROKEN: dict[str, tuple[str, tuple[str, ...], dict[str, Any], float]] = {
    "limits-not-written": ("noisy-neighbour", (invariants.UNLIMITED,), HURRIED, 9.0),
    "kernel-forgets-limits": ("noisy-neighbour", (invariants.EXCESS,), HURRIED, 9.0),
    "kernel-forgets-budgets": ("pod-budget", (invariants.EXCESS,), HURRIED, 9.0),
    "runtime-forgets-events": ("noisy-neighbour", (invariants.LOST,), HURRIED, 9.0),
    "lane-hangs": ("noisy-neighbour", (invariants.STUCK,), HURRIED, 9.0),
    "loss-unnoticed": ("api-server-lost", (invariants.UNSAID,), LOST, 9.0),
    # In the shipped pace: where pods come and go each second, some key was left at some moment of the last three.
    "keys-uncounted": ("keys", (invariants.OVERSOLD,), {}, 9.0),
    "keys-unread": ("keys", (invariants.UNREAD,), {}, 9.0),
    # Among them a runtime that does not wait for the answer to StartContainer.
    pinned.UNWAITED: ("cpus-quiet", (pinned.OVERLAP,), CPUS, 9.0),
    pinned.UNWRITTEN: ("cpus-quiet", (pinned.WRONG,), CPUS, 9.0),
    # Among them a VM that takes more than it says, and a daemon that sets limits though it should observe.
    katas.UNSEEN: ("sandboxes-quiet", (katas.TRUTH,), {}, 13.0),
    katas.UNDERSTATED: ("sandboxes-too-big", (katas.WARNED,), {}, 13.0),
    katas.ENFORCED: ("sandboxes-quiet", (katas.UNWRITTEN,), {}, 13.0),
    # A daemon that only observes, and one that does not hear of verdicts.
    gated.IGNORED: ("gate", (gated.EARLY,), {}, 9.0),
    gated.DEAF: ("gate", (gated.STUCK,), {}, 9.0),
    guests.NAMELESS: ("pod-api", (guests.TRUTH,), {}, 14.0),
    "grants-unasked": ("keys-oversold", (offered.UNSAFE,), OFFERED, 12.0),
    "grants-unhealthy": ("keys-oversold", (offered.UNHEALTHY,), OFFERED, 12.0),
    "grants-lost": ("keys-offered", (offered.LOST,), OFFERED, 12.0),
    "capacity-blinks": ("keys-oversold", (offered.BLINKED,), OFFERED, 12.0),
    "claims-unasked": ("claims", (claimed.UNSAFE,), CLAIMED, 14.0),
    "claims-emptied": ("claims", (claimed.BARE,), {}, 9.0),
    "slice-forgotten": ("claims", (claimed.AWAY,), {"grace_s": HURRIED_S}, 14.0),
    "nfd-unfollowed": ("keys-shared", (sharing.UNSAID,), removed(4.0), 14.0 + LATER_S),
    "nfd-frozen": ("keys-shared", (sharing.WRONG,), removed(60.0), 14.0 + LATER_S),
    "nfd-forgets": ("keys-shared", (sharing.UNWRITTEN,), removed(60.0), 14.0 + LATER_S),
    "relay-drops-limits": ("relay-killed", (relayed.BORN, relayed.BARE), kills("drift"), 10.0 + LATER_S),
    "relay-doubles": ("relay-killed", (relayed.TWICE,), kills("drift"), 10.0 + LATER_S),
    "relay-forgets": ("relay-killed", (relayed.BARE,), kills("kill-relay"), 10.0 + LATER_S),
    "relay-fails": ("relay-killed", (relayed.OTHER,), kills("drift"), 10.0 + LATER_S),
    "relay-hangs": ("relay-killed", (relayed.LOST,), kills("drift"), 10.0 + LATER_S),
    "relay-stays-away": ("relay-killed", (relayed.AWAY,), kills("kill-relay"), 10.0 + LATER_S),
}
"""By what is broken: where, what has to be said, what is changed of the scenario, and within how many seconds."""


@pytest.mark.parametrize("mutant", BROKEN)
def test_an_invariant_fires_when_the_node_is_broken(mutant: str, tmp_path: Path) -> None:
    name, said, changes, within_s = BROKEN[mutant]
    fires(made(name, tmp_path, mutant=mutant, **changes), within_s, *said)


def test_without_a_mutant_no_invariant_fires_in_the_same_hurry(tmp_path: Path) -> None:
    world = lived("noisy-neighbour", tmp_path, 9.0, **HURRIED)

    assert world.judge.violations == []
    assert world.tally.pods > 0
