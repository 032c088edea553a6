"""Where a built peer is, and what a test does when it is not there.

A peer takes minutes to build, so nobody is forced to have it: a test that needs one skips, and the reason names the
command that makes the difference. In CI that would be a hole, so NODEWARD_REQUIRE_ALL=1 turns the skip into a failure.
"""

import os
from pathlib import Path
from typing import NoReturn

import pytest

from tests.peers.recipes import RECIPES


def peer(name: str) -> Path | None:
    """The folder of the finished peer, or None if it has not been built."""
    home = RECIPES[name].home()
    return home if home.is_dir() else None


def require(name: str) -> Path:
    """The folder of the finished peer; without it the calling test skips, or fails where all peers are required."""
    home = peer(name)
    if home is None:
        absent(f"peer {name} is not built: run scripts/build-peers {name}")
    return home


def absent(reason: str) -> NoReturn:
    """End the calling test because something it needs is not there."""
    if os.environ.get("NODEWARD_REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
