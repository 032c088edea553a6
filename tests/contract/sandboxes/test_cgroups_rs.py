"""Our cells of profile kata-rs against the library of Kata's runtime-rs: every path, and where processes really are.

Given a shim that starts virtiofsd and a VMM with threads, as Kata's does, then each is where the table says. The table
has both cgroup versions, and a test plays the machine's.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeward.core.vms import CgroupDriver, TaskRole
from nodeward.features.sandboxes.expected import Paths as Ours
from nodeward.features.sandboxes.expected import expected
from tests.patience import scaled
from tests.peers.cgroups import CGROUP_ROOT, controllers_as_before, hierarchies, remove_cgroups
from tests.peers.cgroupsrs import CgroupsRs, Places, RefusedError, Sandbox, cgroups_rs
from tests.peers.daemon import until
from tests.peers.find import absent
from tests.sandbox_cells import FS, ID, ODD_PATHS, REACHED, RS, Cell

CELLS = [cell for cell in REACHED if cell.profile is RS]
OVERHEAD = "/kata_overhead"
END_S = scaled(15.0)

SHIM = """
import json, os, threading
wait = lambda: os.read(0, 1)
wait()
if not (virtiofsd := os.fork()):
    wait()
elif not (vmm := os.fork()):
    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    names = dict(zip(("io", "vcpu 0", "vcpu 1"), (thread.native_id for thread in threads)))
    print(json.dumps({"virtiofsd": virtiofsd, "vmm": os.getpid(), **names}), flush=True)
    for thread in threads:
        thread.join()
else:
    wait()
    os.waitpid(virtiofsd, 0), os.waitpid(vmm, 0)
"""
"""Starts the others at the first byte of its standard input; all of them end where that ends."""

VCPUS = ("vcpu 0", "vcpu 1")
ROLES = {role.value: role for role in TaskRole}


@pytest.fixture(name="oracle")
def running_oracle() -> Iterator[CgroupsRs]:
    with cgroups_rs() as oracle:
        yield oracle


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_paths(oracle: CgroupsRs, cell: Cell) -> None:
    theirs = oracle.paths(Sandbox(ID, cell.paths.cgroups_path, cell.only))
    ours = expected(RS, cell.only, cell.version, cell.driver, cell.paths)
    assert (theirs.sandbox, theirs.overhead or "") == (ours.sandbox, ours.overhead)
    assert theirs.systemd == (cell.driver is CgroupDriver.SYSTEMD)


@pytest.mark.parametrize("path", [path for path, profile, _ in ODD_PATHS if profile is RS])
def test_paths_out_of_the_ordinary(oracle: CgroupsRs, path: str) -> None:
    theirs = oracle.paths(Sandbox(ID, path, only=True)).sandbox
    plain = "/" + "/".join(part for part in theirs.split("/") if part)  # the library may leave two slashes
    assert expected(RS, True, 1, FS, Ours(ID, path)).sandbox == plain


@pytest.mark.parametrize("path", ["a--b.slice:p:i", "/x/y.slice:p:i", ".slice:p:i"])
def test_what_the_library_refuses_has_no_place(oracle: CgroupsRs, path: str) -> None:
    with pytest.raises(RefusedError):
        oracle.paths(Sandbox(ID, path, only=True))
    assert expected(RS, True, 1, FS, Ours(ID, path)).sandbox == ""


@pytest.fixture
def name() -> Iterator[str]:
    """A sandbox's id and the name of a cgroup for its pod, both of this test alone."""
    if os.geteuid() != 0 or not hierarchies():
        absent("no cgroups can be made here: run as root, where cgroups are mounted")
    made = [root / OVERHEAD[1:] for root in hierarchies() if not (root / OVERHEAD[1:]).exists()]
    name = f"nodeward-test-{os.getpid()}"
    with controllers_as_before():
        yield name
        remove_cgroups(name)
        remove_cgroups(f"{OVERHEAD}/{name}")
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextmanager
def running_shim() -> Iterator[subprocess.Popen[str]]:
    shim = subprocess.Popen([sys.executable, "-c", SHIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield shim
    finally:
        shim.communicate(timeout=END_S)


def started(shim: subprocess.Popen[str]) -> Mapping[str, int]:
    assert shim.stdin is not None
    assert shim.stdout is not None
    shim.stdin.write("x")
    shim.stdin.flush()
    ids: dict[str, int] = json.loads(shim.stdout.readline())
    return {"shim": shim.pid, **ids}


@pytest.mark.parametrize("mode", ["only", "not only"])
def test_places(oracle: CgroupsRs, name: str, mode: str) -> None:
    sandbox, overhead = f"/{name}/pod1/{name}", f"{OVERHEAD}/{name}"
    given = Sandbox(name, sandbox, only=mode == "only")
    version = 2 if hierarchies() == [CGROUP_ROOT] else 1
    ours = expected(RS, mode == "only", version, CgroupDriver.CGROUPFS, Ours(name, sandbox))
    with running_shim() as shim:
        before = oracle.read(given, [shim.pid])[shim.pid]
        untouched = {"": before[""]} if version == 1 and "" in before else {}
        oracle.place(given, shim=shim.pid)
        ids = started(shim)
        oracle.place(given, vcpus=[ids[one] for one in VCPUS])
        found = oracle.read(given, tuple(ids.values()))
        for who, one in ids.items():
            path = ours.of(ROLES[who.split()[0]])
            assert found[one] == dict.fromkeys(before, path) | untouched, who
        oracle.delete(given)
        assert [at for root in hierarchies() for at in (sandbox, overhead) if (root / at[1:]).exists()] == []
        assert oracle.read(given, [shim.pid])[shim.pid] == dict.fromkeys(before, "/") | untouched


if Path("/run/dbus/system_bus_socket").exists():  # as in the guest of tests/vm/test_sandbox_cells.py

    @pytest.mark.parametrize("only", [True, False])
    def test_places_with_systemd(oracle: CgroupsRs, name: str, only: bool) -> None:
        """The library does not wait until systemd has moved a process."""
        version = 2 if hierarchies() == [CGROUP_ROOT] else 1
        given = Sandbox(name, f"nodewardtest-pod{os.getpid()}.slice:cri-containerd:{name}", only)
        ours = expected(RS, only, version, CgroupDriver.SYSTEMD, Ours(name, given.cgroups_path or ""))
        with running_shim() as shim:
            oracle.place(given, shim=shim.pid)
            ids = started(shim)
            oracle.place(given, vcpus=[ids[one] for one in VCPUS])
            places = {one: ours.of(ROLES[who.split()[0]]) for who, one in ids.items()}
            until(
                lambda: cpu_cgroups(oracle.read(given, tuple(places))) == places, f"each task in its cgroup: {places}"
            )


def cpu_cgroups(places: Places) -> Mapping[int, str]:
    """Where the CPU time of each counts."""
    return {one: found.get("cpu", found.get("", "")) for one, found in places.items()}
