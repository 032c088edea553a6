"""Webhook and policies together in a real kube-apiserver: each way in which a pod can change, after its create too.

Each alone is tried in `test_webhook.py` and `test_policies.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.peers.kubeclient import STRATEGIC
from tests.peers.nriside import Record
from tests.real import policy_cluster
from tests.real.policy_cluster import EPC, Cluster, named, webhook
from tests.real.test_webhook import record
from tests.unit.edges.webhook.rounds import at, container, notes, pod_of

cluster = policy_cluster.cluster


def test_changes_and_sub_resources_pass_the_webhook_and_then_the_policies(cluster: Cluster, tmp_path: Path) -> None:
    """Create, update, ephemeralcontainers and resize, each let through once and refused once by whom it concerns."""
    pods = "/api/v1/namespaces/restricted/pods"

    def changed(verb: str, kind: str, spec: Mapping[str, object]) -> str:
        said = cluster.answer(verb, f"{pods}/subject{kind}", {"spec": spec}, STRATEGIC)
        print(kind, said or "let through")
        return said

    def debug(more: Mapping[str, object]) -> str:
        one = {**container("debug"), **more}
        return changed("PATCH", "/ephemeralcontainers", {"ephemeralContainers": [one]})

    def resized(**limits: object) -> str:
        resources = {"limits": limits, "requests": limits}
        return changed("PATCH", "/resize", {"containers": [{"name": "app", "resources": resources}]})

    with webhook(cluster, tmp_path):
        made = pod_of(container("app", {EPC: "4Ki", "cpu": "1"}))
        cluster.client.call("POST", pods, record(named(made, "subject")))
        said = cluster.said(named(pod_of(container("app", {EPC: "42"})), "tried"))
        assert "'42', must be a multiple of 4096" in said, "a policy has seen what the webhook let in"

        wrong: Record = {"metadata": {"annotations": {"nodeward.io/limits": "{}"}}}
        found = cluster.client.call("PATCH", f"{pods}/subject", wrong, STRATEGIC)
        assert notes(found)["nodeward.io/limits"] == '{"app":{"sgx_epc":"4096"}}', "the webhook was first"
        foreign: Record = {"metadata": {"annotations": {"unified-cgroup.crio.io/app": "x"}}}
        assert "CRI-O would write it" in cluster.answer("PATCH", f"{pods}/subject", foreign, STRATEGIC)

        assert "update.nodeward.io" in debug({"resources": {"limits": {EPC: "4Ki"}, "requests": {EPC: "4Ki"}}})
        assert "ephemeral container 'debug': securityContext.privileged" in debug(
            {"securityContext": {"privileged": True}}
        )
        assert debug({}) == ""
        assert resized(cpu="2") == ""
        assert "only cpu and memory resources are mutable" in resized(**{EPC: "8Ki"})
        now = cluster.client.call("GET", f"{pods}/subject")
        assert at(now, "spec", "containers", 0, "resources", "limits") == {
            EPC: "4Ki",
            "sgx.intel.com/enclave": "1",
            "cpu": "2",
        }
        assert notes(now) == notes(found)
