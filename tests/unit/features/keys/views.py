"""Every way in which kubelet's own words come late, in part, or not at all, against the whole engine.

A node has one key or two for kubelet's pods a and b, which it admits with any id, where there are two keys also with
one for both; of three keys pod c has one, with an id of its own or with pod a's. It writes its checkpoint some time
after the answer, and forgets pods that have ended when it gives out the next device, or is asked by PodResources. A
read tells what was there when it began, however late it comes: so it may come after newer ones, name pods that have
ended, or leave out one that was just admitted. The checkpoint cannot be read at any moment, or for as long as it likes;
then PodResources is asked, which may be as late, and of whose pods only those count whose UID somebody has told. Or the
checkpoint's form is unknown, so that it can never be read; then PodResources leaves out pods without a sandbox as it
likes, as a kubelet does that has only just begun, and as it does with an ordinary init container's ids; and the Pods
API tells of them as late. The daemon dies at any moment, and starts again with its journal and the runtime's sandboxes.
At each moment somebody else asks for any id.

Taken for granted: kubelet has written down what it was answered LATE ticks of two seconds later at most, and an API
server that answers has told of its pods when kubelet admits them. Nothing else is bounded: worlds in which the same is
true and the engine remembers the same are one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple, TypeVar

from nodeward.core import events as ev
from nodeward.core.workload import PodUid
from nodeward.features.keys.device_ids import SETTLE_NS, id_name
from nodeward.features.keys.effects.grants import on_record
from nodeward.features.keys.kubelet_view import uid_of
from nodeward.features.keys.state import Grant
from tests.unit.features.build import sandbox
from tests.unit.features.keys.asking import TDX, Node, launcher
from tests.unit.features.keys.walk import copied, worlds

T = TypeVar("T")
NAMES = ("a", "b", "c")
ID = [id_name("tdx", number) for number in range(3)]
TICK_S, LATE = 2, 2
NEW, HAS, RUNS, ENDED, GONE = range(5)
"""A pod: not admitted; admitted; its VM has a key; has ended. Kubelet has forgotten it too."""
UNKNOWN = "its form is unknown"
SILENT, REMEMBERED, ANSWERS = range(3)
"""The API server tells of no pod as long as the daemon lives; the daemon has kept what it once told of pod a; it tells
of each pod."""
LIVES, KNOWN = (HAS, RUNS), (HAS, RUNS, ENDED)


class Truth(NamedTuple):
    """What is so, whoever knows it; of pods a, b and c each."""

    stages: tuple[int, ...] = (NEW, NEW, NEW)
    ids: tuple[int, ...] = (0, 0, 0)
    over: tuple[bool, ...] = (False, False, False)
    """Of which the API server has told that it has ended."""
    disk: tuple[bool, ...] = (False, False, False)
    """Which pods the checkpoint names."""
    unwritten: int = 0
    """Ticks since kubelet was answered what it has not written down."""

    @property
    def is_written(self) -> bool:
        """Whether the checkpoint names every pod that kubelet has."""
        return all(on for on, stage in zip(self.disk, self.stages, strict=True) if stage in LIVES)

    def named(self, stages: tuple[int, ...]) -> dict[str, tuple[str, ...]]:
        """The ids of the pods in one of these stages."""
        return {NAMES[pod]: (ID[self.ids[pod]],) for pod, stage in enumerate(self.stages) if stage in stages}


class Kind(NamedTuple):
    size: int
    """How many keys there are for its pods."""
    a: int = NEW
    """NEW: there is pod a alone. Else pod b comes and goes beside a, which runs all along (RUNS), or has ended (ENDED),
    though kubelet still names it."""
    api: int = ANSWERS
    beside: bool = False
    """Whether PodResources is asked while the checkpoint cannot be read."""
    late: bool = True
    """Whether reads take their time: those of PodResources where it is asked, else those of the checkpoint. Where the
    Pods API is asked beside a checkpoint that is read at once, its lists do."""
    dies: bool = True
    """Whether the daemon dies."""
    by_kubelet: bool = False
    """Whether pod a is known by kubelet's word alone at first, as after a boot."""
    loses: bool = False
    """Whether the journal is removed when the daemon dies."""
    form: bool = True
    """Whether the form of the checkpoint is known."""
    pods_api: bool = False
    """Whether kubelet's Pods API answers; there is no API server then."""
    c: int = NEW
    """NEW: there are two keys. Else three, and pod c runs beside a all along, or has ended, likewise."""
    c_id: int = 2
    """Its id: of its own, or the one that a has."""

    @property
    def moves(self) -> int:
        return int(self.a != NEW)

    @property
    def keys(self) -> int:
        """How many there are, with those that somebody foreign has."""
        return 2 + int(self.c != NEW)


