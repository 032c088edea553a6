"""One row a pod, with all its promises: what `nodeward status`, `kubectl nodeward` and the page show; and which pods
and cgroups are shown, in which order.

A column is a promise of a feature, and is there where some pod has one. Texts are for people; who wants numbers reads
the other rows of the picture. Pods with a condition come first, then those that need somebody, then names in natural
order (`pod-2` before `pod-10`). Only what people see is chosen and ordered: metrics and the record have every row as it
is.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodeward.core.conditions import Severity
from nodeward.core.modes import NO_POLICY, Mode
from nodeward.core.quantity import size_text
from nodeward.features.cpus.rows import CpuHolderRow, CpusView
from nodeward.features.keys.rows import KeyHolder, KeyRow
from nodeward.features.limits.rows import CgroupRow, ResourceRow, pod_name
from nodeward.features.limits.words import amount
from nodeward.features.sandboxes.rows import SandboxRow
from nodeward.features.sandboxes.values import Fit
from nodeward.features.sandboxes.words import age_text
from nodeward.people.rows import NodeView
from nodeward.people.verdict import urgency, verdict

ATTENTION, BAD = "attention", "bad"
_TONES = {Severity.CRITICAL: BAD, Severity.WARNING: ATTENTION}
_BAD = ("drift", "outside", "failed")
_TITLES = {"sgx_epc": "EPC"}
CPUS, KEYS, VM, GATE = "CPUs", "Keys", "VM", "Gate"
_KILLED, _TIGHT = (Fit.KILLED.value, Fit.WAS_KILLED.value), (Fit.TIGHT.value, Fit.OUTSIDE.value)
_CPU_STATES = ("failed", "pending", "waiting", "unplaced", "observed", "unpinned", "held")
"""The worst first."""
_LONGEST = 24
_SINCE_MS = 1000


@dataclass(frozen=True, slots=True)
class PodCell:
    """What a pod has of one promise. `part` is used of the limit, 0 to 1; None where there is no such bar."""

    text: str
    part: float | None = None
    tone: str = ""
    """attention or bad; empty for neither."""


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod. `state` is what is wrong with it (codes of conditions), else how its promises stand."""

    namespace: str
    pod: str
    state: str = ""
    tone: str = ""
    cells: Mapping[str, PodCell] = field(default_factory=dict)
    """By column."""

    @property
    def name(self) -> str:
        """NAMESPACE/POD; the UID alone of a pod of which nothing else is known."""
        return f"{self.namespace}/{self.pod}" if self.namespace else self.pod

    def has_state(self, words: Collection[str]) -> bool:
        """Whether one of these words is in `state`."""
        return any(word in words for word in self.state.split(", "))


def columns(rows: Iterable[PodRow]) -> tuple[str, ...]:
    """The columns that some row has, in order."""
    there = dict.fromkeys(name for row in rows for name in row.cells)
    last = [name for name in (CPUS, KEYS, VM, GATE) if name in there]
    return (*(name for name in there if name not in last), *last)


def is_at_work(cpus: CpusView | None) -> bool:
    """Whether a CPU policy is in force, or newer settings of one were refused."""
    return cpus is not None and (cpus.policy not in NO_POLICY or bool(cpus.refused))


def pod_rows(view: NodeView) -> tuple[PodRow, ...]:
    """The pods that any feature knows: those with a condition first, then those whose state is most urgent, then by
    name."""
    wrong = (view.verdict or verdict(view)).pods
    found = dict[tuple[str, str], _Pod]()

    def pod(namespace: str, name: str) -> _Pod:
        return found.setdefault((namespace, name), _Pod())

    for row in view.rows:
        pod(row.namespace, row.pod).cgroups.append(row)
    if view.cpus is not None and is_at_work(view.cpus):
        for holder in view.cpus.holders:
            pod(holder.namespace, holder.pod).cpus.append(holder)
    for kind in view.keys:
        for key_holder in kind.holders:
            pod(key_holder.namespace, key_holder.pod or key_holder.uid).keys.append((kind, key_holder))
    for vm in view.sandboxes.rows if view.sandboxes is not None else ():
        pod(vm.namespace, vm.pod or vm.id).vms.append(vm)
    for gate in view.gates.rows if view.gates is not None else ():
        pod(gate.namespace, gate.pod).gate = PodCell(
            f"{gate.verdict.lower()}: {gate.why}" if gate.why else gate.verdict.lower(), tone=ATTENTION * bool(gate.why)
        )
    rank = {name: place for place, name in enumerate(wrong)}
    counted = [kind.key for kind in view.keys]
    rows = list[tuple[tuple[int, int, Natural, Natural], PodRow]]()
    for (namespace, name), one in found.items():
        state = one.state(view.mode)
        told = wrong.get(f"{namespace}/{name}" if namespace else name, ())
        codes = ", ".join(dict.fromkeys(condition.code for condition in told))
        tone = _TONES[told[0].severity] if told else BAD if state in _BAD else ATTENTION * (urgency(state) < _GOOD)
        made = PodRow(namespace, name, codes or state, tone, dict(one.cells(counted)))
        rows.append(((rank.get(made.name, len(rank)), urgency(state), natural(namespace), natural(name)), made))
    return tuple(row for _, row in sorted(rows, key=lambda one: one[0]))


