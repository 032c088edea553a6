"""Keys by claim (Dynamic Resource Allocation): what a claim is promised, and what the scheduler is offered.

One device stands for all keys of a kind, and each claim takes some of its capacity. Whoever sells by the scheduler's
word is asked only when a pod is about to start, so the kernel is read anew then: a claim that no key is free for is
refused, and asked again while kubelet waits. What is offered never counts a key twice, whichever front sells it:

    offered by the plugin + (the device's capacity - what claims consume) <= free

tests/unit/features/keys/fronts.py plays every history of a small node with both fronts against it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.claims import Allocated, Claim, Promised
from nodeward.core.decision import Adjustment, Final, Need
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.core.tables import put, without
from nodeward.features.keys import device_ids, refusals, sums
from nodeward.features.keys.settings import Attestation
from nodeward.features.keys.state import Keys, Offer, Waiting
from nodeward.features.root import State

READ_NS = 3_000_000_000
"""So long a fresh sample may take; kubelet waits 45 seconds for a Prepare, and nobody else waits with it."""
CAPACITY = {"tdx": "keys"}
"""What the capacity of a kind's device is called, where it is not `ids`."""
FORGOTTEN_NS = 300_000_000_000
"""Kubelet asks again after 90 seconds at most, for as long as it has the pod."""
WITHHELD = "withheld"
"""The name of the taint, below the driver's, of a device that nothing is left of."""


def device_of(key: str) -> str:
    """The device's name: a DNS label."""
    return key.replace("_", "-")


def preparing(state: State, event: ev.Preparing) -> tuple[Keys, Final | Need]:
    """The slice and the answer to a Prepare, as far as it has come."""
    claim, known = event.claim, state.keys.claims.get(event.claim.uid)
    amounts, wrong = _amounts(state, claim)
    if wrong:
        return _refused(state, event, "claim", wrong, Refused.BAD_VALUE)
    if known is not None and known.amounts != amounts:
        why = f"it was prepared with {_text(known.amounts)}, and now has {_text(amounts)}"
        return _refused(state, event, "claim", why, Refused.BAD_VALUE)
    if not state.keys.claims_recalled:
        return _refused(state, event, *sums.withheld(state, next(iter(amounts), "")), Refused.NO_CAPACITY)
    if known is not None or not amounts:
        return _promised(state, claim, amounts, event.wall_ns)
    ask = state.asks.get(event.ask_id)
    if ask is None:
        return state.keys, Need("keys", next(iter(amounts)), READ_NS)
    if ask.expired:
        return _refused(state, event, "late", "the answer was not found in time", Refused.FOR_NOW)
    sample = state.keys.sample
    if sample is None or sample.as_of < ask.question.seq:
        why = "the kernel's counters could not be read in time"
        return _refused(state, event, "unread", why, Refused.FOR_NOW)
    for key in amounts:
        code, why = withheld(state, key)
        if not code and not sums.is_counted(state, key):
            code, why = sums.uncounted(state, key)
        if code:
            return _refused(state, event, code, why, Refused.NO_CAPACITY)
    keys, granted = _promised(state, claim, amounts, event.wall_ns)
    for key, amount in amounts.items():
        code, why = _lacking(replace(state, keys=keys), key, amount)
        if code:
            return _refused(state, event, code, why, Refused.NO_CAPACITY)
    return keys, granted


def unprepared(state: State, event: ev.Unprepared) -> Keys:
    """The slice once a claim's pods have ended. What they still hold the kernel tells."""
    keys = state.keys
    known = keys.claims.get(event.claim)
    if known is None:
        return replace(keys, waiting=without(keys.waiting, (event.claim,))) if event.claim in keys.waiting else keys
    after = replace(keys, claims=without(keys.claims, (event.claim,)))
    return drained(replace(after, draining=put(keys.draining, event.claim, known)), state.at_ns)


def recalled(state: State, event: ev.ClaimsRecalled) -> Keys:
    """The slice once it is known what was prepared before; a fault that comes later stops new promises."""
    if event.fault:
        return replace(state.keys, claims_fault=event.fault)
    claims = {one.uid: one for one in event.claims}
    for claim in event.adopted:
        amounts, wrong = _amounts(state, claim)
        if not wrong:
            claims[claim.uid] = _promise(claim, amounts, event.wall_ns)
    return replace(state.keys, claims={**claims, **state.keys.claims}, claims_recalled=True, claims_fault="")


