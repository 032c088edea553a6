"""CPUs by claim (Dynamic Resource Allocation), for the policy `claims`: what is published, and what a Prepare promises.

A device stands for the CPUs of one NUMA node, socket or cache of level 3. The scheduler counts how many of them claims
consume; which ones a claim has is chosen when kubelet prepares it. What containers without a claim request of the
shared CPUs is taken out of what is published. A pod's claims also count where kubelet and the scheduler count the CPUs
of a node, if its containers request as much (until KEP-5517 does that by itself).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodeward.core import annotations as keys
from nodeward.core import events as ev
from nodeward.core.by_claim import ByClaim
from nodeward.core.claims import Claim, Promised
from nodeward.core.cpuset import CpuSet, text
from nodeward.core.decision import NOTHING, Adjustment, Decision, Final, Goal, Special, Target
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.core.tables import put
from nodeward.core.topology import Group, Level
from nodeward.core.workload import Amounts, PodUid, SandboxId
from nodeward.features.cpus.claim_parameters import ALSO_SHARED, WHOLE_CORES, options
from nodeward.features.cpus.policies import claims as policy
from nodeward.features.cpus.pool_settings import CLAIMS, SHARED, ClaimNames, DevicesBy
from nodeward.features.cpus.state import Cpus
from nodeward.features.cpus.values import Denied, Grant, Ground, Pools
from nodeward.features.root import State

KIND = "cpu-slice"
"""Of the goal by which devices are published."""
_CAPACITY = {ClaimNames.NODEWARD: "cpu", ClaimNames.DRA_DRIVER_CPU: "dra.cpu/cpu"}
_DEVICE = {ClaimNames.NODEWARD: "cpus-{}-{}", ClaimNames.DRA_DRIVER_CPU: "cpudev{}{:03d}"}
_LEVELS = {DevicesBy.NUMA: Level.NUMA, DevicesBy.SOCKET: Level.PACKAGE, DevicesBy.L3: Level.L3}
MOST_DEVICES = 64
"""Of a ResourceSlice whose devices have taints, by the API server."""
_OURS = re.compile(r"cpus-(numa|socket|l3)-[0-9]{1,5}|cpudev(numa|socket)[0-9]{3,5}")
_REMEDY = "delete the pod, and its claim where that stays; the next one is allocated anew"


def are_sold(state: State) -> bool:
    """Whether CPUs go by claim: the settings want it, and the policy is in force."""
    rules = state.settings.cpus
    return rules.mode is Mode.ENFORCE and rules.dra.mode is Mode.ENFORCE and _ground(state) is not None


def _ground(state: State) -> Ground | None:
    cpus = state.cpus
    is_so = cpus.machine is not None and cpus.in_force and cpus.rules.active == CLAIMS
    return Ground(cpus.machine, cpus.rules) if is_so and cpus.machine is not None else None


def is_leaving(state: State) -> bool:
    """Whether the settings have another policy. It waits until the last claim has ended, and no new one gets CPUs."""
    return state.cpus.rules.active == CLAIMS != state.settings.policy.active


def lets_go(before: State, after: State) -> bool:
    """Whether another policy waited for claims before, and waits for none now."""
    if before.cpus.machine is None or not is_leaving(before):
        return False
    ground = Ground(before.cpus.machine, before.settings.policy)
    return bool(unfit(before, ground)) and not unfit(after, ground)


def devices(ground: Ground) -> Mapping[str, CpuSet]:
    """By device, the CPUs that claims may have of it at all."""
    every = policy.sold(ground.machine, ground.rules)
    return {name: group.cpus & every for name, group in _groups(ground).items()}


def _groups(ground: Ground) -> Mapping[str, Group]:
    """By device, what it stands for, with CPUs that claims may not have."""
    rules, every = ground.rules.claims, policy.sold(ground.machine, ground.rules)
    groups, name = ground.machine.groups(_LEVELS[rules.devices]), _DEVICE[rules.names]
    return {name.format(rules.devices.value, one.id): one for one in groups if one.cpus & every}


# ---- kubelet asks


def preparing(state: State, event: ev.Preparing) -> tuple[Cpus, Final]:
    """The slice and the answer to a Prepare. The CPUs leave the shared pool with it."""
    cpus, claim, of = state.cpus, event.claim, state.cpus.by_claim
    ground, known = _ground(state), of.claims.get(claim.uid)
    if not of.recalled or ground is None:
        why = f"it is not known yet what was prepared before the daemon started ({of.fault or 'a moment'})"
        return cpus, _refused(claim, f"{why}; kubelet tries again", Refused.NO_CAPACITY)
    counts, wrong = _counts(claim)
    if not wrong and known is None and len(claim.pods) != 1:
        wrong = f"it is reserved for {len(claim.pods)} pods, and a container's CPUs end with its pod: give each its own"
    if not wrong and known is not None and known.amounts != counts:
        wrong = f"it was prepared with {_words(known.amounts)}, and now has {_words(counts)}"
    if wrong:
        return cpus, _refused(claim, f"{wrong}; {_REMEDY}", Refused.BAD_VALUE)
    if known is None:
        if is_leaving(state):
            why = f"the settings have the policy {state.settings.policy.active} now, and new claims get no CPUs"
            return cpus, _refused(claim, why, Refused.NO_CAPACITY)
        if policy.pool_of(claim.title) in cpus.pools.pools:
            why = "containers of an earlier claim of that name still run; kubelet tries again"
            return cpus, _refused(claim, why, Refused.NO_CAPACITY)
        wishes = options(claim.parameters)[0]
        found = _given(ground, cpus.pools, claim.title, counts, _held_by_nobody(state), options=wishes)
        if isinstance(found, Denied):
            return cpus, _refused(claim, found.why, Refused.NO_CAPACITY)
        pools, own = found
        known = _promised(claim, counts, event.wall_ns, own)
        cpus = replace(cpus, pools=pools, by_claim=replace(of, claims=put(of.claims, claim.uid, known)))
    elif counts and policy.pool_of(claim.title) not in cpus.pools.pools:
        why = "its CPUs are offline or reserved now, and no others are free; kubelet tries again"
        return cpus, _refused(claim, why, Refused.NO_CAPACITY)
    final = Final(Adjustment(), Reason("claim-prepared", (claim.title, f"CPUs {text(known.cpus) or 'none'}")))
    return cpus, final


def _promised(claim: Claim, counts: Amounts, since_ns: int, own: CpuSet = 0) -> Promised:
    requests = tuple(dict.fromkeys(one.request.partition("/")[0] for one in claim.allocated))
    named = claim.uid, claim.namespace, claim.name
    return Promised(*named, counts, claim.pods, claim.extended, since_ns, own, requests, options(claim.parameters)[0])


def _held_by_nobody(state: State) -> CpuSet:
    """The CPUs of running containers that have no place by the policy, and stay on some of those that are shared."""
    cpus, found = state.cpus, 0
    for container_id, held in cpus.held.items() if cpus.unplaced else ():
        known = state.pods.containers.get(container_id)
        has = held.has or (known.container.cpu.cpus if known is not None else 0)
        if held.key in cpus.unplaced and cpus.pools.pools[SHARED].cpus & ~has:
            found |= has
    return found


def _given(
    ground: Ground,
    at: Pools,
    title: str,
    counts: Amounts,
    kept: CpuSet = 0,
    has: CpuSet = 0,
    options: Iterable[str] = (),
) -> tuple[Pools, CpuSet] | Denied:
    """With a pool of the claim, and its CPUs: those that it has, as far as nobody else has them, and others but `kept`.
    It keeps its own also where they would be reserved now, since others had to be that are offline."""
    every, groups, own, whole = devices(ground), _groups(ground), 0, WHOLE_CORES in options
    for name, count in counts.items():
        if name not in every:
            return Denied(f"this node has no device {name}; it has {', '.join(every) or 'none'}")
        mine = has & at.pools[SHARED].cpus & groups[name].cpus & ~own
        mine = policy.whole_cores(ground.machine, mine) if whole else mine
        if mine.bit_count() > count:
            mine = 0
        own |= mine
        if mine.bit_count() == count:
            continue
        may, more = every[name] & ~own & ~kept, count - mine.bit_count()
        found = policy.chosen(ground, at, may, more, whole=whole)
        if isinstance(found, Denied):
            return Denied(f"of the device {name} {found.why}")
        own |= found
    if not own:
        return at, 0
    if not at.pools[SHARED].cpus & ~own:
        return Denied("no CPU would be left for containers without a claim")
    return policy.opened(ground, at, title, own, also_shared=ALSO_SHARED in options), own


def _counts(claim: Claim) -> tuple[Amounts, str]:
    """How many CPUs it has of each device; or what is wrong with it."""
    found: dict[str, int] = {}
    for one in claim.allocated:
        if not _OURS.fullmatch(one.device):
            return {}, f"its device {one.device[:64]!r} is none of ours, such as cpus-numa-0"
        count = next((one.consumed[name] for name in _CAPACITY.values() if name in one.consumed), 0)
        if not one.admin and count < 1:
            return {}, (
                "its allocation does not say how many CPUs it consumes, so nobody has counted them: the feature gate "
                "DRAConsumableCapacity is on since Kubernetes 1.36; see that kube-scheduler and kube-apiserver have it"
            )
        if not one.admin:
            found[one.device] = found.get(one.device, 0) + count
    if claim.extended:
        return {}, "the scheduler made it for an extended resource, and no container names such a claim: use a claim"
    return found, options(claim.parameters)[1]


def _words(counts: Amounts) -> str:
    return ", ".join(f"{count} of {name}" for name, count in counts.items()) or "nothing"


def _refused(claim: Claim, why: str, kind: Refused) -> Final:
    message = f"Nodeward does not prepare the claim {claim.title}: {why}"
    return Final(Refusal(message, kind), Reason("claim-refused", (claim.title, "cpus")))


# ---- claims come and go


def told(state: State, event: ev.Unprepared | ev.ClaimsRecalled | ev.DriverTold) -> Cpus:
    """The slice after news of our driver."""

    def promised(claim: Claim) -> Promised | None:
        counts, wrong = _counts(claim)
        return None if wrong else _promised(claim, counts, event.wall_ns)

    return _with(state.cpus, state.cpus.by_claim.after(event, promised))


def with_pools(state: State, ground: Ground, at: Pools) -> Pools:
    """The pools with one for each claim, where they are made anew or a claim is known again. The claim has its CPUs as
    far as they are there and nobody's own, and others of its devices in the place of the rest. A claim that has ended
    has a pool while containers run in it."""
    if ground.rules.active != CLAIMS:
        return at
    of, before = state.cpus.by_claim.claims, state.cpus.pools.pools
    if not state.cpus.in_force and state.cpus.recorded is not None:  # at a start, before it is known what claims have
        before = state.cpus.recorded.pools.pools
    known = {one.uid: one.cpus or _of_containers(state, one) for one in of.values() if one.amounts}
    alone = 0
    for grant in state.cpus.pools.grants.values():
        alone |= grant.own
    titles = [one.title for one in of.values()]
    for name, pool in before.items():
        title = policy.title_of(name)
        own = pool.cpus & at.pools[SHARED].cpus
        if policy.is_claim(name) and pool.members and name not in at.pools and title not in titles and own:
            lent = bool(pool.lent)
            at = policy.opened(ground, at, title, own, also_shared=lent) if at.pools[SHARED].cpus & ~own else at
    for uid in sorted(known, key=lambda uid: not known[uid]):  # those that have CPUs take nothing from each other
        one, kept, own = of[uid], alone, known[uid]
        for key, other in known.items():
            kept |= other if key != uid else 0
        if (there := at.pools.get(policy.pool_of(one.title))) is not None:
            if there.cpus.bit_count() >= sum(one.amounts.values()):
                continue
            own = there.cpus  # it lacks some that are offline
        found = _given(ground, policy.emptied(at, one.title), one.title, one.amounts, kept, own, one.options)
        own &= at.pools[SHARED].cpus
        if not isinstance(found, Denied):
            at = found[0]
        elif own and at.pools[SHARED].cpus & ~own:
            at = policy.opened(ground, at, one.title, own, also_shared=ALSO_SHARED in one.options)
    return at


def _of_containers(state: State, one: Promised) -> CpuSet:
    """The CPUs on which the claim's pod runs, where they are as many as the claim has."""
    count = sum(one.amounts.values())
    for container_id, known in state.pods.containers.items():
        if known.pod_uid in one.pods:
            held = state.cpus.held.get(container_id)
            has = held.has if held is not None and held.has else known.container.cpu.cpus
            if has.bit_count() == count:
                return has
    return 0


