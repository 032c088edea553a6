"""The webhook as deploy/webhook ships it, behind a real kube-apiserver: pods that are made, changed, debugged, resized.

The Deployment's own command, settings and mounts, with a certificate by command. The API server calls it through the
shipped configuration, by the Service's name and with the authority that `trust.yaml` brings. Three things differ from a
cluster, since nothing here routes a Service: it is an ExternalName for the loopback, the configuration names the port
on which the program serves, and that port is any that is free. Webhooks beside it are called on the loopback.
"""

import base64
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeward.features.admission.door.server import PATH
from tests.component.webhook.support import GOOD, JSON_TYPE, NODEWARD, WITHIN_S, install, make_pki, port_of, program
from tests.peers.daemon import until
from tests.peers.find import absent
from tests.peers.kubeclient import STRATEGIC, ApiError
from tests.peers.nriside import Record, member
from tests.peers.ports import free_port
from tests.rigs import cluster as rigs
from tests.rigs.cluster import JSON, PODS, listed, make, manifests, part, record, refusal, running_cluster
from tests.unit.features.admission.rounds import at, container, notes, pod_of

DEPLOY = rigs.DEPLOY / "webhook"
EPC, ENCLAVE = "sgx.intel.com/epc", "sgx.intel.com/enclave"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
ETC = 'mount --bind "$0" /etc && exec "$@"'


def objects(name: str, folder: Path = DEPLOY) -> list[Record]:
    return manifests(folder / name)


@dataclass(frozen=True, slots=True)
class Cluster(rigs.Cluster):
    webhook: subprocess.Popen[str]
    port: int
    """The webhook's."""

    def create(self, name: str, made: Mapping[str, object], namespace: str = "default", query: str = "") -> Record:
        annotations = at(made, "metadata", "annotations")
        metadata = {"name": name, "namespace": namespace, "annotations": annotations}
        body = record({**made, "metadata": metadata})
        return self.client.call("POST", f"/api/v1/namespaces/{namespace}/pods{query}", body)

    def tried(self, made: Mapping[str, object]) -> Record:
        return self.create("tried", made, query="?dryRun=All")

    def refused(self, verb: str, path: str, body: Mapping[str, object], kind: str = JSON) -> str:
        said = refusal(self.client, verb, path, body, kind)
        print(said)
        return said

    def counted(self, family: str, webhook: str, label: str = "") -> float:
        """The sum of the API server's counters about a webhook; of those with this label, if there is one."""
        lines = [line for line in self.metrics() if line.startswith(f"{family}{{")]
        return sum(float(line.split()[-1]) for line in lines if f'name="{webhook}"' in line and label in line)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and in the folder tls a pair of it."""
    folder = make_pki(tmp_path_factory.mktemp("webhook"))
    install(folder, "first", folder / "tls")
    return folder


@dataclass(frozen=True, slots=True)
class Shipped:
    etc: Path
    """What the container sees at /etc: the ConfigMap and the Secret at their mount paths."""
    certificate: Path
    """The folder that the command filled."""
    command: tuple[str, ...]
    """The container's own, with its arguments."""

    def within(self, *words: str) -> list[str]:
        return ["unshare", "-r", "-m", "sh", "-c", ETC, str(self.etc), *words]


def deployment() -> Record:
    return next(one for one in objects("deployment.yaml") if one["kind"] == "Deployment")


def the_container() -> tuple[Record, Record]:
    spec = part(deployment(), "spec", "template", "spec")
    (one,) = listed(spec["containers"])
    return spec, one


