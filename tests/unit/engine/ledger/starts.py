"""Every way in which a start that was let through can end, against the whole engine: who may start beside it, and when.

A node has two keys, and somebody foreign has one. Pod a is let start by kubelet's PreStartContainer, and pod b asks
beside it at each moment. A start is under way from its yes until its VM has a key, or its container has stopped. In
between everything may come in any order: the runtime makes the container, or fails; the VM begins and ends; the
container stops and kubelet asks again; and the word of a stop comes late, after the next container was let start. Pods
end, are heard to have ended, and vanish from every view.

What is taken for granted is said in ticks of two seconds: a container is made, and a stop told, LATE ticks after it at
most. It is closed, so nothing is bounded: worlds in which the same is true and the engine remembers the same are one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nodeward.engine.ledger.gate import SETTLE_NS, id_name
from nodeward.model import events as ev
from nodeward.model.workload import Container, ContainerId, PodUid
from tests.unit.engine.build import container, sandbox
from tests.unit.engine.ledger.asking import TDX, Node, launcher
from tests.unit.engine.ledger.walk import copied, worlds

A = PodUid("a")
ID = [id_name("tdx", number) for number in range(2)]
TICK_S, LATE = 2, 2
ASKS, LET, THERE, RUNS, IDLE, OVER, GONE = range(7)
"""Pod a: kubelet is to ask for its start; it was told yes; its container is there; its VM has a key; had one. The pod
has ended; is gone from every view."""
TOLD = -1


class Truth(NamedTuple):
    """What is so, whoever knows it."""

    stage: int = ASKS
    number: int = 0
    """Which container is the newest, in turns."""
    let_for: int = 0
    """Ticks since the yes."""
    late: int = TOLD
    """Ticks since a stop of which nobody has told yet, of the container `which`."""
    which: int = 0
    heard: bool = False
    """The daemon was told that the pod has ended."""

    @property
    def under_way(self) -> int:
        """Keys that a start may take at any moment."""
        return int(self.stage in (LET, THERE))


@dataclass
class Found:
    """What came out."""

    worlds: int = 0
    let: dict[int, int] = field(default_factory=dict)
    """How often b was let start, by the stage of a."""
    unsafe: int = 0
    """How often though there was no key for it beside what was under way."""


def explore(*, until_unsafe: bool = False, dies: bool = False) -> Found:
    """Plays all of it; with `until_unsafe` it ends at the first that is wrong. With `dies` the daemon starts again at
    any moment, with what is on record, in the runtime and in kubelet's checkpoint."""
    found = Found()

    def steps(world: tuple[Truth, Node]) -> Iterator[tuple[Truth, Node]]:
        yield from _steps(*world)
        if dies:
            yield _died(*world)
            yield _died(*world, torn=True)

    for truth, node in worlds((Truth(), _node()), steps, lambda world: _key(*world)):
        found.worlds += 1
        if copied(node).start(ID[1]) == "":
            found.let[truth.stage] = found.let.get(truth.stage, 0) + 1
            found.unsafe += node.root + truth.under_way + 1 > node.capacity["tdx"]
        if until_unsafe and found.unsafe:
            break
    return found


def _node() -> Node:
    node = Node(capacity={"tdx": 2}).begin()
    assert [node.admit("a", ID[0]), node.admit("b", ID[1])] == ["", ""]
    node.root = 1
    node.views(8)
    node.sample()
    return node


def _key(truth: Truth, node: Node) -> object:
    """What is so, and what the engine remembers that can matter; ages are cut where they matter no more."""
    offer, pods = node.state.ledger.offers["tdx"], node.state.pods
    ages = ((uid, min(node.at_ns - at_ns, SETTLE_NS)) for uid, at_ns in offer.stopped_ns.items())
    return (
        *(truth, tuple(offer.passed), tuple(ages), tuple(offer.unseen_ns.items()), tuple(pods.containers)),
        *(tuple(pods.sandbox_of), tuple(offer.held), tuple(offer.over), node.root, tuple(offer.grants)),
    )


def _one(number: int) -> Container:
    return replace(container("a", "compute"), id=ContainerId(f"a-compute-{number}"))


def _steps(truth: Truth, node: Node) -> Iterator[tuple[Truth, Node]]:
    """What may come next, and what the engine has been told by then."""
    in_time = truth.late < LATE and not (truth.stage == LET and truth.let_for == LATE)
    if in_time:
        other = copied(node)
        other.after(TICK_S)
        other.view()
        other.sample()
        late = truth.late if truth.late == TOLD else truth.late + 1
        yield truth._replace(late=late, let_for=truth.let_for + 1 if truth.stage == LET else 0), other
    if truth.late != TOLD:
        other = copied(node)
        other.tell(ev.Stopped(sandbox("a"), _one(truth.which)))
        yield truth._replace(late=TOLD, which=0), other
    yield from _of_container(truth, node)
    yield from _of_pod(truth, node)


def _died(truth: Truth, old: Node, *, torn: bool = False) -> tuple[Truth, Node]:
    """What has stopped before that nobody tells of any more: it is not in the runtime's list. Where the checkpoint is
    `torn` at first, PodResources tells of b alone until it can be read."""
    node = Node(capacity=old.capacity, at_ns=old.at_ns, root=old.root)
    node.charged, node.held = dict(old.charged), dict(old.held)
    node.tell(ev.ApiBack())
    for uid in ("a", "b") if truth.stage != GONE else ("b",):
        node.tell(launcher(uid, terminal=uid == "a" and truth.heard))
        node.tell(ev.SandboxStarted(sandbox(uid)))
    if truth.stage in (THERE, RUNS, IDLE):
        node.tell(ev.Created(sandbox("a"), _one(truth.number)))
    node.tell(ev.GrantsRecalled({TDX: {name: 1 for uid, names in old.held.items() for name in names}}))
    if torn:
        node.held_fault, node.beside = "torn", {"b": old.held["b"]}
        node.view()
        node.held_fault = ""
    node.view()
    node.sample()
    return truth._replace(late=TOLD, which=0), node


def _of_container(truth: Truth, node: Node) -> Iterator[tuple[Truth, Node]]:
    other = copied(node)
    match truth.stage:
        case 0 if other.start(ID[0]) == "":  # ASKS
            yield truth._replace(stage=LET, let_for=0), other
        case 1:  # LET
            number = 1 - truth.number
            other.tell(ev.Created(sandbox("a"), _one(number)))
            yield truth._replace(stage=THERE, number=number, let_for=0), other
            yield truth._replace(stage=ASKS, let_for=0), copied(node)  # it could not be made
        case 2 if node.root < 2:  # THERE
            other.charged, other.root = {"a": 1}, 2
            yield truth._replace(stage=RUNS), other
        case 3:  # RUNS
            other.charged, other.root = {}, 1
            yield truth._replace(stage=IDLE), other
    if truth.stage in (THERE, RUNS, IDLE) and truth.late == TOLD:
        other = copied(node)
        other.charged, other.root = {}, 1
        yield truth._replace(stage=ASKS, late=0, which=truth.number), other


def _of_pod(truth: Truth, node: Node) -> Iterator[tuple[Truth, Node]]:
    other = copied(node)
    if truth.stage == ASKS:
        yield truth._replace(stage=OVER), other
    elif truth.stage == OVER:
        if not truth.heard:
            other.tell(launcher("a", terminal=True))
            yield truth._replace(heard=True), other
        gone = copied(node)
        gone.held.pop("a")
        gone.tell(ev.PodGone(A))
        gone.tell(ev.SandboxRemoved(sandbox("a")))
        yield truth._replace(stage=GONE), gone
