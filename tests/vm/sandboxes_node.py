"""A node with cgroup v2 and systemd inside the guest whose pods run in VMs: containerd, Kata's Go host side with real
QEMU (tests/peers/katahost.py), `nodeward node`, and the hands of a kubelet that has no API server.

containerd's own configuration names runc's shim, which calls Kata's libraries. The one in /etc, which Nodeward reads,
names Kata's shim, as on a node that has one.
"""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
import msgspec

from nodeward.features.sandboxes.rows import SandboxesView, SandboxRow
from tests.peers.containerd import IMAGE, Containerd, NriOptions, running_containerd
from tests.peers.cri import Cri, container_config, remove_pod, start
from tests.peers.katahost import PASSED_ON, KataOptions, KataSandbox, write_kata
from tests.peers.nriside import Record
from tests.vm.inside import CGROUPS, Daemon, until
from tests.vm.systemd import service_of, start_units

FOLDER: Final = Path("/dev/shm/sandboxes")
MIB: Final = 1 << 20
BASE_MIB: Final = 64
"""`default_memory` of every handler: what a VM has beside the limits of its containers."""
PERIOD_S: Final = 2.0
SAMPLES: Final = 10
KUBEPODS, STANDALONE = "/kubepods", "/standalone"
BUSY, PLAIN = "kata-busy", "kata-plain"
"""Runtime handlers: the guest's CPUs run and the mode is true; as Kata names threads, and the mode is false."""
HANDLERS: Final = {
    BUSY: KataOptions(True, memory_mib=BASE_MIB, running=True, named_threads=True),
    "kata": KataOptions(True, memory_mib=BASE_MIB, named_threads=True),
    PLAIN: KataOptions(False, memory_mib=BASE_MIB),
}
_RUNTIME_WAITS_S: Final = 20.0
"""For an answer by NRI, since a guest is slow."""
_SETTINGS: Final = f"sandboxes: {{mode: observe, samples: {SAMPLES}}}\n"
_KATA: Final = """
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}]
  runtime_type = 'io.containerd.kata.v2'
  pod_annotations = ['{passed_on}']
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}.options]
  ConfigPath = '{folder}/configuration.toml'
"""
_BUS: Final = {
    "dbus.socket": "[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
    "dbus.service": "[Service]\nType=notify\n"
    "ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation\n",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    handler: str = "kata"
    above: str = KUBEPODS
    annotations: Mapping[str, str] = field(default_factory=dict)
    limit_mib: int = 32
    """Of the container."""
    cpu_m: int = 0
    overhead_mib: int = 0
    overhead_cpu_m: int = 0
    pod_limit: int | None = None
    """`memory.max` of the pod, which kubelet writes first."""


@dataclass(frozen=True, slots=True)
class VmPod:
    name: str
    parent: str
    """Its cgroup's path."""
    seen: KataSandbox

    def file(self, name: str) -> str:
        return (CGROUPS / self.parent[1:] / name).read_text().strip()

    def limit(self, name: str, value: str) -> None:
        (CGROUPS / self.parent[1:] / name).write_text(value)

    def oom_kills(self) -> int:
        lines = (line.split() for line in self.file("memory.events").splitlines())
        return next(int(number) for name, number in lines if name == "oom_kill")

    def lives(self) -> bool:
        try:
            return "qemu-system" in Path(f"/proc/{self.seen.vmm}/cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False


@dataclass(slots=True)
class SandboxesNode:
    containerd: Containerd
    daemon: Daemon
    cri: Cri
    pods: dict[str, VmPod] = field(default_factory=dict)

    def run(self, name: str, wanted: Wanted) -> VmPod:
        uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
        parent = f"{wanted.above}/pod{uid}"
        if wanted.above.endswith(".slice"):
            unit = f"{wanted.above[1:].removesuffix('.slice')}-pod{uid.replace('-', '_')}.slice"
            subprocess.run(["systemctl", "start", unit], check=True, timeout=300)
            parent = f"{wanted.above}/{unit}"
        else:
            (CGROUPS / parent[1:]).mkdir()
        if wanted.pod_limit is not None:
            (CGROUPS / parent[1:] / "memory.max").write_text(str(wanted.pod_limit))
        of_pod, more = (
            _resources(wanted.limit_mib, wanted.cpu_m),
            _resources(wanted.overhead_mib, wanted.overhead_cpu_m),
        )
        config: Record = {
            "metadata": {"name": name, "uid": uid, "namespace": "vms"},
            "annotations": dict(wanted.annotations),
            "log_directory": str(self.containerd.folder / "logs"),
            "linux": {
                "cgroup_parent": parent,
                "security_context": {"namespace_options": {"network": "NODE"}},
                "resources": of_pod,
                "overhead": more,
            },
        }
        container: Record = {**container_config("app", IMAGE), "linux": {"resources": of_pod}}
        sandbox, _ = start(self.cri, config, container, wanted.handler)
        pod = self.pods[name] = VmPod(name, parent, KataSandbox.of(sandbox))
        return pod

    def remove(self, *names: str) -> None:
        for name in names:
            remove_pod(self.cri, self.pods.pop(name).seen.id)

    def view(self) -> SandboxesView:
        return msgspec.json.decode(self.daemon.ask("vms", "-o", "json"), type=SandboxesView)

    def row(self, pod: VmPod) -> SandboxRow | None:
        return next((row for row in self.view().rows if row.id == pod.seen.id), None)

    def fresh(self, pod: VmPod) -> SandboxRow:
        """The row by the second reading from now on: each other one has everything."""
        row: SandboxRow | None = None
        for _ in range(2):
            begin = time.monotonic()

            def is_new(begin: float = begin) -> bool:
                nonlocal row
                for_s = time.monotonic() - begin  # before it is asked, so that it is no more than that
                row = self.row(pod)
                age_ms = None if row is None else row.age_ms
                return age_ms is not None and age_ms < for_s * 1000

            until(is_new, f"{pod.name} is read again", 20)
        assert row is not None
        return row

    def enforce(self) -> None:
        settings = self.daemon.config.read_text()
        self.daemon.config.write_text(settings.replace("mode: observe", "mode: enforce"))
        os.kill(self.daemon.pid, signal.SIGHUP)
        until(lambda: self.view().mode == "enforce", "the mode is taken up")

    def log(self) -> str:
        return f"{self.daemon.log()}\n{self.containerd.log()}"


def _resources(memory_mib: int, cpu_m: int) -> Record:
    found: Record = {"memory_limit_in_bytes": memory_mib * MIB} if memory_mib else {}
    return found | ({"cpu_period": 100_000, "cpu_quota": cpu_m * 100} if cpu_m else {})


def start_bus() -> None:
    """The system bus, by which runtime-rs's library calls systemd; Kata Go's needs none."""
    Path("/run/dbus").mkdir(exist_ok=True)
    start_units(_BUS)


def _as_unit(containerd: Containerd) -> None:
    """Starts it again as a unit of systemd's, without namespaces: Kata tells systemd its process by number."""
    containerd.stop()
    log = f"StandardOutput=append:{FOLDER}/containerd/containerd.log\nStandardError=inherit\n"
    start_units({"containerd.service": service_of(containerd) + log})

    def answers() -> bool:
        try:
            with containerd.cri() as cri:
                return bool(cri.call("Status"))
        except grpc.RpcError:
            return False

    until(answers, "containerd answers", 30)


@contextmanager
def running_node() -> Iterator[SandboxesNode]:
    FOLDER.mkdir()
    start_bus()
    for above in (KUBEPODS, STANDALONE):
        (CGROUPS / above[1:]).mkdir()
        for folder in (CGROUPS, CGROUPS / above[1:]):
            (folder / "cgroup.subtree_control").write_text("+cpu +memory")
    runtimes = {name: write_kata(FOLDER / name, options) for name, options in HANDLERS.items()}
    Path("/etc/containerd").mkdir(exist_ok=True)
    told = [_KATA.format(name=name, passed_on=PASSED_ON, folder=FOLDER / name) for name in HANDLERS]
    Path("/etc/containerd/config.toml").write_text("version = 3\n" + "".join(told))
    os.environ["NODEWARD_KUBE__ENABLED"] = "false"
    (FOLDER / "containerd").mkdir()
    nri = NriOptions(request_timeout_s=_RUNTIME_WAITS_S)
    with (
        running_containerd(FOLDER / "containerd", nri, handlers=runtimes, annotations=(PASSED_ON,)) as containerd,
        containerd.cri() as cri,
    ):
        _as_unit(containerd)
        daemon = Daemon(containerd.nri_socket, _SETTINGS)
        try:
            daemon.start("off")
            yield SandboxesNode(containerd, daemon, cri)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{daemon.log()}") from error
        finally:
            daemon.end(signal.SIGKILL)
