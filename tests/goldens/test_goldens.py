"""No change of code alone changes what people and programs read: the digests of `texts.py`, in `digests.txt`.

A change that is meant: GOLDENS=write .venv/bin/pytest tests/goldens, and commit the digests with it.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

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
