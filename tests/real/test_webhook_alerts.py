"""The webhook's alerting rules in Prometheus' own tool: they fire while the API server cannot reach the webhook.

The families and labels are those that a real kube-apiserver showed in tests/real/test_webhook.py.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.peers.find import PATIENCE, absent

RULES = Path(__file__).resolve().parents[2] / "deploy" / "webhook" / "alerts.yaml"
STORY = """
rule_files: [alerts.yaml]
evaluation_interval: 30s
tests:
  - interval: 30s
    input_series:
      # away from the 5th to the 15th minute
      - series: >-
          apiserver_admission_webhook_rejection_count{name="create.nodeward.io",error_type="calling_webhook_error"}
        values: 0x10 1+1x20 21x60
      # the webhook's own refusals, and other people's webhooks
      - series: 'apiserver_admission_webhook_rejection_count{name="create.nodeward.io",error_type="no_error"}'
        values: 0+1x90
      - series: 'apiserver_admission_webhook_rejection_count{name="x.example.com",error_type="calling_webhook_error"}'
        values: 0+1x90
      - series: 'apiserver_admission_webhook_fail_open_count{name="update.nodeward.io"}'
        values: 0x10 1+1x20 21x60
    alert_rule_test:
      - {eval_time: 4m, alertname: NodewardWebhookAway, exp_alerts: []}
      - {eval_time: 4m, alertname: NodewardWebhookPassedBy, exp_alerts: []}
      - eval_time: 10m
        alertname: NodewardWebhookAway
        exp_alerts:
          - exp_labels: {severity: critical, name: create.nodeward.io}
            exp_annotations:
              summary: The API server cannot reach the Nodeward webhook; pods with EPC are refused.
      - eval_time: 10m
        alertname: NodewardWebhookPassedBy
        exp_alerts:
          - exp_labels: {severity: warning, name: update.nodeward.io}
            exp_annotations:
              summary: The API server goes on without the Nodeward webhook; annotations of pods may change unchecked.
      - {eval_time: 40m, alertname: NodewardWebhookAway, exp_alerts: []}
      - {eval_time: 40m, alertname: NodewardWebhookPassedBy, exp_alerts: []}
"""


def test_the_alerts_fire_while_the_webhook_is_away_and_at_no_other_time(tmp_path: Path) -> None:
    """Given the API server's counters of forty minutes, when the webhook is away for ten, then both alerts fire."""
    promtool = shutil.which("promtool")
    if promtool is None:
        absent("promtool is not installed: run scripts/install-tools")
    shutil.copy(RULES, tmp_path / "alerts.yaml")
    (tmp_path / "story.yaml").write_text(STORY)
    done = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "story.yaml")],
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
