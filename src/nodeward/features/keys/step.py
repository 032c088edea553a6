"""How events change what is known of TEE keys, and which ids and numbers are published.

Each sample of the kernel's counters, and each view of kubelet's, is taken into the offers; a list goes out where it has
changed. Lists and numbers are goals, so an edge performs the newest one, however often it has to begin anew. In mode
observe the offers are kept up as far as can be told, and nothing goes out.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from nodeward.core import events as ev
from nodeward.core.decision import NOTHING, Commit, Decision, Fault, Final, Goal, Need, Special, Target
from nodeward.core.events import Admitted, HeldElsewhere, KeysRead, Question
from nodeward.core.feature import Hear
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.core.tables import as_before, kept, put, without
from nodeward.core.vms import outside_of
from nodeward.core.workload import PodUid
from nodeward.features.keys import asks, claims, delays, device_ids, fronts, loss, orphans, sums
from nodeward.features.keys.id_states import stood
from nodeward.features.keys.kubelet_view import (
    GONE_NS,
    api_is_gone,
    asking,
    ended,
    frozen,
    held_ids,
    may_take,
    restarts,
    serves_without_api,
    specs,
    stands_in,
    still_there,
)
from nodeward.features.keys.settings import Attestation, KeyKind
from nodeward.features.keys.share import may_follow
from nodeward.features.keys.state import Keys, Offer
from nodeward.features.root import SettingsChanged, State


def attributed(state: State, event: KeysRead) -> tuple[KeysRead, Mapping[str, int]]:
    """The sample with such keys among those of their pods; and how many each cgroup holds, for the next one."""
    before, now = state.keys.outside, dict[str, int]()
    pods: dict[PodUid, dict[str, tuple[int, ...]]] = {}
    left = list[HeldElsewhere]()
    for one in event.elsewhere:
        known = None if one.below else state.pods.sandboxes.get(outside_of(one.path))
        uid = known.sandbox.pod_uid if known is not None else one.pod
        if not uid or uid in event.unread:
            left.append(one)
            continue
        name = f"{one.key} {one.path}"
        now[name] = one.amount
        counted = min(one.amount, before.get(name, 0))
        if one.amount > counted:
            left.append(replace(one, amount=one.amount - counted))
        if counted:
            held = pods.setdefault(uid, {})
            reads = held.get(one.key) or event.pods.get(uid, {}).get(one.key, (0, 0))
            held[one.key] = tuple(read + counted for read in reads)
    if not pods:
        return event, now
    merged = {**event.pods, **{uid: {**event.pods.get(uid, {}), **held} for uid, held in pods.items()}}
    return replace(event, pods=merged, elsewhere=tuple(left)), now


FIRST_LIST_NS = 1_000_000_000
"""So long after the journal was read the first list goes out, whatever else is known by then."""


def _asked(take: Callable[[State, Any], tuple[Keys, Final | Commit | Need | None]]) -> Hear[State]:
    """Kubelet's question, and the list that follows from the answer."""

    def heard(state: State, event: ev.Question) -> tuple[object, Decision]:
        keys, answer = take(state, event)
        if keys.claims is not state.keys.claims:
            keys = _roomy(state, keys)
        keys, goals = _listed(replace(state, keys=keys), numbers=False)
        return _stood(state, keys), Decision(answer, goals)

    return heard


def _settings(state: State, event: SettingsChanged) -> tuple[object, Decision]:
    if state.settings.keys.mode is not Mode.OFF:
        return _told(_settings_on)(state, event)
    before = state.keys
    gone = (
        *_changes("offer", before.listed, {}),
        *_changes("nfd", before.numbers, {}),
        *_changes("keys-slice", before.slices, {}),
    )
    return Keys(api_heard=before.api_heard), Decision(goals=gone)


def _told(change: Callable[[State, Any], Keys]) -> Hear[State]:
    """What an event changes, and the lists and numbers that follow."""

    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        keys = delays.told(state, change(state, event), event)
        if keys is state.keys and not isinstance(event, ev.PodsListed):  # numbers are written once pods are known
            return keys, NOTHING
        keys, goals = _listed(replace(state, keys=keys))
        return _stood(state, keys), Decision(goals=goals) if goals else NOTHING

    return heard


def _stood(state: State, keys: Keys) -> Keys:
    """The slice with how it stands with each id now."""
    found = stood(replace(state, keys=keys), state.keys)
    return keys if found is keys.stood else replace(keys, stood=found)


