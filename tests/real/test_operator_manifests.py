"""The manifests for cert-manager and the Prometheus operator on a real kube-apiserver, by definitions of our own.

`operator_crds.yaml` has of those kinds what the manifests use, so a field that is misspelt or at the wrong place is
unknown, and strict validation refuses it. Some are misspelt or of another kind here, to see that.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.peers.kubeclient import KubeClient
from tests.peers.nriside import Record, member
from tests.rigs.cluster import define, manifests, place_of, refusal, running_cluster


def rule_of(name: str, file: str) -> Record:
    """A file of rules as docs/metrics.md has it put into the operator's object."""
    (rules,) = manifests(file)
    metadata: Record = {"name": name, "namespace": "nodeward"}
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": rules}


OBJECTS = (
    *manifests("webhook/certificate.yaml"),
    *(one for one in manifests("prometheus/servicemonitor.yaml") if one["kind"] == "ServiceMonitor"),
    rule_of("nodeward", "prometheus/rules.yaml"),
    rule_of("nodeward-webhook", "webhook/alerts.yaml"),
)
SHIPPED = {f"{one['kind']} {member(one, 'metadata', 'name')}": one for one in OBJECTS}
"""All that belongs to the two operators, by name."""

WRONG = {
    "an algorithm that is none": ("Certificate nodeward-webhook", "ECDSA", "ECDS", 'Unsupported value: "ECDS"'),
    "a size as text": ("Certificate nodeward-webhook", "size: 256", "size: '256'", "must be of type integer"),
    "a port by its number": ("ServiceMonitor nodeward-node", "port: metrics", "port: 9743", "must be of type string"),
    "a duration without a unit": ("PrometheusRule nodeward", "for: 10m", "for: '10'", "should match"),
    "a field misspelt": (
        "PrometheusRule nodeward-webhook",
        " expr:",
        " exprs:",
        'unknown field "spec.groups[0].rules[0].exprs"',
    ),
}
"""Manifest, what is in it, what is written there, and what the server says of it."""


@pytest.fixture(scope="module")
def client() -> Iterator[KubeClient]:
    with running_cluster() as cluster:
        define(cluster.client, "operator_crds.yaml")
        for name in ("nodeward", "nodeward-system"):
            cluster.client.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        yield cluster.client


def said(client: KubeClient, body: Record) -> str:
    return refusal(client, "POST", f"{place_of(body)}?dryRun=All&fieldValidation=Strict", body)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_manifest_is_taken(client: KubeClient, name: str) -> None:
    assert said(client, SHIPPED[name]) == ""


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_in_it_would_be_refused(client: KubeClient, case: str) -> None:
    name, right, wrong, words = WRONG[case]
    text = yaml.safe_dump(SHIPPED[name], width=1 << 20)
    assert right in text
    assert words in said(client, yaml.safe_load(text.replace(right, wrong, 1)))
