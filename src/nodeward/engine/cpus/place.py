"""Placing containers by the policy: one that comes, many that are there already, and all of them by other settings.

Whoever may stay where it is stays: CPUs that only one container has are taken for its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeward.engine.cpus.policies.table import policy_of
from nodeward.engine.cpus.pools import set_of, starved
from nodeward.model.cpus import Ask, Denied, Ground, Pools
from nodeward.model.cpuset import CpuSet
from nodeward.model.policy_rule import PolicySettings
from nodeward.model.topology import Machine


@dataclass(frozen=True, slots=True)
class Placed:
    """All containers placed. `denied`: by key, why the policy has no place for one."""

    pools: Pools
    denied: Mapping[str, str]


def admitted(ground: Ground, at: Pools, ask: Ask) -> Pools | Denied:
    """The pools with this container; Denied also where a set that others share would be left empty, since the kernel
    takes an empty set for all CPUs."""
    after = policy_of(ground.rules.active).admit(ground, at, ask)
    if isinstance(after, Denied):
        return after
    empty = starved(at, after)
    if not empty:
        return after
    if empty == (ask.key,):
        return Denied("it would share CPUs with others, and every CPU is exclusive; end a container that has some")
    return Denied(
        f"it asks for {ask.request_m} milliCPU, and no CPU would be left for {len(empty)} container(s) that share "
        "theirs; ask for fewer, or let more CPUs be shared (policy.ReservedResources, policy.AvailableResources)"
    )


def begun(machine: Machine, rules: PolicySettings) -> Pools | Denied:
    """The pools of these settings on this machine, before any container."""
    return policy_of(rules.active).begin(Ground(machine, rules))


def all_placed(ground: Ground, at: Pools, asks: Sequence[Ask]) -> Placed:
    """The pools with all of these containers, which run already, in the order in which they came."""
    denied = dict[str, str]()
    rest = list[Ask]()
    for ask in _settled_first(asks):
        after = admitted(ground, at, ask) if ask.has else None
        if isinstance(after, Pools) and not after.grants[ask.key].own & ~ask.has:
            at = after
        else:
            rest.append(ask)  # who has to move takes nothing from those who may stay
    for ask in rest:
        after = admitted(ground, at, ask)
        if isinstance(after, Denied):
            denied[ask.key] = after.why
        else:
            at = after
    return Placed(at, denied)


def _settled_first(asks: Sequence[Ask]) -> Iterator[Ask]:
    """Those that have CPUs of their own come first, or a newcomer could take them."""
    once = twice = 0
    for ask in asks:
        twice |= once & ask.has
        once |= ask.has
    rest = list[Ask]()
    for ask in asks:
        whole = ask.request_m // 1000
        own = ask.has if ask.has.bit_count() == whole else ask.has & ~twice
        if whole and own.bit_count() >= whole:
            yield replace(ask, has=own)
        else:
            rest.append(replace(ask, has=0) if ask.has else ask)
    yield from rest


def wanted(at: Pools, key: str) -> CpuSet:
    """The CPUs that the container of this key is to have. 0: it is not pinned, or has no grant."""
    grant = at.grants.get(key)
    return set_of(at, grant) if grant is not None else 0
