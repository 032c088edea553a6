"""Enclave memory by claim (Dynamic Resource Allocation): what a claim consumes is the limit of the containers that use
it, without any annotation.

One device stands for the node's EPC. The scheduler counts what claims consume; what pods declare otherwise (extended
resource, annotation) is taken out of what is published. The kernel takes pages back from enclaves that do not use them,
so no pod waits for memory that is in use: the promise is that no charge is accepted above the limit.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.claims import Claim, Promised
from nodeward.core.decision import NOTHING, Adjustment, Decision, Final, Goal, Special, Target
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.core.tables import kept, put, without
from nodeward.core.workload import Amounts, ContainerSpec, PodSpec, PodUid
from nodeward.features.limits.promise import EPC
from nodeward.features.limits.state import ByClaim, Limits
from nodeward.features.pods.budget import pod_budget
from nodeward.features.pods.state import KnownSpec
from nodeward.features.root import State

DEVICE, CAPACITY = "epc", "epc"
PAGE, DEFAULT = 4096, 4 << 20
"""EPC is given out in pages; a claim that names no amount gets so much, or half of what the node has left."""
_REMEDY = "delete the pod, and its claim where that stays; the next one is allocated anew"


def are_sold(state: State) -> bool:
    """Whether the settings want EPC to go by claim."""
    limits = state.settings.limits
    return limits.mode is Mode.ENFORCE and limits.dra.mode is Mode.ENFORCE


def preparing(state: State, event: ev.Preparing) -> tuple[Limits, Final]:
    """The slice and the answer to a Prepare."""
    limits, claim, known = state.limits, event.claim, state.limits.by_claim.claims.get(event.claim.uid)
    if not limits.by_claim.recalled:
        why = f"it is not known yet what was prepared before the daemon started ({limits.by_claim.fault or 'a moment'})"
        return limits, _refused(claim, "early", f"{why}; kubelet tries again", Refused.NO_CAPACITY)
    amounts, wrong = _amounts(claim)
    if not wrong and known is not None and known.amounts != amounts:
        wrong = f"it was prepared with {known.amounts.get(EPC, 0)} bytes, and now has {amounts.get(EPC, 0)}"
    if wrong:
        return limits, _refused(claim, "claim", f"{wrong}; {_REMEDY}", Refused.BAD_VALUE)
    one = _promise(claim, amounts, known.since_wall_ns if known is not None else event.wall_ns)
    final = Final(Adjustment(), Reason("claim-prepared", (claim.title, f"{amounts.get(EPC, 0)} of {EPC}")))
    return _with(limits, replace(limits.by_claim, claims=put(limits.by_claim.claims, claim.uid, one))), final


def unprepared(state: State, event: ev.Unprepared) -> Limits:
    """The slice once a claim's pods have ended."""
    of = state.limits.by_claim
    return _with(state.limits, replace(of, claims=without(of.claims, (event.claim,)))) if of.claims else state.limits


def recalled(state: State, event: ev.ClaimsRecalled) -> Limits:
    """The slice once it is known what was prepared before."""
    of = state.limits.by_claim
    if event.fault:
        return _with(state.limits, replace(of, fault=event.fault))
    claims = {one.uid: one for one in event.claims}
    for claim in event.adopted:
        amounts, wrong = _amounts(claim)
        if not wrong:
            claims[claim.uid] = _promise(claim, amounts, event.wall_ns)
    return _with(state.limits, replace(of, claims={**claims, **of.claims}, recalled=True, fault=""))


def told(state: State, event: ev.DriverTold) -> Limits:
    """The slice once our driver has told how it stands."""
    return _with(state.limits, replace(state.limits.by_claim, driver=event))


def published(state: State, limits: Limits) -> tuple[Limits, Decision]:
    """The slice and the goal by which the devices are published that there are now."""
    driver = state.settings.limits.dra.driver
    before, state = limits.by_claim.slices, replace(state, limits=limits)
    if not are_sold(state):
        now: Mapping[str, str] = {}
    elif not limits.by_claim.recalled or limits.by_claim.driver is None or not (before or state.pods.api_up):
        now = before  # before it is known what claims have, what pods declare otherwise, and whether we are registered
    else:
        now = {driver: _devices(state.pods.specs, limits, driver)}
    if now == before:
        return limits, NOTHING
    value = now.get(driver, Special.ABSENT)
    goal = Goal(Target("epc-slice", driver), value, Reason("offered", (driver,)))
    return _with(limits, replace(limits.by_claim, slices=now)), Decision(goals=(goal,))


def is_unknown(state: State, uid: PodUid) -> bool:
    """Whether the pod uses claims, and it is not known yet what was prepared before the daemon started."""
    if state.limits.by_claim.recalled or not are_sold(state):
        return False
    known = state.pods.specs.get(uid)
    return known is not None and any(one.claims for one in known.spec.containers)


