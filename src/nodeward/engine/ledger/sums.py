"""What each pod holds or was promised of a kind of key, and what is free of it: one count for everybody who asks.

What people are shown, what is published and what an Allocate is answered by are these functions' results, on the state
of that moment. Where we offer the keys, a pod is promised the ids that it was given: its spec says nothing before
kubelet has admitted it. Where somebody else does, or nobody, it is promised what its spec asks for, or the ids that
kubelet gave it where those are more. What it asks of other names for the same keys (Kata's overhead) comes on top.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nodeward.engine.ledger import gate
from nodeward.engine.ledger.gate import Offer
from nodeward.engine.ledger.handed import all_ids, ended, lost, specs
from nodeward.engine.ledger.rule import Claim, Count, count
from nodeward.engine.ledger.share import Shares, asked_by_nfd, capacity_of, nfd_is_here, outside_of_pods, shares
from nodeward.engine.limits.budget import budget_of_all
from nodeward.engine.state import State
from nodeward.engine.tables import without
from nodeward.model.events import KeysRead
from nodeward.model.settings import Attestation, CapacitySource, KeySettings, Mode, Publisher, Share
from nodeward.model.tee import PluginStanding
from nodeward.model.workload import PodUid

MISC = CapacitySource.MISC


def is_tracked(kind: KeySettings) -> bool:
    """Whether the settings want this kind to be offered by us."""
    return kind.publisher is Publisher.DEVICE_PLUGIN and kind.share is not Share.SHARED


def is_offered(state: State, key: str) -> bool:
    """Whether we offer this kind now: ids are granted by us and by nobody else."""
    ledger = state.settings.ledger
    kind = ledger.keys.get(key)
    if kind is None or ledger.mode is not Mode.ENFORCE or not is_tracked(kind):
        return False
    told = state.ledger.plugins.get(kind.publish)
    return told is None or told.standing is not PluginStanding.RIVAL


def key_of(state: State, resource: str) -> str:
    """The kind that we offer by this name, empty for none."""
    kinds = state.settings.ledger.keys.items()
    return next((key for key, kind in kinds if kind.publish == resource and is_offered(state, key)), "")


def capacity(state: State, key: str) -> int | None:
    """How many keys of the kind there are; None where nobody tells, which is not the same as none."""
    known, sample = capacity_of(state, key), state.ledger.sample
    is_told = known or (sample is not None and sample.capacity)
    return known if is_told and (known or state.settings.ledger.keys[key].capacity_from is MISC) else None


def offer_now(state: State, key: str) -> Offer:
    """The offer, without what pods had that have ended since kubelet was last heard."""
    offer = state.ledger.offers.get(key, Offer())
    return gate.living(offer, ended(state, offer.held))


def claims(state: State, key: str, sample: KeysRead) -> dict[PodUid, Claim]:
    """Everybody's claim, those of grants that no pod has yet as NOBODY's. Who holds nothing and was promised nothing is
    left out."""
    kind = state.settings.ledger.keys[key]
    offer = offer_now(state, key) if is_offered(state, key) else None
    others = [name for name in kind.resources if offer is None or name != kind.publish]
    own = () if offer is None else state.settings.words([kind.publish])
    limited = (key,) if key in state.settings.limits.resources.values() else ()
    words = dict.fromkeys((*state.settings.words(others), *limited))
    by_spec = asked(state, [word for word in words if word not in own])
    ids = all_ids(state, others)
    for uid, names in without(ids, ended(state, ids)).items():
        by_spec[uid] = max(by_spec.get(uid, 0), len(names))
    charged = reads(sample, key)
    if offer is None:
        found = {uid: Claim(by_spec.get(uid, 0), charged.get(uid, ())) for uid in dict.fromkeys((*by_spec, *charged))}
    else:
        started = {uid: need for uid, need in asked(state, own).items() if uid in state.pods.sandbox_of}
        found = gate.claims(offer, by_spec, started, charged, sure=state.ledger.held is not None)
    unread = dict.fromkeys(sample.unread)
    for uid, claim in found.items():
        if not claim.charged and uid in state.pods.sandbox_of and uid not in unread:
            found[uid] = Claim(claim.entitled, (0, 0))
    return found


def asked(state: State, words: Sequence[str]) -> dict[PodUid, int]:
    """How many keys each pod that has not ended asks for by these words."""
    found: dict[PodUid, int] = {}
    for uid, spec in specs(state).items() if words else ():
        need = 0 if spec.terminal else budget_of_all(spec, words)
        if need:
            found[uid] = need
    return found


def reads(sample: KeysRead, key: str) -> dict[PodUid, tuple[int, ...]]:
    """The reads of the pods that held a key of the kind."""
    return {uid: of[key] for uid, of in sample.pods.items() if any(of.get(key, ()))}


def counted(state: State, key: str, held: Mapping[PodUid, Claim] | None = None) -> Count | None:
    """The sums at the newest sample, None where the kernel or the settings do not tell enough."""
    sample, size = state.ledger.sample, capacity(state, key)
    if sample is None or not size or not sample.roots.get(key):
        return None
    found = claims(state, key, sample) if held is None else held
    return count(size, state.settings.ledger.keys[key].reserve, sample.roots[key], found.values())


def ours(state: State, key: str) -> int:
    """How many ids we list: all keys, or our part of them."""
    kind = state.settings.ledger.keys[key]
    size = capacity(state, key) or 0
    return min(kind.split, size) if kind.share is Share.SPLIT else size


def shared(state: State, key: str, sums: Count, free: int) -> Shares:
    """What we, and those who go by NFD's number, may have of what is free."""
    kind = state.settings.ledger.keys[key]
    asked_there, outside = asked_by_nfd(state, key), outside_of_pods(state, key)
    return shares(kind, sums, free, asked_there, nfd=nfd_is_here(state), outside=outside)


