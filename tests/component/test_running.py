"""Whole runs of the runner on small checkouts: what fails one, and what it shows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running.schedule import HERE

GOOD = "import time\n\ndef test_good():\n    time.sleep(0.01)\n"
BAD = "def test_bad():\n    assert False\n"
FLAKY = """import pathlib

def test_flaky():
    before = pathlib.Path("before")
    if not before.exists():
        before.touch()
        raise AssertionError("the first time")
"""


@pytest.fixture(autouse=True)
def requires_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where CI, which requires all, plays this."""
    monkeypatch.delenv("NODEWARD_REQUIRE_ALL", raising=False)


def ran(folder: Path, depth: str = "test", check: str = "true", **tiers: str) -> subprocess.CompletedProcess[str]:
    """A run on a checkout that has these tiers."""
    (folder / "Makefile").write_text(f"check:\n\t@{check}\n")
    for name, text in tiers.items():
        (folder / "tests" / name).mkdir(parents=True)
        (folder / "tests" / name / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "tests.running.main", depth, "--root", str(folder)]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=300, check=False)


def test_each_tier_is_shown_and_the_last_line_has_all_counts(tmp_path: Path) -> None:
    marked = "import pytest\n@pytest.mark.deep\ndef test_long():\n    assert False\n"
    done = ran(tmp_path, unit=f"{GOOD}{marked}", component=GOOD)

    assert done.returncode == 0, done.stdout
    summary = done.stdout.partition("=== tiers")[2].splitlines()
    assert [line.split()[0] for line in summary if line.endswith("s of processor")] == ["checks", "unit", "component"]
    assert any(line.endswith("s  tests/unit/test_unit.py::test_good") for line in summary)
    assert "warning: tests/records/deep.json is missing: no `make deep` is on record; run it" in summary
    assert summary[-1] == "2 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(("check", "text"), [("true", BAD), ("true", "import nowhere\n"), ("false", GOOD)])
def test_a_fault_fails_the_run(check: str, text: str, tmp_path: Path) -> None:
    done = ran(tmp_path, check=check, component=text)

    assert done.returncode == 1
    assert done.stdout.endswith(f"{int(text == GOOD)} passed, 1 failed, 0 skipped\n"), done.stdout


def test_a_flaked_case_costs_a_line_and_a_unit_test_may_not_flake(tmp_path: Path) -> None:
    done = ran(tmp_path, component=FLAKY)

    assert done.returncode == 0, done.stdout
    assert "\nflaked: tests/component/test_component.py::test_flaky, passed alone in " in done.stdout
    assert done.stdout.endswith("\n1 passed, 0 failed, 0 skipped\n")
    (line,) = (tmp_path / "tests/records/flaked.jsonl").read_text().splitlines()
    assert json.loads(line)["case"] == "tests/component/test_component.py::test_flaky"
    (first,) = (tmp_path / "build/flaked").rglob("first.txt")
    assert "the first time" in first.read_text()

    (tmp_path / "before").unlink()
    assert ran(tmp_path, unit=FLAKY).returncode == 1


def test_what_is_in_quarantine_runs_and_fails_nothing_until_it_is_there_too_long(tmp_path: Path) -> None:
    (tmp_path / "tests/records").mkdir(parents=True)
    listed = '[[case]]\nid = "tests/component/test_component.py::test_bad"\nwhy = "unknown"\nsince = '
    (tmp_path / "tests/records/quarantine.toml").write_text(f"{listed}9999-01-01\n")
    done = ran(tmp_path, component=BAD)
    assert done.returncode == 0, done.stdout
    assert "\nin quarantine, and failed: tests/component/test_component.py::test_bad\n" in done.stdout

    (tmp_path / "tests/records/quarantine.toml").write_text(f"{listed}2020-01-01\n")
    assert ran(tmp_path, check="true").returncode == 1


def test_peers_are_built_before_the_parts_that_need_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWARD_REQUIRE_ALL", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    built = tmp_path / "built"
    (tmp_path / "scripts").mkdir()
    script = f"import time\ntime.sleep(0.3)\nopen({str(built)!r}, 'w').close()"
    (tmp_path / "scripts/build-peers").write_text(script)
    needs = f"import os\n\ndef test_needs():\n    assert os.path.exists({str(built)!r})\n"
    skips = "import pytest\n\ndef test_absent():\n    pytest.skip('no tool')\n"
    done = ran(tmp_path, contract=f"{needs}{skips}")

    assert done.stdout.endswith("1 passed, 0 failed, 1 skipped\n"), done.stdout
    assert done.returncode == 1
    assert "NODEWARD_REQUIRE_ALL=1 demands every test, and 1 skipped" in done.stdout


def test_a_new_case_runs_three_times_beside_load_and_none_of_the_change_may_flake(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "empty")
    done = ran(tmp_path, component=FLAKY)

    assert "=== new cases beside load, 3 of 3: tests/component/test_component.py::test_flaky\n" in done.stdout
    assert done.returncode == 1
    assert "flaked:" not in done.stdout


def test_the_gate_runs_the_doubles_and_what_a_change_touches_alone(tmp_path: Path) -> None:
    real = "import pytest\n\n@pytest.mark.neighbour\ndef test_real():\n    assert False\n"
    done = ran(tmp_path, "gate", component=GOOD, contract=f"{GOOD}{real}", real=BAD, vm=BAD)

    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("2 passed, 0 failed, 0 skipped\n")


def test_a_deep_run_is_written_down(tmp_path: Path) -> None:
    marked = "import os\nimport pytest\n\n@pytest.mark.deep\ndef test_long():\n    "
    raised = 'assert os.environ["NODEWARD_FUZZ_INPUTS"] == "1000000"\n'
    ran(tmp_path, "deep", unit=f"{BAD}{marked}{raised}")

    told = json.loads((tmp_path / "tests/records/deep.json").read_text())
    assert told["result"].startswith("1 passed, ")
    assert set(told) == {"commit", "date", "seed", "result"}
