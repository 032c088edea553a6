"""Seeded histories of the whole daemon on a simulated node hold, and one seed is one run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodeward.edges.cgroups import sampler
from tests.unit.simulated.history import run, sells_keys

HERE = Path(__file__).parent
KEPT = [
    int(line.split("#")[0]) for line in (HERE / "kept_seeds.txt").read_text().splitlines() if line.split("#")[0].strip()
]
FRESH = range(1000, 1015)


@pytest.mark.parametrize("seed", [*KEPT, *FRESH])
def test_a_history_violates_nothing(seed: int) -> None:
    outcome = run(seed)

    assert list(outcome.violations) == [], f"make simtest SEED={seed} tells all of it"
    assert outcome.events > 50
    assert outcome.pods > 0


@pytest.mark.nightly
def test_many_histories_violate_nothing() -> None:
    first, number = int(os.environ.get("NODEWARD_SEED", "1")), int(os.environ.get("NODEWARD_HISTORIES", "200"))
    assert [seed for seed in range(first, first + number) if run(seed).violations] == []


def test_keys_are_granted_in_the_histories_in_which_they_are_sold() -> None:
    granted = {seed: run(seed).grants for seed in FRESH if sells_keys(seed)}

    assert sum(granted.values()) > 2 * len(granted) > 8, granted


@pytest.mark.parametrize("seed", FRESH[:6])
def test_a_history_in_which_passes_are_told_one_cgroup_at_a_time_violates_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "MOST_TOLD", 1)
    assert list(run(seed).violations) == [], f"make simtest SEED={seed} tells all of it"


def test_a_seed_is_one_run_in_any_process() -> None:
    code = "from tests.unit.simulated.history import run; print(run(11).digest, run(12).digest)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    assert done.stdout.split() == [run(11).digest, run(12).digest]
    assert run(11).digest != run(12).digest


@pytest.mark.parametrize("seed", [11, 14, 28])
def test_a_wall_clock_that_is_set_changes_no_decision(seed: int) -> None:
    jumped, straight = run(seed), run(seed, wall_jumps=False)

    assert jumped.digest != straight.digest, "the clock was not set in this history: choose another seed"
    assert jumped.decisions == straight.decisions
