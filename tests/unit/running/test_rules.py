"""The runner's rules: what begins when, what a change touches, what may flake, what is over its cap."""

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tests import patience
from tests.peers.recipes import RECIPES
from tests.running import changed, flakes, records, report, schedule
from tests.running.flakes import Failure
from tests.running.parts import PARTS, PEERS, Part

UNIT, COMPONENT, REAL = Part("unit"), Part("component"), Part("real", peers=("kubernetes",))
GUEST = Part("vm", ("test_it.py",), load=0.75, apart=True)
BUILDS = Part(PEERS)


def nothing(_: str) -> bool:
    return False


def begins(part: Part, running: list[Part], waiting: list[Part], *built: str) -> bool:
    return schedule.may_begin(part, running, waiting, built.__contains__)


def test_a_tier_begins_when_the_one_before_is_over_and_a_guest_where_there_is_room() -> None:
    assert begins(COMPONENT, [GUEST], [])
    assert not begins(COMPONENT, [UNIT], [])
    assert not begins(COMPONENT, [], [UNIT])
    assert begins(GUEST, [UNIT], [COMPONENT])
    assert not begins(GUEST, [UNIT, Part("unit", ("wire",), load=0.5)], [])


def test_a_part_waits_for_its_own_peers_and_nobody_waits_for_one_that_waits() -> None:
    assert not begins(REAL, [BUILDS], [], "containerd")
    assert begins(REAL, [BUILDS], [], "kubernetes")
    assert begins(REAL, [], []), "what could not be built is told by its tests"
    other = Part("vm", after=(REAL.name,))
    assert begins(other, [BUILDS], [REAL])
    assert not begins(other, [BUILDS], [REAL], "kubernetes")


@pytest.mark.parametrize("part", PARTS, ids=lambda part: str(part.name))
def test_what_a_part_names_is_there(part: Part) -> None:
    names = [f"src/{name.replace('.', '/')}" if name.startswith("nodeward.") else name for name in part.covers]
    absent = [name for name in names if not any((schedule.HERE / f"{name}{end}").exists() for end in ("", ".py"))]
    assert absent == []
    assert [file for file in part.files if not (schedule.HERE / "tests" / part.tier / file).exists()] == []
    assert set(part.peers) <= set(RECIPES)
    assert set(part.after) <= {one.name for one in PARTS}


def test_the_source_of_every_edge_is_covered_by_a_part_on_real_neighbours() -> None:
    edges = {path.stem for path in (schedule.HERE / "src/nodeward/edges").iterdir() if path.stem[0] != "_"}
    covered = {name.split(".")[2] for part in PARTS for name in part.covers if name.startswith("nodeward.edges.")}
    assert edges - covered == {"local", "metrics", "qgs"}, "they have no neighbour that has a part of its own"


IMPORTS = {
    "nodeward.model.a": frozenset[str](),
    "nodeward.edges.nri.b": frozenset({"nodeward.model.a"}),
    "nodeward.edges.cri.c": frozenset[str](),
    "tests.peers.d": frozenset[str](),
    "tests.real.test_e": frozenset({"tests.peers.d", "nodeward.edges.cri.c"}),
}


@pytest.mark.parametrize(
    ("file", "is_touched"),
    [
        ("src/nodeward/edges/nri/b.py", True),
        ("src/nodeward/model/a.py", True),
        ("src/nodeward/edges/cri/c.py", False),
        ("tests/peers/d.py", True),
        ("tests/peers/go/kubernetes/go.mod", True),
        ("tests/peers/rust/cgroupsrs/main.rs", True),
        ("bench/nri_stub/main.go", False),
        ("deploy/systemd/nodeward.service", True),
        ("deploy/systemd-other", False),
        ("docs/testing.md", False),
    ],
)
def test_a_change_touches_the_parts_that_cover_it_by_the_import_graph(file: str, is_touched: bool) -> None:
    covers = ("nodeward.edges.nri", "deploy/systemd")
    part = Part("real", ("test_e.py",), peers=("kubernetes", "cgroupsrs"), covers=covers)
    assert changed.touched(part, {file}, IMPORTS) is is_touched


def test_imports_are_read_from_the_text() -> None:
    text = "from nodeward.model import (\n    a,\n)\n  from tests.peers.d import x\nimport nodeward.edges.cri.c, os\n"
    assert changed.imported(text, IMPORTS) == {"nodeward.model.a", "tests.peers.d", "nodeward.edges.cri.c"}


