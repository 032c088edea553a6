"""VM sandboxes in sentences: Kata's option, who chose it, the arithmetic of a pod's limit, what is in the wrong place.

What others chose (names, paths) is made printable here. A code that is not here is told as it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodeward.core.annotations import KATA_ONLY
from nodeward.core.quantity import size_text
from nodeward.core.text import printable
from nodeward.core.vms import UNLIMITED
from nodeward.core.workload import SHORT_ID
from nodeward.features.sandboxes import values
from nodeward.features.sandboxes.rows import DriftRow, FitRow, SandboxesView, SandboxRow
from nodeward.features.sandboxes.values import (
    ELSEWHERE,
    LITERAL_SCOPE,
    OTHER_MODE,
    OUTSIDE_POD,
    RUNTIME_SERVICE,
    SANDBOX_LIMIT,
    SANDBOXED_POD_CODE,
    Drift,
    Fit,
)

MOST_TEXT = 300
"""So many characters of a path or name are shown."""
LEAST_ID = 4
"""Fewer characters of an id mean no sandbox."""
POD = "pod"
"""Stands for the pod's cgroup in paths below it."""


# ---- Kata's option


@dataclass(frozen=True, slots=True)
class Option:
    """One value of Kata's option `sandbox_cgroup_only`."""

    value: str
    default: str
    status: str
    where: str
    pros: str
    cons: str
    mend: str


@dataclass(frozen=True, slots=True)
class Default:
    """The option's value in one runtime if no file sets it."""

    runtime: str
    versions: str
    shipped: str
    """In the configuration file that ships."""
    absent: str
    """Where that file lacks the key."""


DEFAULTS = (
    Default("Kata Go", "3.x to 4.1", "false", "false"),
    Default("Kata Go, its NVIDIA configurations", "4.1", "true", "false"),
    Default("Kata's runtime-rs", "4.0, 4.1", "true", "false"),
    Default("Kata's runtime-rs with Dragonball", "4.0, 4.1", "true, whatever is configured", "true"),
)
"""As read in the sources of Kata 4.1; of a later version nothing is known."""
OPTIONS = (
    Option(
        value="false",
        default="Kata Go",
        status="legacy",
        where="The shim and virtiofsd are outside the pod. Of the VMM, its vCPU threads are in the pod on cgroup v1 "
        "with cgroupfs; else the whole VMM is",
        pros="The pod's limit needs no room for the VMM, the shim and virtiofsd",
        cons="No pod is charged with what is outside, and no limit holds it: the node pays. On v1 that is all memory "
        "of the VM. On v2, memory that was charged before the VMM moved stays outside",
        mend="Keep part of the node free for it (kubelet's system-reserved), or set the option to true",
    ),
    Option(
        value="true",
        default="Kata's runtime-rs",
        status="recommended",
        where="Everything of the sandbox is in the pod",
        pros="All memory and CPU of the sandbox is counted in the pod and held by the pod's limit",
        cons="The pod's limit must have room for the overhead (RuntimeClass overhead.podFixed). With too little, the "
        "kernel kills the VM",
        mend="Set podFixed to the recommended overhead (nodeward vms --classes)",
    ),
)


def mode_sentence(row: SandboxRow) -> str:
    """Which value holds for a sandbox, and who said so."""
    if row.only is None:
        return f"sandbox_cgroup_only unknown: {row.unknown.get('only', 'nothing says which')}"
    value = str(row.only).lower()
    match row.only_from:
        case values.ANNOTATION:
            return f"sandbox_cgroup_only {value}, by the pod's annotation {KATA_ONLY}"
        case values.DEFAULT:
            by = f"{row.profile}'s default" if row.profile else "the runtime's default"
            return f"sandbox_cgroup_only {value}, by {by}: its configuration does not say"
        case values.DRAGONBALL:
            return f"sandbox_cgroup_only {value}, by Dragonball, which is a part of the shim"
        case _:
            return f"sandbox_cgroup_only {value}, by {shown(row.only_from)}"


# ---- amounts


def shown(text: str) -> str:
    """What others chose, in a line for people."""
    return printable(text, MOST_TEXT)


def cpu_text(milli: int) -> str:
    """Thousandths of a CPU, as Kubernetes writes them."""
    return f"{milli}m"


def or_unknown(row: SandboxRow | SandboxesView, name: str, text: str | None) -> str:
    """The text; where it is None, why the field `name` is not known."""
    return f"unknown: {shown(row.unknown.get(name, 'not read yet'))}" if text is None else text


# ---- the pod's limit against its VM


