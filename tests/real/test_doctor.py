"""`nodeward doctor` before a real kube-apiserver, as node and as administrator."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.core.finding import Access, Registered
from nodeward.features.settings import Settings
from nodeward.host.clock import SystemClock
from nodeward.people.doctor.cluster import api
from nodeward.people.doctor.facts import ApiFacts, Facts
from nodeward.people.doctor.findings import findings
from tests.peers.nriside import Record
from tests.rigs.cluster import Cluster, make, running_cluster

WEBHOOK = "sgx.mutator.webhooks.intel.com"
LABELS: Record = {"app": "nri-sgx-epc"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    webhook: Record = {
        "name": WEBHOOK,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
    }
    container: Record = {"name": "nri-sgx-epc", "image": "example.invalid/nri-sgx-epc:1"}
    pod: Record = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
    with running_cluster() as found:
        make(
            found.client,
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "intelsgxwebhook-mutating-webhook-configuration"},
                "webhooks": [webhook],
            },
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": "nri-sgx-epc", "namespace": "kube-system"},
                "spec": {"selector": {"matchLabels": LABELS}, "template": pod},
            },
        )
        yield found


def looked(cluster: Cluster, token: str, folder: Path) -> ApiFacts:
    kube = cluster.section(folder)
    (folder / "token").write_text(token)
    return api(Settings(node_name=cluster.server.node, kube=kube), {}, SystemClock())


def codes(facts: ApiFacts) -> list[str]:
    return [finding.code for finding in findings(replace(Facts(), api=facts))]


def test_a_node_may_list_its_pods_and_not_look_at_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    found = looked(cluster, cluster.server.node_token, tmp_path)

    assert found.access is Access.OK, found.detail
    assert (found.webhooks, found.daemon_sets) == (None, None)
    assert found.no_events == (), "Kubernetes' own role for nodes has Events"
    assert found.behind_s is not None
    assert abs(found.behind_s) < 5
    assert codes(found).count("cluster-not-looked-at") == 3


def test_an_administrator_sees_intels_webhook_and_sgx_epc(cluster: Cluster, tmp_path: Path) -> None:
    found = looked(cluster, cluster.server.token, tmp_path)

    assert found.webhooks == (Registered(WEBHOOK, has_ca=True),)
    assert found.daemon_sets == ("kube-system/nri-sgx-epc",)
    assert {"intel-sgx-webhook", "sgx-epc"} <= set(codes(found))
