"""How it stands with each id that kubelet is offered, and since when; for people and metrics. Nothing is decided."""

from collections.abc import Mapping
from itertools import chain

from nodeward.engine.ledger import sums
from nodeward.engine.ledger.gate import Offer, devices
from nodeward.engine.ledger.handed import home
from nodeward.engine.state import Ledger, State, Stood
from nodeward.model.tee import KeyState
from nodeward.model.view import KeyIdRow


def stood(state: State) -> Mapping[str, Mapping[str, Stood]]:
    """Each id of each kind with its state, and since when it has that; what is as it was is the same object."""
    before = state.ledger.stood
    found = {key: _of_kind(state, key, offer, before.get(key, {})) for key, offer in state.ledger.offers.items()}
    same = len(found) == len(before) and all(found[key] is before.get(key) for key in found)
    return before if same else found


def ids(state: State, key: str, now_ns: int) -> tuple[KeyIdRow, ...]:
    """Every id of the kind, with whose it is by kubelet's view."""
    offer = state.ledger.offers.get(key)
    if offer is None:
        return ()
    pods: dict[str, list[str]] = {}
    for uid, names in chain(offer.held.items(), offer.over.items()):
        for name in names:
            pods.setdefault(name, []).append("/".join(home(state, uid)).strip("/") or str(uid))
    return tuple(
        KeyIdRow(name, one.state.value, max(0, now_ns - one.at_ns) // 1_000_000, tuple(pods.get(name, ())))
        for name, one in state.ledger.stood.get(key, {}).items()
    )


def seen(state: State, before: Ledger) -> bool:
    """Whether anything has changed by which an id can stand otherwise."""
    now = state.ledger
    return now.offers is not before.offers or now.sample is not before.sample


def _of_kind(state: State, key: str, offer: Offer, before: Mapping[str, Stood]) -> Mapping[str, Stood]:
    sample = state.ledger.sample
    charged = {} if sample is None else {uid: max(of) for uid, of in sums.reads(sample, key).items()}
    running = {name: None for uid, names in offer.held.items() if charged.get(uid) for name in names}
    found, changed = {}, False
    for name, healthy in devices(offer, key):
        is_now = _state(offer, name, healthy=healthy, runs=name in running)
        was = before.get(name)
        if was is None or was.state is not is_now:
            was, changed = Stood(is_now, state.at_ns), True
        found[name] = was
    return found if changed or len(found) != len(before) else before


def _state(offer: Offer, name: str, *, healthy: bool, runs: bool) -> KeyState:
    grant = offer.grants.get(name)
    if grant is None:
        return KeyState.FREE if healthy else KeyState.WITHHELD
    if runs:
        return KeyState.CHARGED
    return KeyState.DRAINING if not grant.times or grant.absent else KeyState.GRANTED
