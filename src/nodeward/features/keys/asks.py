"""Answers kubelet: whether a pod may have ids (Allocate), and whether it may start now (PreStartContainer).

Both read the kernel anew. An Allocate is granted in the state before it is put on record, and given back where that
fails or nobody waits any more; a refusal fails the pod, so it says why and what can be done. A refused start is tried
again by kubelet. Nothing is ever granted by a sample or a view from before the question, nor after its deadline.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.decision import Adjustment, Commit, Final, Need
from nodeward.core.refusal import Reason, Refusal
from nodeward.core.state import OpenAsk
from nodeward.core.tables import put, without
from nodeward.core.workload import PodSpec, PodUid, Role
from nodeward.features.keys import device_ids, refusals, sums
from nodeward.features.keys.kubelet_view import held_ids, needed, specs, versions
from nodeward.features.keys.state import Keys, Offer, Reserved
from nodeward.features.root import State

KEYS_NS, HELD_NS = 300_000_000, 300_000_000
"""So long a fresh sample, or view, may take; kubelet's admission of pods stands still for it."""
START_NS = 8_000_000_000
"""So long each may take before a start: nobody else waits for that, and kubelet 30 seconds (PreStartContainer)."""

Answered = tuple[Keys, Final | Need | Commit]


def allocating(state: State, event: ev.Allocating) -> tuple[Keys, Final | Need | Commit | None]:
    """The slice and the answer to an Allocate, as far as it has come; none where it is about no key."""
    if all(event.resource != row.publish for row in state.settings.keys.kinds.values()):
        return state.keys, None
    ask = state.asks.get(event.ask_id)
    if ask is not None and event.ask_id in state.keys.reserved:
        return _recorded(state, event, ask)
    key = sums.key_of(state, event.resource)
    wrong = _malformed(state, key, event)
    if wrong is not None:
        return _refused(state, event, key, *wrong)
    if ask is None:
        return state.keys, Need("keys", key, KEYS_NS)
    unread = _unread(state, ask)
    if unread is not None:
        return _refused(state, event, key, *unread)
    offer = sums.offer_now(state, key)
    granted = [name for name in event.ids if device_ids.is_granted(offer, name)]
    if granted and ask.needs < 2:
        return state.keys, Need("held", key, HELD_NS)
    return _decided(state, event, key, _own_again(state, ask, key, offer, granted))


def starting(state: State, event: ev.Starting) -> Answered:
    """The slice and the answer to a start, as far as it has come."""
    ask, key = state.asks.get(event.ask_id), sums.key_of(state, event.resource)
    if not key:
        return state.keys, Final(Adjustment(), Reason("not-offered", (event.resource,)))
    if ask is None:
        return state.keys, Need("keys", key, START_NS)
    unread = _unread(state, ask)
    if unread is not None:
        return _refused(state, event, key, *unread)
    if ask.needs < 2:
        return state.keys, Need("held", key, START_NS)
    why = sums.unquoted(state, key)
    if why:
        return _refused(state, event, key, "quotes", why)
    held = state.keys.held  # before that starts of an earlier life may be under way, of whom only kubelet knows
    if not state.keys.viewed and not (held is not None and held.pods):
        why = f"what kubelet has handed out has not been read yet ({state.keys.held_fault or 'it is being read'})"
        return _refused(state, event, key, "owner", why)
    owners = _owners(state, ask, key, event.ids)
    if not owners:
        why = "no pod is known to have these ids, by kubelet's checkpoint or its pods"
        return _refused(state, event, key, "owner", why)
    return _let_through(state, event, key, owners)


def given_back(keys: Keys, ask_id: int) -> Keys:
    """The slice without what this ask was promised."""
    reserved = keys.reserved.get(ask_id)
    if reserved is None:
        return keys
    offers = keys.offers
    if reserved.key in offers:
        offers = put(offers, reserved.key, device_ids.taken_back(offers[reserved.key], reserved.fresh))
    return replace(keys, offers=offers, reserved=without(keys.reserved, (ask_id,)))


def _malformed(state: State, key: str, event: ev.Allocating) -> tuple[str, str] | None:
    """What is wrong with the question itself, or with any."""
    ids = event.ids
    if not key:
        return "unoffered", "it is not offered here"
    if not ids:
        return "none", "kubelet asked for no id"
    if len(ids) > device_ids.MOST_IDS:
        return "too-many", f"kubelet asked for {len(ids)} ids at once"
    if len(dict.fromkeys(ids)) < len(ids):
        return "twice", "kubelet named an id twice"
    offer = state.keys.offers.get(key, Offer())
    strange = [name for name in ids if not device_ids.is_listed(offer, key, name)]
    if strange:
        listed = len(device_ids.devices(offer, key))
        return "unknown", f"{len(strange)} of {len(ids)} ids are not on the list of {listed}"
    code, why = sums.withheld(state, key)
    if code == "quotes" and any(device_ids.is_granted(offer, name) for name in ids):
        return None  # they may go to the very pod that has them
    return (code, why) if code else None