def can_share(state: State) -> bool:
    """Whether NFD's numbers can be told from what is known: without the pods too little would be asked by them, and
    kubelet ends pods that the node has no room for."""
    sample = state.ledger.sample
    return state.pods.api_up and all(
        kind.share is Share.OWN
        or counted(state, key) is not None
        or (sample is not None and not capacity_of(state, key))
        for key, kind in state.settings.ledger.keys.items()
    )


def to_grant(state: State, key: str, sums: Count) -> int:
    """How many more ids may be granted: what is free, and with a split no more than is left of our part."""
    return shared(state, key, sums, sums.free).sellable or 0


def withheld(state: State, key: str) -> tuple[str, str]:
    """Why nothing may be granted, whatever is free: a code and a sentence, or two times nothing."""
    ledger, kind = state.ledger, state.settings.ledger.keys[key]
    if not ledger.recalled_ns:
        return "early", "what was granted before the daemon started has not been read yet"
    if ledger.journal_fault:
        return "journal", f"the journal of grants cannot be trusted or written ({ledger.journal_fault})"
    if kind.attestation is Attestation.ENFORCE:
        told = ledger.quotes.get(key)
        if told is None or not told.answers:
            why = told.why if told is not None and told.why else "it has not answered yet"
            return "quotes", f"the service that makes quotes at {kind.attestation_socket} does not answer ({why})"
    return "", ""


def published(state: State, key: str, *, grows: bool) -> Offer:
    """The offer after the newest sample; `grows` is false where that is no news."""
    offer = offer_now(state, key)
    sums, now_ns = counted(state, key), state.at_ns
    if sums is None:
        known = capacity(state, key)
        return gate.publish(offer, offer.size if known is None else ours(state, key), 0, now_ns)
    sample = state.ledger.sample
    least = {} if sample is None else {uid: min(of) for uid, of in reads(sample, key).items()}
    offer = gate.settled(offer, least)
    free = 0 if withheld(state, key)[0] else to_grant(state, key, sums)
    if grows and not lost(state):
        return gate.publish(offer, ours(state, key), free, now_ns)
    shrunk = gate.publish(offer, ours(state, key), min(free, offer.published), now_ns)
    return replace(shrunk, grow_to=min(offer.grow_to, free), grow_since_ns=offer.grow_since_ns) if not grows else shrunk
