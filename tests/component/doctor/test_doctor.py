"""`nodeward doctor` on hosts made of plain folders and on the kernel double."""

import io
import json
import os
import stat
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from nodeward.cli.doctor import command
from nodeward.core.cgroup import Hierarchy
from nodeward.core.finding import Severity
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.keys.rows import KeyRow
from nodeward.features.keys.settings import KeysSettings
from nodeward.features.limits.findings import Layout
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.settings import CgroupsSection, KubeSection, NriSection, Settings
from nodeward.host.hostfs import OsFiles
from nodeward.people.doctor import machine
from nodeward.people.doctor import run as doctor
from nodeward.people.doctor.run import diagnose
from nodeward.people.rows import ComponentRow, NodeView
from nodeward.settings.rows import SettingsRow
from tests.component.daemon.rig import WITHIN_S
from tests.component.doctor.hosts import EPC, MOUNTS, NO_API, around, bad, codes, host


def unpacked(bundle: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(bundle), mode="r:gz") as archive:
        files = {one.name.removeprefix("nodeward-bundle/"): archive.extractfile(one) for one in archive.getmembers()}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_a_host_that_is_well_has_no_bad_finding(tmp_path: Path) -> None:
    found = diagnose(NO_API, around(host(tmp_path)))

    assert bad(found) == []
    assert found.facts.failed == {}
    assert found.facts.cgroups.layout is Layout.V2
    assert codes(found)["resource"] is Severity.OK
    assert codes(found)["version"] is Severity.OK


LINES = replace(
    NO_API,
    limits=LimitsSettings(resources={"sgx.intel.com/epc": EPC, "example.com/keys": "sev_es"}),
    nri=NriSection(multi_line=True),
)
TWO = {"sys/fs/cgroup/misc.capacity": "sgx_epc 4096\nsev_es 5\n"}
HANDLER = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.old.options]\nBinaryName = '/opt/old/bin/runc'\n"
OLD_HANDLERS = {
    "etc/containerd/config.toml": HANDLER,
    "etc/containerd/conf.d/9.toml": HANDLER,
    "etc/crio/crio.conf.d/9.conf": "[crio.runtime.runtimes.old]\nruntime_path = '/opt/old/bin/runc'\n",
}


@pytest.mark.parametrize("path", OLD_HANDLERS)
def test_an_oci_runtime_that_only_the_runtimes_settings_name_is_asked_too(tmp_path: Path, path: str) -> None:
    asked: list[str] = []

    def run(place: str) -> str:
        asked.append(place)
        return "runc version 1.1.5" if place.startswith("/opt") else "runc version 1.5.2"

    imports = {"etc/containerd/config.toml": "imports = ['/etc/containerd/conf.d/*.toml']\n"}
    files = host(tmp_path, **TWO, **imports | {path: OLD_HANDLERS[path], "opt/old/bin/runc": ""})
    found = diagnose(LINES, around(files, run=run))

    assert asked.count("/opt/old/bin/runc") == 1
    assert [(one.what.split()[1], one.where) for one in found.findings if one.code == "multi-line-held"] == [
        ("1.1.5", "/opt/old/bin/runc")
    ]


NRI = "[plugins.'io.containerd.nri.v1.nri']\ndisable = {}\n"


@pytest.mark.parametrize(
    ("first", "later", "off_in"),
    [
        ("", "true", "/etc/containerd/conf.d/9.toml"),
        ("false", "true", "/etc/containerd/conf.d/9.toml"),
        ("true", "false", ""),
        ("true", "", "/etc/containerd/config.toml"),
    ],
)
def test_the_last_of_containerds_files_says_whether_nri_is_off(
    tmp_path: Path, first: str, later: str, off_in: str
) -> None:
    """An empty word: that file says nothing of NRI."""
    said = [NRI.format(word) if word else "" for word in (first, later)]
    files = {
        "etc/containerd/config.toml": f"imports = ['conf.d/*.toml']\n{said[0]}",
        "etc/containerd/conf.d/9.toml": said[1],
    }
    found = diagnose(NO_API, around(host(tmp_path, **files)))

    assert [one.where for one in found.findings if one.code == "nri-off"] == ([off_in] if off_in else [])


