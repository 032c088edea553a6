"""Makes the page's words and numbers from the picture of the node.

Promises: bounded (`MOST_PODS`, `MOST_SQUARES`), plain JSON values, no secret (the daemon's picture has none). Must not
ask anybody.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat

from nodeward.core.conditions import Condition, Verdict
from nodeward.core.finding import Finding
from nodeward.core.workload import SHORT_ID
from nodeward.features.cpus.rows import CpusView
from nodeward.features.keys.rows import KeyRow
from nodeward.features.limits.rows import CgroupRow, ResourceRow, pod_name
from nodeward.features.limits.words import amount
from nodeward.features.sandboxes.rows import SandboxRow
from nodeward.features.sandboxes.words import full_name
from nodeward.people.chosen import ordered
from nodeward.people.rows import NodeView
from nodeward.people.verdict import urgency, verdict

HISTORY = 600
"""Samples, one a second: ten minutes."""
SPARKS = 60
MOST_PODS = MOST_SQUARES = 2000


@dataclass(frozen=True, slots=True)
class Bar:
    """One resource of the node. None where it is not known. `texts` are the same numbers for people. `taken` is what
    pods were promised or use, whichever is more of each: `capacity - taken - outside` is `free`."""

    name: str
    capacity: int
    used: int | None
    promised: int
    outside: int | None
    texts: Mapping[str, str]
    taken: int
    history: tuple[Sequence[float], Sequence[int | None], Sequence[int]] = ((), (), ())
    """Seconds of the clock, used, promised."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cgroup's resource. `what` is what `explain` takes."""

    name: str
    what: str
    resource: str
    usage: str
    peak: str
    limit: str
    part: float
    """Usage by limit, 0 to 1; 0 without a limit."""
    state: str
    refused: int


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. `state` is its cgroups', or the codes of its conditions; `severity` that of the most urgent condition.
    `refused` has how many charges were refused in each of the last seconds."""

    name: str
    what: str
    state: str
    cells: tuple[Cell, ...]
    refused: tuple[int, ...] = ()
    severity: str = ""


@dataclass(frozen=True, slots=True)
class Square:
    """One TEE key id. `state`: free, withheld, granted, charged, draining, taken or outside."""

    id: str
    state: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Keys:
    """One kind of key."""

    key: str
    sentence: str
    squares: tuple[Square, ...]


@dataclass(frozen=True, slots=True)
class Cpu:
    """One CPU. `kind`: exclusive, shared, isolated or idle."""

    cpu: int
    kind: str
    who: str


@dataclass(frozen=True, slots=True)
class Core:
    cpus: tuple[Cpu, ...]


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """A NUMA node, and the socket that it is of."""

    node: int
    package: int
    cores: tuple[Core, ...]


@dataclass(frozen=True, slots=True)
class Cpus:
    """The machine. `pools` are sentences."""

    head: str
    nodes: tuple[MemoryNode, ...]
    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vm:
    """One VM sandbox."""

    name: str
    fit: str
    sentence: str
    part: float
    """What of the pod's limit its VMs and their overhead take, 0 to 1; 0 where that is not known."""
    drifts: tuple[str, ...]
    full_name: str
    """The name, with the sandbox's id where its pod has another VM."""


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it. `fault` says why it is old, empty for a new one."""

    level: str
    sentence: str
    head: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    pods: tuple[Pod, ...] = ()
    more_pods: int = 0
    keys: tuple[Keys, ...] = ()
    cpus: Cpus | None = None
    vms: tuple[Vm, ...] = ()
    findings: tuple[Finding, ...] = ()
    doctor: str = ""
    """When doctor looked, or why it does not."""
    fault: str = ""
    seq: int = 0


@dataclass(slots=True)
class Memory:
    """What was a moment ago: the last ten minutes of each resource, the last minute of refusals."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    used: dict[str, deque[int | None]] = field(default_factory=dict)
    promised: dict[str, deque[int]] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    sparks: dict[str, deque[int]] = field(default_factory=dict)

    def look(self, view: NodeView, now_s: float) -> None:
        """Takes in a view, one a second."""
        self.times.append(round(now_s, 1))
        for name in view.capacity:
            if name not in self.used:
                before = len(self.times) - 1
                self.used[name] = deque([None] * before, HISTORY)
                self.promised[name] = deque([0] * before, HISTORY)
            self.used[name].append(view.usage.get(name))
            self.promised[name].append(promised(view, name))
        for name in self.used.keys() - view.capacity.keys():
            del self.used[name], self.promised[name]
        now = {pod_name(row): _refusals(row) for row in view.rows if row.level == "pod"}
        for pod, count in now.items():
            more = max(0, count - self.refusals.get(pod, count))  # before the first look nothing is known
            if more or pod in self.sparks:
                self.sparks.setdefault(pod, deque(maxlen=SPARKS)).append(more)
        for pod in self.sparks.keys() - now.keys():
            del self.sparks[pod]
        self.refusals = now


