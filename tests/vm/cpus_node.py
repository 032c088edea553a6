"""A node of eight CPUs inside the guest whose containers get their CPUs by a policy: containerd with NRI, or containerd
1.7 behind the relay, `nodeward node`, and the hands of a kubelet that has no API server.

What a container requests is in what kubelet tells the runtime: shares, quota, and the pod's cgroup. Everything is below
one folder on a tmpfs.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc

from nodeward.core import cpuset
from nodeward.core.annotations import MEMORY_TYPE
from nodeward.core.cpuset import CpuSet
from nodeward_sim.doubles.cpus import CPU, NODE, Plan, sysfs
from tests.patience import patience
from tests.peers.containerd import IMAGE, NEWEST, OLD, Containerd, NriOptions, running_containerd
from tests.peers.cri import Cri, pod_config
from tests.peers.nriside import Record, text
from tests.vm.cpus_faults import RECORDS
from tests.vm.inside import CGROUPS, RUN_DIR, CriRelay, Daemon, until


@dataclass(frozen=True, slots=True)
class FirstAct:
    """What one program found. Times are by the machine's monotonic clock."""

    own: cpuset.CpuSet
    began_ns: int
    read_ns: int
    """When everything had been read."""
    others: Mapping[str, cpuset.CpuSet]
    """By cgroup, of those that had processes."""


def first_act(written: str) -> FirstAct:
    """The record of a program. A line that is not as it should be is an error."""
    began, own, *others, read = (line.split(" ", 1) for line in written.splitlines())
    if (began[0], own[0], read[0]) != ("began", "own", "at") or not own[1]:
        raise ValueError(f"a record has the lines began, own and at, not {began}, {own} and {read}")
    by_cgroup = {cgroup: cpuset.parse(cpus) for cgroup, cpus in others}
    return FirstAct(cpuset.parse(own[1]), int(began[1]), int(read[1]), by_cgroup)


def compiled(folder: Path) -> Path:
    program = folder / "first_act"
    line = ["gcc", "-O2", "-static", "-Wall", "-Werror", "-o", str(program), str(Path(__file__).parent / "first_act.c")]
    subprocess.run(line, check=True, timeout=60 * patience())
    return program


def overlaps(acts: Mapping[str, FirstAct], container: str) -> list[str]:
    """Each container whose program ran already and might use this one's CPUs when its program began. What has no
    program of its own does not count: the process by which runc makes a container is on its pod's CPUs until it is told
    its own, and a sandbox has the whole machine, as with kubelet's policies."""
    act = acts[container]
    found = list[str]()
    for cgroup, cpus in act.others.items():
        other = cgroup.rsplit("/", 1)[1]
        ran = other != container and other in acts and acts[other].began_ns < act.read_ns
        if ran and cpus & act.own:
            has, might = cpuset.text(act.own), cpuset.text(cpus)
            found.append(f"{container[:13]} has {has}, and {cgroup} might use {might}")
    return found


FOLDER: Final = RECORDS.parent
POLICY: Final = """
policy: {Active: static, ReservedResources: {CPU: 1}}
cpus: {driver: DRIVER, on_late: refuse, memory: follow}
""".lstrip()
"""A guest beside others is so slow at times that a second is not enough: kubelet then tries again."""
_RUNTIME_WAITS_S: Final = 20.0
"""For an answer by NRI; a runtime on a quiet machine waits 2 s, and goes on without the plugin."""
_TRIES: Final = 5
_KUBEPODS: Final = "/kubepods"
_PARENTS: Final = {
    "Guaranteed": _KUBEPODS,
    "Burstable": f"{_KUBEPODS}/burstable",
    "BestEffort": f"{_KUBEPODS}/besteffort",
}
_PERIOD_US: Final = 100_000
NAME: Final = "node-1"
_RELAY: Final = FOLDER / "cri.sock"
_SIZES: Final = (1, 0, 2, 1, 0, 1)
"""CPUs of the quick pods, in turn; 0 is one that shares."""
_THREADS: Final = 3


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    sandbox: str
    container: str
    cgroup: Path
    """The container's."""

    def cpus(self) -> str:
        """The set that was asked of the kernel for it."""
        return (self.cgroup / "cpuset.cpus").read_text().strip()

    def runs_on(self) -> CpuSet:
        """The CPUs that the kernel lets it run on."""
        return cpuset.parse((self.cgroup / "cpuset.cpus.effective").read_text())

    def mems(self) -> str:
        """The memory nodes that were asked of the kernel for it; empty for any."""
        return (self.cgroup / "cpuset.mems").read_text().strip()


def lay_topology(nodes: int = 0) -> bool:
    """A kernel in user mode has no memory nodes, and its CPUs share nothing: where that is so, this lays two sockets of
    two cores of two threads, and so many NUMA nodes each, over its sysfs, and returns True."""
    if Path(NODE).exists():
        return False
    above = str(Path(CPU).parent) if nodes else CPU
    tree = Path(f"/run/topology-{nodes}")
    for path, content in sysfs(Plan(nodes=nodes, cores=2, adjacent=True)).items():
        file = tree / Path(path).relative_to(above)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    subprocess.run(["mount", "--bind", str(tree), above], check=True)
    return True


