"""Findings on what starts VMs: each is there for what it is about, with its arithmetic and remedy."""

from dataclasses import replace

import pytest

from nodeward.engine.show.doctor_sandboxes import OUR_POLICY, sandboxes
from nodeward.model.annotations import KATA_CONFIG, KATA_ONLY
from nodeward.model.doctor import Finding, RuntimeClass, Severity, Unlisted, VmFacts
from nodeward.model.sandboxes import Handler, Profile

MIB = 1 << 20
FILE = "/opt/kata/configuration-qemu.toml"
GO = Handler(
    "kata-qemu",
    "io.containerd.kata-qemu.v2",
    Profile.KATA_GO,
    FILE,
    hypervisor="qemu",
    only=True,
    only_from=FILE,
    default_memory=64 * MIB,
)
RS = replace(
    GO, profile=Profile.KATA_RS, static=True, default_memory=2048 * MIB, overhead_memory=32 * MIB, hypervisor="clh"
)
CLASS = RuntimeClass("kata-qemu", "kata-qemu", 320 * MIB)
WELL = VmFacts((GO,), (CLASS, RuntimeClass("runc", "runc")), (OUR_POLICY,), "https://api", 2)


def bad(facts: VmFacts) -> list[tuple[str, Severity]]:
    """All findings that ask for something, which each says how to do."""
    found = [one for one in sandboxes(facts) if one.severity is not Severity.OK]
    assert all(one.remedy for one in found)
    return [(one.code, one.severity) for one in found]


def only(facts: VmFacts) -> Finding:
    """The one that asks for something."""
    (found,) = (one for one in sandboxes(facts) if one.severity is not Severity.OK)
    return found


def of(handler: Handler) -> VmFacts:
    return replace(WELL, handlers=(handler,))


@pytest.mark.parametrize(
    "facts", [WELL, VmFacts(()), of(RS), of(replace(GO, default_memory=None)), replace(WELL, classes=None)]
)
def test_what_is_well_or_not_known_is_one_finding_that_says_so(facts: VmFacts) -> None:
    assert [(one.code, one.severity) for one in sandboxes(facts)] == [("kata", Severity.OK)]


def test_where_nobody_looked_nothing_is_said() -> None:
    assert list(sandboxes(VmFacts())) == []


@pytest.mark.parametrize(
    ("handler", "declared", "severity", "words"),
    [
        (replace(GO, default_memory=2048 * MIB), 320, Severity.ERROR, "320Mi - default_memory 2Gi = -1728Mi"),
        (replace(GO, default_memory=256 * MIB), 320, Severity.WARNING, "320Mi - default_memory 256Mi = 64Mi"),
        (RS, 127, Severity.WARNING, "127Mi - overhead_memory 32Mi = 95Mi"),
        (replace(RS, static=False), 2100, Severity.WARNING, "2100Mi - default_memory 2Gi = 52Mi"),
        (replace(GO, only=False), 128, Severity.WARNING, "128Mi - default_memory 64Mi = 64Mi"),
    ],
    ids=["kata-go as shipped (#12786)", "kata-go", "kata-rs", "kata-rs that grows", "moved whole on v2"],
)
def test_an_overhead_that_does_not_fit_the_configuration_is_told_with_its_arithmetic(
    handler: Handler, declared: int, severity: Severity, words: str
) -> None:
    facts = replace(of(handler), classes=(replace(CLASS, memory=declared * MIB),))
    (found,) = (one for one in sandboxes(facts) if one.code == "kata-overhead-small")

    assert found.severity is severity
    assert words in found.what
    assert "RuntimeClass kata-qemu" in found.where


def test_the_overhead_that_is_asked_for_is_the_least_that_is_not_asked_for_again() -> None:
    small = replace(of(RS), classes=(replace(CLASS, memory=127 * MIB),))
    assert "128Mi or more" in only(small).remedy
    assert bad(replace(small, classes=(replace(CLASS, memory=128 * MIB),))) == []


