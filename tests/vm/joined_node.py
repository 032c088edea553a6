"""A node inside the guest that is part of a real cluster: containerd, runc, kubelet and daemon here, etcd and
kube-apiserver on the host's side. Kubelet and daemon reach them by a relay that a case can cut.

Pods are made through the API, bound to this node; they carry no annotation of ours, and no webhook exists until a case
creates its configuration. The daemon has the rights of deploy/node and no others.
"""

import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from tests.peers.containerd import Containerd, running_containerd
from tests.peers.image import write_archive
from tests.peers.kubeclient import MERGE, STRATEGIC, KubeClient
from tests.peers.kubelet import Api, Kubelet, running_kubelet
from tests.peers.nriside import Json, Record, member, objects, text
from tests.peers.podnode import container as container
from tests.peers.relay import Relay
from tests.vm.guest import GUEST_ADDRESS, REPOSITORY
from tests.vm.inside import CGROUPS, EPC, KIB, Daemon, until

NAME: Final = "node-1"
ENCLAVE: Final = "sgx.intel.com/enclave"
HEAVY: Final = "heavy"
"""A RuntimeClass whose sandbox needs EPC itself."""
HEAVY_OVERHEAD: Final = 12 * KIB
BOX: Final = "localhost/nodeward/box:1"
UNTIL_TERM: Final = "trap 'exit 0' TERM; while :; do /busybox sleep 1; done"
"""What a shell runs that ends well once it is asked to."""
CONTAINERD_FOLDER: Final = Path("/dev/shm/containerd")
_KUBELET_FOLDER: Final = Path("/dev/shm/kubelet")
PODS: Final = "/api/v1/namespaces/default/pods"
_STARTS_WITHIN_S: Final = 12.0
_SETTINGS: Final = """
kube: {{url: "{url}", token_file: {token_file}, ca_file: {ca_file}}}
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    base_url: str
    ca_file: Path
    token: str
    """An administrator's."""
    node_token: str
    """The kubelet's."""
    daemon_token: str
    """The token of `daemon_user`, who has no right but what the node gives it."""
    daemon_user: str
    admission: Path
    """The file of `tests/vm/admission.py`, where that is asked for."""
    image: Path
    """Nodeward's, as an OCI archive, where that is asked for."""

    def client(self) -> KubeClient:
        return KubeClient(self.base_url, self.ca_file, self.token)


@dataclass(slots=True)
class Pod:
    name: str
    cgroup: Path
    containers: dict[str, Path] = field(default_factory=dict)

    @property
    def sandbox(self) -> Path:
        """The one cgroup below the pod's that is no container's."""
        others = [path for path in self.cgroup.iterdir() if path.is_dir() and path not in self.containers.values()]
        assert len(others) == 1, others
        return others[0]


@dataclass(slots=True)
class Node:
    containerd: Containerd
    kubelet: Kubelet
    daemon: Daemon
    api: KubeClient
    relay: Relay
    """Between the API server and those on the node; cut, it is away."""
    cluster: Cluster
    pods: dict[str, Pod] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    """The open files that hold TEE keys, by who took them."""

    def log(self) -> str:
        pods = objects(self.api.call("GET", PODS).get("items"))
        said = [(member(one, "metadata", "name"), one.get("status")) for one in pods]
        return f"pods: {said}\nkubelet:\n{self.kubelet.log()}\n{self.daemon.log()}"

    def create(self, name: str, containers: Sequence[Record], **spec: Json) -> None:
        """A pod, through the API. It is in the node's network: the guest has no other."""
        self.api.call("POST", PODS, manifest(name, containers, nodeName=NAME, **spec))

    def run(self, name: str, containers: Sequence[Record], **spec: Json) -> Pod:
        self.create(name, containers, **spec)
        return self.running(name, [text(one, "name") for one in containers])

    def running(self, name: str, containers: Sequence[str]) -> Pod:
        """The pod, once the kubelet says that these containers run."""
        found: dict[str, str] = {}

        def all_run() -> bool:
            found.update(self.container_ids(name))
            return set(containers) <= set(found)

        until(all_run, f"the kubelet runs {', '.join(containers)} of {name}", _STARTS_WITHIN_S)
        cgroup = pod_cgroup(str(member(self.api.call("GET", f"{PODS}/{name}"), "metadata", "uid")))
        pod = self.pods[name] = Pod(name, cgroup, {one: cgroup / found[one] for one in found})
        return pod

    def container_ids(self, name: str) -> dict[str, str]:
        """The ids of the pod's containers that run, as the API has them."""
        pod = self.api.find(f"{PODS}/{name}") or {}
        kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        return {
            text(one, "name"): text(one, "containerID").removeprefix("containerd://")
            for kind in kinds
            for one in objects(member(pod, "status", kind))
            if member(one, "state", "running") is not None
        }

    def debug(self, pod: str, name: str) -> Path:
        """Adds an ephemeral container to a pod, as `kubectl debug` does; its cgroup, once it runs."""
        added: Record = {"spec": {"ephemeralContainers": [container(name)]}}
        self.api.call("PATCH", f"{PODS}/{pod}/ephemeralcontainers", added, STRATEGIC)
        return self.running(pod, [name]).containers[name]

    def annotations(self, name: str) -> Json:
        return member(self.api.call("GET", f"{PODS}/{name}"), "metadata", "annotations")

    def delete(self, name: str) -> None:
        self.api.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def born_with(self, cgroup: Path) -> str:
        """`misc.max` in the specification that runc was given for a container; empty where there is none."""
        return "\n".join(self.containerd.told(cgroup.name))


