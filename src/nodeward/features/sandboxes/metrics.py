"""VM sandboxes as metric series: which values a picture of them has, family by family.

A value that is not known has no series, and never 0. A sandbox is bounded to a handful of series by what is named here,
and there are MOST_SANDBOXES at most. Names are cut and cleaned by whoever makes families of this.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from nodeward.features.sandboxes.rows import ClassRow, HandlerRow, Percentiles, SandboxesView, SandboxRow
from nodeward.host.pace import paced
from nodeward.people.metrics import families as f
from nodeward.people.metrics.families import Family

MOST_SANDBOXES = 1000
MOST_CLASSES = 100
"""RuntimeClasses, and handlers."""
_NS, _MILLI, _MS = 1e9, 1e3, 1e3
Labels = dict[str, str]
Series = tuple[Family, Sequence[tuple[Labels, float]]]

OF_SANDBOX: dict[Family, Callable[[SandboxRow], float | None]] = {
    f.SANDBOXES_CHARGED: lambda row: row.memory,
    f.SANDBOXES_OUTSIDE: lambda row: row.outside_memory,
    f.SANDBOXES_OVERHEAD: lambda row: row.overhead_memory,
    f.SANDBOXES_GUEST_USED: lambda row: row.guest_used,
    f.SANDBOXES_CPU: lambda row: _of(row.cpu_ns, _NS),
    f.SANDBOXES_VCPU: lambda row: _of(row.vcpu_ns, _NS),
    f.SANDBOXES_OVERHEAD_CPU: lambda row: _of(row.overhead_cpu_m, _MILLI),
    f.SANDBOXES_DECLARED: lambda row: row.declared_memory,
    f.SANDBOXES_DECLARED_CPU: lambda row: _of(row.declared_cpu_m, _MILLI),
    f.SANDBOXES_VM: lambda row: row.vm_memory,
    f.SANDBOXES_VCPUS: lambda row: row.vm_vcpus,
    f.SANDBOXES_LIMIT: lambda row: row.limit_now if row.limit_now is not None and row.limit_now >= 0 else None,
    f.SANDBOXES_HEADROOM: lambda row: row.fit.left,
    f.SANDBOXES_KILLED_AT: lambda row: row.fit.killed_at,
    f.SANDBOXES_OOM: lambda row: row.oom_kills,
    f.SANDBOXES_FAULTS: lambda row: len(row.faults),
    f.SANDBOXES_AGE: lambda row: _of(row.age_ms, _MS),
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
    f.SANDBOXES_CLASS_SAMPLES: lambda row: row.samples,
    f.SANDBOXES_CLASS_DECLARED: lambda row: row.declared_memory,
    f.SANDBOXES_CLASS_DECLARED_CPU: lambda row: _of(row.declared_cpu_m, _MILLI),
    f.SANDBOXES_CLASS_RECOMMENDED: lambda row: row.recommended_memory,
    f.SANDBOXES_CLASS_RECOMMENDED_CPU: lambda row: _of(row.recommended_cpu_m, _MILLI),
}

OF_NODE: dict[Family, Callable[[SandboxesView], float | None]] = {
    f.SANDBOXES_UNACCOUNTED: lambda view: view.unaccounted_memory,
    f.SANDBOXES_UNACCOUNTED_CPU: lambda view: _of(view.unaccounted_cpu_m, _MILLI),
    f.SANDBOXES_RESERVED: lambda view: view.reserved_memory,
    f.SANDBOXES_RESERVED_CPU: lambda view: _of(view.reserved_cpu_m, _MILLI),
    f.SANDBOXES_WRITES: lambda view: view.writes,
    f.SANDBOXES_MISSES: lambda view: len(view.misses),
}


def series(view: SandboxesView, clean: Callable[[str], str]) -> Iterator[Series]:
    """Each family with its series. `clean` makes a label's value of a name; of two sandboxes whose names are the same
    then, the last is shown."""
    told = {"mode": view.mode, "cgroup_version": str(view.version or ""), "driver": view.driver}
    yield f.SANDBOXES_MODE, [(told, 1)]
    rows = {clean(row.id): row for row in paced(list(islice(view.rows, MOST_SANDBOXES)), 64)}
    yield f.SANDBOXES_LEFT_OUT, [({}, len(view.rows) - len(rows))]
    yield from _sandboxes([(_names(row, clean), row) for row in paced(list(rows.values()), 64)], clean)
    yield from _classes(view.classes[:MOST_CLASSES], clean)
    yield from _handlers(view.handlers[:MOST_CLASSES], clean)
    for family, value in OF_NODE.items():
        found = value(view)
        yield family, [] if found is None else [({}, found)]


def _sandboxes(shown: list[tuple[Labels, SandboxRow]], clean: Callable[[str], str]) -> Iterator[Series]:
    yield f.SANDBOXES_INFO, [({**known, **_what(row, clean)}, 1) for known, row in paced(shown, 64)]
    for family, value in OF_SANDBOX.items():
        yield family, [(known, number) for known, row in paced(shown, 64) if (number := value(row)) is not None]
    parts = [({**known, "part": part}, value(row)) for known, row in paced(shown, 64) for part, value in PARTS.items()]
    yield f.SANDBOXES_MEMORY, [(labels, number) for labels, number in parts if number is not None]
    yield f.SANDBOXES_FIT, [({**known, "fit": clean(row.fit.fit)}, 1) for known, row in paced(shown, 64)]
    drifts = [(known, Counter(clean(one.code) for one in row.drifts)) for known, row in paced(shown, 64)]
    told = [({**known, "code": code}, count) for known, codes in drifts for code, count in codes.items()]
    yield f.SANDBOXES_DRIFTS, told


def _names(row: SandboxRow, clean: Callable[[str], str]) -> Labels:
    return {"namespace": clean(row.namespace), "pod": clean(row.pod), "sandbox": clean(row.id)}


def _what(row: SandboxRow, clean: Callable[[str], str]) -> Labels:
    return {
        "level": "pod" if row.pod else "container",
        "runtime_class": clean(row.runtime_class),
        "handler": clean(row.handler),
        "profile": row.profile,
        "vmm": clean(row.vmm),
        "only": _word(row.only),
        "only_from": clean(row.only_from),
    }


def _classes(rows: Sequence[ClassRow], clean: Callable[[str], str]) -> Iterator[Series]:
    known = [({"class": name}, row) for name, row in {clean(row.name): row for row in rows}.items()]
    for family, value in OF_CLASS.items():
        yield family, [(labels, number) for labels, row in known if (number := value(row)) is not None]
    yield f.SANDBOXES_CLASS_MEMORY, [one for labels, row in known for one in _percentiles(labels, row.memory, 1)]
    yield f.SANDBOXES_CLASS_CPU, [one for labels, row in known for one in _percentiles(labels, row.cpu_m, _MILLI)]


def _percentiles(labels: Labels, found: Percentiles | None, unit: float) -> Iterator[tuple[Labels, float]]:
    if found is not None:
        for name, value in (("50", found.p50), ("95", found.p95), ("99", found.p99)):
            yield {**labels, "percentile": name}, value / unit


def _handlers(rows: Sequence[HandlerRow], clean: Callable[[str], str]) -> Iterator[Series]:
    known = [({"handler": name}, row) for name, row in {clean(row.name): row for row in rows}.items()]
    yield f.SANDBOXES_HANDLER, [({**at, **_configured(row, clean)}, 1) for at, row in known]
    yield f.SANDBOXES_UNREAD, [(at, bool(row.fault)) for at, row in known]


def _configured(row: HandlerRow, clean: Callable[[str], str]) -> Labels:
    return {"profile": row.profile, "hypervisor": clean(row.hypervisor), "only": _word(row.only)}


def _word(said: bool | None) -> str:
    return "" if said is None else str(said).lower()


def _of(amount: int | None, unit: float) -> float | None:
    return None if amount is None else amount / unit
