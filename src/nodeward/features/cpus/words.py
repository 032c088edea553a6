"""Sentences about CPUs: why a container has these, and what decisions remark.

A code that is not here, or has fewer values (a record of another release), is told as it is.
"""

from collections.abc import Callable, Iterator, Mapping

from nodeward.core import cpuset
from nodeward.core.quantity import size_text
from nodeward.core.refusal import Reason
from nodeward.features.cpus.rows import CpuHolderRow, CpuRow, CpusView, MemoryZoneRow

RESERVED = "reserved"
"""The pool of this name is the one kept for the system."""
_MOST_NAMES = 5
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghjklmnopqstuvwxyz"
"""Names of owners in the drawing; i and r have a meaning of their own."""
_SHARED, _RESERVED, _ISOLATED, _IDLE = ".", "r", "i", "-"


def head(view: CpusView) -> str:
    """The policy and who has how many CPUs, in one line."""
    own = sum(bool(row.owner) for row in view.cpus)
    owners = sum(row.kind.startswith("exclusive") for row in view.holders)
    sharers = sum(bool(row.pool) and row.kind != "exclusive" for row in view.holders)
    return (
        f"cpus {view.mode} by {view.driver} | policy {view.policy} | {own} of {len(view.cpus)} CPUs exclusive to "
        f"{owners} container(s), {sharers} share"
    )


def troubles(view: CpusView) -> Iterator[str]:
    """What somebody should know of, a sentence each."""
    for why in view.refused:
        which = "newer settings of the policy" if view.in_force else "the settings of the policy"
        yield f"{which} are not in force: {why}"
    yield from view.notes
    for row in view.holders:
        if row.error:
            yield f"{row.name}: its CPUs could not be set: {row.error}"
        if row.memory_error:
            yield f"{row.name}: its memory nodes could not be set: {row.memory_error}"
        if row.kind == "unplaced":
            yield f"{row.name}: has no CPUs by the policy and stays where it is: {row.why}"
    if view.drifts:
        yield f"somebody else changed CPUs of containers {view.drifts} time(s); each was put right"
    if view.late:
        yield f"{view.late} program(s) started, or were refused, while others were still on their CPUs"


def cpu_sentences(view: CpusView, row: CpuHolderRow) -> Iterator[str]:
    """One container's CPUs, and why it has those."""
    asks = f"{row.request_m / 1000:g} CPU(s) requested{f' ({row.source})' if row.source else ''}"
    match row.kind:
        case "unplaced":
            yield f"cpus {row.name}: no CPUs by the policy; it stays where it is."
        case "unpinned":
            yield f"cpus {row.name}: not pinned; {asks}."
        case "exclusive+shared":
            pool = view.of(row) if not row.own else None
            own = (
                f"{pool.cpus} exclusive, {row.cpus} in all"
                if pool
                else f"{row.own} exclusive, {row.cpus} with pool {row.pool}"
            )
            yield f"cpus {row.name}: {own}; {asks}."
        case _:
            yield f"cpus {row.name}: {row.cpus}, {row.kind}; {asks}."
    if row.why:
        yield f"  {row.why}"
    if row.memory:
        yield f"  It may use the memory of NUMA node(s) {row.memory}: they follow its CPUs (cpus.memory, pinMemory)."
    if row.memory_for:
        whom = "it came" if row.memory_for == row.name else f"{row.memory_for} came"
        yield f"  It was given more nodes when {whom}: more was promised of fewer nodes than they have."
    if row.memory_error:
        yield f"  These could not be set: {row.memory_error}."
    if (pool := view.of(row)) is not None:
        lent = f"; lent to it: {pool.lent}" if pool.lent else ""
        yield f"  Shares pool {pool.name} (CPUs {pool.cpus or 'none'}{lent}) with {_others(row.name, pool.members)}."
    since = "" if row.for_ms is None else f", for {row.for_ms / 1000:.0f} s"
    match row.state:
        case "observed":
            yield "  cpus.mode is observe: this is what would be, and nothing is written."
        case "held":
            yield f"  The kernel lets it use {row.has}{since}."
        case "waiting":
            yield "  No container of this name is there now; the CPUs are kept for it."
        case "pending" | "failed":
            may = row.has or "any CPU, as far as is known: its set was not read back"
            yield f"  The kernel lets it use {may}{since}; it is being put right."
    if row.error:
        yield f"  The last write failed: {row.error}."


def _others(name: str, members: tuple[str, ...]) -> str:
    others = sorted(member for member in members if member != name)
    if not others:
        return "nobody"
    more = f" and {len(others) - _MOST_NAMES} more" if len(others) > _MOST_NAMES else ""
    return f"{', '.join(others[:_MOST_NAMES])}{more}"


