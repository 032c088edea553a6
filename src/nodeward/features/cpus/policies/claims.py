"""The policy `claims`: CPUs go by ResourceClaim (Dynamic Resource Allocation), and who has no claim shares the rest.

A prepared claim is a pool of its own, of CPUs that only the containers that use the claim may run on. The pool is there
from Prepare on, before any container, and until the claim has ended. Promises: one CPU is always shared, whatever
claims ask for; a container that runs on a claim's CPUs stays there, and so does one that had CPUs of its own by the
policy before.
"""

from dataclasses import replace

from nodeward.core.cpuset import CpuSet, text
from nodeward.core.refusal import Reason
from nodeward.core.topology import Machine
from nodeward.features.cpus.policies.kubelet_take import Options, take
from nodeward.features.cpus.policies.pools_with_rules import firsts, kept_and_others, requested_m
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.pool_settings import CLAIM, SHARED
from nodeward.features.cpus.pools import joined, left, resized
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Ask, Denied, Grant, Ground, Pool, Pools

SHORT = "cpus-claim-short"
"""The reason of a grant without the CPUs of its claim."""


def pool_of(title: str) -> str:
    """The name of the pool of the claim NAMESPACE/NAME."""
    return f"{CLAIM}[{title}]"


def is_claim(pool: str) -> bool:
    """Whether the pool of this name is a claim's."""
    return pool.startswith(f"{CLAIM}[")


def title_of(pool: str) -> str:
    """The title of the claim whose pool this is."""
    return pool[len(CLAIM) + 1 : -1]


def sold(machine: Machine, rules: PolicySettings) -> CpuSet:
    """The CPUs that claims may have at all: neither reserved nor isolated."""
    found = kept_and_others(machine, rules)
    return 0 if isinstance(found, Denied) else found[1]


def _shareable(ground: Ground) -> CpuSet:
    found = kept_and_others(ground.machine, ground.rules)
    return 0 if isinstance(found, Denied) else found[0] | found[1]


def free(ground: Ground, at: Pools, among: CpuSet) -> CpuSet:
    """Those of these CPUs that a claim can be given now, were it not for those who share."""
    return at.pools[SHARED].cpus & sold(ground.machine, ground.rules) & among


def shared_m(at: Pools) -> int:
    """What is requested of the shared CPUs, also by containers of claims that have fewer CPUs."""
    asked_m = requested_m(at, SHARED)
    for name, pool in at.pools.items():
        asked_m += max(0, requested_m(at, name) - 1000 * pool.cpus.bit_count()) if pool.lent else 0
    return asked_m