def failure(case: str, when: str = "call") -> Failure:
    return Failure(f"tests/{case}", when, "said")


def test_what_may_run_again() -> None:
    ones = [failure("unit/test_a.py::a"), failure("real/test_b.py::b"), failure("real/test_c.py", "collect")]
    ones += [failure("vm/test_d.py::d"), failure("component/test_e.py::e")]
    known, again = flakes.triage(ones, {"tests/vm/test_d.py::d"}, lambda case: "test_e" in case)
    assert (known, again) == ([ones[3]], [ones[1]])


def test_of_more_than_three_none_runs_again_and_a_guests_chain_counts_once() -> None:
    chain = [failure(f"vm/test_d.py::{number}") for number in range(9)]
    others = [failure(f"real/test_b.py::{number}") for number in range(3)]
    assert flakes.triage([*chain, *others[:2]], (), nothing)[1] == [*chain, *others[:2]]
    assert flakes.triage([*chain, *others], (), nothing)[1] == []


def test_why_a_case_failed_is_said_at_the_end() -> None:
    first = "held = {'b': 'not tried, since a failed'}\nE       AssertionError: Traceback (most recent call last):\n"
    first += "E           File\nE         AssertionError: not within 60 s: it comes\n"
    ones = [Failure("tests/vm/test_d.py::a", "call", first)]
    ones += [Failure("tests/vm/test_d.py::b", "call", "E       AssertionError: not tried, since a failed\n")]
    ones.append(Failure("tests/vm/test_e.py::a", "setup", "the guest did not finish\nits output"))
    assert flakes.told(ones) == [
        "failed: tests/vm/test_d.py::a: AssertionError: not within 60 s: it comes",
        "failed: tests/vm/test_e.py::a: the guest did not finish",
    ]


def test_a_case_of_the_change_is_one_whose_file_or_whose_imports_it_touches() -> None:
    case = "tests/real/test_e.py::test_it[1]"
    assert changed.is_of(case, {"tests/real/test_e.py"}, IMPORTS)
    assert changed.is_of(case, {"src/nodeward/edges/cri/c.py"}, IMPORTS)
    assert not changed.is_of(case, {"src/nodeward/model/a.py", "README.md"}, IMPORTS)


def test_the_quarantine_is_short_and_nobody_stays_there() -> None:
    listed = {str(number): date(2026, 7, 31) for number in range(5)}
    assert records.faults(listed, date(2026, 7, 31)) == []
    assert len(records.faults({**listed, "6": date(2026, 6, 30)}, date(2026, 7, 31))) == 2


def test_a_part_and_the_whole_are_over_a_cap_by_processor_time_that_the_host_scales() -> None:
    took = {"a": (110.0, 100.0), "b": (90.0, 100.0)}
    assert report.over(took, 1.0) == ["a: 110.0 s of processor, OVER its cap of 100 s x 1.00 (patience)"]
    assert report.over(took, 1.2) == []


def test_the_processor_time_of_a_parts_children_is_counted(tmp_path: Path) -> None:
    """As QEMU's is, whose parent waits for it."""
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    command = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"]
    (one,) = schedule.run({UNIT: command}, tmp_path, {}, nothing)
    assert one.processor_s > 0.5


@pytest.mark.parametrize(
    ("code", "said", "counts"),
    [
        (0, "3 passed, 1 skipped, 1 xfailed in 2s", (3, 0, 1, 1)),
        (1, "2 failed, 1 passed, 1 error in 2s", (1, 3, 0, 0)),
        (4, "no such file", (0, 1, 0, 0)),
        (5, "no tests ran", (0, 0, 0, 0)),
    ],
)
def test_the_counts_of_a_part(code: int, said: str, counts: tuple[int, ...]) -> None:
    assert report.read(code, f"0.20s call     tests/a.py::b\n{said}\n") == (counts, [(0.2, "tests/a.py::b")])


def test_a_deadline_is_longer_where_the_runner_found_the_machine_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from tests.patience import scaled; print(scaled(30))"
    monkeypatch.setenv("NODEWARD_PATIENCE", "2.5")
    done = subprocess.run([sys.executable, "-c", code], cwd=schedule.HERE, capture_output=True, text=True, check=True)
    assert done.stdout == "75.0\n"
    assert all(1.0 <= factor <= 10.0 for factor in patience.measured())
