"""A real kubelet's runtime endpoint is put at the relay, which decides instead of NRI; one function a case.

Played at the end of the joined chain: the daemon of before has ended well, and its pods still run. The daemon that
comes now has no NRI and tells the relay what the API server says of pods.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import yaml

from tests.peers.nriside import Record
from tests.peers.podaccess import execute, logs
from tests.vm.inside import KIB, RESOURCE, limit, refused, until
from tests.vm.joined_node import BOX, CONTAINERD_FOLDER, NAME, Node, container

_LISTEN: Final = CONTAINERD_FOLDER / "relay" / "cri.sock"
_LOG: Final = CONTAINERD_FOLDER / "relay.log"
_PROGRAM: Final = str(Path(sys.executable).parent / "nodeward")
_HELD: Final = 12 * KIB
_STARTS_WITHIN_S: Final = 20.0
_TELLS: Final = "/busybox cat /sys/fs/cgroup/misc.max; echo read; while :; do /busybox sleep 1; done"


def _boxed(name: str, epc: str) -> Record:
    """A container that says what its limit is before it does anything else."""
    return container(name, epc, image=BOX, command=["/busybox", "sh", "-c", _TELLS])


def _start_relay(node: Node) -> subprocess.Popen[bytes]:
    """A relay that listens; it is ended with the node."""
    before = _LOG.read_text().count("relaying listen=") if _LOG.exists() else 0
    line = [_PROGRAM, "relay", "--config", str(node.daemon.config)]
    with _LOG.open("ab") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log, env={**os.environ, "NODEWARD_NRI__ENABLED": "false"})
    node.more.callback(_killed, process)
    until(lambda: _LOG.read_text().count("relaying listen=") > before, "the relay listens", _STARTS_WITHIN_S)
    return process


def _killed(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    process.wait(60)


def _point_at_relay(node: Node) -> None:
    """`nodeward kubelet` changes its configuration, as YAML, and it is started again."""
    config = node.kubelet.plan.folder / "kubelet.json"
    config.write_text(yaml.safe_dump(json.loads(config.read_text())))
    line = [_PROGRAM, "kubelet", "relay", "--kubelet-config", str(config)]
    for one in (f"relay.listen={_LISTEN}", f"relay.runtime={node.containerd.cri_socket}"):
        line += ["--set", one]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    node.kubelet.kill()
    node.kubelet.start_again()
    node.kubelet.wait_healthy()


def decided_by_the_relay(node: Node) -> list[str]:
    """Given a kubelet that is pointed at the relay, a pod made by the API has its limit from birth, without NRI."""
    _LISTEN.parent.mkdir()
    runtime = node.containerd.cri_socket
    node.daemon.configure(f"relay: {{limits: true, listen: {_LISTEN}, runtime: {runtime}}}\n")
    node.cri_relay = _start_relay(node)
    os.environ["NODEWARD_NRI__ENABLED"] = "false"
    node.daemon.start_beside_relay()
    _point_at_relay(node)
    pod = node.run("behind", [_boxed("app", "12Ki"), container("side")])
    app, side = pod.containers["app"], pod.containers["side"]
    assert (node.born_with(app), node.born_with(side)) == (f"{RESOURCE} {_HELD}", f"{RESOURCE} 0")
    assert [limit(one) for one in (app, side)] == [str(_HELD), "0"]
    until(lambda: limit(pod.cgroup) == str(_HELD), "the pod's budget, by the daemon")
    until(lambda: node.api.node_ready(NAME), "the node is ready")
    shown = node.daemon.ask("status")
    assert "decided at creation by the relay" in shown, shown
    at_kernel = refused(app, _HELD + 1)
    return [
        f"kubelet at the relay: runc was given misc.max '{node.born_with(app)}' for behind/app, "
        f"'{node.born_with(side)}' for behind/side; {_HELD + 1}: {at_kernel}"
    ]


def logs_and_exec_by_the_relay(node: Node) -> list[str]:
    """Through the API server and this kubelet: what the container's program saw at its birth, and a command in it."""
    log = logs(node.cluster, "behind", "app")
    assert f"{RESOURCE} {_HELD}\n" in log, log
    assert log.endswith("read\n"), log
    said, ended = execute(node.cluster, "behind", ["/busybox", "cat", "/sys/fs/cgroup/misc.max"], "app")
    assert (f"{RESOURCE} {_HELD}\n" in said, ended) == (True, "Success"), (said, ended)
    return [f"logs of behind/app, begun with its limit: {log.split()}; exec: {said.split()}, {ended}"]


def relay_killed(node: Node) -> list[str]:
    """A SIGKILL of the relay: limits stay; with the next relay a pod has its from birth, and the node is Ready."""
    assert node.cri_relay is not None
    killed, app = node.cri_relay.pid, node.pods["behind"].containers["app"]
    node.cri_relay.kill()
    node.cri_relay.wait(60)
    right_after = limit(app)
    assert right_after == str(_HELD)
    node.create("after", [_boxed("app", "12Ki")])
    node.cri_relay = _start_relay(node)
    pod = node.running("after", ["app"])
    assert node.born_with(pod.containers["app"]) == f"{RESOURCE} {_HELD}"
    until(lambda: node.api.node_ready(NAME), "the node is ready", _STARTS_WITHIN_S)
    assert node.container_ids("behind")["app"] == app.name
    return [
        f"relay {killed} killed by SIGKILL: behind/app {right_after} right after; relay {node.cri_relay.pid}: "
        f"after/app has {limit(pod.containers['app'])} from birth, and the node is Ready"
    ]