def next_wake(state: State) -> int | None:
    """When the first list is due at the latest; None where it has gone out, or waits for nothing but the journal."""
    keys = state.keys
    return keys.recalled_ns + FIRST_LIST_NS if keys.recalled_ns and not keys.lists and keys.offers else None


def on_fault(_: State, question: Question, fault: Fault) -> Final | None:
    """An id given out without being counted could be one that the kernel cannot honour, so kubelet is refused. A
    runtime waits for nothing of `keys`, so no container pays for its fault."""
    if not isinstance(question, Admitted):
        return None
    message = f"Nodeward's feature keys failed ({fault.error}), so no key is given out; see nodeward status"
    return Final(Refusal(message, Refused.FAULT), Reason("fault", ("keys",)))


def _keys_read(state: State, event: ev.KeysRead) -> Keys:
    keys = state.keys
    if keys.sample is not None and event.as_of < keys.sample.as_of:
        return keys  # it began before one that is here already
    event, outside = attributed(state, event)
    keys = replace(keys, outside=outside) if outside or keys.outside else keys
    since = orphans.since(keys, event) if event.elsewhere or keys.orphans else keys.orphans
    later = replace(_later(keys, event.at_ns), sample=_like(keys.sample, event), orphans=since)
    later = loss.later(_stood_in(state, claims.drained(later, event.at_ns)), event)
    if loss.is_frozen(later) and stands_in(replace(state, keys=later)):
        later = loss.stood_in(later, event)
    return _offered(state, later, grows=True)


def _pods_of_kubelet(state: State, event: ev.PodsOfKubelet) -> Keys:
    keys = state.keys
    if event.fault:
        return replace(keys, of_kubelet_fault=event.fault, of_kubelet_absent=event.absent)
    heard = replace(keys, of_kubelet=event, of_kubelet_fault="", of_kubelet_absent=False, without_api_ns=0)
    return replace(heard, of_kubelet_restarts=restarts(keys))


def _api_back(state: State, _: ev.ApiBack) -> Keys:
    return state.keys if state.keys.api_heard else replace(state.keys, api_heard=True)


def _nfd_seen(state: State, event: ev.NfdSeen) -> Keys:
    return replace(state.keys, nfd=state.keys.nfd if event.fault else event, nfd_fault=event.fault)


def _plugin_told(state: State, event: ev.PluginTold) -> Keys:
    told = replace(state.keys, plugins=put(state.keys.plugins, event.resource, event))
    return told if restarts(told) == restarts(state.keys) else replace(told, without_api_ns=0)


def _quotes_told(state: State, event: ev.QuotesTold) -> Keys:
    before = state.keys.quotes.get(event.key)
    if before is not None and (before.answers, before.why) == (event.answers, event.why):
        return state.keys
    return _offered(state, replace(state.keys, quotes=put(state.keys.quotes, event.key, event)), grows=False)


def _settings_on(state: State, _: SettingsChanged) -> Keys:
    return _offered(state, replace(state.keys, quotes=_asked_for(state)), grows=False)


def _tick(state: State, event: ev.Tick) -> Keys:
    due = next_wake(state)
    return replace(state.keys, lists=True) if due is not None and due <= event.at_ns else state.keys


def _like(before: ev.KeysRead | None, event: ev.KeysRead) -> ev.KeysRead:
    """The sample, with the table of the one before where no pod's counter has moved: what was found by that holds."""
    return replace(event, pods=before.pods) if before is not None and before.pods == event.pods else event


def _offered(state: State, keys: Keys, *, grows: bool) -> Keys:
    """The slice with every kind published anew by what is known now."""
    state = replace(state, keys=keys)
    kinds = state.settings.keys.kinds.items()
    offers = {key: sums.published(state, key, grows=grows) for key, kind in kinds if sums.is_tracked(kind)}
    keys = replace(keys, offers=offers) if offers or keys.offers else keys
    return _roomy(state, keys, grows=grows)


def _roomy(state: State, keys: Keys, *, grows: bool = False) -> Keys:
    """The slice with what claims may be given anew, beside what the plugin offers by now."""
    if state.settings.keys.dra.mode is Mode.OFF:
        return replace(keys, rooms={}) if keys.rooms else keys
    state = replace(state, keys=keys)
    rooms = {key: claims.room(state, key, grows=grows) for key in state.settings.keys.kinds}
    return replace(keys, rooms=as_before(keys.rooms, rooms))


