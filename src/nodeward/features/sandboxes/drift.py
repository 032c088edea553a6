"""Finds what of a VM sandbox is in the wrong cgroup.

A task counts by its number and its start: one whose start was not read may be another one, and is not judged. On cgroup
v1 a thread's CPU and memory can count in different cgroups: vCPU threads are judged by CPU, everything else by memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from nodeward.core.cgroup_names import of_systemd
from nodeward.core.vms import UNLIMITED, Place, Profile, Task, TaskRole, VmReading
from nodeward.features.sandboxes.expected import SANDBOXED_POD
from nodeward.features.sandboxes.values import (
    ELSEWHERE,
    LITERAL_SCOPE,
    OTHER_MODE,
    OUTSIDE_POD,
    RUNTIME_SERVICE,
    SANDBOX_LIMIT,
    SANDBOXED_POD_CODE,
    Drift,
    Expected,
)

MAX_DRIFTS = 32
"""Of one sandbox: of more, the first are told."""
_RUNTIMES = ("containerd.service", "crio.service", "docker.service", "podman.service")
_OF_THE_VM = (TaskRole.VMM, TaskRole.VCPU, TaskRole.IO)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which a sandbox is judged. `pod`: the cgroup of its pod; empty for none. `shims`: more cgroups where
    a shim may be (the document has one for each container)."""

    profile: Profile
    version: int
    pod: str = ""
    shims: tuple[str, ...] = ()


def drift(reading: VmReading, place: Expected, other: Expected | None, rules: Rules) -> tuple[Drift, ...]:
    """The drifts of a sandbox. `other` is what would be expected under the other mode, where that is known."""
    judged = tuple(dict.fromkeys(task for task in reading.tasks if task.start > 0 and _seen(task, rules)))
    wrong = _misplaced(judged, place, rules)
    if wrong and other is not None and other.sandbox and not _misplaced(judged, other, rules, only_elsewhere=True):
        moved = Drift(OTHER_MODE, seen=other.sandbox, expected=place.sandbox)
        wrong = (moved, *(one for one in wrong if one.code in (LITERAL_SCOPE, SANDBOXED_POD_CODE)))
    return (*wrong, *_cgroups(reading, rules))[:MAX_DRIFTS]


def _misplaced(tasks: Iterable[Task], place: Expected, rules: Rules, only_elsewhere: bool = False) -> tuple[Drift, ...]:
    """One drift for all tasks of one role that are in the same wrong place."""
    counts = dict[tuple[str, str, str, str], int]()
    for task in tasks:
        seen, right = _seen(task, rules), place.of(task.role)
        allowed = _allowed(task, place, rules)
        code = "" if only_elsewhere else _always_wrong(seen)
        if not code and right and not any(_within(seen, one) for one in allowed):
            code = _why_wrong(task, seen, right, rules)
        if code:
            key = (code, task.role.value, seen, right)
            counts[key] = counts.get(key, 0) + 1
    return tuple(Drift(*key, count) for key, count in counts.items())


def _allowed(task: Task, place: Expected, rules: Rules) -> tuple[str, ...]:
    """The cgroups where it may be. A vhost thread stays where the VMM was when it started, in kernels before 6.4."""
    right = place.of(task.role)
    match task.role:
        case TaskRole.VHOST if place.overhead:
            return right, place.overhead
        case TaskRole.SHIM:
            return right, *rules.shims
    return (right,)


def _always_wrong(seen: str) -> str:
    """The code of a place that is wrong even where it is what the runtime does."""
    if _within(seen, SANDBOXED_POD):
        return SANDBOXED_POD_CODE
    return LITERAL_SCOPE if any(of_systemd(part) is not None for part in seen.split("/")) else ""


def _why_wrong(task: Task, seen: str, right: str, rules: Rules) -> str:
    if task.role is TaskRole.SHIM and any(part in _RUNTIMES for part in seen.split("/")):
        return RUNTIME_SERVICE
    if task.role in _OF_THE_VM and rules.pod and _within(right, rules.pod) and not _within(seen, rules.pod):
        return OUTSIDE_POD
    return ELSEWHERE


def _seen(task: Task, rules: Rules) -> str:
    """The cgroup by which it is judged; empty where it was not read."""
    by_cpu = rules.version == 1 and task.role is TaskRole.VCPU
    return (task.cpu_cgroup or task.cgroup) if by_cpu else task.cgroup


def _cgroups(reading: VmReading, rules: Rules) -> tuple[Drift, ...]:
    """What the cgroups themselves have that they should not."""
    sandbox = reading.cgroup(Place.SANDBOX)
    limited = sandbox is not None and any(
        limit not in (None, UNLIMITED) for limit in (sandbox.memory_limit, sandbox.cpu_limit_m)
    )
    if sandbox is not None and limited and rules.pod and rules.profile is not Profile.DOCUMENT:
        return (Drift(SANDBOX_LIMIT, seen=sandbox.path),)
    return ()


def _within(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above.rstrip('/')}/")