def files_of(volume: Record, certificate: Path) -> dict[str, bytes]:
    (settings,) = objects("settings.yaml")
    (secret,) = objects("secret.yaml", certificate)
    if member(volume, "configMap", "name") == member(settings, "metadata", "name"):
        return {name: str(text).encode() for name, text in part(settings, "data").items()}
    assert member(volume, "secret", "secretName") == member(secret, "metadata", "name")
    return {name: base64.b64decode(str(text)) for name, text in part(secret, "data").items()}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """The mounts laid out, with the pair of deploy/webhook/make-certificate; the linker's cache as in any image."""
    folder = tmp_path_factory.mktemp("shipped")
    etc, certificate = folder / "etc", folder / "certificate"
    subprocess.run([str(DEPLOY / "make-certificate"), str(certificate)], check=True, timeout=WITHIN_S)
    spec, one = the_container()
    named = {volume["name"]: volume for volume in listed(spec["volumes"])}
    for mount in listed(one["volumeMounts"]):
        place = etc / Path(str(mount["mountPath"])).relative_to("/etc")
        place.mkdir(parents=True)
        for name, content in files_of(named[mount["name"]], certificate).items():
            (place / name).write_bytes(content)
    if Path("/etc/ld.so.cache").exists():
        shutil.copy("/etc/ld.so.cache", etc)
    words = (*rigs.words(one["command"]), *rigs.words(one["args"]))
    found = Shipped(etc, certificate, words)
    if subprocess.run(found.within("true"), check=False, capture_output=True, timeout=WITHIN_S).returncode != 0:
        absent("no mount namespace of one's own here")
    return found


@contextmanager
def replica(shipped: Shipped) -> Iterator[subprocess.Popen[str]]:
    """One pod's process: the Deployment's command and arguments, word for word."""
    line = shipped.within(*shipped.command)
    environment = {**os.environ, "NODEWARD_WEBHOOK__PORT": "0", "PATH": f"{Path(NODEWARD).parent}:{os.environ['PATH']}"}
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait(WITHIN_S)
        if process.stderr is not None:
            process.stderr.close()


def service_name() -> str:
    (service,) = objects("service.yaml")
    return f"{at(service, 'metadata', 'name')}.{at(service, 'metadata', 'namespace')}.svc"


def connected(port: int, trust: ssl.SSLContext, name: str) -> http.client.HTTPSConnection:
    link = http.client.HTTPSConnection(name, port, timeout=WITHIN_S)
    plain = socket.create_connection(("127.0.0.1", port), WITHIN_S)
    link.sock = trust.wrap_socket(plain, server_hostname=name)
    return link


def route_to(port: int) -> tuple[Record, Record]:
    """The Service and the configuration, with what nothing here can route put right."""
    (service,), (configuration,) = objects("service.yaml"), objects("webhook.yaml")
    service["spec"] = {"type": "ExternalName", "externalName": "localhost"}
    for one in listed(configuration["webhooks"]):
        place = part(one, "clientConfig", "service")
        assert f"{place['name']}.{place['namespace']}.svc" == service_name()
        place["port"] = port
    return service, configuration


@pytest.fixture(scope="module")
def cluster(shipped: Shipped) -> Iterator[Cluster]:
    """An API server to which the manifests were applied, strictly, and that trusts the webhook by the documented patch
    and calls it by the Service's name."""
    with running_cluster() as found, replica(shipped) as webhook:
        port = port_of(webhook)
        made = (one for name in ("namespace.yaml", "settings.yaml", "deployment.yaml") for one in objects(name))
        make(found.client, *made, *objects("secret.yaml", shipped.certificate), *route_to(port))
        (trust,) = objects("trust.yaml", shipped.certificate)
        found.client.call("PATCH", f"{CONFIGURATIONS}/nodeward", trust, STRATEGIC)
        with_webhook = Cluster(found.server, found.client, webhook, port)
        until(lambda: answers(with_webhook), "the API server calls the webhook")
        yield with_webhook


def answers(cluster: Cluster) -> bool:
    """Whether the API server finds the webhook; it refuses the pod until it knows Service and authority."""
    try:
        return is_changed(cluster.tried(pod_of(container("app", {EPC: "1"}))))
    except ApiError as error:
        if "failed calling webhook" not in str(error):
            raise
        return False


def at_the_loopback(configuration: Record, url: str, authority: bytes, shipped: str = PATH) -> None:
    for one in listed(configuration["webhooks"]):
        assert at(one, "clientConfig", "service", "path") == shipped
        one["clientConfig"] = {"url": url, "caBundle": base64.b64encode(authority).decode()}


def is_changed(found: Mapping[str, object]) -> bool:
    return "nodeward.io/limits" in notes(found)


