"""Where the processes of a VM sandbox should be, which mode says so, and what is said of those that are elsewhere."""

from dataclasses import replace

import pytest

from nodeward.core.annotations import KATA_ONLY
from nodeward.core.vms import UNLIMITED, CgroupDriver, CgroupReading, Handler, Place, Profile, Task, TaskRole, VmReading
from nodeward.core.workload import Container, ContainerId, PodUid, Sandbox, SandboxId
from nodeward.features.sandboxes import drift as codes
from nodeward.features.sandboxes.drift import Rules, drift
from nodeward.features.sandboxes.expected import Paths, expected, of_pod
from nodeward.features.sandboxes.mode import handed_on, mode, recognised
from nodeward.features.sandboxes.values import (
    ELSEWHERE,
    FAULTS,
    LITERAL_SCOPE,
    OTHER_MODE,
    OUTSIDE_POD,
    RUNTIME_SERVICE,
    SANDBOX_LIMIT,
    SANDBOXED_POD_CODE,
    Drift,
    ModeSaid,
)
from tests.sandbox_cells import (
    CELLS,
    CGROUPS_PATH,
    DOCUMENT,
    FS,
    GO,
    ID,
    LITERAL,
    ODD_PATHS,
    OUTSIDE,
    POD,
    RS,
    SYSTEMD,
    UID,
    Cell,
)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_each_process_has_its_place_and_threads_that_are_not_split_though_they_should_be_are_said(cell: Cell) -> None:
    found = expected(cell.profile, cell.only, cell.version, cell.driver, cell.paths)

    places = (found.sandbox, found.overhead, found.shim, found.virtiofsd, found.vmm, found.vcpu)
    assert places == (cell.sandbox, cell.overhead, cell.shim, cell.virtiofsd, cell.vmm, cell.vcpu)
    moved_whole = not cell.only and cell.vmm == cell.vcpu
    assert bool(found.note) == moved_whole
    assert ("cgroup v2" in found.note) == (moved_whole and cell.version == 2)


@pytest.mark.parametrize(("path", "profile", "sandbox"), ODD_PATHS)
def test_a_path_that_is_out_of_the_ordinary(path: str, profile: Profile, sandbox: str) -> None:
    assert expected(profile, True, 1, FS, Paths(ID, path)).sandbox == sandbox


ODD = ("/a/../../b", "a--b.slice:p:i", "/x/y.slice:p:i", ".slice:p:i", "/a\nb", "/" + "a" * 5000)


@pytest.mark.parametrize(
    ("paths", "note"), [*((Paths(ID, path), "cannot be read") for path in ODD), (Paths(ID, no_pod=True), "is known")]
)
@pytest.mark.parametrize("profile", Profile)
def test_a_bad_or_unknown_path_leaves_all_places_open_and_says_so(paths: Paths, note: str, profile: Profile) -> None:
    found = expected(profile, True, 2, FS, paths)

    assert (found.sandbox, found.vmm) == ("", "")
    assert note in found.note


@pytest.mark.parametrize(
    ("only", "path", "sandbox"),
    [(True, f"/docker/{ID}", f"/docker/{ID}"), (True, f"system.slice:docker:{ID}", f"/system.slice/docker-{ID}.scope"),
     (False, f"/docker/{ID}", f"/docker/kata_{ID}")],
)  # fmt: skip
def test_without_a_pod_the_containers_cgroup_stands_for_the_sandboxs(only: bool, path: str, sandbox: str) -> None:
    found = expected(DOCUMENT, only, 1, FS, Paths(ID, path, no_pod=True))

    assert (found.sandbox, found.vcpu) == (sandbox, sandbox)


@pytest.mark.parametrize("driver", CgroupDriver)
def test_a_path_that_nobody_told_is_containerds(driver: CgroupDriver) -> None:
    told = Paths(ID, CGROUPS_PATH[driver], POD[driver])
    assert expected(GO, False, 2, driver, Paths(ID, pod=POD[driver])) == expected(GO, False, 2, driver, told)


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

    assert of_pod(Sandbox(SandboxId(ID), PodUid(UID), "default", "web"), containers).cgroups_path == own


