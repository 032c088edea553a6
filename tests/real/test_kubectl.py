"""`kubectl nodeward` as a user has it: kubectl finds the program on PATH and execs, by a real API server and a real
kubelet, into a pod of the image of `make image` with the daemon in it. Two more nodes do not answer: on one the pod is
pending, of the other the API server knows no address.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nodeward import __version__
from tests.pages import ROOT, of_page
from tests.patience import scaled
from tests.peers.bundle import require_image
from tests.peers.containerd import running_containerd
from tests.peers.daemon import Daemon, until
from tests.peers.find import require
from tests.peers.keynode import NODE, PODS
from tests.peers.kubeclient import KubeClient
from tests.peers.kubelet import Api, kubeconfig
from tests.peers.nriside import Json, Record, member
from tests.peers.podaccess import streams_reachable
from tests.peers.podnode import container
from tests.peers.ports import free_port
from tests.rigs.cluster import running_cluster
from tests.rigs.containers import NODE as HERE
from tests.rigs.containers import joined_kubelet

HOME = "/api/v1/namespaces/nodeward/pods"
LABELS: Record = {"app.kubernetes.io/name": "nodeward-node"}
PLUGIN = (
    "#!{python}\nimport sys; sys.path.insert(0, {source!r}); from nodeward.cli.kubectl.plugin import main; main()\n"
)
SOURCE = str(ROOT / "src")
SPEC: Record = {"containers": [{"name": "node", "image": "nodeward"}]}


@dataclass(frozen=True, slots=True)
class User:
    folder: Path
    api: KubeClient

    def typed(self, text: str) -> tuple[int, str, str]:
        path = f"{self.folder / 'bin'}:{require('helm') / 'bin'}:/usr/bin:/bin"
        config = str(self.folder / "kubeconfig")
        environment = {**os.environ, "PATH": path, "HOME": str(self.folder), "KUBECONFIG": config}
        line = ["bash", "-c", text]
        done = subprocess.run(line, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=scaled(60.0))
        return done.returncode, done.stdout, done.stderr

    def ask(self, *words: str) -> tuple[int, str, str]:
        config = self.folder / "kubeconfig"
        options = (f"--kubeconfig={config}", "--context=test", f"--timeout={scaled(30.0)}")
        return self.typed(shlex.join(("kubectl", "nodeward", *words, *options)))


def pod(api: KubeClient, node: str, daemon: Daemon) -> None:
    """Nodeward's pod on a node, as its DaemonSet makes it; the settings lie beside the daemon's files."""
    words: list[Json] = ["node", "--config", str(daemon.config)]
    there = str(daemon.folder)
    made: Record = container("node") | {
        "image": f"docker.io/library/nodeward:{__version__}",
        "command": ["nodeward"],
        "args": words,
        "env": [{"name": "NODEWARD_SOCKET", "value": str(daemon.socket)}],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "there", "mountPath": there}, {"name": "nri", "mountPath": str(daemon.nri_socket)}],
    }
    volumes: list[Json] = [
        {"name": "there", "hostPath": {"path": there}},
        {"name": "nri", "hostPath": {"path": str(daemon.nri_socket)}},
    ]
    spec: Record = {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [made], "volumes": volumes}
    api.call("POST", HOME, {"metadata": {"name": f"nodeward-{node}", "labels": LABELS}, "spec": spec})


@pytest.fixture(name="user", scope="module")
def _user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    folder = tmp_path_factory.mktemp("kubectl")
    image = require_image()
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="ctd")))
        cluster, port = stack.enter_context(running_cluster(own=HERE)), free_port()
        server, api = cluster.server, cluster.client
        containerd = stack.enter_context(running_containerd(place, stream_port=port))
        loaded = containerd.ctr("images", "import", "--local", str(image))
        assert loaded.returncode == 0, loaded.stderr
        stack.enter_context(streams_reachable(containerd, port))
        stack.enter_context(joined_kubelet(cluster, containerd))
        (folder / "kubeconfig").write_text(kubeconfig(Api(server.base_url, server.ca_file, server.token)))
        (folder / "bin").mkdir()
        plugin = folder / "bin" / "kubectl-nodeward"
        plugin.write_text(PLUGIN.format(python=sys.executable, source=SOURCE))
        plugin.chmod(0o755)
        inside = containerd.folder / "nodeward"
        inside.mkdir()
        daemon = Daemon(inside, containerd.nri_socket)
        daemon.configure()
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "nodeward"}})
        for name in ("node-2", "node-10"):
            api.call("POST", NODE, {"metadata": {"name": name}})
        for name in (HERE, "node-2", "node-10"):
            pod(api, name, daemon)
        lost: Record = {"status": {"phase": "Running"}}
        api.call("PATCH", f"{HOME}/nodeward-node-10/status", lost, "application/merge-patch+json")
        user = User(folder, api)
        spec: Record = {"nodeName": HERE, "containers": [container("app")], "terminationGracePeriodSeconds": 1}
        api.call("POST", PODS, {"metadata": {"name": "web"}, "spec": spec})

        def shown() -> bool:
            return any(row["pod"] == "web" and row["container"] for row in rows(user.ask("status", "-o", "json")[1]))

        try:
            until(shown, "the daemon in the pod shows the other pod")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{user.ask('status')}\n{api.find(f'{HOME}/nodeward-{HERE}')}") from error
        yield user


def rows(said: str) -> list[dict[str, str]]:
    nodes = json.loads(said)["nodes"] if said else []
    return [row for one in nodes for row in (one["status"] or {}).get("rows", [])]


def test_status_is_one_table_and_says_which_nodes_do_not_answer(user: User) -> None:
    code, said, why = user.ask("status", "-n", "default")
    assert code == 1, why
    lines = said.splitlines()
    assert lines[0].startswith("1 of 3 nodes answer"), said
    assert lines[1] == "node-2: no answer: pod nodeward-node-2 is Pending"
    assert lines[2].startswith("node-10: no answer: Error from server: no preferred addresses found"), said
    table = lines[next(place for place, line in enumerate(lines) if line.startswith("NODE ")) + 1 :]
    assert [line.split()[:2] for line in table] == [[HERE, "default/web"]], said


def test_the_commands_of_the_pages_are_answered(user: User) -> None:
    made: Record = {
        "metadata": {"name": "nodeward-node"},
        "spec": {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": SPEC}},
    }
    user.api.call("POST", "/apis/apps/v1/namespaces/nodeward/daemonsets", made)  # no controller acts on it here
    code, said, why = user.typed(of_page("chart.md", "kubectl exec"))
    assert (code, "default/web" in said) == (0, True), said + why
    code, said, why = user.typed(of_page("commands.md", "kubectl nodeward status --state drift"))
    assert (code, said.startswith("1 of 3 nodes answer")) == (1, True), said
    code, said, why = user.typed(
        of_page("commands.md", "kubectl nodeward explain web").replace("-n shop", "-n default")
    )
    assert (code, "default/web" in said) == (0, True), said + why
    code, said, why = user.typed(of_page("tutorial.md", "kubectl nodeward doctor"))
    assert (code, HERE in said) == (1, True), said + why
    code, said, why = user.typed(of_page("tutorial.md", "kubectl nodeward status"))
    assert "default/web" in said, said + why


def test_explain_finds_the_node_of_the_pod(user: User) -> None:
    code, said, why = user.ask("explain", "web", "-o", "json")
    (answer,) = json.loads(said)["nodes"]
    assert (code, answer["node"], answer["fault"]) == (0, HERE, ""), why
    assert any("default/web" in line for line in answer["answer"])
    code, _, why = user.ask("explain", "none", "-n", "default")
    assert (code, 'pods "none" not found' in why) == (1, True), why


def test_doctor_looks_on_each_node_by_the_settings_of_the_daemon(user: User) -> None:
    code, said, why = user.ask("doctor", "-o", "json")
    first, *others = json.loads(said)["nodes"]
    assert code >= 1, why
    assert member(first, "node") == HERE
    places = [finding["where"] for finding in first["findings"]]
    assert any("/nodeward/cgroup" in place for place in places), first
    assert all(one["fault"] for one in others)