def of_pod(state: State, uid: PodUid) -> tuple[Promised, ...]:
    """The claims that are prepared for the pod."""
    return tuple(one for one in state.limits.by_claim.claims.values() if uid in one.pods and one.amounts)


def bytes_of_pod(state: State, uid: PodUid) -> int:
    """How much EPC the pod's claims consume together; each once, however many containers use it."""
    return sum([one.amounts.get(EPC, 0) for one in of_pod(state, uid)])


def with_claims(state: State, uid: PodUid) -> PodSpec | None:
    """The pod's spec, with what its containers' claims consume beside what they declare. None while it is not known."""
    known = state.pods.specs.get(uid)
    if known is None or not state.limits.by_claim.claims:
        return known.spec if known is not None else None
    return _beside(known.spec, of_pod(state, uid))


def source_of(state: State, uid: PodUid, container: str) -> str:
    """The claims that a container's limit comes from, in words; empty for none."""
    known = state.pods.specs.get(uid)
    names = next((one.claims for one in known.spec.containers if one.name == container), ()) if known else ()
    used = [one.title for one in of_pod(state, uid) if one.name in names]
    return f"claim {' and '.join(used)}" if used else ""


@kept
def _beside(spec: PodSpec, claims: tuple[Promised, ...]) -> PodSpec:
    every = {one.name: one.amounts.get(EPC, 0) for one in claims}
    return replace(spec, containers=tuple(_container(one, every) for one in spec.containers)) if every else spec


def _container(one: ContainerSpec, claims: Mapping[str, int]) -> ContainerSpec:
    amount = sum([claims.get(name, 0) for name in one.claims])
    if not amount:
        return one
    return replace(one, declared={**one.declared, EPC: one.declared.get(EPC, 0) + amount})


def _devices(specs: Mapping[PodUid, KnownSpec], limits: Limits, driver: str) -> str:
    capacity, told = limits.capacity.get(EPC, 0), limits.by_claim.driver
    if not capacity:
        return "[]"
    free = (capacity - _declared(specs)) // PAGE * PAGE
    is_left = free >= max(_promised(limits), PAGE) + PAGE and told is not None and told.registered
    one: dict[str, object] = {
        "name": DEVICE,
        "attributes": {"kind": {"string": DEVICE}, "total": {"int": capacity}},
        "allowMultipleAllocations": True,
        "capacity": {CAPACITY: _capacity(max(free, 2 * PAGE))},
    }
    if not is_left:  # a capacity that its own rules do not fit is refused
        one["taints"] = [{"key": f"{driver}/withheld", "effect": "NoSchedule"}]
    return json.dumps([one], separators=(",", ":"))


def _capacity(value: int) -> dict[str, object]:
    default = min(DEFAULT, value // 2 // PAGE * PAGE)
    rule = {"default": _quantity(default), "validRange": {"min": _quantity(PAGE), "step": _quantity(PAGE)}}
    return {"value": _quantity(value), "requestPolicy": rule}


def _quantity(value: int) -> str:
    """As the API server prints it (BinarySI), so that what comes back is what was sent."""
    for suffix, unit in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)


@kept
def _declared(specs: Mapping[PodUid, KnownSpec]) -> int:
    """What pods that have not ended declare otherwise than by claim."""
    return sum([pod_budget(one.spec, EPC) for one in specs.values() if not (one.gone or one.spec.terminal)])


def _promised(limits: Limits) -> int:
    return sum([one.amounts.get(EPC, 0) for one in limits.by_claim.claims.values()])


def _amounts(claim: Claim) -> tuple[Amounts, str]:
    """The bytes that the claim consumes; or what is wrong with it."""
    found = 0
    for one in claim.allocated:
        if one.device != DEVICE:
            return {}, f"its device {one.device!r} is none of ours: {DEVICE}"
        amount = one.consumed.get(CAPACITY, 0)
        if not one.admin and amount < PAGE:
            return {}, (
                "its allocation does not say how many bytes it consumes, so nobody has counted them: the feature gate "
                "DRAConsumableCapacity is on since Kubernetes 1.36; see that kube-scheduler and kube-apiserver have it"
            )
        found += 0 if one.admin else amount
    if len(claim.pods) != 1:
        return {}, f"it is reserved for {len(claim.pods)} pods, and memory is limited by pod: give each its own claim"
    return ({EPC: found} if found else {}), ""


def _promise(claim: Claim, amounts: Amounts, since_ns: int) -> Promised:
    return Promised(claim.uid, claim.namespace, claim.name, amounts, claim.pods, claim.extended, since_ns)


def _refused(claim: Claim, code: str, why: str, kind: Refused) -> Final:
    message = f"Nodeward does not prepare the claim {claim.title}: {why}"
    return Final(Refusal(message, kind), Reason("claim-refused", (claim.title, code)))


def _with(limits: Limits, of: ByClaim) -> Limits:
    return limits if of == limits.by_claim else replace(limits, by_claim=of)