def _unread(state: State, ask: OpenAsk) -> tuple[str, str] | None:
    """Why there is nothing to decide by: no sample that began after the question, or no time."""
    if ask.expired:
        return "late", "the answer was not found in time"
    sample = state.keys.sample
    if sample is None or sample.as_of < ask.question.seq:
        return "unread", "the kernel's counters could not be read in time"
    return None


def _own_again(state: State, ask: OpenAsk, key: str, offer: Offer, granted: Sequence[str]) -> list[str]:
    """Those of the granted ids that go to the very pod that has them.

    Kubelet does not say for whom it asks. It asks again for a pod's own ids where an init container's go on to the next
    container, and after a boot. Both happen before the pod has a sandbox, and by a view from after the question. An id
    whose owner has started, or of which there are two, is one that kubelet has forgotten, and counts once more; so does
    one by kubelet's word alone for which the kernel has no key."""
    if state.keys.held_fault or state.keys.held_as_of < ask.question.seq:
        return []
    owners = [device_ids.owners(offer.held, name) for name in granted]
    uid = owners[0][0] if owners and owners[0] else None
    if uid is None or any(one != [uid] for one in owners) or uid in state.pods.sandbox_of:
        return []
    if all(offer.grants[name].seq == 0 for name in granted):
        return list(granted) if _is_room(state, key) else []
    told, word = versions(state).get(uid, ()), _word(state, key)
    is_init = bool(told) and all(
        any(one.role is Role.INIT and one.declared.get(word) for one in spec.containers) for spec in told
    )
    fresh = all(state.at_ns - offer.grants[name].at_ns < device_ids.SETTLE_NS for name in granted)
    return list(granted) if is_init and fresh else []


def _is_room(state: State, key: str) -> bool:
    """Whether the kernel has what pods were promised beside what others hold: a VM of a pod that nobody but kubelet
    knows is among these."""
    count = sums.counted(state, key)
    return count is not None and not count.wrapped and count.claimed + count.foreign <= count.capacity


def _decided(state: State, event: ev.Allocating, key: str, reused: list[str]) -> Answered:
    offer, count = sums.offer_now(state, key), sums.counted(state, key)
    if count is None:
        return _refused(state, event, key, *sums.uncounted(state, key))
    why = sums.unquoted(state, key) if len(reused) < len(event.ids) else ""
    if why:
        return _refused(state, event, key, "quotes", why)
    free = sums.to_grant(state, key, count)
    after = device_ids.allocate(offer, event.ids, reused, free, state.at_ns, state.seq)
    if after is None:
        asked = len(event.ids) - len(reused)
        pods = sums.claims(state, key, sample) if (sample := state.keys.sample) is not None else {}
        promised = any(claim.entitled for claim in pods.values())
        return _refused(
            state, event, key, *refusals.short_of(replace(count, free=free), offer.published, asked, promised)
        )
    fresh = tuple(name for name in event.ids if name not in reused)
    keys = replace(state.keys, offers=put(state.keys.offers, key, after))
    if not fresh and all(offer.grants[name].seq for name in event.ids):
        return keys, Final(Adjustment(), Reason("granted", (event.resource, 0)))
    open_asks = {ask_id: one for ask_id, one in keys.reserved.items() if ask_id in state.asks}
    reserved = Reserved(key, fresh, tuple(dict.fromkeys(after.released)))
    keys = replace(keys, reserved=put(open_asks, event.ask_id, reserved))
    return keys, Commit(_record(event.resource, fresh or event.ids, reserved.released))


def _record(resource: str, ids: Sequence[str], released: Sequence[str]) -> str:
    """The journal's line: what is granted now, and what was released since the last one."""
    record = {"resource": resource, "ids": list(ids)}
    return json.dumps(record | ({"released": list(released)} if released else {}), separators=(",", ":"))


def _recorded(state: State, event: ev.Allocating, ask: OpenAsk) -> Answered:
    """The end of an Allocate that was to be put on record."""
    reserved = state.keys.reserved[event.ask_id]
    offer = state.keys.offers.get(reserved.key)
    if ask.committed and not ask.expired and offer is not None:
        released = tuple(name for name in offer.released if name not in reserved.released)
        offers = state.keys.offers
        if offer.released:
            offers = put(offers, reserved.key, replace(offer, released=released))
        keys = replace(state.keys, offers=offers, reserved=without(state.keys.reserved, (event.ask_id,)))
        return keys, Final(Adjustment(), Reason("granted", (event.resource, len(reserved.fresh))))
    state = replace(state, keys=given_back(state.keys, event.ask_id))
    if ask.commit_error:
        why = f"the grant could not be put on record ({ask.commit_error})"
        return _refused(state, event, reserved.key, "journal", why)
    return _refused(state, event, reserved.key, "late", "the answer was not found in time")