def _kind(view: NodeView, resource: str) -> KeyRow | None:
    return next((one for one in view.keys if one.key == resource), None)


def promised(view: NodeView, resource: str) -> int:
    """What pods may take: their keys, or their budgets."""
    if (kind := _kind(view, resource)) is not None:
        return kind.entitled or 0
    pods = (one for row in view.rows if row.level == "pod" for one in row.resources if one.resource == resource)
    return sum(one.wanted for one in pods if one.wanted is not None)


def _taken_of(view: NodeView, resource: str) -> int:
    """What cannot be promised to others since pods were promised it, or use it: of each pod whichever is more."""
    pods = (one for row in view.rows if row.level == "pod" for one in row.resources if one.resource == resource)
    return sum(max(one.wanted or 0, one.usage or 0) for one in pods)


def picture(view: NodeView, memory: Memory, findings: Sequence[Finding], doctor: str) -> Picture:
    """The page's picture of this view."""
    said = view.verdict or verdict(view)
    pods = _pods(view.rows, memory, said)
    return Picture(
        said.level.value,
        said.sentence,
        _head(view),
        tuple(_bar(view, name, memory) for name in view.capacity),
        pods[:MOST_PODS],
        max(0, len(pods) - MOST_PODS),
        tuple(_keys(row) for row in view.keys if row.capacity),
        _cpus(view.cpus) if view.cpus is not None and view.cpus.cpus else None,
        tuple(_vm(row) for row in view.sandboxes.rows) if view.sandboxes is not None else (),
        tuple(findings),
        doctor,
        seq=view.seq,
    )


def _head(view: NodeView) -> tuple[str, ...]:
    runtime = f"runtime {view.runtime}" if view.runtime not in ("", "off") else "runtime not connected"
    return (f"limits {view.mode}", runtime, f"API server {view.api}", f"event {view.seq}")


def _bar(view: NodeView, name: str, memory: Memory) -> Bar:
    capacity, used, outside, wanted = (
        view.capacity[name],
        view.usage.get(name),
        view.elsewhere.get(name),
        promised(view, name),
    )
    taken = _taken_of(view, name)
    left = None if outside is None else max(0, capacity - taken - outside)
    if (kind := _kind(view, name)) is not None:
        left = kind.free
        taken = taken if left is None else max(0, capacity - left - (outside or 0))
    texts = {
        "capacity": amount(name, capacity),
        "used": amount(name, used),
        "promised": amount(name, wanted),
        "free": amount(name, left),
        "outside": amount(name, outside),
    }
    history = (list(memory.times), list(memory.used.get(name, ())), list(memory.promised.get(name, ())))
    return Bar(name, capacity, used, wanted, outside, texts, taken, history)


def _pods(rows: Iterable[CgroupRow], memory: Memory, said: Verdict) -> tuple[Pod, ...]:
    by_pod: dict[str, list[CgroupRow]] = {}
    wrong = said.pods
    for row in ordered(rows, wrong):
        by_pod.setdefault(pod_name(row), []).append(row)
    return tuple(_pod(name, mine, memory, wrong.get(name, ())) for name, mine in by_pod.items())


