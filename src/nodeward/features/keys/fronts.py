"""Two fronts sell the same keys: kubelet by ids, the scheduler by claims. How many each may, and when one may have what
the other gave up.

What a front gives up at its own end is not given up at once where it is seen: the scheduler places pods by a view that
may be old. So the plugin gets a key back only when no view that is in use can have it any more. The other way needs no
wait, since what kubelet is offered is known here.
"""

from dataclasses import replace

from nodeward.core.claims import Front
from nodeward.core.events import SliceTold
from nodeward.core.modes import Mode
from nodeward.features.keys.settings import Publisher
from nodeward.features.keys.state import Keys, Sold
from nodeward.features.root import State

SEEN_NS = 30_000_000_000
"""So long after the API server has taken a number the scheduler goes by it: its watch is late by less. A pod that was
placed before has as a rule asked to be prepared by then; one that has not, as with a volume that binds late, waits."""
_ANY = 1 << 31
"""What an earlier life may have published just before it ended."""
_MOST = 32
"""Numbers of before that are kept: within SEEN_NS there are as many only where claims come and go without end."""


def most(state: State, key: str) -> int | None:
    """How many keys of the kind may go by claim; None for all. What no plugin offers stays with the settings."""
    if state.keys.front is Front.CLAIMS:
        return None
    if state.keys.front is Front.IDS and state.settings.keys.kinds[key].publisher is Publisher.DEVICE_PLUGIN:
        return 0
    return state.settings.keys.dra.most


def told(state: State, event: SliceTold, devices: dict[str, str]) -> Keys:
    """The slice of the state once the API server has another capacity; `devices` has each kind's by its name."""
    is_old = event.since_wall_ns and event.wall_ns - event.since_wall_ns >= SEEN_NS
    known = Sold() if event.first or is_old else Sold(_ANY)
    before, now = state.keys.sold or dict.fromkeys(devices.values(), known), event.devices
    sold = {key: _later(before.get(key, Sold()), now.get(name, 0), state.at_ns) for name, key in devices.items()}
    return replace(state.keys, sold=sold)


def _later(of: Sold, value: int, at_ns: int) -> Sold:
    known = [*of.before, (at_ns, of.value)] if of.value > value else [*of.before]
    kept = [one for one in known if one[1] > value and at_ns - one[0] < SEEN_NS]
    while len(kept) > _MOST:
        kept[:2] = [(kept[1][0], max(kept[0][1], kept[1][1]))]
    return Sold(value, tuple(kept))


def may_be_seen(state: State, key: str) -> int | None:
    """The highest capacity of the kind's device that a view of the scheduler's may have; None for not known."""
    if state.keys.sold is None:
        return None
    of = state.keys.sold.get(key, Sold())
    return max([of.value, *(value for until_ns, value in of.before if state.at_ns - until_ns < SEEN_NS)])


def seen_in_ns(state: State, key: str) -> int:
    """How long until no view has a higher capacity than the API server; 0 for now."""
    of = (state.keys.sold or {}).get(key, Sold())
    return max([0, *(until_ns + SEEN_NS - state.at_ns for until_ns, value in of.before if value > of.value)])


def to_be_seen(state: State, key: str, claimed: int) -> int | None:
    """How many keys more than the claims have (`claimed`) a view of the scheduler's may give out; None for any number:
    it is not known what an earlier life has published."""
    value = may_be_seen(state, key)
    if value is None:
        return None if state.settings.keys.dra.mode is Mode.ENFORCE else 0
    return max(0, value - claimed)
