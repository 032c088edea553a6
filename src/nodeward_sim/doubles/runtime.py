"""The container runtime double: pods and containers, NRI as containerd speaks it, cgroup files as runc writes them.

Exists so that the product runs whole without a node. Promises: calls plugins at the moments containerd calls them
and takes their answers as containerd 2.4 does; writes `cpuset.cpus`, and `misc.max` line by line, beneath the cgroup
root before a container's program begins, and fails StartContainer in runc's words when the kernel refuses; a restart
drops every plugin, keeps every container, and forgets that it owes anybody the end of its pods. Must not correct
anybody: what a real runtime lets happen, happens here.
"""

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from nodeward.contracts import nri_pb2
from nodeward.neighbours.formats import cgroup_paths
from nodeward_sim.doubles.runtime_plugins import Adaptation, AdaptationSettings, RuntimeRefusalError

CGROUP_ROOT = "/sys/fs/cgroup"
_T = TypeVar("_T")
TOLERATE = "tolerate-missing-plugins.noderesource.dev"


class KernelFiles(Protocol):
    """What the runtime needs of `nodeward.host.hostfs.HostFiles`."""

    def mkdir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def write(self, path: str, data: bytes) -> None: ...


class VmRuntime(Protocol):
    """A runtime that starts VMs, such as `nodeward_sim.doubles.kata`."""

    def serves(self, handler: str) -> bool: ...

    def start(self, pod: nri_pb2.PodSandbox) -> None: ...

    def stop(self, sandbox: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SimPod:
    """A pod as kubelet asks for it."""

    uid: str
    name: str
    namespace: str = "default"
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    cgroup_parent: str = ""
    """`/kubepods/pod<uid>` unless given, or the like in systemd's form."""
    handler: str = "runc"
    asked: "SimShare | None" = None
    """The sum of its containers, as kubelet tells it of the whole pod."""
    overhead: "SimShare | None" = None


@dataclass(frozen=True, slots=True)
class SimCpu:
    """What kubelet says of a container's CPUs; 0 for nothing."""

    shares: int = 0
    quota: int = 0
    period: int = 0


@dataclass(frozen=True, slots=True)
class SimShare:
    """What kubelet says of a whole pod: CPUs, and the memory limit in bytes."""

    cpu: SimCpu
    memory: int


@dataclass(frozen=True, slots=True)
class SimContainer:
    """A container as kubelet asks for it. `args` and `env` reach plugins in clear, as they do in containerd."""

    name: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    unified: Mapping[str, str] = field(default_factory=dict)
    cpu: SimCpu = SimCpu()
    devices: tuple[nri_pb2.LinuxDevice, ...] = ()
    mounts: tuple[nri_pb2.Mount, ...] = ()


@dataclass(slots=True)
class _Running:
    """A container of the runtime, adjusted by the plugins."""

    pod_id: str
    wanted: SimContainer
    message: nri_pb2.Container
    cgroup: str
    unified: dict[str, str]


class SimRuntime:
    """One runtime on one socket."""

    def __init__(
        self,
        socket_path: Path,
        files: KernelFiles | None = None,
        settings: AdaptationSettings | None = None,
        required_plugins: Sequence[str] = (),
        systemd_cgroups: bool = False,
    ) -> None:
        """Without `files` no cgroup is touched. `required_plugins` are names without which nothing is created."""
        self._socket_path = socket_path
        self._files = files
        self._settings = settings or AdaptationSettings()
        self._required = tuple(required_plugins)
        self._systemd_cgroups = systemd_cgroups
        self._pods: dict[str, nri_pb2.PodSandbox] = {}
        self._containers: dict[str, _Running] = {}
        self._owed: dict[str, bool] = {}
        """The pods and containers whose end plugins are to be told, and whether their stop is still to be told."""
        self._ids = itertools.count(1)
        self.nri = Adaptation(socket_path, self._settings, self._listing, self._wanted)
        self.on_program: Callable[[str], None] = lambda _: None
        """Called with a container's id at the moment when its program begins."""
        self.vms: VmRuntime | None = None
        """Who starts the sandboxes of its handlers."""

    async def serve(self) -> None:
        """Listens for plugins from now on."""
        await self.nri.serve()

    async def close(self) -> None:
        """Ends the NRI side; containers stay."""
        await self.nri.close()

    async def restart(self, settings: AdaptationSettings | None = None) -> None:
        """Goes away and comes back, as another version if `settings` say so. Containers keep running.

        As containerd does, it tells the end of those containers that it lists now, and of nothing else from before.
        """
        await self.nri.close()
        self._owed = {container.id: True for container in self._listing()[1]}
        self._settings = settings or self._settings
        self.nri = Adaptation(self._socket_path, self._settings, self._listing, self._wanted)
        await self.nri.serve()

    # ---- what kubelet calls

    async def run_pod(self, pod: SimPod) -> str:
        """The new sandbox's id."""
        pod_id = f"{next(self._ids):064x}"
        parent = pod.cgroup_parent or self._usual_parent(pod.uid)
        message = nri_pb2.PodSandbox(
            id=pod_id,
            name=pod.name,
            uid=pod.uid,
            namespace=pod.namespace,
            labels=dict(pod.labels),
            annotations=dict(pod.annotations),
            runtime_handler=pod.handler,
            linux=nri_pb2.LinuxPodSandbox(cgroup_parent=parent, cgroups_path=_cgroups_path(parent, pod_id)),
        )
        for share, told in ((pod.asked, message.linux.pod_resources), (pod.overhead, message.linux.pod_overhead)):
            if share is not None:
                _say(told.cpu, share.cpu)
                told.memory.limit.value = share.memory
        async with self.nri.lock:
            self._pods[pod_id] = message
            if self.vms is not None and self._is_vm(message):
                self.vms.start(message)
            else:
                self._make_cgroup(self.sandbox_cgroup(pod_id))
            self._owed[pod_id] = True
            await self.nri.notify(nri_pb2.RUN_POD_SANDBOX, message)
        return pod_id

    async def create_container(self, pod_id: str, wanted: SimContainer) -> str:
        """The new container's id. RuntimeRefusalError if a plugin refuses, a required one is missing, or the pod is."""
        async with self.nri.lock:
            pod = _found(self._pods, pod_id, "sandbox")
            container_id = f"{next(self._ids):064x}"
            cgroups_path = _cgroups_path(pod.linux.cgroup_parent, container_id)
            message = nri_pb2.Container(
                id=container_id,
                pod_sandbox_id=pod_id,
                name=wanted.name,
                state=nri_pb2.CONTAINER_CREATED,
                args=wanted.args,
                env=wanted.env,
                annotations=dict(wanted.annotations),
                linux=nri_pb2.LinuxContainer(
                    cgroups_path=cgroups_path,
                    resources=nri_pb2.LinuxResources(unified=dict(wanted.unified)),
                    devices=wanted.devices,
                ),
                mounts=wanted.mounts,
            )
            _say(message.linux.resources.cpu, wanted.cpu)
            running = _Running(pod_id, wanted, message, cgroup_paths.container_path(cgroups_path), dict(wanted.unified))
            self._owed[container_id] = True
            try:
                answered = await self._adjust(pod, message)
            except RuntimeRefusalError:
                await self._stopped(running)
                await self._told_removed(running)
                raise
            running.unified |= answered.unified
            message.linux.resources.MergeFrom(answered)
            message.linux.resources.unified.update(running.unified)
            self._containers[container_id] = running
            await self.nri.notify(nri_pb2.POST_CREATE_CONTAINER, pod, message)
        return container_id

    async def start(self, container_id: str) -> None:
        """RuntimeRefusalError in runc's words if the kernel refuses a value, and where a plugin does; the container is
        then stopped."""
        async with self.nri.lock:
            running = _found(self._containers, container_id, "container")
            pod = self._pods[running.pod_id]
            try:
                if not self._is_vm(pod):  # else it runs in the guest, and has no cgroup here
                    self._make_cgroup(running.cgroup)
                    self._write_resources(running)
                await self.nri.notify(nri_pb2.START_CONTAINER, pod, running.message)  # its program does not run yet
            except (OSError, RuntimeRefusalError) as error:
                self._remove_cgroup(running.cgroup)
                await self._stopped(running)
                if isinstance(error, OSError):
                    raise RuntimeRefusalError(_runc_says(error)) from error
                raise
            self.on_program(container_id)
            running.message.state = nri_pb2.CONTAINER_RUNNING
            await self.nri.notify(nri_pb2.POST_START_CONTAINER, pod, running.message)

    async def update_container(
        self, container_id: str, unified: Mapping[str, str] | None = None, cpu: SimCpu | None = None
    ) -> None:
        """An update of resources; what it does not say is written as the runtime remembers it."""
        async with self.nri.lock:
            running = _found(self._containers, container_id, "container")
            pod = self._pods[running.pod_id]
            resources = nri_pb2.LinuxResources(unified=dict(unified or {}))
            if cpu is not None:
                _say(resources.cpu, cpu)
            request = nri_pb2.UpdateContainerRequest(pod=pod, container=running.message, linux_resources=resources)
            for plugin in self.nri.subscribed(nri_pb2.UPDATE_CONTAINER):
                reply = await self.nri.ask(plugin, "UpdateContainer", request.SerializeToString())
                for update in nri_pb2.UpdateContainerResponse.FromString(reply or b"").update:
                    if update.container_id == container_id:  # without its id an update does nothing
                        resources.MergeFrom(update.linux.resources)
            self.nri.forget_gone()
            try:
                self._change(running, resources)
            except OSError as error:
                raise RuntimeRefusalError(_runc_says(error)) from error
            await self.nri.notify(nri_pb2.POST_UPDATE_CONTAINER, pod, running.message)

    def _wanted(self, update: nri_pb2.ContainerUpdate) -> None:
        """What a plugin wants when it synchronizes; what fails is logged there and no more."""
        if (running := self._containers.get(update.container_id)) is not None:
            with contextlib.suppress(OSError):
                self._change(running, update.linux.resources)

    def _change(self, running: _Running, changed: nri_pb2.LinuxResources) -> None:
        running.unified |= changed.unified
        running.message.linux.resources.cpu.MergeFrom(changed.cpu)
        is_vm = self._is_vm(self._pods[running.pod_id])
        if running.message.state == nri_pb2.CONTAINER_RUNNING and not is_vm:  # of others only the specification changes
            self._write_resources(running)
        running.message.linux.resources.unified.update(running.unified)

    async def stop(self, container_id: str) -> None:
        """The container's processes are gone, and its cgroup with them. Nothing, where it was removed meanwhile."""
        async with self.nri.lock:
            if (running := self._containers.get(container_id)) is not None:
                await self._stopped(running)

    async def remove_container(self, container_id: str) -> None:
        """Forgets the container, stopping it first. Nothing, where another did it meanwhile."""
        async with self.nri.lock:
            if (running := self._containers.get(container_id)) is not None:
                await self._removed(running)

    async def stop_pod(self, pod_id: str) -> None:
        """Stops the pod's containers, then its sandbox. Nothing, where it was removed meanwhile."""
        async with self.nri.lock:
            if pod_id in self._pods:
                await self._pod_stopped(pod_id)

    async def remove_pod(self, pod_id: str) -> None:
        """Removes the pod's containers, its sandbox and its cgroup, stopping them first. Nothing, where another did it
        meanwhile."""
        async with self.nri.lock:
            if pod_id not in self._pods:
                return
            await self._pod_stopped(pod_id)
            for running in self._of(pod_id):
                await self._removed(running)
            pod = self._pods.pop(pod_id)
            self._remove_cgroup(cgroup_paths.parent_path(pod.linux.cgroup_parent))
            if pod_id in self._owed:
                del self._owed[pod_id]
                await self.nri.notify(nri_pb2.REMOVE_POD_SANDBOX, pod)

    def pods(self) -> list[nri_pb2.PodSandbox]:
        """Every sandbox that was not removed."""
        return list(self._pods.values())

    def containers(self) -> list[nri_pb2.Container]:
        """Every container that was not removed, stopped ones too."""
        return [running.message for running in self._containers.values()]

    def unified(self, container_id: str) -> Mapping[str, str]:
        """What the container was given, by unified key."""
        return dict(self._containers[container_id].unified)

    def cgroup(self, container_id: str) -> str:
        """The container's cgroup below the cgroup root."""
        return self._containers[container_id].cgroup

    def sandbox_cgroup(self, pod_id: str) -> str:
        """The cgroup, below the cgroup root, of what runs in the pod besides its containers: pause, or a hypervisor."""
        return cgroup_paths.container_path(self._pods[pod_id].linux.cgroups_path)

    # ---- plugins

    async def _adjust(self, pod: nri_pb2.PodSandbox, message: nri_pb2.Container) -> nri_pb2.LinuxResources:
        request = nri_pb2.CreateContainerRequest(pod=pod, container=message).SerializeToString()
        consulted: list[str] = []
        owners: dict[str, str] = {}
        found = nri_pb2.LinuxResources()
        for plugin in self.nri.subscribed(nri_pb2.CREATE_CONTAINER):
            consulted.append(plugin.name)  # also if it hangs in this very call, as in containerd
            reply = await self.nri.ask(plugin, "CreateContainer", request)
            answer = nri_pb2.CreateContainerResponse.FromString(reply or b"")
            sets = answer.adjust.linux.resources
            for key in (*(f"CgroupsUnified {name}" for name in sets.unified), *["CPUSetCPUs"] * bool(sets.cpu.cpus)):
                if key in owners:
                    raise RuntimeRefusalError(
                        f'plugins "{plugin.full_name}" and "{owners[key]}" both tried to set {key}'
                    )
                owners[key] = plugin.full_name
            found.MergeFrom(sets)
        self.nri.forget_gone()
        missing = [name for name in self._required if name not in consulted]
        if missing and pod.annotations.get(TOLERATE) != "true":
            raise RuntimeRefusalError(f"validation failed: required plugin(s) {missing} not present")
        return found

    def _listing(self) -> tuple[Sequence[nri_pb2.PodSandbox], Sequence[nri_pb2.Container]]:
        alive = (nri_pb2.CONTAINER_CREATED, nri_pb2.CONTAINER_RUNNING)
        return self.pods(), [message for message in self.containers() if message.state in alive]

    # ---- lives

    def _of(self, pod_id: str) -> list[_Running]:
        return [running for running in self._containers.values() if running.pod_id == pod_id]

    async def _pod_stopped(self, pod_id: str) -> None:
        for running in self._of(pod_id):
            await self._stopped(running)
        if self.vms is not None and self._is_vm(self._pods[pod_id]):
            self.vms.stop(pod_id)
        self._remove_cgroup(self.sandbox_cgroup(pod_id))
        if self._owed.get(pod_id):
            self._owed[pod_id] = False
            await self.nri.notify(nri_pb2.STOP_POD_SANDBOX, self._pods[pod_id])

    async def _stopped(self, running: _Running) -> None:
        if running.message.state == nri_pb2.CONTAINER_STOPPED:
            return
        running.message.state = nri_pb2.CONTAINER_STOPPED
        self._remove_cgroup(running.cgroup)
        self._owed[running.message.id] = False
        request = nri_pb2.StopContainerRequest(pod=self._pods[running.pod_id], container=running.message)
        for plugin in self.nri.subscribed(nri_pb2.STOP_CONTAINER):
            await self.nri.ask(plugin, "StopContainer", request.SerializeToString())
        self.nri.forget_gone()

    async def _removed(self, running: _Running) -> None:
        await self._stopped(running)
        del self._containers[running.message.id]
        await self._told_removed(running)

    async def _told_removed(self, running: _Running) -> None:
        if running.message.id in self._owed:
            del self._owed[running.message.id]
            await self.nri.notify(nri_pb2.REMOVE_CONTAINER, self._pods[running.pod_id], running.message)

    def _is_vm(self, pod: nri_pb2.PodSandbox) -> bool:
        return self.vms is not None and self.vms.serves(pod.runtime_handler)

    # ---- the kernel

    def _usual_parent(self, uid: str) -> str:
        """The pod's cgroup as kubelet names it with each of its two drivers."""
        if self._systemd_cgroups:
            return f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice"
        return f"/kubepods/pod{uid}"

    def _make_cgroup(self, path: str) -> None:
        """Makes the cgroup and its ancestors, and asks for cpuset and misc on the way; no controller is no error."""
        if self._files is None:
            return
        at = CGROUP_ROOT
        for name in path.strip("/").split("/"):
            for controller in (b"+cpuset", b"+misc"):
                with contextlib.suppress(OSError):
                    self._files.write(f"{at}/cgroup.subtree_control", controller)
            at = f"{at}/{name}"
            with contextlib.suppress(FileExistsError):
                self._files.mkdir(at)

    def _write_resources(self, running: _Running) -> None:
        if self._files is None:
            return
        cpus = running.message.linux.resources.cpu.cpus
        for key, value in (running.unified | ({"cpuset.cpus": cpus} if cpus else {})).items():
            for line in value.split("\n"):
                self._write(f"{CGROUP_ROOT}{running.cgroup}/{key}", line)

    def _write(self, file: str, line: str) -> None:
        assert self._files is not None
        try:
            self._files.write(file, line.encode())
        except OSError as error:
            raise OSError(error.errno, f'failed to write "{line}"', file) from error

    def _remove_cgroup(self, path: str) -> None:
        if self._files is not None:
            with contextlib.suppress(OSError):  # gone already, or busy: runc tries and gives up too
                self._files.rmdir(f"{CGROUP_ROOT}{path}")


def _say(message: nri_pb2.LinuxCPU, cpu: SimCpu) -> None:
    if cpu.shares:
        message.shares.value = cpu.shares
    if cpu.quota:
        message.quota.value, message.period.value = cpu.quota, cpu.period


def _found(of: Mapping[str, _T], key: str, what: str) -> _T:
    """What may have been removed since its caller looked."""
    if key not in of:
        raise RuntimeRefusalError(f"an error occurred when try to find {what}: {key}: not found")
    return of[key]


def _cgroups_path(parent: str, container_id: str) -> str:
    """A container's cgroup as containerd calls it: below a slice it is a scope, in the words of runc."""
    base = parent.rpartition("/")[2]
    return f"{base}:cri-containerd:{container_id}" if base.endswith(".slice") else f"{parent}/{container_id}"


def _runc_says(error: OSError) -> str:
    """What kubelet gets to read when runc cannot set a unified value."""
    key = str(error.filename).rpartition("/")[2]
    reason = os.strerror(error.errno or errno.EIO).lower()
    return (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        f'unable to start container process: unable to set unified resource "{key}": {error.strerror}: '
        f"write {error.filename}: {reason}"
    )
