"""Every flag of every command, each played once on a simulated node: a flag that nobody plays fails here.

The calls are lines of `every_flag.txt`, in which the words have the names of what `_place` makes. Commands that go on
are ended by SIGTERM once they have said their text.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from nodeward.cli.groups import Shows
from nodeward.cli.kubectl.plugin import cli as plugin
from nodeward.cli.main import cli
from tests.patience import scaled, until

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = scaled(60.0)
BOX = "--sandbox s1 --cgroups-path /pods/pod1/s1 --container c1=/pods/pod1/c1 --driver cgroupfs"
SET = "--set kube.enabled=false"
KUBECTL = "--context c --kubeconfig K --nodeward-namespace home --timeout 30 --node node-1"
PLAYED = Path(__file__).with_name("every_flag.txt").read_text().format(BOX=BOX, SET=SET, KUBECTL=KUBECTL)
LINES = [
    tuple(part.strip() for part in line.split("|", 3))
    for line in re.sub(r"\n +", " ", PLAYED).splitlines()
    if line[0] != "#"
]


def options(command: click.Command, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each command's flags, by all their spellings; a switch has two."""
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for below in command.list_commands(context):
                found = command.get_command(context, below)
                assert found is not None, below
                yield from options(found, f"{name} {below}")
    if not isinstance(command, click.Group) or isinstance(command, Shows):
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                yield name, tuple(param.opts)
                if param.secondary_opts:
                    yield name, tuple(param.secondary_opts)


def test_every_flag_is_played() -> None:
    played = {(command, word.partition("=")[0]) for command, words, *_ in LINES for word in shlex.split(words)}
    every = [*options(cli, "nodeward"), *options(plugin, "kubectl nodeward")]
    left = [(name, opts) for name, opts in every if not any((name, opt) in played for opt in opts)]
    assert len(every) > 200
    assert left == []


@pytest.fixture(name="place", scope="module")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """By the words of the table, files and sockets; a simulated node serves the sockets."""
    folder = tmp_path_factory.mktemp("flags")
    policy = {"reservedResources": {"cpu": 1}, "balloonTypes": [{"name": "own", "minCPUs": 1, "maxCPUs": 2}]}
    off: dict[str, object] = {"state_dir": f"{folder}/state", "run_dir": f"{folder}/run", "nri": {"enabled": False}}
    node = off | {"cgroups": {"root": f"{folder}/cgroup"}, "metrics": {"enabled": False}}
    head = "[2026-Nov-21 22:02:51.123] #7 RunPodSandbox"
    files: dict[str, str] = {
        "SETTINGS": yaml.safe_dump(off),
        "DAEMON": yaml.safe_dump(node),
        "RELAY": yaml.safe_dump({"run_dir": f"{folder}/relay", "state_dir": f"{folder}/state"}),
        "HOOK": "{}\n",
        "POLICY": yaml.safe_dump(policy),
        "DAN": json.dumps({"devices": [], "netns": "/run/netns/x"}),
        "KUBELET": "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n",
        "FLAGS": "KUBELET_KUBEADM_ARGS=--v=2\n",
        "SPEC": json.dumps({"ociVersion": "1.1.0", "process": {}, "mounts": []}),
        "DUMP": f"{head} => (relayed) REQUEST config: {{metadata: {{name: web, namespace: default, uid: u}}}}\n"
        f"[               +1.001234] #7 RunPodSandbox <= (relayed) FAILED: no room\n",
        "SIM": "title: Every view\nabout: Each command has something to show.\ncapacity: {sgx_epc: 536870912, tdx: 8}\n"
        "pods: 1\nvms: 2\noffer: true\nkatas: 2\ngate: true\nlife_s: [500, 600]\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    for name in ("run", "relay", "state", "cgroup", "new"):
        (folder / name).mkdir()
    (folder / "cgroup/cgroup.controllers").write_text("misc\n")
    volume = ["vms", "volume", "add", "/data", "--device", f"{folder}/SETTINGS", "--fstype", "ext4"]
    _said([*volume, "--folder", f"{folder}/VOLUMES"])
    made = [sys.executable, "-m", "nodeward", "sim", "quiet-day", "--for", "2s", "--record", f"{folder}/RECORD"]
    subprocess.run(made, check=True, capture_output=True, timeout=WITHIN_S)
    command = [sys.executable, "-m", "nodeward", "sim", str(folder / "SIM"), "--no-page"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as simulation:
        assert simulation.stdout is not None
        socket = simulation.stdout.readline().split()[-1]
        names = {name: f"{folder}/{name}" for name in (*files, "RECORD", "VOLUMES", "K")}
        names |= {"SOCKET": socket, "PODAPI": f"{Path(socket).parent}/podapi.sock", "NEW": f"{folder}/new"}
        pods = {"items": [_pod("nodeward-1", "home")]}
        (folder / "kubectl").write_text(
            f"#!/bin/sh\ncase \" $* \" in *' get pods '*) echo '{json.dumps(pods)}' ;;\n"
            f"*' get pod '*) echo '{json.dumps(_pod('no-such', 'default'))}' ;;\n"
            f'*) while [ "$1" != -- ]; do shift; done; shift 2\n'
            f'NODEWARD_SOCKET={socket} exec {sys.executable} -m nodeward "$@" ;; esac\n'
        )
        (folder / "kubectl").chmod(0o755)
        names["PATH"] = f"{folder}:{os.environ['PATH']}"
        try:
            until(lambda: "default/vm-" in _said(["status", "--socket", socket]), "VMs")
            until(lambda: "default" in _said(["pod", "--list", "--socket", names["PODAPI"]]), "the Pod API")
            yield names
        finally:
            simulation.terminate()
            simulation.communicate(timeout=WITHIN_S)


def _pod(name: str, namespace: str) -> dict[str, object]:
    spec = {"nodeName": "node-1", "containers": [{"name": "node", "args": []}]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": {"phase": "Running"}}


def _said(words: list[str]) -> str:
    command = [sys.executable, "-m", "nodeward", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False).stdout


GO_ON = ("nodeward node", "nodeward relay", "nodeward page")
PLUGIN = "from nodeward.cli.kubectl.plugin import main; main()"


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line[0]} {line[1][:60]}")
def test_a_flag_does_what_its_line_says(line: tuple[str, str, str, str], place: dict[str, str]) -> None:
    command, words, code, text = line
    given = [re.sub(r"\b[A-Z]+\b", lambda name: place.get(name[0], name[0]), word) for word in shlex.split(words)]
    start = (
        ["-m", "nodeward", *command.split()[1:]]
        if command.startswith("nodeward")
        else ["-c", PLUGIN, *command.split()[2:]]
    )
    environment = {**os.environ, "PATH": place["PATH"], "NODEWARD_SOCKET": place["SOCKET"], "NODE_NAME": "node-1"}
    goes_on = command in GO_ON or "--follow" in words or "--page" in words
    with subprocess.Popen(
        [sys.executable, *start, *given], env=environment, cwd=ROOT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            if goes_on:
                assert process.stdout is not None
                said = ""
                while text not in said and (one := process.stdout.readline()):
                    said += one
                process.send_signal(signal.SIGTERM)
                said += process.communicate(timeout=WITHIN_S)[0]
            else:
                said = process.communicate(timeout=WITHIN_S)[0]
        finally:
            process.kill()
    wanted = place.get(text, text)
    assert (process.returncode % 256 if process.returncode >= 0 else 128 - process.returncode, wanted in said) == (
        int(code),
        True,
    ), said[-3000:]