def test_the_deployments_ports_are_those_of_the_settings(shipped: Shipped) -> None:
    """The one setting that the tests here replace: Service, probes and container lead to where the program listens."""
    _, one = the_container()
    (service,) = objects("service.yaml")
    settings = shipped.etc / Path(shipped.command[-1]).relative_to("/etc")
    assert f"port: {at(one, 'ports', 0, 'containerPort')}\n" in settings.read_text()
    name = at(one, "ports", 0, "name")
    assert at(service, "spec", "ports", 0, "targetPort") == name
    assert {at(one, kind, "httpGet", "port") for kind in ("readinessProbe", "livenessProbe")} == {name}


def test_the_shipped_authority_and_the_services_name_are_enough_to_ask_it(shipped: Shipped) -> None:
    (trust,) = objects("trust.yaml", shipped.certificate)
    bundle = base64.b64decode(str(at(trust, "webhooks", 0, "clientConfig", "caBundle")))
    assert bundle == (shipped.certificate / "ca.crt").read_bytes()
    context = ssl.create_default_context(cadata=bundle.decode())
    with replica(shipped) as process:
        port = port_of(process)
        for name in (service_name(), f"{service_name()}.cluster.local"):
            link = connected(port, context, name)
            for probe in ("readinessProbe", "livenessProbe"):
                link.request("GET", str(at(the_container()[1], probe, "httpGet", "path")))
                answer = link.getresponse()
                assert (answer.status, bool(answer.read())) == (200, True)
            link.request("POST", PATH, GOOD, JSON_TYPE)
            said = json.loads(link.getresponse().read())
            assert (at(said, "response", "allowed"), bool(at(said, "response", "patch"))) == (True, True)
            link.close()
        plain = socket.create_connection(("127.0.0.1", port), WITHIN_S)
        with plain, pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(plain, server_hostname="nodeward-webhook.default.svc")


