"""Findings on the relay, on what starts VMs, on their sizes and on the cold-plug socket."""

from dataclasses import replace

import pytest

from nodeward.engine.show.doctor_cold_plug import cold_plug
from nodeward.engine.show.doctor_relay import relay
from nodeward.engine.show.doctor_sandboxes import OUR_POLICY, sandboxes
from nodeward.engine.show.doctor_sizing import sizing
from nodeward.model.annotations import KATA_CONFIG, KATA_ONLY
from nodeward.model.doctor import (
    ColdPlugFacts,
    Finding,
    KubeletFacts,
    RelayFacts,
    RuntimeClass,
    Severity,
    Unlisted,
    VmFacts,
)
from nodeward.model.limits_rule import Mode
from nodeward.model.sandboxes import Handler, Profile
from nodeward.model.sizing import SizingRow, SizingSettings
from nodeward.model.view import CallRow, DoorRow, DriverRow, DumpRow, RelayView

LISTEN, RUNTIME = "/run/nodeward/cri.sock", "/run/containerd/containerd.sock"
KUBELET = KubeletFacts("process 7", LISTEN, LISTEN)
VIEW = RelayView(
    "1",
    9,
    1,
    doors=(DoorRow(LISTEN, RUNTIME, True, 2, 2),),
    calls=(CallRow("Version", {"OK": 3}, {"passed": 3}),),
    limits=DriverRow(here=True),
    dump=DumpRow("/tmp/cri.dump", 9, 0, 0),
)
WELL = RelayFacts("/run/nodeward/relay.sock", VIEW, "", LISTEN, True, False, KUBELET)
NONE = replace(WELL, view=None, wants_limits=False, kubelet=KubeletFacts("process 7", RUNTIME, RUNTIME))
ELSEWHERE = replace(VIEW, limits=DriverRow(owner="process 12"))
CASES = {
    "absent-and-not-wanted": (NONE, "relay", Severity.OK, "no relay is wanted"),
    "absent-and-wanted": (replace(NONE, wants_limits=True), "relay-away", Severity.WARNING, "relay.limits is true"),
    "absent-and-kubelet-asks-it": (replace(WELL, view=None), "relay-away", Severity.ERROR, "no container starts"),
    "silent": (replace(NONE, fault="no answer of X"), "relay-silent", Severity.WARNING, "no answer of X"),
    "well": (WELL, "relay", Severity.OK, "3 calls"),
    "runtime-away": (
        replace(WELL, view=replace(VIEW, doors=(replace(VIEW.doors[0], present=False),))),
        "relay-runtime-absent",
        Severity.ERROR,
        RUNTIME,
    ),
    "kubelet-past-it": (
        replace(WELL, kubelet=KubeletFacts("process 7", RUNTIME, RUNTIME)),
        "relay-not-used",
        Severity.WARNING,
        RUNTIME,
    ),
    "images-past-it": (
        replace(WELL, kubelet=KubeletFacts("process 7", LISTEN, "/run/images.sock")),
        "relay-images-unseen",
        Severity.WARNING,
        "PullImage",
    ),
    "images-where-none-are-served": (
        replace(WELL, view=replace(VIEW, doors=(*VIEW.doors, DoorRow("/run/nodeward/images.sock", "/i", True, 0, 0)))),
        "relay-images-refused",
        Severity.ERROR,
        "no image can be pulled",
    ),
    "no-image-call-and-no-kubelet-seen": (
        replace(WELL, kubelet=KubeletFacts()),
        "relay-images-unseen",
        Severity.NOTE,
        "no image call",
    ),
    "dump-loses": (
        replace(WELL, view=replace(VIEW, dump=DumpRow("/tmp/cri.dump", 9, 4, 0))),
        "relay-dump-loses",
        Severity.WARNING,
        "4 messages",
    ),
    "uncounted": (replace(WELL, view=replace(VIEW, counted=False)), "relay", Severity.OK, "counts no calls"),
    "nri-too": (replace(WELL, nri=True), "relay-and-nri", Severity.WARNING, "nri.enabled"),
    "another-decides": (replace(WELL, view=ELSEWHERE), "relay-not-driver", Severity.WARNING, "process 12"),
    "undecided": (
        replace(WELL, view=replace(VIEW, doors=(replace(VIEW.doors[0], undecided=5),))),
        "relay-undecided",
        Severity.WARNING,
        "5 calls",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_relay_is_judged(name: str) -> None:
    facts, code, severity, words = CASES[name]

    found = [one for one in relay(facts, True) if one.severity is not Severity.OK] or list(relay(facts, True))

    assert [(one.code, one.severity) for one in found] == [(code, severity)]
    assert words in found[0].what
    assert severity is Severity.OK or found[0].remedy


def test_image_calls_that_have_passed_are_no_riddle() -> None:
    calls = (CallRow("ImageFsInfo", {"OK": 1}, {"passed": 1}),)
    facts = replace(WELL, kubelet=KubeletFacts(), view=replace(VIEW, calls=calls))

    assert [one.code for one in relay(facts, True)] == ["relay"]


def test_a_relay_alone_is_a_note_beside_what_is_well() -> None:
    assert [(one.code, one.severity) for one in relay(WELL, False)] == [
        ("relay-alone", Severity.NOTE),
        ("relay", Severity.OK),
    ]


def test_where_nobody_looked_nothing_is_said() -> None:
    assert list(relay(RelayFacts(), None)) == []


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
VMS_WELL = VmFacts((GO,), (CLASS, RuntimeClass("runc", "runc")), (OUR_POLICY,), "https://api", 2)


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
    return replace(VMS_WELL, handlers=(handler,))


@pytest.mark.parametrize(
    "facts", [VMS_WELL, VmFacts(()), of(RS), of(replace(GO, default_memory=None)), replace(VMS_WELL, classes=None)]
)
def test_what_is_well_or_not_known_is_one_finding_that_says_so(facts: VmFacts) -> None:
    assert [(one.code, one.severity) for one in sandboxes(facts)] == [("kata", Severity.OK)]


def test_where_nobody_looked_at_vms_nothing_is_said() -> None:
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
    assert bad(replace(VMS_WELL, classes=())) == [("kata-no-class", Severity.NOTE)]
    bare = only(replace(VMS_WELL, classes=(replace(CLASS, memory=None),)))
    assert (bare.code, bare.severity) == ("kata-no-overhead", Severity.WARNING)
    assert "at least 224Mi" in bare.remedy


def test_a_configuration_that_was_not_read_is_told_with_its_own_remedy() -> None:
    found = only(of(replace(GO, fault=f"{FILE}: line 3: no TOML; correct the line")))

    assert (found.code, found.severity) == ("kata-config-unread", Severity.WARNING)
    assert found.what.endswith(f"{FILE}: line 3: no TOML")
    assert found.remedy == "Correct the line."


def test_classes_that_were_not_listed_are_told_where_vms_start_and_only_there() -> None:
    unlisted = Unlisted("RuntimeClasses", "403", denied=True)
    assert bad(replace(VMS_WELL, classes=unlisted)) == [("cluster-not-looked-at", Severity.NOTE)]
    assert bad(VmFacts((), unlisted)) == []


def test_of_a_runtime_that_is_no_kata_nothing_of_kata_is_asked() -> None:
    other = Handler("mine", profile=Profile.DOCUMENT, passes=("*",))
    assert bad(replace(VMS_WELL, handlers=(other,))) == []


KATA = Handler("kata", "io.containerd.kata.v2", Profile.KATA_GO, "/etc/kata.toml", static=True)
ENFORCE = SizingSettings(Mode.ENFORCE)
RELAY = RelayFacts("/run/relay.sock", RelayView("1", 9, 1, sizing=SizingRow("enforce")), sizing=ENFORCE)
NAMED = replace(RELAY, sizing=replace(ENFORCE, handlers=("other",)))


def of_sizes(handler: Handler, relay: RelayFacts = RELAY) -> Finding:
    (found,) = sizing(VmFacts((handler,)), relay)
    return found


def test_nothing_is_said_where_no_size_is_given() -> None:
    assert list(sizing(VmFacts((KATA,)), RelayFacts())) == []


BOTH = replace(KATA, passes=("io.katacontainers.*",), enable_annotations=("default_.*",))


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        pytest.param(KATA, "hand them on; enable_annotations lacks default_vcpus and default_memory", id="resources"),
        pytest.param(BOTH, "(resources); annotations of a pod: obeyed", id="both ways"),
        pytest.param(
            replace(BOTH, static=False),
            "(the annotations default_vcpus and default_memory); annotations of a pod: obeyed",
            id="a VM that grows",
        ),
        pytest.param(
            replace(BOTH, enable_annotations=("default_vcpus",)),
            "annotations of a pod: not obeyed, enable_annotations lacks default_memory",
            id="half of the annotations",
        ),
    ],
)
def test_sizes_are_obeyed(handler: Handler, says: str) -> None:
    found = of_sizes(handler)
    assert (found.code, found.severity) == ("sizing", Severity.OK)
    assert found.what.endswith(says)


