"""Every command on a page is run: those that read on a simulated node, kubectl's on a real kube-apiserver.

Commands that change a host, or need a VM, a runtime or a person, stand in `ELSEWHERE` with the test that runs them;
each is looked for there by its words. Of make's, make says that it knows them. A command that is in
no table fails with its page and line.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.patience import scaled
from tests.peers.daemon import until
from tests.peers.find import require
from tests.peers.kube import running_apiserver
from tests.peers.kubeclient import KubeClient
from tests.peers.kubelet import Api, kubeconfig
from tests.peers.nriside import Record
from tests.real.test_policy_objects import served

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = (
    *("nodeward", "nodeward-oci-hook", "cri-resmgr", "cri-resmgr-agent", "cri-resmgr-webhook", "kubectl", "helm"),
    *("make", "curl", "grpcurl", "systemctl", "ctr", "crictl", "podman", "ssh", "cp", "rm", "mkdir", "python3", "pip"),
    *("scripts/install-tools", "scripts/build-peers", "scripts/vm-prepare", "minisign", "sha256sum", "kustomize"),
)
WITHIN_S = scaled(60.0)
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ELSEWHERE = {
    r"python3 -m venv|pip install": ("tests/component/test_pythons.py", ("venv", "pip")),
    r"systemctl|cp .*systemd|rm -r /etc/systemd": ("tests/vm/units_cases.py", ("daemon-reload",)),
    r"cp deploy/nodeward.example.yaml": ("tests/unit/test_docs.py", ("nodeward.example.yaml",)),
    r"rm -rf? /opt/nodeward|make bundle": ("tests/real/test_bundle.py", ("require_bundle",)),
    r"make image|ctr .*images import": ("tests/real/test_image.py", ("require_image",)),
    r"make release|sha256sum|minisign": ("tests/real/test_release.py", ("build-release", "--check", "-Vm")),
    r"mkdir -p /sys/fs/cgroup/misc": ("tests/vm/v1_cases.py", ("misc",)),
    r"nodeward hook|ctr oci spec": ("tests/vm/hook_cases.py", ("hook",)),
    r"nodeward sandbox-cgroup": ("tests/contract/sandboxes/test_sandbox_cgroup.py", ("create", "place", "delete")),
    r"nodeward (volume|network)": ("tests/unit/cli/test_volume.py", ("add", "remove", "list", "check", "write")),
    r"nodeward kubelet relay": ("tests/vm/joined_relay.py", ("kubelet", "relay")),
    r"cri-resmgr-webhook": ("tests/real/test_webhook.py", ("cri_resmgr_webhook",)),
    r"nodeward relay|cri-resmgr ": ("tests/real/test_cri_resmgr.py", ("-policy", "-dump-file", "-config-socket")),
    r"NODE_NAME=\S+ nodeward agent": ("tests/real/test_agent.py", ("-kubeconfig",)),
    r"nodeward node": ("tests/real/test_policy_objects.py", ("policy_objects", "daemon(")),
    r"nodeward webhook|curl --cacert": ("tests/real/test_webhook.py", ("webhook", "PATH")),
    r"nodeward page|ssh -L": ("tests/component/page/test_page_server.py", ('"page"',)),
    r"nodeward replay": ("tests/component/test_replay.py", ("--settings",)),
    r"nodeward doctor": ("tests/real/test_doctor.py", ("doctor",)),
    r"nodeward dump .*--follow": ("tests/component/relay/test_dump_read.py", ("_followed",)),
    r"nodeward gate \S+ --deny": ("tests/unit/cli/test_gate_and_pod.py", ("--deny",)),
    r"nodeward sim (?!--list)": ("tests/component/page/test_page_browser.py", ("--scenario",)),
    r"kubectl nodeward": ("tests/real/test_kubectl.py", ("status", "explain", "doctor")),
    r"kubectl (exec|rollout|label namespace nodeward)|helm ": (
        "tests/vm/chart_cases.py",
        ("install", "upgrade", "rollback"),
    ),
    r"kubectl apply -f certificate/|kubectl patch mutating": (
        "tests/component/webhook/test_make_certificate.py",
        ("secret.yaml",),
    ),
    r"curl .*(OfferVolumes|ConfirmVolume)": ("tests/unit/app/test_pod_volumes.py", ("OfferVolumes", "ConfirmVolume")),
    r"curl -N": ("tests/contract/podapi", ("Watch",)),
    r"scripts/(install-tools|build-peers|vm-prepare)": (".ci/run", ("scripts/install-tools",)),
    r"nodeward policies plan": ("tests/component", ("policies", "plan")),
}
"""By an expression of the command: a file or folder, and words that are in it."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command as a page has it, in one line."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.text[:60]}"


