"""Makes the Pod API's sections from the engine's state. Pure.

A pod may be known by its spec, by its sandbox, or by both: a runtime asks while the watch has not told of the pod yet.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from nodeward.core.modes import Mode
from nodeward.core.pulls import SandboxKey
from nodeward.core.vms import TaskRole
from nodeward.core.workload import NO_WHOLE, PodSpec, PodUid, Role, Sandbox, SandboxId, Source
from nodeward.features.gate.rows import GateCondition, PodGate
from nodeward.features.gate.rule import conditions, shut
from nodeward.features.gate.view import _NO_VERDICT, SOURCE, word
from nodeward.features.podapi.rows import (
    PodCgroup,
    PodCheckpoint,
    PodContainer,
    PodIdentity,
    PodOverhead,
    PodTotals,
    PodVmSize,
    ReportSandboxRequest,
    Section,
    Selector,
)
from nodeward.features.pods.budget import containers_need
from nodeward.features.pods.state import KnownSandbox, KnownSpec
from nodeward.features.root import State

RUNTIME, VMS, API = "the runtime", "the VM's processes and its handler's configuration", Source.API.value
RELAY = "the relay"
T = TypeVar("T")
NO_SANDBOX = "the runtime has told of no sandbox yet"
AWAY = "the API server does not answer; this is what was known last"
NO_SPEC = "the pod's spec is not known yet"


@dataclass(frozen=True, slots=True)
class Subject:
    """The pod that is asked for, and the sandbox of it."""

    uid: PodUid
    namespace: str
    name: str
    known: KnownSpec | None
    sandbox: Sandbox | None
    stand_in: bool = False
    """Whether only the sandbox's cgroup is known, and not its id."""
    by_relay: bool = False
    """Whether the relay alone has told of the sandbox."""

    @property
    def sandbox_id(self) -> str:
        """Empty for not known."""
        return self.sandbox.id if self.sandbox is not None and not self.stand_in else ""


def with_told(state: State, told: Iterable[SandboxKey]) -> State:
    """The state with the sandboxes that the relay has reported, oldest first, for pods of which the runtime has
    reported none. A pod is known by its UID, since a name can have been taken over; its highest attempt is its sandbox.
    What the runtime has told comes first, also that a sandbox has ended: the relay names it until it is removed."""
    pods = state.pods
    sandboxes, sandbox_of = dict(pods.sandboxes), dict(pods.sandbox_of)
    attempts = dict[PodUid, int]()
    for seq, key in enumerate(told := tuple(told), -len(told)):  # older than all that the runtime has told
        uid, sandbox_id = PodUid(key.uid), SandboxId(key.id)
        home = pods.sandboxes.get(pods.sandbox_of.get(uid, SandboxId("")))
        if not uid or (home and not home.by_cgroup) or sandbox_id in pods.sandboxes or sandbox_id in pods.ended:
            continue
        parent = home.sandbox.cgroup_parent if home is not None else ""
        sandbox = Sandbox(sandbox_id, uid, key.namespace, key.name, cgroup_parent=parent, handler=key.handler)
        sandboxes[sandbox_id] = KnownSandbox(sandbox, seq)
        if key.attempt >= attempts.get(uid, 0):
            attempts[uid], sandbox_of[uid] = key.attempt, sandbox_id
    return replace(state, pods=replace(pods, sandboxes=sandboxes, sandbox_of=sandbox_of)) if attempts else state


def rows(state: State) -> dict[str, tuple[PodIdentity, object]]:
    """Every pod by UID, with a row that stays the same while its description does."""
    uids = dict.fromkeys((*state.pods.specs, *(one.sandbox.pod_uid for one in state.pods.sandboxes.values())))
    found = dict[str, tuple[PodIdentity, object]]()
    for uid in uids:
        one = _of(state, uid, state.pods.sandbox_of.get(uid))
        vm = state.sandboxes.vms.get(one.sandbox.id) if one.sandbox is not None else None
        spec = one.known.spec if one.known is not None else None
        if uid and (spec is not None or one.sandbox is not None):
            size, said = vm.size if vm is not None else None, state.gate.verdicts.get(uid)
            found[str(uid)] = _identity(one), (spec, one.sandbox, size, said)
    return found


