"""Decides the CPUs and memory that a VM's pod is started with. Pure.

Kata reads a pod's size from the CPU quota and the memory limit of RunPodSandbox; requests are in neither. By which way
a handler learns it, `features.sandboxes.ways` decides. Promises: a limit that kubelet sent is never lowered, what is
added stays below what the machine may give, and what is not known stays as it came, with the reason. Kata adds its own
defaults or overhead on top, as it does for a pod with limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from nodeward.core.annotations import CRI_SIZES, KATA_SIZES
from nodeward.core.vms import NOT_TOLD, Allocatable, Handler, Profile, Room, Sized, Way
from nodeward.core.workload import NO_WHOLE, ContainerSpec, CpuRecord, HostShare, PodSpec, Role, WholePod
from nodeward.features.pods.budget import containers_need
from nodeward.features.sandboxes import ways
from nodeward.features.sandboxes.settings import SizingSettings, Unlimited, unlimited
from nodeward.features.sandboxes.size import CPU_M, MIB, SHARES_OF_A_CPU, cpu_limit_m

NO_NOTES: Mapping[str, str] = MappingProxyType({})
PERIOD = 100_000
"""Microseconds: the CPU quota's period where kubelet sends none, or one that has no thousandth."""
NO_REQUEST_SHARES = 2
"""What kubelet sends for a pod that requests no CPU."""
MOST_SHARES = 262_144
"""The most that shares can say: 256 CPUs, or more."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """An amount, None where what kubelet sent is to stay, and why."""

    amount: int | None
    why: str


def room(rule: SizingSettings, cpus: int, memory: int, node: Allocatable = NOT_TOLD) -> Room:
    """The most CPUs and memory that VMs may get: the machine's (0: not known), less what the settings keep, and at most
    what the node calls allocatable. A VM beyond that takes what kubelet keeps for the system."""
    left = max(cpus - rule.keep_cpus, 0) * CPU_M if cpus else None
    bytes_left = max(memory - rule.keep_memory_mib * MIB, 0) // MIB * MIB if memory else None
    may = None if node.memory is None else node.memory // MIB * MIB
    cpu_m, cpu_by = _less(left, "the machine's CPUs that are online, without sizing.keep_cpus", node.cpu_m, "m")
    most, memory_by = _less(bytes_left, "the machine's memory, without sizing.keep_memory_mib", may, " bytes")
    return Room(cpu_m, most, cpu_by, memory_by)


def _less(left: int | None, source: str, allocatable: int | None, unit: str) -> tuple[int | None, str]:
    """The smaller of both that is known, and which it is."""
    if allocatable is None:
        return left, f"{source if left is not None else 'the machine is unknown'}; allocatable is unknown"
    if left is not None and left <= allocatable:
        return left, source
    return allocatable, f"allocatable {allocatable}{unit} by the Node object"


def why_not(name: str, handler: Handler | None, rule: SizingSettings) -> str:
    """Why pods of this runtime handler are not sized; empty where they are."""
    if rule.handlers and name not in rule.handlers:
        return f"the handler {name or '(default)'} is not in sizing.handlers"
    if handler is None:
        return (
            "" if rule.handlers else f"the handler {name or '(default)'} starts no VMs by the runtime's configuration"
        )
    if handler.fault and not rule.handlers:
        return f"the configuration of the handler {name} could not be read: {handler.fault}"
    return ways.missing(handler) if ways.way(handler) is Way.NONE else ""


def sized(
    asked: HostShare,
    spec: PodSpec | None,
    handler: Handler | None,
    rule: SizingSettings,
    most: Room,
    no_spec: str = "",
    own: Mapping[str, str] = NO_NOTES,
) -> Sized:
    """The sizes to send for a pod of a handler that is sized. `asked`: what kubelet sent; `no_spec`: why there is no
    spec; `own`: the pod's annotations, which stand."""
    containers = [] if spec is None else [one for one in spec.containers if one.role is not Role.EPHEMERAL]
    whole = (spec.whole if spec is not None else None) or NO_WHOLE
    unread = next((fault for faults in (whole.faults, *(one.faults for one in containers)) for fault in faults), "")
    if spec is not None and spec.pod_level and spec.whole is None:
        containers, no_spec = [], "an older source does not tell the resources of the pod as a whole"
    elif unread:
        containers, no_spec = [], f"its spec cannot be read: {unread}"
    no_spec = no_spec or ("" if containers else "it is not known")
    cpu = _capped(_cpu(asked.cpu, containers, whole, rule, most, no_spec), most.cpu_m, "m", most.cpu_by)
    memory = _capped(_memory(containers, whole, no_spec), most.memory, " bytes", most.memory_by)
    kind = ways.way(handler) if handler is not None else Way.RESOURCES
    if handler is not None and kind is Way.DEFAULTS:
        found = _defaults(asked, cpu, memory, handler, most, own)
    else:
        found = _both(asked, cpu, memory, handler)
    if handler is not None and kind is Way.KEYS:
        found = _keys(found, handler)
    queues = ways.queues(handler, found, own) if handler is not None and rule.queues else {}
    return replace(found, annotations={**found.annotations, **queues}, changes=True) if queues else found


