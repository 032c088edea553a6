"""What runs write down in the repository: the last deep and matrix run, flaked cases, and cases in quarantine."""

import json
import time
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from tests.running.changed import git

MOST_COMMITS = 200
"""As old as a deep or matrix run may be."""
MOST_QUARANTINED = 5
MOST_DAYS = 30
"""As long as a case may be in quarantine."""


def folder(root: Path) -> Path:
    """Where the records are."""
    return root / "tests" / "records"


def commit(root: Path) -> str:
    """The commit that is tested; one with uncommitted changes ends with a plus."""
    head = git(root, "rev-parse", "HEAD").strip()
    return f"{head}+" if git(root, "status", "--porcelain").strip() else head


def write_run(root: Path, depth: str, seed: int, result: str) -> None:
    """Writes down a deep or matrix run, in place of the one before."""
    told = {"commit": commit(root), "date": time.strftime("%Y-%m-%d"), "seed": seed, "result": result}
    folder(root).mkdir(parents=True, exist_ok=True)
    (folder(root) / f"{depth}.json").write_text(json.dumps(told, indent=2) + "\n")


def stale(root: Path, depth: str) -> str:
    """A warning where the last run of this depth is missing or old; else empty."""
    path = folder(root) / f"{depth}.json"
    if not path.exists():
        return f"warning: tests/records/{depth}.json is missing: no `make {depth}` is on record; run it"
    written: Mapping[str, str] = json.loads(path.read_text())
    since = git(root, "rev-list", "--count", f"{written['commit'].rstrip('+')}..HEAD").strip()
    if not since:
        return f"warning: tests/records/{depth}.json: commit {written['commit']} is unknown here; run `make {depth}`"
    if int(since) > MOST_COMMITS:
        return f"warning: tests/records/{depth}.json is {since} commits old, at most {MOST_COMMITS}; run `make {depth}`"
    return ""


def write_flaked(root: Path, cases: Mapping[str, float]) -> None:
    """Adds a line for each case; `cases` has the seconds that it took when it passed."""
    folder(root).mkdir(parents=True, exist_ok=True)
    with (folder(root) / "flaked.jsonl").open("a") as file:
        for case, seconds in cases.items():
            told = {"date": time.strftime("%Y-%m-%d"), "commit": commit(root), "case": case, "seconds": seconds}
            file.write(json.dumps(told) + "\n")


def quarantined(root: Path) -> dict[str, date]:
    """The cases in tests/records/quarantine.toml, and since when each is there."""
    path = folder(root) / "quarantine.toml"
    listed = tomllib.loads(path.read_text()).get("case", []) if path.exists() else []
    return {str(one["id"]): one["since"] for one in listed if one["why"]}


def faults(listed: Mapping[str, date], today: date) -> list[str]:
    """What is wrong with the list: each fails the run."""
    many = [f"quarantine.toml: {len(listed)} cases, at most {MOST_QUARANTINED} may be there; mend one"]
    return many[: len(listed) > MOST_QUARANTINED] + [
        f"quarantine.toml: {case} is there since {since}, more than {MOST_DAYS} days; mend or remove it"
        for case, since in listed.items()
        if (today - since).days > MOST_DAYS
    ]