def pods(state: State) -> tuple[PodIdentity, ...]:
    """Every pod that is known, by namespace and name."""
    found = [identity for identity, _ in rows(state).values()]
    return tuple(sorted(found, key=lambda one: (one.namespace, one.name, one.uid)))


def pod_named(state: State, namespace: str, name: str) -> tuple[PodUid, KnownSpec] | None:
    """The pod of this name that was reported last, one that is not gone first: a name can have been taken over."""
    named = [
        (uid, known)
        for uid, known in state.pods.specs.items()
        if (known.spec.namespace, known.spec.name) == (namespace, name)
    ]
    return max(named, key=lambda one: (not one[1].gone, one[1].seq), default=None)


def subject(state: State, asked: Selector, told: Iterable[SandboxKey] = ()) -> Subject | None:
    """The pod, with its sandbox from the runtime or else from the relay."""
    found = _subject(with_told(state, told), asked)
    if found is None or not found.sandbox_id:
        return found
    return replace(found, by_relay=found.sandbox_id not in state.pods.sandboxes)


def _subject(state: State, asked: Selector) -> Subject | None:
    """The pod; by name the one that was told of last, since a name can have been taken over. None where there is none
    that all of the selector fits."""
    uid, sandbox_id = PodUid(asked.uid), SandboxId(asked.sandbox)
    if asked.sandbox:
        home = state.pods.sandboxes.get(sandbox_id)
        if home is None or home.by_cgroup:
            return None
        uid = PodUid(asked.uid or home.sandbox.pod_uid)
    elif not asked.uid:
        named = pod_named(state, asked.namespace, asked.name)
        homes = [
            (known.seq, known.sandbox.pod_uid)
            for known in state.pods.sandboxes.values()
            if (known.sandbox.namespace, known.sandbox.name) == (asked.namespace, asked.name)
        ]
        if named is None and not homes:
            return None
        uid = named[0] if named is not None else max(homes)[1]
    found = _of(state, uid, sandbox_id or state.pods.sandbox_of.get(uid))
    fits = (
        (found.known is not None or found.sandbox is not None)
        and (found.sandbox is None or found.sandbox.pod_uid == uid)
        and asked.namespace in ("", found.namespace)
        and asked.name in ("", found.name)
    )
    return found if fits else None


def _of(state: State, uid: PodUid, sandbox_id: SandboxId | None) -> Subject:
    known = state.pods.specs.get(uid)
    home = state.pods.sandboxes.get(sandbox_id) if sandbox_id else None
    sandbox = home.sandbox if home is not None else None
    told = known.spec if known is not None else sandbox
    stand_in = home is not None and home.by_cgroup
    return Subject(uid, told.namespace if told else "", told.name if told else "", known, sandbox, stand_in)


def _identity(one: Subject) -> PodIdentity:
    handler = one.sandbox.handler if one.sandbox is not None else ""
    runtime_class = one.known.spec.runtime_class if one.known is not None else ""
    return PodIdentity(one.namespace, one.name, one.uid, one.sandbox_id, handler, runtime_class)


@dataclass(frozen=True, slots=True)
class Around:
    """What the sections need besides the state: the time by the wall clock and, as all that follow, by CLOCK_BOOTTIME;
    when the API server was heard last; what the runtime has reported of the sandbox, and when. 0 is not known."""

    wall_ns: int = 0
    now_ns: int = 0
    heard_ns: int = 0
    report: ReportSandboxRequest | None = None
    reported_ns: int = 0
    no_id: str = ""
    """Why the id of a sandbox is not known of which there is a cgroup."""

    def wall(self, at_ns: int) -> int:
        """A time of CLOCK_BOOTTIME by the wall clock."""
        return self.wall_ns - (self.now_ns - at_ns) if at_ns else 0


Make = Callable[[State, Subject, Around], Section[object]]


