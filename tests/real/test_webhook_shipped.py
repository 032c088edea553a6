"""The webhook as deploy/webhook ships it: the Deployment's own command, settings and mounts, a certificate by command.

A real kube-apiserver calls it through the shipped configuration, by the Service's name and with the authority that
`trust.yaml` brings. Three things differ from a cluster, since nothing here routes a Service: it is an ExternalName for
the loopback, the configuration names the port on which the program serves, and that port is any that is free.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeward.edges.webhook.server import PATH
from tests.component.webhook.support import GOOD, JSON_TYPE, NODEWARD, WITHIN_S, port_of
from tests.peers.find import absent
from tests.peers.kube import running_apiserver
from tests.peers.kubeclient import STRATEGIC, ApiError, KubeClient
from tests.peers.nriside import Record
from tests.real.test_webhook import COLLECTIONS, DEPLOY, EPC, PODS, Cluster, is_changed, objects, until
from tests.unit.edges.webhook.rounds import at, container, notes, pod_of

CONFIGURATIONS = COLLECTIONS["MutatingWebhookConfiguration"]
ETC = 'mount --bind "$0" /etc && exec "$@"'
A_FREE_PORT = {"NODEWARD_WEBHOOK__PORT": "0"}


@dataclass(frozen=True, slots=True)
class Shipped:
    """What the manifests and the command of docs/webhook.md make of a folder."""

    etc: Path
    """What the container sees at /etc: the ConfigMap and the Secret at their mount paths."""
    certificate: Path
    """The folder that the command filled."""
    command: tuple[str, ...]
    """The container's own, with its arguments."""

    def within(self, *words: str) -> list[str]:
        """The command line of a process that sees the mounts."""
        return ["unshare", "-r", "-m", "sh", "-c", ETC, str(self.etc), *words]


def words_at(value: object, *path: str | int) -> list[str]:
    """The list of words there; empty where there is none."""
    found = at(value, *path)
    assert isinstance(found, list)
    return [str(word) for word in found]


def the_container() -> tuple[Record, Record]:
    """The Deployment's pod, and its only container."""
    deployment = next(one for one in objects("deployment.yaml") if one["kind"] == "Deployment")
    spec = at(deployment, "spec", "template", "spec")
    assert isinstance(spec, dict)
    one = at(spec, "containers", 0)
    assert isinstance(one, dict)
    return spec, one


def files_of(volume: object, certificate: Path) -> dict[str, bytes]:
    """The files of a volume, from the ConfigMap or the Secret that it names."""
    (settings,) = objects("settings.yaml")
    (secret,) = objects("secret.yaml", certificate)
    if at(volume, "configMap", "name") == at(settings, "metadata", "name"):
        data = settings["data"]
        assert isinstance(data, dict)
        return {name: str(text).encode() for name, text in data.items()}
    assert at(volume, "secret", "secretName") == at(secret, "metadata", "name")
    data = secret["data"]
    assert isinstance(data, dict)
    return {name: base64.b64decode(str(text)) for name, text in data.items()}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """The mounts laid out, with the pair of deploy/webhook/make-certificate; the linker's cache as in any image."""
    folder = tmp_path_factory.mktemp("shipped")
    etc, certificate = folder / "etc", folder / "certificate"
    subprocess.run([str(DEPLOY / "make-certificate"), str(certificate)], check=True, timeout=WITHIN_S)
    spec, one = the_container()
    volumes, mounts = spec["volumes"], one["volumeMounts"]
    assert isinstance(volumes, list)
    assert isinstance(mounts, list)
    named = {str(at(volume, "name")): volume for volume in volumes}
    for mount in mounts:
        place = etc / Path(str(at(mount, "mountPath"))).relative_to("/etc")
        place.mkdir(parents=True)
        for name, content in files_of(named[str(at(mount, "name"))], certificate).items():
            (place / name).write_bytes(content)
    if Path("/etc/ld.so.cache").exists():
        shutil.copy("/etc/ld.so.cache", etc)
    found = Shipped(etc, certificate, (*words_at(one, "command"), *words_at(one, "args")))
    if subprocess.run(found.within("true"), check=False, capture_output=True, timeout=WITHIN_S).returncode != 0:
        absent("no mount namespace of one's own here")
    return found


@contextmanager
def replica(shipped: Shipped, **more: str) -> Iterator[subprocess.Popen[str]]:
    """One pod's process: the Deployment's command and arguments, word for word; `more` is for its environment."""
    line = shipped.within(*shipped.command)
    environment = {**os.environ, **A_FREE_PORT, **more, "PATH": f"{Path(NODEWARD).parent}:{os.environ['PATH']}"}
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait(WITHIN_S)
        if process.stderr is not None:
            process.stderr.close()


def service_name() -> str:
    """What the API server calls the Service, and wants to see in the certificate."""
    (service,) = objects("service.yaml")
    return f"{at(service, 'metadata', 'name')}.{at(service, 'metadata', 'namespace')}.svc"


def connected(port: int, trust: ssl.SSLContext, name: str) -> http.client.HTTPSConnection:
    """A connection to the loopback by somebody who means `name`."""
    link = http.client.HTTPSConnection(name, port, timeout=WITHIN_S)
    plain = socket.create_connection(("127.0.0.1", port), WITHIN_S)
    link.sock = trust.wrap_socket(plain, server_hostname=name)
    return link


def route_to(port: int) -> tuple[Record, Record]:
    """The Service and the configuration, with what nothing here can route put right."""
    (service,), (configuration,) = objects("service.yaml"), objects("webhook.yaml")
    service["spec"] = {"type": "ExternalName", "externalName": "localhost"}
    webhooks = configuration["webhooks"]
    assert isinstance(webhooks, list)
    for one in webhooks:
        place = at(one, "clientConfig", "service")
        assert isinstance(place, dict)
        assert f"{place['name']}.{place['namespace']}.svc" == service_name()
        place["port"] = port
    return service, configuration


