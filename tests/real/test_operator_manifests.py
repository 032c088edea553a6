"""The manifests for cert-manager and the Prometheus operator on a real kube-apiserver, by definitions of our own.

`operator_crds.yaml` has of those kinds what the manifests use, so a field that is misspelt or at the wrong place is
unknown, and strict validation refuses it. Some are misspelt or of another kind here, to see that.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from tests.peers.kubeclient import KubeClient
from tests.peers.nriside import Json, Record, member
from tests.rigs.cluster import define, manifests, part, place_of, refusal, running_cluster


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

WRONG: dict[str, tuple[str, str, Json, str]] = {
    "an algorithm that is none": ("Certificate nodeward-webhook", "algorithm", "ECDS", 'Unsupported value: "ECDS"'),
    "a size as text": ("Certificate nodeward-webhook", "size", "256", "must be of type integer"),
    "a port by its number": ("ServiceMonitor nodeward-node", "port", 9743, "must be of type string"),
    "a duration without a unit": ("PrometheusRule nodeward", "for", "10", "should match"),
    "a field misspelt": (
        "PrometheusRule nodeward-webhook",
        "expr",
        None,
        'unknown field "spec.groups[0].rules[0].exprs"',
    ),
}
"""Manifest, a field of it, another value or none for another name, and what the server says of it."""


@pytest.fixture(scope="module")
def client() -> Iterator[KubeClient]:
    with running_cluster() as cluster:
        define(cluster.client, "operator_crds.yaml")
        for name in ("nodeward", "nodeward-system"):
            cluster.client.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        yield cluster.client


def said(client: KubeClient, body: Record) -> str:
    return refusal(client, "POST", f"{place_of(body)}?dryRun=All&fieldValidation=Strict", body)


def home_of(value: Json, name: str) -> Record | None:
    """The first object below that has a field of this name."""
    if isinstance(value, dict) and name in value:
        return value
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for one in below if (found := home_of(one, name)) is not None), None)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_manifest_is_taken(client: KubeClient, name: str) -> None:
    assert said(client, SHIPPED[name]) == ""


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_in_it_would_be_refused(client: KubeClient, case: str) -> None:
    name, field, value, words = WRONG[case]
    changed = copy.deepcopy(SHIPPED[name])
    home = home_of(part(changed, "spec"), field)
    assert home is not None
    if value is None:
        home[f"{field}s"] = home.pop(field)
    else:
        home[field] = value
    assert words in said(client, changed)