def fit_sentence(fit: FitRow, why: str = "") -> str:
    """The arithmetic and the verdict; `why` is what is missing where there is no verdict."""
    if fit.fit == Fit.UNLIMITED.value:
        beside = ", nor one of huge pages, on which its VM is" if fit.limit_of else ""
        return f"unlimited: the pod's cgroup has no memory limit{beside}"
    if fit.fit == Fit.OUTSIDE.value:
        vm = f" ({size_text(fit.vm)})" if fit.vm is not None else ""
        return f"outside: the VM's memory{vm} is not charged to the pod, so the pod's limit does not hold it"
    if fit.fit == Fit.UNKNOWN.value or fit.limit is None or fit.vm is None or fit.overhead is None or fit.left is None:
        return f"unknown: {shown(why or 'the figures are not read yet')}"
    by = f" ({fit.overhead_from})" if fit.overhead_from else ""
    vm, overhead = f"VM {size_text(fit.vm)}", f"overhead {size_text(fit.overhead)}{by}"
    match fit.limit_of:
        case values.HUGETLB:
            limit, parts = f"limit of huge pages {size_text(fit.limit)}", [vm]
        case values.MEMORY:
            limit, parts = f"limit {size_text(fit.limit)}, with the VM on huge pages,", [overhead]
        case _:
            limit, parts = f"limit {size_text(fit.limit)}", [vm, overhead]
    if fit.beside:
        parts.append(f"{size_text(fit.beside)} of {_others(fit)} in the same pod")
    if fit.left >= 0:
        return f"{' - '.join([limit, *parts])} = {size_text(fit.left)} left: {fit.fit}"
    too_much = f"{' + '.join(parts)} exceed{'s' * (len(parts) == 1)} the {limit} by {size_text(-fit.left)}"
    if fit.fit == Fit.KILLED.value and fit.killed_at is not None:
        return f"{too_much}: will be killed at {size_text(max(fit.killed_at, 0))} of guest memory"
    if fit.fit == Fit.KILLED.value:
        return f"{too_much}: will be killed"
    return f"{too_much} if this overhead, which is not measured yet, is right: {fit.fit}"


def full_name(row: SandboxRow) -> str:
    """NAMESPACE/POD, with the sandbox's id where the pod has another VM; else the id."""
    return f"{shown(row.name)} ({shown(row.id[:SHORT_ID])})" if row.pod and row.fit.others else shown(row.name)


def _others(fit: FitRow) -> str:
    names = ", ".join(shown(one[:SHORT_ID]) for one in fit.others)
    return f"the VM{'s' if len(fit.others) > 1 else ''} of {names}"


def killed_sentence(since: str, limit: int | None, where: str) -> str:
    """When the kernel ended the VM, and by which limit, as far as that is known."""
    when = f"at {since}" if since else "before Nodeward first read it"
    if limit is None:
        return f"killed {when} for memory: by a limit that was not seen, above the pod or the node's own"
    return f"killed {when} for memory: the limit of {'its pod' if where == POD else where} is {size_text(limit)}"


# ---- what is in the wrong place

_DRIFTS: Mapping[str, str] = {
    OUTSIDE_POD: "{what} outside the pod, in {seen}, so that no limit of the pod holds the VM; {right}",
    LITERAL_SCOPE: "{what} in {seen}, a folder named as a systemd scope is asked for; it is outside the pod. "
    "Kata Go makes it with the systemd driver where sandbox_cgroup_only is false: set that to true",
    SANDBOXED_POD_CODE: "{what} in {seen}, outside the pod: Kata's runtime-rs found no OCI spec of the "
    "sandbox; {right}",
    RUNTIME_SERVICE: "{what} in {seen}, the container runtime's own cgroup; {right}",
    ELSEWHERE: "{what} in {seen}; {right}",
    OTHER_MODE: "it was started under the other mode: it is in {seen}, and its configuration now means "
    "{expected}, from the pod's next start on",
    SANDBOX_LIMIT: "the sandbox's cgroup {seen} has a limit of its own beside the pod's",
}


def drift_sentence(one: Drift) -> str:
    """Where a thing is, and where it should be."""
    what = f"{one.role} ({one.count})" if one.count > 1 else one.role
    template = _DRIFTS.get(one.code, "{code}: {what} in {seen}; {right}")
    return template.format(
        code=shown(one.code),
        what=shown(what),
        seen=shown(one.seen) or "an unknown place",
        expected=shown(one.expected),
        right=f"it should be in {shown(one.expected)}" if one.expected else "where it should be is not known",
    )


# ---- for explain, status


