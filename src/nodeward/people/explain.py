"""Sentences that say why a cgroup has its limit and its state."""

from collections.abc import Iterator

from nodeward.core.refusal import Reason
from nodeward.features.cpus.words import cpu_sentence, cpu_sentences
from nodeward.features.gate.words import gate_sentences
from nodeward.features.keys.words import key_sentences
from nodeward.features.limits.rows import MAX_REPAIRS, CgroupRow
from nodeward.features.limits.words import row_sentences, tree_sentences
from nodeward.features.sandboxes.words import is_meant, sandbox_sentences
from nodeward.people.rows import NodeView

LEAST_ID = 4
"""Fewer characters of an id mean no container."""


def note_sentence(note: Reason) -> str:
    """The remark of a decision, apart from its answer and goals."""
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
    keys = key_sentences(view.keys, parts[0], parts[1]) if len(parts) == 2 and (parts[0] or named) else []
    beside = _sandbox_sentences(view, what), gate_sentences(view.gates, what)
    cpus = [*_cpu_sentences(view, what, parts, rows), *(line for lines in beside for line in lines)]
    if not rows:
        return [*keys, *cpus] or None  # a pod that waits for its start, and any where limits are off, has these alone
    lines = [line for row in rows for line in row_sentences(row, view.mode, view.tree.version)]
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