def unfit(state: State, ground: Ground) -> str:
    """Why these settings are not for a node with the claims that are prepared; empty where they are."""
    cpus, of = state.cpus, [one for one in state.cpus.by_claim.claims.values() if one.amounts]
    if ground.rules.active == CLAIMS:
        if len(every := devices(ground)) > MOST_DEVICES:
            return (
                f"policy.claims.devices: is {ground.rules.claims.devices.value}, and of these are {len(every)} here; "
                f"a ResourceSlice has room for {MOST_DEVICES}: set it to numa or socket"
            )
        may = policy.sold(ground.machine, ground.rules) | ~ground.machine.online
        of = [one for one in of if one.cpus & ~may and ground.rules != cpus.rules]
        title = of[0].title if of else ""
        why, then = f"CPUs {text(of[0].cpus & ~may)} would not be for claims any more" if of else "", ", then reload"
    else:
        title = of[0].title if of else ""
        why, then, before = f"the policy {ground.rules.active} gives no CPUs by claim", "", cpus.rules
        if not cpus.in_force and cpus.recorded is not None:  # at a start, before it is known which are prepared
            pools, before = cpus.recorded.pools.pools, cpus.recorded.rules
            used = (policy.title_of(name) for name, pool in pools.items() if policy.is_claim(name) and pool.members)
            title = title or next(used, "")
        elif before.active == CLAIMS and not _is_known(state):
            return f"{why}, and it is not known yet which claims are prepared on this node"
        title = title if before.active == CLAIMS else ""
    if not title:
        return ""
    return f"{why}, and the claim {title} is prepared on this node: let its pod end first{then}"


