"""The shipped rules in Prometheus' own tool: each alert fires for what it is about, and for nothing else here. So do
the webhook's, which are about the API server's counters.

Every name of a metric in the rules must be in the catalogue of what the daemon serves.
"""

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from nodeward.people.metrics.exposition import pieces
from nodeward.people.metrics.mapping import FAMILIES, metrics
from tests.patience import scaled
from tests.peers.find import absent
from tests.unit.people.metrics.build import RICH

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
RULES = FOLDER / "rules.yaml"
Series = tuple[str, dict[str, str], str]
"""Name, labels, and values as promtool writes them."""

AT = {"node": "n1", "instance": "n1:9743", "job": "nodeward"}
WEB = {**AT, "namespace": "ns", "pod": "web"}
LABELS: Mapping[str, dict[str, str]] = {
    "at": AT,
    "instance": {"node": "n1", "instance": "n1:9743"},
    "app": {**WEB, "level": "container", "container": "app"},
    "pod": {**WEB, "level": "pod", "container": ""},
    "root": {**AT, "level": "node"},
    "key": {**AT, "key": "tdx"},
    "door": {**AT, "listen": "/run/nodeward/cri.sock"},
    "vm": {**WEB, "sandbox": "5ab1e"},
    "class": {**AT, "class": "kata-qemu"},
    "epc": {"resource": "sgx_epc"},
    "tdx": {"resource": "tdx"},
}