UNIFIED = MOUNTS.format(place="/sys/fs/cgroup/unified", kind="cgroup2", options="")
HYBRID = MOUNTS.format(place="/sys/fs/cgroup/misc", kind="cgroup", options="misc") + UNIFIED
PIDS = MOUNTS.format(place="/sys/fs/cgroup/pids", kind="cgroup", options="pids")


def test_misc_mounted_as_cgroup_v1_is_looked_at_there(tmp_path: Path) -> None:
    files = {
        "proc/self/mountinfo": HYBRID,
        "sys/fs/cgroup/cgroup.controllers": None,
        "sys/fs/cgroup/misc.capacity": None,
        "sys/fs/cgroup/misc/misc.capacity": "sgx_epc 4096\n",
        "sys/fs/cgroup/misc/tasks": "",
        "sys/fs/cgroup/pids/cgroup.procs": "1\n",
    }

    found = diagnose(NO_API, around(host(tmp_path, **files)))

    assert bad(found) == []
    assert codes(found)["misc-v1"] is Severity.NOTE
    assert found.facts.cgroups.tree == Hierarchy(1, "/sys/fs/cgroup/misc", "/sys/fs/cgroup/pids")
    assert found.facts.cgroups.capacity == {"sgx_epc": 4096}
    assert "cgroups/misc/misc.capacity" in unpacked(doctor.bundle(NO_API, found, around(host(tmp_path, **files))))


@pytest.mark.parametrize(("knows", "remedy"), [(True, "mount -t cgroup -o misc"), (False, "CONFIG_CGROUP_MISC=y")])
def test_a_hybrid_host_without_misc_is_told_what_helps(tmp_path: Path, knows: bool, remedy: str) -> None:
    files = {
        "proc/self/mountinfo": UNIFIED + PIDS,
        "proc/cgroups": "misc\t0\t1\t1\n" if knows else "pids\t8\t1\t1\n",
        "sys/fs/cgroup/cgroup.controllers": None,
        "sys/fs/cgroup/misc.capacity": None,
        "sys/fs/cgroup/pids/cgroup.procs": "1\n",
    }

    found = diagnose(NO_API, around(host(tmp_path, **files)))

    (finding,) = (one for one in found.findings if one.code == "cgroup-hybrid")
    assert finding.what.endswith("and misc is in none of its trees")
    assert remedy in finding.remedy


READ_ONLY = "30 20 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"sys/fs/cgroup/cgroup.controllers": "cpu memory\n"}, "no-misc-controller", id="kernel-no-misc"),
        pytest.param({"sys/fs/cgroup/misc.capacity": ""}, "no-resource", id="kernel-no-resource"),
        pytest.param({"sys/fs/cgroup/misc.capacity": None}, "capacity-unread", id="no-capacity-file"),
        pytest.param({"sys/fs/cgroup/cgroup.type": "domain\n"}, "cgroup-namespace", id="namespace"),
        pytest.param({"proc/self/mountinfo": HYBRID}, "cgroup-hybrid", id="hybrid"),
        pytest.param({"proc/self/mountinfo": HYBRID.splitlines()[0]}, "cgroup-v1", id="v1"),
        pytest.param({"proc/self/mountinfo": READ_ONLY}, "cgroups-read-only", id="read-only"),
        pytest.param({"var/run/nri/nri.sock": None}, "nri-no-socket", id="no-nri"),
        pytest.param({"etc/containerd/config.toml": NRI.format("true")}, "nri-off", id="containerd"),
        pytest.param({"etc/crio/crio.conf.d/9.conf": "[crio.nri]\nenable_nri = false\n"}, "nri-off", id="crio"),
        pytest.param({"opt/nri/plugins/40-nri-sgx-epc": ""}, "sgx-epc", id="sgx-epc-launched"),
        pytest.param({"proc/77/comm": "nri-sgx-epc\n"}, "sgx-epc", id="sgx-epc-process"),
        pytest.param({"run/cri-resmgr/cri-resmgr.sock": ""}, "cri-rm", id="cri-rm"),
        pytest.param({"proc/self/uid_map": "0 100000 65536\n"}, "user-namespace", id="user-namespace"),
        pytest.param({"proc/self/status": "Uid:\t9\t9\t9\t9\nCapEff:\t0000000000000000\n"}, "not-root", id="not-root"),
        pytest.param({"sys/fs/cgroup/misc.capacity": "rubbish\n"}, "probe-failed", id="garbled-capacity"),
        pytest.param({"var/lib/kubelet/cpu_manager_state": "{"}, "probe-failed", id="garbled-cpu-manager"),
        pytest.param({"proc/self/mountinfo": "x" * (2 << 20)}, "probe-failed", id="huge-mountinfo"),
    ],
)
def test_one_thing_that_is_wrong_is_the_one_bad_finding(
    tmp_path: Path, changes: dict[str, str | None], expected: str
) -> None:
    assert bad(diagnose(NO_API, around(host(tmp_path, **changes)))) == [expected]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"kubelet/cpu_manager_state": '{"policyName":"static"}'}, "cpu-manager", id="kubelet"),
        pytest.param({"proc/77/comm": "nri-resource-po\n"}, "nri-policy", id="nri-plugins"),
        pytest.param({"proc/77/comm": "dracpu\n"}, "dra-driver-cpu", id="dra-driver-cpu"),
        pytest.param({"opt/nri/plugins/90-resource-policy-balloons": ""}, "nri-policy", id="nri-plugins-launched"),
        pytest.param({"run/cri-resmgr/cri-resmgr.sock": ""}, "cri-rm", id="cri-rm"),
    ],
)
def test_another_owner_of_cpus_is_an_error_beside_a_policy_of_ours(
    tmp_path: Path, changes: dict[str, str | None], expected: str
) -> None:
    ours = replace(NO_API, policy=PolicySettings("static"), keys=KeysSettings(kubelet_root="/kubelet/"))
    found = diagnose(ours, around(host(tmp_path, **changes)))

    assert bad(found) == [expected]
    assert codes(found)[expected] is Severity.ERROR