def as_placed(cpus: Cpus) -> Cpus:
    """With the CPUs of each claim that had to take others, as where some of its own are offline."""
    of, pools = cpus.by_claim, cpus.pools.pools
    moved = {
        uid: replace(one, cpus=pools[name].cpus)
        for uid, one in of.claims.items()
        if (name := policy.pool_of(one.title)) in pools and pools[name].cpus & ~one.cpus
    }
    return _with(cpus, replace(of, claims={**of.claims, **moved})) if moved else cpus


def tidied(state: State) -> Pools:
    """The pools without those of claims that have ended and that nobody is in; claims that lack CPUs get of theirs."""
    ground, pools = _ground(state), state.cpus.pools
    names = [policy.pool_of(one.title) for one in state.cpus.by_claim.claims.values()]
    for name in [name for name, pool in pools.pools.items() if policy.is_claim(name) and not pool.members]:
        if ground is not None and name not in names and _is_known(state):
            pools = policy.closed(ground, pools, name)
    if ground is None or pools is state.cpus.pools:
        return pools
    return with_pools(replace(state, cpus=replace(state.cpus, pools=pools)), ground, pools)


# ---- containers


def of_container(state: State, uid: PodUid, container: str) -> tuple[tuple[str, ...], str]:
    """The titles of the claims that a container uses; and why that is not known."""
    of, known = state.cpus.by_claim, state.pods.specs.get(uid)
    is_known = _is_known(state)
    mine = [one for one in of.claims.values() if uid in one.pods and one.amounts]
    if known is None:
        if mine:
            return (), "its pod has a claim of CPUs, and its spec is not known yet"
        return (), "" if is_known or _is_static(state, uid) else "it is not known yet which pods have claims of CPUs"
    names = next((one.claims for one in known.spec.containers if one.name == container), ())
    if names and not is_known:
        return (), "it has claims, and it is not known yet what was prepared before the daemon started"
    if not names and not is_known and not of.fault and not _is_static(state, uid):
        return (), "it is not known yet which CPUs claims have"
    if not names:
        return (), ""
    for one in of.claims.values():
        if one.namespace == known.spec.namespace and uid not in one.pods and _uses(one, names):
            return (), f"its claim {one.title} is another pod's, and a container's CPUs end with its pod"
    return tuple(one.title for one in mine if _uses(one, names)), ""


