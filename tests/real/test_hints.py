"""Containers near the devices that a real kubelet 1.37 gave them: a real device plugin, a daemon beside containerd.

The daemon sees another machine than this one, two sockets of two NUMA nodes, laid over sysfs in a mount namespace of
its own; so it observes, and its answer changes nothing.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeward_sim.doubles.cpus import CPU, NODE, Plan, sysfs
from tests.patience import scaled
from tests.peers.daemon import NODEWARD, until
from tests.peers.deviceplugin import running_plugin
from tests.peers.nriside import objects, text
from tests.peers.podnode import Node, container, running_node

VF = "nodeward.test/vf"
NUMA = {"vf0": 0, "vf1": 1, "vf2": 2, "vf3": 3}
OVER = f'mount --bind "{{0}}{CPU}" {CPU} && mount --bind "{{0}}{NODE}" {NODE} && exec "$0" "$@"'


def lay(root: Path) -> Path:
    for path, said in sysfs(Plan()).items():
        file = root / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(said)
    return root


@pytest.fixture(name="node", scope="module")
def _node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running_node() as node:
        keys = node.keys
        with running_plugin(keys.home / "device-plugins", VF, tuple(NUMA), "vf.sock", numa=NUMA):
            keys.has(VF, (len(NUMA), len(NUMA)))
            process = node.nodeward.process
            assert process is not None
            process.kill()
            process.wait(scaled(60.0))
            with node.nodeward.config.open("a") as config:
                config.write(f"keys: {{kubelet_dir: /var/lib/kubelet, kubelet_root: {keys.root}}}\n")
                config.write("cpus: {mode: observe}\n")
                config.write('policy: {active: topology-aware, reserved: "1", podResources: true}\n')
            machine = OVER.format(lay(tmp_path_factory.mktemp("machine")))
            program = node.containerd.inside("unshare", "-m", "sh", "-c", machine, NODEWARD, network=False)
            node.nodeward.start(program)
            until(lambda: node.nodeward.shown().get("api") == "answers", "the daemon knows the pods")
            until(node.nodeward.registered, "containerd knows the plugin")
            yield node


def pool(node: Node, pod: str) -> str:
    holders = objects(json.loads(node.nodeward.command("cpus", "-o", "json").stdout)["holders"])
    return next((text(row, "pool") for row in holders if row["pod"] == pod), "")


def test_the_numa_node_of_a_device_decides_for_the_pool(node: Node) -> None:
    for number in range(len(NUMA)):
        pod = f"vm{number}"
        node.create(pod, [container("app", resources={"limits": {VF: "1"}})])
        until(lambda pod=pod: node.keys.phase(pod) == "Running", f"{pod} runs")  # type: ignore[misc]
        (given,) = node.keys.held(pod, VF)
        assert pool(node, pod) == f"NUMA node #{NUMA[given]}", node.nodeward.command("explain", f"default/{pod}").stdout
    said = node.nodeward.command("explain", "default/vm0").stdout
    assert "since it is nearer to the devices and mounts that it uses" in said, said
