"""The cells of VM sandboxes that this machine does not reach, with cgroup v2 and systemd: the cases of
tests/contract/sandboxes, played in a guest."""

import os
import shutil
import sys

import pytest

from tests.peers.find import absent, require
from tests.peers.recipes import cache_folder
from tests.vm import guest

pytestmark = pytest.mark.nightly

FILES = ("test_cells_go.py", "test_cells_rs.py", "test_cgroups_rs.py", "test_sandbox_cgroup.py")
CASES = tuple(f"tests/contract/sandboxes/{name}" for name in FILES)
TIMEOUT_S = 600.0


def test_with_cgroup_v2_and_systemd() -> None:
    machine = guest.needed()
    for peer in ("cgroupsrs", "katahost"):
        require(peer)
    environment = {
        "PYTHONPATH": os.environ.get("PYTHONPATH", "src"),
        "XDG_CACHE_HOME": str(cache_folder().parent.parent),
        "TMPDIR": "/dev/shm",
        "NODEWARD_REQUIRE_ALL": "1",
    }
    if shutil.which("dbus-daemon") is None:
        absent("no dbus-daemon here: run scripts/install-tools")
    words = ("env", *(f"{key}={value}" for key, value in environment.items()))
    command = (*words, sys.executable, "-m", "tests.vm.sandbox_cells", "-q", "--color=no", "--tb=short", *CASES)
    run = guest.boot(machine, command, {"sev": 1, "sev_es": 1}, TIMEOUT_S, guest.Machine(systemd=True))
    assert run.status == 0, run.output[-6000:]
    assert ", 1 skipped" in run.output, "the one that needs cgroup v1"