def drained(keys: Keys, at_ns: int) -> Keys:
    """The slice without the claims of which no pod holds a key any more, and those about which nobody asks again."""
    over = [uid for uid, one in keys.waiting.items() if at_ns - one.asked_ns > FORGOTTEN_NS]
    if over:
        keys = replace(keys, waiting=without(keys.waiting, over))
    if not keys.draining or keys.sample is None:
        return keys
    held, unread = keys.sample.pods, keys.sample.unread
    left = {
        uid: one
        for uid, one in keys.draining.items()
        if any(pod in unread or any(max(held.get(pod, {}).get(key, (0,))) for key in one.amounts) for pod in one.pods)
    }
    return keys if len(left) == len(keys.draining) else replace(keys, draining=left)


def withheld(state: State, key: str) -> tuple[str, str]:
    """Why no claim may have a key now, whatever is free: a code and a sentence, or two times nothing."""
    if state.keys.claims_fault:
        return "journal", state.keys.claims_fault
    return sums.withheld(state, key)


def room(state: State, key: str, *, grows: bool) -> Offer:
    """How many keys more the scheduler may give to claims, after the newest sample (`published`)."""
    known = state.keys.rooms.get(key, Offer())
    count, size = sums.counted(state, key), sums.capacity(state, key) or 0
    free = 0 if count is None or withheld(state, key)[0] else sums.to_grant(state, key, count)
    offers = state.keys.offers.get(key)
    out = offers.published if offers is not None and sums.is_offered(state, key) and are_sold(state) else 0
    free = max(0, min(sums.for_claims(state, key, free), free - out))
    if grows:
        return device_ids.publish(known, size, free, state.at_ns)
    shrunk = device_ids.publish(known, size, min(free, known.published), state.at_ns)
    return replace(shrunk, grow_to=min(known.grow_to, free), grow_since_ns=known.grow_since_ns)


def are_sold(state: State) -> bool:
    """Whether the settings want keys to go by claim."""
    return state.settings.keys.mode is Mode.ENFORCE and state.settings.keys.dra.mode is Mode.ENFORCE


def devices(state: State) -> Mapping[str, str]:
    """What is to be published, by driver: the JSON of a ResourceSlice's `devices`. While it is not known yet what was
    prepared before, or whether kubelet has our driver, what the API server has stands."""
    keys, dra = state.settings.keys, state.settings.keys.dra
    if not state.keys.claims_recalled or state.keys.sample is None or state.keys.driver is None:
        return state.keys.slices
    every = [_device(state, key) for key in keys.kinds if sums.capacity(state, key)]
    return {dra.driver: json.dumps(every, separators=(",", ":"))}


def value(state: State, key: str) -> int:
    """The capacity of the kind's device: what prepared claims have, and what more may be given out. The scheduler
    subtracts every claim that is allocated, also those of which this node has not heard yet."""
    return sums.by_claims(state.keys.claims, key) + state.keys.rooms.get(key, Offer()).published


def standing(state: State, key: str) -> tuple[bool, str]:
    """Whether VMs with a key of this kind can be started now by claim, and why not."""
    why = withheld(state, key)[1] or ("" if sums.is_counted(state, key) else sums.uncounted(state, key)[1])
    return not why, why


def _device(state: State, key: str) -> dict[str, object]:
    dra, kind = state.settings.keys.dra, state.settings.keys.kinds[key]
    attributes: dict[str, object] = {"kind": {"string": device_of(key)}, "total": {"int": sums.capacity(state, key)}}
    if kind.attestation is not Attestation.OFF:
        attributes["quoting"] = {"bool": key in state.keys.quotes and state.keys.quotes[key].answers}
    amount = value(state, key)
    one: dict[str, object] = {
        "name": device_of(key),
        "attributes": attributes,
        "allowMultipleAllocations": True,
        "capacity": {CAPACITY.get(key, "ids"): _capacity(max(1, amount))},
    }
    registered = state.keys.driver is not None and state.keys.driver.registered
    # A capacity of 0 is refused with these rules, and without them gives a claim 0 keys.
    if amount < 1 or not registered:
        one["taints"] = [{"key": f"{dra.driver}/{WITHHELD}", "effect": "NoSchedule"}]
    return one


