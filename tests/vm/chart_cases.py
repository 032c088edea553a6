"""The chart as docs/chart.md has a user install it: the DaemonSet's pod started from the image by the real kubelet and
containerd, and a limit in the kernel; an upgrade and a rollback while pods run."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.pages import of_page
from tests.patience import patience
from tests.peers.find import require
from tests.peers.kubelet import Api, kubeconfig
from tests.peers.nriside import member
from tests.peers.relay import Relay
from tests.vm.guest import REPOSITORY
from tests.vm.inside import KIB, limit, named, until
from tests.vm.joined_node import CONTAINERD_FOLDER, Node, container

_NAMESPACE: Final = "nodeward"
_SET: Final = "/apis/apps/v1/namespaces/nodeward/daemonsets/nodeward-node"
_LIMIT: Final = 8 * KIB
_READY_S: Final = 60.0
_METRICS: Final = 9743


def _typed(node: Node, command: str, *more: str) -> str:
    """What a command of the page prints, with more options of this place; it has to end well."""
    config = CONTAINERD_FOLDER / "helm.kubeconfig"
    config.write_text(kubeconfig(Api(node.cluster.base_url, node.cluster.ca_file, node.cluster.token)))
    folders = {f"HELM_{name}_HOME": str(CONTAINERD_FOLDER / "helm") for name in ("CACHE", "CONFIG", "DATA")}
    path = f"{require('helm') / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, **folders, "PATH": path, "KUBECONFIG": str(config)}
    done = subprocess.run(
        [*shlex.split(command), *more],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120 * patience(),
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def _ready(node: Node) -> None:
    def ready() -> bool:
        found = node.api.call("GET", _SET)
        wanted = member(found, "metadata", "generation"), 1, 1
        names = ("observedGeneration", "updatedNumberScheduled", "numberReady")
        return tuple(member(found, "status", name) for name in names) == wanted

    _within(node, ready, "the DaemonSet's pod is ready")


def _within(node: Node, true: Callable[[], bool], what: str) -> None:
    """Waits for what the DaemonSet's pod does."""
    try:
        until(true, what, _READY_S)
    except AssertionError as error:
        pods = node.api.call("GET", f"/api/v1/namespaces/{_NAMESPACE}/pods")
        logs = [path.read_text(errors="replace")[-3000:] for path in Path("/var/log/pods").glob("nodeward_*/*/*.log")]
        raise AssertionError(f"{error}\n{json.dumps(pods)[-4000:]}\n{logs}") from error


def chart_to_misc_max(node: Node) -> None:
    """Given no other daemon, when the chart is installed, its pod holds a pod to its limit."""
    node.daemon.end(signal.SIGTERM)
    for kind in ("clusterroles", "clusterrolebindings"):  # of the daemon before; the chart refuses to take them over
        node.api.call("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}/nodeward-node")
    loaded = node.containerd.ctr("images", "import", "--local", str(node.cluster.image))
    assert loaded.returncode == 0, loaded.stderr
    where = node.containerd.nri_socket.parent  # in the runtime's mount namespace, which has a /run of its own
    subprocess.run(node.containerd.inside("ln", "-s", str(where), "/run/nri"), check=True, timeout=30 * patience())
    api = urlsplit(node.cluster.base_url)
    way = Relay(str(api.hostname), api.port or 443, node.containerd.pid)  # pods are in the runtime's network
    values = [
        "--set",
        "node.hostNetwork=true",
        "--set",
        "features.limits=enforce",
        "--set",
        "features.devices=plugin",
        "--set",
        f"node.kubeletRoot={node.kubelet.plan.folder / 'root'}",
    ]
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    kube = f"url=https://127.0.0.1:{way.port}", f"token_file={account}/token", f"ca_file={account}/ca.crt"
    values += [word for one in kube for word in ("--set", f"node.settings.kube.{one}")]
    _typed(node, of_page("chart.md", "kubectl create namespace"))
    _typed(node, of_page("chart.md", "kubectl label namespace"))
    said = _typed(node, of_page("chart.md", "helm install"), *values)
    assert "limits enforce" in said, said
    _within(node, lambda: _holds(_run(node)), "limit and budget")


def _run(node: Node) -> tuple[Path, Path]:
    """The cgroups of a pod with a limit, which is there afterwards, and of its container."""
    pod = node.pods.get("charted") or node.run("charted", [container("app", "8Ki")])
    return pod.cgroup, pod.containers["app"]


def _holds(cgroups: tuple[Path, Path]) -> bool:
    return [limit(one) for one in cgroups] == [str(_LIMIT)] * 2


def chart_changed_and_removed(node: Node) -> None:
    """The DaemonSet's pod is ready, and `helm test` says so; an upgrade and a rollback replace it, and limits of pods
    that run stay. After `helm uninstall` nothing of the chart is in the API server."""
    Relay("127.0.0.1", _METRICS, at=("", _METRICS), toward=node.containerd.pid)  # for kubelet's probe
    _ready(node)
    said = _typed(node, of_page("chart.md", "helm test"))
    assert "Phase:          Succeeded" in said, said
    upgrade = of_page("chart.md", "helm upgrade nodeward deploy/chart/nodeward -n nodeward --reuse-values")
    _typed(node, upgrade, "--set", "node.settings.limits.strict=true")
    _ready(node)
    assert _holds(_run(node))
    _typed(node, of_page("chart.md", "helm rollback"))
    _ready(node)
    assert _holds(_run(node))
    _typed(node, of_page("chart.md", "helm uninstall"))
    assert node.api.find(_SET) is None
    assert _holds(_run(node)), "as docs/chart.md says, limits stay in the kernel"


CASES: Final = named(chart_to_misc_max, chart_changed_and_removed)
