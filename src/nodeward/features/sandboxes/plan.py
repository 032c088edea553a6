"""The steps that put a VM sandbox's processes where Kata's page "host cgroup management" has them (profile `document`).

For VM runtimes that place nothing themselves. Steps are values: `features.sandboxes.effects.placing` performs them,
`nodeward vms cgroup plan` prints them. A sandbox's own cgroups are made and removed; the pod's and `/kata` are
shared, and stay.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum

from nodeward.core.cgroup_names import of_systemd
from nodeward.core.errors import NodewardError
from nodeward.core.vms import CgroupDriver, Profile, TaskRole
from nodeward.features.sandboxes.expected import UNLIMITED_MEMORY, Paths, container_path, expected, shims, threaded
from nodeward.features.sandboxes.values import Expected

PERIOD_US = 100_000
MIN_CPU_M = 10
"""The kernel's smallest quota is a millisecond."""
MAX_AMOUNT = 2**62
MAX_TASKS = 1024
"""Containers, vCPU threads: of each at most so many."""
_PASSED_ON = "cpu cpuset memory"
_THREADED = "cpu cpuset"
"""Memory cannot be counted by thread."""
_POD = re.compile(r"(?:^|-)pod[0-9a-f_-]+(?:\.slice)?$")
"""By its UID: `podman.slice` is no pod's."""
_KUBELETS = re.compile(r"kubepods(?:[-.].*)?")
_MAX_PATH = 4096
_MAX_ID = 128
_OF_AN_ID = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"


class PlanError(NodewardError):
    """An id, a path or an amount by which no cgroup can be planned."""


class Act(Enum):
    """What a step does."""

    MAKE = "make"
    PASS_ON = "pass-on"
    """cgroup v2: lets the cgroups below have the controllers that this one has."""
    THREADED = "threaded"
    LIMIT = "limit"
    MOVE = "move"
    REMOVE = "remove"


class Trees(Enum):
    """The trees of cgroup v1 that a step is for; v2 has one."""

    ALL = "all"
    MEMORY = "memory"
    CPU = "cpu"
    BUT_MEMORY = "all but memory"


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `number` is that of the document's seven; 0 in the enabled mode, which has none."""

    act: Act
    cgroup: str
    trees: Trees = Trees.ALL
    number: int = 0
    file: str = ""
    """Of a limit, and of a move."""
    value: str = ""
    """What is written there; the controllers that are passed on, where the cgroup has them."""
    role: TaskRole | None = None
    """Of a move; its process and thread (the same for a whole process) are 0 where they are not known yet."""
    pid: int = 0
    tid: int = 0
    if_unset: bool = False
    """Of a limit: written only where the cgroup has none. The pod's cgroup is not the sandbox's own."""

    @property
    def whole(self) -> bool:
        """Whether all threads of the process move."""
        return self.pid == self.tid


@dataclass(frozen=True, slots=True)
class Wanted:
    """The sandbox to be placed. `memory` (bytes) and `cpu_m`: the sum of its containers' limits; None leaves the limit
    as it is."""

    paths: Paths
    only: bool
    version: int
    driver: CgroupDriver
    memory: int | None = None
    cpu_m: int | None = None
    threaded: bool = False
    """On cgroup v2 in mode false: vCPU threads in a threaded subtree, instead of the whole VMM in one cgroup."""
    overhead: int | None = None
    """Bytes that the pod's memory limit has above `memory`. In mode true only: else the overhead is outside."""


@dataclass(frozen=True, slots=True)
class Processes:
    """What runs for the sandbox; 0 for none. `shims`: by container; the sandbox's own id for one of the sandbox."""

    vmm: int = 0
    vcpus: tuple[int, ...] = ()
    shims: tuple[tuple[str, int], ...] = ()
    virtiofsd: int = 0


def places(wanted: Wanted) -> Expected:
    """The cgroups of everything. PlanError where no cgroup can be made of its path."""
    found = expected(Profile.DOCUMENT, wanted.only, wanted.version, wanted.driver, wanted.paths)
    if not found.sandbox:
        raise PlanError(found.note)
    return found


def create(wanted: Wanted) -> tuple[Step, ...]:
    """The steps before the VM starts: its cgroups, and their limits."""
    _check(wanted)
    at = places(wanted)
    if wanted.only:
        pod, made = _pod(wanted), _make(wanted, at.sandbox)
        if wanted.paths.no_pod or not (_is_pods(pod) or _is_kubelets(pod)):
            return (*made, *_limits(wanted, at.sandbox, at.sandbox, 0))
        limits = [] if _is_kubelets(pod) else _limits(wanted, pod, pod, 0)
        return (*made, *(replace(step, if_unset=True) for step in limits))
    steps = [step for path in _own(wanted, at) for step in _make(wanted, path, 2)]
    cpu = at.sandbox
    if _splits(wanted):
        tree = threaded(at)
        for child in (tree.vcpu, tree.overhead):
            steps += [Step(Act.MAKE, child, number=5), Step(Act.THREADED, child, number=5)]
        steps.append(Step(Act.PASS_ON, at.sandbox, number=5, value=_THREADED))
        cpu = tree.vcpu
    steps += _limits(wanted, at.sandbox, cpu, 4)
    if wanted.version == 2:
        steps.append(Step(Act.PASS_ON, "/", number=7, value=_PASSED_ON))
    return (*steps, Step(Act.MAKE, UNLIMITED_MEMORY, Trees.MEMORY, 7))


