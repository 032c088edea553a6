"""What a decision of `keys` costs on a full node: 512 ids, 500 pods that each ask for a key, half of them running.

Processor time, of the whole of `apply`. An *Allocate* is all that is decided for one: the question, the sample that is
read for it, and the grant up to its record.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from bench.measure import median
from nodeward.core import events as ev
from nodeward.core.decision import Commit
from nodeward.core.modes import Mode
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid, Sandbox, SandboxId
from nodeward.features.all import apply
from nodeward.features.keys.device_ids import id_name
from nodeward.features.keys.settings import KeyKind, KeysSettings, Publisher
from nodeward.features.keys.state import Offer
from nodeward.features.keys.step import list_text
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings
from nodeward.neighbours.kubelet import mapping

TDX = "devices.kubevirt.io/tdx"
IDS, PODS, RUNNING = 512, 500, 250
ROUNDS = 60
GOAL_MS = 5
SECOND = 1_000_000_000


def run() -> None:
    """Milliseconds of a sample, a view, an Allocate and a list."""
    state = _node()
    figures = {
        "a sample's step": _ms(lambda: _told(state, _sample(state))),
        "a step, one VM more": _ms(lambda: _told(state, _sample(state, RUNNING + 1))),
        "a view's step": _ms(lambda: _told(state, _view(state))),
        "all steps of an Allocate": _ms(lambda: _allocated(state)),
        "an Allocate, one VM more": _ms(lambda: _allocated(state, RUNNING + 1)),
        "ListAndWatch, and its goal": _ms(lambda: _listed(replace(state.keys.offers["tdx"]))),
    }
    print(f"grants, {IDS} ids and {PODS} pods, ms of a core")
    for what, took in figures.items():
        print(f"  {what:26} {took:6.2f}   goal {GOAL_MS}")


def _listed(offer: Offer) -> bytes:
    """The list as it is on the wire; `offer` is one of which nothing is known yet."""
    return mapping.listed(mapping.devices(list_text(offer, "tdx")))


def _ms(work: Callable[[], object]) -> float:
    took = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        work()
        took.append((time.process_time_ns() - began) / 1e6)
    return median(took)


def _node() -> State:
    row = KeyKind((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)
    state = State(settings=EngineSettings(keys=KeysSettings(Mode.ENFORCE, {"tdx": row})))
    state = _told(_told(state, ev.ApiBack()), ev.GrantsRecalled())
    for number in range(PODS):
        uid, name = PodUid(f"pod-{number}"), f"vm-{number}"
        asks = (ContainerSpec("compute", declared={TDX: 1}),)
        state = _told(state, ev.PodSeen(PodSpec(uid, "shop", name, asks)))
        state = _told(state, ev.SandboxStarted(Sandbox(SandboxId(uid), uid, "shop", name)))
    state = _told(state, _view(state))
    for _ in range(3):
        state = _told(state, _sample(state), after_s=3)
    return state


def _told(state: State, event: ev.Event, after_s: int = 0) -> State:
    at_ns = state.at_ns + after_s * SECOND + 1
    return apply(state, replace(event, at_ns=at_ns, wall_ns=at_ns, seq=state.seq + 1))[0]


def _sample(state: State, running: int = RUNNING) -> ev.KeysRead:
    """With as many VMs as before the sample says what is known; with another number all sums are made anew."""
    held = {PodUid(f"pod-{number}"): {"tdx": (1, 1)} for number in range(running)}
    return ev.KeysRead(state.seq, {"tdx": IDS}, {"tdx": (running, running)}, held)


def _view(state: State) -> ev.KeysHeld:
    held = {PodUid(f"pod-{number}"): {TDX: (id_name("tdx", number),)} for number in range(RUNNING)}
    return ev.KeysHeld(state.seq, held)


def _allocated(state: State, running: int = RUNNING) -> None:
    question = ev.Allocating(TDX, (id_name("tdx", IDS - 1),), ask_id=1)
    state = _told(state, question)
    state = _told(state, _sample(state, running))
    at_ns = state.at_ns + 1
    _, decision = apply(state, ev.FactRead(1, at_ns=at_ns, wall_ns=at_ns, seq=state.seq + 1))
    if not isinstance(decision.answer, Commit):
        raise TypeError(f"not granted: {decision.answer}")
