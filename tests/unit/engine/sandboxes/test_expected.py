"""Where each process of a VM sandbox should be: the whole table, and the paths beside it."""

from itertools import product

import pytest

from nodeward.engine.sandboxes.expected import Paths, expected, oci_form, of_pod, shims, threaded
from nodeward.model.sandboxes import CgroupDriver, Expected, Profile
from nodeward.model.workload import Container, ContainerId, PodUid, Sandbox, SandboxId
from tests.sandbox_cells import CELLS, CGROUPS_PATH, DOCUMENT, FS, GO, ID, ODD_PATHS, POD, SCOPE, SYSTEMD, UID, Cell


def asked(cell: Cell) -> Expected:
    return expected(cell.profile, cell.only, cell.version, cell.driver, cell.paths)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_each_process_has_its_place(cell: Cell) -> None:
    found = asked(cell)

    places = (found.sandbox, found.overhead, found.shim, found.virtiofsd, found.vmm, found.vcpu)
    assert places == (cell.sandbox, cell.overhead, cell.shim, cell.virtiofsd, cell.vmm, cell.vcpu)


def test_the_table_has_every_cell_once() -> None:
    cells = [(cell.profile, cell.only, cell.version, cell.driver) for cell in CELLS]
    assert sorted(map(str, cells)) == sorted(map(str, product(Profile, (True, False), (1, 2), CgroupDriver)))


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_note_says_where_threads_are_not_split_though_they_should_be(cell: Cell) -> None:
    note = asked(cell).note

    moved_whole = not cell.only and cell.vmm == cell.vcpu
    assert bool(note) == moved_whole
    assert ("cgroup v2" in note) == (moved_whole and cell.version == 2)


@pytest.mark.parametrize(("path", "profile", "sandbox"), ODD_PATHS)
def test_a_path_that_is_out_of_the_ordinary(path: str, profile: Profile, sandbox: str) -> None:
    assert expected(profile, True, 1, FS, Paths(ID, path)).sandbox == sandbox


@pytest.mark.parametrize(
    "path", ["/a/../../b", "a--b.slice:p:i", "/x/y.slice:p:i", ".slice:p:i", "/a\nb", "/" + "a" * 5000]
)
@pytest.mark.parametrize("profile", Profile)
def test_a_path_that_cannot_be_leaves_all_places_open_and_says_so(path: str, profile: Profile) -> None:
    found = expected(profile, True, 2, FS, Paths(ID, path))

    assert (found.sandbox, found.vmm) == ("", "")
    assert "cannot be read" in found.note


@pytest.mark.parametrize(
    ("only", "path", "sandbox"),
    [(True, f"/docker/{ID}", f"/docker/{ID}"), (True, f"system.slice:docker:{ID}", f"/system.slice/docker-{ID}.scope"),
     (False, f"/docker/{ID}", f"/docker/kata_{ID}")],
)  # fmt: skip
def test_without_a_pod_the_containers_cgroup_takes_the_place_of_the_sandboxs(
    only: bool, path: str, sandbox: str
) -> None:
    found = expected(DOCUMENT, only, 1, FS, Paths(ID, path, no_pod=True))

    assert (found.sandbox, found.vcpu) == (sandbox, sandbox)


@pytest.mark.parametrize("driver", CgroupDriver)
def test_a_path_that_nobody_told_is_containerds(driver: CgroupDriver) -> None:
    told = Paths(ID, CGROUPS_PATH[driver], POD[driver])
    assert expected(GO, False, 2, driver, Paths(ID, pod=POD[driver])) == expected(GO, False, 2, driver, told)


@pytest.mark.parametrize("profile", Profile)
def test_without_path_and_pod_nothing_is_expected(profile: Profile) -> None:
    found = expected(profile, True, 1, FS, Paths(ID, no_pod=True))

    assert (found.sandbox, found.vmm) == ("", "")
    assert "is known" in found.note


def test_the_threaded_subtree_is_below_the_sandbox() -> None:
    found = threaded(Expected("/pod/kata_sb1"))
    assert (found.domain, found.vcpu, found.overhead) == (
        "/pod/kata_sb1",
        "/pod/kata_sb1/vcpu",
        "/pod/kata_sb1/overhead",
    )


def test_each_container_has_a_cgroup_for_its_shim() -> None:
    paths = Paths(ID, f"/p/{ID}", containers=(("c1", "/p/c1"), ("c2", "")))
    assert shims(paths) == {ID: f"/p/kata_{ID}", "c1": "/p/kata_c1"}


POD_SANDBOX = Sandbox(SandboxId(ID), PodUid(UID), "default", "web")


@pytest.mark.parametrize(
    ("container", "own"),
    [
        (f"{POD[SYSTEMD]}/cri-containerd-c1.scope", CGROUPS_PATH[SYSTEMD]),
        (f"{POD[SYSTEMD]}/crio-c1.scope", f"kubepods-pod{UID}.slice:crio:{ID}"),
        (f"{POD[FS]}/c1", CGROUPS_PATH[FS]),
        (f"{POD[FS]}/crio-c1", f"{POD[FS]}/crio-{ID}"),
        (f"{POD[FS]}/other", None),
        ("", None),
    ],
    ids=("containerd_systemd", "crio_systemd", "containerd", "crio", "without_its_id", "not_told"),
)
def test_the_sandboxs_path_is_found_beside_its_containers(container: str, own: str | None) -> None:
    containers = (
        Container(ContainerId("x1"), SandboxId("other"), "of another pod", cgroups_path="/elsewhere/x1"),
        Container(ContainerId("c1"), SandboxId(ID), "app", cgroups_path=container),
    )

    assert of_pod(POD_SANDBOX, containers).cgroups_path == own


def test_a_scopes_path_has_systemds_form() -> None:
    assert oci_form(SCOPE) == CGROUPS_PATH[SYSTEMD]