def spare(ground: Ground, at: Pools) -> int:
    """How many CPUs claims can be given at most, so that who shares has what it requests, and one CPU at least."""
    asked_m = shared_m(at)
    return max(0, at.pools[SHARED].cpus.bit_count() - max(1, -(-asked_m // 1000)))


def opened(ground: Ground, at: Pools, title: str, cpus: CpuSet, *, also_shared: bool = False) -> Pools:
    """With a pool of the claim's own; who is in it stays. `also_shared`: and may run on the shared CPUs too."""
    left = at.pools[SHARED].cpus & ~cpus
    was = at.pools.get(pool_of(title), Pool(0, apart=True))
    own = replace(was, cpus=cpus, lent=left if also_shared else 0, firsts=firsts(ground.machine, cpus, 0))
    return _sharing(Pools({**at.pools, pool_of(title): own}, at.grants), left)


def _sharing(at: Pools, cpus: CpuSet) -> Pools:
    """With these CPUs shared, also by those of claims that may."""
    lent = {name: replace(pool, lent=cpus) for name, pool in at.pools.items() if pool.lent and pool.lent != cpus}
    return resized(Pools({**at.pools, **lent}, at.grants), SHARED, cpus)


def emptied(at: Pools, title: str) -> Pools:
    """With the CPUs of the claim's pool among those that are shared, to give it others."""
    was = at.pools.get(pool_of(title))
    return at if was is None else _sharing(at, at.pools[SHARED].cpus | was.cpus)


def closed(ground: Ground, at: Pools, pool: str) -> Pools:
    """Without this pool, whose claim has ended and which nobody is in."""
    back = at.pools[pool].cpus & _shareable(ground)
    rest = {name: one for name, one in at.pools.items() if name != pool}
    return _sharing(Pools(rest, at.grants), rest[SHARED].cpus | back)


def _threads(machine: Machine) -> int:
    return max(core.cpus.bit_count() for core in machine.cores)


def whole_cores(machine: Machine, cpus: CpuSet) -> CpuSet:
    """Those of these CPUs that are whole cores. One of whose threads some are offline, or have never been, is none."""
    each = _threads(machine)
    return sum(core.cpus for core in machine.cores if core.cpus.bit_count() == each and not core.cpus & ~cpus)


def chosen(ground: Ground, at: Pools, among: CpuSet, count: int, *, whole: bool = False) -> CpuSet | Denied:
    """So many CPUs of these for a claim, as kubelet's static policy takes them: whole cores and caches first. `whole`:
    whole cores only."""
    may, each = free(ground, at, among), _threads(ground.machine)
    if whole and count % each:
        return Denied(f"it asks for whole cores, and {count} CPUs are no multiple of {each}")
    if whole:
        may = whole_cores(ground.machine, may)
    found = take(ground.machine, may, count, Options(full_pcpus_only=whole))
    if found is None:
        return Denied(f"it has {count} CPU(s) by its allocation, and free there are {text(may) or 'none'}")
    if not at.pools[SHARED].cpus & ~found:
        return Denied("no CPU would be left for containers without a claim; let one more be shared or reserved")
    return found


def _begin(ground: Ground) -> Pools | Denied:
    found = kept_and_others(ground.machine, ground.rules)
    if isinstance(found, Denied):
        return found
    cpus = _shareable(ground)
    return Pools({SHARED: Pool(cpus, firsts=firsts(ground.machine, cpus, 0))})


def _admit(_: Ground, at: Pools, ask: Ask) -> Pools | Denied:
    before = at.grants.get(ask.key)
    if before is not None and is_claim(before.pool):
        if ask.resizes and ask.request_m != before.request_m:
            return Denied(
                f"it runs on the CPUs of a claim, and a resize from {before.request_m} to {ask.request_m} milliCPU "
                "changes no claim; make another pod with a larger one"
            )
        return at if ask.source == before.source else joined(at, replace(before, source=ask.source))
    if before is not None and before.own:
        if ask.resizes and ask.request_m != before.request_m:
            return Denied("it keeps the CPUs of its own that it had by the policy before, and a resize changes none")
        return at if ask.source == before.source else joined(at, replace(before, source=ask.source))
    if before is not None and not ask.known:
        return at
    own = ask.own & at.pools[SHARED].cpus if not ask.claims else 0
    if own and at.pools[SHARED].cpus & ~own:
        return _kept(at, ask, own)
    if ask.unclaimed:
        return Denied(f"{ask.unclaimed}; kubelet tries again")
    if len(ask.claims) > 1:
        names = ", ".join(ask.claims)
        return Denied(f"it uses {len(ask.claims)} claims of CPUs ({names}); make one claim with a request for each")
    was = (ask.was,) if is_claim(ask.was) and not ask.claims else ()  # it runs on those of a claim that has ended
    pool = next((name for name in (*map(pool_of, ask.claims), *was) if name in at.pools), SHARED)
    code = "cpus-claim" if pool != SHARED else SHORT if ask.claims else "cpus-no-claim"
    code += "-shared" if at.pools[pool].lent else ""
    title = title_of(pool) if pool != SHARED else "".join(ask.claims)
    grant = Grant(
        ask.key,
        pool,
        part_m=ask.request_m,
        request_m=ask.request_m,
        role=ask.role,
        source=ask.source,
        reason=Reason(code, (title,) if title else ()),
        namespace=ask.namespace,
        pins_memory=True if pool != SHARED else None,
    )
    if before is not None and before.pool == pool:
        grant = replace(before, part_m=ask.request_m, request_m=ask.request_m, role=ask.role, source=ask.source)
    return at if grant == before else joined(at, grant)


def _kept(at: Pools, ask: Ask, own: CpuSet) -> Pools:
    """With these CPUs for the container alone, as before, and a part of the shared ones for the rest of its request."""
    part_m = max(0, ask.request_m - 1000 * own.bit_count())
    grant = Grant(
        ask.key,
        SHARED if part_m else "",
        own,
        part_m,
        request_m=ask.request_m,
        role=ask.role,
        source=ask.source,
        reason=Reason("cpus-own-before"),
        namespace=ask.namespace,
    )
    return joined(_sharing(at, at.pools[SHARED].cpus & ~own), grant)


def _release(ground: Ground, at: Pools, key: str) -> Pools:
    grant, at = at.grants.get(key), left(at, key)
    if grant is None or not grant.own:
        return at
    return _sharing(at, at.pools[SHARED].cpus | grant.own & _shareable(ground))


def _reserved(ground: Ground, _: Pools) -> CpuSet:
    """They are in the shared pool."""
    found = kept_and_others(ground.machine, ground.rules)
    return 0 if isinstance(found, Denied) else found[0]


CLAIMS = Policy(
    "claims",
    "CPUs of a ResourceClaim are exclusive to the containers that use it; all others share the rest",
    _begin,
    _admit,
    _release,
    keeps=False,
    reserved=_reserved,
    needs=("policy.reserved",),
)
