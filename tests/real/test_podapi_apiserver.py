"""The Pod API of `nodeward node` with a real kube-apiserver: what is shown of a pod's spec, when, and of which pod."""

import json
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeward.people import client as user
from tests import pod_fields
from tests.peers.daemon import Daemon, daemon, until
from tests.peers.kubeclient import STRATEGIC
from tests.peers.nriside import Record
from tests.rigs import cluster as rigs
from tests.rigs.cluster import PODS, part

C = "c4n4ry"
REFERENCE = {"name": C, "key": C, "optional": True}
LABELS = {"labelSelector": {"matchLabels": {"a": C}}, "topologyKey": f"a.io/{C}"}
PROBE = {"httpGet": {"path": f"/{C}", "port": 80, "httpHeaders": [{"name": "Authorization", "value": C}]}}
APP = {
    "name": "app",
    "image": "reg.io/app:1",
    "command": [C],
    "args": [f"--password={C}"],
    "workingDir": f"/{C}",
    "env": [
        {"name": "PASSWORD", "value": C},
        *({"name": "OTHER", "valueFrom": {f"{kind}KeyRef": REFERENCE}} for kind in ("secret", "configMap")),
    ],
    "envFrom": [{"prefix": C, "secretRef": {"name": C}}, {"configMapRef": {"name": C}}],
    "livenessProbe": {**PROBE, "terminationGracePeriodSeconds": 733100},
    "startupProbe": {"exec": {"command": [C]}},
    "readinessProbe": {"grpc": {"port": 80, "service": C}},
    "lifecycle": {"postStart": {"exec": {"command": [C]}}, "preStop": PROBE},
    "volumeMounts": [
        {"name": "data", "mountPath": "/data", "subPath": C},
        {"name": "data", "mountPath": "/x", "subPathExpr": C},
    ],
    "terminationMessagePath": f"/{C}",
    "securityContext": {"seLinuxOptions": {"level": C}, "runAsUser": 733101},
    "resources": {"requests": {"cpu": "3"}, "claims": [{"name": "claim", "request": "gpu"}]},
}
POD: dict[str, object] = {
    "metadata": {
        "name": "web",
        "annotations": {"a": C, "kubectl.kubernetes.io/last-applied-configuration": f'{{"env":"{C}"}}'},
        "labels": {"a": C},
        "finalizers": [f"a.io/{C}"],
        "ownerReferences": [{"apiVersion": "v1", "kind": C, "name": C, "uid": C}],
    },
    "spec": {
        "nodeName": "node-1",
        "serviceAccountName": "default",
        "containers": [APP],
        "initContainers": [{**{name: APP[name] for name in APP if name in ("image", "args", "env")}, "name": "first"}],
        "volumes": [
            {
                "name": "data",
                "csi": {"driver": "d.io", "volumeAttributes": {"token": C}, "nodePublishSecretRef": {"name": C}},
            },
            {"name": "s", "secret": {"secretName": C, "items": [{"key": C, "path": C}]}},
            {"name": "c", "configMap": {"name": C}},
            {"name": "h", "hostPath": {"path": f"/{C}"}},
            {"name": "n", "nfs": {"server": C, "path": f"/{C}"}},
            {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"audience": C, "path": C}}]}},
            {
                "name": "d",
                "downwardAPI": {"items": [{"path": C, "fieldRef": {"fieldPath": f"metadata.labels['{C}']"}}]},
            },
            {"name": "f", "flexVolume": {"driver": f"a.io/{C}", "options": {"pass": C}, "secretRef": {"name": C}}},
        ],
        "imagePullSecrets": [{"name": C}],
        "hostAliases": [{"ip": "1.2.3.4", "hostnames": [C]}],
        "hostname": C,
        "subdomain": C,
        "dnsConfig": {"searches": [C], "options": [{"name": C, "value": C}]},
        "nodeSelector": {"a": C},
        "tolerations": [{"key": C, "operator": "Equal", "value": C}],
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [LABELS]}},
        "topologySpreadConstraints": [{**LABELS, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
        "resourceClaims": [{"name": "claim", "resourceClaimName": "of-web"}],
        "securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": C}], "fsGroup": 733102},
        "readinessGates": [{"conditionType": C}],
    },
}
"""What an API server accepts, with a canary in the values."""