def drawing(view: CpusView, width: int) -> Iterator[str]:
    """The machine in lines of at most `width` where a core fits: a line for each cache of level 3, in it each core in
    brackets, in that a sign for each thread. Below it what the signs mean."""
    yield head(view)
    signs = _signs(view)
    package = node = None
    for rows in _runs(view.cpus):
        first = rows[0]
        if first.package != package:
            package, node = first.package, None
            yield f"package {package}"
        if first.node != node:
            node = first.node
            yield f"  node {node}"
        yield from _cache_lines(rows, signs, width)
    yield from _legend(view, signs)


def _runs(cpus: tuple[CpuRow, ...]) -> Iterator[list[CpuRow]]:
    """The CPUs of each cache, by package, node, cache and core."""
    runs = dict[tuple[int, int, int], list[CpuRow]]()
    for row in sorted(cpus, key=lambda row: (row.package, row.node, row.l3, row.core, row.cpu)):
        runs.setdefault((row.package, row.node, row.l3), []).append(row)
    yield from runs.values()


def _cache_lines(rows: list[CpuRow], signs: Mapping[str, str], width: int) -> Iterator[str]:
    cores = dict[int, list[str]]()
    for row in rows:
        cores.setdefault(row.core, []).append(_sign(row, signs))
    between = " " if any(len(sign) > 1 for core in cores.values() for sign in core) else ""
    start = f"    L3 {rows[0].l3}  "
    line = start
    for core in cores.values():
        cell = f"[{between.join(core)}]"
        if line.strip() and len(line) > len(start) and len(line) + len(cell) > width:
            yield line
            line = " " * len(start)
        line += cell
    yield f"{line}  CPUs {cpuset.text(cpuset.of(row.cpu for row in rows))}"


def _sign(row: CpuRow, signs: Mapping[str, str]) -> str:
    if row.owner:
        return signs[row.owner]
    if row.isolated:
        return _ISOLATED
    if row.pools:
        return _RESERVED if row.pools == (RESERVED,) else _SHARED
    return _IDLE


def _signs(view: CpusView) -> dict[str, str]:
    """A sign for each owner, by the lowest of its CPUs."""
    signs = dict[str, str]()
    for row in sorted(view.cpus, key=lambda row: row.cpu):
        if row.owner and row.owner not in signs:
            at = len(signs)
            letter = _LETTERS[at % len(_LETTERS)]
            signs[row.owner] = letter if at < len(_LETTERS) else f"{letter}{at // len(_LETTERS)}"
    return signs


def _legend(view: CpusView, signs: Mapping[str, str]) -> Iterator[str]:
    used = dict.fromkeys(_sign(row, signs) for row in view.cpus)
    meanings = {_SHARED: "shared", _RESERVED: "reserved", _ISOLATED: "isolated by the kernel", _IDLE: "of nobody"}
    if plain := [f"{sign} {meaning}" for sign, meaning in meanings.items() if sign in used]:
        yield ", ".join(plain)
    for row in sorted((row for row in view.holders if row.own), key=lambda row: cpuset.ids(cpuset.parse(row.own))):
        beside = f" and pool {row.pool}" if row.pool else ""
        state = "" if row.state == "held" else f" ({row.state})"
        memory = f", memory of node(s) {row.memory}" if row.memory else ""
        yield f"{signs.get(row.name, '?')} {row.name}: {row.own}{beside}{memory}{state}"
    yield from claim_sentences(view, signs)
    depth = dict[str, int]()
    for pool in view.pools:
        depth[pool.name] = depth.get(pool.within, -1) + 1
        lent = f", lent {pool.lent}" if pool.lent else ""
        free = f", {pool.free_m} m free" if pool.free_m is not None else ""
        indent = "  " * depth[pool.name]
        yield f"{indent}pool {pool.name}: {pool.cpus or 'no CPUs'}{lent}{free}, {len(pool.members)} container(s)"
    for zone in view.memory_zones:
        size = f"{size_text(zone.promised)} of {size_text(zone.bytes)} promised"
        yield f"memory of node(s) {zone.nodes}: {size}, {zone.containers} container(s); {_in_use(zone)}"
    if economy := cpuset.text(cpuset.of(row.cpu for row in view.cpus if row.efficient)):
        yield f"made for economy: {economy}"
    yield from view.faults
    yield from troubles(view)


