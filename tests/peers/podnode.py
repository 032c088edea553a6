"""A small node as a cluster has one: a real kubelet with containerd, joined to a real API server, and `nodeward node`
beside them, whose user may do what it needs and nothing else.

The daemon's cgroup root is an empty folder, unless a test writes files there.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.peers.containerd import IMAGE, Containerd
from tests.peers.daemon import Daemon, daemon, until
from tests.peers.keynode import PODS, KeyNode, key_node
from tests.peers.kubeclient import STRATEGIC, KubeClient
from tests.peers.kubelet import Api, Kubelet, kubeconfig
from tests.peers.nriside import Json, Record, member, number, objects, text
from tests.peers.pki import client as certificate_of

EPC = "sgx.intel.com/epc"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES: list[Json] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
]
"""All that nodeward needs to be allowed."""
END_SOON: Record = {"terminationGracePeriodSeconds": 1}
"""A signal that comes before the program's first line is lost."""
FROM_SPEC = "the pod's spec in the API server"


@dataclass(frozen=True, slots=True)
class Shown:
    wanted: int | None
    state: str = "unsupported"
    source: str = FROM_SPEC


@dataclass(slots=True)
class Node:
    keys: KeyNode
    """The same node as the tests of device plugins have it."""
    nodeward: Daemon

    @property
    def api(self) -> KubeClient:
        return self.keys.api

    @property
    def containerd(self) -> Containerd:
        return self.keys.containerd

    @property
    def kubelet(self) -> Kubelet:
        return self.keys.kubelet

    def view(self) -> Record:
        return self.nodeward.shown()

    def rows(self) -> list[Record]:
        return objects(self.nodeward.rows())

    def shows(self, container: str) -> bool:
        return any(row.get("id") == container for row in self.rows())

    def shown(self, pod: str) -> dict[str, Shown]:
        return shown_in(self.rows(), pod)

    def becomes(self, pod: str, expected: dict[str, Shown]) -> None:
        try:
            until(lambda: self.shown(pod) == expected, "status")
        except AssertionError:
            assert self.shown(pod) == expected, f"{self.api.find(f'{PODS}/{pod}')}\n{self.nodeward.log()[-2000:]}"

    def container_id(self, pod: str, container: str) -> str:
        found = [row for row in self.rows() if (row.get("pod"), row.get("container")) == (pod, container)]
        return text(found[0], "id")

    def create(self, name: str, containers: Sequence[Json], *, notes: Record | None = None, **spec: Json) -> None:
        lies: Record = notes or {"epc-limit.nri.io/pod": "4096"}
        body: Record = {"nodeName": "node-1", **END_SOON, "containers": list(containers), **spec}
        self.api.call("POST", PODS, {"metadata": {"name": name, "annotations": lies}, "spec": body})

    def end(self, pod: str, container: str) -> None:
        """Asks a container's process to end, until it hears it and ends well; not before its start has succeeded, which
        would fail and be tried with another container. One that is asked before the first line of its program ends with
        an error and is started again: then that one is asked."""
        while self._ended_with(pod, container) != 0:
            pass

    def _ended_with(self, pod: str, container: str) -> int:
        it = pod, container
        until(lambda: it in [(row.get("pod"), row.get("container")) for row in self.rows()], f"{pod}/{container}")
        found = self.container_id(pod, container)
        until(lambda: found in self.started(pod), f"the start of {pod}/{container}")

        def ended() -> bool:
            self.containerd.ctr("tasks", "kill", "-s", "SIGTERM", found)
            return not self.shows(found)

        until(ended, f"the end of {pod}/{container}")
        until(lambda: found in self.exit_codes(pod), f"the exit code of {pod}/{container}")
        return self.exit_codes(pod)[found]

    def exit_codes(self, pod: str) -> dict[str, int]:
        states = [member(one, kind, "terminated") for one in self._statuses(pod) for kind in ("state", "lastState")]
        return {
            text(state, "containerID").removeprefix("containerd://"): number(state, "exitCode")
            for state in states
            if isinstance(state, dict)
        }

    def started(self, pod: str) -> set[str]:
        return {
            text(one, "containerID").removeprefix("containerd://")
            for one in self._statuses(pod)
            if member(one, "state", "running") is not None
        }

    def _statuses(self, pod: str) -> list[Record]:
        status = self.keys.status(pod)
        return [one for kind in ("initContainerStatuses", "containerStatuses") for one in objects(status.get(kind))]

    def kill_sandbox(self, pod: str) -> None:
        with self.containerd.cri() as cri:
            items = objects(cri.call("ListPodSandbox").get("items"))
            found = [text(one, "id") for one in items if member(one, "metadata", "name") == pod]
        assert self.containerd.ctr("tasks", "kill", "-s", "SIGKILL", found[0]).returncode == 0

    @contextmanager
    def other_settings(self, settings: str) -> Iterator[None]:
        before = self.nodeward.config.read_text()
        try:
            self._take_over(settings)
            yield
        finally:
            self._take_over(before)

    def _take_over(self, settings: str) -> None:
        assert self.nodeward.process is not None
        seen = self.nodeward.log().count("settings=accepted")
        self.nodeward.config.write_text(settings)
        self.nodeward.process.send_signal(signal.SIGHUP)
        until(lambda: self.nodeward.log().count("settings=accepted") > seen, "the settings are taken over")

    def delete(self, pod: str) -> None:
        self.keys.delete(pod)
        self.becomes(pod, {})


def shown_in(rows: Sequence[Json], pod: str) -> dict[str, Shown]:
    return {
        text(row, "container"): Shown(_wanted(row), text(row, "state"), text(row, "source"))
        for row in rows
        if isinstance(row, dict) and row.get("pod") == pod
    }


def _wanted(row: Record) -> int | None:
    first = next(iter(objects(row.get("resources"))), {})
    wanted = first.get("wanted")
    return wanted if isinstance(wanted, int) else None


def container(name: str, epc: str = "", **more: Json) -> Record:
    declared: Record = {"resources": {"limits": {EPC: epc}}} if epc else {}
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", **declared, **more}


def prepare(api: KubeClient) -> None:
    amount: Record = {EPC: "1Gi"}
    api.call("PATCH", "/api/v1/nodes/node-1/status", {"status": {"capacity": amount, "allocatable": amount}}, STRATEGIC)
    api.call("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "nodeward"}, "rules": RULES})
    role: Record = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nodeward"}
    who: list[Json] = [{"kind": "User", "name": "nodeward"}]
    api.call(
        "POST", f"{RBAC}/clusterrolebindings", {"metadata": {"name": "nodeward"}, "roleRef": role, "subjects": who}
    )
    overhead: Record = {"podFixed": {EPC: "3Mi"}}
    heavy: Record = {"metadata": {"name": "heavy"}, "handler": "runc", "overhead": overhead}
    api.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", heavy)


@contextmanager
def running_node() -> Iterator[Node]:
    with key_node() as keys:
        server = keys.server
        prepare(keys.api)
        folder = keys.containerd.folder / "nodeward"
        folder.mkdir()
        shown = certificate_of(folder, server.clients, "nodeward")
        (folder / "kubeconfig").write_text(kubeconfig(Api(server.base_url, server.ca_file, shown=shown)))
        kube = f"{{kubeconfig: {folder}/kubeconfig}}"
        more = (f"node_name: {server.node}", "podapi: {enabled: true}")
        with daemon(keys.containerd.nri_socket, folder, *more, kube=kube) as nodeward:
            until(lambda: nodeward.registered() and nodeward.shown().get("api") == "answers", "the daemon is connected")
            yield Node(keys, nodeward)