def _owners(state: State, ask: OpenAsk, key: str, ids: Sequence[str]) -> list[PodUid]:
    """The pod that is about to start with these ids: by kubelet's checkpoint as it is now; else, by kubelet's pods as
    they are now, who has had them before and lives, since kubelet takes none from a pod, or the only one that asks for
    as many, has none and holds no key. Of several with the same ids the one whose start has the most to take comes
    first."""
    least, asked_at, offer = sums.least(state, key), ask.question.seq, sums.offer_now(state, key)
    known = [uid for uid, names in offer.held.items() if all(name in names for name in ids)]
    if known and state.keys.held_as_of >= asked_at:
        return _most_to_take_first(known, least, offer)
    if state.keys.of_kubelet is None or state.keys.of_kubelet.as_of < asked_at:
        return []
    pods, word = specs(state), _word(state, key)
    had = held_ids(state, state.settings.keys.kinds[key].publish)
    asking = [uid for uid, spec in pods.items() if not spec.terminal and _asks(spec, word, len(ids))]
    lacking = [uid for uid in asking if uid not in had and not least.get(uid)]
    there = {one.uid: None for one in state.keys.of_kubelet.pods if not pods[one.uid].terminal}
    known = [uid for uid in known if uid in there]
    if known:  # whoever asks for as many and is not known to have any may have been given the same
        return _most_to_take_first([*known, *lacking], least, offer)
    return lacking if len(lacking) == 1 else []


def _most_to_take_first(owners: Sequence[PodUid], least: Mapping[PodUid, int], offer: Offer) -> list[PodUid]:
    return sorted(owners, key=lambda uid: (least.get(uid, 0), uid in offer.passed))


def _asks(spec: PodSpec, word: str, amount: int) -> bool:
    return any(one.declared.get(word, 0) == amount for one in spec.containers)


def _let_through(state: State, event: ev.Starting, key: str, owners: Sequence[PodUid]) -> Answered:
    """The start of a known pod: whether the kernel has what it still lacks, beside all other starts under way. Where
    several have its ids nobody can tell which one starts, so each of them is taken to be under way."""
    uid, *same = owners
    offer, count = sums.offer_now(state, key), sums.counted(state, key)
    if count is None:
        return _refused(state, event, key, *sums.uncounted(state, key))
    least = {} if count.blind else sums.least(state, key)
    needs = max(len(event.ids), _all_of(state, key, offer, uid))
    others = device_ids.pending(offer, least, uid)
    used = count.capacity if count.wrapped else count.used
    passed = device_ids.start(offer, uid, needs, least.get(uid, 0), count.capacity, used, others)
    if passed is None:
        why = (
            f"its start takes {needs - least.get(uid, 0)}, of {count.capacity} there are {count.used} in use, and "
            f"{others} are on their way to pods that start"
        )
        if not same:
            offers = put(state.keys.offers, key, device_ids.not_begun(offer, uid, event.ids))
            state = replace(state, keys=replace(state.keys, offers=offers))
        return _refused(state, event, key, "taken", why)
    maybe = {other: needs for other in same if least.get(other, 0) < needs and passed is not offer}
    passed = replace(passed, passed={**maybe, **passed.passed}, stopped_ns=without(passed.stopped_ns, (uid,)))
    keys = replace(state.keys, offers=put(state.keys.offers, key, passed))
    return keys, Final(Adjustment(), Reason("let-through", (event.resource, str(uid))))


def _all_of(state: State, key: str, offer: Offer, uid: PodUid) -> int:
    """How many keys the pod's containers are to take together."""
    return max(len(offer.held.get(uid, ())), needed(versions(state).get(uid, ()), _word(state, key)))


def _word(state: State, key: str) -> str:
    """By which word a pod's amounts have the resource that we publish."""
    (word,) = state.settings.words([state.settings.keys.kinds[key].publish])
    return word


def _refused(state: State, event: ev.Allocating | ev.Starting, key: str, code: str, why: str) -> Answered:
    counted = f"{key or 'none'}/{code}"
    refused = put(state.keys.refused, counted, state.keys.refused.get(counted, 0) + 1)
    message = refusals.text(code, event.resource, event.ids, why, starts=isinstance(event, ev.Starting))
    return replace(state.keys, refused=refused), Final(Refusal(message), Reason("refused", (event.resource, code)))