@pytest.fixture(scope="module")
def cluster(shipped: Shipped) -> Iterator[Cluster]:
    """An API server that trusts the webhook by the documented patch, and calls it by the Service's name."""
    with ExitStack() as stack:
        kube = stack.enter_context(tempfile.TemporaryDirectory(prefix="nwk"))
        server = stack.enter_context(running_apiserver(Path(kube)))
        webhook = stack.enter_context(replica(shipped))
        port = port_of(webhook)
        client = KubeClient(server.base_url, server.ca_file, server.token)
        (trust,) = objects("trust.yaml", shipped.certificate)
        secret = objects("secret.yaml", shipped.certificate)
        for one in (*objects("namespace.yaml"), *secret, *route_to(port)):
            client.call("POST", f"{COLLECTIONS[str(one['kind'])]}?fieldValidation=Strict", one)
        client.call("PATCH", f"{CONFIGURATIONS}/nodeward", trust, STRATEGIC)
        found = Cluster(server, client, webhook, port)
        until(lambda: answers(found), "the API server calls the webhook")
        yield found


def answers(cluster: Cluster) -> bool:
    """Whether the API server finds the webhook; it refuses the pod until it knows Service and authority."""
    path = f"{PODS}?dryRun=All"
    body: Record = json.loads(json.dumps({**pod_of(container("app", {EPC: "1"})), "metadata": {"name": "asked"}}))
    try:
        return is_changed(cluster.client.call("POST", path, body))
    except ApiError as error:
        if "failed calling webhook" not in str(error):
            raise
        return False


def test_the_deployments_ports_are_those_of_the_settings(shipped: Shipped) -> None:
    """The one setting that the tests here replace: Service, probes and container lead to where the program listens."""
    _, one = the_container()
    (service,) = objects("service.yaml")
    settings = shipped.etc / Path(shipped.command[-1]).relative_to("/etc")
    assert f"port: {at(one, 'ports', 0, 'containerPort')}\n" in settings.read_text()
    name = at(one, "ports", 0, "name")
    assert at(service, "spec", "ports", 0, "targetPort") == name
    assert {at(one, kind, "httpGet", "port") for kind in ("readinessProbe", "livenessProbe")} == {name}


def test_the_shipped_settings_are_without_a_fault(shipped: Shipped) -> None:
    line = shipped.within(NODEWARD, "config", "check", shipped.command[-1])
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    print(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_shipped_authority_and_the_services_name_are_enough_to_ask_it(shipped: Shipped) -> None:
    """Given the process of the Deployment, when somebody who has the caBundle alone asks for the Service by its name,
    then the probes and a review are answered; by another name nobody trusts it."""
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


def test_the_api_server_reaches_the_deployments_process_by_the_services_name(cluster: Cluster) -> None:
    found = cluster.create("shipped", pod_of(container("app", {EPC: "4Ki"})))
    assert notes(found)["nodeward.io/limits"] == '{"app":{"sgx_epc":"4096"}}'
    said = cluster.refusal("POST", PODS, {**pod_of(container("app", {EPC: "1500m"})), "metadata": {"name": "no"}})
    assert "webhook \\\"create.nodeward.io\\\" denied the request: container 'app' (spec.containers[0])" in said
    assert "resources.limits[sgx.intel.com/epc] is '1500m', must be a whole number from 0 to 2^63-1" in said


def test_a_hung_webhook_refuses_a_create_and_lets_an_update_pass(cluster: Cluster) -> None:
    """Given a webhook that is there and says nothing, when the manifest's seconds are over, then the API server refuses
    a create and lets an update pass as it is. Once the webhook goes on, both are served."""
    made = pod_of(container("app", {EPC: "4Ki"}))
    cluster.create("hung", made)
    first: Record = {"metadata": {"annotations": {"epc-limit.nri.io": "1"}}}
    passed_by = cluster.counted("apiserver_admission_webhook_fail_open_count", "update.nodeward.io")
    os.kill(cluster.webhook.pid, signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, cluster.webhook.pid, os.WSTOPPED)
        said = cluster.refusal("POST", PODS, {**made, "metadata": {"name": "refused"}})
        print(said)
        found = cluster.client.call("PATCH", f"{PODS}/hung", first, STRATEGIC)
    finally:
        os.kill(cluster.webhook.pid, signal.SIGCONT)

    (configuration,) = objects("webhook.yaml")
    assert [at(configuration, "webhooks", n, "failurePolicy") for n in range(2)] == ["Fail", "Ignore"]
    asked = [
        f"https://{service_name()}:{cluster.port}{PATH}?timeout={at(configuration, 'webhooks', n, 'timeoutSeconds')}s"
        for n in range(2)
    ]
    assert 'failed calling webhook \\"create.nodeward.io\\"' in said
    assert asked[0] in said
    assert "context deadline exceeded" in said
    log = (cluster.server.folder / "apiserver.log").read_text(errors="replace").splitlines()
    (passed,) = [line for line in log if "failing open update.nodeward.io" in line]
    print(passed)
    assert asked[1] in passed
    assert "context deadline exceeded" in passed
    assert notes(found)["epc-limit.nri.io"] == "1"
    after = cluster.counted("apiserver_admission_webhook_fail_open_count", "update.nodeward.io")
    assert after == passed_by + 1

    assert is_changed(cluster.create("after", made))
    again: Record = {"metadata": {"annotations": {"epc-limit.nri.io": "2"}}}
    assert "epc-limit.nri.io" not in notes(cluster.client.call("PATCH", f"{PODS}/hung", again, STRATEGIC))