SERVICE = "/system.slice/containerd.service"


def cell(profile: Profile, only: bool, version: int = 2, driver: object = FS) -> Cell:
    wanted = (profile, only, version, driver)
    return next(one for one in CELLS if (one.profile, one.only, one.version, one.driver) == wanted)


def placed(at: Cell) -> VmReading:
    """A sandbox whose processes are all where this cell has them."""
    tasks = (
        Task(TaskRole.SHIM, 10, 10, 100, cgroup=at.shim),
        Task(TaskRole.VIRTIOFSD, 11, 11, 101, cgroup=at.virtiofsd),
        Task(TaskRole.VMM, 12, 12, 102, cgroup=at.vmm),
        Task(TaskRole.IO, 12, 13, 103, cgroup=at.vmm),
        Task(TaskRole.VCPU, 12, 14, 104, cgroup=at.vmm if at.version == 1 else at.vcpu, cpu_cgroup=at.vcpu),
        Task(TaskRole.VHOST, 15, 15, 105, cgroup=at.vmm),
    )
    return VmReading(SandboxId(ID), 1, tasks)


def found(reading: VmReading, at: Cell, other: bool = True) -> tuple[Drift, ...]:
    asked = [expected(at.profile, only, at.version, at.driver, at.paths) for only in (at.only, not at.only)]
    pod = "" if at.paths.no_pod else at.paths.pod
    return drift(reading, asked[0], asked[1] if other else None, Rules(at.profile, at.version, pod))


def moved(reading: VmReading, to: str, *roles: TaskRole, start: int | None = None) -> VmReading:
    tasks = [
        replace(task, cgroup=to, cpu_cgroup=to, start=task.start if start is None else start)
        if task.role in roles
        else task
        for task in reading.tasks
    ]
    return replace(reading, tasks=tuple(tasks))


@pytest.mark.parametrize("at", CELLS, ids=str)
def test_where_all_is_in_its_place_only_a_folder_named_as_a_scope_is_said_though_the_runtime_makes_it(at: Cell) -> None:
    literal = ["vcpu"] if at.version == 1 else ["vmm", "io", "vcpu", "vhost"]
    roles = literal if at.sandbox == LITERAL else []
    assert [(one.code, one.role) for one in found(placed(at), at)] == [(LITERAL_SCOPE, role) for role in roles]


def test_a_sandbox_without_an_oci_spec() -> None:
    at = cell(RS, True)
    reading = moved(placed(at), f"/kata_sandboxed_pod/{ID}", *TaskRole)

    assert [one.code for one in found(reading, at)] == [SANDBOXED_POD_CODE] * 6
    assert recognised("kata", {}, Handler("kata"), reading) is RS


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("only", [True, False])
def test_one_that_was_started_under_the_other_mode_is_no_fault(profile: Profile, version: int, only: bool) -> None:
    at, started = cell(profile, only, version), cell(profile, not only, version)

    assert found(placed(started), at) == (Drift(OTHER_MODE, seen=started.sandbox, expected=at.sandbox),)
    assert OTHER_MODE not in FAULTS


def test_places_that_are_not_known_are_no_other_mode() -> None:
    reading = moved(placed(cell(GO, True)), LITERAL, TaskRole.VMM)
    unknown = expected(GO, True, 2, FS, Paths(ID))

    assert [one.code for one in drift(reading, unknown, unknown, Rules(GO, 2))] == [LITERAL_SCOPE]


def test_a_shim_may_be_in_its_containers_cgroup() -> None:
    at = cell(DOCUMENT, False, 1)
    asked = expected(DOCUMENT, False, 1, FS, at.paths)
    reading = moved(placed(at), "/kubepods/pod6d1c/kata_c1", TaskRole.SHIM)

    assert drift(reading, asked, None, Rules(DOCUMENT, 1, at.paths.pod, ("/kubepods/pod6d1c/kata_c1",))) == ()


def with_cgroup(reading: VmReading, place: Place, path: str, memory_limit: int = UNLIMITED) -> VmReading:
    return replace(reading, cgroups=(CgroupReading(place, path, memory_limit=memory_limit, cpu_limit_m=UNLIMITED),))


