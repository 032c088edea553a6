"""Every way in which kubelet's Pods API can fall silent, against the engine: what was promised by its word stands.

A node has one key, which a pod of Kata's was promised: only the Pods API tells of it, since there is no API server.
The API is absent or hangs, for as long as it likes, and comes back; kubelet is killed and begins anew, with a Pods API
or without one; the pod gets its sandbox, its VM begins, it ends. At each moment somebody else asks for the key.

Taken for granted: a kubelet that has a Pods API serves it, and one that has none has given each pod its sandbox,
LATE ticks of two seconds after it has begun to read our list at most. It is closed, so nothing is bounded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from nodeward.engine.ledger.device_ids import GROW_NS, id_name
from nodeward.engine.ledger.pods_api_loss import GONE_NS, restarts
from nodeward.model import events as ev
from nodeward.model.tee import PluginStanding
from nodeward.model.workload import PodSpec
from tests.unit.engine.build import SECOND, sandbox
from tests.unit.engine.ledger.asking import TDX, Node, kata
from tests.unit.engine.ledger.walk import copied, worlds

TICK_S = 2
LATE = GONE_NS // SECOND // TICK_S - 2
BARE, BOXED, RUNS, ENDED = range(4)
"""The pod: admitted; has its sandbox; its VM has the key; has ended."""
UP, ABSENT, HANGS = range(3)


class Truth(NamedTuple):
    """What is so, whoever knows it."""

    stage: int = BARE
    api: int = UP
    has_api: bool = True
    """Whether this kubelet serves one at all."""
    serves: bool = True
    """Whether it reads our list."""
    anew_for: int = LATE
    """Ticks since it began to; for a kubelet whose API was there since, as many as matter."""


@dataclass
class Found:
    """What came out."""

    worlds: int = 0
    granted: int = 0
    unsafe: int = 0
    without: int = 0
    """Grants after kubelet had begun anew without its Pods API."""


def explore(*, until_unsafe: bool = False) -> Found:
    """Plays all of it; with `until_unsafe` it ends at the first that is wrong."""
    found = Found()
    for truth, node in worlds((Truth(), _node()), lambda world: _steps(*world), lambda world: _key(*world)):
        found.worlds += 1
        if copied(node).allocate(id_name("tdx", 0)) == "":
            found.granted += 1
            found.without += not truth.has_api
            found.unsafe += truth.stage != ENDED
        if until_unsafe and found.unsafe:
            break
    return found


def _node() -> Node:
    """Beside the pod another one runs that asks for nothing, so that the runtime is known to tell of sandboxes."""
    node = Node(capacity={"tdx": 1})
    node.tell(ev.PluginTold(TDX, PluginStanding.SERVING))
    node.tell(ev.GrantsRecalled({}))
    node.tell(ev.SandboxStarted(sandbox("other")))
    node.of_kubelet = (kata("k").pod,)
    node.views(6)
    node.sample()
    return node


def _key(truth: Truth, node: Node) -> object:
    """What is so, and what the engine remembers that can matter."""
    ledger = node.state.ledger
    offer, told = ledger.offers["tdx"], ledger.of_kubelet
    growing = min(node.at_ns - offer.grow_since_ns, GROW_NS) if offer.grow_to else 0
    return (
        *(truth, told is not None and len(told.pods), ledger.of_kubelet_fault, ledger.of_kubelet_absent),
        *(ledger.without_api_ns, restarts(ledger) > ledger.of_kubelet_restarts, ledger.held_awake_ns),
        *(offer.published, offer.grow_to, growing, node.root, tuple(node.state.pods.sandbox_of)),
    )


def _steps(truth: Truth, node: Node) -> Iterator[tuple[Truth, Node]]:
    waits = truth.serves and (truth.api != UP if truth.has_api else truth.stage == BARE)
    if not (waits and truth.anew_for == LATE - 1):
        other = copied(node)
        other.of_kubelet = _pods(truth) if truth.api == UP else None
        other.after(TICK_S)
        other.view()
        other.sample()
        anew_for = min(truth.anew_for + 1, LATE) if truth.serves else truth.anew_for
        yield truth._replace(anew_for=anew_for), other
    yield from _of_kubelet(truth, node)
    yield from _of_pod(truth, node)


def _pods(truth: Truth) -> tuple[PodSpec, ...]:
    return () if truth.stage == ENDED else (kata("k").pod,)


def _of_kubelet(truth: Truth, node: Node) -> Iterator[tuple[Truth, Node]]:
    restarted = max(restarts(node.state.ledger), 0)
    for api, fault in ((ABSENT, "no socket"), (HANGS, "hangs")):
        if truth.api == UP:
            other = copied(node)
            other.tell(ev.PodsOfKubelet(other.state.seq, fault=fault, absent=api == ABSENT))
            yield truth._replace(api=api), other
    if truth.api != UP and truth.has_api and truth.serves:
        other = copied(node)
        other.tell(ev.PodsOfKubelet(other.state.seq, _pods(truth)))
        yield truth._replace(api=UP, anew_for=LATE), other
    if truth.serves:
        for has_api in (True, False):
            other = copied(node)
            other.tell(ev.PluginTold(TDX, PluginStanding.WAITING, "kubelet is gone", restarted))
            other.tell(ev.PodsOfKubelet(other.state.seq, fault="no socket", absent=True))
            yield truth._replace(api=ABSENT, has_api=has_api, serves=False, anew_for=0), other
    else:
        other = copied(node)
        other.tell(ev.PluginTold(TDX, PluginStanding.SERVING, restarts=restarted + 1))
        yield truth._replace(serves=True, anew_for=0), other


def _of_pod(truth: Truth, node: Node) -> Iterator[tuple[Truth, Node]]:
    other = copied(node)
    if truth.stage == BARE and truth.serves:
        other.tell(ev.SandboxStarted(sandbox("k")))
        yield truth._replace(stage=BOXED), other
    elif truth.stage == BOXED:
        other.root, other.charged = 1, {"k": 1}
        yield truth._replace(stage=RUNS), other
    if truth.stage in (BOXED, RUNS):
        over = copied(node)
        over.root, over.charged = 0, {}
        over.tell(ev.SandboxRemoved(sandbox("k")))
        yield truth._replace(stage=ENDED), over
