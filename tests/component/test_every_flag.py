"""Every flag of every command, each played once on a simulated node: a flag that nobody plays fails here.

`PLAYED` has a line a call: the command, its words, its exit code, and a text that its output has; what is indented goes
on with the line before. In the words stand the names of what `_place` makes. Commands that go on are ended by SIGTERM
once they have said that text.
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
PLAYED = f"""
nodeward node | --config DAEMON {SET} --record NEW/r --wait --log-level debug | 0 | daemon begins
nodeward relay | --config RELAY {SET} --listen unix:NEW/l --runtime NEW/r --dump-file NEW/d --dump full:.*
    --log-level debug | 0 | relaying
nodeward webhook | --config HOOK {SET} --log-level debug | 1 | cert
nodeward agent | --kubeconfig K --config-ns n --configmap-name m --label-name l --cri-resmgr-socket NEW/c
    --agent-socket NEW/a --log-level debug | 1 | cannot be read
nodeward page | --socket SOCKET --listen 127.0.0.1:0 --any-port --allow-host h --config SETTINGS {SET} | 0 |
    page: http://
nodeward sim | quiet-day --for 1s --seed 3 --record NEW/r --metrics 127.0.0.1:0 --picture NEW/p --no-page | 0 |
    Quiet day (seed 3)
nodeward sim | --scenario quiet-day --for 60s --page | 0 | page: http://
nodeward sim | --list | 0 | one-node
nodeward status | -n default --state counted --state unmanaged --socket SOCKET -o wide | 0 | POD / CONTAINER
nodeward status | -n nothing --socket SOCKET | 0 | no pod has namespace nothing
nodeward status | --watch --every 0.1 --times 2 -o yaml --socket SOCKET | 0 | verdict:
nodeward status | --ready --socket SOCKET -o json | 0 | "ready":true
nodeward explain | default/no-such --socket SOCKET -o json | 1 | nothing known
nodeward doctor | --config SETTINGS {SET} --socket SOCKET -o yaml --bundle NEW/b | 1 | worst:
nodeward keys | --socket SOCKET -o yaml | 0 | key: tdx
nodeward keys move | --to dra --dry-run --socket SOCKET | 0 | keys do not go by claim here
nodeward keys move | --to dra --yes --within 0.1 --socket SOCKET | 1 | keys.dra
nodeward cpus | --socket SOCKET -o json | 0 | "policy":"none"
nodeward cpus policies list | -o yaml | 0 | name: balloons
nodeward cpus policies show | static -o json | 0 | full-pcpus-only
nodeward cpus policies check | POLICY -o json | 0 | "verdict":"done"
nodeward cpus policies plan | POLICY --socket SOCKET -o json | 0 | "moved"
nodeward cpus policies plan | POLICY --record SETTINGS | 2 | SETTINGS
nodeward vms | --handlers --socket SOCKET -o json | 0 | "hypervisor"
nodeward vms | --classes --socket SOCKET | 0 | CLASS
nodeward vms | --options -o yaml | 0 | defaults:
nodeward vms volume add | /data --device SETTINGS --fstype ext4 --type block --option ro --metadata fsGroup=5
    --folder NEW/v | 0 | mountInfo.json
nodeward vms volume check | --folder VOLUMES -o json | 0 | "faults":[]
nodeward vms volume list | --folder VOLUMES -o yaml | 0 | fs_type: ext4
nodeward vms volume remove | /other --force --folder VOLUMES | 0 | was not there
nodeward vms volume hold | /data --socket NEW/no.sock -- true | 1 | no daemon listens
nodeward vms network write | s1 --from DAN --folder NEW/n | 0 | s1.json
nodeward vms network check | DAN --folder NEW/n -o yaml | 0 | faults: []
nodeward vms cgroup plan | {BOX} --split --threaded --memory 9 --cpu-m 50 --vmm 41 --vcpu 42:7 --shim 43
    --virtiofsd 44 --version 2 -o yaml | 0 | phase: create