def place(wanted: Wanted, running: Processes) -> tuple[Step, ...]:
    """The steps after the VM has started. In mode true a shim is best moved before it starts a VMM: memory stays where
    it was charged."""
    _check(wanted)
    at = places(wanted)
    if wanted.only:
        shim_moves = [_move(TaskRole.SHIM, at.sandbox, pid) for _, pid in running.shims]
        others = ((TaskRole.VMM, running.vmm), (TaskRole.VIRTIOFSD, running.virtiofsd))
        return (*shim_moves, *(_move(role, at.sandbox, pid) for role, pid in others if pid))
    homes = shims(wanted.paths)
    missing = [one for one, _ in running.shims if one not in homes]
    if missing:
        raise PlanError(
            f"the shim of container {missing[0][:_MAX_ID]!r} has no cgroup: give --container ID=PATH for it"
        )
    vm, rest = _vm_moves(wanted, at, running)
    shim_moves = [_move(TaskRole.SHIM, homes[one], pid, 6) for one, pid in running.shims]
    if running.virtiofsd:
        rest = [*rest, _move(TaskRole.VIRTIOFSD, UNLIMITED_MEMORY, running.virtiofsd, 7, Trees.MEMORY)]
    return (*vm, *shim_moves, *rest)


def delete(wanted: Wanted) -> tuple[Step, ...]:
    """The steps after the sandbox's processes have ended."""
    _check(wanted)
    at = places(wanted)
    own = [at.sandbox] if wanted.only else _own(wanted, at)
    if not wanted.only and wanted.version == 2:
        tree = threaded(at)
        own += [tree.vcpu, tree.overhead]  # there only if they were asked for
    return tuple(Step(Act.REMOVE, path) for path in reversed(own))


def note(wanted: Wanted) -> str:
    """What was asked and is not done: this version of cgroups cannot, or kubelet does. Empty where all is done."""
    asks = any(one is not None for one in (wanted.memory, wanted.cpu_m))
    if asks and wanted.only and not wanted.paths.no_pod and _is_kubelets(_pod(wanted)):
        return f"kubelet sets the limits of {_pod(wanted)}: none is set here"
    return "" if _splits(wanted) else places(wanted).note


def checked_path(option: str, path: str) -> str:
    """The `cgroupsPath` of an OCI spec. PlanError for one of which no cgroup should be made."""
    shown = f"{option} {path[:200]!r}"
    if len(path) > _MAX_PATH or "\0" in path or "\n" in path:
        raise PlanError(f"{shown} is longer than {_MAX_PATH} characters, or has a NUL or a line's end; give another")
    if ".." in path.replace(":", "/").split("/"):
        raise PlanError(f"{shown} climbs out with '..'; name the cgroup itself")
    named = of_systemd(path)
    if named is not None:
        return _checked_scope(shown, path, named)
    if not path.startswith("/") or not path.strip("/."):
        raise PlanError(
            f"{shown} is neither absolute nor of systemd's form; give /POD/CONTAINER or NAME.slice:PREFIX:CONTAINER, "
            "linux.cgroupsPath of the OCI spec"
        )
    return path


def checked_id(option: str, name: str) -> str:
    """The id of a sandbox or container. PlanError for one that cannot be a cgroup's name."""
    if not name or len(name) > _MAX_ID or name[0] in ".-" or any(one not in _OF_AN_ID for one in name):
        raise PlanError(
            f"{option} {name[:_MAX_ID]!r} is no id: letters, digits, '_', '.' and '-', at most {_MAX_ID}, and first a "
            "letter, digit or '_'"
        )
    return name


def _checked_scope(shown: str, path: str, named: tuple[str, str, str]) -> str:
    name = named[2]
    if "\\" in path:
        raise PlanError(
            f"{shown} has an escape of systemd ('\\'), which this command does not make; kubelet writes '_' for a '-' "
            "within a name"
        )
    if not name or "/" in path:
        raise PlanError(f"{shown} is not NAME.slice:PREFIX:CONTAINER: a part is empty or has a slash")
    try:
        container_path(path)
    except ValueError as error:
        raise PlanError(f"{shown}: {error}; give the slice's name as kubelet does") from error
    return path