def head(view: SandboxesView) -> str:
    """The node's VM sandboxes in one line."""
    verdicts = dict[str, int]()
    for row in view.rows:
        verdicts[row.fit.fit] = verdicts.get(row.fit.fit, 0) + 1
    counts = ", ".join(f"{count} {fit}" for fit, count in sorted(verdicts.items()))
    drifting = sum(map(_is_faulty, view.rows))
    drifts = f" | {drifting} with drift" if drifting else ""
    return f"sandboxes {view.mode} | {len(view.rows)} VM sandbox(es){f': {counts}' if counts else ''}{drifts}"


def _is_faulty(row: SandboxRow) -> bool:
    return any(one.is_fault for one in row.drifts)


def unaccounted_sentence(view: SandboxesView) -> str:
    """What no pod is charged with, and what would cover it; empty where that is nothing."""
    untold = f"not known of {view.untold} sandbox(es)" if view.untold else ""
    if not view.outside:
        return f"what is charged to no pod is {untold}" if untold else ""
    memory, cpu, reserved_memory, reserved_cpu = (
        or_unknown(view, name, None if value is None else text(value))
        for name, value, text in (
            ("unaccounted_memory", view.unaccounted_memory, size_text),
            ("unaccounted_cpu_m", view.unaccounted_cpu_m, cpu_text),
            ("reserved_memory", view.reserved_memory, size_text),
            ("reserved_cpu_m", view.reserved_cpu_m, cpu_text),
        )
    )
    return (
        f"charged to no pod: memory {memory}, CPU {cpu}; to cover it, raise kubelet's system-reserved by memory "
        f"{reserved_memory}, CPU {reserved_cpu}"
        f"{f'; {untold}, which are left out' if untold else ''}"
        f"{'; processes in a wrong place are in it: mend that first' if any(map(_is_faulty, view.rows)) else ''}"
    )


def troubles(view: SandboxesView) -> Iterator[str]:
    """What somebody should know of, a sentence each."""
    for row in view.rows:
        if row.fit.fit in (Fit.WAS_KILLED.value, Fit.KILLED.value):
            yield f"{full_name(row)}: {row.fit.sentence}"
    for row in view.rows:
        if row.oom_kills and row.fit.fit != Fit.WAS_KILLED.value:
            yield f"{full_name(row)}: {_kills(row.oom_kills)}"
    for row in view.rows:
        yield from (f"{full_name(row)}: {sentence}" for sentence in _drifting(row))
    for row in view.rows:
        for fault in row.faults:
            yield f"{full_name(row)}: {shown(fault)}"
    for handler in view.handlers:
        if handler.fault:
            yield f"runtime handler {shown(handler.name)}: {shown(handler.fault)}"
    for cgroup, why in view.misses.items():
        yield f"{shown(cgroup)}: the pod's limit could not be set: {shown(why)}"


def _kills(count: int) -> str:
    return f"the kernel's OOM killer ended {count} process(es) in the pod's cgroup"


def _drifting(row: SandboxRow) -> Iterator[str]:
    """A sentence for what is in the same wrong place, with all that is there."""
    together = dict[tuple[str, str, str], list[DriftRow]]()
    for one in row.drifts:
        if one.is_fault:
            together.setdefault((one.code, one.seen, one.expected), []).append(one)
    for first, *more in together.values():
        also = "".join(f", {shown(one.role)}{f' ({one.count})' if one.count > 1 else ''}" for one in more)
        yield first.sentence + (f"; there too{also.replace(',', ':', 1)}" if also else "")


def is_meant(row: SandboxRow, what: str) -> bool:
    """Whether `what` is this sandbox's NAMESPACE/POD, its pod's name, or the first characters of its id."""
    return (what != "" and what in (row.name, row.pod)) or (len(what) >= LEAST_ID and row.id.startswith(what))