@pytest.mark.parametrize(
    ("handler", "relay", "code", "says"),
    [
        (replace(KATA, static=False), RELAY, "sizing-not-obeyed", "start small and grow"),
        (replace(KATA, static=False, runtime_type="vm"), RELAY, "sizing-not-obeyed", "enable_annotations lacks"),
        (replace(KATA, fault="/etc/kata.toml: line 3"), RELAY, "sizing-not-obeyed", "line 3"),
        (KATA, NAMED, "sizing-unknown", "the handler other is unknown"),
    ],
)
def test_sizes_are_not_obeyed(handler: Handler, relay: RelayFacts, code: str, says: str) -> None:
    found = of_sizes(handler, relay)
    assert (found.code, found.severity, bool(found.remedy)) == (code, Severity.WARNING, True)
    assert says in found.what


@pytest.mark.parametrize(
    ("view", "says"), [(None, "no relay answers"), (RelayView("1", 9, 1), "the relay runs with sizing.mode off")]
)
def test_no_relay_gives_sizes(view: RelayView | None, says: str) -> None:
    (found,) = sizing(VmFacts(()), replace(RELAY, view=view))
    assert (found.code, says in found.what) == ("sizing-no-relay", True)


SOCKET = "/run/nodeward/pod-resources.sock"
ASKS = Handler("kata", config="/etc/kata.toml", pod_resources=f"unix://{SOCKET}")
ASKS_KUBELET = replace(ASKS, pod_resources="/var/lib/kubelet/pod-resources/kubelet.sock")
ON = ColdPlugFacts(True, SOCKET, True, True)