nodeward vms cgroup plan | {BOX} --only --overhead 5 --memory 9 --version 1 | 0 | memory.limit_in_bytes
nodeward vms cgroup plan | --sandbox s1 --cgroups-path /s1 --no-pod --version 2 | 0 | /s1
nodeward vms cgroup create | {BOX} --split --no-pod --threaded --memory 9 --overhead 5 --cpu-m 50 -o json | 1 |
    --overhead
nodeward vms cgroup place | {BOX} --only --no-pod --threaded --vmm x --vcpu 1 --shim 2 --virtiofsd 3 -o json |
    2 | 'x'
nodeward vms cgroup create | {BOX} --only --memory x | 2 | 'x'
nodeward vms cgroup place | {BOX} --split --vmm x | 2 | 'x'
nodeward vms cgroup delete | {BOX} --only --no-pod --threaded -o json | 1 | --threaded
nodeward vms cgroup delete | {BOX} --split --driver systemd | 2 | systemd
nodeward pod | --list --socket PODAPI -o json | 0 | "namespace":"default"
nodeward pod | default/no-such --spec --socket PODAPI | 1 | knows no such pod
nodeward pod gate | default/no-such --pass --expires 5m --socket PODAPI | 1 | knows no such pod
nodeward pod gate | default/no-such --deny why --socket PODAPI | 1 | knows no such pod
nodeward setup runtime | --runtime crio --dry-run | 0 | enable_nri
nodeward setup runtime | --runtime crio --undo --dry-run | 0 | nothing to put back
nodeward setup relay | --config RELAY {SET} --kubelet-config KUBELET --kubelet-config-dir NEW --flags-file
    FLAGS --dry-run | 0 | containerRuntimeEndpoint
nodeward setup relay | --undo --force --dry-run --kubelet-config KUBELET | 0 | nothing
nodeward setup cdi | --hook /opt/h --on-error refuse --folder /run/n | 0 | refuse
nodeward setup hook hooks-d | --hook /opt/h --on-error refuse --folder /run/n | 0 | /opt/h
nodeward setup hook base-spec | --from SPEC --hook /opt/h --on-error refuse --folder /run/n | 0 | /opt/h
nodeward setup hook containerd-config | --spec /x --runtime kata --version 2 | 0 | kata
nodeward setup completion | fish | 0 | _NODEWARD_COMPLETE
nodeward config show | --config SETTINGS {SET} --changed -o yaml | 0 | kube.enabled
nodeward uninstall | --config SETTINGS | 0 | nothing to take back
nodeward uninstall | --keys --socket SOCKET | 0 | with --yes it is done
nodeward uninstall | --keys --yes --socket SOCKET | 0 | tdx
nodeward dump | DUMP --method Run --pod web --failed --slower-than 0 -o json | 0 | RunPodSandbox
nodeward dump | DUMP --container none | 1 |
nodeward dump | DUMP --follow | 143 | RunPodSandbox
nodeward replay | RECORD --settings SETTINGS -o json | 0 | "differences":[]
kubectl nodeward status | -n default --state counted --watch --every 1 --times 1 -o yaml {KUBECTL} | 0 | node:
    node-1
kubectl nodeward doctor | -o json {KUBECTL} | 1 | "worst"
kubectl nodeward explain | no-such -n default -o json {KUBECTL} | 1 | nothing known
kubectl nodeward keys | -o json {KUBECTL} | 0 | "key":"tdx"
kubectl nodeward cpus | -o yaml {KUBECTL} | 0 | policy: none
kubectl nodeward vms | no-such -n default -o json {KUBECTL} | 1 | no-such
kubectl nodeward pod | no-such -n default -o json {KUBECTL} | 1 | knows no such pod
"""
LINES = [
    tuple(part.strip() for part in line.split("|", 3)) for line in re.sub(r"\n +", " ", PLAYED).strip().splitlines()
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
