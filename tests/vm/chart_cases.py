"""The chart as a user has it: `helm install` of deploy/chart, the DaemonSet's pod started from the image by the real
kubelet and containerd, and a limit in the kernel; an upgrade and a rollback while pods run."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from nodeward import __version__
from tests.patience import patience
from tests.peers.find import require
from tests.peers.kubelet import Api, kubeconfig
from tests.peers.nriside import member
from tests.vm.guest import REPOSITORY
from tests.vm.inside import KIB, limit, until
from tests.vm.joined_node import CONTAINERD_FOLDER, Node, container

_CHART: Final = str(REPOSITORY / "deploy/chart/nodeward")
_NAMESPACE: Final = "nodeward"
_SET: Final = "/apis/apps/v1/namespaces/nodeward/daemonsets/nodeward-node"
_LIMIT: Final = 8 * KIB
_READY_S: Final = 120.0


def _helm(node: Node, *words: str) -> str:
    """What Helm prints; it has to end well."""
    config = CONTAINERD_FOLDER / "helm.kubeconfig"
    config.write_text(kubeconfig(Api(node.cluster.base_url, node.cluster.ca_file, node.cluster.token)))
    folders = {f"HELM_{name}_HOME": str(CONTAINERD_FOLDER / "helm") for name in ("CACHE", "CONFIG", "DATA")}
    command = [str(require("helm") / "bin/helm"), *words, "--namespace", _NAMESPACE, "--kubeconfig", str(config)]
    environment = {**os.environ, **folders}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120 * patience())
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def _ready(node: Node) -> str:
    """Waits until the DaemonSet's pod of today is ready; how long that took."""
    begin = time.monotonic()

    def ready() -> bool:
        found = node.api.call("GET", _SET)
        wanted = member(found, "metadata", "generation"), 1, 1
        names = ("observedGeneration", "updatedNumberScheduled", "numberReady")
        return tuple(member(found, "status", name) for name in names) == wanted

    try:
        until(ready, "the DaemonSet's pod is ready", _READY_S)
    except AssertionError as error:
        pods = node.api.call("GET", f"/api/v1/namespaces/{_NAMESPACE}/pods")
        logs = [path.read_text(errors="replace")[-3000:] for path in Path("/var/log/pods").glob("nodeward_*/*/*.log")]
        raise AssertionError(f"{error}\n{json.dumps(pods)[-4000:]}\n{logs}") from error
    return f"{time.monotonic() - begin:.1f} s"


def chart_to_misc_max(node: Node) -> list[str]:
    """Given no other daemon, when the chart is installed, its pod enforces a limit; an upgrade and a rollback keep the
    limits of pods that run."""
    node.daemon.end(signal.SIGTERM)
    for kind in ("clusterroles", "clusterrolebindings"):  # of the daemon before; the chart refuses to take them over
        node.api.call("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}/nodeward-node")
    loaded = node.containerd.ctr("images", "import", "--local", str(node.cluster.image))
    assert loaded.returncode == 0, loaded.stderr
    Path("/var/run/nri").symlink_to(node.containerd.nri_socket.parent)
    values = ["--set", "node.hostNetwork=true", "--set", "node.settings.limits.mode=enforce"]
    values += ["--set", f"node.settings.kube.url={node.cluster.base_url}"]
    begin = time.monotonic()
    said = _helm(node, "install", "nodeward", _CHART, "--create-namespace", *values)
    assert "Limits are enforced." in said, said
    installed = f"{time.monotonic() - begin:.1f} s"
    ready = _ready(node)
    pod = node.run("charted", [container("app", "8Ki")])
    cgroups = (pod.containers["app"], pod.cgroup)
    until(lambda: [limit(one) for one in cgroups] == [str(_LIMIT)] * 2, "limit and budget", 30.0)
    seconds = f"{time.monotonic() - begin:.1f} s"
    _helm(node, "upgrade", "nodeward", _CHART, "--reuse-values", "--set", "node.settings.limits.strict=true")
    upgraded = _ready(node)
    _helm(node, "rollback", "nodeward", "1")
    back = _ready(node)
    assert [limit(one) for one in cgroups] == [str(_LIMIT)] * 2
    return [
        f"chart of nodeward {__version__}: installed in {installed}, its pod ready after {ready} more, and the "
        f"first limit ({_LIMIT} in misc.max of container and pod) {seconds} after `helm install` began",
        f"upgrade: ready after {upgraded}; rollback: after {back}; the limits of the pod that ran are as before",
    ]