@pytest.mark.parametrize(
    ("handler", "facts", "found"),
    [
        pytest.param(ASKS, ON, {"cold-plug": "handlers that ask it: kata"}, id="well"),
        pytest.param(ASKS_KUBELET, replace(ON, enabled=False, kube=False), {}, id="off"),
        pytest.param(
            *(ASKS, replace(ON, kube=False)),
            {"cold-plug-no-api": "refuses every pod with devices", "cold-plug": "handlers that ask it: kata"},
            id="no API server",
        ),
        pytest.param(
            ASKS_KUBELET, ON, {"cold-plug-not-asked": "Kata asks /var/lib/kubelet/pod-res"}, id="asks kubelet"
        ),
        pytest.param(
            replace(ASKS_KUBELET, pod_resources=""), ON, {"cold-plug-not-asked": "asks nobody"}, id="asks nobody"
        ),
        pytest.param(ASKS, replace(ON, listens=False), {"cold-plug-silent": "VMs do not boot"}, id="stale"),
        pytest.param(
            ASKS, ColdPlugFacts(False, SOCKET, False, False), {"cold-plug-silent": "without their devices"}, id="absent"
        ),
        pytest.param(ASKS, replace(ON, listens=None), {}, id="not seen"),
    ],
)
def test_what_is_said_of_the_socket(handler: Handler, facts: ColdPlugFacts, found: dict[str, str]) -> None:
    said = {one.code: one.what for one in cold_plug(VmFacts((handler,)), facts)}
    assert said.keys() == found.keys()
    assert all(words in said[code] for code, words in found.items())