def test_where_no_memory_of_the_vm_is_charged_to_the_pod_its_limit_cannot_be_too_small() -> None:
    facts = replace(of(replace(GO, only=False, default_memory=2048 * MIB)), version=1)
    assert bad(facts) == [("kata-mode-false", Severity.NOTE)]


@pytest.mark.parametrize(
    ("version", "severity", "words"),
    [(2, Severity.WARNING, "moves the whole VMM into the pod"), (1, Severity.NOTE, "charged to none of them")],
)
def test_a_mode_that_leaves_memory_outside_is_told(version: int, severity: Severity, words: str) -> None:
    found = only(replace(of(replace(GO, only=False)), version=version))

    assert (found.code, found.severity) == ("kata-mode-false", severity)
    assert words in found.what
    assert FILE in found.what


def test_a_mode_that_nobody_set_is_the_runtimes_default() -> None:
    assert "which nobody has set" in only(of(replace(GO, only=None))).what


@pytest.mark.parametrize(
    ("kind", "passes", "key"),
    [
        ("io.containerd.kata-qemu.v2", "io.katacontainers.*", KATA_ONLY),
        ("io.containerd.kata-qemu.v2", KATA_ONLY, KATA_ONLY),
        ("io.containerd.kata-qemu.v2", KATA_CONFIG, KATA_CONFIG),
        ("vm", "io.katacontainers.config", KATA_ONLY),
    ],
)
def test_an_annotation_that_kata_obeys_unasked_and_the_runtime_hands_on_is_told(
    kind: str, passes: str, key: str
) -> None:
    facts = replace(of(replace(GO, runtime_type=kind, passes=(passes,))), policies=())
    found = only(facts)

    assert (found.code, found.severity) == ("kata-annotation-passes", Severity.WARNING)
    assert key in found.what
    assert "deploy/policies/kata-annotations.yaml" in found.remedy


def test_with_the_policy_in_force_it_is_a_note() -> None:
    found = only(of(replace(GO, passes=("io.katacontainers.*",))))

    assert (found.code, found.severity) == ("kata-annotation-passes", Severity.NOTE)
    assert "but not static ones" in found.what
    assert "apply" not in found.remedy


@pytest.mark.parametrize(
    "handler",
    [
        replace(GO, passes=("io.katacontainers.config.hypervisor.*",)),
        replace(GO, profile=Profile.KATA_RS, hypervisor="dragonball", passes=(KATA_ONLY,), overhead_memory=0),
    ],
    ids=["another annotation", "dragonball obeys none of the mode"],
)
def test_an_annotation_that_changes_nothing_here_is_none(handler: Handler) -> None:
    assert bad(of(handler)) == []


def test_a_handler_and_its_class_belong_together() -> None:
    assert bad(replace(WELL, classes=())) == [("kata-no-class", Severity.NOTE)]
    bare = only(replace(WELL, classes=(replace(CLASS, memory=None),)))
    assert (bare.code, bare.severity) == ("kata-no-overhead", Severity.WARNING)
    assert "at least 224Mi" in bare.remedy


def test_a_configuration_that_was_not_read_is_told_with_its_own_remedy() -> None:
    found = only(of(replace(GO, fault=f"{FILE}: line 3: no TOML; correct the line")))

    assert (found.code, found.severity) == ("kata-config-unread", Severity.WARNING)
    assert found.what.endswith(f"{FILE}: line 3: no TOML")
    assert found.remedy == "Correct the line."


def test_classes_that_were_not_listed_are_told_where_vms_start_and_only_there() -> None:
    unlisted = Unlisted("RuntimeClasses", "403", denied=True)
    assert bad(replace(WELL, classes=unlisted)) == [("cluster-not-looked-at", Severity.NOTE)]
    assert bad(VmFacts((), unlisted)) == []


def test_of_a_runtime_that_is_no_kata_nothing_of_kata_is_asked() -> None:
    other = Handler("mine", profile=Profile.DOCUMENT, passes=("*",))
    assert bad(replace(WELL, handlers=(other,))) == []