def _asked_for(state: State) -> Mapping[str, ev.QuotesTold]:
    """What the services that make quotes said, without those that nobody is to ask now: what they said would be old
    when they are asked again."""
    kinds, quotes = state.settings.keys.kinds, state.keys.quotes
    old = [key for key in quotes if key not in kinds or kinds[key].attestation is Attestation.OFF]
    return without(quotes, old)


def _viewed(state: State, event: ev.KeysHeld) -> Keys:
    keys = state.keys
    if event.answered is not None:
        keys = replace(keys, list_answers=event.answered)
    if event.fault and not event.pods and not event.answered:
        return replace(keys, held_fault=event.fault)
    if keys.held is not None and event.as_of < keys.held_as_of:
        return keys
    before, resumes = keys.held, not keys.viewed
    if event.fault and not (event.answered and stands_in(replace(state, keys=_with(keys, event)))):
        event = _added(before, event)
    same = before is not None and before.pods == event.pods and before.registered == event.registered
    whole = keys.held_whole or not event.fault
    keys = _later(keys, event.at_ns)
    keys = replace(keys, held_fault=event.fault, held_as_of=event.as_of, held_whole=whole)
    keys = replace(keys, viewed=keys.viewed or whole)
    if api_is_gone(keys):
        keys = replace(keys, of_kubelet=still_there(state, keys.of_kubelet))
    if not same:
        keys = replace(keys, held=event, held_awake_ns=0)
    state = replace(state, keys=keys)
    offers = dict(keys.offers)
    for key, kind in state.settings.keys.kinds.items():
        if not sums.is_tracked(kind):
            continue
        view = held_ids(state, kind.publish)
        offer = offers.get(key, Offer())
        known = offer.held
        charged, read_ns = _most(state, key, offer, view), min(event.read_ns or event.at_ns, event.at_ns)
        offer = _still_starting(state, kind, offer, view, read_ns)
        over = ended(state, view)
        offer = device_ids.viewed(offer, view, over, charged, read_ns, event.as_of, frozen=_stays(state))
        offers[key] = device_ids.resumed(offer, known, sums.least(state, key), event.at_ns) if resumes else offer
    return replace(keys, offers=offers)


def _stays(state: State) -> bool:
    """Whether what nobody has in the newest view is not released all the same."""
    return frozen(state) or (bool(state.keys.held_fault) and not state.pods.api_up)


def _with(keys: Keys, event: ev.KeysHeld) -> Keys:
    """The slice as it would be with this view in the place of what was read before."""
    return replace(keys, held=event, held_fault=event.fault)


def _stood_in(state: State, keys: Keys) -> Keys:
    """The slice once other words of kubelet's stand in for a first view: who has its sandbox, and not all keys that it
    asks for, may have been let start in the life before."""
    state = replace(state, keys=keys)
    if keys.viewed or not stands_in(state):
        return keys
    offers = dict(keys.offers)
    for key, kind in state.settings.keys.kinds.items():
        if sums.is_tracked(kind):
            offer = offers.get(key, Offer())
            offers[key] = device_ids.maybe_let(offer, sums.started(state, key), sums.least(state, key), state.at_ns)
    return replace(keys, viewed=True, offers=offers)


def _stopped(state: State, event: ev.Stopped) -> Keys:
    """A container whose start was let through has stopped, perhaps before it took its key."""
    keys, uid = state.keys, event.sandbox.pod_uid
    for key, offer in keys.offers.items():
        resource = state.settings.keys.kinds[key].publish
        if uid in offer.passed and event.container.name in asking(state, uid, resource):
            after = replace(offer, stopped_ns=put(offer.stopped_ns, uid, event.at_ns))
            keys = replace(keys, offers=put(keys.offers, key, after))
    return keys


