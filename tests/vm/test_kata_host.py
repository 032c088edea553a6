"""Kata's host side with cgroup v2 and systemd: the cases of tests/real/test_kata_host.py, played in a guest."""

import os
import sys

import pytest

from tests.peers.find import require
from tests.peers.recipes import cache_folder
from tests.vm import guest

pytestmark = pytest.mark.nightly

CASES = "tests/real/test_kata_host.py"
TIMEOUT_S = 600.0


def test_with_cgroup_v2_and_systemd() -> None:
    """Containerd's overlays and the sandboxes' folders are in /dev/shm: the guest's /tmp is an overlay itself."""
    machine = guest.needed(stock=True)
    for peer in ("containerd", "katahost"):
        require(peer)
    environment = {
        "PYTHONPATH": os.environ.get("PYTHONPATH", "src"),
        "XDG_CACHE_HOME": str(cache_folder().parent.parent),
        "TMPDIR": "/dev/shm",
        "NODEWARD_REQUIRE_ALL": "1",
    }
    words = ("env", *(f"{key}={value}" for key, value in environment.items()))
    command = (*words, sys.executable, "-m", "pytest", "-q", "--color=no", "--tb=short", CASES)
    run = guest.boot(machine, command, {"sev": 1, "sev_es": 1}, TIMEOUT_S, guest.Machine(systemd=True))
    assert run.status == 0, run.output[-6000:]
    assert "5 passed" in run.output
