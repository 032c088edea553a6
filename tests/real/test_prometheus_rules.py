"""The shipped rules in Prometheus' own tool: each alert fires for what it is about, and for nothing else here.

Every name of a metric in the rules must be in the catalogue of what the daemon serves.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from nodeward.edges.metrics.exposition import pieces
from nodeward.edges.metrics.families import FAMILIES
from nodeward.edges.metrics.mapping import metrics
from tests.patience import scaled
from tests.peers.find import absent
from tests.unit.edges.metrics.test_mapping import RICH

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
RULES = FOLDER / "rules.yaml"
AT = {"node": "n1", "instance": "n1:9743", "job": "nodeward"}
APP = {**AT, "level": "container", "namespace": "ns", "pod": "web", "container": "app"}
POD = {**AT, "level": "pod", "namespace": "ns", "pod": "web", "container": ""}
EPC = {"resource": "sgx_epc"}
KEYS = {"resource": "tdx"}
KEY = {**AT, "key": "tdx"}
ROOT = {**AT, "level": "node"}
DOOR = {**AT, "listen": "/run/nodeward/cri.sock"}
VM = {**AT, "namespace": "ns", "pod": "web", "sandbox": "5ab1e"}
CLASS = {**AT, "class": "kata-qemu"}
INSTANCE = {"node": "n1", "instance": "n1:9743"}
UP = ("up", AT, "1x120")


@dataclass(frozen=True)
class Case:
    """What makes an alert fire at the 20th minute, what looks like it and does not, and the labels it then has.

    Its name is the alert's, and what is said after a comma tells several cases of one apart."""

    firing: tuple[tuple[str, dict[str, str], str], ...]
    quiet: tuple[tuple[str, dict[str, str], str], ...]
    labels: dict[str, str] = field(default_factory=dict)


def _state(state: str, values: str = "1x120") -> tuple[str, dict[str, str], str]:
    return ("nodeward_enforcement_state", {**APP, "state": state}, values)


def _fit(word: str, values: str = "1x120") -> tuple[str, dict[str, str], str]:
    return ("nodeward_sandboxes_fit", {**VM, "fit": word}, values)


def _condition(code: str) -> Case:
    labels = {**AT, "code": code, "severity": "warning"}
    return Case((("nodeward_condition", labels, "1x120"),), (("nodeward_condition", labels, "0x120"),), labels)


