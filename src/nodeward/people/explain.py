"""Reasons as sentences: why a cgroup is to have what it has, and why it stands as it does."""

from collections.abc import Iterator

from nodeward.core.cgroup import Hierarchy
from nodeward.core.decision import Reason
from nodeward.features.cpus.view import cpu_sentences
from nodeward.features.cpus.words import cpu_sentence
from nodeward.features.gate.view import gate_sentences
from nodeward.features.limits.readings import MAX_REPAIRS, Standing
from nodeward.features.sandboxes.words import is_meant, sandbox_sentences
from nodeward.features.settings import Mode
from nodeward.people.rows import SHORT_ID, CgroupRow, NodeView, ResourceRow, pod_name

LEAST_ID = 4
"""Fewer characters of an id mean no container."""

_RULES = {
    "declared": "The container declares this limit.",
    "undeclared": "The pod declares the resource and this container does not: it gets 0, or it could use its "
    "neighbours' share.",
    "strict": "Neither pod nor container declares the resource, and limits.strict is on: it gets 0.",
    "nameless": "Only the container's cgroup is known: the runtime has told nothing of it. Its name comes with the "
    "pod's status; until then the pod's budget holds.",
    "pause": "Only the cgroup is known, and every container of the pod is known otherwise: it is the pod's own (pause) "
    "container.",
    "none-declared": "Nothing is declared, so nothing is limited.",
    "none-readable": "What is declared could not be read and counts as undeclared, so nothing is limited.",
    "pod-spec-unknown": "The pod's spec is not known yet, and until it is the pod's own cgroup is left alone.",
    "by-annotation": "Its containers have their limits by annotation. The pod's own cgroup is left alone until its "
    "spec is known, since an annotation does not tell the order of init containers.",
    "budget": "The pod's budget: the larger of the biggest init step and the sum of sidecars and containers, plus the "
    "RuntimeClass overhead (KEP-753).",
}

_STATES = {
    Standing.UNMANAGED: "Nodeward wants nothing of this cgroup.",
    Standing.COUNTED: "No limit is wanted of this cgroup. The pod's TEE keys are counted (nodeward keys).",
    Standing.UNKNOWN: "What is wanted is not known yet, because the pod or the container's name is not; it is mended "
    "when the API server tells of it.",
    Standing.UNSUPPORTED: "This kernel has no such resource (it is not in misc.capacity), so the limit cannot be "
    "enforced. The container runs and is shown as unenforced.",
    Standing.CONTROLLER_OFF: "The cgroup has no misc files: its parent does not pass the misc controller on. Nodeward "
    "enables it and tries again.",
    Standing.ENFORCED: "The kernel reads back the wanted limit.",
    Standing.DRIFT: f"The kernel's limit differs from the wanted one. It is repaired at most {MAX_REPAIRS} times in "
    "five minutes; if it stays, something else writes misc.max here.",
    Standing.PENDING: "What is wanted is decided, and the kernel has not been read since. This passes with the "
    "next reading.",
    Standing.OUTSIDE: "The kernel reads back the wanted limit, but it does not hold: the container's processes are not "
    "in this cgroup of the misc hierarchy (cgroup v1), since its runtime does not join it (runc does from 1.1.6 on).",
    Standing.STALE: "The cgroup has not been read for longer than two and a half periods.",
    Standing.RELAYED: "The relay gives this limit to the runtime when the container is created or updated. Only "
    "nodeward node would read the kernel back.",
}
_ONLY_SHOWN = "limits.mode is observe: Nodeward decides and shows, and writes nothing."


def rule_sentence(reason: Reason) -> str:
    """The rule behind a wanted value."""
    if reason.code == "pod-unknown":
        return f"Nobody knows this pod; limits.unknown_pod is {reason.values[0]}."
    return _RULES.get(reason.code, f"{reason.code} {' '.join(str(value) for value in reason.values)}".strip())


def note_sentence(note: Reason) -> str:
    """What a decision remarks on beside its answer and goals."""
    if note.code == "gate":
        return str(note.values[0])
    if note.code != "drift":
        return cpu_sentence(note)
    path, *resources, count = note.values
    names = ", ".join(str(one) for one in resources)
    return (
        f"{path}: the kernel's limit of {names} is not the wanted one; it is written again, repair {count} of at most "
        f"{MAX_REPAIRS} in five minutes"
    )


