"""NRI's messages to and from the words of the model. Pure.

Promises: copies allow-listed fields, annotations and labels only, so that arguments, environment values and mounts
never enter an event; asks a runtime for no event it does not know, for that ends the registration; every update names
its container, for without the name a runtime silently does nothing. Must not decide anything.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from re import compile as _compile

from nodeward.contracts import nri_pb2
from nodeward.core.annotations import MAX_NAME
from nodeward.core.decision import Adjustment, IoClass, Scheduler, SchedulingClass
from nodeward.core.errors import WireError
from nodeward.core.events import (
    Created,
    Event,
    Removed,
    SandboxRemoved,
    SandboxStarted,
    SandboxStopped,
    Started,
    Stopped,
    Updated,
)
from nodeward.core.hints import HintKind, Used
from nodeward.core.text import printable
from nodeward.core.workload import (
    NO_RECORD,
    NO_SHARE,
    Container,
    ContainerId,
    CpuRecord,
    HostShare,
    Keys,
    Phase,
    Sandbox,
    SandboxId,
)
from nodeward.neighbours.formats import cgroup_paths, described, misc_files

_log = logging.getLogger(__name__)

Generation = tuple[int, int]
"""NRI's version as (major, minor)."""

MISC_MAX = "misc.max"
MOST_OF_IMAGE = 512
"""Characters of an image's name that are kept; it is shown only."""

NOTIFICATIONS: Mapping[str, nri_pb2.Event] = {
    "RunPodSandbox": nri_pb2.RUN_POD_SANDBOX,
    "StopPodSandbox": nri_pb2.STOP_POD_SANDBOX,
    "RemovePodSandbox": nri_pb2.REMOVE_POD_SANDBOX,
    "PostCreateContainer": nri_pb2.POST_CREATE_CONTAINER,
    "StartContainer": nri_pb2.START_CONTAINER,
    "PostStartContainer": nri_pb2.POST_START_CONTAINER,
    "PostUpdateContainer": nri_pb2.POST_UPDATE_CONTAINER,
    "StopContainer": nri_pb2.STOP_CONTAINER,
    "RemoveContainer": nri_pb2.REMOVE_CONTAINER,
    "UpdatePodSandbox": nri_pb2.UPDATE_POD_SANDBOX,
    "PostUpdatePodSandbox": nri_pb2.POST_UPDATE_POD_SANDBOX,
}
"""The methods that tell and ask nothing, and the event that says the same through StateChange."""

UNHEARD = frozenset((nri_pb2.UPDATE_POD_SANDBOX, nri_pb2.POST_UPDATE_POD_SANDBOX))
"""What the model has no word for. Answered all the same: an unanswered UpdatePodSandbox fails for good."""

WANTED = (
    nri_pb2.RUN_POD_SANDBOX,
    nri_pb2.STOP_POD_SANDBOX,
    nri_pb2.REMOVE_POD_SANDBOX,
    nri_pb2.CREATE_CONTAINER,
    nri_pb2.POST_CREATE_CONTAINER,
    nri_pb2.POST_START_CONTAINER,
    nri_pb2.UPDATE_CONTAINER,
    nri_pb2.POST_UPDATE_CONTAINER,
    nri_pb2.STOP_CONTAINER,
    nri_pb2.REMOVE_CONTAINER,
)
"""What the model has words for."""

BEFORE_THE_PROGRAM = nri_pb2.START_CONTAINER
"""Wanted besides wherever a program may ever have to wait, since a subscription is for a connection's life and settings
change: the container's cgroup is there and its init process in it, and the program does not run before the answer
(containerd 1.7 and 2.4: between NewTask and the task's Start)."""

_FIRST_EVENTS = 0x7FF
_EVENTS_SINCE_0_10 = 0x3FFF

_RUNTIMES: Mapping[str, tuple[tuple[tuple[int, int, int], Generation], ...]] = {
    "containerd": (
        ((2, 3, 0), (0, 12)),
        ((2, 2, 1), (0, 11)),
        ((2, 2, 0), (0, 10)),
        ((2, 0, 0), (0, 8)),
        ((1, 7, 26), (0, 8)),
        ((1, 7, 14), (0, 6)),
        ((1, 7, 7), (0, 4)),
        ((1, 7, 0), (0, 3)),
    ),
    "cri-o": (
        ((1, 35, 0), (0, 11)),
        ((1, 34, 0), (0, 10)),
        ((1, 32, 0), (0, 9)),
        ((1, 30, 0), (0, 6)),
        ((1, 29, 0), (0, 5)),
        ((1, 26, 0), (0, 2)),
    ),
}
"""From which version a runtime carries which NRI, newest first. Only runtimes before NRI 0.12 need to be looked up."""

