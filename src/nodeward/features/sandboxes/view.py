"""Makes the rows of VM sandboxes.

The rows are whole (JSON and metrics have them); `sandbox_words` makes sentences of them. Nothing is decided here. A
figure that is not known is None, and the row says why.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

from nodeward.core.modes import Mode
from nodeward.core.ports import Pace, at_once
from nodeward.core.times import rfc3339
from nodeward.core.vms import Handler, Place, Profile, Task, TaskRole, VmReading
from nodeward.core.workload import PodSpec, Sandbox, SandboxId
from nodeward.features.root import State
from nodeward.features.sandboxes.mode import mode as mode_of
from nodeward.features.sandboxes.recommend import PERCENTILES, percentile, recommend, unaccounted
from nodeward.features.sandboxes.rows import (
    ClassRow,
    DriftRow,
    FitRow,
    HandlerRow,
    Percentiles,
    SandboxesView,
    SandboxRow,
    TaskRow,
)
from nodeward.features.sandboxes.settings import SandboxesSettings
from nodeward.features.sandboxes.state import Vm
from nodeward.features.sandboxes.values import HUGETLB, OTHER_MODE, Fit, Headroom, Measured, Usage, VmSize
from nodeward.features.sandboxes.words import below, drift_sentence, fit_sentence, killed_sentence

ROWS_AT_ONCE = 8
MOST_IDS = 8
"""So many thread ids of a group are told."""
_NS_PER_MS = 1_000_000
_ROLES = tuple(TaskRole)


def sandboxes_view(state: State, now_ns: int, pace: Pace = at_once) -> SandboxesView | None:
    """The sandboxes now, those of known pods first, by namespace and pod; None where nobody looks at them.

    Command lines can be forged: metrics keep the first rows, and no forged one takes the row of a pod."""
    slice_, mode = state.sandboxes, state.settings.sandboxes.mode
    if mode is Mode.OFF:
        return None
    rows = [_row(state, sandbox_id, vm, now_ns) for sandbox_id, vm in pace(slice_.vms.items(), ROWS_AT_ONCE)]
    rows.sort(key=lambda row: (not row.pod, row.namespace, row.pod, row.id))
    counts, profiles = dict[str, int](), state.settings.sandboxes.profiles
    for row in rows:
        counts[row.handler] = counts.get(row.handler, 0) + 1
    together = unaccounted(vm.usage for vm in slice_.vms.values())
    nobody = "no sandbox runs" if not rows else "of no sandbox is it known yet"
    return SandboxesView(
        mode=mode.value,
        version=slice_.version,
        driver=slice_.driver.value if slice_.driver is not None else "",
        rows=tuple(rows),
        handlers=tuple(
            _handler(one, profiles.get(name, one.profile), counts.get(name, 0))
            for name, one in sorted(slice_.handlers.items())
        ),
        classes=tuple(_classes(slice_.measured, rows, state.settings.sandboxes)),
        unaccounted_memory=together.memory,
        unaccounted_cpu_m=together.cpu_m,
        reserved_memory=together.reserved_memory,
        reserved_cpu_m=together.reserved_cpu_m,
        outside=together.sandboxes,
        untold=together.unknown,
        unknown={
            **dict.fromkeys(("unaccounted_memory", "reserved_memory") if together.memory is None else (), nobody),
            **dict.fromkeys(
                ("unaccounted_cpu_m", "reserved_cpu_m") if together.cpu_m is None else (),
                nobody if together.memory is None else "it is not known of every sandbox yet",
            ),
        },
        writes=sum(slice_.written.values()),
        misses=slice_.misses,
    )


# ---- one sandbox


def _row(state: State, sandbox_id: SandboxId, vm: Vm, now_ns: int) -> SandboxRow:
    sandbox, spec = _pod(state, sandbox_id)
    reading, usage, size = vm.reading, vm.usage or Usage(), vm.size or VmSize(None, None, "")
    pod = reading.cgroup(Place.POD)
    handler = _handler_name(state, sandbox)
    unknown = dict(_unknown(vm, usage, size, _why_no_mode(state, handler)))
    return SandboxRow(
        id=str(sandbox_id),
        namespace=sandbox.namespace if sandbox is not None else "",
        pod=sandbox.name if sandbox is not None else "",
        uid=str(sandbox.pod_uid) if sandbox is not None else "",
        runtime_class=spec.runtime_class if spec is not None else "",
        handler=handler,
        engine=reading.namespace,
        profile=vm.profile.value if vm.profile is not None else "",
        vmm=reading.vmm,
        only=vm.mode.only if vm.mode is not None else None,
        only_from=vm.mode.source if vm.mode is not None else "",
        pod_cgroup=pod.path if pod is not None else "",
        sandbox_cgroup=_path(reading, Place.SANDBOX),
        overhead_cgroup=_path(reading, Place.OVERHEAD),
        tasks=tuple(_tasks(vm, now_ns)),
        drifts=tuple(_drifts(vm, now_ns)),
        note=vm.expected.note if vm.expected is not None else "",
        vm_memory=size.memory,
        vm_vcpus=size.vcpus,
        size_from=size.source,
        fit=_fit(vm),
        memory=usage.memory,
        guest_memory=usage.guest,
        guest_used=reading.guest_used,
        vmm_memory=usage.vmm,
        shim_memory=usage.shim,
        virtiofsd_memory=usage.virtiofsd,
        overhead_memory=usage.overhead,
        outside_memory=usage.outside,
        cpu_m=usage.cpu_m,
        vcpu_m=usage.vcpu_m,
        overhead_cpu_m=usage.overhead_cpu_m,
        outside_cpu_m=usage.outside_cpu_m,
        cpu_ns=usage.cpu_ns,
        vcpu_ns=usage.vcpu_ns,
        oom_kills=pod.oom_kills if pod is not None else None,
        declared_memory=spec.overhead_memory if spec is not None else None,
        declared_cpu_m=spec.overhead_cpu_m if spec is not None else None,
        limit_memory=vm.limits[0],
        limit_cpu_m=vm.limits[1],
        limit_now=pod.memory_limit if pod is not None else None,
        limit_cpu_now_m=pod.cpu_limit_m if pod is not None else None,
        faults=(*reading.faults, *((vm.mode.fault,) if vm.mode is not None and vm.mode.fault else ())),
        unknown=unknown,
        age_ms=max(now_ns - reading.at_ns, 0) // _NS_PER_MS,
    )


def _pod(state: State, sandbox_id: SandboxId) -> tuple[Sandbox | None, PodSpec | None]:
    known = state.pods.sandboxes.get(sandbox_id)
    if known is None:
        return None, None
    spec = state.pods.specs.get(known.sandbox.pod_uid)
    return known.sandbox, spec.spec if spec is not None else None


def _handler_name(state: State, sandbox: Sandbox | None) -> str:
    """Where nobody tells: the only one that there is, if there is one."""
    if sandbox is not None and sandbox.handler:
        return sandbox.handler
    every = tuple(state.sandboxes.handlers)
    return every[0] if len(every) == 1 else ""


def _path(reading: VmReading, place: Place) -> str:
    found = reading.cgroup(place)
    return found.path if found is not None else ""


def _tasks(vm: Vm, now_ns: int) -> Iterator[TaskRow]:
    """Its tasks by role and place, in the order of `TaskRole`."""
    groups = dict[tuple[TaskRole, str, str], list[Task]]()
    for task in vm.reading.tasks:
        groups.setdefault((task.role, task.cgroup, task.cpu_cgroup), []).append(task)
    places = dict[TaskRole, int]()
    for role, _, _ in groups:
        places[role] = places.get(role, 0) + 1
    for (role, where, cpu_where), tasks in sorted(groups.items(), key=lambda one: _ROLES.index(one[0][0])):
        since_ns = vm.since_ns.get(role.value) if places[role] == 1 else None
        yield TaskRow(
            role=role.value,
            count=len(tasks),
            where=where,
            cpu_where=cpu_where if cpu_where != where else "",
            expected=vm.expected.of(role) if vm.expected is not None else "",
            since_ms=_ago(now_ns, since_ns),
            ids=tuple(task.tid for task in tasks[:MOST_IDS]),
        )


def _drifts(vm: Vm, now_ns: int) -> Iterator[DriftRow]:
    for one in vm.drifts:
        since_ms = _ago(now_ns, vm.since_ns.get(one.code))
        told = one.code, drift_sentence(one), one.role, one.seen, one.expected, one.count
        yield DriftRow(*told, since_ms, one.code != OTHER_MODE)


def _ago(now_ns: int, since_ns: int | None) -> int | None:
    return max(now_ns - since_ns, 0) // _NS_PER_MS if since_ns else None


def _fit(vm: Vm) -> FitRow:
    headroom = vm.headroom
    if vm.killed is not None and not vm.reading.of(TaskRole.VMM, TaskRole.VCPU):
        known = headroom or Headroom(Fit.UNKNOWN)
        since = rfc3339(vm.killed.wall_ns)
        limit = vm.killed.limit if vm.killed.limit is not None else known.limit
        sentence = killed_sentence(since, vm.killed.limit, below(vm.killed.path, _path(vm.reading, Place.POD)))
        return FitRow(Fit.WAS_KILLED.value, limit, known.vm, killed_since=since, sentence=sentence)
    if headroom is None:
        return FitRow(sentence=fit_sentence(FitRow()))
    row = FitRow(
        headroom.fit.value,
        headroom.limit,
        headroom.vm,
        headroom.overhead,
        headroom.overhead_from,
        headroom.left,
        headroom.killed_at,
        limit_of=headroom.limit_of,
        beside=headroom.beside,
        others=headroom.others,
    )
    of_huge = headroom.limit_of == HUGETLB
    missing = [
        word
        for word, value in (
            ("the pod's limit of huge pages (hugetlb)" if of_huge else "the pod's memory limit", headroom.limit),
            ("the size of its VM", headroom.vm),
            ("its overhead", headroom.overhead),
            ("what the pod's other VMs take", headroom.beside),
        )
        if value is None
    ]
    why = f"{' and '.join(missing)} is not known" if missing else "a limit above it could not be read"
    return replace(row, sentence=fit_sentence(row, why))


def _why_no_mode(state: State, handler: str) -> str:
    if not handler:
        return "its runtime handler is not known, so no configuration says which"
    found = state.sandboxes.handlers.get(handler)
    if found is None:
        return f"no runtime handler {handler} was found in the container runtime's configuration"
    return found.fault or "neither annotation nor configuration nor profile says which"


def _unknown(vm: Vm, usage: Usage, size: VmSize, no_mode: str) -> Iterator[tuple[str, str]]:
    """Why a figure is not known."""
    reading = vm.reading
    no_vmm = "no VMM process was found" if not reading.of(TaskRole.VMM, TaskRole.VCPU) else ""
    no_shim = "no shim process was found" if not reading.of(TaskRole.SHIM) else ""
    pod = reading.cgroup(Place.POD)
    no_pod = "the pod's cgroup was not found" if pod is None else ""
    is_less = pod is not None and None not in (pod.memory, usage.outside, usage.guest)
    elsewhere = "its cgroups have less than its guest RAM: the rest stayed in another one when the VMM moved"
    fault = reading.faults[0] if reading.faults else ""
    once = "CPU use needs two readings"
    reasons = (
        ("only", vm.mode is None, no_mode),
        ("vm_memory", size.memory is None, no_vmm or "neither the VMM nor its configuration says how much"),
        ("vm_vcpus", size.vcpus is None, no_vmm or "neither the VMM nor its configuration says how many"),
        (
            "memory",
            usage.memory is None,
            no_pod or (elsewhere if is_less else fault or "a cgroup's memory could not be read"),
        ),
        ("guest_memory", usage.guest is None, no_vmm or fault or "the VMM's mappings were not read"),
        ("guest_used", reading.guest_used is None, "the shim did not say"),
        ("vmm_memory", usage.vmm is None, no_vmm or fault or "guest RAM could not be told from the VMM's own memory"),
        ("shim_memory", usage.shim is None, no_shim or fault or "the shim's memory could not be read"),
        (
            "virtiofsd_memory",
            usage.virtiofsd is None and bool(reading.of(TaskRole.VIRTIOFSD)),
            fault or "it could not be read",
        ),
        ("overhead_memory", usage.overhead is None, no_vmm or no_shim or fault or "a part of it could not be read"),
        ("outside_memory", usage.outside is None, no_pod or fault or "a cgroup's memory could not be read"),
        ("cpu_m", usage.cpu_m is None, fault or once),
        ("vcpu_m", usage.vcpu_m is None, _no_vcpu(reading) or fault or once),
        ("overhead_cpu_m", usage.overhead_cpu_m is None, _no_vcpu(reading) or fault or once),
    )
    return ((name, why) for name, is_missing, why in reasons if is_missing)


def _no_vcpu(reading: VmReading) -> str:
    return "no thread could be told to be a vCPU's" if not reading.of(TaskRole.VCPU) else ""


# ---- handlers and classes


def _handler(one: Handler, profile: Profile | None, sandboxes: int) -> HandlerRow:
    said = mode_of(one, None, profile)
    configured = {of.name: getattr(one, of.name) for of in fields(HandlerRow) if hasattr(one, of.name)}
    return replace(
        HandlerRow(**configured),
        profile=profile.value if profile is not None else "",
        only=said.only if said is not None else None,
        only_from=said.source if said is not None else "",
        sandboxes=sandboxes,
    )


def _classes(
    every: Mapping[str, Measured], rows: Sequence[SandboxRow], settings: SandboxesSettings
) -> Iterator[ClassRow]:
    """Each RuntimeClass (or handler) that was measured or runs, by name."""
    declared = {class_of(row): row for row in rows if class_of(row)}
    for name in sorted(dict.fromkeys((*every, *declared))):
        measured, row = every.get(name, Measured()), declared.get(name)
        advised = recommend(measured, settings)
        yield ClassRow(
            name=name,
            sandboxes=measured.sandboxes,
            samples=measured.samples,
            memory=_percentiles(measured.memory),
            cpu_m=_percentiles(measured.cpu),
            declared_memory=row.declared_memory if row is not None else None,
            declared_cpu_m=row.declared_cpu_m if row is not None else None,
            recommended_memory=advised.memory,
            recommended_cpu_m=advised.cpu_m,
            why=advised.why,
        )


def class_of(row: SandboxRow) -> str:
    """The class that the overhead is measured for."""
    return row.runtime_class or row.handler


def _percentiles(table: Mapping[int, int]) -> Percentiles | None:
    p50, p95, p99 = (percentile(table, percent) for percent in PERCENTILES)
    return None if p50 is None or p95 is None or p99 is None else Percentiles(p50, p95, p99)