def explain(view: NodeView, what: str) -> list[str] | None:
    """Sentences on NAMESPACE/POD[/CONTAINER], on a pod by its name alone where one namespace has it, on a container by
    the first characters of its id, on a pod of which only cgroups are known by its UID, and on a cgroup by its path;
    None where nothing such is known."""
    named = sorted(dict.fromkeys(name for name in _pods(view) if what == name.partition("/")[2]))
    if len(named) > 1:
        return [f"{what} is ambiguous; write one of {', '.join(named)}"]
    what = named[0] if named else what
    parts = what.split("/")
    rows = [row for row in view.rows if _is_meant(row, what, parts)]
    keys = _key_sentences(view, parts[0], parts[1]) if len(parts) == 2 and parts[0] else []
    beside = _sandbox_sentences(view, what), gate_sentences(view.gates, what)
    cpus = [*_cpu_sentences(view, what, parts, rows), *(line for lines in beside for line in lines)]
    if not rows:
        return [*keys, *cpus] or None  # a pod that waits for its start, and any where limits are off, has these alone
    lines = [line for row in rows for line in _explain_row(row, view)]
    ids = dict.fromkeys(row.id for row in rows)
    if len(parts) == 1 and len(ids) > 1 and "" not in ids:
        lines.insert(0, f"{what} is ambiguous, the beginning of {len(ids)} ids; each is explained: {', '.join(ids)}")
    lines += [*keys, *cpus]
    lines += tree_sentences(view.tree)
    outside = [(name, amount) for name, amount in view.elsewhere.items() if amount]
    return lines + [f"node: {amount} of {name} in use outside of the known pods." for name, amount in outside]


def _is_meant(row: CgroupRow, what: str, parts: list[str]) -> bool:
    if what.startswith("/"):
        return row.cgroup == what.rstrip("/")
    if len(parts) == 1:
        return (len(what) >= LEAST_ID and row.id.startswith(what)) or (not row.namespace and row.pod == what != "")
    return all(parts) and parts in ([row.namespace, row.pod], [row.namespace, row.pod, row.container])


def _pods(view: NodeView) -> Iterator[str]:
    """Each pod that anything is known of, by namespace and name."""
    yield from (f"{row.namespace}/{row.pod}" for row in view.rows if row.namespace)
    yield from (f"{one.namespace}/{one.pod}" for row in view.keys for one in row.holders)
    yield from (f"{one.namespace}/{one.pod}" for one in (view.cpus.holders if view.cpus is not None else ()))
    yield from (one.name for one in (view.sandboxes.rows if view.sandboxes is not None else ()) if one.pod)
    yield from (f"{row.namespace}/{row.pod}" for row in (view.gates.rows if view.gates is not None else ()))


def _sandbox_sentences(view: NodeView, what: str) -> list[str]:
    """The VM of a pod, where it runs in one."""
    rows = view.sandboxes.rows if view.sandboxes is not None else ()
    return [line for row in rows if is_meant(row, what) for line in sandbox_sentences(row)]


def _cpu_sentences(view: NodeView, what: str, parts: list[str], rows: list[CgroupRow]) -> list[str]:
    """The CPUs of what is asked for: a container, or each of a pod."""
    if view.cpus is None:
        return []
    ids = dict.fromkeys(row.id for row in rows if row.id)
    meant = [
        one
        for one in view.cpus.holders
        if one.id in ids
        or (len(parts) == 1 and len(what) >= LEAST_ID and one.id.startswith(what))
        or (all(parts) and parts in ([one.namespace, one.pod], [one.namespace, one.pod, one.container]))
    ]
    return [line for one in meant for line in cpu_sentences(view.cpus, one)]


def _key_sentences(view: NodeView, namespace: str, pod: str) -> list[str]:
    """The TEE keys of one pod."""
    return [
        f"keys {row.key}: {one.entitled} promised by {' or '.join(row.resources)}, "
        f"{'nothing that is known' if one.charged is None else one.charged} held"
        f"{', given by kubelet: ' if one.ids else ''}{', '.join(one.ids)}."
        for row in view.keys
        for one in row.holders
        if (one.namespace, one.pod) == (namespace, pod)
    ]


