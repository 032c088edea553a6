"""How many keys of a kind each pod holds or was promised, and how many are free.

What people are shown, what is published and what an Allocate is answered by are these functions' results, on the state
of that moment. Where we offer the keys, a pod is promised the ids that it was given: its spec says nothing before
kubelet has admitted it. Where somebody else does, or nobody, it is promised what its spec asks for, or the ids that
kubelet gave it where those are more. What it asks of other names for the same keys (Kata's overhead) comes on top.
"""

from collections.abc import Mapping
from dataclasses import replace

from nodeward.core.claims import ClaimUid, Promised
from nodeward.core.devices import PluginStanding
from nodeward.core.events import KeysRead
from nodeward.core.modes import Mode
from nodeward.core.tables import kept, without
from nodeward.core.workload import PodSpec, PodUid, SandboxId
from nodeward.features.keys import device_ids, fronts, loss
from nodeward.features.keys.kubelet_view import all_ids, ended, frozen, promised, unaccounted, versions
from nodeward.features.keys.rule import Count, PodKeys, count, together
from nodeward.features.keys.settings import Attestation, CapacitySource, KeyKind, Publisher, Share
from nodeward.features.keys.share import (
    Shares,
    asked_by_nfd,
    capacity_of,
    may_follow,
    nfd_is_here,
    outside_of_pods,
    oversold,
    shares,
)
from nodeward.features.keys.state import Offer
from nodeward.features.root import State

MISC = CapacitySource.MISC
NOTHING_ASKED: Mapping[PodUid, int] = {}
_NOT_OFFERED = Offer()
GONE = (
    "the kernel has no such keys any more: misc.capacity can be read and does not name them, as after their module "
    "was taken out"
)


def is_tracked(kind: KeyKind) -> bool:
    """Whether the settings want this kind to be offered by us."""
    return kind.publisher is Publisher.DEVICE_PLUGIN and kind.share is not Share.SHARED


def is_offered(state: State, key: str) -> bool:
    """Whether we offer this kind now: ids are granted by us and by nobody else."""
    keys = state.settings.keys
    kind = keys.kinds.get(key)
    if kind is None or keys.mode is not Mode.ENFORCE or not is_tracked(kind):
        return False
    told = state.keys.plugins.get(kind.publish)
    return told is None or told.standing is not PluginStanding.RIVAL


def is_listed(state: State, key: str) -> bool:
    """Whether kubelet has, or is about to have, a list of our ids: not once they were withdrawn for good."""
    told = state.keys.plugins.get(state.settings.keys.kinds[key].publish)
    return is_offered(state, key) and (told is None or told.standing is not PluginStanding.ENDED)


def unsold(state: State, key: str) -> str:
    """Why kubelet cannot get more ids of ours now, however many are free; empty where it can, or none is to be."""
    kind = state.settings.keys.kinds[key]
    if state.settings.keys.mode is not Mode.ENFORCE or not is_tracked(kind):
        return ""
    told = state.keys.plugins.get(kind.publish)
    if told is not None and told.standing in (PluginStanding.RIVAL, PluginStanding.REFUSED, PluginStanding.ENDED):
        return told.why or told.standing.value
    return withheld(state, key)[1]


def key_of(state: State, resource: str) -> str:
    """The kind that we offer by this name, empty for none."""
    kinds = state.settings.keys.kinds.items()
    return next((key for key, kind in kinds if kind.publish == resource and is_offered(state, key)), "")


def capacity(state: State, key: str) -> int | None:
    """How many keys of the kind there are; None where nobody tells, which is not the same as none."""
    known, sample = capacity_of(state, key), state.keys.sample
    is_told = known or (sample is not None and sample.capacity)
    return known if is_told and (known or state.settings.keys.kinds[key].capacity_from is MISC) else None


