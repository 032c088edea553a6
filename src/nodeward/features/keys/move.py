"""A node moves from one front to the other while VMs run: who gives keys up does so first, and what is waited for."""

from collections.abc import Iterator

from nodeward.core.claims import Front
from nodeward.core.devices import PluginStanding
from nodeward.features.keys import claims, fronts, sums
from nodeward.features.keys.state import Offer, Sold
from nodeward.features.root import State


def waits(state: State, key: str) -> tuple[str, ...]:
    """What the move to the front that a person has chosen still waits for; nothing once it is there."""
    return {Front.SETTINGS: _none, Front.CLAIMS: _to_claims, Front.IDS: _to_ids}[state.keys.front](state, key)


def _none(_: State, __: str) -> tuple[str, ...]:
    return ()


def _to_claims(state: State, key: str) -> tuple[str, ...]:
    keys, told = state.keys, state.keys.driver
    offered = _offered(state, key)
    if offered:
        return (f"kubelet is still offered {offered} ids",)
    if (fault := _fault(state, "offer", state.settings.keys.kinds[key].publish)) and sums.is_offered(state, key):
        return (f"kubelet has not taken the shorter list: {fault}",)
    if told is None or not told.registered:
        return (f"kubelet has not registered our driver{f': {told.why}' if told is not None and told.why else ''}",)
    if fault := claims.withheld(state, key)[1]:
        return (f"no claim is given a key: {fault}",)
    room, count = keys.rooms.get(key, Offer()).published, sums.counted(state, key)
    free = sums.for_claims(state, key, sums.to_grant(state, key, count)) if count is not None else 0
    if room < free:
        return (f"claims may be given {room} of {free} more keys: two readings of the kernel have to agree",)
    return tuple(_unwritten(state, key))


def _to_ids(state: State, key: str) -> tuple[str, ...]:
    if not sums.is_tracked(state.settings.keys.kinds[key]):
        return ()
    told = state.keys.plugins.get(state.settings.keys.kinds[key].publish)
    found = [*_unwritten(state, key)]
    seconds = -(-fronts.seen_in_ns(state, key) // 10**9)
    if not found and seconds:
        found = [f"the scheduler may go by the number of before for {seconds} s more"]
    if told is None or told.standing is not PluginStanding.SERVING:
        found.append(f"our device plugin is not registered: {told.why if told is not None else 'it has not begun'}")
    count = sums.counted(state, key)
    if found or count is None:
        return tuple(found)
    free = min(sums.to_grant(state, key, count), sums.ours(state, key))
    if fault := sums.withheld(state, key)[1]:
        return (f"no id is given out: {fault}",)
    offered = _offered(state, key)
    return (f"kubelet is offered {offered} of {free} more ids",) if offered < free else ()


def _unwritten(state: State, key: str) -> Iterator[str]:
    """What the API server does not have yet."""
    has, value = (state.keys.sold or {}).get(key, Sold()).value, claims.value(state, key)
    is_open = state.keys.rooms.get(key, Offer()).published > 0
    if state.keys.sold is not None and (has == value or not (has or is_open)):
        return
    fault = _fault(state, "keys-slice", state.settings.keys.dra.driver)
    yield f"the API server has {has} of {value} keys for claims{f': {fault}' if fault else ''}"


def _offered(state: State, key: str) -> int:
    return state.keys.offers.get(key, Offer()).published if sums.is_offered(state, key) else 0


def _fault(state: State, kind: str, where: str) -> str:
    return state.keys.misses.get(kind, {}).get(where, "")