CASES = {
    "NodewardEpcNearLimit": Case(
        (("nodeward_misc_usage", {**APP, **EPC}, "91x120"), ("nodeward_misc_limit", {**APP, **EPC}, "100x120")),
        (("nodeward_misc_usage", {**APP, **EPC}, "0x120"), ("nodeward_misc_limit", {**APP, **EPC}, "0x120")),
        {**APP, **EPC},
    ),
    "NodewardChargesRefused": Case(
        (("nodeward_misc_refusals_total", {**POD, **EPC, "scope": "subtree"}, "0+1x120"),),
        (("nodeward_misc_refusals_total", {**POD, **EPC, "scope": "subtree"}, "7x120"),),
        {**POD, **EPC, "scope": "subtree"},
    ),
    "NodewardNodeSaturated": Case(
        (("nodeward_misc_usage", {**ROOT, **EPC}, "99x120"), ("nodeward_misc_capacity", {**AT, **EPC}, "100x120")),
        (("nodeward_misc_usage", {**POD, **EPC}, "99x120"), ("nodeward_misc_capacity", {**AT, **EPC}, "100x120")),
        {"node": "n1", "instance": "n1:9743", **EPC},
    ),
    "NodewardKeysNearlyGone": Case(
        (("nodeward_misc_usage", {**ROOT, **KEYS}, "14x120"), ("nodeward_misc_capacity", {**AT, **KEYS}, "15x120")),
        (("nodeward_misc_usage", {**ROOT, **KEYS}, "13x120"), ("nodeward_misc_capacity", {**AT, **KEYS}, "15x120")),
        {"node": "n1", "instance": "n1:9743", **KEYS},
    ),
    "NodewardCpusNotHeld": Case(
        (("nodeward_cpus_containers_state", {**AT, "state": "failed"}, "1x120"),),
        (("nodeward_cpus_containers_state", {**AT, "state": "held"}, "9x120"),),
        INSTANCE,
    ),
    "NodewardCpusLateStarts": Case(
        (("nodeward_cpus_late_starts_total", AT, "0+1x120"),), (("nodeward_cpus_late_starts_total", AT, "7x120"),), AT
    ),
    "NodewardCpusSettingsRefused": Case(
        (("nodeward_cpus_settings_refused", AT, "1x120"),), (("nodeward_cpus_settings_refused", AT, "0x120"),), AT
    ),
    "NodewardSandboxWillBeKilled": Case((_fit("will be killed"),), (_fit("fits"),), {**VM, "fit": "will be killed"}),
    "NodewardSandboxTight": Case((_fit("tight"),), (_fit("tight", "1x10 _x100"),), {**VM, "fit": "tight"}),
    "NodewardSandboxOutside": Case((_fit("outside"),), (_fit("unknown"),), {**VM, "fit": "outside"}),
    "NodewardSandboxKilled": Case(
        (("nodeward_sandboxes_oom_kills_total", VM, "0x15 1x105"),),
        (("nodeward_sandboxes_oom_kills_total", VM, "1x120"),),
        VM,
    ),
    "NodewardSandboxDrift": Case(
        (
            ("nodeward_sandboxes_drifts", {**VM, "code": "outside-pod"}, "1x120"),
            ("nodeward_sandboxes_drifts", {**VM, "code": "elsewhere"}, "2x120"),
        ),
        (("nodeward_sandboxes_drifts", {**VM, "code": "other-mode"}, "1x120"),),
        VM,
    ),
    "NodewardSandboxAnnotated": Case(
        (("nodeward_sandboxes_sandbox_info", {**VM, "only": "false", "only_from": "annotation"}, "1x120"),),
        (
            ("nodeward_sandboxes_sandbox_info", {**VM, "only": "true", "only_from": "annotation"}, "1x120"),
            ("nodeward_sandboxes_sandbox_info", {**VM, "only": "false", "only_from": "default"}, "1x120"),
        ),
        {**VM, "only": "false", "only_from": "annotation"},
    ),
    "NodewardSandboxOverheadTooSmall": Case(
        (
            ("nodeward_sandboxes_class_recommended_memory_bytes", CLASS, "200x120"),
            ("nodeward_sandboxes_class_declared_memory_bytes", CLASS, "160x120"),
        ),
        (
            ("nodeward_sandboxes_class_recommended_memory_bytes", CLASS, "160x120"),
            ("nodeward_sandboxes_class_declared_memory_bytes", CLASS, "160x120"),
        ),
        CLASS,
    ),
    "NodewardSandboxUnaccounted": Case(
        (("nodeward_sandboxes_unaccounted_memory_bytes", AT, "4096x120"),),
        (("nodeward_sandboxes_unaccounted_memory_bytes", AT, "0x120"),),
        AT,
    ),
    "NodewardSandboxHandlerUnread": Case(
        (("nodeward_sandboxes_handler_unread", {**AT, "handler": "kata"}, "1x120"),),
        (("nodeward_sandboxes_handler_unread", {**AT, "handler": "kata"}, "0x120"),),
        {**AT, "handler": "kata"},
    ),
    "NodewardSandboxLimitMissed": Case(
        (("nodeward_sandboxes_limit_misses", AT, "2x120"),), (("nodeward_sandboxes_limit_misses", AT, "0x120"),), AT
    ),
    "NodewardDrift": Case((_state("drift"),), (_state("enforced"),), {**APP, "state": "drift"}),
    "NodewardNotEnforced": Case((_state("stale"),), (_state("unmanaged"),), {**APP, "state": "stale"}),
    "NodewardNotEnforced, pending": Case(
        (_state("pending"),), (_state("pending", "1x8 _x100"),), {**APP, "state": "pending"}
    ),
    "NodewardUnsupported": Case((_state("unsupported"),), (_state("enforced"),), {"node": "n1", "instance": "n1:9743"}),
    "NodewardOrphanedCharge": Case(
        (("nodeward_misc_orphaned", {**AT, **EPC}, "4096x120"),),
        (("nodeward_misc_orphaned", {**AT, **EPC}, "0x12 4096x100"),),
        {**AT, **EPC},
    ),
    "NodewardUnderflow": Case(
        (("nodeward_misc_underflow", {**APP, **EPC}, "1x120"),),
        (("nodeward_misc_usage", {**APP, **EPC}, "1x120"),),
        {**APP, **EPC},
    ),
    "NodewardKeysSoldOut": Case(
        (("nodeward_keys_free", KEY, "0x120"),), (("nodeward_keys_free", KEY, "0x17 1x100"),), KEY
    ),
    "NodewardKeysOversold": Case(
        (("nodeward_keys_entitled", KEY, "7x120"), ("nodeward_keys_capacity", KEY, "4x120")),
        (("nodeward_keys_entitled", KEY, "4x120"), ("nodeward_keys_capacity", KEY, "4x120")),
        KEY,
    ),
    "NodewardKeysForeign": Case(
        (("nodeward_keys_foreign", KEY, "2x120"),), (("nodeward_keys_foreign", KEY, "2x10 0x2 2x4 0x100"),), KEY
    ),
    "NodewardKeysOrphaned": Case(
        (("nodeward_keys_elsewhere", {**KEY, "class": "orphan"}, "1x120"),),
        (
            ("nodeward_keys_elsewhere", {**KEY, "class": "orphan"}, "0x8 1x100"),
            ("nodeward_keys_elsewhere", {**KEY, "class": "machine"}, "1x120"),
        ),
        {**KEY, "class": "orphan"},
    ),
    "NodewardKeysWrapped": Case(
        (("nodeward_keys_wrapped", KEY, "1x120"), ("nodeward_keys_blind", KEY, "1x120")),
        (("nodeward_keys_wrapped", KEY, "0x120"), ("nodeward_keys_blind", KEY, "0x120")),
        KEY,
    ),
    "NodewardKeysBlind": Case(
        (("nodeward_keys_blind", KEY, "1x120"), ("nodeward_keys_wrapped", KEY, "0x120")),
        (("nodeward_keys_blind", KEY, "0x120"), ("nodeward_keys_wrapped", KEY, "0x120")),
        KEY,
    ),
    "NodewardKeysStale": Case(
        (("nodeward_keys_sample_age_seconds", KEY, "0+60x120"),),
        (("nodeward_keys_sample_age_seconds", KEY, "2x120"),),
        KEY,
    ),
    "NodewardKeysRefused": Case(
        (("nodeward_ledger_refusals_total", {**KEY, "reason": "foreign"}, "0+1x120"),),
        (("nodeward_ledger_refusals_total", {**KEY, "reason": "foreign"}, "5x120"),),
        {**KEY, "reason": "foreign"},
    ),
    "NodewardKeysRefused, once": Case(
        (("nodeward_ledger_refusals_total", {**KEY, "reason": "foreign"}, "0x15 1x105"),),
        (("nodeward_ledger_refusals_total", {**KEY, "reason": "foreign"}, "0x120"),),
        {**KEY, "reason": "foreign"},
    ),
    "NodewardKeysWithheld": Case(
        (("nodeward_ledger_withheld", {**KEY, "reason": "quotes"}, "1x120"),),
        (("nodeward_ledger_withheld", {**KEY, "reason": "quotes"}, "1x10 _x7 1x3 _x100"),),
        {**KEY, "reason": "quotes"},
    ),
    "NodewardKeysWithheldLate": Case(
        (
            ("nodeward_ledger_withholding_duration_seconds_count", KEY, "0+1x120"),
            ("nodeward_ledger_withholding_duration_seconds_bucket", {**KEY, "le": "5"}, "0x120"),
        ),
        (
            ("nodeward_ledger_withholding_duration_seconds_count", KEY, "0+1x120"),
            ("nodeward_ledger_withholding_duration_seconds_bucket", {**KEY, "le": "5"}, "0+1x120"),
        ),
        KEY,
    ),
    "NodewardKeysWithheldLate, as Prometheus 3 spells the bound": Case(
        (
            ("nodeward_ledger_withholding_duration_seconds_count", KEY, "0+1x120"),
            ("nodeward_ledger_withholding_duration_seconds_bucket", {**KEY, "le": "5.0"}, "0x120"),
        ),
        (
            ("nodeward_ledger_withholding_duration_seconds_count", KEY, "0+1x120"),
            ("nodeward_ledger_withholding_duration_seconds_bucket", {**KEY, "le": "5.0"}, "0+1x120"),
            ("nodeward_ledger_withholding_duration_seconds_bucket", {**KEY, "le": "50"}, "0+1x120"),
        ),
        KEY,
    ),
    "NodewardKeysWithheldLate, in the middle of an update to Prometheus 3": Case(
        (
            ("nodeward_ledger_withholding_duration_seconds_count", KEY, "0+1x120"),
            ("nodeward_ledger_withholding_duration_seconds_bucket", {**KEY, "le": "5"}, "0x12 _x108"),
            ("nodeward_ledger_withholding_duration_seconds_bucket", {**KEY, "le": "5.0"}, "_x12 0x108"),
        ),
        (
            ("nodeward_ledger_withholding_duration_seconds_count", KEY, "0+1x120"),
            ("nodeward_ledger_withholding_duration_seconds_bucket", {**KEY, "le": "5"}, "0+1x12 _x108"),
            ("nodeward_ledger_withholding_duration_seconds_bucket", {**KEY, "le": "5.0"}, "_x12 13+1x108"),
        ),
        KEY,
    ),
    "NodewardKeysNotServed": Case(
        (("nodeward_ledger_plugin_state", {**KEY, "state": "serving"}, "0x120"),),
        (
            ("nodeward_ledger_plugin_state", {**KEY, "state": "serving"}, "0x8 1x100"),
            ("nodeward_ledger_plugin_state", {**KEY, "state": "rival"}, "0x120"),
        ),
        {**KEY, "state": "serving"},
    ),
    "NodewardKeysKubeletRestarts": Case(
        (("nodeward_ledger_kubelet_restarts_total", KEY, "0x5 1x5 2x5 3x100"),),
        (("nodeward_ledger_kubelet_restarts_total", KEY, "3x5 4x5 5x100"),),
        KEY,
    ),
    "NodewardKeysJournal": Case(
        (("nodeward_ledger_journal_fault", KEY, "1x120"),), (("nodeward_ledger_journal_fault", KEY, "0x120"),), KEY
    ),
    "NodewardKeysJournalLost": Case(
        (("nodeward_ledger_journal_lost", KEY, "1x120"),), (("nodeward_ledger_journal_lost", KEY, "0x120"),), KEY
    ),
    "NodewardKeysQuotes": Case(
        (("nodeward_ledger_quotes_answer", KEY, "0x120"),), (("nodeward_ledger_quotes_answer", KEY, "1x120"),), KEY
    ),
    "NodewardKeysNfdBehind": Case(
        (
            ("nodeward_ledger_nfd_keys", {**KEY, "kind": "wanted"}, "9x120"),
            ("nodeward_ledger_nfd_keys", {**KEY, "kind": "ours"}, "12x120"),
        ),
        (
            ("nodeward_ledger_nfd_keys", {**KEY, "kind": "wanted"}, "9x120"),
            ("nodeward_ledger_nfd_keys", {**KEY, "kind": "ours"}, "9x120"),
        ),
        KEY,
    ),
    "NodewardRelayAbsent": Case(
        (("nodeward_relay_up", AT, "1x10 0x110"),), (("nodeward_relay_up", AT, "1x17 0x1 1x100"),), AT
    ),
    "NodewardRelayAbsent, for as long as it is missing": Case(
        (("nodeward_relay_up", AT, "0x120"), ("nodeward_build_info", {**AT, "version": "0.1"}, "1x120")),
        (("nodeward_relay_up", AT, "1x3 _x100"), ("nodeward_build_info", {**AT, "version": "0.1"}, "1x120")),
        AT,
    ),
    "NodewardRelayAbsent, and the daemon has begun anew since": Case(
        (
            ("nodeward_relay_up", AT, "1x12 stale"),
            ("nodeward_relay_clients", DOOR, "1x12 stale"),
            ("nodeward_relay_clients", {**AT, "listen": "/run/nodeward/images.sock"}, "0x12 stale"),
            ("nodeward_build_info", {**AT, "version": "0.1"}, "1x12 stale 1x110"),
        ),
        (
            ("nodeward_relay_up", AT, "1x12 stale"),
            ("nodeward_relay_clients", DOOR, "1x10 0x1 stale"),
            ("nodeward_build_info", {**AT, "version": "0.1"}, "1x12 stale 1x110"),
        ),
        AT,
    ),
    "NodewardRelayAbsent, and so is the daemon": Case(
        (("nodeward_relay_up", AT, "1x12 0x110"), ("nodeward_relay_clients", DOOR, "1x12 stale")),
        (
            ("nodeward_relay_up", AT, "1x12 stale"),
            ("nodeward_relay_clients", DOOR, "1x12 stale"),
            ("nodeward_build_info", {**AT, "version": "0.1"}, "1x12 stale"),
        ),
        AT,
    ),
    "NodewardRelayRuntimeAbsent": Case(
        (("nodeward_relay_runtime_up", DOOR, "0x120"),), (("nodeward_relay_runtime_up", DOOR, "0x18 1x100"),), DOOR
    ),
    "NodewardRelayUndecided": Case(
        (("nodeward_relay_undecided_total", DOOR, "0+1x120"),),
        (("nodeward_relay_undecided_total", DOOR, "4x120"),),
        DOOR,
    ),
    "NodewardRelaySlow": Case(
        (
            ("nodeward_relay_added_duration_seconds_bucket", {**AT, "how": "held", "le": "0.134218"}, "0+90x120"),
            ("nodeward_relay_added_duration_seconds_bucket", {**AT, "how": "held", "le": "0.536871"}, "0+100x120"),
            ("nodeward_relay_added_duration_seconds_bucket", {**AT, "how": "held", "le": "+Inf"}, "0+100x120"),
        ),
        (
            ("nodeward_relay_added_duration_seconds_bucket", {**AT, "how": "held", "le": "0.134218"}, "0+100x120"),
            ("nodeward_relay_added_duration_seconds_bucket", {**AT, "how": "held", "le": "+Inf"}, "0+100x120"),
        ),
        {**INSTANCE, "how": "held"},
    ),
    "NodewardRelayFaults": Case(
        (("nodeward_relay_faults_total", DOOR, "0x15 1x120"),), (("nodeward_relay_faults_total", DOOR, "3x120"),), DOOR
    ),
    "NodewardRelayDumpLoses": Case(
        (("nodeward_relay_dump_lost_total", AT, "0+9x120"),), (("nodeward_relay_dump_lost_total", AT, "9x120"),), AT
    ),
    "NodewardCannotRead": _condition("cannot-read"),
    "NodewardUnwritten": _condition("unwritten"),
    "NodewardContainersRefused": _condition("refused"),
    "NodewardGateShut": _condition("gate-shut"),
    "NodewardCpusMachine": _condition("cpus-machine"),
    "NodewardAbsent": Case((("up", AT, "0x120"),), (UP,), AT),
    "NodewardNotSynchronised": Case(
        (("nodeward_component_ready", {**AT, "component": "nri"}, "0x120"),),
        (("nodeward_component_ready", {**AT, "component": "nri"}, "1x16 0x100"),),
        {**AT, "component": "nri"},
    ),
    "NodewardSettingsRefused": Case(
        (("nodeward_settings_faults", AT, "2x120"),), (("nodeward_settings_faults", AT, "0x120"),), AT
    ),
    "NodewardFileCallHangs": Case(
        (("nodeward_lane_hung_threads", {**AT, "lane": "cgroup"}, "1x120"),),
        (("nodeward_lane_hung_threads", {**AT, "lane": "cgroup"}, "0x120"),),
        {**AT, "lane": "cgroup"},
    ),
    "NodewardFaults": Case(
        (("nodeward_domain_faults_total", AT, "0x15 1x120"),), (("nodeward_domain_faults_total", AT, "3x120"),), AT
    ),
    "NodewardWatchSilent": Case(
        (("nodeward_watch_age_seconds", AT, "700x120"),), (("nodeward_watch_age_seconds", AT, "250x120"),), AT
    ),
    "NodewardEventsRefused": Case(
        (("nodeward_kube_events_total", {**AT, "outcome": "failed"}, "0+1x120"),),
        (("nodeward_kube_events_total", {**AT, "outcome": "sent"}, "0+1x120"),),
        {**AT, "outcome": "failed"},
    ),
    "NodewardEventsRefused, in one batch": Case(
        (("nodeward_kube_events_total", {**AT, "outcome": "dropped"}, "0x15 9x120"),),
        (("nodeward_kube_events_total", {**AT, "outcome": "dropped"}, "9x120"),),
        {**AT, "outcome": "dropped"},
    ),
}


