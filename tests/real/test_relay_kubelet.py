"""A real kubelet whose runtime and images are behind the relay, joined to an API server, while each part is restarted.

Pods are made and deleted all the time; at the end the relay is taken away. The node is called `localhost`: for logs
and commands in pods the API server reaches the kubelet by the name of its node.
"""

import asyncio
import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from nodeward.core.pulls import PullsView
from nodeward.neighbours.cri.relay_socket import ask_pulls
from tests.component.relay.rig import NODEWARD, log_of, relay_process
from tests.patience import scaled
from tests.peers.containerd import Containerd
from tests.peers.cri import Cri
from tests.peers.crisuite import images_served
from tests.peers.daemon import WITHIN_S, until
from tests.peers.kube import ApiServer
from tests.peers.kubeclient import KubeClient
from tests.peers.kubelet import Kubelet, configuration
from tests.peers.nriside import Json, Record, member, objects, text
from tests.peers.podaccess import execute, logs, streams_reachable
from tests.peers.ports import free_port
from tests.rigs.cluster import PODS, running_cluster
from tests.rigs.containers import BOX, NODE, joined_kubelet, with_box

NOTES_PULLS = ("--set", "podapi.enabled=true")
STEADY = ("steady-1", "steady-2", "steady-3")
EVERY_S, KEPT = 0.8, 4
"""A pod is made so often, and so many of them are left at any time."""
AWAY_S = 3.0
"""For how long the relay is away, where that is to go unnoticed."""


