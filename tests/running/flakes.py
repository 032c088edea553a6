"""What a failed case means: it failed, it flaked, or it is in quarantine.

A case of a tier with sockets, processes or machines runs once more, alone, after everything else. If it passes, it has
flaked: the run passes, and the case costs a line. No unit test may flake, nor a case that the change touches, and no
more than three in a run. New cases run three times beside load, and must pass each time.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.patience import measured
from tests.running.schedule import environment

MOST = 3
MAY_FLAKE = ("component", "contract", "real", "vm")
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "tests.running.failures")
TIMES = 3
_ERROR = re.compile(r"^E\s+(?:\+ )?([\w.]*(?:Error|Exception|Expired|Failed)\w*: .*)$", re.MULTILINE)
_FOLLOWS = "Error: not tried, since "
_SHOWN = 400
"""Characters of an error."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A report of a case that failed. One that fails and cannot put away what it had has two."""

    case: str
    when: str
    said: str

    @property
    def tier(self) -> str:
        """Of its file."""
        return self.case.split("/")[1] if self.case.startswith("tests/") else ""

    @property
    def counts_as(self) -> str:
        """Of a guest's chain the cases after one that failed fail too: together they are one."""
        return self.case.partition("::")[0] if self.tier == "vm" else self.case


def told(failed: Sequence[Failure]) -> list[str]:
    """A line for each, with the errors that pytest marks, or how it begins: who sees only the end of the output sees
    why. Without those that a guest has not tried since another one failed."""
    lines = dict[str, None]()
    for one in failed:
        errors = [error for error in dict.fromkeys(_ERROR.findall(one.said)) if "Traceback (most" not in error]
        if not any(_FOLLOWS in error for error in errors):
            shown = errors[-2:] or one.said.splitlines()[:1]
            lines[f"failed: {one.case}: {' | '.join(error[:_SHOWN] for error in shown)}"] = None
    return list(lines)


def read(path: Path) -> list[Failure]:
    """What the plugin wrote."""
    return [Failure(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def triage(
    failed: Sequence[Failure], quarantine: Collection[str], touched: Callable[[str], bool]
) -> tuple[list[Failure], list[Failure]]:
    """Which are in quarantine, and which may run again: none where more failed than may flake."""
    rest = [one for one in failed if one.case not in quarantine]
    again = [one for one in rest if one.tier in MAY_FLAKE and one.when != "collect" and not touched(one.case)]
    few = len({one.counts_as for one in again}) <= MOST
    return [one for one in failed if one.case in quarantine], again if few else []


def passed_alone(root: Path, cases: Sequence[Failure]) -> dict[str, float]:
    """Which pass when they run again, and the seconds of that. Cases of one file run together: they share a guest."""
    passed: dict[str, float] = {}
    for file, group in groupby(sorted({one.case for one in cases}), key=lambda case: case.partition("::")[0]):
        names, began_s = list(group), time.monotonic()
        print(f"\n=== once more, alone: {', '.join(names)}", flush=True)
        code, failed, said = _pytest(root, names)
        print(said, flush=True)
        well = set(names).difference(one.case for one in failed) if code in (0, 1) else set[str]()
        passed |= dict.fromkeys(sorted(well), round(time.monotonic() - began_s, 1))
        for case in well:
            _keep(root, file, case, "\n".join(one.said for one in cases if one.case == case), said)
    return passed


def failed_beside_load(root: Path, cases: Sequence[str], marks: str) -> list[Failure]:
    """New cases that failed in one of three runs, while every core is busy with something else."""
    for number in range(TIMES if cases else 0):
        print(f"\n=== new cases beside load, {number + 1} of {TIMES}: {', '.join(cases)}", flush=True)
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 2)]
        try:
            code, failed, said = _pytest(root, [*cases, "-m", marks])
        finally:
            for one in busy:
                one.kill()
                one.wait()
        print(said, flush=True)
        if code not in (0, 5):
            return failed or [Failure(", ".join(cases), "", said)]
    return []


def _pytest(root: Path, words: Sequence[str]) -> tuple[int, list[Failure], str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "failures"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *OPTIONS],
            cwd=root, env=environment(root, measured()[0], {"NODEWARD_FAILURES": str(path)}),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
        )  # fmt: skip
        return done.returncode, read(path), done.stdout


def _keep(root: Path, file: str, case: str, first: str, again: str) -> None:
    name = re.sub(r"\W+", "-", case.removeprefix(file))[:80].strip("-")
    place = root / "build" / "flaked" / f"{time.strftime('%Y%m%dT%H%M%S')}-{Path(file).stem}-{name}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "first.txt").write_text(first)
    (place / "again.txt").write_text(again)
