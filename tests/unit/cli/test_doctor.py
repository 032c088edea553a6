"""What a person reads of findings."""

import pytest

from nodeward.app.doctor.run import Diagnosis
from nodeward.cli.doctor import _print
from nodeward.model.doctor import Finding, Severity
from tests.unit.engine.test_doctor import WELL


def test_a_remedy_that_mends_neighbours_is_printed_once_beneath_them(capsys: pytest.CaptureFixture[str]) -> None:
    old = tuple(Finding("runtime-old", Severity.NOTE, f"{one} is old", one, "Wait.") for one in ("runc", "crun"))
    _print(Diagnosis(WELL, (*old, Finding("clock", Severity.NOTE, "late", "clock", "Set it.")), Severity.NOTE, None))

    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "note    runtime-old: runc is old [runc]",
        "note    runtime-old: crun is old [crun]",
        "Wait.",
        "note    clock: late [clock]",
        "Set it.",
        "worst: note",
    ]