def _still_starting(state: State, kind: KeyKind, offer: Offer, view: device_ids.Held, read_ns: int) -> Offer:
    """The offer without the starts that are over though no key was taken: of pods that have ended, whose containers
    have stopped, or whom no view shows any more."""
    if not offer.passed:
        return offer
    known = specs(state)
    over = [uid for uid in offer.passed if uid in known and known[uid].terminal]
    quiet = [uid for uid, at_ns in offer.stopped_ns.items() if state.at_ns - at_ns >= device_ids.SETTLE_NS]
    told = bool(state.pods.sandboxes)  # by a runtime: else nobody knows of any container
    over += [uid for uid in quiet if told and not may_take(state, uid, kind.publish)]
    unseen = [uid for uid in offer.passed if not (uid in view or uid in known or uid in state.pods.sandbox_of)]
    return device_ids.still_starting(offer, over, () if frozen(state) else unseen, read_ns)


def _added(before: ev.KeysHeld | None, event: ev.KeysHeld) -> ev.KeysHeld:
    """What was read before, and what is told beside the fault: that only adds, since what it leaves out may stand."""
    if before is None:
        return event
    pods = {uid: dict(ids) for uid, ids in before.pods.items()}
    for uid, ids in event.pods.items():
        mine = pods.setdefault(uid, {})
        for resource, names in ids.items():
            mine[resource] = tuple(dict.fromkeys((*mine.get(resource, ()), *names)))
    return replace(event, pods=pods, registered=before.registered)


def _later(keys: Keys, at_ns: int) -> Keys:
    """The slice after a sign of life: what has stood until now has stood for so long while the machine was awake."""
    spent = device_ids.awake(keys.heard_ns, at_ns)
    stood = keys.held_awake_ns + spent if keys.held is not None else 0
    without = min(keys.without_api_ns + spent, GONE_NS) if serves_without_api(keys) else 0
    return replace(keys, held_awake_ns=min(stood, device_ids.SETTLE_NS), without_api_ns=without, heard_ns=at_ns)


def _most(state: State, key: str, offer: Offer, view: device_ids.Held) -> Mapping[PodUid, int]:
    """What each pod holds at most: what cannot be read may be held."""
    sample = state.keys.sample
    if sample is None:
        had = (uid for grant in offer.grants.values() for uid in grant.had)
        return dict.fromkeys((*view, *offer.held, *had), 1)
    return {**{uid: max(of) for uid, of in sums.reads(sample, key).items()}, **dict.fromkeys(sample.unread, 1)}


def _recalled(state: State, event: ev.GrantsRecalled) -> Keys:
    keys = state.keys
    offers = dict(keys.offers)
    for key, kind in state.settings.keys.kinds.items():
        if sums.is_tracked(kind):
            offer = replace(offers.get(key, Offer()), published=0, grow_to=0, grow_since_ns=0)
            offers[key] = device_ids.recalled(offer, event.grants.get(kind.publish, {}), event.at_ns, event.seq)
    recalled_ns = keys.recalled_ns or event.at_ns or 1
    keys = replace(keys, offers=offers, recalled_ns=recalled_ns, journal_fault=event.fault)
    return loss.told(keys, event) if event.lost else keys


def _listed(state: State, *, numbers: bool = True) -> tuple[Keys, tuple[Goal, ...]]:
    """The slice with the lists and numbers as they are to stand, and the goals that bring them about. Without `numbers`
    those stay: kubelet waits, and the next sample sees to them."""
    keys = state.keys
    if not keys.lists and keys.recalled_ns and keys.sample is not None:
        keys = replace(keys, lists=keys.held is not None or bool(keys.held_fault))
    listed: Mapping[str, str] = {}
    shared: Mapping[str, str] = {}
    slices = claims.devices(state) if claims.are_sold(state) else {}
    if state.settings.keys.mode is Mode.ENFORCE:
        listed = _lists(state) if keys.lists else {}
        shared = _numbers(state) if numbers else keys.numbers
    goals = (
        *_changes("offer", keys.listed, listed),
        *_changes("nfd", keys.numbers, shared),
        *_changes("keys-slice", keys.slices, slices),
    )
    return (replace(keys, listed=listed, numbers=shared, slices=slices) if goals else keys), goals


def _changes(kind: str, before: Mapping[str, str], now: Mapping[str, str]) -> Iterable[Goal]:
    """The goals that bring about what is to stand now."""
    for where, text in now.items():
        if before.get(where) != text:
            target = Target(kind, where)
            yield Goal(target, text, Reason("offered", (str(target),)))
    for where in before:
        if where not in now:
            target = Target(kind, where)
            yield Goal(target, Special.ABSENT, Reason("not-offered", (str(target),)))


