"""CRI Resource Manager's dumper walk before a real containerd: a pod's life in the dump, and what it keeps back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc
import pytest

from tests.component.relay.rig import WAIT_S, wait_for
from tests.peers.containerd import IMAGE, running_containerd
from tests.peers.cri import Cri, container_config, pod_config, remove_pod, start

PROGRAMS = Path(sys.executable).parent


def test_a_pods_life_and_a_failure_stand_in_the_dump_and_its_secrets_do_not() -> None:
    with tempfile.TemporaryDirectory(prefix="ctd") as folder, running_containerd(Path(folder)) as daemon:
        listen, dump = daemon.folder / "relay.sock", daemon.folder / "cri.dump"
        walk = ["-policy", "null", "-dump", "reset,full:.*", "-dump-file", str(dump)]
        sockets = ["-runtime-socket", str(daemon.cri_socket), "-relay-socket", str(listen)]
        environment = {**os.environ, "NODEWARD_RUN_DIR": str(daemon.folder / "run")}
        with subprocess.Popen([PROGRAMS / "cri-resmgr", *walk, *sockets], env=environment) as relay:
            wait_for(listen.is_socket, "socket")
            try:
                with Cri(listen, daemon.peer / "proto" / "cri.proto") as cri:
                    container = container_config("app", IMAGE)
                    container["envs"] = [{"key": "TOKEN", "value": "aHVudGVyMg=="}]
                    pod = pod_config("walk", daemon.cgroup_parent, daemon.folder / "logs")
                    sandbox, made = start(cri, pod, container)
                    cri.call("ContainerStatus", {"container_id": made, "verbose": True})
                    with pytest.raises(grpc.RpcError):
                        cri.call("ContainerStatus", {"container_id": "none"})
                    remove_pod(cri, sandbox)
            finally:
                relay.terminate()
                relay.wait(WAIT_S)
        text = dump.read_text()
        print("\n".join(text.splitlines()[:20]))
        command = [str(PROGRAMS / "nodeward"), "dump", str(dump), "-o", "json"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    calls = [json.loads(line) for line in told.stdout.splitlines()]
    about = [(call["method"], call["failed"]) for call in calls if call["pod"] == "default/walk"]
    assert [method for method, _ in about][:4] == [
        "RunPodSandbox",
        "CreateContainer",
        "StartContainer",
        "ContainerStatus",
    ]
    assert about[-1] == ("RemovePodSandbox", False)
    assert [call["replies"][0][0][:9] for call in calls if call["failed"]] == ["NOT_FOUND"]
    assert "TOKEN" in text
    assert "hunter2" not in text
    assert "aHVudGVyMg==" not in text
