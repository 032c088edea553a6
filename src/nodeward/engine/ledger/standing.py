"""How it stands with each id that kubelet is offered, and since when; for people and metrics. Nothing is decided."""

from collections.abc import Mapping
from itertools import chain

from nodeward.engine.ledger import sums
from nodeward.engine.ledger.gate import Held, Offer, devices
from nodeward.engine.ledger.handed import home
from nodeward.engine.state import Ledger, State, Stood
from nodeward.engine.tables import kept
from nodeward.model.events import KeysRead
from nodeward.model.tee import KeyState
from nodeward.model.view import KeyIdRow

_FREE, _WITHHELD, _CHARGED = KeyState.FREE, KeyState.WITHHELD, KeyState.CHARGED
_DRAINING, _GRANTED = KeyState.DRAINING, KeyState.GRANTED


def stood(state: State, before: Ledger) -> Mapping[str, Mapping[str, Stood]]:
    """Each id of each kind with its state, and since when it has that; what is as it was is the same object. `before`
    is the slice of which `state.ledger.stood` tells."""
    now, known = state.ledger, state.ledger.stood
    if now.offers is before.offers and now.sample is before.sample:
        return known
    found = {}
    for key, offer in now.offers.items():
        running = _charged(now.sample, key, offer.held)
        if key in known and offer is before.offers.get(key) and running == _charged(before.sample, key, offer.held):
            found[key] = known[key]
        else:
            found[key] = _of_kind(offer, key, running, known.get(key, {}), state.at_ns)
    same = len(found) == len(known) and all(found[key] is known.get(key) for key in found)
    return known if same else found


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


@kept
def _charged(sample: KeysRead | None, key: str, held: Held) -> Mapping[str, None]:
    """The ids of the pods that hold a key."""
    charged = {} if sample is None else sums.reads(sample, key)
    return {name: None for uid, names in held.items() if max(charged.get(uid, (0,))) for name in names}


def _of_kind(
    offer: Offer, key: str, running: Mapping[str, None], before: Mapping[str, Stood], now_ns: int
) -> Mapping[str, Stood]:
    found, changed, grants = {}, False, offer.grants
    for name, healthy in devices(offer, key):
        grant = grants.get(name)
        if grant is None:
            is_now = _FREE if healthy else _WITHHELD
        elif name in running:
            is_now = _CHARGED
        else:
            is_now = _DRAINING if not grant.times or grant.absent else _GRANTED
        was = before.get(name)
        if was is None or was.state is not is_now:
            was, changed = Stood(is_now, now_ns), True
        found[name] = was
    return found if changed or len(found) != len(before) else before