def test_nodewards_own_cri_resmgr_is_no_neighbour(tmp_path: Path) -> None:
    files = {"proc/self/exe": "", "proc/77/comm": "cri-resmgr\n", "run/cri-resmgr/cri-resmgr.sock": ""}
    around_it = around(host(tmp_path, **files))
    assert "cri-rm" in bad(diagnose(NO_API, around_it))

    (tmp_path / "proc/77/exe").hardlink_to(tmp_path / "proc/self/exe")

    assert bad(diagnose(NO_API, around_it)) == []


def test_neighbours_that_do_no_harm_are_notes(tmp_path: Path) -> None:
    files = {
        "var/lib/kubelet/device-plugins/sgx.intel.com-enclave.sock": "",
        "var/lib/kubelet/cpu_manager_state": '{"policyName":"static","defaultCpuSet":"0-3","checksum":1}',
        "etc/containerd/config.toml": "this is = no [toml",
    }
    found = diagnose(NO_API, around(host(tmp_path, **files)))

    assert bad(found) == []
    assert codes(found)["intel-sgx-plugin"] is Severity.NOTE
    assert codes(found)["cpu-manager"] is Severity.NOTE


def test_an_empty_host_is_told_of_and_nothing_crashes(tmp_path: Path) -> None:
    found = diagnose(NO_API, around(OsFiles(str(tmp_path))))

    assert {"cgroup-none", "nri-no-socket"} <= set(bad(found))
    assert set(found.facts.failed) == {"kernel", "process"}


def test_a_probe_that_hangs_is_a_finding_and_the_others_are_there(tmp_path: Path) -> None:
    over = threading.Event()

    def hang(_: str) -> str:
        over.wait(WITHIN_S)
        return ""

    try:
        found = diagnose(NO_API, around(host(tmp_path), run=hang, patience_s=2.0))
    finally:
        over.set()

    assert bad(found) == ["probe-failed"]
    assert found.facts.failed == {"programs": "no answer within 2 s"}
    assert codes(found)["resource"] is Severity.OK


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo runc version 1.2.5\n", "runc version 1.2.5"),
        ("echo $1 $HOME $SECRET\n", "--version"),
        ("echo wrong >&2; exit 3\n", ""),
        ("while :; do echo yyyyyyyyyyyyyyy; done\n", "y" * 15),
        ("echo first; exec /bin/sleep 60\n", "first"),
    ],
    ids=["version", "no-environment", "fails", "endless", "hangs"],
)
def test_a_program_is_asked_within_bounds(
    tmp_path: Path, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hidden")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{text}")
    assert machine.said_by(str(program)) == "", "what is no program says nothing"
    program.chmod(0o755)
    answer = machine.said_by(str(program))

    assert answer.splitlines()[:1] == ([said] if said else [])
    assert len(answer) <= machine.RUN_BYTES


