"""All tests at one of four depths: python -m tests.running.main {gate,test,deep,matrix}; `make` has a target for each.

It runs the checks and the parts of that depth beside one another, then failed cases once more, then new cases beside
load. At the end it shows what each tier took, and one line of all counts. Tools that are absent make their tests skip
with the command that installs them; with NODEWARD_REQUIRE_ALL=1 they fail instead, any other skip fails the whole, and
the peers are built beside the tests. Wall time fails nothing; processor time over a cap does.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from tests.peers.recipes import RECIPES
from tests.running import changed, flakes, parts, records, report, schedule
from tests.running.flakes import Failure
from tests.running.parts import CHECKS, PEERS, TIERS, Part
from tests.running.report import Ran

WALL_MINUTES = {"gate": 10.0, "test": 90.0}
"""After so long a run warns. The other depths have neither caps nor flaked cases, and are written down."""
Commands = Mapping[Part, Sequence[str]]


def commands(root: Path, depth: str, now: changed.Change, require_all: bool) -> Commands:
    """What runs each part of a depth, by its words; first the checks and, where all is required, what builds peers."""
    files = {part: given for part in parts.PARTS if (given := parts.paths(root, part))}
    marks = dict.fromkeys(files, parts.MARKS[depth])
    if depth == "gate":
        imports = changed.graph(root)
        marks = {part: marks[part] for part in files if part.tier in TIERS[:3]}
        of_change = [part for part in files if part.covers and changed.touched(part, now.files, imports)]
        print(*(f"the change touches {part.name}\n" for part in of_change), sep="", end="", flush=True)
        marks |= dict.fromkeys(of_change, parts.MARKS["test"])
    pytest = (sys.executable, "-m", "pytest", "--durations=5", *flakes.OPTIONS)
    made = {part: [*pytest, *files[part], "-m", of] for part, of in marks.items()}
    needed = [name for name in RECIPES if any(name in part.peers for part in made)]
    built = {Part(PEERS): [sys.executable, "scripts/build-peers", *needed]} if require_all and needed else {}
    return {Part(CHECKS): ["make", "--no-print-directory", "check"], **built, **made}


def settle(root: Path, failed: Sequence[Failure], now: changed.Change) -> tuple[int, int, list[str]]:
    """How many cases flaked, how many reports of failures fail nothing, and what to say of both."""
    imports = changed.graph(root) if failed else {}
    known, again = flakes.triage(
        failed, records.quarantined(root), lambda case: changed.is_of(case, now.files, imports)
    )
    passed = flakes.passed_alone(root, again)
    if passed:
        records.write_flaked(root, passed)
    said = [f"in quarantine, and failed: {one.case}" for one in known]
    said += [f"flaked: {case}, passed alone in {took:g} s; build/flaked has both" for case, took in passed.items()]
    return len(passed), len([*known, *(one for one in again if one.case in passed)]), said


def capped(depth: str, ran: Sequence[Ran]) -> tuple[str, list[str]]:
    """What all took of a processor, without what a change adds to the gate; a line for each part over its cap."""
    took = {one.part.name: (one.processor_s, one.part.cap_s) for one in ran if one.part.tier in TIERS}
    factor, always = sum(one.factor for one in ran) / len(ran), TIERS if depth == "test" else TIERS[:3]
    whole, cap_s = sum(one.processor_s for one in ran if one.part.tier in always), parts.CAPS_S[depth]
    over = report.over({**took, f"make {depth}": (whole, cap_s)}, factor)
    return f"processor {whole:.1f} s, at most {cap_s:g} s x {factor:.2f} (patience)", over


def main() -> int:
    """0 when nothing failed, nothing is missing that was required, and no cap was overrun."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("depth", choices=("gate", "test", "deep", "matrix"))
    parser.add_argument("--root", type=Path, default=schedule.HERE, help="the checkout whose tests are run")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000_000, help="of deep histories")
    given = parser.parse_args()
    depth, root, require_all = str(given.depth), Path(given.root), os.environ.get("NODEWARD_REQUIRE_ALL") == "1"
    began_s, now = time.monotonic(), changed.change(root)
    # programs that are started hundreds of times, and guests that see this folder read only, need not compile it then
    subprocess.run([sys.executable, "-m", "compileall", "-q", "src", "tests"], cwd=root, check=False)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "failures"
        more = {"NODEWARD_FAILURES": str(written), "NODEWARD_SEED": str(given.seed)}
        more |= parts.DEEP_NUMBERS if depth == "deep" else {}
        chosen = commands(root, depth, now, require_all)
        ran = [*schedule.run(chosen, root, more, lambda name: RECIPES[name].home().is_dir())]
        failed = flakes.read(written)
    sums = report.total(ran)
    flaked, forgiven, said = settle(root, failed, now) if depth in WALL_MINUTES else (0, 0, [])
    fresh = changed.new_cases(now) if depth in WALL_MINUTES else []
    bad = flakes.failed_beside_load(root, fresh, parts.MARKS[depth])
    sums = sums._replace(passed=sums.passed + flaked, failed=sums.failed - forgiven + len(bad))
    lines = ["", "=== tiers, and the slowest cases of each", *report.table(ran), *flakes.told(failed), *said]
    lines += [f"failed beside load, where new cases must pass {flakes.TIMES} times: {one.case}" for one in bad]
    wrong = records.faults(records.quarantined(root), date.today())
    if depth in WALL_MINUTES:
        processor, over = capped(depth, ran)
        lines += [processor, *filter(None, (records.stale(root, old) for old in ("deep", "matrix")))]
        wrong += over
    if require_all and sums.skipped:
        wrong.append(f"NODEWARD_REQUIRE_ALL=1 demands every test, and {sums.skipped} skipped: the tiers above say why")
    minutes = (time.monotonic() - began_s) / 60
    late = f", more than {WALL_MINUTES[depth]:g}" if minutes > WALL_MINUTES.get(depth, minutes) else ""
    lines += [f"total {minutes:.1f} min of wall time{late}", *wrong]
    if sums.excepted:
        lines.append(f"{sums.excepted} excepted: known not to hold on one end (tests/contract/exceptions.py)")
    counts = f"{sums.passed} passed, {sums.failed} failed, {sums.skipped} skipped"
    if depth not in WALL_MINUTES:
        records.write_run(root, depth, given.seed, counts)
    print(*lines, counts, sep="\n")
    return 1 if sums.failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
