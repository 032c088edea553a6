"""The manifests of daemon and exporter on a real kube-apiserver, and the Events of a daemon with just those rights."""

import asyncio
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
import yaml

from nodeward.doubles.runtime import SimContainer, SimPod
from nodeward.model.settings import (
    KeySettings,
    KubeSection,
    LedgerSettings,
    MetricsSection,
    Mode,
    Publisher,
    Settings,
)
from tests.component.daemon.rig import EPC, ROOT, Rig, rig, until
from tests.component.daemon.test_keys_told import first_start_on_a_full_disk
from tests.patience import scaled
from tests.peers.daemon import NODEWARD
from tests.peers.kube import ApiServer, running_apiserver
from tests.peers.kubeclient import MERGE, STRATEGIC, ApiError, KubeClient
from tests.peers.nriside import Record, member

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
PODS = "/api/v1/namespaces/default/pods"
PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/nodeward/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/nodeward/configmaps",
    "DaemonSet": "/apis/apps/v1/namespaces/nodeward/daemonsets",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": ROLES,
}
FILES = ("namespace.yaml", "rbac.yaml", "settings.yaml", "daemonset.yaml")
WITHIN_S = scaled(90.0)
BASELINE: Record = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server on which both folders of manifests were applied."""

    server: ApiServer
    client: KubeClient

    def may(self, account: str, verb: str, group: str, resource: str) -> bool:
        """Whether the service account has this right in every namespace."""
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

    def events(self, pod: Mapping[str, object]) -> list[Record]:
        """The Events that `kubectl describe pod` lists: of the older API, by the pod's name and uid."""
        return self.events_on(at(pod, "name"), at(pod, "uid"))

    def events_on(self, name: str, uid: str) -> list[Record]:
        """The Events on what has this name and uid; `kubectl describe node` looks for the node's name as either."""
        selector = f"involvedObject.name={name},involvedObject.uid={uid}"
        found = self.client.call("GET", f"/api/v1/namespaces/default/events?{urlencode({'fieldSelector': selector})}")
        items = found["items"]
        assert isinstance(items, list)
        return [record(one) for one in items if isinstance(one, dict)]


def at(pod: Mapping[str, object], name: str) -> str:
    metadata = pod["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata[name])


def record(value: Mapping[str, object]) -> Record:
    """The same value as the client's type."""
    found: Record = json.loads(json.dumps(value))
    return found


def pod_of(folder: str) -> Record:
    """The spec of the DaemonSet's pod."""
    spec = member(yaml.safe_load((DEPLOY / folder / "daemonset.yaml").read_text()), "spec", "template", "spec")
    assert isinstance(spec, dict)
    return spec


def listed_in(one: Record, name: str) -> list[Record]:
    """The objects in a list of this object."""
    inside = one[name]
    assert isinstance(inside, list)
    return [item for item in inside if isinstance(item, dict)]


def objects(folder: str, name: str) -> list[Record]:
    return list(yaml.safe_load_all((DEPLOY / folder / name).read_text()))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="nwk") as folder, running_apiserver(Path(folder)) as server:
        client = KubeClient(server.base_url, server.ca_file, server.token)
        for where in ("node", "exporter"):
            for name in FILES:
                for one in objects(where, name):
                    if (one["kind"], where) == ("Namespace", "exporter"):
                        continue  # the same one
                    client.call("POST", f"{PLACES[str(one['kind'])]}?fieldValidation=Strict", one)
        yield Cluster(server, client)


def test_both_folders_make_the_same_namespace() -> None:
    assert objects("node", "namespace.yaml") == objects("exporter", "namespace.yaml")


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
    body = record({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"try-{folder}"}, "spec": spec})
    kept = cluster.client.call("POST", "/api/v1/namespaces/nodeward/pods?dryRun=All&fieldValidation=Strict", body)
    assert member(kept, "spec", "serviceAccountName") == f"nodeward-{folder}"
    cluster.client.call("PATCH", "/api/v1/namespaces/default", BASELINE, MERGE)
    with pytest.raises(ApiError, match="PodSecurity"):  # why it has a namespace of its own
        cluster.client.call("POST", f"{PODS}?dryRun=All", body)


TDX = "devices.kubevirt.io/tdx"
LEDGER = Settings().ledger
ROOTED = ("pods-api", "pod-resources", "plugins_registry")
KEYS = {f"{LEDGER.kubelet_dir}/device-plugins": True, **{f"{LEDGER.root}/{name}": False for name in ROOTED}}
QUOTES = {str(Path(LEDGER.keys["tdx"].attestation_socket).parent): False}