def resources(request_m: int, *, guaranteed: bool = True, memory: int = 0) -> Record:
    """A container's resources as kubelet tells them. `memory`: its limit in bytes; 0 tells none."""
    shares = max(2, request_m * 1024 // 1000)
    quota: Record = {"cpu_period": _PERIOD_US, "cpu_quota": request_m * _PERIOD_US // 1000} if guaranteed else {}
    limit: Record = {"memory_limit_in_bytes": memory} if memory else {}
    return {"cpu_shares": shares, **quota, **limit}


class ByNri:
    """`nodeward node`, told by containerd. What is configured it has from its next start on, in place of the policy."""

    def __init__(self, containerd: Containerd, running: ExitStack) -> None:
        self._daemon = Daemon(containerd.nri_socket, POLICY.replace("DRIVER", "nri"), NAME)
        self._cri = running.enter_context(containerd.cri())

    def configure(self, settings: str) -> None:
        file = self._daemon.config
        file.write_text(file.read_text().replace(POLICY.partition("\n")[0], settings))

    def start(self, changed: str = "") -> None:
        self._daemon.changed = changed
        self._daemon.start("answers" if "\nkube: {url" in self._daemon.config.read_text() else "off")

    def end(self, how: signal.Signals) -> None:
        self._daemon.end(how)

    def knows_runtime(self) -> None:
        until(lambda: self._daemon.runtime().startswith("containerd"), "the daemon is connected again", 20)

    def cri(self) -> Cri:
        return self._cri

    def log(self) -> str:
        return self._daemon.log()


class ByRelay:
    """`nodeward relay` between kubelet and a runtime without NRI, and `nodeward node`, which decides."""

    def __init__(self, containerd: Containerd, running: ExitStack) -> None:
        os.environ["NODEWARD_NRI__ENABLED"] = "false"
        self._running, self._proto = running, containerd.peer / "proto" / "cri.proto"
        self._cri: Cri | None = None
        sockets = f"relay: {{listen: {_RELAY}, runtime: {containerd.cri_socket}}}\n"
        self._daemon = Daemon(Path("/run/no-nri"), POLICY.replace("DRIVER", "relay") + sockets, NAME)
        self._relay = CriRelay(self._daemon.config, FOLDER / "relay.log")

    def configure(self, settings: str) -> None:
        file = self._daemon.config
        file.write_text(file.read_text().replace(POLICY.partition("\n")[0], settings))

    def start(self, changed: str = "") -> None:
        self._relay.start()
        self._daemon.changed = changed
        self._daemon.start_beside_relay("off")
        self._cri = self._running.enter_context(Cri(_RELAY, self._proto))

    def end(self, how: signal.Signals) -> None:
        self._daemon.end(how)
        self._relay.end(how)

    def knows_runtime(self) -> None:
        def answers() -> bool:
            with suppress(grpc.RpcError):
                return bool(self.cri().call("Version"))
            return False

        until(answers, "the relay passes calls again", 20)

    def cri(self) -> Cri:
        assert self._cri is not None
        return self._cri

    def log(self) -> str:
        return f"{self._relay.log()}\n{self._daemon.log()}"


@dataclass(slots=True)
class CpusNode:
    containerd: Containerd
    decider: "ByNri | ByRelay"
    program: Path
    """What containers run: see first_act.c."""
    quick_pods: int
    """How many come and go in a crowd."""
    has_memory_nodes: bool
    cluster: Sequence[str]
    pods: dict[str, Pod] = field(default_factory=dict)
    """Those that stay, by name."""
    acts: dict[str, FirstAct] = field(default_factory=dict)
    """By the id of each container that ever ran."""

    def log(self) -> str:
        threads = "loop=stands thread="  # where each stood while the machine had no time for us
        return "\n".join(line for line in self.decider.log().splitlines() if threads not in line)

    def restart(self, how: signal.Signals, changed: str = "") -> None:
        self.decider.end(how)
        self.decider.start(changed)

    def restart_runtime(self) -> None:
        self.containerd.restart()
        self.decider.knows_runtime()

    def call(self, method: str, request: Record) -> Record:
        return self.decider.cri().call(method, request)

    def run(
        self, name: str, qos: str, request_m: int, *, looks: bool = False, memory: int = 0, memory_type: str = ""
    ) -> Pod:
        """A pod with one container that requests so much, whose program has begun. `looks`: it records who else might
        run on its CPUs. `memory`: its limit in bytes; `memory_type`: what its annotation asks for."""
        config = pod_config(f"uid-{name}", _PARENTS[qos], FOLDER / "logs")
        config |= {"metadata": {"name": name, "uid": f"uid-{name}", "namespace": "default"}}
        config |= {"annotations": {MEMORY_TYPE: memory_type}} if memory_type else {}
        sandbox = text(self.call("RunPodSandbox", {"config": config}), "pod_sandbox_id")
        wanted: Record = {
            "image": {"image": IMAGE},
            "command": ["/first_act", f"/out/{name}", *([f"/host{_KUBEPODS}"] if looks else [])],
            "log_path": f"{name}.log",
            "mounts": [
                {"container_path": "/first_act", "host_path": str(self.program), "readonly": True},
                {"container_path": "/host", "host_path": str(CGROUPS), "readonly": True},
                {"container_path": "/out", "host_path": str(RECORDS)},
            ],
            "linux": {"resources": resources(request_m, guaranteed=qos == "Guaranteed", memory=memory)},
        }
        created = self._started({"pod_sandbox_id": sandbox, "sandbox_config": config}, wanted)
        out = RECORDS / name
        until(out.exists, f"{name} has recorded its first act", 60)
        self.acts[created] = first_act(out.read_text())
        cgroup = CGROUPS / f"{_PARENTS[qos]}/poduid-{name}/{created}".lstrip("/")
        return Pod(name, sandbox, created, cgroup)

    def _started(self, request: Record, config: Record) -> str:
        """The id of a container that runs; where its start is refused since others are late, the next one's."""
        for attempt in range(_TRIES):
            tried = config | {"metadata": {"name": "app", "attempt": attempt}}
            created = text(self.call("CreateContainer", request | {"config": tried}), "container_id")
            try:
                self.call("StartContainer", {"container_id": created})
            except grpc.RpcError as refused:
                if "cpus.on_late" not in str(refused):
                    raise
                self.call("RemoveContainer", {"container_id": created})
            else:
                return created
        raise AssertionError(f"a start was refused {_TRIES} times, since others are late")

    def stays(self, name: str, qos: str, request_m: int, *, memory: int = 0, memory_type: str = "") -> Pod:
        """As `run`, for the cases that follow."""
        pod = self.pods[name] = self.run(name, qos, request_m, memory=memory, memory_type=memory_type)
        return pod

    def remove(self, pod: Pod) -> None:
        self.pods.pop(pod.name, None)
        self.call("StopPodSandbox", {"pod_sandbox_id": pod.sandbox})
        self.call("RemoveContainer", {"container_id": pod.container})
        self.call("RemovePodSandbox", {"pod_sandbox_id": pod.sandbox})

    def resize(self, pod: Pod, request_m: int) -> None:
        self.call("UpdateContainerResources", {"container_id": pod.container, "linux": resources(request_m)})

    def sets(self) -> dict[str, str]:
        return {name: pod.cpus() for name, pod in self.pods.items()}

    def _quick(self, name: str, cpus: int) -> str:
        """A pod that comes and goes; the id of its container where it had CPUs of its own."""
        pod = self.run(name, "Guaranteed", 1000 * cpus, looks=True) if cpus else self.run(name, "Burstable", 300)
        self.remove(pod)
        return pod.container if cpus else ""

    def one_by_one(self, count: int, named: str) -> list[str]:
        """Each overlap at the first acts of so many quick pods with a CPU of their own, one after the other."""
        own = [self._quick(f"{named}-{number}", 1) for number in range(count)]
        return [line for container in own for line in overlaps(self.acts, container)]

    def crowd(self, count: int, named: str) -> list[str]:
        """Each overlap at the first acts of so many quick pods, some of them at once."""
        with ThreadPoolExecutor(_THREADS) as threads:
            numbers = range(count)
            played = threads.map(lambda one: self._quick(f"{named}-{one}", _SIZES[one % len(_SIZES)]), numbers)
            own = [container for container in played if container]
        return [line for container in own for line in overlaps(self.acts, container)]


@contextmanager
def running_node(how: str, program: str, quick_pods: str, *cluster: str) -> Iterator[CpusNode]:
    """The node, on which Nodeward runs. The words are `nri` or `relay`, the containers' program, how many quick pods
    there are, and what a cluster is reached by, where there is one."""
    for folder in ("containerd", "logs", "out"):
        (FOLDER / folder).mkdir(parents=True)
    RUN_DIR.mkdir(parents=True)
    os.environ["NODEWARD_KUBE__ENABLED"] = "false"
    has_memory_nodes, by_relay = not lay_topology(), how == "relay"
    nri = NriOptions(disable=True) if by_relay else NriOptions(request_timeout_s=_RUNTIME_WAITS_S)
    with ExitStack() as running:
        release = OLD if by_relay else NEWEST
        containerd = running.enter_context(running_containerd(FOLDER / "containerd", nri, release))
        decider = (ByRelay if by_relay else ByNri)(containerd, running)
        try:
            decider.start()
            yield CpusNode(containerd, decider, Path(program), int(quick_pods), has_memory_nodes, cluster)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{decider.log()}") from error
        finally:
            decider.end(signal.SIGKILL)
