"""Every command on a page is run: those that ask a node on a simulated one, kubectl's on a real kube-apiserver, those
that change a host on one of their own (`test_doc_host.py`).

A test that runs a command in its own place takes it from the page with `of_page`. Of make's, make says that it knows
them. A command that nothing runs fails with its page and line.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.pages import FOUND, ROOT, Command, of_page
from tests.patience import scaled
from tests.peers.daemon import until
from tests.peers.find import require
from tests.real.test_doc_host import HOSTED, TAKEN, a_cluster

WITHIN_S = scaled(60.0)
BY_CI = ("scripts/install-tools", "scripts/build-peers", "scripts/vm-prepare")
"""They make what the tests need: `.ci/run` begins with the first, which runs the others."""


def elsewhere(command: Command) -> bool:
    return command.text in TAKEN or command in HOSTED or command.text.startswith(BY_CI)


def test_the_pages_have_commands() -> None:
    assert len(FOUND) > 80


MADE = [one for one in FOUND if one.text.startswith("make ") and not elsewhere(one)]


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
    with tempfile.TemporaryDirectory(prefix="nwd") as folder:
        program = Path(folder) / "nodeward"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodeward "$@"\n')
        program.chmod(0o755)
        grpcurl = require("grpcurl") if text.startswith("grpcurl") else folder
        path = f"{folder}:{require('helm') / 'bin'}:{grpcurl}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), **more}
        command = ["bash", "-o", "pipefail", "-c", text]
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=WITHIN_S)
    return done.returncode, done.stdout + done.stderr


def pods(folder: Path) -> list[tuple[str, ...]]:
    code, said = run("nodeward pod --list", ROOT, NODEWARD_SOCKET=str(folder / "nodeward.sock"))
    return [tuple(line.split()[:4]) for line in said.splitlines()[1:]] if code == 0 else []


ASKED = [one for one in FOUND if not elsewhere(one) and one.text.split()[0] in ("nodeward", "curl", "grpcurl")]


@pytest.fixture(name="given", scope="module")
def _given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages speak of."""
    folder = tmp_path_factory.mktemp("given")
    (folder / "deploy").symlink_to(ROOT / "deploy")
    shutil.copyfile(ROOT / "deploy/nodeward.example.yaml", folder / "nodeward.yaml")
    body = {"apiVersion": "config.nri/v1alpha1", "kind": "BalloonsPolicy", "metadata": {"name": "default"}}
    spec = {"reservedResources": {"cpu": 1}, "balloonTypes": [{"name": "own", "minCPUs": 1, "maxCPUs": 2}]}
    (folder / "balloons.yaml").write_text(yaml.safe_dump({**body, "spec": spec}))
    code, said = run(of_page("webhook.md", "deploy/webhook/make-certificate"), folder)
    assert code == 0, said
    head = "[2026-Nov-21 22:02:51.123] #7"
    asked = "pod_sandbox_id: s\n"
    (folder / "cri.dump").write_text(
        f"{head} RunPodSandbox => (relayed) REQUEST config: {{metadata: {{name: web, namespace: default, uid: u}}}}\n"
        f"[               +1.001234] #7 RunPodSandbox <= (relayed) FAILED: no room\n"
        f"{head.replace('7', '8', 1)} StopPodSandbox => (passthrough) REQUEST {asked}"
    )
    return folder


GOES_ON = ("curl -N", "nodeward dump /tmp/cri.dump --follow")


@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=[pytest.mark.nightly] * one.text.startswith("grpcurl")) for one in ASKED],
    ids=str,
)
def test_what_a_page_asks_is_answered_on_a_simulated_node(command: Command, node: Path, given: Path) -> None:
    """Pods come and go there: a command about one is tried on the pods of the moment."""
    text = re.sub(r"/tmp/nodeward-sim-\w+/run|/run/nodeward", str(node), command.text)
    text = text.replace("/etc/nodeward.yaml", f"{given}/nodeward.yaml").replace("/tmp/cri.dump", f"{given}/cri.dump")
    text = re.sub(r"nodeward sim (?!--list)(?!.*--for).*?(?=#|$)", r"\g<0> --for 2s ", text)
    text = text.replace("--watch", "--watch --times 1").replace("SOCKET", str(node / "nodeward.sock"))
    said = ""
    for pod in reversed(pods(node) if re.search(r"shop/web|\"shop\"|POD\b|UID", text) else [("", "", "", "")]):
        namespace, name, uid, sandbox = pod
        tried = re.sub(r"shop/web|default/POD|\bPOD\b", f"{namespace}/{name}", text)
        for word, value in (('"shop"', f'"{namespace}"'), ('"web"', f'"{name}"'), ('kata"', 'kata-qemu"')):
            tried = tried.replace(word, value)
        tried = re.sub(r"\bUID\b", uid, re.sub(r"\bSANDBOX\b", sandbox, tried)).replace("PATH", "/data")
        if command.text.startswith(GOES_ON):
            tried = f"timeout --signal INT 3 {tried}"
        code, said = run(tried, given, NODEWARD_SOCKET=str(node / "nodeward.sock"))
        as_expected = code in (0, 124) if "timeout" in tried else code == 0
        nothing_matches = tried.startswith("nodeward dump") and code == 1
        if (as_expected and '"code"' not in said[:9] and "curl: (" not in said) or nothing_matches:
            return
    pytest.fail(f"{command}: {said[-2000:]}")


CLUSTERED = [one for one in FOUND if one.text.startswith(("kubectl ", "kustomize ")) and not elsewhere(one)]


@pytest.fixture(name="config", scope="module")
def _config() -> Iterator[Path]:
    with a_cluster() as file:
        yield file


@pytest.mark.parametrize("command", CLUSTERED, ids=str)
def test_what_a_page_has_kubectl_do_is_done(command: Command, config: Path, given: Path) -> None:
    """One after the other, as the pages have them; what another page deletes is put there first."""
    text = re.sub(r"\bNODE\b", "node-1", command.text)
    shipped = "kubectl apply -k deploy/node"
    before: Mapping[str, str] = {"kubectl patch -n nodeward": shipped, "kubectl delete": shipped}
    for start, first in before.items():
        if text.startswith(start):
            code, said = run(first, given, KUBECONFIG=str(config))
            assert code == 0, said
    code, said = run(text, given, KUBECONFIG=str(config))
    assert code == 0, f"{command}: {said}"


def test_no_command_is_left_out() -> None:
    known = (*MADE, *ASKED, *CLUSTERED)
    assert [f"{one}" for one in FOUND if one not in known and not elsewhere(one)] == []