@pytest.mark.parametrize(("patch", "added"), [("keys", KEYS), ("quotes", QUOTES)], ids=["keys", "quotes"])
def test_a_patch_of_the_daemon_set_adds_host_folders_and_its_pod_is_admitted(
    cluster: Cluster, patch: str, added: Mapping[str, bool]
) -> None:
    """As by `kubectl patch --patch-file`; `added` says of each folder, at the same path on both sides, whether it is
    writable."""
    (wanted,) = objects("node", f"{patch}.yaml")
    place = f"{PLACES['DaemonSet']}/{member(wanted, 'metadata', 'name')}?dryRun=All&fieldValidation=Strict"
    spec = member(cluster.client.call("PATCH", place, wanted, STRATEGIC), "spec", "template", "spec")
    assert isinstance(spec, dict)
    before = mounted(pod_of("node"))
    assert mounted(spec) == {**before, **{path: (path, written) for path, written in added.items()}}
    assert before.keys().isdisjoint(added)
    body: Record = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"try-{patch}"}, "spec": spec}
    cluster.client.call("POST", "/api/v1/namespaces/nodeward/pods?dryRun=All&fieldValidation=Strict", body)


def mounted(spec: Record) -> dict[str, tuple[str, bool]]:
    """By the path in the container: the host's, empty for none, and whether it is writable."""
    (container,) = listed_in(spec, "containers")
    host = {one["name"]: member(one, "hostPath", "path") for one in listed_in(spec, "volumes")}
    mounts = listed_in(container, "volumeMounts")
    return {str(one["mountPath"]): (str(host[one["name"]] or ""), not one.get("readOnly")) for one in mounts}


def test_the_exporter_has_no_way_to_write_on_the_host() -> None:
    spec = pod_of("exporter")
    (container,) = listed_in(spec, "containers")
    host = [one["name"] for one in listed_in(spec, "volumes") if "hostPath" in one]
    assert host == ["cgroups"]
    assert [one.get("readOnly") for one in listed_in(container, "volumeMounts") if one["name"] in host] == [True]
    assert member(spec, "securityContext", "runAsNonRoot") is True
    assert member(container, "securityContext", "capabilities") == {"drop": ["ALL"]}


def config_check(file: Path) -> subprocess.CompletedProcess[str]:
    command = [NODEWARD, "config", "check", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)


@pytest.mark.parametrize("folder", ["node", "exporter"])
def test_the_settings_are_accepted_by_config_check(tmp_path: Path, folder: str) -> None:
    (one,) = objects(folder, "settings.yaml")
    file = tmp_path / "nodeward.yaml"
    file.write_text(str(member(one, "data", "nodeward.yaml")))
    checked = config_check(file)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    file.write_text(file.read_text().replace("cgroups:", "cgruops:"))
    assert config_check(file).returncode != 0


@contextlib.contextmanager
def being(cluster: Cluster, role: str) -> Iterator[None]:
    """The user of the plain token has the rights of this role, and no others, for as long as the block lasts."""
    binding: Record = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"somebody-is-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}],
    }
    cluster.client.call("POST", ROLES, binding)
    try:
        yield
    finally:
        cluster.client.call("DELETE", f"{ROLES}/somebody-is-{role}")


def joined(cluster: Cluster, folder: Path) -> Callable[[Settings], Settings]:
    """The settings of a daemon that asks this API server with the plain token."""
    token = folder / "token"
    token.write_text(cluster.server.plain_token)
    kube = KubeSection(
        url=cluster.server.base_url, token_file=str(token), ca_file=str(cluster.server.ca_file), enabled=True
    )
    node_name = cluster.server.node
    return lambda settings: replace(settings, kube=kube, node_name=node_name, metrics=MetricsSection())