def sandbox_sentences(row: SandboxRow) -> Iterator[str]:
    """One sandbox: mode, places, size, verdict, cost."""
    others = f"  In the same pod's cgroup: {_others(row.fit)}."
    handler = f"runtime handler {shown(row.handler)}" if row.handler else "runtime handler unknown"
    yield f"sandbox {full_name(row)}: VM ({row.vmm or 'VMM unknown'}), {handler}, {row.profile or 'profile unknown'}."
    if row.fit.others:
        yield others
    yield f"  Mode: {mode_sentence(row)}."
    if row.pod_cgroup:
        yield f"  Pod's cgroup ({POD} below): {shown(row.pod_cgroup)}"
    yield from (f"  {line}" for line in task_lines(row))
    if row.note:
        yield f"  Note: {shown(row.note)}"
    yield from (f"  {'Drift' if one.is_fault else 'Note'}: {one.sentence}{since(one)}." for one in row.drifts)
    vcpus = or_unknown(row, "vm_vcpus", None if row.vm_vcpus is None else str(row.vm_vcpus))
    memory = or_unknown(row, "vm_memory", None if row.vm_memory is None else size_text(row.vm_memory))
    yield f"  VM: {vcpus} vCPU(s), memory {memory}{f', by {row.size_from}' if row.size_from else ''}."
    yield f"  Fit: {row.fit.sentence}."
    yield f"  Memory: {memory_line(row)}."
    yield f"  CPU: {cpu_line(row)}."
    if row.limit_memory is not None or row.limit_cpu_m is not None:
        yield f"  Pod's limit: {limit_line(row)}."
    if row.oom_kills:
        yield f"  {_kills(row.oom_kills)[0].upper()}{_kills(row.oom_kills)[1:]}."
    yield from (f"  Fault: {shown(fault)}" for fault in row.faults)


def since(row: DriftRow) -> str:
    """The duration in brackets; empty where that is not known."""
    return "" if row.since_ms is None else f" (for {age_text(row.since_ms)})"


def age_text(ms: int) -> str:
    """A time span for people."""
    seconds = ms // 1000
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def task_lines(row: SandboxRow) -> Iterator[str]:
    """The cgroups of each role's processes or threads, and the wanted ones."""
    for task in row.tasks:
        many = f" x{task.count}" if task.count > 1 else ""
        cpu = f", CPU in {below(task.cpu_where, row.pod_cgroup)}" if task.cpu_where else ""
        should = task.expected if task.expected not in ("", task.where, task.cpu_where) else ""
        should_be = f", should be in {below(should, row.pod_cgroup)}" if should else ""
        for_ = "" if task.since_ms is None else f" for {age_text(task.since_ms)}"
        where = below(task.where, row.pod_cgroup) or "an unknown cgroup"
        yield f"{task.role}{many}: in {where}{cpu}{for_}{should_be}"


def below(path: str, pod: str) -> str:
    """The path for people; within the pod's cgroup from there on."""
    if pod and (path == pod or path.startswith(f"{pod}/")):
        path = POD + path[len(pod) :]
    return shown(path)


def memory_line(row: SandboxRow) -> str:
    """What a sandbox has in memory, by part."""
    parts = (
        ("guest RAM", "guest_memory", row.guest_memory),
        ("VMM", "vmm_memory", row.vmm_memory),
        ("shim", "shim_memory", row.shim_memory),
        ("virtiofsd", "virtiofsd_memory", row.virtiofsd_memory),
    )
    told = [
        f"{word} {or_unknown(row, name, None if value is None else size_text(value))}"
        for word, name, value in parts
        if value is not None or name in row.unknown
    ]
    all_of_it = or_unknown(row, "memory", None if row.memory is None else f"{size_text(row.memory)} in its cgroups")
    outside = f", {size_text(row.outside_memory)} of it outside the pod" if row.outside_memory else ""
    declared = "nothing known" if row.declared_memory is None else size_text(row.declared_memory)
    overhead = or_unknown(
        row, "overhead_memory", None if row.overhead_memory is None else size_text(row.overhead_memory)
    )
    return f"{all_of_it}{outside}; {', '.join(told)}; overhead {overhead}, declared {declared}"


def cpu_line(row: SandboxRow) -> str:
    """What a sandbox computes, by part."""
    if row.cpu_m is None:
        return or_unknown(row, "cpu_m", None)
    vcpu = or_unknown(row, "vcpu_m", None if row.vcpu_m is None else cpu_text(row.vcpu_m))
    overhead = or_unknown(row, "overhead_cpu_m", None if row.overhead_cpu_m is None else cpu_text(row.overhead_cpu_m))
    return f"{cpu_text(row.cpu_m)} (vCPUs {vcpu}, overhead {overhead})"


def limit_line(row: SandboxRow) -> str:
    """The pod's limit as it should be, and as the kernel has it."""
    pairs = (
        ("memory", row.limit_memory, row.limit_now, size_text),
        ("CPU", row.limit_cpu_m, row.limit_cpu_now_m, cpu_text),
    )
    texts = []
    for word, wanted, now, text in pairs:
        if wanted is not None:
            has = "unknown" if now is None else "none" if now == UNLIMITED else text(now)
            texts.append(f"{word} {text(wanted)} by its containers and overhead, the kernel has {has}")
    return "; ".join(texts)