_GOOD = urgency("enforced")


@dataclass(slots=True)
class _Pod:
    """What each feature knows of a pod."""

    cgroups: list[CgroupRow] = field(default_factory=list)
    cpus: list[CpuHolderRow] = field(default_factory=list)
    keys: list[tuple[KeyRow, KeyHolder]] = field(default_factory=list)
    vms: list[SandboxRow] = field(default_factory=list)
    gate: PodCell | None = None

    def state(self, mode: str) -> str:
        """How its promises stand, where no condition says more."""
        told = [one.state or row.state for row in self.cgroups for one in row.resources if not one.is_idle]
        told += [row.state for row in self.cgroups if urgency(row.state) < _GOOD]
        worst = min(told, key=urgency, default="")
        if worst and worst != "unmanaged":
            return worst
        states = [holder.state or holder.kind for holder in self.cpus]
        if there := [state for state in _CPU_STATES if state in states]:
            return "pinned" if there[0] == "held" else there[0]
        if self.keys:
            return "counted"
        if worst:
            return "observed" if mode == Mode.OBSERVE.value else "no limit"
        return max(self.vms, key=_worse).fit.fit if self.vms else ""

    def cells(self, counted: Iterable[str]) -> Iterator[tuple[str, PodCell]]:
        """Its cells; a resource that is counted as keys has no column of its own."""
        of = {name: parts for name, parts in self._resources().items() if name not in counted}
        for name, parts in of.items():
            yield _TITLES.get(name, name), _amounts(name, parts)
        if self.cpus:
            yield CPUS, _cpus(self.cpus)
        if self.keys:
            yield KEYS, PodCell(", ".join(_keys(kind, holder) for kind, holder in self.keys))
        if self.vms:
            yield VM, _vm(self.vms)
        if self.gate is not None:
            yield GATE, self.gate

    def _resources(self) -> dict[str, list[ResourceRow]]:
        """Its resources: the pod's own, or those of its containers where the pod's are not there."""
        own = [one for row in self.cgroups if row.level == "pod" for one in row.resources if not one.is_idle]
        names = [one.resource for one in own]
        rest = [
            one
            for row in self.cgroups
            if row.level != "pod"
            for one in row.resources
            if not one.is_idle and one.resource not in names
        ]
        found = dict[str, list[ResourceRow]]()
        for one in (*own, *rest):
            found.setdefault(one.resource, []).append(one)
        return found


def _amounts(name: str, parts: Sequence[ResourceRow]) -> PodCell:
    """Used of the limit: that of the kernel, or in brackets what is wanted and not there."""
    used, limit, wanted = (_sum(getattr(one, what) for one in parts) for what in ("usage", "limit", "wanted"))
    of = amount(name, limit) if limit is not None else "no limit" if wanted is None else f"({amount(name, wanted)})"
    refused = sum(one.refusals or 0 for one in parts)
    text = f"{amount(name, used)} / {of}" + (f", {refused} refused" if refused else "")
    part = min(1.0, used / limit) if used is not None and limit else None
    return PodCell(text, None if part is None else round(part, 3), ATTENTION if refused else "")


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(one for one in known if one is not None)


def cpu_word(row: CpuHolderRow) -> str:
    """A container's CPUs: its own, the pool that it shares, or how else it stands; `?` while the kernel does not say
    so yet."""
    return ("+".join(part for part in (_short(row.own), row.pool) if part) or row.kind) + _open(row)


def _cpus(holders: Sequence[CpuHolderRow]) -> PodCell:
    parts = dict.fromkeys(part for holder in sorted(holders, key=lambda row: not row.own) for part in _parts(holder))
    return PodCell(", ".join(parts), tone=BAD if any(one.error for one in holders) else "")


def _parts(holder: CpuHolderRow) -> Iterator[str]:
    """A container's own CPUs, since when, and the pool that it shares."""
    if holder.own:
        for_ms = holder.for_ms or 0
        since = f" for {age_text(for_ms)}" if for_ms >= _SINCE_MS else ""
        yield f"{_short(holder.own)} own{_open(holder)}{since}"
    if holder.pool:
        yield f"pool {holder.pool}{_open(holder)}"
    if not holder.own and not holder.pool:
        yield f"{holder.kind}{_open(holder)}"


def _short(cpus: str) -> str:
    return cpus if len(cpus) <= _LONGEST else f"{cpus[: _LONGEST - 1]}…"


