"""CRI's messages to and from the words of the model, for `limits` decided in the relay. Pure.

Promises: copies names, ids, allow-listed annotations and labels only, so that arguments, environment values and mounts
never enter an event; a change is appended to the client's own bytes. Must not decide.

Both versions of CRI are read by one: v1alpha2 has the same numbers for every field that is read or set here. A
client's own request tells the pod's cgroup and what it asks of the CPUs; CRI's lists tell neither, so of what is listed
`still_known` keeps them. A container's cgroup is never told: the runtime names it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.decision import Adjustment
from nodeward.core.errors import WireError
from nodeward.core.hints import HintKind, Used
from nodeward.core.vms import Sized, Way
from nodeward.core.workload import (
    NO_RECORD,
    Container,
    ContainerId,
    CpuRecord,
    HostShare,
    Keys,
    Phase,
    Sandbox,
    SandboxId,
)
from nodeward.neighbours.formats import cgroup_paths, described
from nodeward.neighbours.formats.protobuf import read

_log = logging.getLogger(__name__)
RDT_CLASS: Final = "io.kubernetes.cri.rdt-class"
BLOCKIO_CLASS: Final = "io.kubernetes.cri.blockio-class"
"""Annotations of a container by which containerd and CRI-O learn its classes (intel/goresctrl): CRI has no field."""
MOST_LISTED: Final = 20_000
"""Sandboxes or containers of one list; kubelet's own bounds are far below."""

_PHASES: Final[Mapping[int, Phase]] = {
    cri.CONTAINER_CREATED: Phase.CREATED,
    cri.CONTAINER_RUNNING: Phase.RUNNING,
}
"""Of containers that a change can still reach. One that has exited is none of them, nor one whose state is unknown."""


def sandbox(sandbox_id: str, config: cri.PodSandboxConfig, labels: Keys = ()) -> Sandbox:
    """The pod sandbox that a client describes, with these labels."""
    return _sandbox(sandbox_id, config, labels, described.path(cgroup_paths.parent_path, config.linux.cgroup_parent))


def _sandbox(
    sandbox_id: str, said: cri.PodSandboxConfig | cri.PodSandbox | cri.PodSandboxStatus, labels: Keys, parent: str = ""
) -> Sandbox:
    named = said.metadata
    return described.sandbox(
        *(sandbox_id, named.uid, named.namespace, named.name),
        annotations=said.annotations,
        said=said.labels,
        labels=labels,
        cgroup_parent=parent,
    )


def _cpu(resources: cri.LinuxContainerResources, before: CpuRecord = NO_RECORD) -> CpuRecord:
    """What is said of CPUs, over `before`."""
    asked = resources.cpu_shares, resources.cpu_quota, resources.cpu_period, resources.cpuset_cpus
    return described.cpu(*asked, resources.cpuset_mems, before)


def running(payload: bytes) -> Sandbox:
    """The sandbox of a RunPodSandboxRequest, which has no id yet, with what its pod asks for."""
    request = read("cri", cri.RunPodSandboxRequest, payload)
    resources = request.config.linux.resources
    share = HostShare(_cpu(resources), max(0, resources.memory_limit_in_bytes))
    return replace(sandbox("", request.config), handler=request.runtime_handler, asked=share)


def restoring(payload: bytes) -> Sandbox:
    """The same of a RestorePodRequest."""
    request = read("cri", cri.RestorePodRequest, payload)
    return replace(sandbox("", request.config), handler=request.runtime_handler)


def home_of(payload: bytes) -> SandboxId:
    """The sandbox in which a CreateContainerRequest makes its container."""
    return SandboxId(read("cri", cri.CreateContainerRequest, payload).pod_sandbox_id)


def sandbox_status_of(sandbox_id: SandboxId) -> bytes:
    """A PodSandboxStatusRequest."""
    return cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id).SerializeToString()


def sandbox_as_is(payload: bytes) -> Sandbox:
    """The sandbox that a PodSandboxStatusResponse is about, by the runtime's own record."""
    found = read("cri", cri.PodSandboxStatusResponse, payload).status
    return replace(_sandbox(found.id, found, ()), handler=found.runtime_handler)


def resizing(payload: bytes) -> tuple[ContainerId, HostShare]:
    """Which container an UpdateContainerResourcesRequest is about, and what it asks for; a memory limit below 0 is
    none."""
    request = read("cri", cri.UpdateContainerResourcesRequest, payload)
    return ContainerId(request.container_id), _share(request.linux)


def status_share(payload: bytes) -> HostShare | None:
    """What a ContainerStatusResponse says of CPUs and memory; None where the runtime tells no resources."""
    resources = read("cri", cri.ContainerStatusResponse, payload).status.resources
    return _share(resources.linux) if resources.HasField("linux") else None


def _share(resources: cri.LinuxContainerResources) -> HostShare:
    return HostShare(_cpu(resources), resources.memory_limit_in_bytes)


def checkpointing(payload: bytes) -> ContainerId:
    """Which container a CheckpointContainerRequest is about."""
    return ContainerId(read("cri", cri.CheckpointContainerRequest, payload).container_id)