def _is_known(state: State) -> bool:
    """Whether all claims that are prepared are known."""
    return state.cpus.by_claim.recalled or state.settings.cpus.dra.mode is not Mode.ENFORCE


def _uses(one: Promised, names: Iterable[str]) -> bool:
    return any(
        name == one.name and (not request or not one.requests or request in one.requests)
        for name, _, request in (each.partition("/") for each in names)
    )


def _is_static(state: State, uid: PodUid) -> bool:
    """Whether the pod is of a file of its node, so it has no claims."""
    known = state.pods.sandboxes.get(state.pods.sandbox_of.get(uid, SandboxId("")))
    return known is not None and known.sandbox.annotations.get(keys.CONFIG_SOURCE) in ("file", "http")


def may_return(at: Pools, grant: Grant) -> bool:
    """Whether the container's claim had lost all of its CPUs, and has some again."""
    return grant.reason.code == policy.SHORT and policy.pool_of(str(grant.reason.values[0])) in at.pools


# ---- what is published


def published(state: State, cpus: Cpus) -> tuple[Cpus, Decision]:
    """The slice and the goal by which the devices are published that there are now."""
    driver, before = state.settings.cpus.dra.driver, cpus.by_claim.slices
    state = replace(state, cpus=cpus)
    ground = _ground(state)
    if not are_sold(state) or ground is None:
        now: Mapping[str, str] = {}
    elif not cpus.by_claim.recalled or not cpus.listed or cpus.by_claim.driver is None:
        now = before  # before it is known what claims have, who runs, and whether we are registered
    else:
        now = {driver: json.dumps([*_published(state, ground, driver)], separators=(",", ":"))}
    if now == before:
        return cpus, NOTHING
    goal = Goal(Target(KIND, driver), now.get(driver, Special.ABSENT), Reason("offered", (driver,)))
    return _with(cpus, replace(cpus.by_claim, slices=now)), Decision(goals=(goal,))