@pytest.mark.parametrize(("profile", "said"), [(GO, True), (RS, True), (DOCUMENT, False)])
def test_a_limit_of_the_sandboxs_own(profile: Profile, said: bool) -> None:
    at = cell(profile, False)
    limited = with_cgroup(placed(at), Place.SANDBOX, at.sandbox, 1 << 30)

    assert found(limited, at) == ((Drift(SANDBOX_LIMIT, seen=at.sandbox),) if said else ())


def test_no_more_is_said_of_one_sandbox_than_can_be_read() -> None:
    at = cell(GO, True)
    tasks = tuple(Task(TaskRole.IO, 12, 100 + n, 5, cgroup=f"/elsewhere/{n}") for n in range(500))

    assert len(found(VmReading(SandboxId(ID), 1, tasks), at)) == codes.MAX_DRIFTS


FILE = "/etc/kata-containers/configuration.toml"


def handler(only: bool | None = None, passes: str = "io.katacontainers.*", hypervisor: str = "qemu") -> Handler:
    return Handler("kata", "io.containerd.kata.v2", None, FILE, (), hypervisor, only, FILE if only is not None else "",
                   passes=(passes,))  # fmt: skip


def test_cri_o_and_a_shim_that_serves_the_sandbox_get_every_annotation() -> None:
    assert handed_on(Handler("kata", "vm"), KATA_ONLY)
    assert handed_on(Handler("kata", "io.containerd.kata.v2", serves=True), KATA_ONLY)
    assert not handed_on(Handler("kata", "io.containerd.kata.v2", passes=("io.katacontainers.",)), KATA_ONLY)


def in_its(cell: Cell) -> VmReading:
    return with_cgroup(placed(cell), Place.SANDBOX, cell.sandbox)


ALIKE = [cell for cell in CELLS if cell.only and cell.profile is not DOCUMENT and cell.sandbox.endswith(".scope")]


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell not in ALIKE], ids=str)
def test_a_profile_is_recognised_by_its_cgroups(cell: Cell) -> None:
    assert recognised("kata", {}, Handler("kata"), in_its(cell)) is cell.profile


@pytest.mark.parametrize("cell", ALIKE, ids=str)
def test_two_profiles_that_make_the_same_scope_are_not_told_apart(cell: Cell) -> None:
    assert recognised("kata", {}, Handler("kata"), in_its(cell)) is None


def test_settings_count_before_the_configuration_and_that_before_what_is_seen() -> None:
    seen = in_its(cell(GO, True))
    known = Handler("kata", profile=RS)

    assert recognised("kata", {"kata": DOCUMENT}, known, seen) is DOCUMENT
    assert recognised("kata", {"other": DOCUMENT}, known, seen) is RS
    assert recognised("kata", {}, None, None) is None
    assert recognised("kata", {}, None, VmReading(SandboxId(ID), 1, vmm="dragonball")) is RS, "no other has it"


SPLIT, SPLIT_V1, ONLY = cell(GO, False), cell(GO, False, 1), cell(GO, True)


@pytest.mark.parametrize(
    ("at", "to", "roles", "said"),
    [
        pytest.param(ONLY, "/elsewhere", "vmm", {"vmm": OUTSIDE_POD}, id="a VMM outside its pod"),
        pytest.param(cell(RS, True), "/elsewhere", "vmm", {"vmm": OUTSIDE_POD}, id="of runtime-rs"),
        pytest.param(SPLIT_V1, "/x", "vmm io", {"vmm": ELSEWHERE, "io": ELSEWHERE}, id="a VMM that belongs outside"),
        pytest.param(SPLIT_V1, OUTSIDE, "vcpu", {"vcpu": OUTSIDE_POD}, id="on v1 a vCPU, by where its CPU counts"),
        pytest.param(cell(RS, True, driver=SYSTEMD), SERVICE, "shim", {"shim": RUNTIME_SERVICE}, id="an unmoved shim"),
        pytest.param(ONLY, OUTSIDE, "virtiofsd", {"virtiofsd": ELSEWHERE}, id="one task as in the other mode"),
        pytest.param(ONLY, f"{ONLY.sandbox}/vcpu", "vcpu", {}, id="a cgroup below the right one"),
        pytest.param(SPLIT, OUTSIDE, "vhost", {}, id="a vhost thread, which stays where the VMM started"),
        pytest.param(ONLY, "", " ".join(role.value for role in TaskRole), {}, id="a place that was not read"),
    ],
)
def test_a_task_elsewhere_is_told_with_where_it_should_be(at: Cell, to: str, roles: str, said: dict[str, str]) -> None:
    reading = moved(placed(at), to, *map(TaskRole, roles.split()))
    homes = {"shim": at.shim, "virtiofsd": at.virtiofsd, "vcpu": at.vcpu}

    assert found(reading, at) == tuple(Drift(code, role, to, homes.get(role, at.vmm), 1) for role, code in said.items())


