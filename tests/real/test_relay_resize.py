"""What a real kubelet makes of a refused resize and a refused checkpoint: a pod of a VM of a fixed size, by the relay.

It is a VM by the configuration that the relay reads. Its handler runs containers by runc, which could do both.
"""

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.component.relay.rig import node_process, relay_process
from tests.peers.daemon import WITHIN_S, until
from tests.peers.find import require
from tests.peers.kubeclient import STRATEGIC, KubeClient
from tests.peers.kubelet import Kubelet
from tests.peers.nriside import Record, member
from tests.real.test_kata_host import IN_ETC
from tests.rigs.cluster import PODS, running_cluster
from tests.rigs.containers import BOX, NODE, joined_kubelet, with_box

HANDLER = "kata-fixed"


@dataclass(frozen=True, slots=True)
class Node:
    api: KubeClient
    kubelet: Kubelet

    def resize(self, cpu: str) -> None:
        wanted: Record = {"spec": {"containers": [{"name": "app", "resources": resources(cpu)}]}}
        self.api.call("PATCH", f"{PODS}/vm/resize", wanted, STRATEGIC)

    def said(self) -> str:
        """Why the resize has not come to its end; empty where none is under way."""
        found = member(self.api.call("GET", f"{PODS}/vm"), "status", "conditions")
        assert isinstance(found, list)
        said = [one for one in found if isinstance(one, dict) and one.get("type") == "PodResizeInProgress"]
        return str(said[0].get("message", "")) if said and said[0].get("reason") == "Error" else ""

    def container(self) -> list[object]:
        found = member(self.api.call("GET", f"{PODS}/vm"), "status", "containerStatuses")
        assert isinstance(found, list)
        (one,) = found
        assert isinstance(one, dict)
        return [one["containerID"], one["restartCount"], one["resources"]]

    def checkpoint(self) -> str:
        """What kubelet answers to who asks for one."""
        url = f"https://127.0.0.1:{self.kubelet.plan.port}/checkpoint/default/vm/app"
        trust = ssl._create_unverified_context()
        asked = urllib.request.Request(url, method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=WITHIN_S, context=trust)
        with refused.value as answer:
            return answer.read().decode()


def resources(cpu: str) -> Record:
    return {"requests": {"cpu": cpu, "memory": "32Mi"}, "limits": {"cpu": cpu, "memory": "32Mi"}}


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Iterator[Node]:
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(own=NODE))
        containerd = stack.enter_context(with_box({HANDLER: require("containerd") / "bin" / "runc"}))
        etc, listen, settings = tmp_path / "etc", containerd.folder / "cri.sock", tmp_path / "nodeward.yaml"
        (etc / "containerd").mkdir(parents=True)
        (etc / "containerd" / "config.toml").write_text(
            f"[plugins.cri.containerd.runtimes.{HANDLER}]\nruntime_type = 'io.containerd.kata.v2'\n"
            f"options = {{ConfigPath = '{etc}/kata.toml'}}\n"
        )
        (etc / "kata.toml").write_text("[hypervisor.qemu]\n[runtime]\nstatic_sandbox_resource_mgmt = true\n")
        settings.write_text(
            f"run_dir: {tmp_path}/run\nstate_dir: {tmp_path}/state\nnri: {{enabled: false}}\nkube: {{enabled: false}}\n"
            "limits: {mode: off}\nrelay: {vm_resize: refuse, vm_checkpoint: refuse}\n"
        )
        within = ("unshare", "-m", "sh", "-c", IN_ETC, str(etc))
        stack.enter_context(relay_process(listen, containerd.cri_socket, "--config", str(settings), within=within))
        stack.enter_context(node_process(tmp_path, within=within))
        kubelet, api = stack.enter_context(joined_kubelet(cluster, containerd, listen)), cluster.client
        api.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "vm"}, "handler": HANDLER})
        app: Record = {"name": "app", "image": BOX, "imagePullPolicy": "Never", "resources": resources("200m")}
        spec: Record = {
            "nodeName": NODE,
            "runtimeClassName": "vm",
            "terminationGracePeriodSeconds": 1,
            "containers": [app | {"command": ["/busybox", "sleep", "100000"]}],
        }
        api.call("POST", PODS, {"metadata": {"name": "vm"}, "spec": spec})
        until(lambda: member(api.call("GET", f"{PODS}/vm"), "status", "phase") == "Running", "the pod runs")
        yield Node(api, kubelet)


def test_kubelet_tells_why_a_vm_is_neither_resized_nor_checkpointed_and_the_pod_goes_on(node: Node) -> None:
    before = node.container()
    node.resize("300m")
    until(lambda: "infeasible: VMs of the runtime handler kata-fixed" in node.said(), "more is refused")
    assert "UpdatePodSandboxResources" in node.said()
    node.resize("100m")
    until(lambda: "CPU shares (204 to 102); the CPU quota (20000 to 10000)" in node.said(), "less is refused")
    assert "a container of the runtime handler kata-fixed runs in a VM" in node.checkpoint()
    assert node.container() == before
    node.resize("200m")
    until(lambda: node.said() == "", "the resize is taken back")
    assert node.container() == before
