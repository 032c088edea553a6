"""No change of code alone changes what people and programs read: the digests of `texts.py`, in `digests.txt`.

A change that is meant: GOLDENS=write .venv/bin/pytest tests/goldens, and commit the digests with it.
"""

import gzip
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.core.apply import Engine
from nodeward.core.events import Event
from nodeward.features.all import ENGINE
from nodeward.features.lately.state import Happening
from nodeward.features.root import State
from nodeward.programs.once import replay
from tests.goldens.texts import HERE, RECORDS
from tests.patience import scaled


def test_everything_that_users_read_is_as_it_was(tmp_path: Path) -> None:
    assert RECORDS
    # In a process of its own: click keeps what a test that ran before has made of a command.
    writes = [sys.executable, "-m", "tests.goldens.texts", str(tmp_path)]
    subprocess.run(writes, cwd=HERE.parents[1], check=True, timeout=scaled(60.0))
    made = sorted(tmp_path.iterdir())
    found = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()[:16]} {path.name}\n" for path in made)
    file = HERE / "digests.txt"
    if os.environ.get("GOLDENS") == "write":
        file.write_text(found)
    changed = set(found.splitlines()) ^ set(file.read_text().splitlines())
    how = "python -m tests.goldens.texts FOLDER, here and at the commit before"
    assert not changed, f"{sorted(changed)}; {how} says what has changed"


def test_what_happened_is_looked_for_at_each_event_that_can_tell_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the engine's `notes`: at every event it would find the same."""

    def found(engine: Engine[State], lines: list[bytes]) -> list[Mapping[str, Happening]]:
        monkeypatch.setattr(replay, "apply", engine.apply)
        return [one.state.lately for one in replay.walk(lines) if isinstance(one, replay.Again)]

    happened = 0
    for path in RECORDS:
        lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        lately = found(ENGINE, lines)
        happened += any(lately)
        assert lately == found(replace(ENGINE, notes=(Event,)), lines), path.name
    assert happened > 2