def claim_sentences(view: CpusView, signs: Mapping[str, str] | None = None) -> Iterator[str]:
    """What goes by claim, a line for each device and each claim; `signs`: those of the drawing, by owner."""
    of = view.claims
    if of is None:
        return
    if of.registered is not None:
        driver = "registered with kubelet" if of.registered else "not registered with kubelet"
        why = f" ({of.driver})" if of.driver and not of.registered else ""
        fault = f"; no claim is prepared: {of.fault}" if of.fault else ""
        yield f"by claim: {len(of.rows)} claim(s), our driver is {driver}{why}{fault}"
    for one in of.devices:
        yield f"device {one.device}: claims may have {one.published} of {one.size} CPUs, and have {one.promised}"
    for row in of.rows:
        sign = (signs or {}).get(f"claim {row.claim}", "")
        cpus = f"CPUs {row.cpus}" if row.cpus else "none of its CPUs are its own now"
        given = ", ".join(f"{count} of {name}" for name, count in row.amounts.items())
        asks = f", {' and '.join(row.options)}" if row.options else ""
        pods = " and ".join(row.pods) or "no pod"
        yield f"{sign}{' ' if sign else ''}claim {row.claim}: {cpus} ({given or 'looks on'}{asks}), {pods}"


def _in_use(zone: MemoryZoneRow) -> str:
    if zone.used is None:
        return "in use: not known"
    unread = f", {zone.unread} not known" if zone.unread else ""
    return f"{size_text(zone.used)} in use by {zone.users} container(s){unread}"


Values = tuple[str | int, ...]
_ISOLATED_FOR = {
    "annotation": "the pod's annotation prefers these",
    "relaxed": "the policy's relaxed isolation prefers these",
    "single": "it requests a single one",
}
_SHAPE = ("whole socket(s)", "whole NUMA node(s)", "whole core(s)", "single CPU(s)")


def _taken(rest: str) -> Callable[[Values], str]:
    def sentence(values: Values) -> str:
        count, cpus, free, *shape = values
        made = ", ".join(f"{number} {what}" for number, what in zip(shape, _SHAPE, strict=True) if number)
        return f"It requests {count} whole CPU(s) of {free} that were free and not isolated: {cpus} ({made}){rest}."

    return sentence


def _isolated(values: Values) -> str:
    _, cpus, by = values
    return f"{cpus}: the kernel isolates these from its scheduler, and {_ISOLATED_FOR.get(str(by), by)}."


def _own(values: Values) -> str:
    full, part, kind, cpus, within = values
    rest = f"; the other {part} m are shared" if part else ""
    return f"The {full} whole CPU(s) of its request are its own: {cpus} ({kind}, within {within}){rest}."


_BY = {
    "annotation": "its annotation",
    "unread": "what it was before, until the runtime has told all of its labels that the settings name",
    "expression": "an expression of the type",
    "namespace": "its namespace",
    "default": "no other type",
}
_HOW = {
    "there": "it ran there already",
    "group": "its group is there",
    "pod": "its pod is there",
    "space": "its namespace is there",
    "fits": "there was room in it",
    "grows": "it was inflated for it",
    "new": "it was made, or empty",
}


def _balloon(values: Values) -> str:
    kind, by, name, how = (str(value) for value in values)
    return f"Of the type {kind} by {_BY.get(by, by)}; the balloon {name} was chosen since {_HOW.get(how, how)}."


_RULE = {
    "affinity": "more of the containers that it is to be near to are there",
    "hints": "it is nearer to the devices and mounts that it uses",
    "room": "its memory nodes have room for what it requests",
    "level": "its level is nearer to the one for Burstable containers without a CPU limit",
    "limit": "its CPU limit fits there",
    "memory": "it is near fewer memory nodes ({0} against {1})",
    "priority": "it has enough CPUs of the preferred kind",
    "depth": "it is farther down in the tree",
    "kind": "it has enough isolated CPUs",
    "isolated": "it has more isolated CPUs",
    "members": "fewer containers are there ({0} against {1})",
    "left": "more is left there ({0} m against {1} m)",
    "order": "it comes first",
}


def _tree(values: Values) -> str:
    name, fits, rule, second, mine, others, beside = values
    full = "The reserved CPUs have no room for it. " if beside else ""
    if rule == "only":
        return f"{full}{name} is the only pool with room."
    why = _RULE.get(str(rule), str(rule)).format(mine, others)
    return f"{full}{name} was chosen of {fits} pools with room: before {second}, since {why}."


_PODPOOL = {
    "pod": "its pod is there",
    "system": "its namespace is kube-system",
    "annotation": "its pod's annotation names it",
    "none": "its pod names no pool",
    "full": "no pool that its pod names has room",
    "unknown": "its pod names a pool that is not there",
}
_DYNAMIC = {
    "annotation": "by its annotation",
    "namespace": "by its namespace",
    "nothing": "since it requests nothing",
    "none": "since no type is for its namespace",
}


