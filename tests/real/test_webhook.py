"""The webhook behind a real kube-apiserver: the shipped manifests, pods that are made, changed, debugged and resized.

The API server calls `nodeward webhook` on the loopback (`clientConfig.url` in place of the Service, which nothing here
could route); everything else is as in deploy/webhook. cert-manager is not here: its two objects are only read.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from nodeward.edges.webhook.server import PATH
from tests.component.webhook.support import WITHIN_S, install, make_pki, port_of, program
from tests.peers.kube import ApiServer, running_apiserver
from tests.peers.kubeclient import STRATEGIC, ApiError, KubeClient
from tests.peers.nriside import Record
from tests.unit.edges.webhook.rounds import at, container, notes, pod_of

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "webhook"
EPC, ENCLAVE = "sgx.intel.com/epc", "sgx.intel.com/enclave"
PODS = "/api/v1/namespaces/default/pods"
COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ConfigMap": "/api/v1/namespaces/nodeward-system/configmaps",
    "Secret": "/api/v1/namespaces/nodeward-system/secrets",
    "ServiceAccount": "/api/v1/namespaces/nodeward-system/serviceaccounts",
    "Deployment": "/apis/apps/v1/namespaces/nodeward-system/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/nodeward-system/poddisruptionbudgets",
    "Service": "/api/v1/namespaces/nodeward-system/services",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
}


def objects(name: str, folder: Path = DEPLOY) -> list[Record]:
    """The objects of one manifest."""
    return list(yaml.safe_load_all((folder / name).read_text()))


def until(true: Callable[[], bool], what: str) -> None:
    """Waits, bounded, for something another process does."""
    end = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < end, f"not within {WITHIN_S:.0f} s: {what}"
        time.sleep(0.05)


@dataclass(slots=True)
class Cluster:
    """An API server with the webhook in front of it."""

    server: ApiServer
    client: KubeClient
    webhook: subprocess.Popen[str]
    port: int
    """The webhook's."""

    def create(self, name: str, made: Mapping[str, object], namespace: str = "default", query: str = "") -> Record:
        """The pod as it is stored."""
        annotations = at(made, "metadata", "annotations")
        metadata = {"name": name, "namespace": namespace, "annotations": annotations}
        body = record({**made, "metadata": metadata})
        return self.client.call("POST", f"/api/v1/namespaces/{namespace}/pods{query}", body)

    def tried(self, made: Mapping[str, object]) -> Record:
        """The pod as it would be stored."""
        return self.create("tried", made, query="?dryRun=All")

    def refusal(self, verb: str, path: str, body: Mapping[str, object], kind: str = "application/json") -> str:
        """The text with which the server says no."""
        with pytest.raises(ApiError) as caught:
            self.client.call(verb, path, record(body), kind)
        return str(caught.value)

    def metrics(self) -> str:
        """The API server's own metrics."""
        trust = ssl.create_default_context(cafile=str(self.server.ca_file))
        host = urllib.parse.urlsplit(self.server.base_url).netloc
        link = http.client.HTTPSConnection(host, timeout=WITHIN_S, context=trust)
        try:
            link.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.server.token}"})
            return link.getresponse().read().decode()
        finally:
            link.close()

    def counted(self, family: str, webhook: str, label: str = "") -> float:
        """The sum of the API server's counters about a webhook; of those with this label, if there is one."""
        lines = [line for line in self.metrics().splitlines() if line.startswith(f"{family}{{")]
        return sum(float(line.split()[-1]) for line in lines if f'name="{webhook}"' in line and label in line)