def _cpu(
    cpu: CpuRecord, containers: list[ContainerSpec], whole: WholePod, rule: SizingSettings, most: Room, no_spec: str
) -> _Wish:
    """What the pod is to have, in thousandths."""
    limit_m = cpu_limit_m(cpu) or 0
    requests = [one.cpu_m for one in containers]
    if not containers or None in requests:
        request_m = _by_shares(cpu)
        if request_m is None:
            return _Wish(None, f"CPU requests are unknown: kubelet sent none, and of the pod's spec {no_spec}")
        source = f"the request of {request_m}m that kubelet sent"
        return _Wish(request_m, source) if limit_m else _by_rule(request_m, source, rule, most)
    if whole.cpu_limit_m:
        return _Wish(whole.cpu_limit_m, f"the limit of the pod as a whole is {whole.cpu_limit_m}m")
    need_m = containers_need((one.role, one.cpu_limit_m or one.cpu_m or 0) for one in containers)
    if all(one.cpu_limit_m for one in containers):  # kubelet leaves the quota out for containers with CPUs of their own
        return _Wish(need_m, f"the limits of all containers add up to {need_m}m")
    if whole.cpu_m > need_m:
        return _by_rule(whole.cpu_m, f"the request of the pod as a whole is {whole.cpu_m}m", rule, most)
    return _by_rule(need_m, f"limits and, where there is none, requests add up to {need_m}m", rule, most)


def _by_rule(need_m: int, source: str, rule: SizingSettings, most: Room) -> _Wish:
    kind, number = unlimited(rule.unlimited) or (Unlimited.REQUEST, 0)
    named = f"{source}; sizing.unlimited is {rule.unlimited}"
    if kind is Unlimited.REQUEST:
        return _Wish(need_m, source)
    if kind is Unlimited.CPUS:
        return _Wish(max(need_m, number * CPU_M), named)
    if most.cpu_m is None:
        return _Wish(need_m, f"{source}; sizing.unlimited is left out, since the machine's CPUs are unknown")
    share = most.cpu_m if kind is Unlimited.ALL else most.cpu_m * number // 100
    return _Wish(max(need_m, share), named)


