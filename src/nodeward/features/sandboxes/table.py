"""VM sandboxes as lines for a terminal: tables of sandboxes, handlers and RuntimeClasses, and Kata's option."""

import textwrap
from collections.abc import Callable, Iterator, Sequence

from nodeward.core.quantity import size_text
from nodeward.core.workload import SHORT_ID
from nodeward.features.sandboxes.rows import ClassRow, HandlerRow, Percentiles, SandboxesView, SandboxRow
from nodeward.features.sandboxes.values import ANNOTATION, DEFAULT, DRAGONBALL
from nodeward.features.sandboxes.words import (
    DEFAULTS,
    OPTIONS,
    cpu_text,
    full_name,
    head,
    shown,
    troubles,
    unaccounted_sentence,
)

UNKNOWN = "?"
"""In a table; `nodeward vms NAMESPACE/POD` says why."""
_WIDTH = 100
_LONGEST = 60


def sandboxes(view: SandboxesView) -> Iterator[str]:
    """A line for each sandbox, then what is wrong."""
    yield head(view)
    if not view.rows:
        yield "no VM sandbox runs on this node" if view.version else "nothing has been read yet"
    else:
        heads = ("POD", "HANDLER", "ONLY", "VMM", "VM", "LIMIT", "MEMORY", "OVERHEAD", "CPU", "FIT", "ELSEWHERE")
        yield from table(heads, [_sandbox(row) for row in view.rows])
    if charged := unaccounted_sentence(view):
        yield charged
    yield from troubles(view)


def _sandbox(row: SandboxRow) -> tuple[str, ...]:
    by = f" ({row.only_from if row.only_from in (ANNOTATION, DEFAULT, DRAGONBALL) else 'file'})"
    limit = "none" if row.limit_now == -1 else _or(row.limit_now, size_text)
    return (
        full_name(row) if row.pod else shown(row.id[:SHORT_ID]),
        shown(row.handler) or "-",
        UNKNOWN if row.only is None else f"{str(row.only).lower()}{by}",
        row.vmm or UNKNOWN,
        _or(row.vm_memory, size_text),
        limit,
        _or(row.memory, size_text),
        _or(row.overhead_memory, size_text),
        _or(row.cpu_m, cpu_text),
        row.fit.fit,
        ", ".join(dict.fromkeys(shown(one.role or one.code) for one in row.drifts if one.is_fault)) or "-",
    )


def classes(view: SandboxesView) -> Iterator[str]:
    """The overhead of each RuntimeClass: measured, declared, recommended."""
    if not view.classes:
        yield "no overhead has been measured yet"
        return
    heads = ("CLASS", "SAMPLES", "SANDBOXES", "", "P50", "P95", "P99", "DECLARED", "RECOMMENDED")
    rows = [line for row in view.classes for line in _class(row)]
    yield from table(heads, rows)
    yield from (f"{shown(row.name)}: {shown(row.why)}" for row in view.classes if row.why)
    if charged := unaccounted_sentence(view):
        yield charged


def _class(row: ClassRow) -> Iterator[tuple[str, ...]]:
    for first, word, found, declared, recommended, text in (
        (True, "memory", row.memory, row.declared_memory, row.recommended_memory, size_text),
        (False, "cpu", row.cpu_m, row.declared_cpu_m, row.recommended_cpu_m, cpu_text),
    ):
        start = (shown(row.name), str(row.samples), str(row.sandboxes)) if first else ("", "", "")
        yield (*start, word, *_percentiles(found, text), _or(declared, text), _or(recommended, text))


def _percentiles(found: Percentiles | None, text: Callable[[int], str]) -> tuple[str, ...]:
    return (UNKNOWN,) * 3 if found is None else (text(found.p50), text(found.p95), text(found.p99))


def handlers(view: SandboxesView) -> Iterator[str]:
    """Each runtime handler that starts VMs, and where its configuration is."""
    if not view.handlers:
        yield "no runtime handler of this node is known to start VMs"
        return
    for row in view.handlers:
        yield from _handler(row)


def _handler(row: HandlerRow) -> Iterator[str]:
    hypervisor = f", {shown(row.hypervisor)}" if row.hypervisor else ""
    yield (
        f"{shown(row.name)}: {shown(row.runtime_type) or 'runtime type unknown'}, "
        f"{row.profile or 'profile unknown (set sandboxes.profiles)'}{hypervisor}, {row.sandboxes} sandbox(es)"
    )
    yield f"  configuration {shown(row.config) or 'not found'}"
    yield from (f"  drop-in {shown(path)}" for path in row.drop_ins)
    only = UNKNOWN if row.only is None else str(row.only).lower()
    by = f", by {shown(row.only_from)}" if row.only_from else ""
    yield f"  sandbox_cgroup_only {only}{by}; static_sandbox_resource_mgmt {_flag(row.static)}"
    yield (
        f"  VM by default {_or(row.default_vcpus_m, cpu_text)} CPU, {_or(row.default_memory, size_text)}; added to "
        f"what containers ask for {_or(row.overhead_vcpus_m, cpu_text)} CPU, {_or(row.overhead_memory, size_text)}"
    )
    yield f"  annotations of the hypervisor that Kata obeys: {_list(row.enable_annotations)}"
    yield f"  annotations that the container runtime hands on: {_list(row.passes)}"
    if row.fault:
        yield f"  fault: {shown(row.fault)}"


def options() -> Iterator[str]:
    """Kata's option `sandbox_cgroup_only`: each value with its status, places, pros and cons; whose default it is."""
    yield "Kata's option sandbox_cgroup_only ([runtime] in its configuration.toml):"
    for one in OPTIONS:
        yield f"{one.value} ({one.status})"
        for word, text in (
            ("default", one.default),
            ("places", one.where),
            ("pros", one.pros),
            ("cons", one.cons),
            ("remedy", one.mend),
        ):
            yield from textwrap.wrap(text, _WIDTH, initial_indent=f"  {word + ':':<9}", subsequent_indent=" " * 11)
    yield ""
    heads = ("RUNTIME", "KATA", "AS SHIPPED", "WHERE THE FILE LACKS THE KEY")
    yield from table(heads, [(one.runtime, one.versions, one.shipped, one.absent) for one in DEFAULTS])


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their longest cell; a longer cell than `_LONGEST` is cut."""
    cut = [[_cut(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(len(row[place]) for row in cut) for place in range(len(heads))]
    for row in cut:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _cut(cell: str) -> str:
    return cell if len(cell) <= _LONGEST else f"{cell[: _LONGEST - 1]}…"


def _or(value: int | None, text: Callable[[int], str]) -> str:
    return UNKNOWN if value is None else text(value)


def _flag(value: bool | None) -> str:
    return UNKNOWN if value is None else str(value).lower()


def _list(found: Sequence[str]) -> str:
    return ", ".join(shown(one) for one in found) or "none"