def record(value: Mapping[str, object]) -> Record:
    """The same value as the client's type."""
    found: Record = json.loads(json.dumps(value))
    return found


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and in the folder tls a pair of it."""
    folder = make_pki(tmp_path_factory.mktemp("webhook"))
    install(folder, "first", folder / "tls")
    return folder


@pytest.fixture(scope="module")
def cluster(pki: Path) -> Iterator[Cluster]:
    """The manifests applied, strictly, and the webhook called for the first time."""
    with ExitStack() as stack:
        kube = stack.enter_context(tempfile.TemporaryDirectory(prefix="nwk"))
        server = stack.enter_context(running_apiserver(Path(kube)))
        webhook = stack.enter_context(program(pki / "tls"))
        port = port_of(webhook)
        url = f"https://127.0.0.1:{port}{PATH}"
        client = KubeClient(server.base_url, server.ca_file, server.token)
        for name in ("namespace.yaml", "settings.yaml", "deployment.yaml", "service.yaml", "webhook.yaml"):
            for one in objects(name):
                if one["kind"] == "MutatingWebhookConfiguration":
                    at_the_loopback(one, url, (pki / "ca.crt").read_bytes())
                client.call("POST", f"{COLLECTIONS[str(one['kind'])]}?fieldValidation=Strict", one)
        found = Cluster(server, client, webhook, port)
        probe = pod_of(container("c", {EPC: "1"}))
        until(lambda: is_changed(found.tried(probe)), "the API server calls the webhook")
        yield found


def at_the_loopback(configuration: Record, url: str, authority: bytes, shipped: str = PATH) -> None:
    """Points the configuration to a URL."""
    webhooks = configuration["webhooks"]
    assert isinstance(webhooks, list)
    for one in webhooks:
        assert at(one, "clientConfig", "service", "path") == shipped
        assert isinstance(one, dict)
        one["clientConfig"] = {"url": url, "caBundle": base64.b64encode(authority).decode()}


def is_changed(found: Mapping[str, object]) -> bool:
    """Whether the webhook saw the pod."""
    return "nodeward.io/limits" in notes(found)


def test_a_pod_with_every_kind_of_container_is_stored_with_all_it_needs(cluster: Cluster) -> None:
    found = cluster.create(
        "whole",
        pod_of(
            container("app", {EPC: "4Ki"}),
            container("aesmd", {EPC: "1Mi"}),
            container("plain"),
            annotations={"sgx.intel.com/quote-provider": "aesmd", "epc-limit.nri.io/pod": "99999999"},
            initContainers=[
                container("proxy", {EPC: "2Ki"}, restartPolicy="Always"),
                container("setup", {EPC: "8Ki"}),
            ],
        ),
    )
    print(notes(found))

    assert notes(found) == {
        "sgx.intel.com/quote-provider": "aesmd",
        "nodeward.io/limits": '{"proxy":{"sgx_epc":"2048"},"setup":{"sgx_epc":"8192"},"app":{"sgx_epc":"4096"},'
        '"aesmd":{"sgx_epc":"1048576"},"plain":{"sgx_epc":"0"}}',
        "epc-limit.nri.io/container.proxy": "2048",
        "epc-limit.nri.io/container.setup": "8192",
        "epc-limit.nri.io/container.app": "4096",
        "epc-limit.nri.io/container.aesmd": "1048576",
        EPC: "1030Ki",
    }
    for field, index in (("initContainers", 0), ("initContainers", 1), ("containers", 0), ("containers", 1)):
        assert at(found, "spec", field, index, "resources", "limits", ENCLAVE) == "1"
        assert at(found, "spec", field, index, "resources", "requests", ENCLAVE) == "1"
        assert at(found, "spec", field, index, "env") == [{"name": "SGX_AESM_ADDR", "value": "1"}]
    assert at(found, "spec", "containers", 2, "resources") == {}
    volumes = at(found, "spec", "volumes")
    assert isinstance(volumes, list)
    assert {"name": "aesmd-socket", "emptyDir": {"medium": "Memory"}} in volumes


def test_the_author_of_a_pod_without_epc_is_warned_of_katas_annotation(cluster: Cluster) -> None:
    """Given a pod that claims EPC by Kata's annotation alone, then it is stored with it, and its author is warned when
    it is made and when its annotations change."""
    cluster.create("claims", pod_of(container("app"), annotations={EPC: "1Mi"}))
    print(cluster.client.warned)
    assert ["sgx.intel.com/epc" in one and "webhook" not in one for one in cluster.client.warned] == [True]
    change: Record = {"metadata": {"annotations": {"mine": "stays"}}}
    found = cluster.client.call("PATCH", f"{PODS}/claims", change, STRATEGIC)
    assert ["sgx.intel.com/epc" in one for one in cluster.client.warned] == [True]
    assert notes(found) == {EPC: "1Mi", "mine": "stays"}
    cluster.tried(pod_of(container("app")))
    assert cluster.client.warned == []


def test_a_pod_of_500_containers_is_asked_about_changed_and_set_right(cluster: Cluster) -> None:
    """The conditions look at each container, and the API server refuses what costs too much: here EPC is declared by
    none, by the last one, and by all."""
    names = [f"container-number-{number}" for number in range(500)]
    plain = [container(name) for name in names]
    assert notes(cluster.tried(pod_of(*plain))) == {}

    found = cluster.tried(pod_of(*plain[:-1], container(names[-1], {EPC: "4Ki"})))
    limits = json.loads(str(notes(found)["nodeward.io/limits"]))
    assert limits == {name: {"sgx_epc": "4096" if name == names[-1] else "0"} for name in names}

    made = cluster.create("crowd", pod_of(*(container(name, {EPC: "4Ki"}) for name in names)))
    given = [at(made, "spec", "containers", index, "resources", "limits", ENCLAVE) for index in range(len(names))]
    assert given == ["1"] * len(names)
    assert notes(made)[EPC] == "2000Ki"
    change: Record = {"metadata": {"annotations": {"epc-limit.nri.io": "1", "nodeward.io/limits": None}}}
    assert notes(cluster.client.call("PATCH", f"{PODS}/crowd", change, STRATEGIC)) == notes(made)


def test_a_later_webhooks_change_brings_a_second_round_that_adds_nothing(cluster: Cluster, pki: Path) -> None:
    """The later one is ours too: it requires a plugin, which the first one knows nothing of."""
    (configuration,) = objects("webhook.yaml")
    webhooks = configuration["webhooks"]
    assert isinstance(webhooks, list)
    later = webhooks[0]
    assert isinstance(later, dict)
    configuration["webhooks"], later["name"] = [later], "later.example.com"
    configuration["metadata"] = {"name": "zz-later"}
    place = f"{COLLECTIONS['MutatingWebhookConfiguration']}"
    made = pod_of(container("app", {EPC: "4Ki"}), annotations={"sgx.intel.com/quote-provider": "aesmd"})
    with program(pki / "tls", "webhook.required_plugin=nodeward") as second:
        at_the_loopback(configuration, f"https://127.0.0.1:{port_of(second)}{PATH}", (pki / "ca.crt").read_bytes())
        cluster.client.call("POST", place, configuration)
        try:
            required = "required-plugins.noderesource.dev"
            until(lambda: required in notes(cluster.tried(made)), "the later webhook is called too")
            calls = cluster.counted("apiserver_admission_webhook_request_total", "create.nodeward.io")
            found = cluster.tried(made)
            assert cluster.counted("apiserver_admission_webhook_request_total", "create.nodeward.io") == calls + 2
        finally:
            cluster.client.call("DELETE", f"{place}/zz-later")

    assert notes(found)[required] == '["nodeward"]'
    assert at(found, "spec", "containers", 0, "env") == [{"name": "SGX_AESM_ADDR", "value": "1"}]
    assert at(found, "spec", "containers", 0, "volumeMounts") == [
        {"name": "aesmd-socket", "mountPath": "/var/run/aesmd"}
    ]
    until(lambda: required not in notes(cluster.tried(made)), "the later webhook is gone")


def test_the_objects_for_cert_manager_name_what_the_others_name() -> None:
    issuer, certificate = objects("certificate.yaml")
    (service,) = objects("service.yaml")
    name, space = at(service, "metadata", "name"), at(service, "metadata", "namespace")
    names = at(certificate, "spec", "dnsNames")
    assert isinstance(names, list)

    assert f"{name}.{space}.svc" in names
    assert at(certificate, "spec", "issuerRef", "name") == at(issuer, "metadata", "name")
    deployment = next(one for one in objects("deployment.yaml") if one["kind"] == "Deployment")
    volumes = at(deployment, "spec", "template", "spec", "volumes")
    assert isinstance(volumes, list)
    assert at(certificate, "spec", "secretName") in [at(one, "secret", "secretName") for one in volumes]
    (configuration,) = objects("webhook.yaml")
    source = at(configuration, "metadata", "annotations", "cert-manager.io/inject-ca-from")
    assert source == f"{space}/{at(certificate, 'metadata', 'name')}"


def own_pod() -> Record:
    """A pod of the shipped Deployment, which would even use EPC. The namespace admits only restricted pods."""
    deployment = next(one for one in objects("deployment.yaml") if one["kind"] == "Deployment")
    spec = at(deployment, "spec", "template", "spec")
    resources = at(spec, "containers", 0, "resources")
    assert isinstance(spec, dict)
    assert isinstance(resources, dict)
    resources["limits"] = {EPC: "4Ki"}
    return {"spec": spec}


def test_what_happens_while_the_webhook_is_away(cluster: Cluster) -> None:
    """The last story: it ends the webhook."""
    cluster.create("before", pod_of(container("app", {EPC: "4Ki"})))
    os.kill(cluster.webhook.pid, signal.SIGTERM)
    assert cluster.webhook.wait(WITHIN_S) == 0

    said = cluster.refusal("POST", PODS, pod_of(container("app", {EPC: "4Ki"})))
    print(said)
    assert 'failed calling webhook \\"create.nodeward.io\\"' in said
    cluster.create("plain", pod_of(container("app")))
    assert not is_changed(cluster.create("own", own_pod(), "nodeward-system"))
    change: Record = {"metadata": {"annotations": {"epc-limit.nri.io": "1"}, "finalizers": ["example.com/mine"]}}
    found = cluster.client.call("PATCH", f"{PODS}/before", change, STRATEGIC)
    assert notes(found)["epc-limit.nri.io"] == "1"

    unasked = {"metadata": {"annotations": {"of": "somebody"}}}
    passed_by = cluster.counted("apiserver_admission_webhook_fail_open_count", "update.nodeward.io")
    cluster.client.call("PATCH", f"{PODS}/plain", record(unasked), STRATEGIC)
    assert cluster.counted("apiserver_admission_webhook_fail_open_count", "update.nodeward.io") == passed_by > 0
    greedy = {"spec": {"ephemeralContainers": [container("greedy", {EPC: "4Ki"})]}}
    said = cluster.refusal("PATCH", f"{PODS}/before/ephemeralcontainers", greedy, STRATEGIC)
    assert "resources: Forbidden: cannot be set for an Ephemeral Container" in said, said

    metrics = cluster.metrics()
    rules = (DEPLOY / "alerts.yaml").read_text()
    for family, labels in (
        ("apiserver_admission_webhook_rejection_count", ('error_type="calling_webhook_error"', "create.nodeward.io")),
        ("apiserver_admission_webhook_fail_open_count", ("update.nodeward.io",)),
    ):
        lines = [line for line in metrics.splitlines() if line.startswith(f"{family}{{")]
        assert [line for line in lines if all(label in line for label in labels)], lines
        assert family in rules


@pytest.mark.parametrize("short", ["noderesource", "intel"])
def test_every_pod_says_what_its_containers_request(cluster: Cluster, pki: Path, short: str) -> None:
    """Given the shipped configuration for one of the annotations, when a pod that lies by it is made, then it says what
    the spec says, in the API server's quantities; a change is set right, and a resize leaves it as it is."""
    (configuration,) = objects(f"resources-{short}.yaml")
    key = str(at(configuration, "webhooks", 0, "clientConfig", "service", "path"))[1:]
    name = str(at(configuration, "metadata", "name"))
    place = f"{COLLECTIONS['MutatingWebhookConfiguration']}"
    app = container("app", resources={"requests": {"cpu": "1500m"}, "limits": {"cpu": "2000m", "memory": "1Gi"}})
    made = pod_of(app, container("plain"), annotations={key: '{"containers":{"app":{"requests":{"cpu":"9"}}}}'})
    says = {
        "app": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1500m", "memory": "1Gi"}},
        "plain": {},
    }
    with program(pki / "tls", f'webhook.annotate=["{key}"]') as annotating:
        url = f"https://127.0.0.1:{port_of(annotating)}/{key}"
        at_the_loopback(configuration, url, (pki / "ca.crt").read_bytes(), f"/{key}")
        cluster.client.call("POST", f"{place}?fieldValidation=Strict", configuration)
        try:
            until(lambda: '"9"' not in str(notes(cluster.tried(made))[key]), "the API server asks the webhook")
            text = str(notes(cluster.create(f"annotated-{short}", made))[key])
            path = f"{PODS}/annotated-{short}"
            change: Record = {"metadata": {"annotations": {key: "{}"}}}
            changed = cluster.client.call("PATCH", path, change, STRATEGIC)
            more: Record = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]}}
            resized = cluster.client.call("PATCH", f"{path}/resize", more, STRATEGIC)
        finally:
            cluster.client.call("DELETE", f"{place}/{name}")

    assert json.loads(text)["containers"] == says
    assert ("initContainers" in json.loads(text)) is (short == "intel")
    assert notes(changed)[key] == notes(resized)[key] == text