def resizing_sandbox(payload: bytes) -> SandboxId:
    """Which sandbox an UpdatePodSandboxResourcesRequest is about."""
    return SandboxId(read("cri", cri.UpdatePodSandboxResourcesRequest, payload).pod_sandbox_id)


def home_asked(container_id: ContainerId) -> bytes:
    """A ListContainersRequest for one container; `home_told` reads its answer."""
    return cri.ListContainersRequest(filter=cri.ContainerFilter(id=container_id)).SerializeToString()


def home_told(answer: bytes, container_id: ContainerId) -> SandboxId | None:
    """The sandbox of the container; None where the runtime has no such container."""
    listed = read("cri", cri.ListContainersResponse, answer).containers
    return next((SandboxId(one.pod_sandbox_id) for one in listed if one.id == container_id), None)


def handler_asked(sandbox_id: SandboxId) -> bytes:
    """A ListPodSandboxRequest for one sandbox; `handler_told` reads its answer."""
    return cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(id=sandbox_id)).SerializeToString()


def handler_told(answer: bytes, sandbox_id: SandboxId) -> str | None:
    """The runtime handler of the sandbox, empty for the default one; None where the runtime has no such sandbox."""
    listed = read("cri", cri.ListPodSandboxResponse, answer).items
    return next((one.runtime_handler for one in listed if one.id == sandbox_id), None)


def changed_run(payload: bytes, size: Sized) -> bytes:
    """The RunPodSandboxRequest with these resources of the pod, or annotations, as in `changed_create`."""
    config = cri.PodSandboxConfig(annotations=size.annotations)
    if size.way is Way.RESOURCES:
        resources = config.linux.resources
        resources.cpu_period, resources.cpu_quota = size.cpu_period, size.cpu_quota
        resources.memory_limit_in_bytes = size.memory_limit
    return payload + cri.RunPodSandboxRequest(config=config).SerializeToString()


def creating(payload: bytes, tentative_id: str, labels: Keys = ()) -> tuple[Sandbox, Container]:
    """What a CreateContainerRequest is about. The container has no id of its own yet."""
    request = read("cri", cri.CreateContainerRequest, payload)
    home = sandbox(request.pod_sandbox_id, request.sandbox_config, labels)
    config = request.config
    asked, names = config.linux.resources, (tentative_id, home.id, config.metadata.name)
    cpu, memory = _cpu(asked), max(0, asked.memory_limit_in_bytes)
    return home, described.container(*names, config.labels, labels, phase=Phase.CREATING, cpu=cpu, memory=memory)


def used(payload: bytes) -> list[Used]:
    """The devices and mounts that the container of a CreateContainerRequest may write to."""
    config = read("cri", cri.CreateContainerRequest, payload).config
    devices = (one for one in config.devices if "w" in one.permissions)
    found = [Used(HintKind.DEVICE, one.host_path, one.container_path) for one in devices]
    mounts = (one for one in config.mounts if not one.readonly and one.host_path)
    return [*found, *(Used(HintKind.MOUNT, one.host_path, one.container_path) for one in mounts)]


def status_of(container_id: ContainerId) -> bytes:
    """A ContainerStatusRequest."""
    return cri.ContainerStatusRequest(container_id=container_id).SerializeToString()


def updating(payload: bytes, known: Container) -> Container:
    """The container with what an UpdateContainerResourcesRequest asks for."""
    asked = read("cri", cri.UpdateContainerResourcesRequest, payload).linux
    return replace(known, cpu=_cpu(asked, known.cpu), memory=max(0, asked.memory_limit_in_bytes) or known.memory)


def created_id(payload: bytes) -> ContainerId:
    """The id that a CreateContainerResponse gives."""
    return ContainerId(read("cri", cri.CreateContainerResponse, payload).container_id)


def restored(request: bytes, answer: bytes, most: int, labels: Keys = ()) -> tuple[Sandbox, tuple[Container, ...]]:
    """The sandbox that a RestorePod has made, by the new pod's own description, and its containers, which are created
    and do not run yet (cri-api 0.37, RestorePodResponse); WireError where they are more than `most`."""
    asked, made = read("cri", cri.RestorePodRequest, request), read("cri", cri.RestorePodResponse, answer)
    if len(made.restored_containers) > most:
        raise WireError("cri", f"RestorePod: {len(made.restored_containers)} containers of one pod, more than {most}")
    home = replace(sandbox(made.pod_sandbox_id, asked.config, labels), handler=asked.runtime_handler)
    configs = {one.metadata.name: one for one in asked.container_configs}
    return home, tuple(
        described.container(
            *(one.container_id, home.id, one.name),
            config.labels,
            labels,
            cpu=_cpu(config.linux.resources),
            memory=max(0, config.linux.resources.memory_limit_in_bytes),
        )
        for one in made.restored_containers
        for config in (configs.get(one.name, cri.ContainerConfig()),)
        if one.container_id
    )