def is_gone(state: State, key: str) -> bool:
    """Whether the kernel no longer has a kind of key that was offered in this life of the daemon."""
    return capacity(state, key) == 0 and state.settings.keys.kinds[key].publish in state.keys.listed


def unknown(state: State, key: str) -> str:
    """The code for publishing nothing, since the free keys are not known or the kernel has none any more; empty where
    it can be told, or there never were any."""
    if is_gone(state, key):
        return "gone"
    listed = key in state.keys.offers and state.keys.offers[key].size
    return "uncounted" if listed and not is_counted(state, key) else ""


def uncounted(state: State, key: str) -> tuple[str, str]:
    """Why the free keys are not known, or do not exist: a code and a sentence."""
    size = capacity(state, key)
    if size == 0:
        return "gone", GONE
    if size is None:
        return "uncounted", "how many keys there are is not told: misc.capacity, or what the row names, cannot be read"
    return "uncounted", "how many keys are in use is not told: the root's misc.current did not show them at both reads"


def offer_now(state: State, key: str) -> Offer:
    """The offer, without what pods had that have ended since kubelet was last heard."""
    offer = state.keys.offers.get(key, Offer())
    return device_ids.living(offer, ended(state, offer.held))


def claims(state: State, key: str, sample: KeysRead) -> Mapping[PodUid, PodKeys]:
    """Each pod's claim. Who holds nothing and was promised nothing is left out."""
    return _claims(state, key, sample)[0]


def _claims(state: State, key: str, sample: KeysRead) -> tuple[Mapping[PodUid, PodKeys], int]:
    """The same, and how many ids are promised that no pod has yet."""
    kind = state.settings.keys.kinds[key]
    offers = is_offered(state, key)
    offer = offer_now(state, key) if offers else _NOT_OFFERED
    others = [name for name in kind.resources if not offers or name != kind.publish]
    own = state.settings.words([kind.publish]) if offers else ()
    limited = (key,) if key in state.settings.limits.resources.values() else ()
    words = dict.fromkeys((*state.settings.words(others), *limited))
    by_spec = asked(state, tuple(word for word in words if word not in own))
    ids = all_ids(state, others)
    if ids:
        living = without(ids, ended(state, ids))
        by_spec = {**by_spec, **{uid: max(by_spec.get(uid, 0), len(names)) for uid, names in living.items()}}
    begun = _started(asked(state, own), state.pods.sandbox_of)
    if state.keys.claims:
        by_spec, begun = _with_claims(by_spec, begun, state.keys.claims, key, offers)
    seen = _seen(state.pods.sandbox_of, sample.unread)
    sure = state.keys.held_whole
    return device_ids.claims(offer.grants, offer.held, by_spec, begun, reads(sample, key), seen, sure=sure)


@kept
def _with_claims(
    by_spec: Mapping[PodUid, int],
    begun: Mapping[PodUid, int],
    claims: Mapping[ClaimUid, Promised],
    key: str,
    offers: bool,
) -> tuple[Mapping[PodUid, int], Mapping[PodUid, int]]:
    """The same two, with what pods were promised by claim. A claim that the scheduler made for an extended resource is
    what the pod's spec asks by that name, not more."""
    found, extended = dict(by_spec), list[PodUid]()
    for one in claims.values():
        if one.extended and key in one.amounts:
            extended += one.pods
        for uid in one.pods if key in one.amounts else ():
            of_spec, amount = found.get(uid, 0), one.amounts[key]
            found[uid] = max(of_spec, amount) if one.extended and not offers else of_spec + amount
    return found, without(begun, extended)


def by_claims(claims: Mapping[ClaimUid, Promised], key: str) -> int:
    """How many keys prepared claims have."""
    return sum([one.amounts.get(key, 0) for one in claims.values()])


def for_claims(state: State, key: str, free: int) -> int:
    """How many of the free keys the scheduler may give to claims, by the settings. A key that a claim has not let go of
    yet is of their part: else the plugin would have to give up one of its own for it."""
    most = fronts.most(state, key)
    theirs = by_claims(state.keys.claims, key) + by_claims(state.keys.draining, key)
    return free if most is None else min(free, max(0, most - theirs))


