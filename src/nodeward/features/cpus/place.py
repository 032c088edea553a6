"""Places containers by the policy: a new one, those that run already, and all of them under new settings.

Whoever may stay where it is stays: CPUs that only one container has are taken for its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeward.core.cpuset import CpuSet, text
from nodeward.core.topology import Machine
from nodeward.core.workload import Qos
from nodeward.features.cpus.memory_zones import counted
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.pools import set_of, starved
from nodeward.features.cpus.requested import UNREAD, UNREAD_STAYS
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Ask, Denied, Ground, Pools


@dataclass(frozen=True, slots=True)
class Placed:
    """All containers placed. `denied`: by key, why the policy has no place for one."""

    pools: Pools
    denied: Mapping[str, str]


def admitted(ground: Ground, at: Pools, ask: Ask, kept: CpuSet = 0) -> Pools | Denied:
    """The pools with this container; Denied also where a set that others share would be left empty, since the kernel
    takes an empty set for all CPUs. `kept`: CPUs that nobody gets alone who does not have them already."""
    after = policy_of(ground.rules.active).admit(ground, at, ask)
    if kept and not isinstance(after, Denied) and _newly_own(at, after, ask) & kept:
        after = _admitted_beside(ground, at, ask, kept)
    if isinstance(after, Denied):
        return after
    empty = starved(at, after)
    if not empty:
        return counted(ground, at, after, (ask,))
    if empty == (ask.key,):
        return Denied("it would share CPUs with others, and every CPU is exclusive; end a container that has some")
    return Denied(
        f"it asks for {ask.request_m} milliCPU, and no CPU would be left for {len(empty)} container(s) that share "
        "theirs; ask for fewer, or let more CPUs be shared (policy.ReservedResources, policy.AvailableResources)"
    )


def _newly_own(before: Pools, after: Pools, ask: Ask) -> CpuSet:
    grant = before.grants.get(ask.key)
    return after.grants[ask.key].own & ~((grant.own if grant is not None else 0) | ask.has)


def _admitted_beside(ground: Ground, at: Pools, ask: Ask, kept: CpuSet) -> Pools | Denied:
    """As if no pool had the CPUs of `kept`: a policy takes from its pools what it gives to one alone."""
    fewer = {name: replace(pool, cpus=pool.cpus & ~kept) for name, pool in at.pools.items()}
    after = policy_of(ground.rules.active).admit(ground, Pools(fewer, at.grants), ask)
    if isinstance(after, Denied) or _newly_own(at, after, ask) & kept:
        why = after.why if isinstance(after, Denied) else "it would get CPUs alone that another container may use"
        return Denied(f"{why}; containers stay on CPUs {text(kept)} whose requests the runtime did not tell")
    back = {name: at.pools[name].cpus & kept if name in at.pools else 0 for name in after.pools}
    return Pools({name: replace(pool, cpus=pool.cpus | back[name]) for name, pool in after.pools.items()}, after.grants)


def begun(machine: Machine, rules: PolicySettings) -> Pools | Denied:
    """The pools of these settings on this machine, before any container."""
    return policy_of(rules.active).begin(Ground(machine, rules))


def all_placed(ground: Ground, at: Pools, asks: Sequence[Ask], kept: CpuSet = 0) -> Placed:
    """The pools with all of these containers, which run already, in the order in which they came. `kept`: see
    `admitted`. A container of which nobody knows what it asks for stays on its CPUs: they are its own where no other
    container has any of them, else nobody's."""
    denied = dict[str, str]()
    rest = list[Ask]()
    before = at
    policy = policy_of(ground.rules.active)
    if policy.resume is not None:
        return _resumed(ground, policy, policy.resume, at, asks)
    for ask in _settled_first(asks):
        if is_kept(ask):
            found = _left_there(ground, before, at, ask)
            if found is None:
                denied[ask.key] = UNREAD_STAYS
                kept |= ask.has
            else:
                at = found
            continue
        after = admitted(ground, at, ask) if ask.has else None
        if isinstance(after, Pools) and not after.grants[ask.key].own & ~ask.has:
            at = after
        else:
            rest.append(ask)  # who has to move takes nothing from those who may stay
    for ask in rest:
        after = admitted(ground, at, ask, kept)
        if isinstance(after, Denied):
            denied[ask.key] = after.why
        else:
            at = after
    return Placed(at, denied)


def _resumed(
    ground: Ground,
    policy: Policy,
    resume: Callable[[Ground, Pools, Sequence[Ask]], Pools],
    at: Pools,
    asks: Sequence[Ask],
) -> Placed:
    """By a policy that knows its pools by the sets of those in them."""
    denied = dict[str, str]()
    if policy.guesses:
        asks = [_as_it_is(ask, asks) if is_kept(ask) else ask for ask in asks]
    news = [ask for ask in asks if ask.key not in at.grants]
    after = counted(ground, at, resume(ground, at, news), news) if news else at
    placed = dict.fromkeys(ask.key for ask in news if ask.key in after.grants)
    at = after
    for ask in asks:
        if ask.key in placed:
            continue
        found = admitted(ground, at, ask)
        if isinstance(found, Denied):
            denied[ask.key] = found.why
        else:
            at = found
    return Placed(at, denied)


def _as_it_is(ask: Ask, asks: Sequence[Ask]) -> Ask:
    """A container of which nobody knows what it requests, as if that were what others leave of its CPUs: so it keeps
    them."""
    rest = 1000 * ask.has.bit_count()
    rest -= sum(other.request_m for other in asks if other is not ask and other.has == ask.has)
    return replace(ask, request_m=max(0, rest))


def is_kept(ask: Ask) -> bool:
    """Whether the container stays where it is, since its request could not be read."""
    return ask.source == UNREAD and bool(ask.has)


def _left_there(ground: Ground, before: Pools, at: Pools, ask: Ask) -> Pools | None:
    """With all CPUs that the container has as its own; None where it seems to share them, or cannot have them."""
    shared = [pool.cpus for pool in before.pools.values() if pool.members]
    if not ask.known or any(cpus & ask.has for cpus in shared) or any(p.cpus == ask.has for p in at.pools.values()):
        return None
    after = admitted(ground, at, ask)
    return after if isinstance(after, Pools) and wanted(after, ask.key) in (0, ask.has) else None


def _settled_first(asks: Sequence[Ask]) -> Iterator[Ask]:
    """Those that have CPUs of their own come first, or a newcomer could take them. Those whose request could not be
    read follow, as if they had asked for the CPUs that they alone have."""
    once = twice = 0
    for ask in asks:
        twice |= once & ask.has
        once |= ask.has
    unread, rest = list[Ask](), list[Ask]()
    for ask in asks:
        whole = ask.request_m // 1000
        if is_kept(ask):
            whole = 0 if ask.has & twice else ask.has.bit_count()
            unread.append(replace(ask, request_m=whole * 1000, qos=Qos.GUARANTEED, known=True) if whole else ask)
        elif whole and ask.has.bit_count() == whole:  # a larger set holds CPUs that others share: which are its own?
            yield ask
        else:
            rest.append(replace(ask, has=0) if ask.has else ask)
    yield from unread
    yield from rest


def wanted(at: Pools, key: str) -> CpuSet:
    """The CPUs that the container of this key is to have. 0: it is not pinned, or has no grant."""
    grant = at.grants.get(key)
    return set_of(at, grant) if grant is not None else 0
