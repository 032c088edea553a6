"""Every way in which starts that were let through can end, against the whole engine: who may start beside them, and
when.

A node has two keys or three, and somebody foreign has one. Pod a, and with three keys pod c too, is let start by
kubelet's PreStartContainer, and pod b asks beside them at each moment. A start is under way from its yes until its VM
has a key, or its container has stopped. In between everything may come in any order: the runtime makes the container,
or fails; the VM begins and ends; the container stops and kubelet asks again; and the word of a stop comes late, after
the next container was let start. Pods end, are heard to have ended, and vanish from every view. A VM, or somebody
foreign, may take a key within the very sample by which b is answered.

What is taken for granted is said in ticks of two seconds: a container is made, and a stop told, LATE ticks after it
at most. It is closed, so nothing is bounded: worlds in which the same is true and the engine remembers the same are
one, and pods a and c are interchangeable.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

from nodeward.core import events as ev
from nodeward.core.workload import Container, ContainerId, PodUid
from nodeward.features.keys.device_ids import SETTLE_NS, id_name
from tests.unit.features.build import container, sandbox
from tests.unit.features.keys.asking import TDX, Node, launcher
from tests.unit.features.keys.walk import copied, worlds

NAMES = ("a", "c")
ID = [id_name("tdx", number) for number in range(3)]
"""One each of pods a and c, as far as there are, and the last one is b's."""
TICK_S, LATE = 2, 2
ASKS, LET, THERE, RUNS, IDLE, OVER, GONE = range(7)
"""A pod: kubelet is to ask for its start; it was told yes; its container is there; its VM has a key; had one. The pod
has ended; is gone from every view."""
TOLD = -1


class Truth(NamedTuple):
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


Pods = tuple[Truth, ...]
World = tuple[Pods, Node]


@dataclass
class Found:
    worlds: int = 0
    let: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """How often b was let start, by the stages of the pods beside it."""
    unsafe: int = 0
    """How often though there was no key for it beside what was under way."""


def explore(size: int = 2, *, until_unsafe: bool = False, dies: bool = False) -> Found:
    """Plays all of it on a node with so many keys; with `until_unsafe` it ends at the first that is wrong. With `dies`
    the daemon starts again at any moment, with what is on record, in the runtime and in kubelet's checkpoint."""
    found, lives = Found(), set[Pods]()

    def steps(world: World) -> Iterator[World]:
        pods, node = world
        taken = node.root + sum(truth.under_way for truth in pods)
        asked = copied(node)
        if asked.start(ID[len(pods)]):
            yield pods, asked
        else:
            found.let[tuple(sorted(truth.stage for truth in pods))] += 1
            found.unsafe += taken + 1 > size
        begins = [({name: 1}, 0) for name, truth in zip(NAMES, pods, strict=False) if truth.stage == THERE]
        for late, foreign in [*begins, ({}, 1)] if node.root < size else ():  # while the sample for b is read
            asked = copied(node)
            asked.late, asked.root_late = late, foreign
            found.unsafe += asked.start(ID[len(pods)]) == "" and taken + foreign + 1 > size
        yield from _steps(pods, node)
        said = tuple(sorted(truth._replace(late=TOLD, which=0) for truth in pods))
        if dies and said not in lives:  # nothing else tells what the next life knows
            lives.add(said)
            for amount in range(len(pods) + 1):
                yield from (_died(pods, node, unnamed) for unnamed in combinations(NAMES[: len(pods)], amount))

    for _ in worlds(((Truth(),) * (size - 1), _node(size)), steps, lambda world: _key(*world)):
        if until_unsafe and found.unsafe:
            break
        found.worlds += 1
    return found


def _node(size: int) -> Node:
    node = Node(capacity={"tdx": size}).begin()
    for number, name in enumerate((*NAMES[: size - 1], "b")):
        assert node.admit(name, ID[number]) == ""
    node.root = 1
    node.views(8)
    node.sample()
    return node


def _key(pods: Pods, node: Node) -> object:
    """What is so, and what the engine remembers that can matter, of each pod: no start looks at what is granted. Ages
    are cut where they matter no more, and of two containers only which is the newer one is told."""
    each = []
    for name, truth in zip(NAMES, pods, strict=False):
        alike = truth._replace(number=0, which=truth.which ^ truth.number if truth.late != TOLD else 0)
        each.append((alike, _known(name, node, truth.number)))
    return tuple(sorted(each)), _known("b", node)


def _known(name: str, node: Node, newest: int = 0) -> tuple[object, ...]:
    offer, of_pods, uid = node.state.keys.offers["tdx"], node.state.pods, PodUid(name)
    stopped_ns = offer.stopped_ns.get(uid)
    containers = [_one(name, number).id in of_pods.containers for number in (newest, 1 - newest)]
    return (
        *(uid in offer.passed, -1 if stopped_ns is None else min(node.at_ns - stopped_ns, SETTLE_NS)),
        *(offer.unseen_ns.get(uid, -1), *containers, uid in of_pods.sandbox_of, uid in offer.held, uid in offer.over),
    )


