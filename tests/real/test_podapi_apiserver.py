"""The Pod API of `nodeward node` with a real kube-apiserver: what is shown of a pod's spec, when, and of which pod."""

import json
import re
import tempfile
from collections.abc import Iterator
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
APP = {
    "name": "app",
    "image": "reg.io/app:1",
    "args": [f"--password={C}"],
    "env": [{"name": "PASSWORD", "value": C}, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": C, "key": C}}}],
    "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": C}]}},
    "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": C}],
    "resources": {"requests": {"cpu": "3"}},
}
VOLUMES = [
    {"name": "data", "csi": {"driver": "d.io", "volumeAttributes": {"token": C}, "nodePublishSecretRef": {"name": C}}},
    {"name": "s", "secret": {"secretName": C, "items": [{"key": C, "path": C}]}},
    {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"audience": C, "path": C}}]}},
]
POD: dict[str, object] = {
    "metadata": {
        "annotations": {"a": C, "kubectl.kubernetes.io/last-applied-configuration": f'{{"env":"{C}"}}'},
        "labels": {"a": C},
        "ownerReferences": [{"apiVersion": "v1", "kind": C, "name": C, "uid": C}],
    },
    "spec": {
        "nodeName": "node-1",
        "serviceAccountName": "default",
        "containers": [APP],
        "initContainers": [{**{name: APP[name] for name in APP if name in ("image", "args", "env")}, "name": "first"}],
        "volumes": VOLUMES,
        "imagePullSecrets": [{"name": C}],
        "hostAliases": [{"ip": "1.2.3.4", "hostnames": [C]}],
        "nodeSelector": {"a": C},
        "tolerations": [{"key": C, "operator": "Equal", "value": C}],
    },
}
"""What an API server accepts, with a canary in the values; tests/unit/formats/test_pod_redaction.py has every field."""


@dataclass(frozen=True, slots=True)
class Cluster(rigs.Cluster):
    daemon: Daemon

    def made(self, name: str = "web", **spec: object) -> str:
        metadata = {**part(POD, "metadata"), "name": name}
        body: Record = json.loads(json.dumps({"metadata": metadata, "spec": {**part(POD, "spec"), **spec}}))
        uid = str(part(self.client.call("POST", PODS, body), "metadata")["uid"])
        until(lambda: uid.encode() in self.asked("/v1/pods"), "the pod is known")
        return uid

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


def test_a_pod_of_nearly_the_largest_size_is_shown(cluster: Cluster) -> None:
    cluster.made("large", containers=[{**APP, "args": [C * 230_000]}])
    spec = cluster.described("large")["spec"]
    assert (spec["complete"], C in json.dumps(spec)) == (True, False)