def _by_shares(cpu: CpuRecord) -> int | None:
    """The request that kubelet turned into shares: exact for 3m to 255999m."""
    if not 0 < cpu.shares < MOST_SHARES or cpu.unread:
        return None
    return -(-cpu.shares * CPU_M // SHARES_OF_A_CPU) if cpu.shares > NO_REQUEST_SHARES else 0


def _memory(containers: list[ContainerSpec], whole: WholePod, no_spec: str) -> _Wish:
    """What the pod is to have, in bytes. Memory has no rule but the request: a VM does not share it as it does CPUs."""
    if not containers or any(one.memory_request is None and not one.memory_limit for one in containers):
        return _Wish(None, f"memory requests are unknown: of the pod's spec {no_spec or 'an old source tells none'}")
    need = containers_need((one.role, one.memory_limit or one.memory_request or 0) for one in containers)
    why = f"limits and, where there is none, requests add up to {need} bytes"
    if whole.memory_limit:
        need, why = whole.memory_limit, f"the limit of the pod as a whole is {whole.memory_limit} bytes"
    elif whole.memory_request > need and not all(one.memory_limit for one in containers):
        need, why = whole.memory_request, f"the request of the pod as a whole is {whole.memory_request} bytes"
    return _Wish(-(-need // MIB) * MIB, why)


def _capped(wish: _Wish, most: int | None, unit: str, source: str) -> _Wish:
    if wish.amount is None or most is None or wish.amount <= most:
        return wish
    return replace(wish, amount=most, why=f"{wish.why}; a VM may have {most}{unit} at most: {source}")


def _both(asked: HostShare, cpu: _Wish, memory: _Wish, handler: Handler | None) -> Sized:
    limit_m = cpu_limit_m(asked.cpu) or 0
    cpu, memory = _more(cpu, limit_m, "m"), _more(memory, asked.memory, " bytes")
    sends = cpu.amount or memory.amount or limit_m or asked.memory
    if handler is not None and handler.profile is Profile.KATA_RS and sends:
        cpu = _default(cpu, limit_m, handler.default_vcpus_m, "vCPUs")
        memory = _default(memory, asked.memory, handler.default_memory, "memory")
        missing = not (cpu.amount or limit_m) or not (memory.amount or asked.memory)
        if missing:
            why = "runtime-rs leaves its defaults out once a limit is there, and the configuration tells none"
            cpu, memory = _Wish(None, why), _Wish(None, why)
    period = PERIOD if asked.cpu.period % CPU_M or not asked.cpu.period else asked.cpu.period
    return Sized(
        asked.cpu.period if cpu.amount is None else period,
        asked.cpu.quota if cpu.amount is None else cpu.amount * period // CPU_M,
        asked.memory if memory.amount is None else memory.amount,
        cpu.why,
        memory.why,
        cpu.amount is not None or memory.amount is not None,
    )


def _keys(found: Sized, handler: Handler) -> Sized:
    """The same by annotations. kubelet's limits are among them: nobody else hands them on. Of one resource alone
    runtime-rs makes a VM without its default of the other."""
    quota, memory = max(0, found.cpu_quota), found.memory_limit
    if handler.profile is Profile.KATA_RS and bool(quota) != bool(memory):
        return replace(found, way=Way.KEYS, changes=False)
    period = found.cpu_period or PERIOD
    said = {key: str(value) for key, value in zip(CRI_SIZES, (quota and period, quota, memory), strict=True) if value}
    return Sized(period, quota, memory, found.cpu_why, found.memory_why, bool(said), Way.KEYS, said)


def _defaults(
    asked: HostShare, cpu: _Wish, memory: _Wish, handler: Handler, most: Room, own: Mapping[str, str]
) -> Sized:
    """Kata's defaults, made larger by what the pod is to have beyond its limits: Kata adds these with containers."""
    vcpus, memory_key = KATA_SIZES
    more_m, more = (cpu.amount or 0) - (cpu_limit_m(asked.cpu) or 0), (memory.amount or 0) - asked.memory
    cpu_m, cpu_why = _default_of(vcpus, cpu.why, more_m, handler.default_vcpus_m, most.cpu_m, own)
    size, memory_why = _default_of(memory_key, memory.why, more, handler.default_memory, most.memory, own)
    said = {vcpus: str(-(-cpu_m // CPU_M))} if cpu_m else {}
    said |= {memory_key: str(-(-max(size, ways.least(handler)) // MIB))} if size else {}
    sent = asked.cpu.period, asked.cpu.quota, asked.memory
    return Sized(*sent, cpu_why, memory_why, bool(said), Way.DEFAULTS, said)


def _default_of(
    key: str, why: str, more: int, has: int | None, room: int | None, own: Mapping[str, str]
) -> tuple[int, str]:
    """The default that is to be sent, 0 for none, and why. Kata fails a pod with more vCPUs than the host has."""
    if key in own:
        return 0, f"{why}; the pod's own annotation stands"
    if more <= 0:
        return 0, f"{why}; nothing to add"
    if has is None or room is None:
        what = "the configuration tells no default" if has is None else "what the machine has is unknown"
        return 0, f"{why}; {what}, so nothing is sent"
    whole = min(has + more, room)
    return (whole, why) if whole > has else (0, f"{why}; the default is all that a VM may have")


def _more(wish: _Wish, sent: int, unit: str) -> _Wish:
    """The wish where it is more than kubelet's limit, which else stays."""
    if wish.amount is None or wish.amount > sent:
        return wish
    return _Wish(None, f"{wish.why}; kubelet's limit of {sent}{unit} stays" if sent else f"{wish.why}; nothing to add")


def _default(wish: _Wish, sent: int, default: int | None, what: str) -> _Wish:
    """runtime-rs gives a VM its default of one resource only where no resource has a limit."""
    if wish.amount or sent or not default:
        return wish
    return _Wish(default, f"{wish.why}; the default {what} of runtime-rs, which it leaves out once a limit is there")


def told(before: HostShare, after: Sized) -> str:
    """The decision in words, for a log and for a status."""
    now = cpu_limit_m(CpuRecord(quota=after.cpu_quota, period=after.cpu_period)) or 0
    notes = [f"{key.rpartition('.')[2]}={value}" for key, value in after.annotations.items()]
    lines = [
        _line(what, was, then, why)
        for what, was, then, why in (
            ("cpu_m", cpu_limit_m(before.cpu) or 0, now, after.cpu_why),
            ("memory", before.memory, after.memory_limit, after.memory_why),
        )
    ]
    return "; ".join([*lines, *([f"annotations {' '.join(notes)}"] if notes else [])])


def _line(what: str, was: int, then: int, why: str) -> str:
    return f"{what} {was if was == then else f'{was} -> {then}'} ({why})"