@dataclass(slots=True)
class Node:
    server: ApiServer
    api: KubeClient
    containerd: Containerd
    kubelet: Kubelet
    listen: Path
    relays: ExitStack
    relay: subprocess.Popen[str]
    made: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    caught: list[str] = field(default_factory=list)
    """The pod of the load that was being started at each kill."""
    plain: str = ""
    """The configuration of a kubelet that calls containerd itself, once `nodeward kubelet` has changed that."""

    def create(self, name: str) -> None:
        story = "echo hello from $HOSTNAME; trap 'exit 0' TERM; while :; do /busybox sleep 1 & wait; done"
        box: Record = {"name": "app", "image": BOX, "imagePullPolicy": "Never", "command": ["/busybox", "sh", "-c"]}
        spec: Record = {"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": [{**box, "args": [story]}]}
        self.api.call("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        self.made.append(name)

    def delete(self, name: str) -> None:
        self.api.call("DELETE", f"{PODS}/{name}")
        self.deleted.append(name)

    def pods(self) -> list[str]:
        items = self.api.call("GET", PODS)["items"]
        listed = items if isinstance(items, list) else []
        return [str(member(one, "metadata", "name")) for one in listed if isinstance(one, dict)]

    def running(self, name: str) -> bool:
        return member(self.api.find(f"{PODS}/{name}") or {}, "status", "phase") == "Running"

    def started(self, name: str) -> tuple[str, str]:
        statuses = member(self.api.call("GET", f"{PODS}/{name}"), "status", "containerStatuses")
        assert isinstance(statuses, list)
        first = statuses[0]
        assert isinstance(first, dict)
        return text(first, "containerID"), str(first["restartCount"])

    def new_relay(self) -> None:
        self.relay = self.relays.enter_context(relay_process(self.listen, self.containerd.cri_socket, *NOTES_PULLS))

    def kill(self, what: str, kill: Callable[[], None]) -> None:
        """SIGKILL, while a pod is being started: it cleans up nothing."""
        with self.containerd.cri() as direct:
            self.caught.append(caught(direct))
        kill()

    def kill_relay(self) -> None:
        self.kill("relay", self.relay.kill)
        self.relay.wait(WITHIN_S)

    def point_at_relay(self) -> None:
        self.plain = yaml.safe_dump(
            json.loads(configuration(replace(self.kubelet.plan, cri_socket=self.containerd.cri_socket)))
        )
        self.config.write_text(self.plain)
        self._nodeward_kubelet("relay")
        assert self.config.read_text() != self.plain

    def take_relay_away(self) -> None:
        """In the order of docs/relay.md: the way back, kubelet started again, the relay ended."""
        self._nodeward_kubelet("runtime")
        assert self.config.read_text() == self.plain
        self.kubelet.kill()
        self.kubelet.start_again()
        self.kubelet.wait_healthy()
        self.relays.close()

    @property
    def config(self) -> Path:
        return self.kubelet.plan.folder / "kubelet.json"

    def _nodeward_kubelet(self, target: str) -> None:
        undo = ["--undo"] if target == "runtime" else []
        sockets = [f"--set=relay.listen={self.listen}", f"--set=relay.runtime={self.containerd.cri_socket}"]
        words = [NODEWARD, "setup", "relay", *undo, "--kubelet-config", str(self.config), *sockets]
        done = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("done; now: systemctl restart kubelet\n")

    def serves(self, what: str) -> None:
        name = f"after-{len(self.made)}"
        self.create(name)
        until(lambda: self.running(name) and self.api.node_ready(NODE), f"a pod that runs after: {what}")


@contextmanager
def load(node: Node, every_s: float, kept: int) -> Iterator[None]:
    end = threading.Event()
    faults: list[Exception] = []

    def churn() -> None:
        number = 0
        try:
            while not end.wait(every_s):
                oldest = f"load-{number + 1 - kept}"
                if number >= kept and not node.running(oldest):
                    continue
                number += 1
                node.create(f"load-{number}")
                if number > kept:
                    node.delete(oldest)
        except Exception as error:
            faults.append(error)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(scaled(60))
    assert not faults


def in_runtime(cri: Cri) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The sandboxes that are ready, and the containers that run: the pod of each id."""
    return _sandboxes(cri), _containers(cri, "CONTAINER_RUNNING")


def caught(cri: Cri) -> str:
    """Waits for a pod of the load whose start is under way, and names it: its sandbox is ready, and no container of it
    runs or has ended."""
    seen: set[str] = set()

    def under_way() -> bool:
        sandboxes = set(_sandboxes(cri).values())
        begun = _containers(cri, "CONTAINER_RUNNING", "CONTAINER_EXITED").values()
        seen.update(name for name in sandboxes.difference(begun) if name.startswith("load-"))
        return bool(seen)

    until(under_way, "a pod of the load is being started")
    return min(seen)


def programs(cri: Cri, pods: Mapping[str, int]) -> Counter[str]:
    """How many containers of each of these pods have begun their program. Where a start was cut off before, kubelet
    makes another container and counts it as a restart, since it cannot know."""
    found = _containers(cri, "", "CONTAINER_RUNNING", "CONTAINER_EXITED", "CONTAINER_UNKNOWN")  # "" is CREATED
    told = [(pod, cri.call("ContainerStatus", {"container_id": one})) for one, pod in found.items() if pod in pods]
    return Counter(pod for pod, one in told if member(one, "status", "started_at") not in (None, "0"))


def _sandboxes(cri: Cri) -> dict[str, str]:
    # a field with its first value, as SANDBOX_READY is, is left out of an answer
    return _found(cri.call("ListPodSandbox").get("items"), "SANDBOX_READY", "")


def _containers(cri: Cri, *states: str) -> dict[str, str]:
    return _found(cri.call("ListContainers").get("containers"), *states)


def _found(listed: Json, *states: str) -> dict[str, str]:
    wanted = [one for one in objects(listed) if one.get("state", "") in states]
    return {text(one, "id"): str(member(one, "labels", "io.kubernetes.pod.name")) for one in wanted}


@pytest.fixture(name="node")
def _node() -> Iterator[Node]:
    with ExitStack() as stack:
        cluster, port = stack.enter_context(running_cluster(own=NODE)), free_port()
        containerd = stack.enter_context(with_box(stream_port=port))
        stack.enter_context(streams_reachable(containerd, port))
        listen, relays = containerd.folder / "cri.sock", stack.enter_context(ExitStack())
        relay = relays.enter_context(relay_process(listen, containerd.cri_socket, *NOTES_PULLS))
        kubelet = stack.enter_context(joined_kubelet(cluster, containerd, listen))
        yield Node(cluster.server, cluster.client, containerd, kubelet, listen, relays, relay)


def test_kubelet_names_the_sandbox_of_each_pull(node: Node) -> None:
    def seen() -> PullsView:
        return asyncio.run(ask_pulls(str(node.listen.parent / "run" / "relay.sock"), WITHIN_S))

    images = {"pulled": "localhost/busybox:1", "missing": "localhost/nothing:1"}
    with images_served(node.containerd):
        for name, image in images.items():
            box: Record = {"name": "app", "image": image, "imagePullPolicy": "Always", "command": ["sleep", "1000"]}
            node.api.call("POST", PODS, {"metadata": {"name": name}, "spec": {"nodeName": NODE, "containers": [box]}})
        until(lambda: node.running("pulled"), "the pulled image runs")
        until(
            lambda: {one.image for one in seen().pulls if one.status} == set(images.values()), "both pulls have ended"
        )
        view = seen()
        with node.containerd.cri() as direct:
            sandboxes = in_runtime(direct)[0]
    keys = {(one.namespace, one.name, one.uid, one.attempt): one.id for one in view.sandboxes}
    told = {one.image: (one.status, keys[one.namespace, one.name, one.uid, one.attempt]) for one in view.pulls}
    uids = {name: member(node.api.call("GET", f"{PODS}/{name}"), "metadata", "uid") for name in images}
    assert {name: sandboxes[told[image][1]] for name, image in images.items()} == {name: name for name in images}
    assert {one.name: one.uid for one in view.pulls} == uids
    assert (told[images["pulled"]][0], told[images["missing"]][0]) == ("OK", "NOT_FOUND")


def restarts(node: Node) -> list[tuple[str, Callable[[], None]]]:
    def relay_away() -> None:
        node.kill_relay()
        time.sleep(AWAY_S)  # the outage itself
        node.new_relay()

    def relay_at_once() -> None:
        node.kill_relay()
        node.new_relay()

    def containerd() -> None:
        node.kill("containerd", lambda: node.containerd.stop(signal.SIGKILL))
        node.containerd.start()

    def kubelet() -> None:
        node.kill("kubelet", node.kubelet.kill)
        node.point_at_relay()
        node.kubelet.start_again()
        node.kubelet.wait_healthy()

    def long() -> None:
        node.kill_relay()
        until(lambda: not node.api.node_ready(NODE), "the kubelet notices that its runtime is away")
        node.new_relay()

    return [
        ("relay restarted at once", relay_at_once),
        (f"relay away for {AWAY_S:g} s", relay_away),
        ("containerd restarted", containerd),
        ("kubelet restarted", kubelet),
        ("relay away until the node is not Ready", long),
    ]


@pytest.mark.nightly
def test_no_pod_is_lost_or_doubled_when_relay_containerd_and_kubelet_restart_under_load(node: Node) -> None:
    for name in STEADY:
        node.create(name)
    until(lambda: all(node.running(name) for name in STEADY), "the first pods run")
    before = {name: node.started(name) for name in STEADY}
    assert execute(node.server, STEADY[0], ["/busybox", "echo", "here"]) == ("here\n", "Success")
    assert logs(node.server, STEADY[0]) == f"hello from {STEADY[0]}\n"
    with load(node, EVERY_S, KEPT):
        for number, (what, done) in enumerate(restarts(node), 1):
            done()
            assert len(node.caught) == number
            node.serves(what)
    settle(node)
    assert {name: node.started(name) for name in STEADY} == before
    assert execute(node.server, STEADY[1], ["/busybox", "echo", "again"]) == ("again\n", "Success")
    assert logs(node.server, STEADY[1]) == f"hello from {STEADY[1]}\n"
    node.take_relay_away()
    node.serves("kubelet at containerd, no relay")
    assert {name: node.started(name) for name in STEADY} == before
    assert "lost_sight=0" in log_of(node.listen)  # the last relay has told what it counted


def settle(node: Node) -> None:
    alive = Counter(name for name in node.made if name not in node.deleted)
    expected = (sorted(alive), alive, alive)

    def seen() -> tuple[list[str], Counter[str], Counter[str]]:
        sandboxes, containers = in_runtime(direct)
        return sorted(node.pods()), Counter(sandboxes.values()), Counter(containers.values())

    with node.containerd.cri() as direct:
        try:
            until(lambda: seen() == expected, "every pod runs once")
        except AssertionError:
            assert seen() == expected, node.kubelet.log()
        assert programs(direct, alive) == alive
    until(lambda: all(node.running(name) for name in alive), "every pod runs, as the API server has it")