class World(NamedTuple):
    truth: Truth
    node: Node
    kind: "Kind"
    read: ev.KeysHeld | None = None
    """What is under way to the daemon: the read of one of them."""
    listed: ev.PodsOfKubelet | None = None
    """Likewise a list of the Pods API."""


@dataclass
class Found:
    worlds: int = 0
    granted: int = 0
    unsafe: int = 0


def explore(kind: Kind, *, until_unsafe: bool = False) -> Found:
    """Plays all of it; with `until_unsafe` it ends at the first that is wrong."""
    found, known = Found(), dict[str, int]()
    for world in worlds(_first(kind), _steps, _key):
        found.worlds += 1
        alive = sum(stage in LIVES for stage in world.truth.stages)
        # the answer is the same whatever is under way to the daemon, and however long kubelet has yet to write
        alike = _key(world._replace(truth=world.truth._replace(unwritten=0), read=None, listed=None))
        if alike not in known:
            known[alike] = sum(_is_granted(world, name) for name in ID[: kind.keys])
        found.granted += known[alike]
        found.unsafe += known[alike] * (alive + 1 > kind.size)
        if until_unsafe and found.unsafe:
            break
    return found


def _is_granted(world: World, name: str) -> bool:
    """Whether somebody else would be given this id now."""
    node = _synced(world)
    before = _promised(node)
    return node.allocate(name) == "" and _promised(node) > before


def _first(kind: Kind) -> World:
    """There are two keys, or three, of which somebody foreign has what the pods do not have."""
    node, truth = Node(capacity={"tdx": kind.keys}, root=kind.keys - kind.size), Truth()
    if kind.by_kubelet:
        truth = Truth(stages=(HAS, NEW, NEW), disk=(True, False, False))
        node.held = truth.named(LIVES)
    _begins(node, truth, kind)
    node.tell(ev.GrantsRecalled({}))
    if not kind.form:
        node.held_fault, node.answered = UNKNOWN, True if kind.a else None
    node.view()
    world = World(truth, node.settle(), kind)
    return _beside_others(world) if kind.a else world


def _beside_others(world: World) -> World:
    """Pod a has run for long, and c; or it has ended since, and nobody has told."""
    node, kind = copied(world.node), world.kind
    ids = (0, 0, kind.c_id)
    there = {0: kind.a, 2: kind.c} if kind.c else {0: kind.a}
    for pod in there:
        assert node.admit(NAMES[pod], ID[ids[pod]]) == ""
        node.charged, node.root = {**node.charged, NAMES[pod]: 1}, node.root + 1
    node.beside = dict(node.held)
    node.views(8)
    for pod, stage in there.items():
        if stage == ENDED:
            node.charged.pop(NAMES[pod])
            node.root -= 1
            node.tell(ev.SandboxRemoved(sandbox(NAMES[pod])))
    disk = (True, False, 2 in there)
    return world._replace(truth=Truth(stages=(kind.a, NEW, kind.c), ids=ids, disk=disk), node=node.settle())


def _begins(node: Node, truth: Truth, kind: Kind) -> None:
    """What the daemon hears of pods when it begins."""
    if kind.api == REMEMBERED:
        node.tell(ev.PodsListed((launcher("a").pod,), as_of=0))
        node.tell(ev.ApiLost("not reached yet", since_wall_ns=1))
    elif kind.api == ANSWERS:
        node.tell(ev.ApiBack())
        node.tell(ev.PodsListed(tuple(launcher(name).pod for name in truth.named(KNOWN)), as_of=node.state.seq))


def _promised(node: Node) -> int:
    """How often ids are granted, where one that goes to its own pod again is not granted anew."""
    return sum(one.times for one in node.state.keys.offers["tdx"].grants.values())


def _put(row: tuple[T, ...], pod: int, value: T) -> tuple[T, ...]:
    return (*row[:pod], value, *row[pod + 1 :])


def _synced(world: World, *, torn: bool = False) -> Node:
    """The node, to be played on by itself, with what a read would find now."""
    truth, node = world.truth, copied(world.node)
    node.held = {NAMES[pod]: (ID[truth.ids[pod]],) for pod, on in enumerate(truth.disk) if on}
    node.held_fault = UNKNOWN if not world.kind.form else "torn" if torn else ""
    node.beside = {uid: ids for uid, ids in truth.named(LIVES).items() if _is_found(node, uid)}
    node.answered = None if world.kind.form else len(node.beside) == len(truth.named(LIVES))
    node.charged = dict.fromkeys(truth.named((RUNS,)), 1)
    node.root = len(node.charged) + (world.kind.keys - world.kind.size)
    return node


