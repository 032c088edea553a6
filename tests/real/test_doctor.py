"""`nodeward doctor` before a real kube-apiserver, as node, administrator, somebody and nobody; programs; this host."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.app.doctor.cluster import api
from nodeward.app.doctor.machine import said_by
from nodeward.engine.show.doctor import findings, version
from nodeward.model.doctor import Access, ApiFacts, Facts, Registered
from nodeward.model.settings import KubeSection, Settings
from tests.patience import scaled
from tests.peers.find import require
from tests.peers.kube import ApiServer, running_apiserver
from tests.peers.kubeclient import KubeClient
from tests.peers.nriside import Record, member

WEBHOOK = "sgx.mutator.webhooks.intel.com"
LABELS: Record = {"app": "nri-sgx-epc"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server with Intel's webhook and the sgx-epc DaemonSet, by their names."""
    with running_apiserver(tmp_path_factory.mktemp("kube")) as running:
        admin = KubeClient(running.base_url, running.ca_file, running.token)
        admin.call(
            "POST",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            {
                "metadata": {"name": "intelsgxwebhook-mutating-webhook-configuration"},
                "webhooks": [
                    {
                        "name": WEBHOOK,
                        "clientConfig": {"url": "https://127.0.0.1:1/"},
                        "admissionReviewVersions": ["v1"],
                        "sideEffects": "None",
                        "failurePolicy": "Ignore",
                    }
                ],
            },
        )
        container: Record = {"name": "nri-sgx-epc", "image": "example.invalid/nri-sgx-epc:1"}
        admin.call(
            "POST",
            "/apis/apps/v1/namespaces/kube-system/daemonsets",
            {
                "metadata": {"name": "nri-sgx-epc"},
                "spec": {
                    "selector": {"matchLabels": LABELS},
                    "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}},
                },
            },
        )
        yield running


def looked(server: ApiServer, token: str, folder: Path, ca_file: Path | None = None) -> ApiFacts:
    (folder / "token").write_text(token)
    kube = KubeSection(url=server.base_url, token_file=str(folder / "token"), ca_file=str(ca_file or server.ca_file))
    return api(Settings(node_name=server.node, kube=kube), {}, SystemClock())


def codes(facts: ApiFacts) -> list[str]:
    return [finding.code for finding in findings(replace(Facts(), api=facts))]


def test_a_node_may_list_its_pods_and_not_look_at_the_cluster(server: ApiServer, tmp_path: Path) -> None:
    found = looked(server, server.node_token, tmp_path)

    assert found.access is Access.OK, found.detail
    assert (found.webhooks, found.daemon_sets) == (None, None)
    assert found.no_events == (), "Kubernetes' own role for nodes has Events"
    assert found.behind_s is not None
    assert abs(found.behind_s) < 5
    assert codes(found).count("cluster-not-looked-at") == 3


def test_an_administrator_sees_intels_webhook_and_sgx_epc(server: ApiServer, tmp_path: Path) -> None:
    found = looked(server, server.token, tmp_path)

    assert found.webhooks == (Registered(WEBHOOK, has_ca=True),)
    assert found.daemon_sets == ("kube-system/nri-sgx-epc",)
    assert {"intel-sgx-webhook", "sgx-epc"} <= set(codes(found))


def test_who_may_list_pods_and_only_create_events_is_told_what_is_missing(server: ApiServer, tmp_path: Path) -> None:
    admin = KubeClient(server.base_url, server.ca_file, server.token)
    rbac, accounts = "/apis/rbac.authorization.k8s.io/v1", "/api/v1/namespaces/default/serviceaccounts"
    rules: list[Record] = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
    ]
    named: Record = {"name": "half"}
    admin.call("POST", accounts, {"metadata": named})
    admin.call("POST", f"{rbac}/clusterroles", {"metadata": named, "rules": list(rules)})
    role: Record = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "half"}
    subject: Record = {"kind": "ServiceAccount", "name": "half", "namespace": "default"}
    admin.call("POST", f"{rbac}/clusterrolebindings", {"metadata": named, "roleRef": role, "subjects": [subject]})
    token = member(admin.call("POST", f"{accounts}/half/token", {"spec": {}}), "status", "token")
    until = time.monotonic() + 60
    found = looked(server, str(token), tmp_path)
    while found.access is not Access.OK and time.monotonic() < until:  # its rules reach the server by a watch
        found = looked(server, str(token), tmp_path)

    assert found.no_events == ("patch",), found
    assert "events-denied" in codes(found)


@pytest.mark.parametrize(("token", "status"), [("", "403"), ("token-of-nobody", "401")], ids=["403", "401"])
def test_who_may_not_is_told_so(server: ApiServer, tmp_path: Path, token: str, status: str) -> None:
    found = looked(server, token or server.plain_token, tmp_path)

    assert found.access is Access.DENIED
    assert f" {status} " in found.detail
    assert "api-denied" in codes(found)


def test_a_server_of_another_authority_is_not_trusted(server: ApiServer, tmp_path: Path) -> None:
    found = looked(server, server.token, tmp_path, ca_file=server.folder / "clients.crt")

    assert found.access is Access.CERTIFICATE
    assert "api-certificate" in codes(found)


def test_real_programs_tell_their_versions() -> None:
    home = require("containerd") / "bin"

    assert version(said_by(str(home / "containerd"))) >= (2,)
    assert version(said_by(str(home / "runc"))) >= (1, 2)


def test_this_host_is_hybrid_and_without_misc_if_its_mounts_say_so() -> None:
    """Then that is an error, and the only one of its cgroups; on another host none says so."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    trees = [(one[1], one[2], one[3].split(",")) for one in mounts if one[2] in ("cgroup", "cgroup2")]
    controllers = [name for place, kind, how in trees for name in (how if kind == "cgroup" else _handed(place))]
    kinds = {kind for _, kind, _ in trees}
    is_unified = any((place, kind) == ("/sys/fs/cgroup", "cgroup2") for place, kind, _ in trees)
    is_hybrid = kinds == {"cgroup", "cgroup2"} and not is_unified and "misc" not in controllers

    words = [str(Path(sys.executable).parent / "nodeward"), "doctor", "--set", "kube.enabled=false", "-o", "json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=scaled(120), check=False)
    found = {one["code"]: one for one in json.loads(done.stdout)["findings"]}
    print(done.returncode, found.get("cgroup-hybrid"))

    assert ("cgroup-hybrid" in found) == is_hybrid
    if is_hybrid:
        assert done.returncode == 2
        assert found["cgroup-hybrid"]["severity"] == "error"
        v2 = next(place for place, kind, _ in trees if kind == "cgroup2")
        what = f"cgroup v1 at /sys/fs/cgroup, and cgroup v2 at {v2}, and misc is in none of its trees"
        assert found["cgroup-hybrid"]["what"] == f"the node is hybrid: {what}"


def _handed(place: str) -> list[str]:
    """The controllers of a tree of cgroup v2."""
    return (Path(place) / "cgroup.controllers").read_text().split()