@pytest.mark.parametrize(
    ("parameter", "severity"),
    [
        pytest.param("99\n", Severity.WARNING, id="a-part-is-hidden"),
        pytest.param("0\n", None, id="nothing-is-hidden"),
        pytest.param(None, None, id="an-older-kernel"),
        pytest.param("rubbish", None, id="not-a-number"),
    ],
)
def test_ciphertext_hiding_is_read_from_the_modules_parameter(
    tmp_path: Path, parameter: str | None, severity: Severity | None
) -> None:
    files = host(tmp_path, **{"sys/module/kvm_amd/parameters/ciphertext_hiding_asids": parameter})
    counts = replace(view(), keys=(KeyRow("sev_es", ("a/b",), 509, 0, used=3),))

    found = diagnose(NO_API, around(files, lambda: msgspec.json.encode(counts)))

    assert codes(found).get("keys-hiding") is severity
    assert ("ciphertext-hiding" in found.facts.failed) is (parameter == "rubbish")


@pytest.mark.parametrize("needed", [True, False], ids=["exporter", "enforcing"])
def test_metrics_that_the_daemon_cannot_serve_are_told_with_why(tmp_path: Path, needed: bool) -> None:
    why = "metrics.listen 127.0.0.1:9743: Address already in use; choose another, or stop who holds it"
    said = replace(view(), components=(ComponentRow("metrics", False, why, 1, needed),), settings=SettingsRow())
    found = diagnose(NO_API, around(host(tmp_path), lambda: msgspec.json.encode(said)))

    assert bad(found) == [*(["daemon-not-ready"] if needed else []), "daemon-metrics"]
    assert why in next(one.what for one in found.findings if one.code == "daemon-metrics")


# ---- the bundle ------------------------------------------------------------------------------------------------------

SECRET = "hunter2"


def view() -> NodeView:
    settings = SettingsRow(source="file /etc/nodeward.yaml", faults=(f"kube.token: unknown key '{SECRET}'",))
    waits = ComponentRow("nri", ready=False, detail="waits")
    made = NodeView("enforce", "containerd", "ok", True, {EPC: 1}, {}, ())
    return replace(made, components=(waits,), settings=settings)