def manifest(name: str, containers: Sequence[Record], **spec: Json) -> Record:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": list(containers),
            **spec,
        },
    }


def pod_cgroup(uid: str) -> Path:
    places = [CGROUPS / "kubepods" / kind / f"pod{uid}" for kind in ("", "burstable", "besteffort")]
    return next(place for place in places if place.is_dir())


def _grant(api: KubeClient, user: str) -> None:
    """Gives the daemon's user the rights that deploy/node ships, and no others."""
    kind = "/apis/rbac.authorization.k8s.io/v1"
    shipped = list(yaml.safe_load_all((REPOSITORY / "deploy/node/rbac.yaml").read_text()))
    (role,) = (one for one in shipped if one["kind"] == "ClusterRole")
    name = role["metadata"]["name"]
    api.call("POST", f"{kind}/clusterroles", role)
    binding: Record = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    api.call("POST", f"{kind}/clusterrolebindings", binding)


def _settings(cluster: Cluster, url: str) -> str:
    token_file = CONTAINERD_FOLDER / "daemon.token"
    token_file.write_text(cluster.daemon_token)
    return _SETTINGS.format(url=url, token_file=token_file, ca_file=cluster.ca_file).lstrip()


@contextmanager
def running_node(url: str, ca_file: str, *words: str) -> Iterator[Node]:
    """The node, ready and with EPC to give away; nobody has started the daemon. The words are those of `Cluster`."""
    token, node_token, daemon_token, daemon_user, admission, image = words
    known = token, node_token, daemon_token, daemon_user
    cluster = Cluster(url, Path(ca_file), *known, Path(admission), Path(image))
    CONTAINERD_FOLDER.mkdir()
    target = urlsplit(cluster.base_url)
    relay = Relay(str(target.hostname), target.port or 443)
    joins = Api(f"https://127.0.0.1:{relay.port}", cluster.ca_file, cluster.node_token)
    api = cluster.client()
    _grant(api, cluster.daemon_user)
    with (
        running_containerd(CONTAINERD_FOLDER) as containerd,
        running_kubelet(containerd, _KUBELET_FOLDER, NAME, joins, GUEST_ADDRESS, "/") as kubelet,
    ):
        box = CONTAINERD_FOLDER / "box.tar"
        write_archive(box, BOX, {"busybox": Path(shutil.which("busybox") or "busybox")})
        loaded = containerd.ctr("images", "import", "--local", str(box))
        assert loaded.returncode == 0, loaded.stderr
        overhead: Json = {"podFixed": {EPC: str(HEAVY_OVERHEAD)}}
        runtime: Record = {"metadata": {"name": HEAVY}, "handler": "runc", "overhead": overhead}
        api.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
        until(lambda: api.node_ready(NAME), "the node is ready", _STARTS_WITHIN_S)
        brought: Json = {EPC: "1Mi", ENCLAVE: "10"}  # as by NFD and Intel's device plugin
        amounts: Record = {"status": {"capacity": brought, "allocatable": brought}}
        api.call("PATCH", f"/api/v1/nodes/{NAME}/status", amounts, MERGE)
        daemon = Daemon(containerd.nri_socket, _settings(cluster, joins.url), NAME)
        try:
            yield Node(containerd, kubelet, daemon, api, relay, cluster)
        finally:
            daemon.end(signal.SIGKILL)
