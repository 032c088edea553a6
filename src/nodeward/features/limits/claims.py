"""Enclave memory by claim (Dynamic Resource Allocation): what a claim consumes is the limit of the containers that use
it, without any annotation.

A device stands for the EPC of one NUMA node, or for that of the whole machine where the kernel does not tell (before
Linux 5.17). Which NUMA node a page comes from is the kernel's choice all the same, so the device is a hint. The
scheduler counts what claims consume; what pods declare otherwise (extended resource, annotation) is taken out of what
is published. The kernel takes pages back from enclaves that do not use them, so no pod waits for memory that is in use:
the promise is that no charge is accepted above the limit, where the kernel can hold one.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.by_claim import ByClaim
from nodeward.core.claims import Claim, Promised
from nodeward.core.decision import NOTHING, Adjustment, Decision, Final, Goal, Special, Target
from nodeward.core.modes import Mode
from nodeward.core.quantity import binary_text
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.core.tables import kept, put
from nodeward.core.workload import Amounts, ContainerSpec, PodSpec, PodUid
from nodeward.features.limits.promise import EPC
from nodeward.features.limits.settings import Unsupported
from nodeward.features.limits.state import Limits
from nodeward.features.pods.budget import pod_budget
from nodeward.features.pods.state import KnownSpec
from nodeward.features.root import State

DEVICE, CAPACITY = "epc", "epc"
"""The device of a whole machine, and the capacity of each; that of NUMA node 0 is `epc-0`."""
_OURS = re.compile(r"epc(-[0-9]{1,5})?")
MOST_DEVICES = 64
"""In a slice with a taint (k8s.io/api, resource/v1/types.go)."""
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
        wrong = f"it was prepared with {sum(known.amounts.values())} bytes, and now has {sum(amounts.values())}"
    if wrong:
        return limits, _refused(claim, "claim", f"{wrong}; {_REMEDY}", Refused.BAD_VALUE)
    one = _promise(claim, amounts, known.since_wall_ns if known is not None else event.wall_ns)
    final = Final(Adjustment(), Reason("claim-prepared", (claim.title, f"{sum(amounts.values())} of {EPC}")))
    return _with(limits, replace(limits.by_claim, claims=put(limits.by_claim.claims, claim.uid, one))), final


def told(state: State, event: ev.Unprepared | ev.ClaimsRecalled | ev.DriverTold) -> Limits:
    """The slice after news of our driver."""

    def promised(claim: Claim) -> Promised | None:
        amounts, wrong = _amounts(claim)
        return None if wrong else _promise(claim, amounts, event.wall_ns)

    return _with(state.limits, state.limits.by_claim.after(event, promised))


def published(state: State, limits: Limits) -> tuple[Limits, Decision]:
    """The slice and the goal by which the devices are published that there are now."""
    driver = state.settings.limits.dra.driver
    before, state = limits.by_claim.slices, replace(state, limits=limits)
    if not are_sold(state):
        now: Mapping[str, str] = {}
    elif not limits.by_claim.recalled or None in (limits.by_claim.driver, limits.devices.seen):
        now = before  # before it is known what claims have, whether we are registered, and what NUMA nodes have
    elif not (before or state.pods.api_up):
        now = before  # before it is known what pods declare otherwise
    else:
        now = {driver: _devices(state, driver)}
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
    return sum([sum(one.amounts.values()) for one in of_pod(state, uid)])


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
    every = {one.name: sum(one.amounts.values()) for one in claims}
    return replace(spec, containers=tuple(_container(one, every) for one in spec.containers)) if every else spec


def _container(one: ContainerSpec, claims: Mapping[str, int]) -> ContainerSpec:
    amount = sum([claims.get(name, 0) for name in one.claims])
    if not amount:
        return one
    return replace(one, declared={**one.declared, EPC: one.declared.get(EPC, 0) + amount})


def sizes(state: State) -> Mapping[str, int]:
    """How many bytes each device has in all. Where the kernel can hold limits, together no more than it says."""
    seen, limit = state.limits.devices.seen, state.limits.capacity.get(EPC, 0)
    parts = {f"{DEVICE}-{node}": size for node, size in sorted(seen.memory.items())} if seen is not None else {}
    whole = sum(parts.values())
    if not limit and state.settings.limits.unsupported is Unsupported.REFUSE:
        return {}
    if not parts or len(parts) > MOST_DEVICES:
        return {DEVICE: limit or whole} if limit or whole else {}
    return {name: size * min(limit or whole, whole) // whole for name, size in parts.items()}


def epc_of_node(state: State) -> int | Special | None:
    """How many bytes of `sgx.intel.com/epc` the node's status is to have; ABSENT where it is none of ours to say, None
    while it is not known."""
    if not state.settings.limits.node_epc:
        return Special.ABSENT
    if state.limits.devices.seen is None or state.limits.tree.fault:
        return None
    return sum(sizes(state).values()) or Special.ABSENT


def values(state: State) -> Mapping[str, int]:
    """How many bytes of each device claims may have, those that have them included: what pods declare otherwise is
    taken from each by its size, and no more is left to give out than the node has left."""
    every, of = sizes(state), state.limits.by_claim.claims.values()
    whole = sum(every.values())
    promised = {name: sum([one.amounts.get(name, 0) for one in of]) for name in every}
    others = _declared(state.pods.specs) + sum([sum(one.amounts.values()) for one in of]) - sum(promised.values())
    left = max(0, whole - others - sum(promised.values()))
    found: dict[str, int] = {}
    for name, size in every.items():
        room = max(0, size - others * size // whole - promised[name])
        found[name] = (promised[name] + min(room, left)) // PAGE * PAGE
        left -= min(room, left)
    return found


def _devices(state: State, driver: str) -> str:
    return json.dumps([*_published(state, driver)], separators=(",", ":"))


def _published(state: State, driver: str) -> Iterable[Mapping[str, object]]:
    told, of = state.limits.by_claim.driver, state.limits.by_claim.claims.values()
    whole, is_held = sizes(state), state.limits.capacity.get(EPC, 0) > 0
    for name, value in values(state).items():
        promised = sum([one.amounts.get(name, 0) for one in of])
        about: dict[str, object] = {"kind": {"string": DEVICE}, "total": {"int": whole[name]}}
        about["enforced"] = {"bool": is_held}
        if name != DEVICE:
            about["resource.kubernetes.io/numaNode"] = {"int": int(name.rpartition("-")[2])}
        one: dict[str, object] = {
            "name": name,
            "attributes": about,
            "allowMultipleAllocations": True,
            "capacity": {CAPACITY: _capacity(max(value, 2 * PAGE))},
        }
        if value < max(promised, PAGE) + PAGE or told is None or not told.registered:
            one["taints"] = [{"key": f"{driver}/withheld", "effect": "NoSchedule"}]  # a capacity of 0 is refused
        yield one


def _capacity(value: int) -> dict[str, object]:
    default = min(DEFAULT, value // 2 // PAGE * PAGE)
    rule = {"default": binary_text(default), "validRange": {"min": binary_text(PAGE), "step": binary_text(PAGE)}}
    return {"value": binary_text(value), "requestPolicy": rule}


@kept
def _declared(specs: Mapping[PodUid, KnownSpec]) -> int:
    """What pods that have not ended declare otherwise than by claim."""
    return sum([pod_budget(one.spec, EPC) for one in specs.values() if not (one.gone or one.spec.terminal)])


def _amounts(claim: Claim) -> tuple[Amounts, str]:
    """The bytes that the claim consumes, by device; or what is wrong with it."""
    found: dict[str, int] = {}
    for one in claim.allocated:
        if not _OURS.fullmatch(one.device):
            return {}, f"its device {one.device!r} is none of ours: {DEVICE}, or {DEVICE}-0 of NUMA node 0"
        amount = one.consumed.get(CAPACITY, 0)
        if not one.admin and amount < PAGE:
            return {}, (
                "its allocation does not say how many bytes it consumes, so nobody has counted them: the feature gate "
                "DRAConsumableCapacity is on since Kubernetes 1.36; see that kube-scheduler and kube-apiserver have it"
            )
        if not one.admin:
            found[one.device] = found.get(one.device, 0) + amount
    if len(claim.pods) != 1:
        return {}, f"it is reserved for {len(claim.pods)} pods, and memory is limited by pod: give each its own claim"
    return found, ""


def _promise(claim: Claim, amounts: Amounts, since_ns: int) -> Promised:
    return Promised(claim.uid, claim.namespace, claim.name, amounts, claim.pods, claim.extended, since_ns)


def _refused(claim: Claim, code: str, why: str, kind: Refused) -> Final:
    message = f"Nodeward does not prepare the claim {claim.title}: {why}"
    return Final(Refusal(message, kind), Reason("claim-refused", (claim.title, code)))


def _with(limits: Limits, of: ByClaim) -> Limits:
    return limits if of == limits.by_claim else replace(limits, by_claim=of)
