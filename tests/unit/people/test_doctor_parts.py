"""Findings on the relay, on what starts VMs, on their sizes, on the cold-plug socket and on keys."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from nodeward.core.annotations import KATA_CONFIG, KATA_ONLY
from nodeward.core.finding import Finding, RuntimeClass, Severity, Unlisted
from nodeward.core.modes import Mode
from nodeward.core.vms import Handler, Profile
from nodeward.features.keys.findings import KeyFacts, keys, of_offers
from nodeward.features.keys.rows import KeyClaim, KeyClaims, KeyHolder, KeyOffer, KeyRow, KeySharing
from nodeward.features.limits.findings import of_enclaves
from nodeward.features.limits.rows import DeviceRow, EnclavesView
from nodeward.features.podapi.findings import ColdPlugFacts, cold_plug
from nodeward.features.sandboxes.findings import OUR_POLICY, VmFacts, sandboxes, sizing
from nodeward.features.sandboxes.settings import SizingSettings
from nodeward.neighbours.cri.rows import CallRow, DaemonRow, DoorRow, DumpRow
from nodeward.people.doctor.facts import KubeletFacts, RelayFacts
from nodeward.people.doctor.relay_findings import relay
from nodeward.people.relay_view import RelayView

LISTEN, RUNTIME = "/run/nodeward/cri.sock", "/run/containerd/containerd.sock"
KUBELET = KubeletFacts("process 7", LISTEN, LISTEN)
VIEW = RelayView(
    "1",
    9,
    1,
    doors=(DoorRow(LISTEN, RUNTIME, True, 2, 2),),
    calls=(CallRow("Version", {"OK": 3}, {"passed": 3}),),
    daemon=DaemonRow(("containers",), 12),
    dump=DumpRow("/tmp/cri.dump", 9, 0, 0),
)
WELL = RelayFacts("/run/nodeward/relay.sock", VIEW, "", LISTEN, ("containers",), KUBELET)
ERROR, WARNING, NOTE, OK = Severity.ERROR, Severity.WARNING, Severity.NOTE, Severity.OK
NONE = replace(WELL, view=None, wants=(), kubelet=KubeletFacts("process 7", RUNTIME, RUNTIME))


def viewed(**changes: Any) -> RelayFacts:
    return replace(WELL, view=replace(VIEW, **changes))


def door(**changes: Any) -> RelayFacts:
    return viewed(doors=(replace(VIEW.doors[0], **changes),))


def kubelet(runtime: str, images: str) -> RelayFacts:
    return replace(WELL, kubelet=KubeletFacts("process 7", runtime, images))


NO_IMAGES = viewed(doors=(*VIEW.doors, DoorRow("/run/nodeward/images.sock", "/i", True, 0, 0)))
CALL = CallRow("ImageFsInfo", {"OK": 1}, {})
ALONE = viewed(daemon=DaemonRow(("containers",), 0, "no node daemon"))
CASES = {
    "absent-and-not-wanted": (NONE, "relay", OK, "no relay is wanted"),
    "absent-and-wanted": (replace(NONE, wants=("containers",)), "relay-away", WARNING, "(for containers), and none"),
    "absent-and-kubelet-asks-it": (replace(WELL, view=None), "relay-away", ERROR, "no container starts"),
    "silent": (replace(NONE, fault="no answer of X"), "relay-silent", WARNING, "no answer of X"),
    "well": (WELL, "relay", OK, "3 calls"),
    "runtime-away": (door(present=False), "relay-runtime-absent", ERROR, RUNTIME),
    "kubelet-past-it": (kubelet(RUNTIME, RUNTIME), "relay-not-used", WARNING, RUNTIME),
    "images-past-it": (kubelet(LISTEN, "/run/images.sock"), "relay-images-unseen", WARNING, "PullImage"),
    "images-where-none-are-served": (NO_IMAGES, "relay-images-refused", ERROR, "no image can be pulled"),
    "no-image-call": (replace(WELL, kubelet=KubeletFacts()), "relay-images-unseen", NOTE, "no image call"),
    "image-calls": (replace(viewed(calls=(CALL,)), kubelet=KubeletFacts()), "relay", OK, "1 calls"),
    "dump-loses": (viewed(dump=DumpRow("/tmp/cri.dump", 9, 4, 0)), "relay-dump-loses", WARNING, "4 messages"),
    "uncounted": (viewed(counted=False), "relay", OK, "counts no calls"),
    "other-settings": (viewed(daemon=DaemonRow()), "relay-not-driver", WARNING, "for containers"),
    "nobody-decides": (ALONE, "relay-alone", WARNING, "decides them: no node daemon"),
    "undecided": (door(undecided=5), "relay-undecided", WARNING, "5 calls"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_relay_is_judged(name: str) -> None:
    facts, code, severity, words = CASES[name]

    found = [one for one in relay(facts) if one.severity is not Severity.OK] or list(relay(facts))

    assert [(one.code, one.severity) for one in found] == [(code, severity)]
    assert words in found[0].what
    assert severity is Severity.OK or found[0].remedy


def test_where_nobody_looked_nothing_is_said() -> None:
    assert list(relay(RelayFacts())) == []
    assert list(sandboxes(VmFacts())) == []
    assert list(sizing(VmFacts((KATA,)), SizingSettings(), None, "")) == []


MIB = 1 << 20
FILE = "/opt/kata/configuration-qemu.toml"
HANDLER = Handler("kata-qemu", "io.containerd.kata-qemu.v2", Profile.KATA_GO, FILE, hypervisor="qemu")
GO = replace(HANDLER, only=True, only_from=FILE, default_memory=64 * MIB)
CLH = replace(GO, profile=Profile.KATA_RS, hypervisor="clh")
RS = replace(CLH, static=True, default_memory=2048 * MIB, overhead_memory=32 * MIB)
CLASS = RuntimeClass("kata-qemu", "kata-qemu", 320 * MIB)
VMS_WELL = VmFacts((GO,), (CLASS, RuntimeClass("runc", "runc")), (OUR_POLICY,), "https://api", 2)


def of(handler: Handler, **more: Any) -> VmFacts:
    return replace(replace(VMS_WELL, handlers=(handler,)), **more)


def declared(handler: Handler, mib: int) -> VmFacts:
    return of(handler, classes=(replace(CLASS, memory=mib * MIB),))


def passing(*annotations: str, kind: str = GO.runtime_type) -> Handler:
    return replace(GO, runtime_type=kind, passes=annotations)


UNLISTED = Unlisted("RuntimeClasses", "403", denied=True)
OUTSIDE, SMALL, PASSES = "kata-mode-false", "kata-overhead-small", "kata-annotation-passes"
DRAGONBALL = replace(GO, profile=Profile.KATA_RS, hypervisor="dragonball", passes=(KATA_ONLY,), overhead_memory=0)
AS_SHIPPED, SPLIT = replace(GO, default_memory=2048 * MIB), replace(GO, only=False)
AMISS = {
    "kata-go as shipped (#12786)": (declared(AS_SHIPPED, 320), {SMALL: ERROR}, "320Mi - default_memory 2Gi = -1728Mi"),
    "kata-go": (declared(replace(GO, default_memory=256 * MIB), 320), {SMALL: WARNING}, "= 64Mi"),
    "kata-rs": (declared(RS, 127), {SMALL: WARNING}, "127Mi - overhead_memory 32Mi = 95Mi"),
    "kata-rs, as much as was asked for": (declared(RS, 128), {}, ""),
    "kata-rs that grows": (declared(replace(RS, static=False), 2100), {SMALL: WARNING}, "default_memory 2Gi = 52Mi"),
    "moved whole on v2": (
        declared(SPLIT, 128),
        {SMALL: WARNING, OUTSIDE: WARNING},
        "128Mi - default_memory 64Mi = 64Mi",
    ),
    "memory outside the pod on v1": (
        *(of(replace(AS_SHIPPED, only=False), version=1), {OUTSIDE: NOTE}, "charged to none of them"),
    ),
    "memory outside the pod on v2": (of(SPLIT), {OUTSIDE: WARNING}, "moves the whole VMM into"),
    "nobody set the mode": (of(replace(GO, only=None)), {OUTSIDE: WARNING}, "which nobody has set"),
    "every annotation is obeyed": (of(passing("io.katacontainers.*"), policies=()), {PASSES: WARNING}, KATA_ONLY),
    "the mode by annotation": (of(passing(KATA_ONLY), policies=()), {PASSES: WARNING}, KATA_ONLY),
    "the file by annotation": (of(passing(KATA_CONFIG), policies=()), {PASSES: WARNING}, KATA_CONFIG),
    "CRI-O's runtime": (of(passing("io.katacontainers.config", kind="vm"), policies=()), {PASSES: WARNING}, KATA_ONLY),
    "our policy is in force": (of(passing("io.katacontainers.*")), {PASSES: NOTE}, "but not static ones"),
    "another annotation": (of(passing("io.katacontainers.config.hypervisor.*")), {}, ""),
    "dragonball obeys none of the mode": (of(DRAGONBALL), {}, ""),
    "no class": (of(GO, classes=()), {"kata-no-class": NOTE}, ""),
    "no overhead": (of(GO, classes=(replace(CLASS, memory=None),)), {"kata-no-overhead": WARNING}, ""),
    "a configuration that was not read": (
        *(of(replace(GO, fault="/k: no TOML; correct it")), {"kata-config-unread": WARNING}, "/k: no TOML Correct it."),
    ),
    "classes that were not listed": (of(GO, classes=UNLISTED), {"cluster-not-looked-at": NOTE}, ""),
    "classes that were not listed where no VMs start": (VmFacts((), UNLISTED), {}, ""),
    "no Kata": (of(Handler("mine", profile=Profile.DOCUMENT, passes=("*",))), {}, ""),
    "well": (VMS_WELL, {}, ""),
    "no handler": (VmFacts(()), {}, ""),
    "runtime-rs": (of(RS), {}, ""),
    "its memory is not known": (of(replace(GO, default_memory=None)), {}, ""),
    "the classes are not known": (of(GO, classes=None), {}, ""),
}


@pytest.mark.parametrize("case", AMISS)
def test_what_is_amiss_with_kata_is_found_with_what_to_do(case: str) -> None:
    facts, codes, words = AMISS[case]
    found = list(sandboxes(facts))
    asking = [one for one in found if one.severity is not Severity.OK]

    assert {one.code: one.severity for one in asking} == codes
    assert all(one.remedy for one in asking)
    assert words in " ".join(text for one in asking for text in (one.what, one.remedy))
    ours = [one for one in asking if one.code != "cluster-not-looked-at"]
    assert ("kata" in [one.code for one in found]) is all(one.severity is NOTE for one in ours)


KATA = Handler("kata", "io.containerd.kata.v2", Profile.KATA_GO, "/etc/kata.toml", static=True)
ENFORCE = SizingSettings(Mode.ENFORCE)
RELAY = RelayFacts("/run/relay.sock", RelayView("1", 9, 1, daemon=DaemonRow(("sizing",), 12)), sizing=ENFORCE)
NAMED = replace(RELAY, sizing=replace(ENFORCE, handlers=("other",)))
BOTH = replace(KATA, passes=("io.katacontainers.*",), enable_annotations=("default_.*",))
BOTH_RS = replace(BOTH, profile=Profile.KATA_RS, runtime_type="vm", enable_annotations=("network_queues",))
QUEUES = replace(RELAY, sizing=replace(ENFORCE, queues=True))


@pytest.mark.parametrize(
    ("handler", "relay", "code", "says"),
    [
        (KATA, RELAY, "sizing", "hand them on; enable_annotations lacks default_vcpus and default_memory"),
        (BOTH, RELAY, "sizing", "(resources); annotations of a pod: obeyed"),
        (replace(BOTH, static=False), RELAY, "sizing", "(the annotations default_vcpus and default_memory); "),
        (replace(BOTH, enable_annotations=("default_vcpus",)), RELAY, "sizing", "lacks default_memory"),
        (BOTH, QUEUES, "sizing", "queues of devices: not obeyed, only runtime-rs"),
        (BOTH_RS, QUEUES, "sizing", "queues of devices: not obeyed, block_device_num_queues"),
        (replace(KATA, static=False), RELAY, "sizing-not-obeyed", "start small and grow"),
        (replace(KATA, static=False, runtime_type="vm"), RELAY, "sizing-not-obeyed", "enable_annotations lacks"),
        (replace(KATA, fault="/etc/kata.toml: line 3"), RELAY, "sizing-not-obeyed", "line 3"),
        (KATA, NAMED, "sizing-unknown", "the handler other is unknown"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_whether_sizes_are_obeyed(handler: Handler, relay: RelayFacts, code: str, says: str) -> None:
    (found,) = sizing(VmFacts((handler,)), relay.sizing, relay.wanted, relay.where)
    assert (found.code, bool(found.remedy)) == (code, code != "sizing")
    assert found.severity is (Severity.OK if code == "sizing" else Severity.WARNING)
    assert says in found.what


@pytest.mark.parametrize(
    ("view", "says"), [(None, "no relay answers"), (RelayView("1", 9, 1), "the relay runs with sizing.mode off")]
)
def test_no_relay_gives_sizes(view: RelayView | None, says: str) -> None:
    relay = replace(RELAY, view=view)
    (found,) = sizing(VmFacts(()), relay.sizing, relay.wanted, relay.where)
    assert (found.code, says in found.what) == ("sizing-no-relay", True)


SOCKET = "/run/nodeward/pod-resources.sock"
ASKS = Handler("kata", config="/etc/kata.toml", pod_resources=f"unix://{SOCKET}")
ASKS_KUBELET = replace(ASKS, pod_resources="/var/lib/kubelet/pod-resources/kubelet.sock")
ON = ColdPlugFacts(True, SOCKET, True, True)


@pytest.mark.parametrize(
    ("handler", "facts", "found"),
    [
        (ASKS, ON, {"cold-plug": "handlers that ask it: kata"}),
        (ASKS_KUBELET, replace(ON, enabled=False, kube=False), {}),
        (
            *(ASKS, replace(ON, kube=False)),
            {"cold-plug-no-api": "refuses every pod with devices", "cold-plug": "handlers that ask it: kata"},
        ),
        (ASKS_KUBELET, ON, {"cold-plug-not-asked": "Kata asks /var/lib/kubelet/pod-res"}),
        (replace(ASKS_KUBELET, pod_resources=""), ON, {"cold-plug-not-asked": "asks nobody"}),
        (ASKS, replace(ON, listens=False), {"cold-plug-silent": "VMs do not boot"}),
        (ASKS, ColdPlugFacts(False, SOCKET, False, False), {"cold-plug-silent": "without their devices"}),
        (ASKS, replace(ON, listens=None), {}),
    ],
    ids=["well", "off", "no API server", "asks kubelet", "asks nobody", "stale", "absent", "not seen"],
)
def test_what_is_said_of_the_socket(handler: Handler, facts: ColdPlugFacts, found: dict[str, str]) -> None:
    said = {one.code: one.what for one in cold_plug(VmFacts((handler,)), facts)}
    assert said.keys() == found.keys()
    assert all(words in said[code] for code, words in found.items())


WELL_KEYED = KeySharing("override", "auto", "a/b", 4, 1, 12, 12, {"c/d": 12}, "working", sentence="the mode")
HOLDERS = tuple(KeyHolder("s", "p", "u", 1, 1, ("tdx0",), gone=gone) for gone in (False, True))
ROW = KeyRow("tdx", ("a/b", "c/d"), 16, 0, used=3, holders=HOLDERS)
OBJECT = "nodeward/zzz-nodeward-n1"
UNCOUNTED = replace(WELL_KEYED, total=None)
OF_ITS_OWN, OVERSOLD = replace(UNCOUNTED, chosen="own"), KeySharing("own", "own", "a/b", 0, 14)
UNSURE = KeyOffer(withheld="uncounted")


def found(sharing: KeySharing, our_object: str = OBJECT) -> dict[str, Finding]:
    rows = (replace(ROW, sharing=sharing),)
    return {one.code: one for one in keys(KeyFacts(rows, our_object, has_checkpoint=True))}


def test_a_node_that_shares_well_is_told_its_mode_and_what_hangs_on_whom() -> None:
    said = found(WELL_KEYED)
    assert list(said) == ["keys-mode", "keys-removal"]
    assert said["keys-mode"].what == "the mode"
    assert "1 pod(s) with ids run on" in said["keys-removal"].what


@pytest.mark.parametrize(
    ("changes", "our_object", "codes"),
    [
        ({"offer": KeyOffer(withheld="gone")}, "", ["keys-gone"]),
        ({"offer": UNSURE}, "", ["keys-uncounted"]),
        ({"offer": KeyOffer()}, "", []),
        ({"offer": UNSURE, "sharing": UNCOUNTED}, OBJECT, ["keys-uncounted"]),
        ({"offer": UNSURE, "sharing": OF_ITS_OWN}, OBJECT, ["keys-uncounted", "keys-nfd-stale"]),
        ({"sharing": UNCOUNTED}, OBJECT, ["keys-nfd-stale"]),
        ({"offer": KeyOffer(journal_fault="it is full")}, "", ["keys-journal"]),
        ({"claims": KeyClaims(0, registered=True)}, "", []),
        ({"claims": KeyClaims(0, registered=True, fault="403")}, "", ["claims-unpublished"]),
        ({"claims": KeyClaims(0, driver="no folder", registered=False)}, "", ["claims-unregistered"]),
        ({"claims": KeyClaims(0, rows=(KeyClaim("a/b", "u", "waiting", 1),))}, "", ["claims-wait"]),
        ({"offer": KeyOffer(journal_lost="it was removed.")}, "", ["keys-journal-lost"]),
        ({"offer": KeyOffer(journal_fault="x", journal_lost="y.")}, "", ["keys-journal", "keys-journal-lost"]),
        ({"used": 3, "entitled": 17, "sharing": OVERSOLD}, "", ["keys-mode", "keys-oversold"]),
    ],
)
def test_what_keeps_keys_from_being_given_out_is_found_and_an_object_of_ours_while_nobody_wants_it(
    changes: dict[str, Any], our_object: str, codes: list[str]
) -> None:
    row = replace(ROW, **{"used": None, "sentence": "the kernel's word."} | changes)
    said = [*keys(KeyFacts((row,), our_object, has_checkpoint=True)), *of_offers((row,))]
    assert sorted(one.code for one in said if one.code != "keys-removal") == sorted(codes)
    assert all(one.remedy for one in said if one.severity is Severity.WARNING)


@pytest.mark.parametrize(
    ("view", "codes"),
    [
        (None, []),
        (EnclavesView("plugin", (DeviceRow("r", "/dev/x", True, ids=1, standing="serving"),)), []),
        (EnclavesView("nri", (DeviceRow("r", "/dev/x", False, expected=True),)), ["sgx-device-missing"]),
        (EnclavesView("nri", (DeviceRow("r", "/dev/x", False),)), []),
        (EnclavesView("plugin", (DeviceRow("r", "/dev/x", True, standing="rival"),)), ["sgx-plugin"]),
        (EnclavesView("off", registered=False, driver="no folder"), ["epc-unregistered"]),
        (EnclavesView("off", registered=True), []),
    ],
)
def test_what_keeps_enclaves_from_devices_and_memory_is_found(view: EnclavesView | None, codes: list[str]) -> None:
    said = [*of_enclaves(view)]
    assert [one.code for one in said] == codes
    assert all(one.remedy for one in said)


@pytest.mark.parametrize(
    ("sharing", "code", "what"),
    [
        (replace(WELL_KEYED, chosen="override", nfd="absent"), "keys-nfd-away", "nobody goes by"),
        (replace(WELL_KEYED, chosen="split", nfd="served"), "keys-nfd-away", "nobody goes by"),
        (replace(WELL_KEYED, chosen="shared", nfd="absent"), "keys-nfd-away", "nobody offers"),
        (replace(WELL_KEYED, error="403"), "keys-nfd-error", "403"),
        (replace(WELL_KEYED, nfd_fault="no answer"), "keys-nfd-error", "no answer"),
        (
            replace(WELL_KEYED, mode="own", total=None, nfd="unknown", nfd_fault="403"),
            "keys-nfd-error",
            "on this node is not known, so NFD's number is left alone, as with share own: 403",
        ),
        (replace(WELL_KEYED, on_node={"c/d": 16}), "keys-nfd-late", "to be 12, and the node has c/d 16"),
        (replace(WELL_KEYED, on_node={}), "keys-nfd-unruled", "by which pods here ask 1"),
        (replace(WELL_KEYED, on_node={}, asked=0), "keys-nfd-unruled", "nobody goes by it"),
        (replace(WELL_KEYED, quotes="answers"), "keys-quotes", "answers"),
        (replace(WELL_KEYED, quotes="gone"), "keys-quotes-away", "VMs start"),
        (replace(WELL_KEYED, quotes="x", attestation="enforce"), "keys-quotes-away", "no key is sold"),
        (replace(WELL_KEYED, total=None), "keys-nfd-stale", "no daemon here wants"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_is_amiss_is_found(sharing: KeySharing, code: str, what: str) -> None:
    assert code not in found(WELL_KEYED)
    said = found(sharing)
    assert what in said[code].what
    assert said[code].remedy or said[code].severity.value == "ok"


@pytest.mark.parametrize(
    ("on_node", "expected"),
    [
        pytest.param(None, [], id="not-read"),
        pytest.param({"c/d": 12}, [], id="the-same"),
        pytest.param({"other/key": 3}, ["keys-nfd-unruled"], id="the-rule-has-gone-since"),
        pytest.param({"c/d": 16}, ["keys-nfd-late"], id="master-gone-since"),
    ],
)
def test_the_node_itself_comes_before_the_daemons_view(on_node: Mapping[str, int] | None, expected: list[str]) -> None:
    facts = KeyFacts((replace(ROW, sharing=WELL_KEYED),), OBJECT, has_checkpoint=True, on_node=on_node)
    assert [one.code for one in keys(facts) if one.severity is Severity.WARNING] == expected


def test_a_number_that_nfd_left_on_the_node_is_found_whatever_the_mode_and_without_the_daemon() -> None:
    own = KeySharing("own", "own", asked=2, nfd="unknown", sentence="the mode")
    for rows, asked in (((replace(ROW, sharing=own),), "; pods here ask 2 by it, and"), ((), "any more, and")):
        (left,) = (one for one in keys(KeyFacts(rows, on_node={"c/d": 13}, left_by_nfd=("c/d",))) if one.remedy)
        assert (left.code, left.severity, left.where) == ("keys-nfd-left", Severity.WARNING, "c/d")
        assert "the node has c/d 13, which Node Feature Discovery put there" in left.what
        assert asked in left.what
        assert '[{"op": "remove", "path": "/status/capacity/c~1d"}]' in left.remedy


SEV = KeyRow("sev_es", ("a/b",), 509, 0, used=3)


@pytest.mark.parametrize(
    ("row", "hiding", "severity"),
    [
        pytest.param(SEV, 99, Severity.WARNING, id="more-are-sold-than-snp-may-have"),
        pytest.param(replace(SEV, capacity=99), 99, Severity.OK, id="as-many-as-snp-may-have"),
        pytest.param(SEV, 2**32 - 1, Severity.OK, id="all-of-them"),
        pytest.param(SEV, 0, None, id="not-hidden"),
        pytest.param(replace(SEV, capacity=0), 99, None, id="no-such-keys-here"),
        pytest.param(replace(SEV, key="tdx"), 99, None, id="of-tdx"),
    ],
)
def test_ciphertext_hiding_is_found_where_more_is_sold_than_snp_may_have(
    row: KeyRow, hiding: int, severity: Severity | None
) -> None:
    said = {one.code: one for one in keys(KeyFacts((row,), hiding=hiding))}
    if severity is None:
        assert said == {}
    else:
        assert said["keys-hiding"].severity is severity
        assert bool(said["keys-hiding"].remedy) is (severity is Severity.WARNING)


def test_where_somebody_else_offers_the_keys_it_is_told_what_comes_after_him() -> None:
    for offer, is_rival in ((KeyOffer(standing="rival"), True), (KeyOffer(), False)):
        row = replace(ROW, sharing=WELL_KEYED, offer=offer)
        said = {one.code: one.what for one in keys(KeyFacts((row,), OBJECT, has_checkpoint=True))}
        assert ("as KubeVirt does: the node has 0 of them at once" in said["keys-removal"]) is is_rival


def test_auto_without_nfd_is_nothing_amiss_and_without_a_daemon_only_what_it_left_behind_is_found() -> None:
    assert list(found(KeySharing("own", "auto", nfd="absent"), "")) == ["keys-mode"]
    assert list(keys(KeyFacts())) == []
    (only,) = keys(KeyFacts(our_object=OBJECT))
    assert (only.code, only.where) == ("keys-nfd-stale", OBJECT)
