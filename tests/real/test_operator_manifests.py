"""The manifests for cert-manager and the Prometheus operator on a real kube-apiserver, by definitions of our own.

`operator_crds.yaml` has of those kinds what the manifests use, so a field that is misspelt or at the wrong place is
unknown, and strict validation refuses it. Each name of a field in each manifest is misspelt here once, to see that.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.peers.kube import running_apiserver
from tests.peers.kubeclient import ApiError, KubeClient
from tests.peers.nriside import Json, Record, member
from tests.real.test_webhook import until

HERE = Path(__file__).resolve().parent
DEPLOY = HERE.parents[1] / "deploy"
DEFINITIONS = HERE / "operator_crds.yaml"
FREE = {"matchLabels", "labels", "annotations"}
"""Whose keys are the author's own."""
Way = tuple[str | int, ...]
"""The way to a field."""
MONITORING = "monitoring.coreos.com/v1"


class Shipped(NamedTuple):
    """An object of deploy, and where its kind is made."""

    place: str
    body: Record


def loaded(file: str) -> list[Record]:
    return list(yaml.safe_load_all((DEPLOY / file).read_text()))


def rule_of(name: str, file: str) -> Record:
    """A file of rules as docs/metrics.md has it put into the operator's object."""
    (rules,) = loaded(file)
    metadata: Record = {"name": name, "namespace": "nodeward"}
    return {"apiVersion": MONITORING, "kind": "PrometheusRule", "metadata": metadata, "spec": rules}


def shipped() -> dict[str, Shipped]:
    """All that belongs to the two operators, by name."""
    found = [
        *loaded("webhook/certificate.yaml"),
        *(one for one in loaded("prometheus/servicemonitor.yaml") if one["kind"] == "ServiceMonitor"),
        rule_of("nodeward", "prometheus/rules.yaml"),
        rule_of("nodeward-webhook", "webhook/alerts.yaml"),
    ]
    places = {
        f"{one['kind']} {member(one, 'metadata', 'name')}": f"/apis/{one['apiVersion']}/namespaces/"
        f"{member(one, 'metadata', 'namespace')}/{str(one['kind']).lower()}s"
        for one in found
    }
    return {name: Shipped(place, one) for (name, place), one in zip(places.items(), found, strict=True)}


SHIPPED = shipped()
WRONG: dict[str, tuple[str, Way, Json, str]] = {
    "an algorithm that is none": (
        "Certificate nodeward-webhook", ("privateKey", "algorithm"), "ECDS", 'Unsupported value: "ECDS"',
    ),
    "a size as text": ("Certificate nodeward-webhook", ("privateKey", "size"), "256", "must be of type integer"),
    "a name for a list": ("Certificate nodeward-webhook", ("dnsNames",), "nodeward", "must be of type array"),
    "a port by its number": ("ServiceMonitor nodeward-node", ("endpoints", 0, "port"), 9743, "must be of type string"),
    "a word for true": (
        "ServiceMonitor nodeward-node", ("endpoints", 0, "honorLabels"), "yes", "must be of type boolean",
    ),
    "a duration without a unit": ("PrometheusRule nodeward", ("groups", 1, "rules", 0, "for"), "10", "should match"),
    "a group twice": ("PrometheusRule nodeward", ("groups", 1, "name"), "nodeward-recording", "Duplicate value"),
}  # fmt: skip
"""Manifest, field, value, and what the server says of it."""


@contextmanager
def operators_cluster(definitions: Path) -> Iterator[KubeClient]:
    """An API server that serves these definitions' kinds."""
    with tempfile.TemporaryDirectory(prefix="nwo") as folder, running_apiserver(Path(folder)) as server:
        client = KubeClient(server.base_url, server.ca_file, server.token)
        for one in yaml.safe_load_all(definitions.read_text()):
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldValidation=Strict"
            client.call("POST", path, one)
        for name in ("nodeward", "nodeward-system"):
            client.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for place in {one.place for one in SHIPPED.values()}:
            until(partial(served, client, place), f"{place} is served")
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[KubeClient]:
    with operators_cluster(DEFINITIONS) as found:
        yield found


def served(client: KubeClient, place: str) -> bool:
    """Whether the server knows the kind by now and has its storage."""
    try:
        client.call("GET", place)
    except ApiError as error:
        if error.status not in (404, 429):
            raise
        return False
    return True


def said(client: KubeClient, place: str, body: Mapping[str, Json]) -> str:
    """What the server says against this object; empty where it takes it."""
    try:
        client.call("POST", f"{place}?dryRun=All&fieldValidation=Strict", dict(body))
    except ApiError as error:
        return str(error).replace('\\"', '"')
    return ""


def fields(value: Json, at: Way) -> Iterator[Way]:
    """The way to every field below, those with free keys left out."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*at, name)
            if name not in FREE:
                yield from fields(inner, (*at, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from fields(inner, (*at, number))


def home_of(body: Json, at: Way) -> Record:
    """What has the field at the end of this way."""
    for step in at[:-1]:
        body = body[str(step)] if isinstance(body, dict) else body[int(step)] if isinstance(body, list) else None
    assert isinstance(body, dict)
    return body


def spelt(at: Way) -> str:
    """As the server writes it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at).removeprefix(".")


@pytest.mark.parametrize("name", SHIPPED)
def test_the_manifest_is_taken_and_with_any_field_misspelt_it_is_not(client: KubeClient, name: str) -> None:
    place, body = SHIPPED[name]
    assert said(client, place, body) == ""
    ways = {str(at[-1]): at for at in fields(body["spec"], ("spec",))}
    for field, at in ways.items():
        changed = copy.deepcopy(body)
        home = home_of(changed, at)
        home[f"{field}s"] = home.pop(field)
        assert f'unknown field "{spelt(at)}s"' in said(client, place, changed)
    print(f"{name}: taken; refused as unknown, each in its turn: {', '.join(f'{field}s' for field in ways)}")


@pytest.mark.parametrize("case", WRONG)
def test_a_value_of_another_kind_is_refused(client: KubeClient, case: str) -> None:
    name, at, value, rule = WRONG[case]
    place, body = SHIPPED[name]
    changed = copy.deepcopy(body)
    home_of(changed["spec"], at)[str(at[-1])] = value
    refusal = said(client, place, changed)
    print(refusal)
    assert rule in refusal