def labels_of(words: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words.split(", "):
        name, is_given, value = word.partition("=")
        found |= {name: value} if is_given else LABELS[word]
    return found


def series_of(text: str) -> Series:
    name, words, values = re.fullmatch(r"([:\w]+)\{(.+)\} (.+)", text).groups()  # type: ignore[union-attr]
    return name[1:] if name[0] == ":" else f"nodeward_{name}", labels_of(words), values


class Case(NamedTuple):
    firing: list[Series]
    quiet: list[Series]
    labels: dict[str, str]


def case_of(labels: str, told: str) -> Case:
    firing, quiet = (part.split("; ") for part in told.split(" | "))
    fires = [series_of(one) for one in firing]
    silent = [series_of(one) if "{" in one else (*fires[at][:2], one) for at, one in enumerate(quiet)]
    return Case(fires, silent, labels_of(labels) if labels else fires[0][1])


def told() -> dict[str, Case]:
    lines = [line for line in Path(__file__).with_name("alerts.txt").read_text().splitlines() if line[0] != "#"]
    found = re.findall(r"^(.+?)(?: \{([^}]+)\})?:((?: |\n    ).+(?:\n    .+)*)", "\n".join(lines), re.MULTILINE)
    return {f"Nodeward{name}": case_of(labels, " ".join(text.split())) for name, labels, text in found}


CASES = told()


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        absent("promtool is not installed: run scripts/install-tools")
    return found


def run(*arguments: str) -> None:
    done = subprocess.run([promtool(), *arguments], capture_output=True, text=True, timeout=scaled(60), check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def shipped(file: Path) -> list[dict[str, dict[str, str]]]:
    return [one for group in yaml.safe_load(file.read_text())["groups"] for one in group["rules"] if "alert" in one]


@functools.cache
def alerts() -> dict[str, dict[str, dict[str, str]]]:
    return {str(rule["alert"]): rule for rule in shipped(RULES)}


def series(found: Sequence[Series], at: Mapping[str, str] = AT) -> list[dict[str, str]]:
    """As promtool writes them. A case that is not about `up` has it."""
    whole = found if any(name == "up" for name, _, _ in found) else (*found, ("up", at, "1x120"))
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


def play(folder: Path, rules: Path, interval: str, *tests: Mapping[str, object]) -> None:
    told = [{"interval": interval, **one} for one in tests]
    story = {"rule_files": [str(rules)], "evaluation_interval": interval, "tests": told}
    (folder / "story.yaml").write_text(json.dumps(story))
    run("test", "rules", str(folder / "story.yaml"))


def expected(alert: str, minute: int, *fired: Mapping[str, object]) -> dict[str, object]:
    return {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": list(fired)}


def test_each_alert_fires_for_what_it_is_about_and_for_nothing_else(tmp_path: Path) -> None:
    """All cases at once, each on a node of its own: first as they fire, then as they are quiet. What fires on a node
    whose case is not about it is not expected there."""
    fired: dict[str, list[dict[str, object]]] = {alert: [] for alert in alerts()}
    firing, quiet = list[dict[str, str]](), list[dict[str, str]]()
    for number, (name, case) in enumerate(CASES.items(), 1):
        rule = alerts()[name.partition(",")[0]]
        labels = {key: value for key, value in on({**case.labels, **rule["labels"]}, number).items() if value}
        fired[name.partition(",")[0]].append({"exp_labels": labels, "exp_annotations": rule["annotations"]})
        firing += series([(name, on(labels, number), values) for name, labels, values in case.firing], on(AT, number))
        quiet += series([(name, on(labels, number), values) for name, labels, values in case.quiet], on(AT, number))
    told = [expected(alert, 20, *ones) for alert, ones in fired.items()]
    silent = [expected(alert, 20) for alert in alerts()]
    rows = [
        {"name": "all fire", "input_series": firing, "alert_rule_test": told},
        {"name": "all are quiet", "input_series": quiet, "alert_rule_test": silent},
    ]
    play(tmp_path, RULES, "1m", *rows)


def on(labels: Mapping[str, str], number: int) -> dict[str, str]:
    """The labels as they are on another node."""
    elsewhere = {"node": f"n{number}", "instance": f"n{number}:9743"}
    return {key: elsewhere.get(key, value) for key, value in labels.items()}


HELD = """misc_usage{app, epc} 25x30; misc_limit{app, epc} 100x30; misc_peak{app, epc} 40x30;
misc_usage{root, epc} 30x30; misc_capacity{at, epc} 60x30; misc_declared{pod, epc} 90x30; misc_declared{app, epc} 90x30;
keys_capacity{key} 16x30; keys_free{key} 4x30; sandboxes_headroom_bytes{vm} -50x30; sandboxes_limit_bytes{vm} 200x30;
sandboxes_cpu_seconds_total{vm} 0+90x30; sandboxes_vcpu_seconds_total{vm} 0+60x30;
sandboxes_class_overhead_memory_bytes{class, percentile=50} 100x30;
sandboxes_class_overhead_memory_bytes{class, percentile=99} 240x30;
sandboxes_class_declared_memory_bytes{class} 160x30; sandboxes_overhead_memory_bytes{vm} 170x30;
sandboxes_overhead_memory_bytes{vm, sandbox=other} 30x30"""
"""A node with a container, keys and a sandbox."""

RECORDS = {
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


def test_the_recorded_ratios(tmp_path: Path) -> None:
    held = [series_of(one) for one in re.split(r";\s", HELD)]
    samples = [
        {"expr": f"sum({name})", "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": value}]}
        for name, value in RECORDS.items()
    ]
    play(tmp_path, RULES, "1m", {"input_series": series(held), "promql_expr_test": samples})


SERVER = 'job="apiserver",instance="a:6443"'
REJECTED, PASSED_BY = (f"apiserver_admission_webhook_{what}_count" for what in ("rejection", "fail_open"))
OTHERS = {
    f'{REJECTED}{{{SERVER},name="create.nodeward.io",error_type="no_error"}}': "0+1x90",
    f'{REJECTED}{{{SERVER},name="x.example.com",error_type="calling_webhook_error"}}': "_x10 7x80",
    f'{PASSED_BY}{{{SERVER},name="x.example.com"}}': "_x10 7x80",
}
"""The webhook's own refusals, and other people's webhooks."""

AWAY: Mapping[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "away from the 5th to the 15th minute": ("0x10 1+1x20 21x60", (10,), (4, 40)),
    "the first outage, which begins with a burst and ends": ("_x10 7x80", (8, 9), (4, 6, 12, 40)),
    "the first outage, which lasts": ("_x10 7+1x20 27x60", (8, 10, 12, 15), (4, 6, 40)),
    "a Prometheus that begins after an outage": ("_x10 7x80", (), (8, 9, 12, 40)),
    "all is well": ("_x90", (), (8, 40)),
}
"""What both counters show, a sample each half minute, and the minutes at which both alerts fire, and do not. Such a
counter is not there before it first counts."""


@pytest.mark.parametrize("name", AWAY)
def test_the_webhooks_alerts_fire_while_it_is_away_and_at_no_other_time(name: str, tmp_path: Path) -> None:
    """The families and labels are those that a real kube-apiserver showed in test_webhook.py."""
    rules = FOLDER.parent / "webhook" / "alerts.yaml"
    counted, fires, quiet = AWAY[name]
    ours = {
        f'{REJECTED}{{{SERVER},name="create.nodeward.io",error_type="calling_webhook_error"}}': counted,
        f'{PASSED_BY}{{{SERVER},name="update.nodeward.io"}}': counted,
        f"up{{{SERVER}}}": "_x10 1x80" if "begins after" in name else "1x90",
    }
    rows = [
        expected(
            str(rule["alert"]),
            minute,
            *[{"exp_labels": {**rule["labels"], "name": of}, "exp_annotations": rule["annotations"]}]
            * (minute in fires),
        )
        for minute in sorted((*fires, *quiet))
        for rule, of in zip(shipped(rules), ("create.nodeward.io", "update.nodeward.io"), strict=True)
    ]
    told = [{"series": one, "values": values} for one, values in (OTHERS | ours).items()]
    play(tmp_path, rules, "30s", {"input_series": told, "alert_rule_test": rows})
