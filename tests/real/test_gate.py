"""A gate before a pod's start: real kubelet, relay, node daemon and containerd. No process of a gated container exists
before its verdict, whatever dies meanwhile. The runtime handler with the gate is `runc`, by a RuntimeClass.
"""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from nodeward.people import client
from tests.component.relay.rig import log_of, relay_process
from tests.peers.containerd import Containerd
from tests.peers.daemon import WITHIN_S, Daemon, until
from tests.peers.kubeclient import KubeClient
from tests.peers.nriside import Record, member
from tests.rigs.cluster import PODS, running_cluster
from tests.rigs.containers import BOX, NODE, joined_kubelet, with_box

OPENED, DENIED = "opened", "denied"
WAIT_S = 4


@dataclass(slots=True)
class Node:
    api: KubeClient
    containerd: Containerd
    daemon: Daemon
    listen: Path
    at: str

    def create(self, name: str) -> None:
        box: Record = {"name": "app", "image": BOX, "imagePullPolicy": "Never", "command": ["/busybox", "sleep"]}
        spec: Record = {
            "nodeName": NODE,
            "runtimeClassName": "gated",
            "terminationGracePeriodSeconds": 1,
            "containers": [{**box, "args": [mark(name)]}],
        }
        self.api.call("POST", PODS, {"metadata": {"name": name}, "spec": spec})

    def running(self, name: str) -> bool:
        return member(self.api.find(f"{PODS}/{name}") or {}, "status", "phase") == "Running"

    def asked(self) -> set[str]:
        gates = self.daemon.shown().get("gates")
        rows = gates.get("rows") if isinstance(gates, dict) else None
        return {str(row["pod"]) for row in rows if isinstance(row, dict)} if isinstance(rows, list) else set()

    def set_gate(self, name: str, verdict: str) -> None:
        asked = {"namespace": "default", "name": name, "verdict": verdict, "reason": "said so"}
        podapi = str(self.daemon.folder / "run" / "podapi.sock")
        client.get("/v1/SetGate", podapi, "POST", json.dumps(asked).encode())

    def kill(self) -> None:
        if self.daemon.process is not None:
            self.daemon.process.kill()
            self.daemon.process.wait(WITHIN_S)

    def refused(self, name: str, why: str) -> int:
        lines = (log_of(self.listen) + self.daemon.log()).splitlines()
        return sum("gate=refused" in line and f"default/{name}: " in line and why in line for line in lines)


def mark(name: str) -> str:
    """How long the program of this pod sleeps; no other program of this machine has such an argument."""
    return {OPENED: "86399.4711", DENIED: "86399.4712"}[name]


@contextmanager
def watching() -> Iterator[dict[str, float]]:
    """When a process of each pod was seen first: every process of the machine is looked at, again and again."""
    seen, end = dict[str, float](), threading.Event()

    def look() -> None:
        while not end.wait(0.02):
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    words = entry.read_bytes().split(b"\0")
                    for name in (OPENED, DENIED):
                        if mark(name).encode() in words:
                            seen.setdefault(name, time.monotonic())

    with ThreadPoolExecutor(1) as thread:
        looking = thread.submit(look)
        try:
            yield seen
            assert not looking.done(), "it looks to the end"
        finally:
            end.set()


@pytest.fixture(name="node", params=["sandbox", pytest.param("container", marks=pytest.mark.nightly)])
def _node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A kubelet that is ready, whose pods are held at the sandbox or at the container."""
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(own=NODE))
        api = cluster.client
        gated: Record = {"metadata": {"name": "gated"}, "handler": "runc"}
        api.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", gated)
        containerd = stack.enter_context(with_box())
        folder = containerd.folder
        daemon = Daemon(folder, folder / "nri.sock")
        daemon.configure()
        settings = yaml.safe_load(daemon.config.read_text())
        settings["nri"] = {"enabled": False}
        settings["podapi"] = {"enabled": True}
        settings["gate"] = {"mode": "enforce", "handlers": {"runc": ["verdict"]}, "wait_s": WAIT_S}
        settings["gate"]["at"] = request.param
        daemon.config.write_text(yaml.safe_dump(settings))
        listen = folder / "cri.sock"
        flags = ("--config", str(daemon.config))
        stack.enter_context(relay_process(listen, containerd.cri_socket, *flags))
        node = Node(api, containerd, daemon, listen, str(request.param))
        stack.callback(node.kill)
        daemon.start()
        stack.enter_context(joined_kubelet(cluster, containerd, listen))
        yield node


def test_a_gated_container_has_no_process_before_its_verdict_whatever_dies(node: Node) -> None:
    with watching() as seen, node.containerd.cri() as direct:
        node.create(OPENED)
        node.create(DENIED)
        until(lambda: node.asked() == {OPENED, DENIED}, "both are held at their gates")
        node.kill()
        until(
            lambda: bool(node.refused(OPENED, "nobody could be asked")),
            "the held start is refused when the daemon dies",
        )
        again = node.refused(OPENED, "nobody could be asked")
        until(lambda: node.refused(OPENED, "no node daemon is") > again, "kubelet tries again, and nobody is there")
        node.daemon.start()
        until(lambda: node.asked() == {OPENED, DENIED}, "kubelet tries again, and both are held")
        node.set_gate(DENIED, "DENIED")
        until(lambda: bool(node.refused(OPENED, "no verdict was set yet")), "the wait ends without a verdict")
        sandboxes = direct.call("ListPodSandbox")
        assert seen == {}
        assert bool(sandboxes) is (node.at == "container")
        assert not direct.call("ListContainers")
        passed_s = time.monotonic()
        node.set_gate(OPENED, "PASSED")
        node.kill()
        node.daemon.start()
        until(lambda: node.running(OPENED), "it runs by the verdict of before the kill")
        again = node.refused(DENIED, "DENIED (said so)")
        until(lambda: node.refused(DENIED, "DENIED (said so)") > again, "kubelet tries the other one again")
    assert seen.keys() == {OPENED}
    assert seen[OPENED] > passed_s
