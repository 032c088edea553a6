"""Seeded histories of the whole daemon on a simulated node hold, one seed is one run, and what is broken is noticed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodeward.edges.cgroups import sampler
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