def _is_found(node: Node, name: str) -> bool:
    return uid_of(node.state, "shop", f"pod-{name}") == name


# ---- what may come next ----------------------------------------------------------------------------------------------


def _steps(world: World) -> Iterator[World]:
    truth = world.truth
    if truth.unwritten < LATE:
        node = _synced(world)
        node.after(TICK_S)
        node.sample()
        unwritten = 0 if truth.is_written else truth.unwritten + 1
        yield world._replace(truth=truth._replace(unwritten=unwritten), node=node)
    yield from _of_kubelet(world)
    yield from _of_reads(world)
    yield from _of_pods(world)
    yield from _of_api(world)
    if world.kind.dies:
        yield _died(world)


def _of_kubelet(world: World) -> Iterator[World]:
    truth = world.truth
    disk = tuple(stage in KNOWN for stage in truth.stages)
    if disk != truth.disk:
        yield world._replace(truth=truth._replace(disk=disk, unwritten=0))
    pod = world.kind.moves
    for number, torn in product(range(world.kind.keys if pod else 1), (False, True)):
        if truth.stages[pod] == NEW:
            node = _synced(world, torn=torn)
            if node.allocate(ID[number]) == "":
                if world.kind.api == ANSWERS:
                    node.tell(launcher(NAMES[pod]))
                stages, ids = _put(_forgotten(truth.stages), pod, HAS), _put(truth.ids, pod, number)
                yield world._replace(truth=truth._replace(stages=stages, ids=ids), node=node)