def test_a_bundle_holds_what_it_names_and_no_secret(tmp_path: Path) -> None:
    files = host(tmp_path, **{"etc/nodeward.yaml": SECRET, "sys/fs/cgroup/secret": SECRET})
    settings = replace(NO_API, kube=KubeSection(enabled=False, url=f"https://me:{SECRET}@[::1]:6443/x?token={SECRET}"))
    there = replace(around(files, lambda: msgspec.json.encode(view())), environ={"TOKEN": SECRET})
    found = diagnose(settings, there, (f"limits.mode: '{SECRET}' is not allowed",))
    held = unpacked(doctor.bundle(settings, found, there))

    read = (
        "kubepods/cgroup.controllers",
        "kubepods/misc.max",
        "root/cgroup.controllers",
        "root/cgroup.subtree_control",
    )
    cgroups = [f"cgroups/{name}" for name in (*read, "root/misc.capacity", "root/misc.current")]
    assert sorted(held) == [*cgroups, "findings.json", "settings.json", "status.json", "versions.json"]
    assert not any(SECRET.encode() in data for data in held.values())
    assert json.loads(held["settings.json"])["kube"]["url"] == "https://[::1]:6443"
    assert json.loads(held["status.json"])["settings"]["faults"] == ["kube.token"]
    assert json.loads(held["versions.json"])["runc"] == "runc 1.2.5"
    assert {"settings-faults", "daemon-not-ready"} <= {
        one["code"] for one in json.loads(held["findings.json"])["findings"]
    }


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_on_this_machine_ends_with_the_worst_findings_code(tmp_path: Path) -> None:
    place = tmp_path / "bundle.tar.gz"
    words = ["--set", "kube.enabled=false", "--set", f"run_dir={tmp_path}", "-o", "json", "--bundle", str(place)]
    done = CliRunner().invoke(command, words)

    said = json.loads(done.stdout)
    assert done.exit_code == {"ok": 0, "note": 0, "warning": 1, "error": 1}[said["worst"]]
    assert {"api-off", "daemon-away"} <= {one["code"] for one in said["findings"]}
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o600
    again = CliRunner().invoke(command, [*words, "--socket", str(tmp_path / "elsewhere.sock")])
    assert again.exit_code == 2
    assert "cannot be written: File exists" in again.stderr
    away = next(one for one in json.loads(again.stdout)["findings"] if one["code"] == "daemon-away")
    assert away["where"] == str(tmp_path / "elsewhere.sock"), "the one that was asked"


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ("limits: {mode: hunter2}\n", (), "limits.mode: "),
        (None, (), "{path}: cannot be read: No such file or directory"),
        ("limits: [\n", (), "{path}: is no YAML: "),
        ("{}\n", ("--set", "kube.kubeconfg=config"), "kube.kubeconfg: unknown key; did you mean kubeconfig?"),
    ],
    ids=["value", "no-file", "no-yaml", "flag"],
)
def test_settings_with_faults_are_told_as_they_are_and_the_rest_is_looked_at(
    tmp_path: Path, text: str | None, flags: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "bad.yaml"
    if text is not None:
        path.write_text(text)
    bundle = tmp_path / "bundle.tar.gz"
    done = CliRunner().invoke(command, ["--config", str(path), *flags, "--bundle", str(bundle)])

    assert done.exit_code == 1
    fault = said.format(path=path)
    assert f"settings-faults: the settings have faults, so the defaults were used here: {fault}" in done.stdout
    assert "privileges" in done.stdout or "not-root" in done.stdout
    findings = json.loads(unpacked(bundle.read_bytes())["findings.json"])["findings"]
    (kept,) = (one["what"] for one in findings if one["code"] == "settings-faults")
    assert kept.endswith(f"here: {fault.partition(':')[0]}")


def test_a_tree_that_is_mounted_elsewhere_is_found_by_the_settings(tmp_path: Path) -> None:
    elsewhere = MOUNTS.format(place="/cgroup2", kind="cgroup2", options="")
    files = host(tmp_path, **{"proc/self/mountinfo": elsewhere, "cgroup2/cgroup.controllers": "misc"})

    assert bad(diagnose(NO_API, around(files))) == ["cgroup-none"]
    settings = replace(NO_API, cgroups=CgroupsSection(root="/cgroup2"))
    assert bad(diagnose(settings, around(files))) == ["capacity-unread"]


@pytest.mark.parametrize(("root", "mounted"), [("/sys/fs/cgroups", ""), ("/srv", PIDS)])
def test_a_root_at_which_no_cgroup_tree_is_mounted_is_an_error(tmp_path: Path, root: str, mounted: str) -> None:
    """Given settings that name a wrong place, and no cgroup v2 anywhere that would tell where the right one is."""
    files = host(tmp_path, **{"proc/self/mountinfo": mounted, "srv/file": ""})
    found = diagnose(replace(NO_API, cgroups=CgroupsSection(root=root)), around(files))

    assert bad(found) == ["cgroup-none"]
    (finding,) = (one for one in found.findings if one.code == "cgroup-none")
    assert (finding.where, "cgroups.root" in finding.remedy) == (root, True)


def test_a_setting_that_could_be_a_secret_is_judged_before_it_is_in_a_bundle() -> None:
    """The bundle holds all settings: a new one whose name sounds secret must be blanked in `redacted`, or be a path."""
    tree = json.loads(msgspec.json.encode(Settings()))
    names = [name for section in (tree, *(one for one in tree.values() if isinstance(one, dict))) for name in section]

    suspects = [name for name in names if any(word in name for word in ("token", "password", "secret", "key", "auth"))]
    no_secrets = ("keys",)  # keys.kinds: which counters of the kernel hold TEE keys, and how many are kept back
    assert [name for name in suspects if not name.endswith("_file") and name not in no_secrets] == []
