"""Every history of a small node that sells its keys at two fronts: kubelet asks the device plugin, and the scheduler
gives out claims by a view of the slice that may be old. Each step is the production's own.

Kubelet takes an id that it was last offered; the scheduler allocates where the value that it last saw is more than what
claims consume; a claim is prepared, given up before that, or ends, and its pod may hold its key for a while longer;
somebody else takes a key and gives it back; the API server is ahead of the node after a forced deletion; the daemon
dies and comes back with what is on disk. Counted: keys that were promised and are not there, bound pods that wait for
a key, and pods that kubelet fails.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from nodeward.core import events as ev
from nodeward.core.claims import Allocated, Claim, ClaimUid, Promised
from nodeward.core.decision import Need
from nodeward.core.modes import Mode
from nodeward.core.workload import PodUid
from nodeward.features.keys.fronts import SEEN_NS, may_be_seen
from nodeward.features.keys.settings import ClaimSettings, KeyKind, KeysSettings, Publisher
from nodeward.features.keys.state import Sold
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from tests.unit.features.build import refusal
from tests.unit.features.keys.asking import TDX, Node
from tests.unit.features.keys.walk import copied, worlds

DRIVER = "tee.nodeward.io"
ROW = KeyKind((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)


def settings(share: str = "all", row: KeyKind = ROW, mode: Mode = Mode.ENFORCE) -> EngineSettings:
    return EngineSettings(keys=KeysSettings(Mode.ENFORCE, {"tdx": row}, dra=ClaimSettings(mode, share)))


def claim(uid: str, pod: str = "", **more: object) -> Claim:
    """A claim of one key, for a pod of the same name."""
    one = Allocated("key", "tdx", "n1", f"share-{uid}", {"keys": 1})
    made = Claim(ClaimUid(uid), "shop", f"claim-{uid}", (one,), {PodUid(pod or uid): f"pod-{pod or uid}"})
    return replace(made, **more)  # type: ignore[arg-type]


@dataclass
class Claimed(Node):
    """A node that gives keys by claim, too."""

    has: int | None = None
    """The value that the API server has; None before there was a slice."""

    def prepare(self, one: Claim) -> str:
        self.last_ask += 1
        decision = self.tell(ev.Preparing(DRIVER, one, ask_id=self.last_ask))
        if isinstance(decision.answer, Need):
            if not self.kernel_hangs:
                self.sample()
            decision = self.tell(ev.FactRead(self.last_ask))
        return refusal(decision)

    def unprepare(self, uid: str) -> None:
        self.tell(ev.Unprepared(DRIVER, ClaimUid(uid)))

    def recall(self, *claims: Promised, fault: str = "") -> "Claimed":
        self.tell(ev.ClaimsRecalled(DRIVER, claims, fault=fault))
        self.tell(ev.DriverTold(DRIVER, True))
        none = ev.SliceTold(DRIVER, first=True)
        self.tell(none if self.has is None else ev.SliceTold(DRIVER, {"tdx": self.has}))
        return self

    def device(self) -> tuple[int, bool]:
        """The capacity of the device in the slice, and whether it is withheld."""
        text = self.goals[f"keys-slice:{DRIVER}"].value
        assert isinstance(text, str)
        (one,) = json.loads(text)
        return int(one["capacity"]["keys"]["value"]), bool(one.get("taints"))

    def sells(self) -> int:
        """The value that is to be published."""
        value, withheld = self.device()
        return 0 if withheld else value

    def send(self) -> None:
        """The API server has it, and we have no answer yet."""
        sold = (self.state.keys.sold or {}).get("tdx", Sold())
        self.tell(ev.SliceTold(DRIVER, {"tdx": max(sold.value, self.sells())}))
        self.has = self.sells()

    def write(self) -> None:
        """The API server has it, and it was read back."""
        self.send()
        self.tell(ev.SliceTold(DRIVER, {"tdx": self.has or 0}))


def node(share: str = "all", keys: int = 4, row: KeyKind = ROW) -> Claimed:
    made = Claimed(State(settings=settings(share, row)), capacity={"tdx": keys})
    made.recall()
    made.begin()
    made.write()
    return made


@dataclass
class World:
    """The node, and what the scheduler and kubelet have in mind."""

    node: Claimed
    keys: int
    seen: int = 0
    """The value of the slice, as the scheduler saw it last."""
    allocated: tuple[str, ...] = ()
    """Claims that the API server has as allocated and the node has not prepared."""
    prepared: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    """Claims that were unprepared and are still allocated."""
    held: tuple[str, ...] = ()
    """Pods of claims that have ended and still hold their key."""
    foreign: int = 0
    made: int = 0
    way: tuple[str, ...] = ()

    def key(self) -> tuple[object, ...]:
        keys = self.node.state.keys
        offer, room = keys.offers["tdx"], keys.rooms["tdx"]
        granted = sum(one.times for one in offer.grants.values())
        mine = (granted, len(self.allocated), len(self.prepared), len(self.over), len(self.held), self.foreign)
        free = offer.published, room.published, self.node.sells(), self.seen, bool(offer.grow_to), bool(room.grow_to)
        api = self.node.has, may_be_seen(self.node.state, "tdx"), (keys.sold or {}).get("tdx", Sold()).value
        return mine + free + api + (len(keys.waiting), self.node.state.settings.keys.dra.share)

    @property
    def promised(self) -> int:
        offer = self.node.state.keys.offers["tdx"]
        granted = sum(one.times for one in offer.grants.values())
        return granted + len(self.prepared) + len(self.held) + self.foreign

    def kernel(self) -> None:
        """Puts into the counters what is held."""
        self.node.charged = dict.fromkeys(self.held, 1)
        self.node.root = len(self.held) + self.foreign


@dataclass
class Found:
    states: int = 0
    sold_twice: list[tuple[str, ...]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """`waits`: a bound pod whose claim is refused for now; `fails`: a pod that kubelet fails."""


ENOUGH = 3
"""Broken rules; what goes on from there has no end."""
Move = Callable[[World, Found], bool]
"""Changes the world; whether it could."""


def allocates(world: World, _: Found) -> bool:
    if world.seen <= len(world.allocated) + len(world.prepared) + len(world.over) or world.made > 6:
        return False
    world.made += 1
    world.allocated += (f"c{world.made}",)
    return True


def prepares(world: World, found: Found) -> bool:
    if not world.allocated:
        return False
    first, *rest = world.allocated
    if world.node.prepare(claim(first)):
        found.counts["waits"] += 1
        return True
    world.allocated, world.prepared = tuple(rest), (*world.prepared, first)
    return True


def gives_up(world: World, _: Found) -> bool:
    """The pod is deleted before its claim was prepared."""
    if not world.allocated:
        return False
    world.node.unprepare(world.allocated[0])
    world.allocated = world.allocated[1:]
    return True


def _ends(world: World, *, charged: bool, forced: bool) -> bool:
    if not world.prepared:
        return False
    first, *rest = world.prepared
    if charged:
        world.held += (first,)
        world.kernel()
        world.node.sample()
    world.prepared = tuple(rest)
    if not forced:
        world.over += (first,)
    world.node.unprepare(first)
    return True


def lets_go(world: World, _: Found) -> bool:
    """The kernel takes back the key of a pod that has ended."""
    if not world.held:
        return False
    world.held = world.held[1:]
    return True


def is_freed(world: World, _: Found) -> bool:
    """The controller frees a claim in the API server."""
    if not world.over:
        return False
    world.over = world.over[1:]
    return True


def writes(world: World, _: Found) -> bool:
    """The API server takes the slice as it is to be by now; nobody hears of it yet."""
    if world.node.has == world.node.sells():
        return False
    world.node.send()
    return True


def hears(world: World, _: Found) -> bool:
    """What the API server has is read back."""
    has, sold = world.node.has or 0, (world.node.state.keys.sold or {}).get("tdx", Sold())
    if sold.value == has:
        return False
    world.node.tell(ev.SliceTold(DRIVER, {"tdx": has}))
    return True


def sees(world: World, _: Found) -> bool:
    if world.seen == world.node.has:
        return False
    world.seen = world.node.has or 0
    return True


def passes(world: World, _: Found) -> bool:
    """So much time that the scheduler has seen the newest slice, and what it allocated before was prepared."""
    if world.seen != world.node.has or world.allocated or may_be_seen(world.node.state, "tdx") == world.node.has:
        return False
    world.node.after(SEEN_NS / 1e9)
    world.node.sample()
    return True


def asks(world: World, found: Found) -> bool:
    """Kubelet takes an id of the list, if one is healthy and given to nobody."""
    grants = world.node.state.keys.offers["tdx"].grants
    ready = [name for name, healthy in world.node.listed if healthy and not (name in grants and grants[name].times)]
    if not ready:
        return False
    if world.node.allocate(ready[0]):
        found.counts["fails"] += 1
    return True


def takes(world: World, _: Found) -> bool:
    if world.foreign or world.promised >= world.keys:
        return False
    world.foreign = 1
    return True


def gives(world: World, _: Found) -> bool:
    if not world.foreign:
        return False
    world.foreign = 0
    return True


def dies(world: World, _: Found) -> bool:
    """The daemon's next life, with its two files."""
    old = world.node.state
    granted = {name: one.recorded for name, one in old.keys.offers["tdx"].grants.items()}
    world.node.state = State(settings=old.settings, seq=old.seq)
    world.node.recall(*old.keys.claims.values())
    world.node.begin(granted)
    return True


