"""Values are frozen: for mypy always, at run time in the interpreter's development mode."""

import subprocess
import sys

WRITES = """
from dataclasses import FrozenInstanceError
from nodeward.model.decision import Reason
reason = Reason("declared")
try:
    setattr(reason, "code", "other")
except FrozenInstanceError:
    print("frozen")
else:
    print("plain")
assert hash(Reason("declared")) == hash(Reason("declared"))
"""


def outcome(*options: str) -> str:
    return subprocess.run(
        [sys.executable, *options, "-c", WRITES], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_values_are_frozen_in_development_mode_and_quick_elsewhere() -> None:
    assert outcome("-X", "dev") == "frozen"
    assert outcome() == "plain"


ENGINE_TESTS = ("tests/unit/engine", "tests/unit/app", "--ignore=tests/unit/engine/ledger/test_histories.py")
"""Without the explorations: a hundred thousand times the steps that the others take once."""


def test_nothing_writes_to_a_value() -> None:
    """The engine's tests, with values that refuse it."""
    command = [sys.executable, "-X", "dev", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *ENGINE_TESTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