@kept
def _seen(sandbox_of: Mapping[PodUid, SandboxId], unread: tuple[PodUid, ...]) -> Mapping[PodUid, SandboxId]:
    """The pods whose counters were read, whatever these said."""
    return without(sandbox_of, unread)


def started(state: State, key: str) -> Mapping[PodUid, int]:
    """What the pods that have a sandbox ask of the ids of the kind."""
    own = state.settings.words([state.settings.keys.kinds[key].publish])
    return _started(asked(state, own), state.pods.sandbox_of)


@kept
def _started(need: Mapping[PodUid, int], sandbox_of: Mapping[PodUid, SandboxId]) -> Mapping[PodUid, int]:
    return {uid: amount for uid, amount in need.items() if uid in sandbox_of}


def asked(state: State, words: tuple[str, ...]) -> Mapping[PodUid, int]:
    """How many keys each pod that has not ended asks for by these words."""
    return _asked(versions(state), words) if words else NOTHING_ASKED


@kept
def _asked(pods: Mapping[PodUid, tuple[PodSpec, ...]], words: tuple[str, ...]) -> Mapping[PodUid, int]:
    needs = ((uid, promised(told, words)) for uid, told in pods.items() if not told[0].terminal)
    return {uid: need for uid, need in needs if need}


def reads(sample: KeysRead, key: str) -> Mapping[PodUid, tuple[int, ...]]:
    """The reads of the pods that held a key of the kind."""
    return _reads(sample.pods, key)


def least(state: State, key: str) -> Mapping[PodUid, int]:
    """What each pod holds at least by the newest sample."""
    sample = state.keys.sample
    return {} if sample is None else {uid: min(of) for uid, of in reads(sample, key).items()}


@kept
def _reads(pods: Mapping[PodUid, Mapping[str, tuple[int, ...]]], key: str) -> Mapping[PodUid, tuple[int, ...]]:
    return {uid: of[key] for uid, of in pods.items() if any(of.get(key, ()))}


def is_counted(state: State, key: str) -> bool:
    """Whether the kernel and the settings tell enough for the sums."""
    sample = state.keys.sample
    return sample is not None and bool(capacity(state, key)) and bool(sample.roots.get(key))


def counted(state: State, key: str) -> Count | None:
    """The sums at the newest sample, None where the kernel or the settings do not tell enough."""
    sample, size = state.keys.sample, capacity(state, key)
    if sample is None or not size or not sample.roots.get(key):
        return None
    pods, nobodys = _claims(state, key, sample)
    return _counted(size, state.settings.keys.kinds[key].reserve, sample.roots[key], _together(pods), nobodys)


@kept
def _together(pods: Mapping[PodUid, PodKeys]) -> PodKeys:
    return together(pods.values())


@kept
def _counted(capacity: int, reserve: int, roots: tuple[int, ...], pods: PodKeys, nobodys: int) -> Count:
    return count(capacity, reserve, roots, (pods, PodKeys(nobodys)))


def ours(state: State, key: str) -> int:
    """How many ids we list: all keys, or our part of them."""
    kind = state.settings.keys.kinds[key]
    size = min(capacity(state, key) or 0, device_ids.MOST_IDS)
    return min(kind.split, size) if kind.share is Share.SPLIT else size


def shared(state: State, key: str, sums: Count, free: int) -> Shares:
    """How many of the free keys we may sell, and how many those who go by NFD's number."""
    kind = state.settings.keys.kinds[key]
    asked_there, outside = asked_by_nfd(state, key), outside_of_pods(state, key)
    return shares(kind, sums, free, asked_there, nfd=may_follow(key, kind) and nfd_is_here(state), outside=outside)


