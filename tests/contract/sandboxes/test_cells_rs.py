"""Our cells of profile kata-rs against the library of runtime-rs: every path. Where each process really is on this
machine, test_cgroups_rs.py compares."""

import pytest

from nodeward.engine.sandboxes.expected import Paths, expected
from nodeward.model.sandboxes import CgroupDriver, Profile
from tests.peers.cgroupsrs import RefusedError, Sandbox, cgroups_rs
from tests.sandbox_cells import FS, ID, ODD_PATHS, REACHED, RS, Cell

CELLS = [cell for cell in REACHED if cell.profile is RS]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_paths(cell: Cell) -> None:
    with cgroups_rs() as oracle:
        theirs = oracle.paths(Sandbox(ID, cell.paths.cgroups_path, cell.only))

    ours = expected(RS, cell.only, cell.version, cell.driver, cell.paths)
    assert (theirs.sandbox, theirs.overhead or "") == (ours.sandbox, ours.overhead)
    assert theirs.systemd == (cell.driver is CgroupDriver.SYSTEMD)


@pytest.mark.parametrize("path", [path for path, profile, _ in ODD_PATHS if profile is RS])
def test_paths_out_of_the_ordinary(path: str) -> None:
    with cgroups_rs() as oracle:
        theirs = oracle.paths(Sandbox(ID, path, only=True)).sandbox
    assert expected(Profile.KATA_RS, True, 1, FS, Paths(ID, path)).sandbox == plain(theirs)


@pytest.mark.parametrize("path", ["a--b.slice:p:i", "/x/y.slice:p:i", ".slice:p:i"])
def test_what_the_library_refuses_has_no_place(path: str) -> None:
    with cgroups_rs() as oracle, pytest.raises(RefusedError):
        oracle.paths(Sandbox(ID, path, only=True))
    assert expected(RS, True, 1, FS, Paths(ID, path)).sandbox == ""


def plain(path: str) -> str:
    """The folder, as the kernel tells it: a library may leave two slashes."""
    return "/" + "/".join(part for part in path.split("/") if part)