def _capacity(value: int) -> dict[str, object]:
    return {"value": str(value), "requestPolicy": {"default": "1", "validValues": ["1"]}}


def _amounts(state: State, claim: Claim) -> tuple[Mapping[str, int], str]:
    """How many keys of each kind a claim has been given; or what is wrong with it."""
    kinds = {device_of(key): key for key in state.settings.keys.kinds}
    if len(claim.pods) != 1:
        why = (
            f"it is reserved for {len(claim.pods)} pods, and keys are counted by pod: give each pod a claim of its own"
        )
        return {}, why
    found: dict[str, int] = {}
    for one in claim.allocated:
        key = kinds.get(one.device)
        if key is None:
            return {}, f"its device {one.device!r} is none of ours: {', '.join(kinds)}"
        if not one.admin:
            amount = one.consumed.get(CAPACITY.get(key, "ids"), 0)
            if amount < 1:
                return {}, _unconsumed(one, CAPACITY.get(key, "ids"))
            found[key] = found.get(key, 0) + amount
    return found, ""


def _unconsumed(one: Allocated, capacity: str) -> str:
    return (
        f"its allocation does not say how many {capacity} of {one.device} it consumes, so nobody has counted them: the "
        "feature gate DRAConsumableCapacity is on since Kubernetes 1.36; see that kube-scheduler and kube-apiserver "
        "have it, and make the pod again"
    )


def _lacking(state: State, key: str, amount: int) -> tuple[str, str]:
    """Why the kernel cannot keep this promise beside all others, which `state` has with it; or nothing."""
    count = sums.counted(state, key)
    if count is None:
        return sums.uncounted(state, key)
    if count.wrapped or count.claimed + count.foreign + count.reserve > count.capacity:
        claimed = count.claimed - amount
        free = max(0, count.capacity - claimed - count.foreign - count.reserve)
        before = replace(count, claimed=claimed, entitled=count.entitled - amount, free=free)
        return refusals.short_of(before, None, amount, count.entitled > amount)
    return "", ""


def _promised(state: State, claim: Claim, amounts: Mapping[str, int], wall_ns: int) -> tuple[Keys, Final]:
    keys, known = state.keys, state.keys.claims.get(claim.uid)
    since_ns = known.since_wall_ns if known is not None else wall_ns
    one = _promise(claim, amounts, since_ns)
    if one != known:
        keys = replace(keys, claims=put(keys.claims, claim.uid, one))
    if claim.uid in keys.waiting:
        keys = replace(keys, waiting=without(keys.waiting, (claim.uid,)))
    return keys, Final(Adjustment(), Reason("claim-prepared", (claim.title, _text(amounts))))


def _promise(claim: Claim, amounts: Mapping[str, int], since_ns: int) -> Promised:
    return Promised(claim.uid, claim.namespace, claim.name, amounts, claim.pods, claim.extended, since_ns)


def _refused(state: State, event: ev.Preparing, code: str, why: str, kind: Refused) -> tuple[Keys, Final]:
    keys, claim, wall_ns = state.keys, event.claim, event.wall_ns
    message = refusals.of_claim(code, claim.title, why)
    if kind is Refused.NO_CAPACITY:
        began_ns = keys.waiting[claim.uid].since_wall_ns if claim.uid in keys.waiting else wall_ns
        keys = replace(keys, waiting=put(keys.waiting, claim.uid, Waiting(claim, began_ns, state.at_ns, message)))
    elif kind is not Refused.FOR_NOW or claim.uid not in keys.waiting:
        counted = f"{_first_key(state, claim)}/{code}"
        keys = replace(keys, refused=put(keys.refused, counted, keys.refused.get(counted, 0) + 1))
    return keys, Final(Refusal(message, kind), Reason("claim-refused", (claim.title, code)))


def _first_key(state: State, claim: Claim) -> str:
    names = [one.device for one in claim.allocated]
    return next((key for key in state.settings.keys.kinds if device_of(key) in names), "none")


def _text(amounts: Mapping[str, int]) -> str:
    return ", ".join(_each(amounts)) or "nothing"


def _each(amounts: Mapping[str, int]) -> Iterator[str]:
    for key, amount in amounts.items():
        yield f"{amount} of {key}"