def promtool() -> str:
    """The tool, or the test ends."""
    found = shutil.which("promtool")
    if found is None:
        absent("promtool is not installed: run scripts/install-tools")
    return found


def run(*arguments: str) -> None:
    """Runs the tool, which must find nothing."""
    done = subprocess.run([promtool(), *arguments], capture_output=True, text=True, timeout=scaled(60), check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def alerts() -> dict[str, dict[str, dict[str, str]]]:
    """The shipped alerts by name."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def series(found: tuple[tuple[str, dict[str, str], str], ...]) -> list[dict[str, str]]:
    """As promtool writes them. A case that is not about `up` has it."""
    whole = found if any(name == "up" for name, _, _ in found) else (*found, UP)
    shown = [(name, ",".join(f'{key}="{value}"' for key, value in labels.items()), run) for name, labels, run in whole]
    return [{"series": f"{name}{{{labels}}}", "values": values} for name, labels, values in shown]


def test_every_alert_has_a_case() -> None:
    assert sorted({name.partition(",")[0] for name in CASES}) == sorted(alerts())


@pytest.mark.parametrize("file", ["rules.yaml", "dashboard.json"])
def test_only_metrics_are_named_that_the_daemon_serves(file: str) -> None:
    named = set(re.findall(r"(?<![:\w])(nodeward_\w+)(?!\w)(?!:)", (FOLDER / file).read_text()))

    parts = [f"{one.name}_{part}" for one in FAMILIES if one.kind == "histogram" for part in ("bucket", "count", "sum")]
    assert named - {family.name for family in FAMILIES} - set(parts) == set()
    assert len(named) > 10


def test_promtool_finds_no_fault_in_rules_and_scrape_configuration() -> None:
    run("check", "rules", str(RULES))
    run("check", "config", str(FOLDER / "scrape.yaml"))


def test_promtool_finds_no_fault_in_the_metrics_but_a_name_that_others_proposed() -> None:
    text = b"".join(pieces(metrics(RICH)))
    done = subprocess.run(
        [promtool(), "check", "metrics"], input=text, capture_output=True, timeout=scaled(60), check=False
    )

    said = (done.stdout + done.stderr).decode().splitlines()
    assert said == ['container_misc_events counter metrics should have "_total" suffix']


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_for_what_it_is_about_and_for_nothing_else(name: str, tmp_path: Path) -> None:
    """Given series of two hours, then at the 20th minute exactly this alert fires, or none where all is well."""
    alert = name.partition(",")[0]
    case, rule = CASES[name], alerts()[alert]
    labels = {key: value for key, value in {**case.labels, **rule["labels"]}.items() if value}
    fired = [{"exp_labels": labels, "exp_annotations": rule["annotations"]}]
    silent = [{"eval_time": "20m", "alertname": other, "exp_alerts": []} for other in alerts() if other != alert]
    story = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series(case.firing),
                "alert_rule_test": [{"eval_time": "20m", "alertname": alert, "exp_alerts": fired}, *silent],
            },
            {
                "interval": "1m",
                "input_series": series(case.quiet),
                "alert_rule_test": [{"eval_time": "20m", "alertname": alert, "exp_alerts": []}, *silent],
            },
        ],
    }
    (tmp_path / "story.yaml").write_text(yaml.safe_dump(story))

    run("test", "rules", str(tmp_path / "story.yaml"))


def test_the_recorded_ratios(tmp_path: Path) -> None:
    """Given a node with a container, then use, peak, and what is declared stand against limit and capacity."""
    held = (
        ("nodeward_misc_usage", {**APP, **EPC}, "25x30"),
        ("nodeward_misc_limit", {**APP, **EPC}, "100x30"),
        ("nodeward_misc_peak", {**APP, **EPC}, "40x30"),
        ("nodeward_misc_usage", {**ROOT, **EPC}, "30x30"),
        ("nodeward_misc_capacity", {**AT, **EPC}, "60x30"),
        ("nodeward_misc_declared", {**POD, **EPC}, "90x30"),
        ("nodeward_misc_declared", {**APP, **EPC}, "90x30"),
        ("nodeward_keys_capacity", KEY, "16x30"),
        ("nodeward_keys_free", KEY, "4x30"),
        ("nodeward_sandboxes_headroom_bytes", VM, "-50x30"),
        ("nodeward_sandboxes_limit_bytes", VM, "200x30"),
        ("nodeward_sandboxes_cpu_seconds_total", VM, "0+90x30"),
        ("nodeward_sandboxes_vcpu_seconds_total", VM, "0+60x30"),
        ("nodeward_sandboxes_class_overhead_memory_bytes", {**CLASS, "percentile": "50"}, "100x30"),
        ("nodeward_sandboxes_class_overhead_memory_bytes", {**CLASS, "percentile": "99"}, "240x30"),
        ("nodeward_sandboxes_class_declared_memory_bytes", CLASS, "160x30"),
        ("nodeward_sandboxes_overhead_memory_bytes", VM, "170x30"),
        ("nodeward_sandboxes_overhead_memory_bytes", {**VM, "sandbox": "other"}, "30x30"),
    )
    records = {
        "container:nodeward_misc_usage:ratio": 0.25,
        "container:nodeward_misc_peak:ratio": 0.4,
        "node:nodeward_misc_usage:ratio": 0.5,
        "node:nodeward_misc_declared:ratio": 1.5,
        "node:nodeward_keys_taken:ratio": 0.75,
        "sandbox:nodeward_sandboxes_headroom:ratio": -0.25,
        "sandbox:nodeward_sandboxes_overhead_cpu:rate5m": 0.5,
        "class:nodeward_sandboxes_overhead_memory:ratio": 1.5,
        "node:nodeward_sandboxes_overhead_memory:sum": 200,
    }
    cases = [
        {"expr": f"sum({name})", "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": value}]}
        for name, value in records.items()
    ]
    story = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series(held), "promql_expr_test": cases}],
    }
    (tmp_path / "story.yaml").write_text(yaml.safe_dump(story))

    run("test", "rules", str(tmp_path / "story.yaml"))
