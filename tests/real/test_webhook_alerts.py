"""The webhook's alerting rules in Prometheus' own tool: they fire while the API server cannot reach the webhook.

The families and labels are those that a real kube-apiserver showed in tests/real/test_webhook.py. Such a counter is not
there before it first counts, so an outage may begin with a counter that comes with all it has counted.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import scaled
from tests.peers.find import absent

RULES = Path(__file__).resolve().parents[2] / "deploy" / "webhook" / "alerts.yaml"
REJECTED = "apiserver_admission_webhook_rejection_count"
PASSED_BY = "apiserver_admission_webhook_fail_open_count"
AT = 'job="apiserver",instance="a:6443"'
REFUSED = "The API server cannot reach the Nodeward webhook; pods with EPC are refused."
UNCHECKED = "The API server goes on without the Nodeward webhook; annotations of pods may change unchecked."
OTHERS = {
    f'{REJECTED}{{{AT},name="create.nodeward.io",error_type="no_error"}}': "0+1x90",
    f'{REJECTED}{{{AT},name="x.example.com",error_type="calling_webhook_error"}}': "_x10 7x80",
    f'{PASSED_BY}{{{AT},name="x.example.com"}}': "_x10 7x80",
}
"""The webhook's own refusals, and other people's webhooks."""


@dataclass(frozen=True)
class Story:
    """What both counters show, a sample each half minute, and the minutes at which both alerts fire, and do not."""

    counted: str
    fires: tuple[int, ...]
    quiet: tuple[int, ...]
    asked: str = "1x90"
    """`up`, of the same API server."""


STORIES = {
    "away from the 5th to the 15th minute": Story("0x10 1+1x20 21x60", fires=(10,), quiet=(4, 40)),
    "the first outage, which begins with a burst and ends": Story("_x10 7x80", fires=(8, 9), quiet=(4, 6, 12, 40)),
    "the first outage, which lasts": Story("_x10 7+1x20 27x60", fires=(8, 10, 12, 15), quiet=(4, 6, 40)),
    "a Prometheus that begins after an outage": Story("_x10 7x80", fires=(), quiet=(8, 9, 12, 40), asked="_x10 1x80"),
    "all is well": Story("_x90", fires=(), quiet=(8, 40)),
}


def story_of(story: Story) -> str:
    """The story as promtool reads it. JSON is YAML."""
    ours = {
        f'{REJECTED}{{{AT},name="create.nodeward.io",error_type="calling_webhook_error"}}': story.counted,
        f'{PASSED_BY}{{{AT},name="update.nodeward.io"}}': story.counted,
        f"up{{{AT}}}": story.asked,
    }
    alerts = {
        "NodewardWebhookAway": ("critical", "webhook-away", "create.nodeward.io", REFUSED),
        "NodewardWebhookPassedBy": ("warning", "webhook-passed-by", "update.nodeward.io", UNCHECKED),
    }
    rows = [
        {
            "eval_time": f"{minute}m",
            "alertname": alert,
            "exp_alerts": [
                {
                    "exp_labels": {"severity": severity, "condition": condition, "name": name},
                    "exp_annotations": {"summary": summary},
                }
            ]
            if minute in story.fires
            else [],
        }
        for minute in sorted((*story.fires, *story.quiet))
        for alert, (severity, condition, name, summary) in alerts.items()
    ]
    series = [{"series": name, "values": values} for name, values in (OTHERS | ours).items()]
    told = {"interval": "30s", "input_series": series, "alert_rule_test": rows}
    return json.dumps({"rule_files": ["alerts.yaml"], "evaluation_interval": "30s", "tests": [told]})


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_the_alerts_fire_while_the_webhook_is_away_and_at_no_other_time(story: Story, tmp_path: Path) -> None:
    """Given the API server's counters of forty minutes, then both alerts fire in an outage, and in nothing like one."""
    promtool = shutil.which("promtool")
    if promtool is None:
        absent("promtool is not installed: run scripts/install-tools")
    shutil.copy(RULES, tmp_path / "alerts.yaml")
    (tmp_path / "story.yaml").write_text(story_of(story))
    done = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "story.yaml")],
        capture_output=True,
        text=True,
        timeout=scaled(60),
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
