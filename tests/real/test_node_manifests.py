"""The manifests of daemon and exporter on a real kube-apiserver, and the Events of a daemon with just those rights."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
import yaml

from nodeward.features.settings import MetricsSection, Settings
from nodeward.settings import load
from nodeward_sim.doubles.runtime import SimContainer, SimPod
from tests.component.daemon.rig import EPC, ROOT, Rig, rig
from tests.patience import scaled
from tests.peers.kubeclient import MERGE, STRATEGIC, ApiError
from tests.peers.nriside import Record, member
from tests.rigs import cluster as rigs
from tests.rigs.cluster import DEPLOY, PODS, listed, make, manifests, part, place_of

FILES = ("namespace.yaml", "rbac.yaml", "settings.yaml", "daemonset.yaml")
OWN = "/api/v1/namespaces/nodeward"
WITHIN_S = scaled(90.0)
BASELINE: Record = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}


@dataclass(frozen=True, slots=True)
class Cluster(rigs.Cluster):
    def may(self, account: str, verb: str, group: str, resource: str) -> bool:
        asked: Record = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:nodeward:{account}",
                "resourceAttributes": {"verb": verb, "group": group, "resource": resource},
            },
        }
        answer = self.client.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", asked)
        return member(answer, "status", "allowed") is True

    def events(self, pod: Record) -> list[Record]:
        metadata = part(pod, "metadata")
        selector = f"involvedObject.name={metadata['name']},involvedObject.uid={metadata['uid']}"
        found = self.client.call("GET", f"/api/v1/namespaces/default/events?{urlencode({'fieldSelector': selector})}")
        return listed(found["items"])


def pod_of(folder: str) -> Record:
    (found,) = (one for one in manifests(f"{folder}/daemonset.yaml") if one["kind"] == "DaemonSet")
    return part(found, "spec", "template", "spec")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with rigs.running_cluster() as found:
        for one in (one for where in ("node", "exporter") for name in FILES for one in manifests(f"{where}/{name}")):
            if one["kind"] != "Namespace" or found.client.find(OWN) is None:
                make(found.client, one)
        yield Cluster(found.server, found.client)


def test_both_folders_make_the_same_namespace() -> None:
    assert manifests("node/namespace.yaml") == manifests("exporter/namespace.yaml")


@pytest.mark.parametrize(("folder", "events"), [("node", True), ("exporter", False)])
def test_an_account_may_read_pods_and_only_the_daemons_may_make_events_and_read_its_node(
    cluster: Cluster, folder: str, events: bool
) -> None:
    account = f"nodeward-{folder}"
    assert [cluster.may(account, verb, "", "pods") for verb in ("get", "list", "watch")] == [True] * 3
    assert [cluster.may(account, verb, "events.k8s.io", "events") for verb in ("create", "patch")] == [events] * 2
    others = [("", "pods", ("create", "update", "patch", "delete")), ("", "secrets", ("get", "list"))]
    others += [("events.k8s.io", "events", ("get", "list", "delete")), ("", "nodes", ("list", "patch"))]
    assert cluster.may(account, "get", "", "nodes") is events
    assert [cluster.may(account, verb, group, name) for group, name, verbs in others for verb in verbs] == [False] * 11


@pytest.mark.parametrize("folder", ["node", "exporter"])
def test_a_pod_of_the_daemon_set_is_admitted_to_its_namespace(cluster: Cluster, folder: str) -> None:
    spec = pod_of(folder)
    body: Record = {"metadata": {"name": f"try-{folder}"}, "spec": spec}
    kept = cluster.client.call("POST", f"{OWN}/pods?dryRun=All&fieldValidation=Strict", body)
    assert member(kept, "spec", "serviceAccountName") == f"nodeward-{folder}"
    cluster.client.call("PATCH", "/api/v1/namespaces/default", BASELINE, MERGE)
    with pytest.raises(ApiError, match="PodSecurity"):  # why it has a namespace of its own
        cluster.client.call("POST", f"{PODS}?dryRun=All", body)


TDX = "devices.kubevirt.io/tdx"
SECTION = Settings().keys
ROOTED = ("pods-api", "pod-resources", "plugins_registry")
KEYS = {f"{SECTION.kubelet_dir}/device-plugins": True, **{f"{SECTION.root}/{name}": False for name in ROOTED}}
QUOTES = {str(Path(SECTION.kinds["tdx"].attestation_socket).parent): False}


DRIVERS = SECTION.dra.driver, Settings().limits.dra.driver, Settings().cpus.dra.driver
CLAIMS = dict.fromkeys(
    [
        *(f"{SECTION.root}/plugins/{driver}" for driver in DRIVERS),
        *(f"{SECTION.root}/plugins_registry", SECTION.dra.cdi_dir),
    ],
    True,
)


@pytest.mark.parametrize(
    ("patch", "added"), [("keys", KEYS), ("dra", CLAIMS), ("quotes", QUOTES)], ids=["keys", "dra", "quotes"]
)
def test_a_patch_of_the_daemon_set_adds_host_folders_and_its_pod_is_admitted(
    cluster: Cluster, patch: str, added: Mapping[str, bool]
) -> None:
    """As by `kubectl patch --patch-file`; `added` says of each folder, at the same path on both sides, whether it is
    writable."""
    (wanted,) = manifests(f"node/{patch}.yaml")
    place = f"{place_of(wanted)}/{member(wanted, 'metadata', 'name')}?dryRun=All&fieldValidation=Strict"
    spec = member(cluster.client.call("PATCH", place, wanted, STRATEGIC), "spec", "template", "spec")
    assert isinstance(spec, dict)
    before = mounted(pod_of("node"))
    assert mounted(spec) == {**before, **{path: (path, written) for path, written in added.items()}}
    assert before.keys().isdisjoint(added)
    body: Record = {"metadata": {"name": f"try-{patch}"}, "spec": spec}
    cluster.client.call("POST", f"{OWN}/pods?dryRun=All&fieldValidation=Strict", body)


def mounted(spec: Record) -> dict[str, tuple[str, bool]]:
    (container,) = listed(spec["containers"])
    host = {one["name"]: member(one, "hostPath", "path") for one in listed(spec["volumes"])}
    mounts = listed(container["volumeMounts"])
    return {str(one["mountPath"]): (str(host[one["name"]] or ""), not one.get("readOnly")) for one in mounts}


def test_the_exporter_has_no_way_to_write_on_the_host() -> None:
    spec = pod_of("exporter")
    (container,) = listed(spec["containers"])
    host = [one["name"] for one in listed(spec["volumes"]) if "hostPath" in one]
    assert host == ["cgroups"]
    assert [one.get("readOnly") for one in listed(container["volumeMounts"]) if one["name"] in host] == [True]
    assert member(spec, "securityContext", "runAsNonRoot") is True
    assert member(container, "securityContext", "capabilities") == {"drop": ["ALL"]}


@pytest.mark.parametrize("folder", ["node", "exporter"])
def test_the_settings_are_accepted(tmp_path: Path, folder: str) -> None:
    (one,) = manifests(f"{folder}/settings.yaml")
    file = tmp_path / "nodeward.yaml"
    file.write_text(str(member(one, "data", "nodeward.yaml")))
    load.load(str(file), {})


def made(cluster: Cluster, name: str) -> Record:
    amount = {"sgx.intel.com/epc": "4096"}
    app = {"name": "app", "image": "none", "resources": {"limits": amount, "requests": amount}}
    spec = {"nodeName": cluster.server.node, "containers": [app]}
    return cluster.client.call("POST", PODS, rigs.record({"metadata": {"name": name}, "spec": spec}))


async def told(cluster: Cluster, pod: Record, *reasons: str) -> dict[str, Record]:
    async with asyncio.timeout(WITHIN_S):
        while True:
            by_reason = {str(one["reason"]): one for one in await asyncio.to_thread(cluster.events, pod)}
            if all(reason in by_reason for reason in reasons):
                return by_reason
            await asyncio.sleep(0.1)


async def run(node: Rig, pod: Record) -> str:
    """The pod runs once the daemon knows the API server's; its container's path below the cgroup root."""
    async with asyncio.timeout(WITHIN_S):
        while not any(one["name"] == "kube" and one["ready"] for one in listed((await node.ask())["components"])):
            await asyncio.sleep(0.05)
    uid = str(member(pod, "metadata", "uid"))
    sandbox = await node.runtime.run_pod(SimPod(uid, str(member(pod, "metadata", "name"))))
    container = await node.runtime.create_container(sandbox, SimContainer("app"))
    await node.runtime.start(container)
    return f"/kubepods/pod{uid}/{container}"


async def test_the_events_of_a_daemon_with_these_rights_are_listed_on_the_pod(cluster: Cluster, tmp_path: Path) -> None:
    role: Record = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nodeward-node"}
    subject: Record = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}
    binding: Record = {"metadata": {"name": "somebody-is-it"}, "roleRef": role, "subjects": [subject]}
    cluster.client.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    pod = made(cluster, "web")

    def joined(settings: Settings) -> Settings:
        kube = replace(cluster.section(tmp_path), enabled=True, events=True)
        return replace(settings, kube=kube, node_name=cluster.server.node, metrics=MetricsSection())

    async with rig(tmp_path, change=joined) as node:
        path = await run(node, pod)
        await node.until_state(path, "enforced")
        with node.files.lock, contextlib.suppress(OSError):
            node.kernel.charge(f"{ROOT}{path}", EPC, 5000)
        await told(cluster, pod, "ChargeRefused")
        with node.files.lock:
            node.kernel.write(f"{ROOT}{path}/misc.max", f"{EPC} max".encode())
        found = await told(cluster, pod, "ChargeRefused", "LimitRestored")
        for one in found.values():
            print(f"{one['type']} {one['reason']} {member(one, 'involvedObject', 'fieldPath')}: {one['message']}")
        assert found["ChargeRefused"]["type"] == "Warning"
        assert "was reached: it is 4096 bytes" in str(found["ChargeRefused"]["message"])
        assert member(found["LimitRestored"], "involvedObject", "fieldPath") == "spec.containers{app}"
        assert (await node.health())["kube_events_failed"] == 0


def test_the_service_and_its_monitor_lead_to_the_port_of_both_daemonsets_pods(cluster: Cluster) -> None:
    service, monitor = yaml.safe_load_all((DEPLOY / "prometheus" / "servicemonitor.yaml").read_text())
    make(cluster.client, service)
    (port,) = service["spec"]["ports"]
    (endpoint,) = monitor["spec"]["endpoints"]

    assert endpoint["port"] == port["name"]
    assert endpoint["honorLabels"] is True
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    for where in ("node", "exporter"):
        daemons = yaml.safe_load((DEPLOY / where / "daemonset.yaml").read_text())
        settings = yaml.safe_load((DEPLOY / where / "settings.yaml").read_text())
        assert daemons["metadata"]["namespace"] == service["metadata"]["namespace"]
        pod = daemons["spec"]["template"]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        assert port["targetPort"] in [listened["containerPort"] for listened in container["ports"]]
        listen = yaml.safe_load(settings["data"]["nodeward.yaml"])["metrics"]["listen"]
        assert listen == f":{port['targetPort']}"