def made(cluster: Cluster, name: str) -> Record:
    """A pod on the node, whose container declares 4096 bytes."""
    amount = {"sgx.intel.com/epc": "4096"}
    app = {"name": "app", "image": "none", "resources": {"limits": amount, "requests": amount}}
    spec = {"nodeName": cluster.server.node, "containers": [app]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    return cluster.client.call("POST", PODS, record(body))


async def listed(cluster: Cluster, pod: Record, *reasons: str) -> dict[str, Record]:
    """The pod's Events by reason, once there is one for each of these."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            by_reason = {str(one["reason"]): one for one in await asyncio.to_thread(cluster.events, pod)}
            if all(reason in by_reason for reason in reasons):
                return by_reason
            await asyncio.sleep(0.1)


async def run(node: Rig, pod: Record) -> str:
    """The pod runs once the daemon knows the API server's; its container's path below the cgroup root."""
    async with asyncio.timeout(WITHIN_S):
        while "kube" not in [name for name, ready in await sources(node) if ready]:
            await asyncio.sleep(0.05)
    sandbox = await node.runtime.run_pod(SimPod(at(pod, "uid"), at(pod, "name")))
    container = await node.runtime.create_container(sandbox, SimContainer("app"))
    await node.runtime.start(container)
    return f"/kubepods/pod{at(pod, 'uid')}/{container}"


def charge(node: Rig, path: str) -> None:
    """Asks for more than the container may have."""
    with node.files.lock, contextlib.suppress(OSError):
        node.kernel.charge(f"{ROOT}{path}", EPC, 5000)


async def refused_and_restored(node: Rig, cluster: Cluster, pod: Record) -> dict[str, Record]:
    """The pod runs, its limit refuses a charge and is changed by hand; its Events then."""
    path = await run(node, pod)
    await node.until_state(path, "enforced")
    charge(node, path)
    await listed(cluster, pod, "ChargeRefused")
    with node.files.lock:
        node.kernel.write(f"{ROOT}{path}/misc.max", f"{EPC} max".encode())
    return await listed(cluster, pod, "ChargeRefused", "LimitRestored")


def printed(one: Record) -> None:
    print(f"{one['type']} {one['reason']} {member(one, 'involvedObject', 'fieldPath')}: {one['message']}")


def test_the_events_of_a_daemon_with_these_rights_are_listed_on_the_pod(cluster: Cluster, tmp_path: Path) -> None:
    """Given a pod of a real API server whose limit refuses a charge, is changed by hand, and is restored, then
    `kubectl describe pod` would list both."""
    pod = made(cluster, "web")

    async def main() -> None:
        async with rig(tmp_path, change=joined(cluster, tmp_path)) as node:
            found = await refused_and_restored(node, cluster, pod)
            for one in found.values():
                printed(one)
            assert found["ChargeRefused"]["type"] == "Warning"
            assert "was reached: it is 4096 bytes" in str(found["ChargeRefused"]["message"])
            assert member(found["LimitRestored"], "involvedObject", "fieldPath") == "spec.containers{app}"
            assert (await node.health())["kube_events_failed"] == 0

    with being(cluster, "nodeward-node"):
        asyncio.run(main())


def test_the_events_of_a_daemon_with_these_rights_are_listed_on_the_node(cluster: Cluster, tmp_path: Path) -> None:
    """Given keys that are offered, and a journal of grants without room, then `kubectl describe node` would list why
    none is given out."""
    name = cluster.server.node
    row = KeySettings((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)
    ledger = LedgerSettings(Mode.ENFORCE, {"tdx": row}, kubelet_dir=str(tmp_path / "kubelet"))
    asking = joined(cluster, tmp_path)

    async def main() -> None:
        async with rig(tmp_path, change=lambda settings: replace(asking(settings), ledger=ledger)) as node:
            await first_start_on_a_full_disk(node)
            async with asyncio.timeout(WITHIN_S):
                while not (found := await asyncio.to_thread(cluster.events_on, name, name)):
                    await asyncio.sleep(0.1)
            (told,) = found
            print(f"{told['type']} {told['reason']}: {told['message']}")
            assert (told["reason"], member(told, "involvedObject", "kind")) == ("KeysNotRecorded", "Node")
            assert (await node.health())["kube_events_failed"] == 0

    with being(cluster, "nodeward-node"):
        asyncio.run(main())


def test_a_daemon_that_may_make_no_events_counts_it_and_enforces_the_limit(cluster: Cluster, tmp_path: Path) -> None:
    """Given the exporter's rights, which end before Events, when a limit refuses a charge and is changed by hand, then
    what could not be told is counted, and the limit is there again."""
    pod = made(cluster, "untold")

    async def main() -> None:
        async with rig(tmp_path, change=joined(cluster, tmp_path)) as node:
            path = await run(node, pod)
            await node.until_state(path, "enforced")
            charge(node, path)
            await until_failed(node)
            with node.files.lock:
                node.kernel.write(f"{ROOT}{path}/misc.max", f"{EPC} max".encode())
            await until(lambda: node.limit(path) == f"{EPC} 4096", "the limit is restored")
            health = await node.health()
            print({name: health[name] for name in ("kube_events_failed", "kube_events_sent")}, node.limit(path))
            assert health["kube_events_sent"] == 0
        assert cluster.events(pod) == []

    with being(cluster, "nodeward-exporter"):
        asyncio.run(main())


async def until_failed(node: Rig) -> None:
    """Waits for the daemon to count an Event that was not taken."""
    async with asyncio.timeout(WITHIN_S):
        while not (await node.health())["kube_events_failed"]:
            await asyncio.sleep(0.05)


def test_on_a_kernel_without_the_resource_the_pod_is_told_that_its_limit_is_not_enforced(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Given a kernel whose misc controller knows no EPC, when a pod that declares some runs, then `kubectl describe
    pod` would list why its limit is not enforced."""
    pod = made(cluster, "unlimited")

    async def main() -> None:
        async with rig(tmp_path, change=joined(cluster, tmp_path), capacity={"tdx": 16}) as node:
            path = await run(node, pod)
            one = (await listed(cluster, pod, "LimitNotEnforced"))["LimitNotEnforced"]
            printed(one)
            assert one["type"] == "Warning"
            assert member(one, "involvedObject", "fieldPath") == "spec.containers{app}"
            assert EPC in str(one["message"])
            assert (await node.row(path))["state"] == "unsupported"

    with being(cluster, "nodeward-node"):
        asyncio.run(main())


async def sources(node: Rig) -> list[tuple[str, bool]]:
    found = (await node.ask()).get("components")
    return [(str(one["name"]), bool(one["ready"])) for one in found] if isinstance(found, list) else []


def test_the_service_and_its_monitor_lead_to_the_port_of_both_daemonsets_pods(cluster: Cluster) -> None:
    service, monitor = yaml.safe_load_all((DEPLOY / "prometheus" / "servicemonitor.yaml").read_text())
    cluster.client.call("POST", "/api/v1/namespaces/nodeward/services?fieldValidation=Strict", service)
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
