"""Seeded histories of the whole daemon on a simulated node hold, one seed is one run, and what is broken is noticed."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from nodeward.app.host import core, slots
from nodeward.app.host.undo import UndoList
from nodeward.edges.cgroups import sampler, writer
from nodeward.engine.apply import DOMAINS, Domains, apply
from nodeward.engine.limits import readings
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.decision import Decision, Goal, Target
from nodeward.model.ports import Written
from tests.unit.simulated import history
from tests.unit.simulated.history import run

SEEDS = range(1000, 1006)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_violates_nothing(seed: int) -> None:
    outcome = run(seed)

    assert list(outcome.violations) == [], f"make simtest SEED={seed} tells all of it"
    assert outcome.events > 50
    assert outcome.pods > 0


@pytest.mark.nightly
def test_many_histories_violate_nothing() -> None:
    first, number = int(os.environ.get("NODEWARD_SEED", "1")), int(os.environ.get("NODEWARD_HISTORIES", "200"))
    assert [seed for seed in range(first, first + number) if run(seed).violations] == []


def test_a_history_in_which_passes_are_told_one_cgroup_at_a_time_violates_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampler, "MOST_TOLD", 1)
    assert list(run(SEEDS[0]).violations) == []


def test_a_seed_is_one_run_in_any_process_and_a_wall_clock_that_is_set_changes_no_decision() -> None:
    code = "from tests.unit.simulated.history import run; print(run(11).digest)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    jumped, straight = run(11), run(11, wall_jumps=False)

    assert done.stdout.split() == [jumped.digest]
    assert jumped.digest != straight.digest, "the clock was not set in this history: choose another seed"
    assert jumped.decisions == straight.decisions


# ---- the judgement -------------------------------------------------------------------------------------------------

_APPLY, _SET, _COUNT = apply, slots.Slots.set, count()


def _moody(state: State, event: ev.Event, domains: Domains = DOMAINS) -> tuple[State, Decision]:
    """As if decisions depended on more than the state."""
    state, decision = _APPLY(state, event, domains)
    return state, replace(decision, goals=decision.goals[::-1]) if next(_COUNT) % 7 == 0 else decision


def _remembers(of: slots.Slots, given: Iterable[Goal], forget: Iterable[Target] = ()) -> None:
    _SET(of, given)


MUTANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "has None, wanted": (writer, "set_limit", lambda *_: Written(wrote=True, old="max")),
    "wanted": (readings, "_repair", lambda *_: []),
    "slots are left": (slots.Slots, "set", _remembers),
    "descriptors are open": (sampler.Reader, "_release", lambda *_: None),
    "not on the undo list": (UndoList, "remember", lambda *_: None),
    "misc is still on": (writer, "disable_misc", lambda *_: 0),
    "replay differs": (core, "apply", _moody),
}
"""What must be said, and what is broken for that."""


@pytest.mark.parametrize("said", MUTANTS)
def test_what_is_broken_is_noticed(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # mutants complain without end
    monkeypatch.setattr(history, "QUIET_S", 35)  # what is broken stays so
    monkeypatch.setattr(*MUTANTS[said])
    assert any(said in text for seed in range(1, 40) for text in run(seed).violations)
