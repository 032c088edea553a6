"""`nodeward doctor` before a real kube-apiserver, as node and as administrator; programs; this host."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.core.finding import Access, Registered
from nodeward.features.settings import Settings
from nodeward.host.clock import SystemClock
from nodeward.people.doctor.cluster import api
from nodeward.people.doctor.facts import ApiFacts, Facts
from nodeward.people.doctor.findings import findings, version
from nodeward.people.doctor.machine import said_by
from tests.patience import scaled
from tests.peers.find import require
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


def test_real_programs_tell_their_versions() -> None:
    home = require("containerd") / "bin"

    assert version(said_by(str(home / "containerd"))) >= (2,)
    assert version(said_by(str(home / "runc"))) >= (1, 2)


def test_this_host_is_hybrid_and_without_misc_if_its_mounts_say_so() -> None:
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
        assert done.returncode == 1
        assert found["cgroup-hybrid"]["severity"] == "error"
        v2 = next(place for place, kind, _ in trees if kind == "cgroup2")
        what = f"cgroup v1 at /sys/fs/cgroup, and cgroup v2 at {v2}, and misc is in none of its trees"
        assert found["cgroup-hybrid"]["what"] == f"the node is hybrid: {what}"


def _handed(place: str) -> list[str]:
    return (Path(place) / "cgroup.controllers").read_text().split()