def _open(holder: CpuHolderRow) -> str:
    """A mark while the kernel does not say so yet."""
    return "?" if holder.state in ("pending", "failed") else ""


def _keys(kind: KeyRow, holder: KeyHolder) -> str:
    ids = f" ({', '.join(holder.ids)})" if holder.ids else ""
    taken = "" if holder.charged is None or holder.charged >= holder.entitled else f", {holder.charged} taken"
    return f"{holder.entitled} {kind.key}{ids}{taken}{', ended' if holder.gone else ''}"


def _vm(vms: Sequence[SandboxRow]) -> PodCell:
    worst = max(vms, key=_worse)
    size = "" if worst.vm_memory is None else f", {size_text(worst.vm_memory)}"
    more = f" (of {len(vms)} VMs)" if len(vms) > 1 else ""
    fit = worst.fit
    taken = (fit.vm or 0) + (fit.overhead or 0) + (fit.beside or 0)
    part = round(min(1.0, taken / fit.limit), 3) if fit.limit and fit.limit > 0 and taken else None
    return PodCell(f"{fit.fit}{size}{more}", part, _tone(worst))


_BY_TONE = ("", ATTENTION, BAD)


def _worse(row: SandboxRow) -> tuple[int, int]:
    return _BY_TONE.index(_tone(row)), row.vm_memory or 0


def _tone(row: SandboxRow) -> str:
    if row.fit.fit in _KILLED:
        return BAD
    return ATTENTION if row.fit.fit in _TIGHT or any(one.is_fault for one in row.drifts) else ""


# ---- which pods and cgroups are shown, in which order


def chosen_pods(
    view: NodeView, namespace: str | None = None, states: Collection[str] = (), pod: str | None = None
) -> tuple[PodRow, ...]:
    """The pods of a namespace, with one of these states in their row or in a cgroup, of a name (POD, NAMESPACE/POD)."""
    left = dict.fromkeys(pod_name(row) for row in view.rows if row.state in states)
    return tuple(
        row
        for row in pod_rows(view)
        if (namespace is None or row.namespace == namespace)
        and (pod is None or pod in (row.pod, row.name))
        and (not states or row.name in left or row.has_state(states))
    )


_NUMBERS = re.compile(r"([0-9]+)", re.ASCII)
_MOST_DIGITS = 100
Natural = tuple[tuple[int, str], ...]


def taken_by_pods(rows: Iterable[CgroupRow], resources: Iterable[str]) -> dict[str, int]:
    """Of each resource what pods were promised or use, of each pod whichever is more."""
    taken = dict.fromkeys(resources, 0)
    for part in (part for row in rows if row.level == "pod" for part in row.resources if part.resource in taken):
        taken[part.resource] += max(part.wanted or 0, part.usage or 0)
    return taken


def natural(name: str) -> Natural:
    """A key that sorts the numbers in a name by value."""
    return tuple(
        (int(piece[:_MOST_DIGITS]), piece) if place % 2 else (0, piece)
        for place, piece in enumerate(_NUMBERS.split(name))
    )


def chosen(
    rows: Iterable[CgroupRow],
    namespace: str | None = None,
    states: Iterable[str] = (),
    pod: str | None = None,
    first: Collection[str] = (),
    pods: Iterable[PodRow] = (),
) -> tuple[CgroupRow, ...]:
    """The rows of a namespace, of these states, of a pod (its name, or NAMESPACE/POD), in the order for people. Of
    those of `pods` that have such a state as a whole, all rows."""
    wanted = tuple(states)
    whole = dict.fromkeys(row.name for row in pods if row.has_state(wanted))
    rows = (
        row
        for row in rows
        if (namespace is None or row.namespace == namespace)
        and (not wanted or row.state in wanted or pod_name(row) in whole)
        and (pod is None or pod in (row.pod, pod_name(row)))
    )
    return ordered(rows, first)


def ordered(rows: Iterable[CgroupRow], first: Collection[str] = ()) -> tuple[CgroupRow, ...]:
    """The pods named in `first` (`Verdict.pods`) in that order, then those with the most urgent state; in each pod its
    own row, then its containers."""
    rank = {name: place for place, name in enumerate(first)}
    pods: dict[tuple[str, str], list[CgroupRow]] = {}
    for row in rows:
        pods.setdefault((row.namespace, row.pod), []).append(row)
    in_order = sorted(
        pods.items(),
        key=lambda one: (
            rank.get(pod_name(one[1][0]), len(rank)),
            min(urgency(row.state) for row in one[1]),
            natural(one[0][0]),
            natural(one[0][1]),
        ),
    )
    return tuple(
        row
        for _, of_pod in in_order
        for row in sorted(of_pod, key=lambda row: (row.level != "pod", urgency(row.state), natural(row.container)))
    )
