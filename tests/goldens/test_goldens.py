"""No change of code alone changes what people and programs read: the digests of `texts.py`, in `digests.txt`.

A change that is meant: GOLDENS=write .venv/bin/pytest tests/goldens, and commit the digests with it.
"""

import hashlib
import os

from tests.goldens.texts import HERE, RECORDS, texts


def test_everything_that_users_read_is_as_it_was() -> None:
    assert RECORDS
    found = "".join(f"{hashlib.sha256(text.encode()).hexdigest()[:16]} {name}\n" for name, text in texts())
    file = HERE / "digests.txt"
    if os.environ.get("GOLDENS") == "write":
        file.write_text(found)
    changed = set(found.splitlines()) ^ set(file.read_text().splitlines())
    assert not changed, (
        f"{sorted(changed)}; python -m tests.goldens.texts FOLDER, here and at the commit before, says how"
    )
