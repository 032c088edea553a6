"""The policy `static-plus` of CRI Resource Manager: whole CPUs of a request are a container's own, the rest is shared.

Pools: `reserved` for kube-system, `isolated` (the kernel's isolcpus), and `shared`. A container of any QoS class that
requests one CPU or more gets that many of its own: isolated ones where all of them fit there and the pod has not opted
out, else of the shared pool. While requests leave nothing of the shared pool, whoever came later may use the reserved
CPUs too.

It promises that no CPU is two containers' own, and that no set is empty. Faults of CRI Resource Manager left out:

- the random order of Go's maps decides who is widened (here: creation), and a newcomer is only by the next change
- when shared CPUs get an owner, kube-system moves to the shared pool, and purely exclusive containers may use it too
- a resize does nothing; a malformed annotation opts out

Added: an ended init container leaves its CPUs to its pod; a container whose request nobody knows has none of its own.
"""

from dataclasses import replace

from nodeward.core.annotations import PREFER_ISOLATED
from nodeward.core.cpuset import CpuSet, text
from nodeward.core.refusal import Reason
from nodeward.core.tables import beside
from nodeward.core.topology import Level
from nodeward.core.workload import Role
from nodeward.features.cpus.amounts import reserved, universe
from nodeward.features.cpus.picker import CpuPriority, drop, pick, spans
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.pools import joined, left, resized
from nodeward.features.cpus.requested import flag
from nodeward.features.cpus.values import Ask, Denied, Grant, Ground, Pool, Pools

SYSTEM = "kube-system"
_WITHIN = {
    Level.CORE: "one core",
    Level.L2: "one L2 cache",
    Level.L3: "one L3 cache",
    Level.NUMA: "one NUMA node",
    Level.DIE: "one die",
    Level.PACKAGE: "one package",
    Level.SYSTEM: "several packages",
}
RESERVED, SHARED, ISOLATED = "reserved", "shared", "isolated"


def _begin(ground: Ground) -> Pools | Denied:
    allowed = universe(ground)
    kept = reserved(
        ground, lambda free, n: 1 if n == 1 and free & 1 else pick(ground.machine, free, n, CpuPriority.NORMAL)
    )
    if isinstance(allowed, Denied):
        return allowed
    if isinstance(kept, Denied):
        return kept
    isolated = allowed & ground.machine.isolated
    shared = allowed & ~isolated & ~kept
    if not shared:
        return Denied(
            f"policy.ReservedResources.CPU takes all CPUs that are available and not isolated ({text(kept)}), and "
            "static-plus needs one to share; reserve fewer"
        )
    return Pools({RESERVED: Pool(kept), SHARED: Pool(shared), ISOLATED: Pool(isolated)})


def _admit(ground: Ground, at: Pools, ask: Ask) -> Pools | Denied:
    before = at.grants.get(ask.key)
    if before is not None and not ask.known:
        return at
    grant = Grant(ask.key, request_m=ask.request_m, role=ask.role, source=ask.source)
    if ask.namespace == SYSTEM:
        shares = _shares(ask.request_m) if ask.known else 0
        why = Reason("cpus-plus-reserved", (ask.request_m,))
        return _settled(ground, at, replace(grant, pool=RESERVED, part_m=ask.request_m, shares=shares, reason=why))
    if not ask.known:
        return _settled(ground, at, replace(grant, pool=SHARED, reason=Reason("cpus-plus-unknown")))
    at, ended = _without_ended(ground, at, ask)
    full, part = divmod(ask.request_m, 1000)
    if not full:
        why = Reason("cpus-plus-shared", (ask.request_m,))
        return _settled(ground, at, replace(grant, pool=SHARED, part_m=part, shares=_shares(part), reason=why))
    had = before.own if before is not None else 0
    own = _own(ground, at, ask, full, had, had or ask.has or ended)
    if isinstance(own, Denied):
        return own
    pool = SHARED if part else ""
    kind = "isolated" if own & ground.machine.isolated else "ordinary"
    why = Reason("cpus-plus-own", (full, part, kind, text(own), _WITHIN[spans(ground.machine, own)]))
    shares = _shares(part or ask.request_m)
    return _settled(ground, at, replace(grant, pool=pool, own=own, part_m=part, shares=shares, reason=why))


def _release(ground: Ground, at: Pools, key: str) -> Pools:
    gone = at.grants.get(key)
    if gone is None:
        return at
    return _widened(_divided(ground, left(at, key), gone.own, 0))


