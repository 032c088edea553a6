"""Our cells of profile kata-go against Kata's own Go library: every path, and on this machine's cgroups where each
process and thread really is."""

import os
from pathlib import Path

import pytest

from nodeward.core.vms import CgroupDriver, TaskRole
from nodeward.features.sandboxes.expected import Paths, expected
from tests.peers.cgroups import CGROUP_ROOT, controllers_as_before, hierarchies, make_cgroup, remove_cgroups
from tests.peers.find import absent
from tests.peers.katahost import KataCell, KataPaths, kata_paths, placing
from tests.sandbox_cells import CGROUPS_PATH, FS, GO, ID, ODD_PATHS, REACHED, Cell

CELLS = [cell for cell in REACHED if cell.profile is GO]
ODD = [path for path, profile, _ in ODD_PATHS if profile is GO]


def theirs(path: str, only: bool) -> KataPaths:
    return kata_paths([KataCell(path, only, ID)])[0]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_paths(cell: Cell) -> None:
    found = theirs(CGROUPS_PATH[cell.driver], cell.only)
    ours = expected(GO, cell.only, cell.version, cell.driver, cell.paths)

    named = found.v1 if cell.version == 1 else found.v2
    assert (f"/{named.lstrip('/')}", found.overhead) == (ours.sandbox, ours.overhead)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("path", ODD)
def test_paths_out_of_the_ordinary(path: str, version: int) -> None:
    found = theirs(path, only=True)
    assert expected(GO, True, version, FS, Paths(ID, path)).sandbox == (found.v1 if version == 1 else found.v2)


@pytest.mark.parametrize("path", ["a--b.slice:p:i", "/x/y.slice:p:i", ".slice:p:i"])
def test_what_the_library_refuses_has_no_place(path: str) -> None:
    assert theirs(path, only=True).error
    assert expected(GO, True, 1, FS, Paths(ID, path)).sandbox == ""


DRIVERS = [FS, *([CgroupDriver.SYSTEMD] if Path("/run/systemd/system").is_dir() else [])]
"""Of this machine; the guest of tests/vm/test_sandbox_cells.py has systemd."""


@pytest.mark.parametrize("only", [True, False])
@pytest.mark.parametrize("driver", DRIVERS)
def test_each_thread_is_where_the_table_has_it(only: bool, driver: CgroupDriver) -> None:
    if os.geteuid() != 0 or not hierarchies():
        absent("no cgroups can be made here: run as root, where cgroups are mounted")
    version = 2 if hierarchies() == [CGROUP_ROOT] else 1
    name = f"nodeward-test-{os.getpid()}"
    path = f"/{name}/pod1/{name}" if driver is FS else f"nodewardtest-pod{os.getpid()}.slice:cri-containerd:{name}"
    ours = expected(GO, only, version, driver, Paths(name, path))
    with controllers_as_before():
        make_cgroup(name, ("cpu", "cpuset", "memory"))
        try:
            with placing(KataCell(path, only, name)) as (_, placed):
                assert placed.error == ""
                assert {thread.role for thread in placed.threads} == {"shim", "vmm", "vcpu"}
                for thread in placed.threads:
                    where = thread.cgroups.get("cpu", thread.cgroups.get(""))
                    assert where == ours.of(TaskRole(thread.role)), thread
        finally:
            remove_cgroups(name)