def _pod(name: str, rows: Sequence[CgroupRow], memory: Memory, wrong: Sequence[Condition]) -> Pod:
    state = min((row.state for row in rows), key=urgency)
    urgent = wrong[0] if wrong else None
    cells = tuple(_cell(row, one) for row in rows for one in _told(row))
    refused = tuple(memory.sparks.get(name, ()))
    if urgent is None:
        return Pod(name, name, state, cells, refused)
    words = ", ".join(dict.fromkeys(one.code for one in wrong))
    return Pod(name, name, words, cells, refused, urgent.severity.value)


def _told(row: CgroupRow) -> Sequence[ResourceRow]:
    told = [one for one in row.resources if not one.is_idle]
    return told or row.resources[:1]


def _cell(row: CgroupRow, one: ResourceRow) -> Cell:
    name = "pod" if row.level == "pod" else row.container or row.id[:SHORT_ID]
    what = f"{pod_name(row)}/{row.container}" if row.container and row.namespace else row.id or pod_name(row)
    return Cell(
        name,
        what,
        one.resource,
        amount(one.resource, one.usage),
        amount(one.resource, one.peak),
        amount(one.resource, one.limit),
        min(1.0, one.usage / one.limit) if one.usage and one.limit else 0.0,
        one.state or row.state,
        one.refusals or 0,
    )


def _refusals(row: CgroupRow) -> int:
    return sum(one.refusals or 0 for one in row.resources)


def _keys(row: KeyRow) -> Keys:
    if row.ids:
        return Keys(row.key, row.sentence, tuple(Square(one.id, one.state, ", ".join(one.pods)) for one in row.ids))
    shown = min(row.capacity, MOST_SQUARES)
    taken = list(islice(_taken(row), shown))
    free = min(row.free or 0, shown - len(taken))
    kept = shown - len(taken) - free  # the reserve, or what is not known to be free
    squares = (*taken, *[Square(row.key, "withheld")] * kept, *[Square(row.key, "free")] * free)
    return Keys(row.key, row.sentence, squares)


def _taken(row: KeyRow) -> Iterator[Square]:
    """Where somebody else publishes them: who holds how many is known, not which."""
    for one in row.holders:
        for number in range(max(one.entitled, one.charged or 0)):
            state = "charged" if number < (one.charged or 0) else "granted"
            yield Square(f"{row.key} {number}", state, f"{one.namespace}/{one.pod}")
    for other in row.elsewhere:
        yield from repeat(Square(row.key, "outside", other.about or other.cgroup), other.amount)


def _cpus(view: CpusView) -> Cpus:
    by_node: dict[tuple[int, int], dict[int, list[Cpu]]] = {}
    for row in view.cpus:
        kind = "exclusive" if row.owner else "isolated" if row.isolated else "shared" if row.pools else "idle"
        who = row.owner or ", ".join(row.pools)
        cores = by_node.setdefault((row.package, row.node), {})
        cores.setdefault(row.core, []).append(Cpu(row.cpu, kind, who))
    nodes = tuple(
        MemoryNode(node, package, tuple(Core(tuple(cpus)) for cpus in cores.values()))
        for (package, node), cores in sorted(by_node.items())
    )
    head = f"policy {view.policy}, mode {view.mode}, by {view.driver}; CPUs {view.online} online"
    pools = tuple(
        f"{pool.name}: CPUs {pool.cpus or 'none'}, {len(pool.members)} container{'s' if len(pool.members) != 1 else ''}"
        + (f", lent {pool.lent}" if pool.lent else "")
        for pool in view.pools
    )
    return Cpus(head, nodes, pools)


def _vm(row: SandboxRow) -> Vm:
    fit = row.fit
    taken = (fit.vm or 0) + (fit.overhead or 0) + (fit.beside or 0)
    part = min(1.0, taken / fit.limit) if fit.limit and fit.limit > 0 else 0.0
    return Vm(row.name, fit.fit, fit.sentence, part, tuple(one.sentence for one in row.drifts), full_name(row))