def tree_sentences(tree: Hierarchy) -> list[str]:
    """What the node's cgroup tree means for all its pods, where there is something to be said of it."""
    if tree.fault:
        return [f"node: no limit can be counted or set: {tree.fault}."]
    if tree.version != 1:
        return []
    return [
        f"node: misc is mounted as cgroup v1 at {tree.root}. A runtime can set no misc limit there, so each limit is "
        "written at the container's start, by the daemon or by the OCI hook."
    ]


def _explain_row(row: CgroupRow, view: NodeView) -> list[str]:
    mode = view.mode
    part = row.container or row.id[:SHORT_ID]
    name = pod_name(row) + (f"/{part}" if part else "")
    lines = [f"{row.level} {name}: {row.state}", *([f"  cgroup {row.cgroup}"] if row.cgroup else [])]
    for resource in row.resources:
        if resource.is_idle:
            continue
        lines += [f"  {sentence}" for sentence in _resource_sentences(resource, row, mode)]
    lines.append(f"  Rule: {row.rule}")
    lines += [f"  Fault: {fault}; it counts as undeclared." for fault in row.faults]
    stale = f", stale since {row.stale_since}: the API server does not answer" if row.stale_since else ""
    lines.append(f"  Source: {row.source}{stale}.")
    lines.append(f"  State: {_state_sentence(row, mode, view.tree.version)}")
    if row.repairs:
        lines.append(f"  Repaired {row.repairs} time(s) in the last five minutes.")
    if row.last_error:
        lines.append(f"  The last write failed: {row.last_error}.")
    return lines


def _state_sentence(row: CgroupRow, mode: str, version: int) -> str:
    """Where the cgroup stands, of several resources each by its name."""
    state = Standing(row.state)
    if state is Standing.UNMANAGED and mode == Mode.OBSERVE.value:
        return _ONLY_SHOWN
    if state is Standing.CONTROLLER_OFF and version == 1:
        return "The cgroup is not in the misc hierarchy (cgroup v1) yet. Nodeward makes it there and tries again."
    lacking = [one.resource for one in row.resources if one.state == Standing.UNSUPPORTED.value]
    if state is Standing.ENFORCED and lacking:
        held = [one.resource for one in row.resources if one.state == Standing.ENFORCED.value]
        return f"The kernel reads back the wanted limit of {', '.join(held)}, and not of {', '.join(lacking)}."
    return _STATES[state]


def _standing_sentences(one: ResourceRow, row: CgroupRow, mode: str) -> list[str]:
    """Where one resource stands, if that is not what is said of the whole cgroup."""
    if one.state == Standing.UNSUPPORTED.value != row.state:
        return [f"{one.resource}: {one.state}. {_STATES[Standing.UNSUPPORTED]}"]
    if one.state != Standing.UNMANAGED.value or one.limit is None:
        return []
    observed = mode == Mode.OBSERVE.value
    if one.taken_back:
        then = "and it stays, since limits.mode is observe" if observed else "and it is taken back"
        return [f"{one.resource}: {one.state} (last written by us). Nothing is wanted any more, {then}."]
    if observed and one.limit == one.wanted:
        return [f"{one.resource}: {one.state} (last written by us, or by another that wants the same). It stays."]
    if one.wanted is None:
        return [
            f"{one.resource}: {one.state} (last written by us in an earlier life of the daemon, or by another). "
            "Nothing is wanted, and nothing proves whose it is: it stays. nodeward uninstall lifts what is on its list."
        ]
    return []


def _resource_sentences(row: ResourceRow, of: CgroupRow, mode: str) -> list[str]:
    wanted = "nothing is wanted" if row.wanted is None else f"{row.wanted} is wanted"
    if row.declared != row.wanted:
        wanted = f"{'nothing' if row.declared is None else row.declared} is declared, {wanted}"
    if not of.cgroup:
        return [f"{row.resource}: {wanted}; the kernel is not read here."]
    limit = "the kernel has no limit" if row.limit is None else f"the kernel's limit is {row.limit}"
    lines = [f"{row.resource}: {wanted}, {limit}, {_shown(row.usage)} in use, peak {_shown(row.peak)}."]
    if row.refusals:
        here = row.refusals_here or 0
        lines.append(
            f"{row.resource}: {row.refusals} charge(s) refused here or below, {here} by this level's own limit."
        )
    return lines + _standing_sentences(row, of, mode)


def _shown(value: int | None) -> str:
    if value is None:
        return "an unknown amount"
    return str(value) if value >= 0 else f"{value} (the kernel's counter went below zero)"