def _podpool(values: Values) -> str:
    name, how, asked, has = values
    over = ", more than it has" if int(asked) > int(has) else ""
    return f"In {name} since {_PODPOOL.get(str(how), how)}; requests there were {asked} m with it, of {has} m{over}."


def _dynamic(values: Values) -> str:
    name, by = values
    return f"In the pool {name} {_DYNAMIC.get(str(by), by)}."


_SENTENCES: Mapping[str, str | Callable[[Values], str]] = {
    "cpus-none": "The policy none pins nothing: it runs wherever the runtime lets it.",
    "cpus-static-unknown": "What it requests is not known, and no CPUs are exclusive by a guess: it shares.",
    "cpus-static-qos": "Its pod is not Guaranteed, so it shares.",
    "cpus-static-pod-level": "Its pod has resources of the pod as a whole, so it shares.",
    "cpus-static-none-requested": "It requests no CPU, so it shares.",
    "cpus-static-fraction": "It requests {0} m, which is no whole number of CPUs, so it shares.",
    "cpus-static-kept": "It ran on {1} already, which are as many as it requests.",
    "cpus-static-shrunk": "It was resized from {0} to {1} CPUs and gave back {2}.",
    "cpus-static-grown": "It was resized from {0} to {1} CPUs and was given {2} besides.",
    "cpus-static-isolated": _isolated,
    "cpus-static-taken": _taken(""),
    "cpus-static-reused": _taken("; some were an init container's of its pod"),
    "cpus-static-short": _taken("; these were too few, so some are isolated by the kernel"),
    "cpus-plus-unknown": "What it requests is not known, and no CPUs are exclusive by a guess: it shares.",
    "cpus-plus-reserved": "Its namespace is kube-system: it runs on the reserved CPUs.",
    "cpus-plus-shared": "It requests {0} m, less than a whole CPU, so it shares.",
    "cpus-plus-own": _own,
    "cpus-plus-ended": "It has ended as an init container does: its CPUs are for the other containers of its pod.",
    "cpus-balloon": _balloon,
    "cpus-balloon-preserved": "The settings, or its annotation, leave its CPUs alone.",
    "cpus-podpool": _podpool,
    "cpus-static-pool": "Of the pool {0} it has {1} list(s) of CPUs.",
    "cpus-dynamic-pool": _dynamic,
    "cpus-tree": _tree,
    "cpus-tree-there": "It was in this pool already.",
    "cpus-tree-reserved": "The namespace {0}, or its annotation, is for the reserved CPUs.",
    "cpus-tree-hints": "In {0}, near the {1} thing(s) that kubelet has given it, {2} CPU(s) near each "
    "(pick-resources-by-hints).",
    "cpus-tree-resized": "It was resized from {0} to {1} milliCPU, and stays in its pool, or goes to one around it.",
    "cpus-own-before": "It had these alone by the policy before, and keeps them while it runs.",
    "cpus-claim": "It uses the claim {0}, and nobody else may run on these.",
    "cpus-claim-shared": "It uses the claim {0}, on whose CPUs nobody else may run, and those that all share.",
    "cpus-claim-short": "No CPU is left for its claim {0}, so it shares those of all others.",
    "cpus-no-claim": "It uses no claim of CPUs, and shares what is left.",
    "cpus-memory": "Its memory nodes follow its CPUs, and none is taken away.",
    "cpus-changed": "Its set follows what others were given or gave back.",
    "cpus-source": "{0}: {1}",
    "cpus-labels-unread": "{0} container(s) keep the type that they have until the runtime has told their labels: {1}",
    "cpus-short": "{0} has only the CPUs {1}, and its containers request {2} m: no others are free. It grows once CPUs "
    "are online again.",
    "cpus-drift": "{0}: somebody else set its CPUs to {1}; they are written again.",
    "cpus-lost": "{0}: its set cannot be read ({1}), so it may run on any CPU; controller and set are put back.",
    "cpus-late": "{0}: others were still on its CPUs when its time to wait was over (cpus.late_ms); cpus.on_late says "
    "whether it began. nodeward cpus shows who is where.",
    "cpus-machine-kept": "other CPUs are online, and the policy does not fit these; it goes on by those before: {0}",
    "cpus-record-void": "What was written down of the containers' CPUs is not believed: {0}. Each keeps the CPUs that "
    "the runtime's own record names, where the policy allows them.",
    "policy-refused": "the settings of the policy are refused: {0}",
}


def cpu_sentence(reason: Reason) -> str:
    """The sentence; code and values as they are where there is none."""
    found = _SENTENCES.get(reason.code)
    try:
        if isinstance(found, str):
            return found.format(*reason.values)
        if found is not None:
            return found(reason.values)
    except (IndexError, ValueError):
        pass
    return " ".join((reason.code, *(str(value) for value in reason.values)))