def oversold_now(state: State, key: str, sums: Count) -> tuple[str, str]:
    """What is wrong and its remedy where more was promised than exists now (features.keys.share.oversold)."""
    if sums.entitled <= sums.capacity:
        return "", ""
    own = is_offered(state, key) and state.settings.keys.kinds[key].share is Share.OWN
    return oversold(key, sums.entitled, sums.capacity, asked_by_nfd(state, key), own=own)


def can_share(state: State) -> bool:
    """Whether enough is known to write NFD's numbers: without the pods too little would be asked by them, and kubelet
    ends pods that the node has no room for."""
    sample = state.keys.sample
    return state.pods.api_up and all(
        not may_follow(key, kind)
        or counted(state, key) is not None
        or (sample is not None and not capacity_of(state, key))
        for key, kind in state.settings.keys.kinds.items()
    )


def to_grant(state: State, key: str, sums: Count) -> int:
    """How many more ids may be granted: what is free, and with a split no more than is left of our part."""
    return shared(state, key, sums, sums.free).sellable or 0


def withheld(state: State, key: str) -> tuple[str, str]:
    """Why nothing may be granted, whatever is free: a code and a sentence, or two times nothing."""
    keys = state.keys
    if state.settings.keys.dra.mode is Mode.ENFORCE and not keys.claims_recalled:
        return "early", "which claims were prepared before the daemon started is not known yet" + (
            f" ({keys.claims_fault})" if keys.claims_fault else ""
        )
    if not keys.recalled_ns:
        return "early", "what was granted before the daemon started has not been read yet"
    if not keys.viewed:  # what is not on record, kubelet alone knows of
        whys = "; ".join(why for why in (keys.held_fault, keys.held_fault and unaccounted(state)) if why)
        return "early", "what kubelet has handed out has not been read yet" + (f" ({whys})" if whys else "")
    if keys.journal_fault:
        return "journal", f"the journal of grants cannot be trusted or written ({keys.journal_fault})"
    if loss.is_frozen(keys):
        return "journal", loss.FROZEN
    why = unquoted(state, key)
    return ("quotes", why) if why else ("", "")


def unquoted(state: State, key: str) -> str:
    """Why no VM with a key of the kind could prove what it is, where the settings want that; nothing where it can."""
    kind, told = state.settings.keys.kinds[key], state.keys.quotes.get(key)
    if kind.attestation is not Attestation.ENFORCE or (told is not None and told.answers):
        return ""
    why = told.why if told is not None and told.why else "it has not answered yet"
    return f"the service that makes quotes at {kind.attestation_socket} does not answer ({why})"


def published(state: State, key: str, *, grows: bool) -> Offer:
    """The offer after the newest sample; `grows` is false where that is no news."""
    offer = offer_now(state, key)
    sums, now_ns = counted(state, key), state.at_ns
    if sums is None:
        known = capacity(state, key)
        return device_ids.publish(offer, offer.size if known is None else ours(state, key), 0, now_ns)
    if offer.passed:
        offer = device_ids.settled(offer, least(state, key))
    free = 0 if withheld(state, key)[0] else to_grant(state, key, sums)
    if state.settings.keys.dra.mode is Mode.ENFORCE:
        out = state.keys.rooms.get(key, _NOT_OFFERED).published
        left = free - max(for_claims(state, key, free), min(free, out))
    else:
        left = free
    seen = fronts.to_be_seen(state, key, by_claims(state.keys.claims, key))
    may_grow_to = 0 if seen is None else free - seen
    free = min(left, max(offer.published, may_grow_to), ours(state, key))
    if grows and not frozen(state):
        return device_ids.publish(offer, ours(state, key), free, now_ns)
    shrunk = device_ids.publish(offer, ours(state, key), min(free, offer.published), now_ns)
    return replace(shrunk, grow_to=min(offer.grow_to, free), grow_since_ns=offer.grow_since_ns) if not grows else shrunk