def test_a_pod_with_every_kind_of_container_is_stored_with_all_it_needs(cluster: Cluster) -> None:
    found = cluster.create(
        "whole",
        pod_of(
            container("app", {EPC: "4Ki"}),
            container("aesmd", {EPC: "1Mi"}),
            container("plain"),
            annotations={"sgx.intel.com/quote-provider": "aesmd", "epc-limit.nri.io/pod": "99999999"},
            initContainers=[container("proxy", {EPC: "2Ki"}, restartPolicy="Always"), container("setup", {EPC: "8Ki"})],
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
    said = cluster.refused("POST", PODS, {**pod_of(container("app", {EPC: "1500m"})), "metadata": {"name": "no"}})
    assert "webhook \"create.nodeward.io\" denied the request: container 'app' (spec.containers[0])" in said
    assert "resources.limits[sgx.intel.com/epc] is '1500m', must be a whole number from 0 to 2^63-1" in said


def test_the_author_of_a_pod_without_epc_is_warned_of_katas_annotation(cluster: Cluster) -> None:
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
    later = listed(configuration["webhooks"])[0]
    configuration["webhooks"], later["name"] = [later], "later.example.com"
    configuration["metadata"] = {"name": "zz-later"}
    made = pod_of(container("app", {EPC: "4Ki"}), annotations={"sgx.intel.com/quote-provider": "aesmd"})
    with program(pki / "tls", "webhook.required_plugin=nodeward") as second:
        at_the_loopback(configuration, f"https://127.0.0.1:{port_of(second)}{PATH}", (pki / "ca.crt").read_bytes())
        cluster.client.call("POST", CONFIGURATIONS, configuration)
        try:
            required = "required-plugins.noderesource.dev"
            until(lambda: required in notes(cluster.tried(made)), "the later webhook is called too")
            calls = cluster.counted("apiserver_admission_webhook_request_total", "create.nodeward.io")
            found = cluster.tried(made)
            assert cluster.counted("apiserver_admission_webhook_request_total", "create.nodeward.io") == calls + 2
        finally:
            cluster.client.call("DELETE", f"{CONFIGURATIONS}/zz-later")

    assert notes(found)[required] == '["nodeward"]'
    assert at(found, "spec", "containers", 0, "env") == [{"name": "SGX_AESM_ADDR", "value": "1"}]
    assert at(found, "spec", "containers", 0, "volumeMounts") == [
        {"name": "aesmd-socket", "mountPath": "/var/run/aesmd"}
    ]
    until(lambda: required not in notes(cluster.tried(made)), "the later webhook is gone")


def test_the_objects_for_cert_manager_name_what_the_others_name() -> None:
    issuer, certificate = objects("certificate.yaml")
    space = service_name().split(".")[1]
    assert service_name() in rigs.words(part(certificate, "spec")["dnsNames"])
    assert at(certificate, "spec", "issuerRef", "name") == at(issuer, "metadata", "name")
    volumes = listed(the_container()[0]["volumes"])
    assert at(certificate, "spec", "secretName") in [member(one, "secret", "secretName") for one in volumes]
    (configuration,) = objects("webhook.yaml")
    source = at(configuration, "metadata", "annotations", "cert-manager.io/inject-ca-from")
    assert source == f"{space}/{at(certificate, 'metadata', 'name')}"


@pytest.mark.parametrize("short", ["noderesource", "intel"])
def test_every_pod_says_what_its_containers_request(cluster: Cluster, pki: Path, short: str) -> None:
    (configuration,) = objects(f"resources-{short}.yaml")
    key = str(at(configuration, "webhooks", 0, "clientConfig", "service", "path"))[1:]
    name = str(at(configuration, "metadata", "name"))
    app = container("app", resources={"requests": {"cpu": "1500m"}, "limits": {"cpu": "2000m", "memory": "1Gi"}})
    made = pod_of(app, container("plain"), annotations={key: '{"containers":{"app":{"requests":{"cpu":"9"}}}}'})
    says = {
        "app": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1500m", "memory": "1Gi"}},
        "plain": {},
    }
    with program(pki / "tls", f'webhook.annotate=["{key}"]') as annotating:
        url = f"https://127.0.0.1:{port_of(annotating)}/{key}"
        at_the_loopback(configuration, url, (pki / "ca.crt").read_bytes(), f"/{key}")
        cluster.client.call("POST", f"{CONFIGURATIONS}?fieldValidation=Strict", configuration)
        try:
            until(lambda: '"9"' not in str(notes(cluster.tried(made))[key]), "the API server asks the webhook")
            text = str(notes(cluster.create(f"annotated-{short}", made))[key])
            path = f"{PODS}/annotated-{short}"
            change: Record = {"metadata": {"annotations": {key: "{}"}}}
            changed = cluster.client.call("PATCH", path, change, STRATEGIC)
            more: Record = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]}}
            resized = cluster.client.call("PATCH", f"{path}/resize", more, STRATEGIC)
        finally:
            cluster.client.call("DELETE", f"{CONFIGURATIONS}/{name}")

    assert json.loads(text)["containers"] == says
    assert ("initContainers" in json.loads(text)) is (short == "intel")
    assert notes(changed)[key] == notes(resized)[key] == text