@dataclass(frozen=True, slots=True)
class Cluster(rigs.Cluster):
    daemon: Daemon

    def create(self, name: str = "web", **spec: object) -> str:
        metadata = {**part(POD, "metadata"), "name": name}
        body: Record = json.loads(json.dumps({"metadata": metadata, "spec": {**part(POD, "spec"), **spec}}))
        return str(part(self.client.call("POST", PODS, body), "metadata")["uid"])

    def asked(self, path: str) -> bytes:
        """What the Pod API answers; empty where it knows no such pod, or does not answer yet."""
        try:
            return user.get(path, str(self.daemon.folder / "run" / "podapi.sock"))
        except user.DaemonError as error:
            if "no such pod" not in str(error) and "no daemon" not in str(error):
                raise
            return b""

    def described(self, name: str = "web") -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = json.loads(self.asked(f"/v1/pods/default/{name}?fields=spec") or b"{}")
        return found

    def made(self, name: str = "web", **spec: object) -> str:
        uid = self.create(name, **spec)
        until(lambda: uid.encode() in self.asked("/v1/pods"), "the pod is known")
        return uid

    def reads(self) -> int:
        of_pods = [
            one for one in self.metrics() if one.startswith("apiserver_request_total{") and 'resource="pods"' in one
        ]
        return sum(int(one.rpartition(" ")[2]) for one in of_pods if 'verb="GET"' in one)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nwd")))
        found = stack.enter_context(rigs.running_cluster())
        server = found.server
        (own / "token").write_text(server.token)
        chosen = f"{{url: '{server.base_url}', ca_file: {server.ca_file}, token_file: {own}/token}}"
        more = (f"node_name: {server.node}", "podapi: {enabled: true}")
        made = stack.enter_context(daemon(own / "nri.sock", own, *more, kube=chosen))
        yield Cluster(server, found.client, made)


def fields(value: object) -> object:
    """The names and the structure, without values; none of keys that are no names."""
    if isinstance(value, dict) and "$withheld" not in value:
        return {name: fields(one) for name, one in value.items() if re.fullmatch(r"[\w./-]+", name)}
    return [fields(one) for one in value] if isinstance(value, list) else 0


def test_the_table_of_fields_is_that_of_this_api_server(cluster: Cluster) -> None:
    found = pod_fields.table(cluster.client.call("GET", pod_fields.OPENAPI))
    assert found == pod_fields.TABLE.read_text(), "a field is new: see tests/pod_fields.py for how to write the table"


def test_a_pods_fields_are_all_named_and_no_secret_is_shown(cluster: Cluster) -> None:
    cluster.made()
    shown = cluster.daemon.command("pod", "default/web", "--spec")
    assert (shown.returncode, C in shown.stdout, "PASSWORD" in shown.stdout) == (0, False, True)
    stored = cluster.client.call("GET", f"{PODS}/web")
    assert C in json.dumps(stored)
    assert fields(cluster.described()["spec"]["value"]) == fields(stored)
    note: Record = {"metadata": {"annotations": {"new": C}}}
    cluster.client.call("PATCH", f"{PODS}/web", note, STRATEGIC)
    until(lambda: '"new"' in json.dumps(cluster.described()["spec"]), "the annotation's name is shown")
    files = [path.read_bytes() for path in cluster.daemon.folder.rglob("*") if path.is_file()]
    assert C.encode() not in b"".join(files)


def test_of_200_who_ask_at_once_one_makes_a_read(cluster: Cluster) -> None:
    cluster.made("asked")
    before = cluster.reads()

    def ask(_: int) -> bool:
        try:
            return cluster.described("asked")["spec"]["complete"] is True
        except user.DaemonError as error:
            return "ask again" in str(error)

    with ThreadPoolExecutor(200) as threads:
        assert all(threads.map(ask, range(200)))
    assert cluster.reads() == before + 1


def test_a_pod_of_nearly_the_largest_size_is_shown(cluster: Cluster) -> None:
    cluster.made("large", containers=[{**APP, "args": [C * 230_000]}])
    spec = cluster.described("large")["spec"]
    assert (spec["complete"], C in json.dumps(spec)) == (True, False)


def test_without_the_api_server_a_spec_says_why_it_is_not_whole(cluster: Cluster) -> None:
    """The last test of this module: the API server ends."""
    read, unread = cluster.made("read"), cluster.made("unread")
    assert cluster.described("read")["spec"]["complete"] is True
    cluster.server.process.kill()
    until(lambda: not cluster.described("read")["spec"]["complete"], "the loss is told")
    for name, uid, has_value in (("read", read, True), ("unread", unread, False)):
        found = cluster.described(name)
        assert (found["spec"]["complete"], found["spec"]["value"] is not None) == (False, has_value)
        assert found["spec"]["why"]
        assert (part(found, "identity", "value")["uid"], C in json.dumps(found)) == (uid, False)