OLDEST: Generation = (0, 2)
_VERSION = _compile(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")

_PHASES: Mapping[int, Phase] = {
    nri_pb2.CONTAINER_CREATED: Phase.CREATED,
    nri_pb2.CONTAINER_PAUSED: Phase.RUNNING,
    nri_pb2.CONTAINER_RUNNING: Phase.RUNNING,
    nri_pb2.CONTAINER_STOPPED: Phase.STOPPED,
}


def generation(request: nri_pb2.ConfigureRequest) -> Generation:
    """The runtime's NRI: as it says, else by its name and version, else the oldest there is."""
    said = _VERSION.match(request.NRI_version)
    if said is not None:
        return int(said[1]), int(said[2])
    version = _VERSION.match(request.runtime_version)
    if version is None:
        return OLDEST
    number = (int(version[1]), int(version[2]), int(version[3] or 0))
    carried = _RUNTIMES.get(request.runtime_name.lower(), ())
    return next((nri for since, nri in carried if number >= since), OLDEST)


def event_mask(wanted: Iterable[nri_pb2.Event], of: Generation) -> int:
    """The subscription to those of `wanted` which this generation knows. Never 0, which would mean everything."""
    known = _EVENTS_SINCE_0_10 if of >= (0, 10) else _FIRST_EVENTS
    mask = sum(1 << (event - 1) for event in set(wanted)) & known
    if mask == 0:
        raise ValueError("a subscription to nothing would mean a subscription to everything")
    return mask


def sandbox(pod: nri_pb2.PodSandbox, labels: Keys = ()) -> Sandbox:
    """The pod sandbox, with the annotations that are read, these labels, and no others."""
    return described.sandbox(
        *(pod.id, pod.uid, pod.namespace, pod.name),
        annotations=pod.annotations,
        said=pod.labels,
        labels=labels,
        cgroup_parent=described.path(cgroup_paths.parent_path, pod.linux.cgroup_parent),
        handler=printable(pod.runtime_handler[:MAX_NAME]),
        asked=_share(pod.linux.pod_resources) if pod.linux.HasField("pod_resources") else NO_SHARE,
        overhead=_share(pod.linux.pod_overhead) if pod.linux.HasField("pod_overhead") else NO_SHARE,
    )


def _share(resources: nri_pb2.LinuxResources) -> HostShare:
    return HostShare(_cpu(resources), max(0, resources.memory.limit.value))


def container(
    raw: nri_pb2.Container,
    phase: Phase | None = None,
    asked: nri_pb2.LinuxResources | None = None,
    labels: Keys = (),
) -> Container:
    """The container, in `phase` or else in the one the runtime says. `asked`: what an update asks for, which its
    record does not have yet."""
    linux = raw.linux
    return described.container(
        *(raw.id, raw.pod_sandbox_id, raw.name, raw.labels, labels),
        phase=phase if phase is not None else _PHASES.get(raw.state, Phase.CREATED),
        cgroups_path=described.path(cgroup_paths.container_path, linux.cgroups_path),
        recorded=_recorded(linux.resources.unified),
        image=printable(raw.image.name[:MOST_OF_IMAGE]),
        cpu=_cpu(linux.resources) if asked is None else _cpu(asked, _cpu(linux.resources)),
        memory=max(0, (asked.memory.limit.value if asked is not None else 0) or linux.resources.memory.limit.value),
    )


def used(raw: nri_pb2.Container) -> list[Used]:
    """The devices and mounts that it may write to."""
    read_only = {
        (rule.type, rule.major.value, rule.minor.value)
        for rule in raw.linux.resources.devices
        if rule.allow and "w" not in rule.access
    }
    found = [
        Used(HintKind.DEVICE, "", one.path, (one.major, one.minor), is_block=one.type == "b")
        for one in raw.linux.devices
        if (one.type, one.major, one.minor) not in read_only
    ]
    binds = (one for one in raw.mounts if one.source.startswith("/") and "ro" not in one.options)  # not proc, tmpfs
    found += (Used(HintKind.MOUNT, one.source, one.destination) for one in binds)
    return found


def _cpu(resources: nri_pb2.LinuxResources, before: CpuRecord = NO_RECORD) -> CpuRecord:
    """What is said of CPUs, over `before`."""
    cpu = resources.cpu
    return described.cpu(cpu.shares.value, cpu.quota.value, cpu.period.value, cpu.cpus, cpu.mems, before)


def _recorded(unified: Mapping[str, str]) -> dict[str, int]:
    """The limits in the runtime's record; none from a value that cannot be read."""
    if MISC_MAX not in unified:
        return {}
    try:
        limits = misc_files.parse_limits(unified[MISC_MAX].encode())
    except WireError as error:
        _log.warning("recorded=ignored error=%s", error)
        return {}
    return {name: value for name, value in limits.items() if value < 2**64}


def happening(kind: nri_pb2.Event, pod: nri_pb2.PodSandbox, raw: nri_pb2.Container, labels: Keys = ()) -> Event | None:
    """A notification in the words of the model; None for what it has no word for."""
    home = partial(sandbox, pod, labels)
    one = partial(container, raw, labels=labels)
    match kind:
        case nri_pb2.RUN_POD_SANDBOX:
            return SandboxStarted(home())
        case nri_pb2.STOP_POD_SANDBOX:
            return SandboxStopped(home())
        case nri_pb2.REMOVE_POD_SANDBOX:
            return SandboxRemoved(home())
        case nri_pb2.POST_CREATE_CONTAINER:
            return Created(home(), one(Phase.CREATED))
        case nri_pb2.START_CONTAINER | nri_pb2.POST_START_CONTAINER:
            return Started(home(), one(Phase.RUNNING))
        case nri_pb2.POST_UPDATE_CONTAINER:
            return Updated(home(), one())
        case nri_pb2.STOP_CONTAINER:
            return Stopped(home(), one(Phase.STOPPED))
        case nri_pb2.REMOVE_CONTAINER:
            return Removed(SandboxId(raw.pod_sandbox_id or pod.id), ContainerId(raw.id))
        case _:
            return None


def create_answer(adjustment: Adjustment, of: Generation = OLDEST) -> bytes:
    """The answer to CreateContainer by a runtime with this NRI; no bytes for no change."""
    unified, mounts = tuple(adjustment.unified.items()), adjustment.mounts
    sets = len(adjustment.sets())
    if sets == len(unified):
        return _created(unified) if unified else b""
    answer = nri_pb2.CreateContainerResponse()
    for mount in mounts:
        options = ["rbind", "ro" if mount.read_only else "rw"]
        answer.adjust.mounts.add(destination=mount.destination, type="bind", source=mount.source, options=options)
    for node in adjustment.devices:
        answer.adjust.linux.devices.add(path=node.path, type="c", major=node.major, minor=node.minor)
    if sets > len(mounts) + len(adjustment.devices):
        _set(answer.adjust.linux.resources, adjustment)
    if adjustment.scheduling is not None:
        _schedule(answer.adjust.linux, adjustment.scheduling, of)
    return answer.SerializeToString()


def _schedule(linux: nri_pb2.LinuxContainerAdjustment, given: SchedulingClass, of: Generation) -> None:
    """What this NRI has a field for; an older runtime would drop the rest without a word."""
    lost = list[str]()
    if given.io_class is not IoClass.NONE:
        if of >= (0, 10):
            its = {"class": f"IOPRIO_CLASS_{given.io_class.name}"}  # in Python no name of an argument
            linux.io_priority.CopyFrom(nri_pb2.LinuxIOPriority(priority=given.io_priority, **its))
        else:
            lost.append("ioClass")
    if given.policy is not Scheduler.NONE:
        if of >= (0, 11):
            how = nri_pb2.LinuxScheduler(
                policy=f"SCHED_{given.policy.name}",
                flags=[f"SCHED_FLAG_{flag.name}" for flag in given.flags],
                nice=given.nice,
                priority=given.priority,
                runtime=given.runtime,
                deadline=given.deadline,
                period=given.period,
            )
            linux.scheduler.CopyFrom(how)
        else:
            lost.append("policy")
    if lost:
        _log.warning("scheduling=not-carried class=%s keys=%s nri=%d.%d", given.name, ",".join(lost), *of)


@lru_cache(256)  # many containers of a node are promised the same
def _created(unified: tuple[tuple[str, str], ...]) -> bytes:
    answer = nri_pb2.CreateContainerResponse()
    answer.adjust.linux.resources.unified.update(unified)
    return answer.SerializeToString()


def update_answer(container_id: ContainerId, adjustment: Adjustment) -> bytes:
    """The answer to UpdateContainer; no bytes for no change. A mount is for a container's creation only."""
    answer = nri_pb2.UpdateContainerResponse()
    if len(adjustment.sets()) > len(adjustment.mounts):
        _set(answer.update.add(container_id=container_id).linux.resources, adjustment)
    return answer.SerializeToString()


def _set(resources: nri_pb2.LinuxResources, adjustment: Adjustment) -> None:
    resources.unified.update(adjustment.unified)
    if adjustment.cpus:
        resources.cpu.cpus = adjustment.cpus
    if adjustment.memory_nodes:
        resources.cpu.mems = adjustment.memory_nodes
    if adjustment.cpu_shares:
        resources.cpu.shares.value = adjustment.cpu_shares
    if adjustment.rdt_class:
        resources.rdt_class.value = adjustment.rdt_class
    if adjustment.blockio_class:
        resources.blockio_class.value = adjustment.blockio_class