def identity(state: State, one: Subject, around: Around) -> Section[PodIdentity]:
    """Which pod it is."""
    found, why = _identity(one), around.no_id if one.stand_in else ""
    if one.known is None:
        whys = "; ".join(filter(None, (NO_SPEC, why)))
        return Section(found, RELAY if one.by_relay else RUNTIME, False, whys)
    section = _by_spec(state, one.known.spec, around, found, why)
    return replace(section, source=f"{section.source}, and {RELAY}") if one.by_relay else section


def containers(state: State, one: Subject, around: Around) -> Section[tuple[PodContainer, ...]]:
    """Its containers, also those that do not exist yet."""
    if one.known is None:
        return Section(None, API, False, NO_SPEC)
    rows = tuple(
        PodContainer(
            *(row.name, row.role.value, row.cpu_m, row.cpu_limit_m, row.memory_request, row.memory_limit), row.declared
        )
        for row in one.known.spec.containers
    )
    return _by_spec(state, one.known.spec, around, rows)


def totals(state: State, one: Subject, around: Around) -> Section[PodTotals]:
    """What its containers request and may use together."""
    if one.known is None:
        return Section(None, API, False, NO_SPEC)
    spec = one.known.spec
    why = ""
    if spec.pod_level and (spec.whole is None or spec.whole.faults):
        why = "the pod has resources as a whole, which these sums do not hold"
    return _by_spec(state, spec, around, sums(spec), why)


def sums(spec: PodSpec) -> PodTotals:
    """The pod's totals, as kubelet makes them: what the pod says of itself as a whole, else its containers' sum."""
    rows, whole = [row for row in spec.containers if row.role is not Role.EPHEMERAL], spec.whole or NO_WHOLE
    cpus = [(row.role, row.cpu_m) for row in rows if row.cpu_m is not None]
    memory = [(row.role, row.memory_request) for row in rows if row.memory_request is not None]
    return PodTotals(
        whole.cpu_m or (containers_need(cpus) if len(cpus) == len(rows) else None),
        whole.cpu_limit_m or containers_need((row.role, row.cpu_limit_m) for row in rows),
        whole.memory_request or (containers_need(memory) if len(memory) == len(rows) else None),
        whole.memory_limit or containers_need((row.role, row.memory_limit) for row in rows),
        bool(whole.cpu_limit_m) or all(row.cpu_limit_m for row in rows),
        bool(whole.memory_limit) or all(row.memory_limit for row in rows),
    )


def overhead(state: State, one: Subject, around: Around) -> Section[PodOverhead]:
    """What its RuntimeClass adds."""
    if one.known is None:
        return Section(None, API, False, NO_SPEC)
    spec = one.known.spec
    return _by_spec(state, spec, around, PodOverhead(spec.overhead_cpu_m, spec.overhead_memory))


def cgroup(state: State, one: Subject, around: Around) -> Section[PodCgroup]:
    """The pod's cgroup."""
    parent = one.sandbox.cgroup_parent if one.sandbox is not None else ""
    if not parent:
        return Section(None, RUNTIME, False, NO_SANDBOX)
    driver = "systemd" if parent.rpartition("/")[2].endswith(".slice") else "cgroupfs"
    value = PodCgroup(parent, driver, state.sandboxes.version)
    return Section(value, RUNTIME, why=_contradicts(state, one, around, _CGROUPS))


def size(state: State, one: Subject, around: Around) -> Section[PodVmSize]:
    """What its VM is given: by what the kernel shows, else by what the runtime has reported."""
    vm = state.sandboxes.vms.get(one.sandbox.id) if one.sandbox is not None else None
    if vm is not None and vm.size is not None:
        value = PodVmSize(vm.size.vcpus, vm.size.memory, vm.size.source)
        why, at = _contradicts(state, one, around, _SIZES), around.wall(vm.reading.at_ns)
        return Section(value, VMS, why=why, observed_at=at)
    report = around.report
    if report is not None and (report.vcpus or report.memory):
        value = PodVmSize(report.vcpus or None, report.memory or None, "reported")
        return Section(value, "ReportSandbox", observed_at=around.wall(around.reported_ns))
    return Section(None, VMS, False, "no VM of it was read; see sandboxes.mode" if one.sandbox else NO_SANDBOX)


