"""Which mode holds for a VM sandbox, who said so, and by whose rules it is placed."""

import pytest

from nodeward.engine.sandboxes.mode import handed_on, mode, recognised
from nodeward.model.annotations import KATA_ONLY
from nodeward.model.sandboxes import CgroupReading, Handler, ModeSaid, Place, Profile, Task, TaskRole, VmReading
from nodeward.model.workload import SandboxId
from tests.sandbox_cells import CELLS, DOCUMENT, GO, ID, RS, Cell

FILE = "/etc/kata-containers/configuration.toml"


def handler(only: bool | None = None, passes: str = "io.katacontainers.*", hypervisor: str = "qemu") -> Handler:
    return Handler("kata", "io.containerd.kata.v2", None, FILE, (), hypervisor, only, FILE if only is not None else "",
                   passes=(passes,))  # fmt: skip


@pytest.mark.parametrize("profile", [GO, RS])
@pytest.mark.parametrize("only", [True, False])
def test_the_annotation_counts_before_the_configuration(profile: Profile, only: bool) -> None:
    text = str(only).lower()
    assert mode(handler(not only), text, profile) == ModeSaid(only, "annotation")


@pytest.mark.parametrize("passes", ["", "io.katacontainers.config.hypervisor.*", "io/*"])
def test_an_annotation_that_is_not_handed_on_counts_for_nothing(passes: str) -> None:
    assert mode(handler(True, passes), "false", GO) == ModeSaid(True, FILE)


@pytest.mark.parametrize("only", [True, False])
def test_the_configuration_counts_before_the_default(only: bool) -> None:
    assert mode(handler(only), None, RS) == ModeSaid(only, FILE)


@pytest.mark.parametrize(("profile", "only"), [(GO, False), (RS, False), (DOCUMENT, False)])
def test_a_file_without_the_key_means_false(profile: Profile, only: bool) -> None:
    assert mode(handler(), None, profile) == ModeSaid(only, "default")


@pytest.mark.parametrize(("profile", "only"), [(GO, False), (RS, True)])
def test_without_a_file_the_shipped_one_counts(profile: Profile, only: bool) -> None:
    assert mode(Handler("kata"), None, profile) == ModeSaid(only, "default")


@pytest.mark.parametrize(
    ("known", "profile"),
    [(None, GO), (None, RS), (None, None), (Handler("kata"), None), (Handler("kata", fault="broken TOML"), RS)],
)
def test_what_nothing_tells_stays_unknown(known: Handler | None, profile: Profile | None) -> None:
    assert mode(known, None, profile) is None
    assert known is not None or mode(None, "false", profile) is None, "whether the annotation arrives is not known"


@pytest.mark.parametrize(
    ("text", "profile", "only"),
    [("T", GO, True), ("0", GO, False), ("TRUE", GO, True), ("true", RS, True), (" false\n", RS, False)],
)
def test_each_runtime_reads_its_own_words(text: str, profile: Profile, only: bool) -> None:
    assert mode(handler(not only), text, profile) == ModeSaid(only, "annotation")


@pytest.mark.parametrize(
    ("text", "profile"), [("", GO), ("yes", GO), (" true", GO), ("T", RS), ("1", RS), ("True", RS)]
)
def test_a_word_that_is_none_is_said_and_not_obeyed(text: str, profile: Profile) -> None:
    found = mode(handler(True), text, profile)

    assert found is not None
    assert (found.only, found.source) == (True, FILE)
    assert KATA_ONLY in found.fault


def test_a_long_annotation_is_shown_in_part() -> None:
    found = mode(handler(True), "x" * 100_000, GO)

    assert found is not None
    assert len(found.fault) < 400


def test_dragonball_has_its_vmm_in_the_shim_whatever_is_said() -> None:
    assert mode(handler(False, hypervisor="dragonball"), "false", RS) == ModeSaid(True, "dragonball")


def test_cri_o_and_a_shim_that_serves_the_sandbox_get_every_annotation() -> None:
    assert handed_on(Handler("kata", "vm"), KATA_ONLY)
    assert handed_on(Handler("kata", "io.containerd.kata.v2", serves=True), KATA_ONLY)
    assert not handed_on(Handler("kata", "io.containerd.kata.v2", passes=("io.katacontainers.",)), KATA_ONLY)


def reading(cell: Cell) -> VmReading:
    tasks = (
        Task(TaskRole.SHIM, 1, 1, 1, cgroup=cell.shim, cpu_cgroup=cell.shim),
        Task(TaskRole.VMM, 2, 2, 1, cgroup=cell.vmm, cpu_cgroup=cell.vmm),
        Task(TaskRole.VIRTIOFSD, 4, 4, 1, cgroup=cell.virtiofsd, cpu_cgroup=cell.virtiofsd),
        Task(TaskRole.VCPU, 2, 3, 1, cgroup=cell.vmm, cpu_cgroup=cell.vcpu),
    )
    return VmReading(SandboxId(ID), 1, tasks, (CgroupReading(Place.SANDBOX, cell.sandbox),))


ALIKE = [cell for cell in CELLS if cell.only and cell.profile is not DOCUMENT and cell.sandbox.endswith(".scope")]


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell not in ALIKE], ids=str)
def test_a_profile_is_recognised_by_its_cgroups(cell: Cell) -> None:
    assert recognised("kata", {}, Handler("kata"), reading(cell)) is cell.profile


@pytest.mark.parametrize("cell", ALIKE, ids=str)
def test_two_profiles_that_make_the_same_scope_are_not_told_apart(cell: Cell) -> None:
    assert recognised("kata", {}, Handler("kata"), reading(cell)) is None


def test_settings_count_before_the_configuration_and_that_before_what_is_seen() -> None:
    seen = reading(next(cell for cell in CELLS if cell.profile is GO))
    known = Handler("kata", profile=RS)

    assert recognised("kata", {"kata": DOCUMENT}, known, seen) is DOCUMENT
    assert recognised("kata", {"other": DOCUMENT}, known, seen) is RS
    assert recognised("kata", {}, None, None) is None


def test_dragonball_is_runtime_rs() -> None:
    assert recognised("kata", {}, None, VmReading(SandboxId(ID), 1, vmm="dragonball")) is RS
