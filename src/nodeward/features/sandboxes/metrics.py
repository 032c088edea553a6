"""VM sandboxes as metric series: which values a picture of them has, family by family.

A value that is not known has no series, and never 0. A sandbox is bounded to a handful of series by what is named here,
and there are MOST_SANDBOXES at most. Names are cut and cleaned by whoever makes families of this.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from nodeward.core.ports import Pace
from nodeward.core.shown import Clean, Family, Labels, Series, counter, gauge
from nodeward.features.sandboxes.rows import ClassRow, HandlerRow, Percentiles, SandboxesView, SandboxRow

SANDBOX_LABELS = ("namespace", "pod", "sandbox")
MODE = gauge(
    "nodeward_sandboxes_mode_info",
    ("mode", "cgroup_version", "driver"),
    "1, with the mode, the cgroup version and the cgroup driver.",
)
INFO = gauge(
    "nodeward_sandboxes_sandbox_info",
    (*SANDBOX_LABELS, "level", "runtime_class", "handler", "profile", "vmm", "only", "only_from"),
    "1 for each VM sandbox, with what it is.",
)
MEMORY = gauge("nodeward_sandboxes_memory_bytes", (*SANDBOX_LABELS, "part"), "Memory on the host, by part.")
CHARGED = gauge(
    "nodeward_sandboxes_charged_memory_bytes",
    SANDBOX_LABELS,
    "Memory charged for the sandbox, overhead included, inside and outside the pod's cgroup.",
)
OUTSIDE = gauge(
    "nodeward_sandboxes_outside_memory_bytes", SANDBOX_LABELS, "The part of it charged outside the pod's cgroup."
)
OVERHEAD = gauge(
    "nodeward_sandboxes_overhead_memory_bytes", SANDBOX_LABELS, "VMM without guest RAM, shim and virtiofsd."
)
GUEST_USED = gauge("nodeward_sandboxes_guest_used_bytes", SANDBOX_LABELS, "Memory in use, as the guest reports it.")
CPU = counter("nodeward_sandboxes_cpu_seconds_total", SANDBOX_LABELS, "CPU time, overhead included.")
VCPU = counter("nodeward_sandboxes_vcpu_seconds_total", SANDBOX_LABELS, "CPU time of the vCPU threads.")
OVERHEAD_CPU = gauge(
    "nodeward_sandboxes_overhead_cpu_cores", SANDBOX_LABELS, "CPUs in use now by all but the vCPU threads."
)
DECLARED = gauge(
    "nodeward_sandboxes_declared_memory_bytes", SANDBOX_LABELS, "Memory overhead that the pod declares (podFixed)."
)
DECLARED_CPU = gauge(
    "nodeward_sandboxes_declared_cpu_cores", SANDBOX_LABELS, "CPU overhead that the pod declares (podFixed)."
)
VM = gauge("nodeward_sandboxes_vm_memory_bytes", SANDBOX_LABELS, "Memory of the VM.")
VCPUS = gauge("nodeward_sandboxes_vm_vcpus", SANDBOX_LABELS, "vCPUs of the VM.")
LIMIT = gauge("nodeward_sandboxes_limit_bytes", SANDBOX_LABELS, "Memory limit of the pod's cgroup. Absent for none.")
HEADROOM = gauge(
    "nodeward_sandboxes_headroom_bytes",
    SANDBOX_LABELS,
    "Limit less VM and overhead; below 0 the kernel kills a VM that fills up.",
)
KILLED_AT = gauge(
    "nodeward_sandboxes_killed_at_bytes",
    SANDBOX_LABELS,
    "Guest memory in use at which the kernel kills the VM. Absent if it cannot.",
)
FIT = gauge(
    "nodeward_sandboxes_fit",
    (*SANDBOX_LABELS, "fit"),
    "1 for the verdict on whether the pod's limit has room for its VM.",
)
DRIFTS = gauge(
    "nodeward_sandboxes_drifts", (*SANDBOX_LABELS, "code"), "Things not where they should be. Absent for none."
)
OOM = counter("nodeward_sandboxes_oom_kills_total", SANDBOX_LABELS, "OOM kills in the pod's cgroup.")
FAULTS = gauge(
    "nodeward_sandboxes_read_faults", SANDBOX_LABELS, "Things that could not be read or contradict each other."
)
AGE = gauge("nodeward_sandboxes_sample_age_seconds", SANDBOX_LABELS, "Time since the sandbox was last read.")
CLASS_MEMORY = gauge(
    "nodeward_sandboxes_class_overhead_memory_bytes", ("class", "percentile"), "Measured memory overhead."
)
CLASS_CPU = gauge("nodeward_sandboxes_class_overhead_cpu_cores", ("class", "percentile"), "Measured CPU overhead.")
CLASS_SAMPLES = gauge("nodeward_sandboxes_class_samples", ("class",), "Samples behind these figures.")
CLASS_DECLARED = gauge(
    "nodeward_sandboxes_class_declared_memory_bytes", ("class",), "podFixed memory of a pod of the class."
)
CLASS_DECLARED_CPU = gauge(
    "nodeward_sandboxes_class_declared_cpu_cores", ("class",), "podFixed CPU of a pod of the class."
)
CLASS_RECOMMENDED = gauge(
    "nodeward_sandboxes_class_recommended_memory_bytes",
    ("class",),
    "Recommended podFixed memory. Absent until there are enough samples.",
)
CLASS_RECOMMENDED_CPU = gauge(
    "nodeward_sandboxes_class_recommended_cpu_cores",
    ("class",),
    "Recommended podFixed CPU. Absent until there are enough samples.",
)
UNACCOUNTED = gauge(
    "nodeward_sandboxes_unaccounted_memory_bytes", (), "Memory of sandboxes charged to no pod's cgroup."
)
UNACCOUNTED_CPU = gauge(
    "nodeward_sandboxes_unaccounted_cpu_cores", (), "CPUs in use now by sandboxes outside pods' cgroups."
)
RESERVED = gauge(
    "nodeward_sandboxes_system_reserved_memory_bytes", (), "kubelet's system-reserved memory that would cover it."
)
RESERVED_CPU = gauge(
    "nodeward_sandboxes_system_reserved_cpu_cores", (), "kubelet's system-reserved CPU that would cover it."
)
HANDLER = gauge(
    "nodeward_sandboxes_handler_info",
    ("handler", "profile", "hypervisor", "only"),
    "1 for each runtime handler that starts VMs.",
)
UNREAD = gauge(
    "nodeward_sandboxes_handler_unread", ("handler",), "1 if the handler's configuration could not be read, else 0."
)
WRITES = counter("nodeward_sandboxes_limit_writes_total", (), "Pod limits that the daemon has set.")
MISSES = gauge("nodeward_sandboxes_limit_misses", (), "Pod limits that it could not set.")
LEFT_OUT = gauge("nodeward_sandboxes_left_out", (), "VM sandboxes not shown, beyond the most.")
FAMILIES = tuple(value for value in list(globals().values()) if isinstance(value, Family))

MOST_SANDBOXES = 1000
MOST_CLASSES = 100
"""RuntimeClasses, and handlers."""
_NS, _MILLI, _MS = 1e9, 1e3, 1e3

OF_SANDBOX: dict[Family, Callable[[SandboxRow], float | None]] = {
    CHARGED: lambda row: row.memory,
    OUTSIDE: lambda row: row.outside_memory,
    OVERHEAD: lambda row: row.overhead_memory,
    GUEST_USED: lambda row: row.guest_used,
    CPU: lambda row: _of(row.cpu_ns, _NS),
    VCPU: lambda row: _of(row.vcpu_ns, _NS),
    OVERHEAD_CPU: lambda row: _of(row.overhead_cpu_m, _MILLI),
    DECLARED: lambda row: row.declared_memory,
    DECLARED_CPU: lambda row: _of(row.declared_cpu_m, _MILLI),
    VM: lambda row: row.vm_memory,
    VCPUS: lambda row: row.vm_vcpus,
    LIMIT: lambda row: row.limit_now if row.limit_now is not None and row.limit_now >= 0 else None,
    HEADROOM: lambda row: row.fit.left,
    KILLED_AT: lambda row: row.fit.killed_at,
    OOM: lambda row: row.oom_kills,
    FAULTS: lambda row: len(row.faults),
    AGE: lambda row: _of(row.age_ms, _MS),
}
"""What is known of a sandbox, by its family."""

PARTS: dict[str, Callable[[SandboxRow], int | None]] = {
    "guest": lambda row: row.guest_memory,
    "vmm": lambda row: row.vmm_memory,
    "shim": lambda row: row.shim_memory,
    "virtiofsd": lambda row: row.virtiofsd_memory,
}
"""Memory, by parts of which none is in another."""

OF_CLASS: dict[Family, Callable[[ClassRow], float | None]] = {
    CLASS_SAMPLES: lambda row: row.samples,
    CLASS_DECLARED: lambda row: row.declared_memory,
    CLASS_DECLARED_CPU: lambda row: _of(row.declared_cpu_m, _MILLI),
    CLASS_RECOMMENDED: lambda row: row.recommended_memory,
    CLASS_RECOMMENDED_CPU: lambda row: _of(row.recommended_cpu_m, _MILLI),
}

OF_NODE: dict[Family, Callable[[SandboxesView], float | None]] = {
    UNACCOUNTED: lambda view: view.unaccounted_memory,
    UNACCOUNTED_CPU: lambda view: _of(view.unaccounted_cpu_m, _MILLI),
    RESERVED: lambda view: view.reserved_memory,
    RESERVED_CPU: lambda view: _of(view.reserved_cpu_m, _MILLI),
    WRITES: lambda view: view.writes,
    MISSES: lambda view: len(view.misses),
}


def series(view: SandboxesView, clean: Clean, paced: Pace) -> Iterator[Series]:
    """Each family with its series. `clean` makes a label's value of a name; of two sandboxes whose names are the same
    then, the last is shown."""
    told = {"mode": view.mode, "cgroup_version": str(view.version or ""), "driver": view.driver}
    yield MODE, [(told, 1)]
    rows = {clean(row.id): row for row in paced(list(islice(view.rows, MOST_SANDBOXES)), 64)}
    yield LEFT_OUT, [({}, len(view.rows) - len(rows))]
    yield from _sandboxes([(_names(row, clean), row) for row in paced(list(rows.values()), 64)], clean, paced)
    yield from _classes(view.classes[:MOST_CLASSES], clean)
    yield from _handlers(view.handlers[:MOST_CLASSES], clean)
    for family, value in OF_NODE.items():
        found = value(view)
        yield family, [] if found is None else [({}, found)]


def _sandboxes(shown: list[tuple[Labels, SandboxRow]], clean: Clean, paced: Pace) -> Iterator[Series]:
    yield INFO, [({**known, **_what(row, clean)}, 1) for known, row in paced(shown, 64)]
    for family, value in OF_SANDBOX.items():
        yield family, [(known, number) for known, row in paced(shown, 64) if (number := value(row)) is not None]
    parts = [({**known, "part": part}, value(row)) for known, row in paced(shown, 64) for part, value in PARTS.items()]
    yield MEMORY, [(labels, number) for labels, number in parts if number is not None]
    yield FIT, [({**known, "fit": clean(row.fit.fit)}, 1) for known, row in paced(shown, 64)]
    drifts = [(known, Counter(clean(one.code) for one in row.drifts)) for known, row in paced(shown, 64)]
    told = [({**known, "code": code}, count) for known, codes in drifts for code, count in codes.items()]
    yield DRIFTS, told


def _names(row: SandboxRow, clean: Clean) -> Labels:
    return {"namespace": clean(row.namespace), "pod": clean(row.pod), "sandbox": clean(row.id)}


def _what(row: SandboxRow, clean: Clean) -> Labels:
    return {
        "level": "pod" if row.pod else "container",
        "runtime_class": clean(row.runtime_class),
        "handler": clean(row.handler),
        "profile": row.profile,
        "vmm": clean(row.vmm),
        "only": _word(row.only),
        "only_from": clean(row.only_from),
    }


def _classes(rows: Sequence[ClassRow], clean: Clean) -> Iterator[Series]:
    known = [({"class": name}, row) for name, row in {clean(row.name): row for row in rows}.items()]
    for family, value in OF_CLASS.items():
        yield family, [(labels, number) for labels, row in known if (number := value(row)) is not None]
    yield CLASS_MEMORY, [one for labels, row in known for one in _percentiles(labels, row.memory, 1)]
    yield CLASS_CPU, [one for labels, row in known for one in _percentiles(labels, row.cpu_m, _MILLI)]


def _percentiles(labels: Labels, found: Percentiles | None, unit: float) -> Iterator[tuple[Labels, float]]:
    if found is not None:
        for name, value in (("50", found.p50), ("95", found.p95), ("99", found.p99)):
            yield {**labels, "percentile": name}, value / unit


def _handlers(rows: Sequence[HandlerRow], clean: Clean) -> Iterator[Series]:
    known = [({"handler": name}, row) for name, row in {clean(row.name): row for row in rows}.items()]
    yield HANDLER, [({**at, **_configured(row, clean)}, 1) for at, row in known]
    yield UNREAD, [(at, bool(row.fault)) for at, row in known]


def _configured(row: HandlerRow, clean: Clean) -> Labels:
    return {"profile": row.profile, "hypervisor": clean(row.hypervisor), "only": _word(row.only)}


def _word(said: bool | None) -> str:
    return "" if said is None else str(said).lower()


def _of(amount: int | None, unit: float) -> float | None:
    return None if amount is None else amount / unit