def _forgotten(stages: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(GONE if stage == ENDED else stage for stage in stages)


def _of_reads(world: World) -> Iterator[World]:
    """Reads of the checkpoint, and of PodResources."""
    kind, torn = world.kind, copied(world.node)
    torn.tell(ev.KeysHeld(torn.state.seq, fault="torn"))
    node = _synced(world)
    if not kind.form:
        if kind.pods_api:
            node.tell(_of_pods_api(world))
            yield world._replace(node=node)
    elif kind.beside or not kind.late:
        node.view()
        yield world._replace(node=node)
        yield world._replace(node=torn)
    elif world.read is None:
        pods = {PodUid(uid): {TDX: ids} for uid, ids in node.held.items()}
        yield world._replace(read=ev.KeysHeld(node.state.seq, pods, read_ns=node.at_ns))
    else:
        node.tell(world.read)
        yield world._replace(read=None, node=node)
        yield world._replace(read=None, node=torn)
    if kind.form and kind.pods_api:
        yield from _of_its_lists(world)
    if kind.beside:
        yield from _of_lists(world)


def _of_its_lists(world: World) -> Iterator[World]:
    """The Pods API beside the checkpoint: a pod that was deleted by force has gone from its lists at once."""
    if world.listed is not None:
        node = copied(world.node)
        node.tell(world.listed)
        yield world._replace(node=node, listed=None)
        return
    for stages in (KNOWN, LIVES):
        listed = world._replace(listed=_of_pods_api(world, stages))
        yield listed if not world.kind.late else next(_of_its_lists(listed))


def _of_pods_api(world: World, stages: tuple[int, ...] = KNOWN) -> ev.PodsOfKubelet:
    """What it says now: kubelet's pods, one that has ended for as long as kubelet has not forgotten it."""
    known = [(name, stage) for name, stage in zip(NAMES, world.truth.stages, strict=True) if stage in stages]
    pods = tuple(launcher(name, terminal=stage == ENDED).pod for name, stage in known)
    return ev.PodsOfKubelet(world.node.state.seq, pods)


def _of_lists(world: World) -> Iterator[World]:
    """Kubelet is asked by PodResources where the checkpoint cannot be read; what comes when it can again is dropped."""
    truth, node, read = world.truth, copied(world.node), world.read
    fault = node.state.keys.held_fault
    if read is None and fault:
        for stages in (LIVES,) if world.kind.form else (LIVES, (RUNS,)):
            pods = {PodUid(uid): {TDX: ids} for uid, ids in truth.named(stages).items()}
            read = ev.KeysHeld(node.state.seq, pods, fault=fault, read_ns=node.at_ns)
            after = truth._replace(stages=_forgotten(truth.stages))
            yield (
                _listed(world._replace(truth=after, read=read))
                if not world.kind.late
                else world._replace(truth=after, read=read)
            )
    elif read is not None:
        yield _listed(world)


def _listed(world: World) -> World:
    node, read = copied(world.node), world.read
    if read is not None and node.state.keys.held_fault:
        found = {uid: ids for uid, ids in read.pods.items() if _is_found(node, uid)}
        node.tell(replace(read, pods=found, answered=len(found) == len(read.pods)))
    return world._replace(read=None, node=node)


def _of_pods(world: World) -> Iterator[World]:
    truth = world.truth
    pod = world.kind.moves
    stage, name = truth.stages[pod], NAMES[pod]
    if stage == HAS and truth.stages.count(RUNS) < world.kind.size:
        node = copied(world.node)
        node.tell(ev.SandboxStarted(sandbox(name)))
        yield world._replace(truth=truth._replace(stages=_put(truth.stages, pod, RUNS)), node=node)
    if stage in LIVES:
        node = copied(world.node)
        if stage == RUNS:
            node.tell(ev.SandboxRemoved(sandbox(name)))
        yield world._replace(truth=truth._replace(stages=_put(truth.stages, pod, ENDED)), node=node)


def _of_api(world: World) -> Iterator[World]:
    truth = world.truth
    for pod, name in enumerate(NAMES):
        if world.kind.api == ANSWERS and truth.stages[pod] in (ENDED, GONE) and not truth.over[pod]:
            node = copied(world.node)
            node.tell(launcher(name, terminal=True) if truth.stages[pod] == ENDED else ev.PodGone(PodUid(name)))
            yield world._replace(truth=truth._replace(over=_put(truth.over, pod, True)), node=node)


def _died(world: World) -> World:
    """It starts again with its journal, and with the sandboxes that the runtime has."""
    truth, old = world.truth, world.node
    node = Node(capacity=old.capacity, at_ns=old.at_ns)
    for name in truth.named((RUNS,)):
        node.tell(ev.SandboxStarted(sandbox(name)))
    there = {} if world.kind.loses else {TDX: on_record(old.state).get(TDX, {})}
    node.tell(ev.GrantsRecalled(there, lost=world.kind.loses))
    _begins(node, truth, world.kind)
    if not world.kind.form:
        node.tell(ev.KeysHeld(node.state.seq, fault=UNKNOWN))
    over = tuple(stage == GONE for stage in truth.stages)
    return World(truth._replace(over=over), node, world.kind)


# ---- which worlds are one --------------------------------------------------------------------------------------------


def _key(world: World) -> str:
    """What is so, and what the engine remembers that can matter. A time matters to a grant that is young."""
    truth, node, read = world.truth, world.node, world.read
    keys, pods = node.state.keys, node.state.pods
    offer = keys.offers["tdx"]
    specs = sorted((uid, one.spec.terminal) for uid, one in pods.specs.items())
    of_some = keys.held is not None and any(uid not in pods.specs for uid in keys.held.pods)
    return repr(
        (
            *(truth, [_grant(name, one, world) for name, one in sorted(offer.grants.items())], offer.published),
            *(sorted(offer.held.items()), sorted(offer.over.items()), _pods(keys.held)),
            *(offer.grow_to and (offer.grow_to, node.at_ns - offer.grow_since_ns), of_some and keys.held_awake_ns),
            *(bool(keys.held_fault), keys.lists, pods.api_up, sorted(pods.sandbox_of), specs),
            *(keys.viewed, keys.held_whole, keys.list_answers),
            *(_said(said, keys.held) for said in (keys.of_kubelet, world.listed)),
            *(_pods(read), read and read.as_of >= keys.held_as_of, _loss(world)),
        )
    )


def _grant(name: str, one: Grant, world: World) -> object:
    """What is remembered of a grant, and whether views from now, or the one under way, can make it older."""
    node, read = world.node, world.read
    offer = node.state.keys.offers["tdx"]
    since_ns = max(one.at_ns, offer.viewed_ns)
    young = one.awake_ns < SETTLE_NS
    return (
        *(name, one.times, one.absent, sorted(one.had), one.recorded, one.awake_ns, offer.viewed_as_of >= one.seq),
        *(young and node.at_ns > since_ns, read and (read.as_of >= one.seq, young and read.read_ns > since_ns)),
    )


def _loss(world: World) -> object:
    """How far it is known again what was granted, and whether the view under way can tell the rest."""
    loss, read = world.node.state.keys.loss, world.read
    if loss is None or loss.over_seq:
        return loss is None
    is_sure = loss.sure_seq > 0
    return loss.awake_ns, world.node.at_ns - loss.heard_ns, is_sure and read and read.as_of >= loss.sure_seq, is_sure


def _said(said: ev.PodsOfKubelet | None, held: ev.KeysHeld | None) -> object:
    return said and (held and said.as_of >= held.seq, sorted((one.uid, one.terminal) for one in said.pods))


def _pods(said: ev.KeysHeld | None) -> object:
    return said and sorted((uid, ids[TDX]) for uid, ids in said.pods.items())
