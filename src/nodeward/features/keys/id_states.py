"""The state of each id that kubelet is offered, and since when, for people and metrics. Nothing is decided."""

from collections.abc import Mapping
from itertools import chain

from nodeward.core.events import KeysRead
from nodeward.core.tables import kept
from nodeward.core.workload import PodUid
from nodeward.features.keys import sums
from nodeward.features.keys.device_ids import Devices, Held, devices
from nodeward.features.keys.kubelet_view import home
from nodeward.features.keys.rows import KeyIdRow
from nodeward.features.keys.state import Grant, Keys, Stood
from nodeward.features.keys.terms import KeyState
from nodeward.features.root import State

_FREE, _WITHHELD, _CHARGED = KeyState.FREE, KeyState.WITHHELD, KeyState.CHARGED
_DRAINING, _GRANTED = KeyState.DRAINING, KeyState.GRANTED


def stood(state: State, before: Keys) -> Mapping[str, Mapping[str, Stood]]:
    """Each id of each kind with its state, and since when it has that; what is as it was is the same object. `before`
    is the slice of which `state.keys.stood` tells."""
    now, known = state.keys, state.keys.stood
    if now.offers is before.offers and now.sample is before.sample:
        return known
    found = {}
    for key, offer in now.offers.items():
        was, mine, told = before.offers.get(key), known.get(key, {}), devices(offer, key)
        running = _running(now.sample, key, offer.held)
        fresh = None  # those that may stand otherwise; None for any
        if was is not None and told is devices(was, key) and running == _running(before.sample, key, was.held):
            fresh = _granted_since(offer.grants, was.grants, mine) if key in known else None
        if fresh is None:
            found[key] = _of_kind(told, offer.grants, running, mine, state.at_ns)
        else:
            found[key] = {**mine, **_of_kind(fresh, offer.grants, running, mine, state.at_ns)} if fresh else mine
    same = len(found) == len(known) and all(found[key] is known.get(key) for key in found)
    return known if same else found


def _granted_since(
    grants: Mapping[str, Grant], before: Mapping[str, Grant], listed: Mapping[str, Stood]
) -> Devices | None:
    """The listed ids whose grants are others; None where some were taken back. While kubelet waits it is one of
    hundreds."""
    fresh = [name for name, grant in grants.items() if before.get(name) is not grant]
    kept_on = len(grants) - sum(name not in before for name in fresh)
    return tuple((name, True) for name in fresh if name in listed) if kept_on == len(before) else None


def ids(state: State, key: str, now_ns: int) -> tuple[KeyIdRow, ...]:
    """Every id of the kind, with its pod in kubelet's view."""
    offer = state.keys.offers.get(key)
    if offer is None:
        return ()
    pods: dict[str, list[str]] = {}
    for uid, names in chain(offer.held.items(), offer.over.items()):
        for name in names:
            pods.setdefault(name, []).append("/".join(home(state, uid)).strip("/") or str(uid))
    free = _WITHHELD if sums.unsold(state, key) else _FREE  # what our list says, nobody reads
    return tuple(
        KeyIdRow(
            name,
            (free if one.state is _FREE else one.state).value,
            max(0, now_ns - one.at_ns) // 1_000_000,
            tuple(pods.get(name, ())),
        )
        for name, one in state.keys.stood.get(key, {}).items()
    )


def _running(sample: KeysRead | None, key: str, held: Held) -> Mapping[str, None]:
    """The ids of the pods that hold a key."""
    return {} if sample is None else _charged(sums.reads(sample, key), held)


@kept
def _charged(reads: Mapping[PodUid, tuple[int, ...]], held: Held) -> Mapping[str, None]:
    return {name: None for uid, of in reads.items() if max(of) for name in held.get(uid, ())}


def _of_kind(
    told: Devices, grants: Mapping[str, Grant], running: Mapping[str, None], before: Mapping[str, Stood], now_ns: int
) -> Mapping[str, Stood]:
    found, changed = {}, False
    for name, healthy in told:
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