def test_cri_resource_managers_own_configuration_finds_its_webhook(cluster: Cluster, pki: Path) -> None:
    """It has no path: the program writes CRI Resource Manager's annotation at the root."""
    port, key = free_port(), "intel.com/resources"
    command = [sys.executable, "-c", "from nodeward.cli.cri_resmgr.webhook import main; main()", f"-port={port}"]
    tls = [f"-cert-file={pki}/tls/tls.crt", f"-key-file={pki}/tls/tls.key"]
    (configuration,) = objects("resources-intel.yaml")
    at_the_loopback(configuration, f"https://127.0.0.1:{port}", (pki / "ca.crt").read_bytes(), f"/{key}")
    configuration["metadata"] = {"name": "cri-resmgr"}
    with subprocess.Popen([*command, *tls], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert port_of(process) == port
            cluster.client.call("POST", CONFIGURATIONS, configuration)
            made = pod_of(container("app", {"cpu": "2"}))
            until(lambda: key in notes(cluster.tried(made)), "the API server asks the webhook")
            text = notes(cluster.tried(made))[key]
            trust = ssl.create_default_context(cafile=str(pki / "ca.crt"))
            link = http.client.HTTPSConnection("127.0.0.1", port, timeout=WITHIN_S, context=trust)
            link.request("GET", "/", headers={"Content-Type": "application/json"})
            probed = link.getresponse().status
            link.close()
        finally:
            with suppress(ApiError):
                cluster.client.call("DELETE", f"{CONFIGURATIONS}/cri-resmgr")
            process.terminate()

    both = '{"limits":{"cpu":"2"},"requests":{"cpu":"2"}}'
    assert (text, probed) == (f'{{"initContainers":{{}},"containers":{{"app":{both}}}}}', 200)


def own_pod() -> Record:
    """A pod of the shipped Deployment, which would even use EPC. The namespace admits only restricted pods."""
    spec, one = the_container()
    part(one, "resources")["limits"] = {EPC: "4Ki"}
    return {"spec": spec}


def test_what_happens_while_the_webhook_is_away(cluster: Cluster) -> None:
    made = pod_of(container("app", {EPC: "4Ki"}))
    cluster.create("before", made)
    os.kill(cluster.webhook.pid, signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, cluster.webhook.pid, os.WSTOPPED)
        late = cluster.refused("POST", PODS, {**made, "metadata": {"name": "late"}})
    finally:
        os.kill(cluster.webhook.pid, signal.SIGCONT)
    assert "context deadline exceeded" in late
    assert is_changed(cluster.create("after", made))
    os.kill(cluster.webhook.pid, signal.SIGTERM)
    assert cluster.webhook.wait(WITHIN_S) == 0

    (configuration,) = objects("webhook.yaml")
    assert [at(configuration, "webhooks", n, "failurePolicy") for n in range(2)] == ["Fail", "Ignore"]
    asked = [
        f"https://{service_name()}:{cluster.port}{PATH}?timeout={at(configuration, 'webhooks', n, 'timeoutSeconds')}s"
        for n in range(2)
    ]
    said = cluster.refused("POST", PODS, pod_of(container("app", {EPC: "4Ki"})))
    assert 'failed calling webhook "create.nodeward.io"' in said
    assert asked[0] in said
    cluster.create("plain", pod_of(container("app")))
    assert not is_changed(cluster.create("own", own_pod(), "nodeward-system"))
    change: Record = {"metadata": {"annotations": {"epc-limit.nri.io": "1"}, "finalizers": ["example.com/mine"]}}
    found = cluster.client.call("PATCH", f"{PODS}/before", change, STRATEGIC)
    assert notes(found)["epc-limit.nri.io"] == "1"
    log = (cluster.server.folder / "apiserver.log").read_text(errors="replace").splitlines()
    (passed,) = [line for line in log if "failing open update.nodeward.io" in line]
    assert asked[1] in passed

    unasked = {"metadata": {"annotations": {"of": "somebody"}}}
    passed_by = cluster.counted("apiserver_admission_webhook_fail_open_count", "update.nodeward.io")
    cluster.client.call("PATCH", f"{PODS}/plain", record(unasked), STRATEGIC)
    assert cluster.counted("apiserver_admission_webhook_fail_open_count", "update.nodeward.io") == passed_by > 0
    greedy = {"spec": {"ephemeralContainers": [container("greedy", {EPC: "4Ki"})]}}
    said = cluster.refused("PATCH", f"{PODS}/before/ephemeralcontainers", greedy, STRATEGIC)
    assert "resources: Forbidden: cannot be set for an Ephemeral Container" in said, said

    metrics = cluster.metrics()
    rules = (DEPLOY / "alerts.yaml").read_text()
    for family, labels in (
        ("apiserver_admission_webhook_rejection_count", ('error_type="calling_webhook_error"', "create.nodeward.io")),
        ("apiserver_admission_webhook_fail_open_count", ("update.nodeward.io",)),
    ):
        lines = [line for line in metrics if line.startswith(f"{family}{{")]
        assert [line for line in lines if all(label in line for label in labels)], lines
        assert family in rules
