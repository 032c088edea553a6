"""From facts to findings: each fault has its code, its severity and a remedy, and what is well is said too."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeward.core.cgroup import Hierarchy
from nodeward.core.finding import Access, Finding, Neighbour, ParameterRef, Registered, Severity, Unlisted
from nodeward.features.cpus.findings import CpuFacts
from nodeward.features.cpus.rows import CpuPoolRow, CpusView
from nodeward.features.limits.findings import CgroupFacts, Layout
from nodeward.people.doctor.cluster_findings import OUR_WEBHOOKS
from nodeward.people.doctor.facts import ApiFacts, DaemonFacts, Facts, HookFacts, ProcessFacts, RuntimeFacts
from nodeward.people.doctor.findings import findings, lines, version, worst
from tests.unit.features.build import EPC

ROOT = "/sys/fs/cgroup"
ROOT_FOLDER = Path(__file__).resolve().parents[3]
TREE = CgroupFacts(
    root=ROOT,
    layout=Layout.V2,
    controllers=("cpu", "memory", "misc"),
    handed_down=("cpu", "memory", "misc"),
    kubepods=f"{ROOT}/kubepods.slice",
    kubepods_controllers=("cpu", "memory", "misc"),
    capacity={EPC: 1 << 30},
)
RUNTIME = RuntimeFacts(
    nri_socket="/var/run/nri/nri.sock",
    nri_there=True,
    versions={"containerd": "containerd github.com/containerd/containerd v2.4.2 abc", "runc": "runc version 1.2.5\n"},
)
NRI_POLICY, OURS_TOO = Neighbour("nri-policy", "process 7"), CpuFacts("static")
OURS = tuple(Registered(name, has_ca=True) for name in OUR_WEBHOOKS)
API = ApiFacts(Access.OK, "https://api", behind_s=0.4, webhooks=OURS, daemon_sets=(), no_events=())
WELL = Facts(
    kernel="6.12.0",
    resources=(EPC,),
    cgroups=TREE,
    runtime=RUNTIME,
    api=API,
    process=ProcessFacts(0, True, (1 << 41) - 1),
    synchronised=True,
    daemon=DaemonFacts(True, "/run/nodeward/nodeward.sock"),
)


def tree(**changes: Any) -> Facts:
    return replace(WELL, cgroups=replace(TREE, **changes))


def runtime(**changes: Any) -> Facts:
    return replace(WELL, runtime=replace(RUNTIME, **changes))


def api(**changes: Any) -> Facts:
    return replace(WELL, api=replace(API, **changes))


def cpus_shown(**changes: Any) -> Facts:
    view = replace(CpusView("none", "enforce", "nri", "0-7", in_force=True), **changes)
    return replace(WELL, cpus=CpuFacts("static", view=view))


INSTALLED = HookFacts(True, "/run/nodeward/hook.sock", True, ("/etc/cdi/nodeward.json",))


def hook(**changes: Any) -> Facts:
    return replace(WELL, hook=replace(INSTALLED, **changes))


def of(facts: Facts, code: str) -> Finding:
    found = [finding for finding in findings(facts) if finding.code == code]
    assert len(found) == 1, [finding.code for finding in findings(facts)]
    return found[0]


def test_a_node_that_is_well_has_a_good_word_for_each_area() -> None:
    found = findings(WELL)

    assert worst(found) is Severity.OK
    of_host, of_cluster = ("resource", "misc-delegated", "nri", "version", "version"), ("api", "privileges", "clock")
    assert [finding.code for finding in found] == [*of_host, *of_cluster, "webhook", "daemon"]


ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
V1 = {"layout": Layout.V1, "controllers": None}
MISC_V1 = V1 | {"tree": Hierarchy(1, "/sys/fs/cgroup/misc", "/sys/fs/cgroup/pids")}


@pytest.mark.parametrize(
    ("facts", "code", "severity"),
    [
        (tree(controllers=("cpu",)), "no-misc-controller", ERROR),
        (tree(capacity={}), "no-resource", WARNING),
        (tree(capacity={EPC: 0, "sev": 9}), "no-resource", WARNING),
        (tree(capacity=None), "capacity-unread", WARNING),
        (tree(handed_down=("cpu",)), "misc-not-delegated", NOTE),
        (tree(kubepods_controllers=("cpu",)), "misc-not-delegated", NOTE),
        (tree(**V1), "cgroup-v1", ERROR),
        (tree(**MISC_V1), "misc-v1", NOTE),
        (tree(**MISC_V1, read_only=True), "cgroups-read-only", ERROR),
        (replace(tree(**MISC_V1), runtime=replace(RUNTIME, versions={"runc": "1.1.5"})), "runtime-outside-misc", ERROR),
        (tree(layout=Layout.HYBRID, v2_at="/x", controllers=None), "cgroup-hybrid", ERROR),
        (tree(layout=Layout.NONE, controllers=None), "cgroup-none", ERROR),
        (tree(is_real_root=False), "cgroup-namespace", ERROR),
        (tree(read_only=True), "cgroups-read-only", ERROR),
        (hook(missing=("/opt/x",)), "hook-program", ERROR),
        (hook(installed_in=()), "hook-not-installed", WARNING),
        (hook(installed_in=(), unread_in=("/x",)), "hook-not-read", WARNING),
        (hook(socket_there=False), "hook-no-socket", WARNING),
        (hook(wanted=False), "hook-off", NOTE),
        (hook(), "hook", Severity.OK),
        (runtime(nri_there=None, nri_off_in="/x"), "nri-off", NOTE),
        (runtime(nri_there=False), "nri-no-socket", ERROR),
        (runtime(nri_off_in="/etc/containerd/config.toml"), "nri-off", ERROR),
        (runtime(versions={"containerd": "v1.6.33", "runc": "1.2"}), "runtime-without-nri", ERROR),
        (runtime(versions={"runc": "runc version 1.1.5"}), "runtime-old", NOTE),
        (runtime(versions={"runc": "runc version 1.1.5"}, multi_line=True), "runtime-old", NOTE),
        (runtime(versions={"crun": ""}), "version-unknown", NOTE),
        (runtime(versions={}), "no-oci-runtime", NOTE),
        (api(access=Access.OFF), "api-off", NOTE),
        (api(access=Access.CONFIG, detail="x"), "api-config", ERROR),
        (api(access=Access.DENIED, detail="401"), "api-denied", ERROR),
        (api(access=Access.CERTIFICATE, detail="expired"), "api-certificate", ERROR),
        (api(access=Access.UNREACHABLE, detail="refused"), "api-unreachable", ERROR),
        (api(behind_s=90.0), "clock-skew", WARNING),
        (api(behind_s=-5.5), "clock-skew", WARNING),
        (api(no_events=("create", "patch")), "events-denied", WARNING),
        (api(no_events=None), "events-not-looked-at", NOTE),
        (api(unlisted=(Unlisted("x", "403", True),)), "cluster-not-looked-at", NOTE),
        (api(unlisted=(Unlisted("x", "late", False),)), "cluster-not-looked-at", NOTE),
        (api(webhooks=()), "webhook-absent", NOTE),
        (api(webhooks=OURS[:1]), "webhook-absent", NOTE),
        (api(webhooks=(*OURS, replace(OURS[0], has_ca=False))), "webhook-no-ca", WARNING),
        (api(no_parameters=(ParameterRef("nodeward-epc-amounts", "a", "b"),)), "policies-no-parameters", WARNING),
        (api(device_classes=(("tdx", "devices.kubevirt.io/tdx"), ("bad", "sgx.intel.com/epc"))), "claims-class", ERROR),
        (api(twin_slices=(("tee.nodeward.io", "other"),)), "claims-twin", ERROR),
        (api(ending=("shop/a", "shop/b")), "claims-ending", WARNING),
        (runtime(cdi_wanted=True, versions={"containerd": "containerd v1.7.27"}), "cdi-off", ERROR),
        (runtime(cdi_wanted=True, cdi=False), "cdi-off", ERROR),
        (api(webhooks=(Registered("sgx.mutator.webhooks.intel.com", True),)), "intel-sgx-webhook", WARNING),
        (api(daemon_sets=("kube-system/nri-sgx-epc",)), "sgx-epc", ERROR),
        (api(daemon_sets=("intel/intel-sgx-plugin",)), "intel-sgx-plugin", NOTE),
        (replace(WELL, neighbours=(Neighbour("sgx-epc", "process 7"),)), "sgx-epc", ERROR),
        (replace(WELL, neighbours=(Neighbour("cri-rm", "/x"),)), "cri-rm", WARNING),
        (replace(WELL, cpus=CpuFacts(manager="static")), "cpu-manager", NOTE),
        (replace(WELL, cpus=CpuFacts("static", manager="static")), "cpu-manager", ERROR),
        (replace(WELL, neighbours=(NRI_POLICY,)), "nri-policy", NOTE),
        (replace(WELL, neighbours=(NRI_POLICY,), cpus=OURS_TOO), "nri-policy", ERROR),
        (replace(WELL, neighbours=(Neighbour("cri-rm", "/x"),), cpus=OURS_TOO), "cri-rm", ERROR),
        (replace(WELL, neighbours=(Neighbour("cri-rm-state", "/x"),), cpus=OURS_TOO), "cri-rm-state", NOTE),
        (cpus_shown(refused=("too many",), in_force=False), "cpus-unfit", ERROR),
        (cpus_shown(refused=("too many",)), "cpus-refused", WARNING),
        (cpus_shown(notes=("one is offline",)), "cpus-machine", WARNING),
        (cpus_shown(pools=(CpuPoolRow("claim[shop/vm]", "4-7", ("vm/app",)),)), "cpus-claim-requests", WARNING),
        (api(daemon_sets=("kube-system/dracpu",)), "dra-driver-cpu", NOTE),
        (api(daemon_sets=("kube-system/nri-resource-policy-balloons",)), "nri-policy", NOTE),
        (replace(WELL, process=ProcessFacts(1000, True, 0)), "not-root", ERROR),
        (replace(WELL, process=ProcessFacts(0, False, -1)), "user-namespace", ERROR),
        (replace(WELL, synchronised=False), "clock-unsynchronised", WARNING),
        (replace(WELL, daemon=DaemonFacts(False)), "daemon-away", NOTE),
        (replace(WELL, daemon=DaemonFacts(True, "", ("nri",))), "daemon-not-ready", WARNING),
        (replace(WELL, daemon=DaemonFacts(True, "", (), ("limits.mode",))), "daemon-settings", WARNING),
        (replace(WELL, daemon=DaemonFacts(True, object_faults=("spec",))), "daemon-policy-object", WARNING),
        (replace(WELL, daemon=DaemonFacts(True, second="pod b")), "daemon-second", WARNING),
        (replace(WELL, daemon=DaemonFacts(True, no_zones="nfd too")), "daemon-topology-object", WARNING),
        (replace(WELL, daemon=DaemonFacts(True, no_epc="4096 by nfd-master")), "daemon-node-epc", WARNING),
        (replace(WELL, daemon=DaemonFacts(True, no_metrics="held")), "daemon-metrics", WARNING),
        (replace(WELL, settings_faults=("limits.mode",)), "settings-faults", ERROR),
        (replace(WELL, failed={"api": "hangs"}), "probe-failed", WARNING),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_is_wrong_is_found_alone_and_with_what_to_do(facts: Facts, code: str, severity: Severity) -> None:
    found = of(facts, code)

    assert found.severity is severity
    assert worst(findings(facts)) is severity
    assert found.what
    assert bool(found.remedy) == (severity in (ERROR, WARNING)) or severity is NOTE
    assert found.remedy.count(". ") == 0  # one sentence


OLD, OK = {"runc": "runc version 1.1.5+ds1"}, Severity.OK


@pytest.mark.parametrize(
    ("said", "multi_line", "joins", "code", "severity"),
    [
        (OLD, False, False, "runtime-old", WARNING),
        (OLD, True, False, "multi-line-held", WARNING),
        (OLD, True, True, "multi-line-refused", ERROR),
        ({"crun": "crun version 1.8.1"}, True, False, "multi-line-held", WARNING),
        ({"runc": "1.5.2", "crun": "1.8.1"}, True, False, "multi-line-held", WARNING),
        ({"runc": "1.5.2", "/opt/o": "runc version 1.1.5"}, True, False, "multi-line-held", WARNING),
        ({"runc": "1.5.2", "crun": "1.8.1"}, False, False, "runtime-old", WARNING),
        ({"runc": "runc version 1.2.0-rc.2"}, False, False, "multi-line-off", NOTE),
        ({"runc": "runc version 1.10.0"}, True, False, "version", OK),
        ({"runc": ""}, False, False, "version-unknown", NOTE),
    ],
)
def test_with_two_resources_the_setting_has_to_fit_the_oci_runtimes(
    said: dict[str, str], multi_line: bool, joins: bool, code: str, severity: Severity
) -> None:
    facts = replace(
        runtime(versions=said, multi_line=multi_line),
        resources=(EPC, "tdx"),
        cgroups=replace(TREE, capacity={EPC: 1, "tdx": 1}),
        daemon=replace(WELL.daemon, joins=joins),
    )

    assert of(facts, code).severity is worst(findings(facts)) is severity
    assert ("multi-line-off" in {found.code for found in findings(facts)}) == (code == "multi-line-off")


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        ("containerd containerd.io 1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da", (1, 7, 27)),
        ("containerd github.com/containerd/containerd/v2 v2.4.2 193637f7ee8ae5f5aa5248f49e7baa3e6164966e", (2, 4, 2)),
        ("crun version 1.8.1\ncommit: f8a096be060b22ccd3d5f3ebe44108517fbf6c30\nspec: 1.0.0", (1, 8, 1)),
        ("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\ngo: go1.19.8", (1, 1, 5)),
        ("crio version 1.34.0", (1, 34, 0)),
        ("nothing to say", ()),
    ],
)
def test_the_version_is_read_from_what_programs_print(said: str, numbers: tuple[int, ...]) -> None:
    assert version(said) == numbers


def test_where_misc_is_cgroup_v1_its_capacity_is_read_there() -> None:
    assert of(tree(**MISC_V1), "resource").where == "/sys/fs/cgroup/misc/misc.capacity"


@pytest.mark.parametrize(
    ("said", "state", "why"),
    [
        ({"/opt/kata": "kata-runtime : 1.1", "containerd": "1.7.1"}, "unverified", "neither runc nor crun"),
        ({"/opt/runc-old": "runc version 1.1.5"}, "held", "runc 1.1.5 cannot write"),
        ({"runc": "1.5.2", "crun": ""}, "held", "crun does not tell its version"),
        ({"runc": "1.5.2", "/opt/x": ""}, "held", "/opt/x does not tell its version"),
        ({"runc": "1.2.0", "crun": "1.21"}, "on", "runc 1.2.0, crun 1.21"),
    ],
    ids=["other programs", "old by its path", "silent", "silent by its path", "new"],
)
def test_an_operators_word_on_lines_holds_where_no_oci_runtime_is_seen_or_each_is_new(
    said: dict[str, str], state: str, why: str
) -> None:
    row = lines(said)
    assert row.state == state
    assert row.why.startswith(why)


def test_who_is_seen_twice_in_the_same_place_is_told_once_and_who_left_files_alone_is_not() -> None:
    facts = replace(WELL, neighbours=(Neighbour("cri-rm", "/x"), Neighbour("cri-rm", "/x"), Neighbour("cri-rm", "/y")))

    assert [finding.where for finding in findings(facts) if finding.code == "cri-rm"] == ["/x", "/y"]
    assert findings(replace(WELL, neighbours=(Neighbour("cri-rm-state", "/x"),))) == findings(WELL)


def test_our_webhook_is_known_by_the_names_that_are_shipped() -> None:
    shipped = yaml.safe_load_all((ROOT_FOLDER / "deploy/webhook/webhook.yaml").read_text(encoding="utf-8"))

    assert tuple(hook["name"] for one in shipped for hook in one["webhooks"]) == OUR_WEBHOOKS
    assert of(api(webhooks=(Registered("a.b.c", False), *OURS)), "webhook").severity is Severity.OK
    blind = api(webhooks=tuple(replace(one, has_ca=False) for one in OURS))
    for facts in (api(webhooks=None), blind):
        assert not {"webhook", "webhook-absent"} & {one.code for one in findings(facts)}