def _settled(ground: Ground, at: Pools, grant: Grant) -> Pools:
    """With this grant in the place of the container's earlier one, and all that follows for the pools."""
    before = at.grants.get(grant.key)
    back = before.own if before is not None else 0
    return _widened(_divided(ground, joined(at, grant), back, grant.own))


def _divided(ground: Ground, at: Pools, back: CpuSet, taken: CpuSet) -> Pools:
    """With CPUs given back to the pools that they are of, and others taken."""
    isolated = ground.machine.isolated
    at = resized(at, SHARED, (at.pools[SHARED].cpus | back & ~isolated) & ~taken)
    return resized(at, ISOLATED, (at.pools[ISOLATED].cpus | back & isolated) & ~taken)


def _widened(at: Pools) -> Pools:
    """With the reserved CPUs lent to those, in the order of creation, for whom requests leave nothing of the shared."""
    left_m = 1000 * at.pools[SHARED].cpus.bit_count()
    new = dict[str, Grant]()
    for key, grant in at.grants.items():
        extra = 0
        if grant.pool == SHARED and grant.shares_pool:
            extra = 0 if left_m > 0 else at.pools[RESERVED].cpus
            left_m -= grant.part_m
        if grant.extra != extra:
            new[key] = replace(grant, extra=extra)
    return Pools(at.pools, beside(at.grants, new)) if new else at


def _without_ended(ground: Ground, at: Pools, ask: Ask) -> tuple[Pools, CpuSet]:
    """Without the own CPUs of the pod's containers that have ended, since this one is created now; and these CPUs.

    Kubelet begins an init container when those before it have ended, and a regular one when all have. An init container
    that is created anew is the first of a new sandbox: no regular one runs. A sidecar is tried again at any time.
    """
    before = at.grants.get(ask.key)
    match ask.role:
        case Role.REGULAR if not ask.has:
            ended: tuple[Role, ...] = (Role.INIT,)
        case Role.INIT if not ask.has and (before is None or not before.own):
            ended = (Role.INIT, Role.REGULAR)
        case Role.SIDECAR if not ask.has and before is None:
            ended = (Role.INIT,)
        case _:
            return at, 0
    pod, cpus = f"{ask.pod_uid}/", 0
    for key, grant in at.grants.items():
        if grant.own and grant.role in ended and key.startswith(pod):
            cpus |= grant.own
            shares = replace(grant, pool=SHARED, own=0, part_m=0, shares=0, reason=Reason("cpus-plus-ended"))
            at = joined(at, shares)
    return _divided(ground, at, cpus, 0), cpus


def _own(ground: Ground, at: Pools, ask: Ask, full: int, had: CpuSet, stay: CpuSet) -> CpuSet | Denied:
    """So many CPUs of one pool; those of `stay` that it may have are among them."""
    if had.bit_count() == full:
        return had
    machine = ground.machine
    shared = at.pools[SHARED].cpus | had & ~machine.isolated
    isolated = at.pools[ISOLATED].cpus | had & machine.isolated
    opted_out = flag(ask.annotations, PREFER_ISOLATED, ask.container) is False
    pools = [shared] if opted_out else [isolated, shared]
    for free in sorted(pools, key=lambda free: -min(full, (stay & free).bit_count())):  # where it is already, if it is
        if free.bit_count() < full:
            continue
        held = stay & free
        more = full - held.bit_count()
        if more > 0:
            return held | pick(machine, free & ~held, more, CpuPriority.HIGH, near=held)
        return held & ~drop(machine, held, -more, CpuPriority.HIGH)
    return Denied(
        f"it requests {ask.request_m} milliCPU, which is {full} CPU(s) of its own, and there are "
        f"{shared.bit_count()} shared ({text(shared) or 'none'}) and {isolated.bit_count()} isolated "
        f"({text(isolated) or 'none'}{', which the pod has opted out of' if opted_out else ''}); request fewer, or "
        "end a container that has some"
    )


def _shares(milli: int) -> int:
    """As kubelet counts a request."""
    return max(2, min(262144, milli * 1024 // 1000))


STATIC_PLUS = Policy(
    "static-plus",
    "whole CPUs of any request are exclusive, isolated ones first; the rest is shared",
    _begin,
    _admit,
    _release,
    dedicates=lambda _: True,
    needs=("policy.reserved",),
)