def _outcome(keys: Keys, event: ev.Reached | ev.Missed) -> Keys:
    """Remembers why goals were missed, until they are reached."""
    misses = {kind: dict(of) for kind, of in keys.misses.items()}
    if isinstance(event, ev.Missed):
        for target, why in event.why:
            misses.setdefault(target.kind, {})[target.where] = why
    else:
        for target in event.targets:
            misses.get(target.kind, {}).pop(target.where, None)
    misses = {kind: of for kind, of in misses.items() if of}
    return keys if misses == keys.misses else replace(keys, misses=misses)


def _lists(state: State) -> dict[str, str]:
    """What kubelet is to be told of each kind that we publish; nothing of one that this node has never had."""
    wanted = {}
    for key, offer in state.keys.offers.items():
        kind = state.settings.keys.kinds[key]
        if offer.size or offer.grants or kind.publish in state.keys.listed:
            wanted[kind.publish] = list_text(offer, key)
    return wanted


def _numbers(state: State) -> dict[str, str]:
    """What NFD's number of each kind is to be, where the settings want it to follow `keys`; while nothing can be
    counted, what it was."""
    wanted: dict[str, str] = {}
    for key, kind in state.settings.keys.kinds.items():
        if not may_follow(key, kind):
            continue
        count = sums.counted(state, key)
        if count is None:
            text = state.keys.numbers.get(key, "")
        else:
            total = sums.shared(state, key, count, count.free).total
            text = "" if total is None else str(total)
        if text:
            wanted[key] = text
    return wanted


def list_text(offer: Offer, key: str) -> str:
    """The list of devices as a goal's text: `[[id, healthy], ...]`."""
    return _text(device_ids.devices(offer, key))


@kept
def _text(devices: device_ids.Devices) -> str:
    return json.dumps(devices, separators=(",", ":"))


def _slice_told(state: State, event: ev.SliceTold) -> Keys:
    if event.driver != state.settings.keys.dra.driver:
        return state.keys
    return fronts.told(state, event, {claims.device_of(key): key for key in state.settings.keys.kinds})


_CHANGES: Mapping[type[ev.Event], Callable[[State, Any], Keys]] = {
    ev.KeysRead: _keys_read,
    ev.KeysHeld: lambda state, event: loss.viewed(_viewed(state, event), event),
    ev.GrantsRecalled: _recalled,
    ev.PodsOfKubelet: _pods_of_kubelet,
    ev.ApiBack: _api_back,
    ev.NfdSeen: _nfd_seen,
    ev.PluginTold: _plugin_told,
    ev.QuotesTold: _quotes_told,
    ev.Unprepared: lambda state, event: _of_ours(state, event, claims.unprepared),
    ev.ClaimsRecalled: lambda state, event: _of_ours(state, event, claims.recalled),
    ev.DriverTold: lambda state, event: _of_ours(state, event, lambda state, told: replace(state.keys, driver=told)),
    ev.SliceTold: _slice_told,
    ev.FrontChosen: lambda state, event: _offered(state, replace(state.keys, front=event.front), grows=False),
    ev.Abandoned: lambda state, event: asks.given_back(state.keys, event.ask_id),
    ev.Stopped: _stopped,
    ev.PodsListed: lambda state, _: state.keys,
    ev.Reached: lambda state, event: _outcome(state.keys, event),
    ev.Missed: lambda state, event: _outcome(state.keys, event),
    ev.Tick: _tick,
}


def _preparing(state: State, event: ev.Preparing) -> tuple[object, Decision]:
    """Another feature's driver asks that one."""
    ours = event.driver == state.settings.keys.dra.driver and claims.are_sold(state)
    return _asked(claims.preparing)(state, event) if ours else (state.keys, NOTHING)


def _of_ours(state: State, event: Any, change: Callable[[State, Any], Keys]) -> Keys:
    """What an event about our driver changes; claims were there before, so no more is offered by this alone."""
    if event.driver != state.settings.keys.dra.driver:
        return state.keys
    keys = change(state, event)
    return keys if keys is state.keys else _roomy(state, keys)


HEARS: Mapping[type[ev.Event], Hear[State]] = {
    ev.Preparing: _preparing,
    ev.Allocating: _asked(asks.allocating),
    ev.Starting: _asked(asks.starting),
    SettingsChanged: _settings,
    **{kind: _told(change) for kind, change in _CHANGES.items()},
}