def test_cri_resource_managers_own_configuration_finds_its_webhook(cluster: Cluster, pki: Path) -> None:
    """Given a webhook configuration without a path, as CRI Resource Manager ships it, and the program with its options,
    then pods get its annotation, and the probe of its Deployment an answer."""
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    command = [sys.executable, "-c", "from nodeward.cli.cri_resmgr_webhook import main; main()", f"-port={port}"]
    tls = [f"-cert-file={pki}/tls/tls.crt", f"-key-file={pki}/tls/tls.key"]
    authority = base64.b64encode((pki / "ca.crt").read_bytes()).decode()
    rule: Record = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}
    configuration: Record = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "cri-resmgr"},
        "webhooks": [
            {
                "name": "cri-resmgr.intel.com",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "rules": [rule],
                "clientConfig": {"url": f"https://127.0.0.1:{port}", "caBundle": authority},
            }
        ],
    }
    place = COLLECTIONS["MutatingWebhookConfiguration"]
    with subprocess.Popen([*command, *tls], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert port_of(process) == port
            cluster.client.call("POST", place, configuration)
            made = pod_of(container("app", {"cpu": "2"}))
            until(lambda: "intel.com/resources" in notes(cluster.tried(made)), "the API server asks the webhook")
            text = notes(cluster.tried(made))["intel.com/resources"]
            trust = ssl.create_default_context(cafile=str(pki / "ca.crt"))
            link = http.client.HTTPSConnection("127.0.0.1", port, timeout=WITHIN_S, context=trust)
            link.request("GET", "/", headers={"Content-Type": "application/json"})
            probed = link.getresponse().status
            link.close()
        finally:
            with suppress(ApiError):
                cluster.client.call("DELETE", f"{place}/cri-resmgr")
            process.terminate()

    both = '{"limits":{"cpu":"2"},"requests":{"cpu":"2"}}'
    assert (text, probed) == (f'{{"initContainers":{{}},"containers":{{"app":{both}}}}}', 200)
