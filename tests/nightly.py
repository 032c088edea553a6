"""Runs one part of what `make test` leaves out, and writes its result down: python -m tests.nightly PART.

Each part takes less than an hour of two quiet cores. `tests/nightly.md` has a row for each, with the commit on which it
was run last; commit it. Without a part, or with an unknown one, the parts are listed.
"""

import os
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TABLE: Final = ROOT / "tests" / "nightly.md"
RUNTIMES: Final = ("tests/vm/test_crio.py", "tests/vm/test_runtimes.py")
SANDBOXES: Final = (
    *("tests/real/test_kata_host.py", "tests/vm/test_kata_host.py", "tests/vm/test_sandbox_cells.py"),
    *("tests/vm/test_sandboxes.py", "tests/contract/sandboxes"),
)
APART: Final = (*RUNTIMES, *SANDBOXES, "tests/vm/test_cpus.py", "tests/vm/test_chart.py", "tests/vm/test_demo.py")
PARTS: Final = {
    "mutants": ("small changes of rules of the engine, killed, without a test and survived", ()),
    "unit": ("unit and component: long histories, other Pythons", ("tests/unit", "tests/component")),
    "inputs": ("a million damaged inputs for each codec", ("tests/unit/formats", "-m", "fuzz")),
    "runtimes": ("CRI-O, containerd 1.7, other OCI runtimes", RUNTIMES),
    "sandboxes": ("Kata's host side, on this machine and on Debian's own kernel", SANDBOXES),
    "cpus": ("CPUs by the relay, memory nodes, many quick pods", ("tests/vm/test_cpus.py",)),
    "stock": ("the daily guests on Debian's own kernel", ("tests/vm", "-m", "not nightly")),
    "demo": ("the demo machine, the chart in a guest", ("tests/vm/test_demo.py", "tests/vm/test_chart.py")),
    "rest": (
        "other neighbours: NRI 0.8 and 0.11, containerd's suite, Kata's clients, the image",
        ("tests/contract", "tests/real", "tests/vm", *(f"--deselect={path}" for path in APART)),
    ),
}
"""By name: what it is, and the words for pytest; without a mark of its own the cases marked `nightly`. Which rules are
changed stands in pyproject.toml."""
MUTANTS: Final = re.compile(r"(\d+)/\1 +\S+ (\d+) +\S+ (\d+) .* \U0001f641 (\d+)")
"""mutmut's last line of progress: all, killed, without a test, survived."""
LARGE: Final = {
    "NODEWARD_FUZZ_INPUTS": "1000000",
    "NODEWARD_LARGE_INPUTS": "40",
    "NODEWARD_HISTORIES": "10000",
    "NODEWARD_REQUIRE_ALL": "1",
}
"""How large a nightly loop is; and nothing is skipped silently."""


def main() -> int:
    """0 when every case of the part passed, 2 without a part."""
    part = " ".join(sys.argv[1:])
    if part not in PARTS:
        print(
            f"make nightly PART=..., after `make tools ARGS=--nightly`; {part or 'a part'} is one of:", file=sys.stderr
        )
        print(*(f"  {name:10} {what}" for name, (what, _) in PARTS.items()), sep="\n", file=sys.stderr)
        return 2
    what, words = PARTS[part]
    more = LARGE | ({"NODEWARD_GUEST": "stock"} if part == "stock" else {})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--max-worker-restart",
        "0",
        *words,
        *([] if "-m" in words else ["-m", "nightly"]),
    ]
    if part == "mutants":
        command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", "2"]
    began_s = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | more, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    counts = "ended without a result"
    for line in process.stdout:
        print(line, end="", flush=True)
        if found := MUTANTS.search(line):
            counts = f"of {found[1]} mutants {found[2]} killed, {found[3]} without a test, {found[4]} survived"
        elif " in " in line and ("passed" in line or "failed" in line):
            counts = line.strip("= \n")
    status = process.wait()
    _write(part, what, f"{counts}; {(time.monotonic() - began_s) / 60:.0f} min")
    return status


def _write(part: str, what: str, counts: str) -> None:
    """Replaces the part's row."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rows = [line for line in TABLE.read_text().splitlines() if not line.startswith(f"| {part} |")]
    rows.append(f"| {part} | {what} | {date.today()} | {told.stdout.strip()} | {counts} |")
    TABLE.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    sys.exit(main())