def _one(name: str, number: int) -> Container:
    return replace(container(name, "compute"), id=ContainerId(f"{name}-compute-{number}"))


def _steps(pods: Pods, node: Node) -> Iterator[World]:
    """What may come next, and what the engine has been told by then."""
    if all(one.late < LATE and not (one.stage == LET and one.let_for == LATE) for one in pods):
        other = copied(node)
        other.after(TICK_S)
        other.view()
        other.sample()
        yield tuple(_later(truth) for truth in pods), other
    for at, (name, truth) in enumerate(zip(NAMES, pods, strict=False)):
        for after, other in _of(name, ID[at], truth, node):
            yield (*pods[:at], after, *pods[at + 1 :]), other


def _later(truth: Truth) -> Truth:
    late = truth.late if truth.late == TOLD else truth.late + 1
    return truth._replace(late=late, let_for=truth.let_for + 1 if truth.stage == LET else 0)


def _of(name: str, own: str, truth: Truth, node: Node) -> Iterator[tuple[Truth, Node]]:
    if truth.late != TOLD:
        other = copied(node)
        other.tell(ev.Stopped(sandbox(name), _one(name, truth.which)))
        yield truth._replace(late=TOLD, which=0), other
    yield from _of_container(name, own, truth, node)
    yield from _of_pod(name, truth, node)


def _died(pods: Pods, old: Node, unnamed: tuple[str, ...]) -> World:
    """What has stopped before that nobody tells of any more: it is not in the runtime's list. Where there are pods that
    are `unnamed`, the checkpoint is torn at first, and PodResources tells of all but these until it can be read."""
    node = Node(capacity=old.capacity, at_ns=old.at_ns, root=old.root)
    node.charged, node.held = dict(old.charged), dict(old.held)
    node.tell(ev.ApiBack())
    truths = dict(zip(NAMES, pods, strict=False))
    for uid in (*truths, "b"):
        truth = truths.get(uid)
        if truth is None or truth.stage != GONE:
            node.tell(launcher(uid, terminal=truth is not None and truth.heard))
            node.tell(ev.SandboxStarted(sandbox(uid)))
    for uid, truth in truths.items():
        if truth.stage in (THERE, RUNS, IDLE):
            node.tell(ev.Created(sandbox(uid), _one(uid, truth.number)))
    node.tell(ev.GrantsRecalled({TDX: {name: 1 for uid, names in old.held.items() for name in names}}))
    if unnamed:
        node.held_fault = "torn"
        node.beside = {uid: names for uid, names in old.held.items() if uid not in unnamed}
        node.view()
        node.held_fault = ""
    node.view()
    node.sample()
    return tuple(truth._replace(late=TOLD, which=0) for truth in pods), node


def _of_container(name: str, own: str, truth: Truth, node: Node) -> Iterator[tuple[Truth, Node]]:
    other = copied(node)
    match truth.stage:
        case 0:  # ASKS
            refused = other.start(own)
            yield truth if refused else truth._replace(stage=LET, let_for=0), other
        case 1:  # LET
            number = 1 - truth.number
            other.tell(ev.Created(sandbox(name), _one(name, number)))
            yield truth._replace(stage=THERE, number=number, let_for=0), other
            yield truth._replace(stage=ASKS, let_for=0), copied(node)  # it could not be made
        case 2 if node.root < node.capacity["tdx"]:  # THERE
            yield truth._replace(stage=RUNS), _charged(other, name, 1)
        case 3:  # RUNS
            yield truth._replace(stage=IDLE), _charged(other, name, 0)
    if truth.stage in (THERE, RUNS, IDLE) and truth.late == TOLD:
        other = _charged(copied(node), name, 0)
        yield truth._replace(stage=ASKS, late=0, which=truth.number), other


def _charged(node: Node, name: str, keys: int) -> Node:
    """The node, where the pod's VM holds so many, beside the foreign one."""
    node.charged.pop(name, None)
    node.charged.update({name: keys} if keys else {})
    node.root = 1 + len(node.charged)
    return node


def _of_pod(name: str, truth: Truth, node: Node) -> Iterator[tuple[Truth, Node]]:
    other = copied(node)
    if truth.stage == ASKS:
        yield truth._replace(stage=OVER), other
    elif truth.stage == OVER:
        if not truth.heard:
            other.tell(launcher(name, terminal=True))
            yield truth._replace(heard=True), other
        gone = copied(node)
        gone.held.pop(name)
        gone.tell(ev.PodGone(PodUid(name)))
        gone.tell(ev.SandboxRemoved(sandbox(name)))
        yield truth._replace(stage=GONE), gone
