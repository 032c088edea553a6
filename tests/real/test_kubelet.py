"""A real kubelet 1.37 on real containerd, joined to a real API server, with `nodeward node` beside them.

Pods are made as people make them, by the API or by a file in the kubelet's folder of static pods, and the promise that
the daemon shows for each container has to be the one of the pod's spec. The cgroup root is an
empty folder, so a promise is `unsupported` here; that the kernel holds it is the VM tier's.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bench.tree import READ_ONLY
from nodeward.core.annotations import CONFIG_HASH, MIRROR
from tests.peers.daemon import WITHIN_S, until
from tests.peers.keynode import PODS
from tests.peers.kubeclient import STRATEGIC
from tests.peers.nriside import Record, member, text
from tests.peers.podnode import END_SOON, FROM_SPEC, Node, Shown, container, running_node, shown_in
from tests.peers.ports import free_port
from tests.peers.prometheus import Job, asked, prometheus

MI = 1 << 20
REFUSED = "default/refused, container app: declares 2097152 of sgx_epc, which this kernel cannot limit"


@pytest.fixture(name="node", scope="module")
def _node() -> Iterator[Node]:
    with running_node() as node:
        yield node


def test_each_container_of_a_pod_has_its_promise_from_the_spec(node: Node) -> None:
    budget, proxy = Shown(36 * MI), Shown(4 * MI)
    node.create(
        "shop",
        [container("app", "16Mi"), container("log")],
        initContainers=[container("proxy", "4Mi", restartPolicy="Always"), container("fetch", "32Mi")],
    )
    node.becomes("shop", {"": budget, "proxy": proxy, "fetch": Shown(32 * MI)})
    node.end("shop", "fetch")
    running = {"": budget, "proxy": proxy, "app": Shown(16 * MI), "log": Shown(0)}
    node.becomes("shop", running)
    debug: Record = {"spec": {"ephemeralContainers": [container("debug")]}}
    node.api.call("PATCH", f"{PODS}/shop/ephemeralcontainers", debug, STRATEGIC)
    node.becomes("shop", {**running, "debug": Shown(0)})
    assert shown_in(node.nodeward.rows() or (), "shop") == {**running, "debug": Shown(0)}

    told = node.nodeward.command("explain", "default/shop/app")
    assert told.returncode == 0
    assert "sgx_epc: 16777216 is wanted" in told.stdout
    assert "Rule: The container declares this limit." in told.stdout
    assert f"Source: {FROM_SPEC}." in told.stdout
    node.delete("shop")
    assert node.nodeward.command("explain", "default/shop").returncode == 1


def test_what_ends_and_is_made_anew_is_shown_once_and_as_before(node: Node) -> None:
    expected = {"": Shown(5 * MI), "app": Shown(2 * MI)}
    node.create("moved", [container("app", "2Mi")], runtimeClassName="heavy")
    node.becomes("moved", expected)
    node.end("moved", "app")
    node.becomes("moved", expected)
    first = node.container_id("moved", "app")
    node.kill_sandbox("moved")
    until(lambda: not node.shows(first), "the end of the first container")
    node.becomes("moved", expected)
    node.delete("moved")

    expected = {"": Shown(3 * MI), "app": Shown(2 * MI), "typo": Shown(MI)}
    node.create("broken", [container("app", "2Mi"), container("typo", "1Mi", command=["/typo"])])
    node.becomes("broken", expected)
    first = node.container_id("broken", "typo")
    until(lambda: not node.shows(first), "the end of the first try")
    node.becomes("broken", expected)
    node.delete("broken")

    node.create("job", [container("app", "2Mi")], restartPolicy="Never")
    node.becomes("job", {"": Shown(2 * MI), "app": Shown(2 * MI)})
    node.end("job", "app")
    node.becomes("job", {})
    node.delete("job")


def test_pods_made_while_the_daemon_was_dead_are_adopted(node: Node) -> None:
    expected = {"": Shown(2 * MI), "app": Shown(2 * MI)}
    node.create("before", [container("app", "2Mi")])
    node.becomes("before", expected)
    node.nodeward.end(signal.SIGKILL)
    node.create("meanwhile", [container("app", "2Mi")])
    until(lambda: node.keys.phase("meanwhile") == "Running", "a pod that runs")
    node.nodeward.start()
    for pod in ("before", "meanwhile"):
        node.becomes(pod, expected)
    node.containerd.restart()
    until(lambda: text(node.view(), "runtime") != "", "the daemon is registered again")
    for pod in ("before", "meanwhile"):
        node.becomes(pod, expected)
        node.delete(pod)


def test_whoever_made_a_refused_pod_reads_why(node: Node) -> None:
    settings = node.nodeward.config.read_text()
    with node.other_settings(f"{settings}limits: {{unsupported: refuse}}\n"):
        node.create("refused", [container("app", "2Mi")])
        until(lambda: REFUSED in node.keys.waits("refused"), "the refusal in the pod's status")
        assert "app" not in node.shown("refused")
    node.delete("refused")


def test_a_static_pod_is_known_by_its_mirror_pod(node: Node) -> None:
    for amount in (2, 6):
        spec: Record = {**END_SOON, "containers": [container("app", f"{amount}Mi")]}
        manifest: Record = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static"}, "spec": spec}
        node.kubelet.add_static("static", json.dumps(manifest))
        node.becomes("static-node-1", {"": Shown(amount * MI), "app": Shown(amount * MI)})
    before = node.api.call("DELETE", f"{PODS}/static-node-1", {"gracePeriodSeconds": 0})
    told = list[str]()

    def shows_the_new_one() -> bool:
        spec = json.loads(node.nodeward.command("pod", "default/static-node-1", "--spec", "-o", "json").stdout)["spec"]
        told.append(str(spec["why"]))
        mirror = member(spec, "value", "metadata", "uid") if spec["complete"] else None
        return mirror not in (None, member(before, "metadata", "uid"))

    until(shows_the_new_one, "the spec of the new mirror")
    assert "another pod" not in "".join(told)
    node.kubelet.remove_static("static")
    node.becomes("static-node-1", {})


def test_a_pod_whose_annotations_name_another_takes_nothing_from_it(node: Node) -> None:
    node.create("honest", [container("app", "2Mi")])
    spec: Record = {**END_SOON, "containers": [container("app", "3Mi")]}
    manifest: Record = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static"}, "spec": spec}
    node.kubelet.add_static("static", json.dumps(manifest))
    amounts = {"honest": 2 * MI, "static-node-1": 3 * MI}
    expected = {name: {"": Shown(size), "app": Shown(size)} for name, size in amounts.items()}
    for name in expected:
        node.becomes(name, expected[name])
    uid = member(node.api.find(f"{PODS}/honest") or {}, "metadata", "uid")
    hashed = member(node.api.find(f"{PODS}/static-node-1") or {}, "metadata", "annotations", CONFIG_HASH)
    for number, claimed in enumerate((uid, hashed)):
        claims: Record = {CONFIG_HASH: claimed, "kubernetes.io/config.source": "file"}
        node.create(f"claims-{number}", [container("app", "9Mi")], notes=claims)
        node.becomes(f"claims-{number}", {"": Shown(9 * MI), "app": Shown(9 * MI)})
        mirror = f"mirror-{number}"
        node.create(mirror, [container("app", "9Mi")], notes={**claims, MIRROR: claimed})
        until(partial(lambda path: node.api.find(path) is None, f"{PODS}/{mirror}"), "kubelet deletes it")
        assert node.shown(mirror) == {}
    for name in expected:
        node.becomes(name, expected[name])
    node.kubelet.remove_static("static")
    for name in ("honest", "claims-0", "claims-1"):
        node.delete(name)
    node.becomes("static-node-1", {})


def test_what_was_recorded_on_this_node_replays(node: Node) -> None:
    assert node.nodeward.end() == 0
    replayed = node.nodeward.command("replay", str(node.nodeward.record))
    assert replayed.returncode == 0, replayed.stderr
    assert "every decision is the same, byte for byte" in replayed.stdout


def limited(root: Path, cgroup: Path) -> None:
    cgroup.mkdir(parents=True)
    files = {"cgroup.controllers": "misc\n", "cgroup.subtree_control": "misc\n", "misc.max": "sgx_epc max\n"}
    for folder in (cgroup, *(above for above in cgroup.parents if above.is_relative_to(root))):
        for name, said in {**READ_ONLY, **files, "misc.capacity": f"sgx_epc {1024 * MI}\n"}.items():
            (folder / name).write_text(said)


def test_cadvisor_has_the_memory_of_a_limited_container_for_the_dashboard(node: Node, tmp_path: Path) -> None:
    place, nodeward, port = "/run/containerd", node.nodeward, free_port()
    link = f"mkdir -p {place} && ln -s {node.containerd.cri_socket} {place}/containerd.sock"
    subprocess.run(node.containerd.inside("sh", "-c", link), check=True, timeout=WITHIN_S)
    node.keys.restart()
    nodeward.end()
    node.create("drawn", [container("app", "2Mi")])
    until(lambda: node.keys.phase("drawn") == "Running", "a pod that runs")
    (app,), root = node.started("drawn"), nodeward.folder / "cgroup"
    pods = root / node.containerd.cgroup_parent.lstrip("/") / "kubepods" / "besteffort"
    limited(root, pods / f"pod{node.keys.uid('drawn')}" / app)
    with nodeward.config.open("a") as settings:
        settings.write(f"metrics: {{enabled: true, listen: '127.0.0.1:{port}'}}\n")
    nodeward.start()
    cadvisor: Job = {
        "job_name": "cadvisor",
        "scheme": "https",
        "metrics_path": "/metrics/cadvisor",
        "tls_config": {"insecure_skip_verify": True},
        "static_configs": [{"targets": [f"127.0.0.1:{node.kubelet.plan.port}"]}],
    }
    with prometheus(tmp_path, port, cadvisor) as server:
        for query in asked("container_memory"):
            print(query, server.until(query))
    node.delete("drawn")
