"""A real kubelet's runtime endpoint is put at the relay, which decides instead of NRI.

A daemon of before ends, and another comes that has no NRI and tells the relay what the API server says of pods.
"""

import json
import os
import signal
from typing import Final

import yaml

from tests.vm.inside import KIB, RESOURCE, CriRelay, limits, refused, until
from tests.vm.joined_node import CONTAINERD_FOLDER, NAME, Node, container

_LISTEN: Final = CONTAINERD_FOLDER / "relay" / "cri.sock"
_HELD: Final = 12 * KIB


def _point_at_relay(node: Node) -> None:
    """`nodeward kubelet` changes its configuration, as YAML, and it is started again."""
    config = node.kubelet.plan.folder / "kubelet.json"
    config.write_text(yaml.safe_dump(json.loads(config.read_text())))
    line = ["kubelet", "relay", "--kubelet-config", str(config)]
    for one in (f"relay.listen={_LISTEN}", f"relay.runtime={node.containerd.cri_socket}"):
        line += ["--set", one]
    node.daemon.ask(*line)
    node.kubelet.kill()
    node.kubelet.start_again()
    node.kubelet.wait_healthy()


def decided_by_the_relay(node: Node) -> None:
    """Given a kubelet that is pointed at the relay, a pod made by the API has its limit from birth, without NRI."""
    _LISTEN.parent.mkdir()
    runtime = node.containerd.cri_socket
    node.daemon.configure(f"relay: {{limits: true, listen: {_LISTEN}, runtime: {runtime}}}\n")
    os.environ["NODEWARD_NRI__ENABLED"] = "false"
    node.cri_relay = CriRelay(node.daemon.config, CONTAINERD_FOLDER / "relay.log")
    node.more.callback(node.cri_relay.end, signal.SIGKILL)
    node.cri_relay.start()
    assert node.daemon.end(signal.SIGTERM) == 0
    node.daemon.start_beside_relay()
    _point_at_relay(node)
    pod = node.run("behind", [container("app", "12Ki"), container("side")])
    app, side = pod.containers["app"], pod.containers["side"]
    assert (node.born_with(app), node.born_with(side)) == (f"{RESOURCE} {_HELD}", f"{RESOURCE} 0")
    assert limits(app, side) == [_HELD, 0]
    until(lambda: limits(pod.cgroup) == [_HELD], "the pod's budget, by the daemon")
    until(lambda: node.api.node_ready(NAME), "the node is ready")
    shown = node.daemon.ask("status")
    assert "decided at creation by the relay" in shown, shown
    refused(app, _HELD + 1)