def test_a_task_whose_start_is_not_known_is_not_judged() -> None:
    assert found(moved(placed(ONLY), "/elsewhere", *TaskRole, start=0), ONLY) == ()


DRAGONBALL = handler(False, hypervisor="dragonball")
SHIPPED = Handler("kata")


@pytest.mark.parametrize(
    ("known", "text", "profile", "said"),
    [
        pytest.param(handler(False), "true", GO, ModeSaid(True, "annotation"), id="the annotation comes first"),
        pytest.param(handler(True), "false", RS, ModeSaid(False, "annotation"), id="runtime-rs's too"),
        pytest.param(handler(False), "T", GO, ModeSaid(True, "annotation"), id="Go's words"),
        pytest.param(handler(True), "0", GO, ModeSaid(False, "annotation"), id="Go's 0"),
        pytest.param(handler(False), "TRUE", GO, ModeSaid(True, "annotation"), id="Go's capitals"),
        pytest.param(handler(True), " false\n", RS, ModeSaid(False, "annotation"), id="serde's words"),
        pytest.param(handler(True, ""), "false", GO, ModeSaid(True, FILE), id="nothing is handed on"),
        pytest.param(
            handler(True, "io.katacontainers.config.hypervisor.*"), "false", GO, ModeSaid(True, FILE), id="not this one"
        ),
        pytest.param(handler(True, "io/*"), "false", GO, ModeSaid(True, FILE), id="a star is no slash"),
        pytest.param(handler(True), None, RS, ModeSaid(True, FILE), id="then the configuration"),
        pytest.param(handler(False), None, RS, ModeSaid(False, FILE), id="that says false"),
        *(
            pytest.param(handler(), None, one, ModeSaid(False, "default"), id=f"a file without the key, {one.value}")
            for one in Profile
        ),
        pytest.param(SHIPPED, None, GO, ModeSaid(False, "default"), id="no file: Go's default"),
        pytest.param(SHIPPED, None, RS, ModeSaid(True, "default"), id="no file: runtime-rs's default"),
        pytest.param(DRAGONBALL, "false", RS, ModeSaid(True, "dragonball"), id="dragonball, whatever is said"),
        pytest.param(None, None, GO, None, id="no handler"),
        pytest.param(None, "false", GO, None, id="whether the annotation arrives is not known"),
        pytest.param(SHIPPED, None, None, None, id="no profile"),
        pytest.param(Handler("kata", fault="broken TOML"), None, RS, None, id="a configuration that cannot be read"),
    ],
)
def test_who_says_mode(known: Handler | None, text: str | None, profile: Profile | None, said: ModeSaid | None) -> None:
    assert mode(known, text, profile) == said


@pytest.mark.parametrize(
    ("text", "profile"),
    [*((text, GO) for text in ("", "yes", " true", "x" * 100_000)), *((text, RS) for text in ("T", "1", "True"))],
)
def test_a_word_that_is_none_is_said_in_part_and_not_obeyed(text: str, profile: Profile) -> None:
    found = mode(handler(True), text, profile)

    assert found is not None
    assert (found.only, found.source) == (True, FILE)
    assert KATA_ONLY in found.fault
    assert len(found.fault) < 400