def shared(share: str) -> Move:
    """The operator changes the share."""

    def move(world: World, _: Found) -> bool:
        if world.node.state.settings.keys.dra.share == share:
            return False
        world.node.tell(SettingsChanged(settings(share)))
        return True

    return move


def reads(world: World, _: Found) -> bool:
    world.node.after(2)
    world.node.sample()
    return True


def _moves(*, foreign: bool, share: str) -> dict[str, Move]:
    after = (lets_go, is_freed, asks, dies, *((takes, gives) if foreign else ()))
    return {
        **{one.__name__: one for one in (allocates, prepares, gives_up, sees, writes, hears)},
        "ends": lambda world, _: _ends(world, charged=False, forced=False),
        "ends, drains": lambda world, _: _ends(world, charged=True, forced=False),
        "is forced to end": lambda world, _: _ends(world, charged=True, forced=True),
        **{one.__name__: one for one in after},
        **({f"share {share}": shared(share), "passes": passes} if share else {}),
        "reads": reads,
    }


def explore(keys: int, share: str, *, foreign: bool = False, to: str = "") -> Found:
    """Plays every history; what was found. `to`: the share that the operator changes to at some time."""
    first = World(node(share, keys), keys)
    first.seen = first.node.sells()
    moves, found = _moves(foreign=foreign, share=to), Found()

    def steps(world: World) -> Iterator[World]:
        for name, move in moves.items():
            after = replace(world, node=copied(world.node), way=(*world.way, name))
            before = after.promised
            if move(after, found):
                after.kernel()
                if name in ("prepares", "asks") and after.promised > max(before, keys):
                    found.sold_twice.append(after.way)
                yield after

    for _ in worlds(first, steps, World.key):
        found.states += 1
        if len(found.sold_twice) >= ENOUGH:
            break
    return found
