"""Walks of CRI Resource Manager's README before a real containerd: its dumper, and its policies."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet
from nodeward.neighbours.resmgr import config as pushing
from tests.component.relay.rig import WAIT_S, wait_for
from tests.peers.cgroups import CGROUP_ROOT
from tests.peers.containerd import IMAGE, OLD, Containerd
from tests.peers.cri import Cri, container_config, pod_config, remove_pod, start
from tests.peers.crisuite import cgroups_removed
from tests.peers.nriside import Record, member
from tests.rigs.containers import a_containerd, pod_of

PROGRAMS = Path(sys.executable).parent


ALL = cpuset.of(os.sched_getaffinity(0))
WHOLE = 2 if ALL.bit_count() > 3 else 1
"""So many CPUs a container asks for: one must be left for others, beside the reserved one."""


@dataclass(frozen=True, slots=True)
class Walk:
    daemon: Containerd

    @property
    def listen(self) -> Path:
        return self.daemon.folder / "relay.sock"

    def command(self, *options: str) -> list[str]:
        sockets = ["-runtime-socket", str(self.daemon.cri_socket), "-relay-socket", str(self.listen)]
        return [str(PROGRAMS / "cri-resmgr"), *options, *sockets]

    @property
    def environment(self) -> dict[str, str]:
        folder = self.daemon.folder
        return {**os.environ, "NODEWARD_RUN_DIR": f"{folder}/run", "NODEWARD_STATE_DIR": f"{folder}/state"}

    def told(self, *options: str) -> tuple[int, str]:
        command, output = self.command(*options), subprocess.PIPE
        done = subprocess.run(command, env=self.environment, stdout=output, stderr=subprocess.STDOUT, timeout=WAIT_S)
        return done.returncode, done.stdout.decode()

    @contextmanager
    def relay(self, *options: str) -> Iterator[Cri]:
        with (self.daemon.folder / "relay.log").open("a") as log:
            process = subprocess.Popen(self.command(*options), env=self.environment, stderr=log)
        try:
            wait_for(lambda: self.listen.is_socket() or process.poll() is not None, "socket")
            with Cri(self.listen, self.daemon.peer / "proto" / "cri.proto") as cri:
                yield cri
        finally:
            process.terminate()
            process.wait(WAIT_S)

    def start(self, cri: Cri, name: str, qos: str, millis: int) -> tuple[str, str]:
        """The pod and its container, which requests so much and is limited to it where it is Guaranteed."""
        pod = pod_config(name, f"{self.daemon.cgroup_parent}/kubepods{qos and '/'}{qos}", self.daemon.folder / "logs")
        container = container_config("app", IMAGE)
        resources: Record = {"cpu_shares": millis * 1024 // 1000, "cpu_period": 100_000}
        container["linux"] = {"resources": resources | ({} if qos else {"cpu_quota": millis * 100})}
        return start(cri, pod, container)

    def start_elsewhere(self, cri: Cri) -> str:
        """A container of a pod that names no cgroup, as crictl makes one."""
        pod = pod_config("elsewhere", "", self.daemon.folder / "logs")
        pod["linux"] = {"security_context": {"namespace_options": {"network": "NODE"}}}
        return start(cri, pod, container_config("app", IMAGE, memory_bytes=0))[1]


def test_a_pods_life_and_a_failure_stand_in_the_dump_and_its_secrets_do_not() -> None:
    with a_containerd() as daemon:
        dump, pod = daemon.folder / "cri.dump", pod_of(daemon, "walk")
        with Walk(daemon).relay("-policy", "null", "-dump", "reset,full:.*", "-dump-file", str(dump)) as cri:
            container = container_config("app", IMAGE)
            container["envs"] = [{"key": "TOKEN", "value": "aHVudGVyMg=="}]
            pod["annotations"] = pod["labels"] = {"io.kubernetes.container.hash": "hunter2"}
            sandbox, made = start(cri, pod, container)
            cri.call("ContainerStatus", {"container_id": made, "verbose": True})
            with pytest.raises(grpc.RpcError):
                cri.call("ContainerStatus", {"container_id": "none"})
            with pytest.raises(grpc.RpcError, match="hunter2"):
                cri.call("ExecSync", {"container_id": made, "cmd": ["/hunter2"], "timeout": 10})
            wrong = container_config("wrong", IMAGE) | {"command": ["/hunter2"]}
            asked: Record = {"pod_sandbox_id": sandbox, "config": wrong, "sandbox_config": pod}
            failed = cri.call("CreateContainer", asked)["container_id"]
            with pytest.raises(grpc.RpcError, match="hunter2"):
                cri.call("StartContainer", {"container_id": failed})
            status = cri.call("ContainerStatus", {"container_id": failed})
            assert "hunter2" in str(member(status, "status", "message"))
            remove_pod(cri, sandbox)
        text = dump.read_text()
        command = [str(PROGRAMS / "nodeward"), "dump", str(dump), "-o", "json"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    calls = [json.loads(line) for line in told.stdout.splitlines()]
    about = [(call["method"], call["failed"]) for call in calls if call["pod"] == "default/walk"]
    begins = ["RunPodSandbox", "CreateContainer", "StartContainer", "ContainerStatus"]
    assert [method for method, _ in about][:4] == begins
    assert about[-1] == ("RemovePodSandbox", False)
    said = [call["replies"][0][0] for call in calls if call["failed"]]
    assert [words.partition(":")[0] for words in said] == ["NOT_FOUND", "UNKNOWN", "UNKNOWN"]
    assert all(words.endswith(": *** commands, not shown ***") for words in said[1:])
    assert "TOKEN" in text
    assert "hunter2" not in text
    assert "aHVudGVyMg==" not in text


def cpus_of(container: str) -> CpuSet:
    root = next(one for one in (CGROUP_ROOT / "cpuset", CGROUP_ROOT) if one.is_dir())
    found = next(place for place, _, _ in os.walk(root) if place.endswith(container))
    file = "cpuset.cpus.effective" if (Path(found) / "cpuset.cpus.effective").exists() else "cpuset.effective_cpus"
    return cpuset.parse((Path(found) / file).read_text())


@pytest.fixture(name="walk", scope="module")
def _walk() -> Iterator[Walk]:
    with cgroups_removed(), a_containerd(release=OLD) as daemon:
        yield Walk(daemon)


def test_the_policy_null_changes_nothing(walk: Walk) -> None:
    with walk.relay("-policy", "null") as cri:
        sandbox, whole = walk.start(cri, "null", "", WHOLE * 1000)
        assert cpus_of(whole) == ALL
        remove_pod(cri, sandbox)


def test_each_policy_gives_whole_cpus_to_one_container_alone_and_is_not_switched_unless_forgotten(walk: Walk) -> None:
    static = ("-policy", "static", "--reserved-resources", "cpu=1")
    with walk.relay(*static) as cri:
        _, shared = walk.start(cri, "shared", "burstable", 200)
        elsewhere = walk.start_elsewhere(cri)
        assert [cpus_of(shared), cpus_of(elsewhere)] == [ALL, ALL]
        sandbox, whole = walk.start(cri, "whole", "", WHOLE * 1000)
        own = cpus_of(whole)
        assert own.bit_count() == WHOLE
        assert [cpus_of(shared), cpus_of(elsewhere)] == [ALL & ~own, ALL & ~own]

    plus = walk.daemon.folder / "plus.yaml"
    plus.write_text("policy: {Active: static-plus, ReservedResources: {CPU: 1}}\n")
    forced = ("--force-config", str(plus), "--disable-policy-switch")
    status, why = walk.told(*forced)
    assert status == 1
    assert why.startswith("cri-resmgr: policy static-plus: the last one was static ")
    assert walk.told("--reset-policy")[1].startswith("cri-resmgr: forgot the last policy, static\n")
    with walk.relay(*forced) as cri:
        wait_for(lambda: cpus_of(whole) & cpus_of(shared) == 0, "parted sets")
        assert cpus_of(whole) == own
        remove_pod(cri, sandbox)
        sandbox, whole = walk.start(cri, "again", "", WHOLE * 1000)
        assert cpus_of(whole).bit_count() == WHOLE
        assert cpus_of(whole) & (cpus_of(shared) | cpus_of(elsewhere)) == 0
        remove_pod(cri, sandbox)


def test_a_policy_that_is_pushed_moves_containers_that_run_and_the_empty_configuration_lets_them_go(walk: Walk) -> None:
    path = walk.daemon.folder / "config.sock"

    def push(config: dict[str, str]) -> None:
        assert asyncio.run(pushing.push(str(path), "node", config)) == ""

    with walk.relay("-config-socket", str(path)) as cri:
        sandbox, whole = walk.start(cri, "pushed", "", WHOLE * 1000)
        other, shared = walk.start(cri, "beside", "burstable", 200)
        assert [cpus_of(whole), cpus_of(shared)] == [ALL, ALL]
        push({"policy": "Active: static-plus\nReservedResources: {CPU: 1}\n"})
        wait_for(lambda: cpus_of(whole).bit_count() == WHOLE, "CPUs of its own")
        wait_for(lambda: cpus_of(whole) & cpus_of(shared) == 0, "parted sets")
        push({})
        wait_for(lambda: [cpus_of(whole), cpus_of(shared)] == [ALL, ALL], "all CPUs for both")
        remove_pod(cri, sandbox)
        remove_pod(cri, other)
    assert walk.told("-reset-config")[1].startswith("cri-resmgr: forgot the last configuration of the agent\n")