def checkpoint(state: State, one: Subject, around: Around) -> Section[PodCheckpoint]:
    """Whether its runtime handler can checkpoint it."""
    handler = state.sandboxes.handlers.get(one.sandbox.handler) if one.sandbox is not None else None
    if handler is None:
        return Section(PodCheckpoint(None), VMS, False, "not known: its handler is none that is known to start VMs")
    return Section(PodCheckpoint(False), VMS, why="its handler starts VMs, into which CRIU cannot see")


def gate(state: State, one: Subject, around: Around) -> Section[PodGate]:
    """Its gate, and the verdict."""
    return pod_gate(state, one.uid, around.wall_ns)


def pod_gate(state: State, uid: PodUid, wall_ns: int) -> Section[PodGate]:
    """The section `gate` of a pod."""
    mode, at_gate, said = state.settings.gate.mode, state.gate.pods.get(uid), state.gate.verdicts.get(uid)
    if mode is Mode.OFF:
        return Section(None, SOURCE, False, "gate.mode is off")
    if at_gate is None and said is None:
        return Section(None, SOURCE, False, "no start of this pod has asked at a gate; it may have none")
    verdict = said.verdict if said is not None else _NO_VERDICT
    found = conditions(state, at_gate.pod, wall_ns) if at_gate is not None else ()
    why = "" if at_gate is not None else "its conditions are known once its start is asked for"
    rows = tuple(GateCondition(one.name, one.open, one.why) for one in found)
    is_open = at_gate is not None and not shut(state, at_gate.pod, wall_ns)
    said_so = verdict.reason, verdict.evidence_digest, verdict.by, verdict.at_ns, verdict.expires_ns
    gate = PodGate(mode.value, is_open, rows, word(state, uid, wall_ns), *said_so)
    return Section(gate, SOURCE, not why, why, wall_ns)


MADE: Mapping[str, Make] = {
    "identity": identity,
    "containers": containers,
    "totals": totals,
    "overhead": overhead,
    "cgroup": cgroup,
    "size": size,
    "gate": gate,
    "checkpoint": checkpoint,
}
"""The sections that are made of the state alone."""


def _by_spec(state: State, spec: PodSpec, around: Around, value: T, why: str = "") -> Section[T]:
    by_api = spec.source is Source.API and state.pods.api_up
    stale = "" if by_api else AWAY
    at = around.wall(around.heard_ns) if by_api else state.pods.stale_since_wall_ns
    return Section(value, spec.source.value, by_api and not why, "; ".join(one for one in (stale, why) if one), at)


# ---- what the runtime has reported, against what the kernel shows

_SIZES, _CGROUPS = ("vCPUs", "bytes of memory", "vCPU threads"), ("VMM process", "cgroups")


def _contradicts(state: State, one: Subject, around: Around, about: tuple[str, ...]) -> str:
    """A sentence for each figure that was reported and that the kernel shows otherwise."""
    vm = state.sandboxes.vms.get(one.sandbox.id) if one.sandbox is not None else None
    said = around.report
    if vm is None or said is None:
        return ""
    seen = vm.reading
    vmms = sorted(dict.fromkeys(task.pid for task in seen.of(TaskRole.VMM, TaskRole.VCPU)))
    threads = sorted(task.tid for task in seen.of(TaskRole.VCPU))
    places = sorted(dict.fromkeys(found.path for found in seen.cgroups))
    tids = sorted(dict.fromkeys(said.vcpu_tids))
    pairs = (
        ("vCPUs", said.vcpus, seen.vm_vcpus, said.vcpus == seen.vm_vcpus),
        ("bytes of memory", said.memory, seen.vm_memory, said.memory == seen.vm_memory),
        ("vCPU threads", tids, threads, tids == threads),
        ("VMM process", said.vmm_pid, vmms, said.vmm_pid in vmms),
        ("cgroups", sorted(said.cgroups), places, all(one in places for one in said.cgroups)),
    )
    return "; ".join(
        f"{what}: the runtime reported {told}, the kernel shows {shown}"
        for what, told, shown, same in pairs
        if what in about and told and shown and not same
    )[:1000]