def _complete(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return not text.rstrip().endswith("\\")


def commands(page: Path) -> Iterator[Command]:
    """What stands in the page's indented and fenced blocks and begins with a program's name."""
    fenced, kept, first = False, "", 0
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
            continue
        if not (fenced or line.startswith("    ")):
            kept = ""
            continue
        kept, first = (f"{kept}\n{line.strip()}", first) if kept else (line.strip(), number)
        words = [one for one in kept.split() if not re.fullmatch(r"[A-Z_]+=\S*", one)]
        if not words or (words[0] not in PROGRAMS and not words[0].startswith("/opt/nodeward/bin/")):
            kept = ""
        elif _complete(kept):
            yield Command(page.name, first, kept.replace("/opt/nodeward/bin/", ""))
            kept = ""


FOUND = [one for page in PAGES for one in commands(page) if not re.match(r"nodeward node (ended|runs)", one.text)]


def elsewhere(command: Command) -> tuple[str, tuple[str, ...]] | None:
    return next((where for name, where in ELSEWHERE.items() if re.match(name, command.text)), None)


def test_the_pages_have_commands() -> None:
    assert len(FOUND) > 80


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_run_elsewhere_is_run_there(name: str) -> None:
    place, words = ELSEWHERE[name]
    path = ROOT / place
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [word for word in words if word not in text] == []
    assert any(re.match(name, one.text) for one in FOUND), "no page has it any more"


MADE = [one for one in FOUND if one.text.startswith("make ") and elsewhere(one) is None]


@pytest.mark.parametrize("command", MADE, ids=str)
def test_make_knows_what_a_page_makes(command: Command) -> None:
    done = subprocess.run(
        ["make", "--dry-run", *shlex.split(command.text, comments=True)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(name="node", scope="module")
def _node() -> Iterator[Path]:
    """The folder of the sockets of a simulated node with pods at gates and the Pod API."""
    command = [sys.executable, "-m", "nodeward", "sim", "--scenario", "gate", "--no-page"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as simulation:
        assert simulation.stdout is not None
        folder = Path(simulation.stdout.readline().split()[-1]).parent
        try:
            until(lambda: len(pods(folder)) > 2, "pods")
            yield folder
        finally:
            simulation.terminate()
            simulation.communicate(timeout=WITHIN_S)


def run(text: str, cwd: Path, **more: str) -> tuple[int, str]:
    """As a person types it, with the checkout's programs."""
    with tempfile.TemporaryDirectory(prefix="nwd") as folder:
        for name, module in (("nodeward", "nodeward"),):
            program = Path(folder) / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
            program.chmod(0o755)
        path = f"{folder}:{require('helm') / 'bin'}:{require('grpcurl')}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), **more}
        command = ["bash", "-o", "pipefail", "-c", text]
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=WITHIN_S)
    return done.returncode, done.stdout + done.stderr


def pods(folder: Path) -> list[str]:
    """Those that the node knows, as NAMESPACE/NAME; the newest last."""
    code, said = run("nodeward pod --list", ROOT, NODEWARD_SOCKET=str(folder / "nodeward.sock"))
    rows = [line.split() for line in said.splitlines()[1:]] if code == 0 else []
    return [f"{row[0]}/{row[1]}" for row in rows]


ASKED = [one for one in FOUND if elsewhere(one) is None and one.text.split()[0] in ("nodeward", "curl", "grpcurl")]


@pytest.fixture(name="given", scope="module")
def _given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages speak of."""
    folder = tmp_path_factory.mktemp("given")
    (folder / "deploy").symlink_to(ROOT / "deploy")
    shutil.copyfile(ROOT / "deploy/nodeward.example.yaml", folder / "nodeward.yaml")
    body = {"apiVersion": "config.nri/v1alpha1", "kind": "BalloonsPolicy", "metadata": {"name": "default"}}
    spec = {"reservedResources": {"cpu": 1}, "balloonTypes": [{"name": "own", "minCPUs": 1, "maxCPUs": 2}]}
    (folder / "balloons.yaml").write_text(yaml.safe_dump({**body, "spec": spec}))
    head = "[2026-Nov-21 22:02:51.123] #7"
    asked = "pod_sandbox_id: s\n"
    (folder / "cri.dump").write_text(
        f"{head} RunPodSandbox => (relayed) REQUEST config: {{metadata: {{name: web, namespace: default, uid: u}}}}\n"
        f"[               +1.001234] #7 RunPodSandbox <= (relayed) FAILED: no room\n"
        f"{head.replace('7', '8', 1)} StopPodSandbox => (passthrough) REQUEST {asked}"
    )
    return folder


@pytest.mark.parametrize("command", ASKED, ids=str)
def test_what_a_page_asks_is_answered_on_a_simulated_node(command: Command, node: Path, given: Path) -> None:
    """Pods come and go there: a command about one is tried on the pods of the moment."""
    text = re.sub(r"/tmp/nodeward-sim-\w+/run|/run/nodeward", str(node), command.text)
    text = text.replace("/etc/nodeward.yaml", f"{given}/nodeward.yaml").replace("/tmp/cri.dump", f"{given}/cri.dump")
    text = re.sub(r"nodeward sim --scenario \S+", r"\g<0> --for 2s", text)
    text = text.replace("nodeward top", "nodeward top --times 1").replace("SOCKET", str(node / "nodeward.sock"))
    said = ""
    for pod in reversed(pods(node) if re.search(r"shop/web|\"shop\"|POD\b", text) else [""]):
        namespace, _, name = pod.partition("/")
        tried = re.sub(r"shop/web|default/POD|\bPOD\b", pod, text).replace('"shop"', f'"{namespace}"')
        tried = tried.replace('"web"', f'"{name}"').replace('kata"', 'kata-qemu"')
        code, said = run(tried, given, NODEWARD_SOCKET=str(node / "nodeward.sock"))
        nothing_matches = tried.startswith("nodeward dump") and code == 1
        if (code == 0 and '"code"' not in said[:9] and "curl: (" not in said) or nothing_matches:
            return
    pytest.fail(f"{command}: {said[-2000:]}")


CLUSTERED = [one for one in FOUND if one.text.startswith(("kubectl ", "kustomize ")) and elsewhere(one) is None]


@contextmanager
def a_cluster() -> Iterator[Path]:
    """A kubeconfig of a real API server with one node and the kinds that the manifests speak of."""
    with tempfile.TemporaryDirectory(prefix="nwk") as name, running_apiserver(Path(name)) as server:
        client = KubeClient(server.base_url, server.ca_file, server.token)
        client.call("POST", "/api/v1/nodes", {"metadata": {"name": server.node}})
        for path in sorted(Path(__file__).parent.glob("*_crd*.yaml")):
            for one in yaml.safe_load_all(path.read_text()):
                client.call("POST", CRDS, one)
        for namespace in ("nodeward", "nodeward-system"):
            client.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        for place in ("cert-manager.io/v1/issuers", "topology.node.k8s.io/v1alpha2/noderesourcetopologies"):
            until(partial(served, client, f"/apis/{place}"), "the kinds are served")
        zones: Record = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
        zones |= {
            "metadata": {"name": server.node},
            "topologyPolicies": ["none"],
            "zones": [{"name": "n", "type": "Node"}],
        }
        client.call("POST", "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies", zones)
        status: Record = {"status": {"capacity": {"devices.kubevirt.io/tdx": "4"}}}
        client.call("PATCH", f"/api/v1/nodes/{server.node}/status", status, "application/merge-patch+json")
        file = Path(name) / "kubeconfig"
        file.write_text(kubeconfig(Api(server.base_url, server.ca_file, server.token)))
        yield file


@pytest.fixture(name="config", scope="module")
def _config() -> Iterator[Path]:
    with a_cluster() as file:
        yield file


@pytest.mark.parametrize("command", CLUSTERED, ids=str)
def test_what_a_page_has_kubectl_do_is_done(command: Command, config: Path) -> None:
    """One after the other, as the pages have them; what another page deletes is put there first."""
    text = re.sub(r"\bNODE\b", "node-1", command.text)
    shipped = "kubectl apply -k deploy/node"
    before: Mapping[str, str] = {"kubectl patch -n nodeward": shipped, "kubectl delete": shipped}
    for start, first in before.items():
        if text.startswith(start):
            code, said = run(first, ROOT, KUBECONFIG=str(config))
            assert code == 0, said
    code, said = run(text, ROOT, KUBECONFIG=str(config))
    assert code == 0, f"{command}: {said}"


def test_no_command_is_left_out() -> None:
    known = {*MADE, *ASKED, *CLUSTERED, *(one for one in FOUND if elsewhere(one) is not None)}
    assert [f"{one}" for one in FOUND if one not in known] == []