def values(state: State, ground: Ground) -> Mapping[str, int]:
    """How many CPUs of each device claims may have, those that have some included."""
    at, held = state.cpus.pools, _held_by_nobody(state)
    left = 0 if is_leaving(state) else policy.spare(ground, at)
    found = dict[str, int]()
    for name, cpus in devices(ground).items():
        more = min(policy.free(ground, at, cpus & ~held).bit_count(), left)
        left -= more
        found[name] = promised(state, name) + more
    return found


def promised(state: State, device: str) -> int:
    """How many CPUs of a device prepared claims have."""
    return sum(one.amounts.get(device, 0) for one in state.cpus.by_claim.claims.values())


def _published(state: State, ground: Ground, driver: str) -> Iterable[Mapping[str, object]]:
    is_registered = state.cpus.by_claim.driver is not None and state.cpus.by_claim.driver.registered
    every, groups, capacity = devices(ground), _groups(ground), _CAPACITY[ground.rules.claims.names]
    for name, value in values(state, ground).items():
        one: dict[str, object] = {
            "name": name,
            "attributes": _attributes(ground, groups[name].id, every[name]),
            "allowMultipleAllocations": True,
            "capacity": {capacity: _capacity(max(value, 1))},
        }
        if value <= promised(state, name) or not is_registered:
            one["taints"] = [{"key": f"{driver}/withheld", "effect": "NoSchedule"}]  # a capacity of 0 is refused
        yield one


def _attributes(ground: Ground, number: int, cpus: CpuSet) -> Mapping[str, object]:
    machine, is_numa = ground.machine, ground.rules.claims.devices is DevicesBy.NUMA
    socket = next((one.id for one in machine.packages if one.cpus & cpus), 0)
    smt = any(one.cpus.bit_count() > 1 for one in machine.cores)
    numa = {"resource.kubernetes.io/numaNode": {"int": number}} if is_numa else {}
    if ground.rules.claims.names is ClaimNames.NODEWARD:
        own = {"kind": {"string": "cpus"}, "total": {"int": cpus.bit_count()}}
        return {**own, "socketID": {"int": socket}, "smtEnabled": {"bool": smt}, **numa}
    older = {key: {"int": number} for key in ("dra.cpu/numaNodeID", "dra.net/numaNode")} if is_numa else {}
    theirs = {"dra.cpu/socketID": {"int": socket}, "dra.cpu/smtEnabled": {"bool": smt}}
    return {"dra.cpu/numCPUs": {"int": cpus.bit_count()}, **theirs, **numa, **older}


def _capacity(value: int) -> Mapping[str, object]:
    rule: dict[str, object] = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    if value < 2:  # the API server takes no range that is smaller than a step
        rule = {"default": "1", "validValues": ["1"]}
    return {"value": str(value), "requestPolicy": rule}


def _with(cpus: Cpus, of: ByClaim) -> Cpus:
    return cpus if of == cpus.by_claim else replace(cpus, by_claim=of)