def _check(wanted: Wanted) -> None:
    for option, value, least in (
        ("--memory", wanted.memory, 1),
        ("--overhead", wanted.overhead, 1),
        ("--cpu-m", wanted.cpu_m, MIN_CPU_M),
    ):
        if value is not None and not least <= value <= MAX_AMOUNT:
            raise PlanError(f"{option} {value} is not between {least} and {MAX_AMOUNT}; leave it out for no limit")
    if wanted.overhead is not None and (wanted.memory is None or not wanted.only):
        raise PlanError("--overhead is added to --memory in mode --only: give both, or leave it out")
    if len(wanted.paths.containers) > MAX_TASKS:
        raise PlanError(f"{len(wanted.paths.containers)} containers are more than {MAX_TASKS}; see who calls this")
    if wanted.threaded and (wanted.only or wanted.version == 1):
        raise PlanError(
            "--threaded is for cgroup v2 with --split: elsewhere threads are split without it, or not at all"
        )


def _pod(wanted: Wanted) -> str:
    return wanted.paths.pod or container_path(wanted.paths.cgroups_path or "").rpartition("/")[0]


def _is_pods(path: str) -> bool:
    """Whether the cgroup is one pod's by its name, as `/any/podUID` or `any-podUID.slice`. A limit on another one above
    a sandbox, as `system.slice`, would hold for all that runs there."""
    return _POD.search(path.rpartition("/")[2]) is not None


def _is_kubelets(pod: str) -> bool:
    """Kubelet's sum has the RuntimeClass's overhead, which a caller may not know."""
    return any(_KUBELETS.fullmatch(part) for part in pod.split("/"))


def _own(wanted: Wanted, at: Expected) -> list[str]:
    """The cgroups that are the sandbox's alone in mode false: of the sandbox container first."""
    return list(dict.fromkeys((at.sandbox, *shims(wanted.paths).values())))


def _splits(wanted: Wanted) -> bool:
    return wanted.threaded and wanted.version == 2 and not wanted.only


def _make(wanted: Wanted, path: str, number: int = 0) -> list[Step]:
    """The cgroup. Who has pods has made the pod's; nobody has made what Docker puts its containers in."""
    above = path.rpartition("/")[0] or "/"
    steps = [Step(Act.MAKE, above, number=number)] if wanted.paths.no_pod and above != "/" else []
    if wanted.version == 2:
        steps.append(Step(Act.PASS_ON, above, number=number, value=_PASSED_ON))
    return [*steps, Step(Act.MAKE, path, number=number)]


def _limits(wanted: Wanted, memory: str, cpu: str, number: int) -> list[Step]:
    steps = list[Step]()
    if wanted.memory is not None:
        file = "memory.limit_in_bytes" if wanted.version == 1 else "memory.max"
        steps.append(Step(Act.LIMIT, memory, Trees.MEMORY, number, file, str(wanted.memory + (wanted.overhead or 0))))
    if wanted.cpu_m is None:
        return steps
    quota = wanted.cpu_m * PERIOD_US // 1000
    values = {"cpu.max": f"{quota} {PERIOD_US}"}
    if wanted.version == 1:
        values = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    return [*steps, *(Step(Act.LIMIT, cpu, Trees.CPU, number, file, value) for file, value in values.items())]


def _vm_moves(wanted: Wanted, at: Expected, running: Processes) -> tuple[list[Step], list[Step]]:
    """The VMM and its vCPU threads in mode false: steps 5 and 7."""
    vmm = running.vmm
    if running.vcpus and not vmm:
        raise PlanError("vCPU threads are given without their process; give --vmm PID")
    if len(running.vcpus) > MAX_TASKS:
        raise PlanError(f"{len(running.vcpus)} vCPU threads are more than {MAX_TASKS}; see who calls this")
    if not vmm:
        return [], []
    if _splits(wanted):
        tree = threaded(at)
        moves = [
            Step(Act.MOVE, tree.vcpu, Trees.ALL, 5, "cgroup.threads", str(tid), TaskRole.VCPU, vmm, tid)
            for tid in running.vcpus
        ]
        return [_move(TaskRole.VMM, tree.overhead, vmm, 5), *moves], []  # threads move only within their process's tree
    if wanted.version == 2:
        return [_move(TaskRole.VMM, at.vmm, vmm, 5)], []
    moves = [
        Step(Act.MOVE, at.vcpu, Trees.BUT_MEMORY, 5, "tasks", str(tid), TaskRole.VCPU, vmm, tid)
        for tid in running.vcpus
    ]
    return moves, [_move(TaskRole.VMM, at.vmm, vmm, 7, Trees.MEMORY)]


def _move(role: TaskRole, to: str, pid: int, number: int = 0, trees: Trees = Trees.ALL) -> Step:
    return Step(Act.MOVE, to, trees, number, "cgroup.procs", str(pid), role, pid, pid)