def changed_create(payload: bytes, given: Adjustment) -> bytes:
    """The CreateContainerRequest with these values, whatever else it says of them.

    A change is appended, and every byte of the client's stays: of a message that comes twice a protobuf reader merges
    both, field by field; of a map's key and of a number the last one counts, and what is repeated is added (protobuf's
    encoding guide, "Last One Wins" and "Maps")."""
    config = cri.ContainerConfig()
    config.linux.resources.CopyFrom(_resources(given))
    for mount in given.mounts:
        config.mounts.add(container_path=mount.destination, host_path=mount.source, readonly=mount.read_only)
    for node in given.devices:
        config.devices.add(container_path=node.path, host_path=node.path, permissions="rw")
    for key, name in ((RDT_CLASS, given.rdt_class), (BLOCKIO_CLASS, given.blockio_class)):
        if name:
            config.annotations[key] = name
    if given.scheduling is not None:
        _log.warning("scheduling=not-carried class=%s: CRI has no field for it", given.scheduling.name)
    return payload + cri.CreateContainerRequest(config=config).SerializeToString()


def _resources(given: Adjustment) -> cri.LinuxContainerResources:
    return cri.LinuxContainerResources(
        unified=given.unified,
        cpuset_cpus=given.cpus,
        cpuset_mems=given.memory_nodes,
        cpu_shares=given.cpu_shares,
    )


def update_of(container_id: ContainerId) -> bytes:
    """An UpdateContainerResourcesRequest of our own, which changes nothing yet."""
    return cri.UpdateContainerResourcesRequest(container_id=container_id).SerializeToString()


def changed_update(payload: bytes, given: Adjustment) -> bytes:
    """The UpdateContainerResourcesRequest with these values, as in `changed_create`. Classes and mounts are for a
    container's creation only."""
    return payload + cri.UpdateContainerResourcesRequest(linux=_resources(given)).SerializeToString()


def is_unfiltered(payload: bytes) -> bool:
    """Whether a request for a list of sandboxes or containers leaves none out: it says nothing, or has an empty filter
    (field 1 in all four). What says anything that we do not know may leave some out."""
    return payload in (b"", b"\x0a\x00")


def sandboxes(answers: Sequence[bytes], labels: Keys = ()) -> tuple[Sandbox, ...]:
    """The sandboxes that are ready, of a list in one answer or in several."""
    made: list[Sandbox] = []
    for answer in answers:  # ListPodSandboxResponse and StreamPodSandboxesResponse have the same one field
        listed = read("cri", cri.ListPodSandboxResponse, answer).items
        _bounded(len(made) + len(listed))
        made += [_sandbox(one.id, one, labels) for one in listed if one.state == cri.SANDBOX_READY]
    return tuple(made)


def containers(answers: Sequence[bytes], labels: Keys = ()) -> tuple[Container, ...]:
    """The containers that have not exited, of a list in one answer or in several."""
    made: list[Container] = []
    for answer in answers:  # ListContainersResponse and StreamContainersResponse have the same one field
        listed = read("cri", cri.ListContainersResponse, answer).containers
        _bounded(len(made) + len(listed))
        made += [
            described.container(one.id, one.pod_sandbox_id, one.metadata.name, one.labels, labels, phase=phase)
            for one in listed
            if (phase := _PHASES.get(one.state)) is not None
        ]
    return tuple(made)


def still_known(
    sandboxes: Iterable[Sandbox],
    containers: Iterable[Container],
    find_sandbox: Callable[[SandboxId], Sandbox | None],
    find: Callable[[ContainerId], tuple[Sandbox, Container] | None],
) -> tuple[tuple[Sandbox, ...], tuple[Container, ...]]:
    """The listed containers, with known values that a list cannot carry: the pod's cgroup, the record of CPUs and the
    memory limit."""
    homes, ones = list[Sandbox](), list[Container]()
    for home in sandboxes:
        before = find_sandbox(home.id)
        homes.append(replace(home, cgroup_parent=before.cgroup_parent) if before is not None else home)
    for one in containers:
        known = find(one.id)
        before_it = known[1] if known is not None else one
        ones.append(replace(one, cpu=before_it.cpu, memory=before_it.memory, cgroups_path=before_it.cgroups_path))
    return tuple(homes), tuple(ones)


class Placed(NamedTuple):
    """The values of a container that CRI's lists do not carry."""

    cgroups_path: str
    share: HostShare


def placed(
    sandboxes: Iterable[Sandbox], containers: Iterable[Container], found: Mapping[ContainerId, Placed]
) -> tuple[tuple[Sandbox, ...], tuple[Container, ...]]:
    """The listed containers, with these values. A pod's cgroup is the one above those of its containers."""
    parents, ones = dict[SandboxId, str](), list[Container]()
    for one in containers:
        if one.id in found:
            path, share = found[one.id]
            one = replace(one, cgroups_path=path, cpu=share.cpu, memory=max(0, share.memory))
            parents[one.sandbox_id] = one.cgroups_path.rpartition("/")[0]
        ones.append(one)
    homes = [
        replace(home, cgroup_parent=home.cgroup_parent or parents[home.id]) if home.id in parents else home
        for home in sandboxes
    ]
    return tuple(homes), tuple(ones)


def _bounded(listed: int) -> None:
    if listed > MOST_LISTED:
        raise WireError("cri", f"a list of more than {MOST_LISTED}")
