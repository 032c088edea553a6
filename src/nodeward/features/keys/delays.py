"""Measures how long foreign use was there before kubelet was offered fewer ids. For metrics only.

Nobody tells when somebody else takes a key. But it was not there in the sample before the one that first shows it, so
the time from where that sample began to where the list that withholds it was handed to kubelet is never less than the
truth, and more by up to the time between two samples. Where kubelet reads no list of ours nothing is counted: it gives
out none of our ids then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nodeward.core.decision import Target
from nodeward.core.devices import PluginStanding
from nodeward.core.events import Event, KeysRead, PluginTold, Reached
from nodeward.core.tables import put, without
from nodeward.features.keys import sums
from nodeward.features.keys.rows import KeyDelays
from nodeward.features.keys.state import Delays, Keys
from nodeward.features.root import SettingsChanged, State

BOUNDS_MS = (100, 250, 500, 1000, 1500, 2000, 2500, 3000, 5000, 10_000, 30_000)


def told(state: State, keys: Keys, event: Event) -> Keys:
    """The slice after the event, which has made `keys` of the slice of `state`."""
    match event:
        case KeysRead():
            return _sampled(state, keys)
        case Reached():
            return _performed(state, keys, event)
        case PluginTold():
            of = [key for key in keys.grown if state.settings.keys.kinds[key].publish == event.resource]
            over = of if event.standing is not PluginStanding.SERVING else []
            return replace(keys, grown=without(keys.grown, over)) if over else keys
        case SettingsChanged():
            over = [key for key in keys.grown if key not in keys.offers]
            return replace(keys, grown=without(keys.grown, over)) if over else keys
        case _:
            return keys


def row(state: State, key: str) -> KeyDelays:
    """The delays since the daemon began, for a histogram."""
    known = state.keys.delays.get(key, Delays())
    counts = known.counts or _NONE
    at_most = tuple((bound * 1_000_000, sum(counts[: place + 1])) for place, bound in enumerate(BOUNDS_MS))
    return KeyDelays(sum(counts), known.sum_ns, at_most)


_NONE = (0,) * (len(BOUNDS_MS) + 1)


def _sampled(state: State, keys: Keys) -> Keys:
    """Foreign use of which the sample before did not know, and for which fewer ids are published."""
    before, now = state.keys, replace(state, keys=keys)
    found = {key: count.foreign for key in keys.offers if (count := sums.counted(now, key)) and not count.blind}
    grown = dict(keys.grown)
    for key, foreign in found.items():
        was, offer = before.foreign.get(key), before.offers.get(key)
        if before.sample is None or was is None or foreign <= was or offer is None:
            continue
        if keys.offers[key].published < offer.published and _is_served(state, key):
            grown.setdefault(key, before.sample.read_ns or before.sample.at_ns)
    if (found, grown) == (before.foreign, before.grown):
        return keys
    return replace(keys, foreign=found, grown=grown)


def _is_served(state: State, key: str) -> bool:
    resource = state.settings.keys.kinds[key].publish
    plugin = state.keys.plugins.get(resource)
    is_there = plugin is not None and plugin.standing is PluginStanding.SERVING
    return is_there and resource in state.keys.listed


def _performed(state: State, keys: Keys, event: Reached) -> Keys:
    targets = {key: Target("offer", state.settings.keys.kinds[key].publish) for key in keys.grown}
    done = [key for key, target in targets.items() if target in event.targets]
    delays: Mapping[str, Delays] = keys.delays
    for key in done:
        delays = put(delays, key, _with(delays.get(key, Delays()), event.at_ns - keys.grown[key]))
    return replace(keys, grown=without(keys.grown, done), delays=delays) if done else keys


def _with(known: Delays, took_ns: int) -> Delays:
    took_ns = max(0, took_ns)
    counts: Sequence[int] = known.counts or _NONE
    place = sum(took_ns > bound * 1_000_000 for bound in BOUNDS_MS)
    return Delays((*counts[:place], counts[place] + 1, *counts[place + 1 :]), known.sum_ns + took_ns)
