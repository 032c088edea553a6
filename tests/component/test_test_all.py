"""`make test`'s own rules: what fails it, and what it shows."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "test-all"
GOOD = "import time\n\ndef test_good():\n    time.sleep(0.01)\n"
BAD = "def test_bad():\n    assert False\n"
SKIPS = GOOD + "import pytest\n\ndef test_absent():\n    pytest.skip('no tool')\n"
EXCEPTED = GOOD + "import pytest\n\n@pytest.mark.xfail(run=False)\ndef test_known():\n    assert False\n"


@pytest.fixture(autouse=True)
def requires_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where CI, which requires all, plays this."""
    monkeypatch.delenv("NODEWARD_REQUIRE_ALL", raising=False)


def ran(folder: Path, *arguments: str, check: str = "true", **tiers: str) -> subprocess.CompletedProcess[str]:
    """The script on a checkout that has these tiers."""
    (folder / "Makefile").write_text(f"check:\n\t@{check}\n")
    for name, text in tiers.items():
        (folder / "tests" / name).mkdir(parents=True)
        (folder / "tests" / name / f"test_{name}.py").write_text(text)
    command = [sys.executable, str(SCRIPT), "--root", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_each_tier_is_shown_with_its_time_and_its_slowest_case(tmp_path: Path) -> None:
    done = ran(tmp_path, unit=GOOD, component=GOOD)

    assert done.returncode == 0, done.stdout
    summary = done.stdout.partition("=== tiers")[2].splitlines()
    assert [line.split()[0] for line in summary[1:] if not line.startswith(" ")] == [
        "checks", "unit", "component", "total", "2",
    ]  # fmt: skip
    assert any(line.endswith("s  tests/unit/test_unit.py::test_good") for line in summary)
    assert summary[-2].startswith("total ")
    assert ", within the budget of 45 min x " in summary[-2]
    assert summary[-1] == "2 passed, 0 failed, 0 skipped"


def test_each_codec_gets_its_hundred_thousand_damaged_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODEWARD_FUZZ_INPUTS", raising=False)
    asked = 'import os\n\ndef test_asked():\n    assert os.environ["NODEWARD_FUZZ_INPUTS"] == "100000"\n'
    done = ran(tmp_path, unit=asked)

    assert done.returncode == 0, done.stdout


def test_what_runs_beside_a_tier_is_counted_with_it(tmp_path: Path) -> None:
    (tmp_path / "tests/component").mkdir(parents=True)
    (tmp_path / "tests/component/test_sim.py").write_text(BAD)
    (tmp_path / "tests/component/test_other.py").write_text(GOOD)
    done = ran(tmp_path, unit=GOOD)

    assert done.returncode == 1
    assert done.stdout.endswith("2 passed, 1 failed, 0 skipped\n")
    assert done.stdout.count("1 failed in") == 1


def test_a_guest_begins_beside_an_earlier_tier_and_is_counted_with_its_own(tmp_path: Path) -> None:
    began = tmp_path / "began"
    (tmp_path / "tests/vm").mkdir(parents=True)
    (tmp_path / "tests/vm/test_chain.py").write_text(f"{BAD}\nopen({str(began)!r}, 'w').close()\n")
    (tmp_path / "tests/vm/test_other.py").write_text(GOOD)
    until = f"    while not os.path.exists({str(began)!r}):\n        time.sleep(0.01)\n"
    done = ran(tmp_path, contract=f"import os, time\n\ndef test_waits():\n{until}")

    summary = done.stdout.partition("=== tiers")[2].splitlines()
    (vm,) = [line for line in summary if line.startswith("vm ")]
    assert "1 passed, 1 failed" in vm
    assert done.stdout.endswith("2 passed, 1 failed, 0 skipped\n")


def test_a_tier_begins_when_all_of_the_one_before_has_ended(tmp_path: Path) -> None:
    (tmp_path / "tests/component").mkdir(parents=True)
    (tmp_path / "tests/component/relay").mkdir()
    for name in ("relay", "other"):
        left = f"    open({str(tmp_path / name)!r}, 'w').close()\n"
        place = tmp_path / "tests/component" / ("relay/test_relay.py" if name == "relay" else "test_other.py")
        place.write_text(f"import time\n\ndef test_it():\n    time.sleep(0.3)\n{left}")
    there = f"    assert {{'relay', 'other'}} <= set(os.listdir({str(tmp_path)!r}))\n"
    done = ran(tmp_path, contract=f"import os\n\ndef test_after():\n{there}")

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("code", "end"), [(0, "2 passed, 0 failed, 0 skipped\n"), (1, "2 passed, 1 failed, 0 skipped\n")]
)
def test_neighbours_are_built_before_the_tiers_that_need_them(
    code: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODEWARD_REQUIRE_ALL", "1")
    built = tmp_path / "built"
    (tmp_path / "scripts").mkdir()
    script = f"import sys, time\ntime.sleep(0.3)\nopen({str(built)!r}, 'w').close()\nsys.exit({code})\n"
    (tmp_path / "scripts/build-peers").write_text(script)
    needs = f"import os\n\ndef test_needs():\n    assert os.path.exists({str(built)!r})\n"
    done = ran(tmp_path, contract=needs, vm=needs)

    assert done.stdout.endswith(end), done.stdout
    assert done.returncode == code


def test_a_total_over_the_budget_fails_though_each_case_passed(tmp_path: Path) -> None:
    done = ran(tmp_path, "--budget-minutes", "0", unit=GOOD)

    assert done.returncode == 1
    assert ", OVER the budget of 0 min x " in done.stdout
    assert done.stdout.endswith("1 passed, 0 failed, 0 skipped\n")


@pytest.mark.parametrize(
    ("check", "text", "end"),
    [
        ("true", BAD, "0 passed, 1 failed, 0 skipped\n"),
        ("true", "import nowhere\n", "0 passed, 1 failed, 0 skipped\n"),
        ("false", GOOD, "1 passed, 1 failed, 0 skipped\n"),
    ],
)
def test_a_fault_within_the_budget_fails(check: str, text: str, end: str, tmp_path: Path) -> None:
    done = ran(tmp_path, check=check, unit=text)

    assert done.returncode == 1
    assert done.stdout.endswith(end)


def test_a_machine_that_is_twice_as_slow_has_twice_the_time() -> None:
    verdict = runpy.run_path(str(SCRIPT))["verdict"]

    assert verdict(59.0, 1, [1.0]) == (True, "total 59.0 s, within the budget of 1 min x 1.00 (patience) = 60 s")
    assert verdict(61.0, 1, [1.0, 1.0])[0] is False
    assert verdict(119.0, 1, [1.0, 3.0])[0] is True
    assert verdict(121.0, 1, [1.0, 3.0])[0] is False


@pytest.mark.parametrize("required", ["", "1"])
def test_what_is_skipped_fails_only_where_all_tests_are_required(
    required: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODEWARD_REQUIRE_ALL", required)
    done = ran(tmp_path, unit=SKIPS)

    assert done.returncode == int(required or 0)
    assert done.stdout.endswith("1 passed, 0 failed, 1 skipped\n")
    assert ("NODEWARD_REQUIRE_ALL=1 demands every test, and 1 skipped" in done.stdout) is bool(required)


def test_what_is_excepted_is_said_and_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWARD_REQUIRE_ALL", "1")
    done = ran(tmp_path, unit=GOOD, component=EXCEPTED)

    assert done.returncode == 0, done.stdout
    assert "\n1 excepted: known not to hold on one end" in done.stdout
    assert done.stdout.endswith("2 passed, 0 failed, 0 skipped\n")
