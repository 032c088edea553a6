"""What all policies do with pools: who joins, who leaves, which sets change.

A policy changes only the pools that a change is about, so whoever compares looks at pools that are other objects.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, repeat

from nodeward.core.cpuset import CpuSet
from nodeward.core.tables import put, without
from nodeward.features.cpus.values import Grant, Pool, Pools


def set_of(at: Pools, grant: Grant) -> CpuSet:
    """The CPUs that a container with this grant may use. 0: it is not pinned."""
    if not grant.pinned:
        return 0
    if not grant.shares_pool:
        return (grant.own | grant.extra) & ~grant.hidden
    pool = at.pools[grant.pool]
    if grant.hide:
        return (grant.own | pool.firsts | grant.extra) & ~grant.hidden
    return grant.own | pool.cpus | pool.lent | grant.extra


def counted_cpus(at: Pools, grant: Grant) -> CpuSet:
    """The CPUs by which a container is counted, also where it may run on others."""
    return set_of(at, grant if grant.pinned else replace(grant, pinned=True))


def apart(at: Pools, grant: Grant) -> CpuSet:
    """The CPUs that only this container and those of its pool may use."""
    pool = at.pools.get(grant.pool) if grant.shares_pool and grant.pinned else None
    return grant.own | (pool.cpus if pool is not None and pool.apart else 0)


def own_of(grants: Mapping[str, Grant]) -> dict[CpuSet, int]:
    """By zone of memory nodes, what is promised of it alone."""
    own = dict[CpuSet, int]()
    for grant in grants.values():
        if grant.zone:
            own[grant.zone] = own.get(grant.zone, 0) + grant.memory
    return own


def joined(at: Pools, grant: Grant) -> Pools:
    """The pools with this grant, which replaces one of the same key."""
    before = at.grants.get(grant.key)
    pools = at.pools
    if before is not None and before.pool != grant.pool:
        pools = _left(pools, before)
    if grant.pool and (before is None or before.pool != grant.pool):
        pool = pools[grant.pool]
        pools = put(pools, grant.pool, replace(pool, members=(*pool.members, grant.key)))
    return Pools(pools, put(at.grants, grant.key, grant))


def left(at: Pools, key: str) -> Pools:
    """Without the grant of this key."""
    grant = at.grants.get(key)
    if grant is None:
        return at
    return Pools(_left(at.pools, grant), without(at.grants, (key,)))


def resized(at: Pools, name: str, cpus: CpuSet) -> Pools:
    """The pools with these CPUs in this pool."""
    pool = at.pools[name]
    return at if pool.cpus == cpus else Pools(put(at.pools, name, replace(pool, cpus=cpus)), at.grants)


def changed(before: Pools, after: Pools) -> Iterator[str]:
    """The keys in `after` whose set differs from the one in `before`, each once. A newcomer's is."""
    seen = dict[str, None]()
    for name, pool in after.pools.items():
        was = before.pools.get(name)
        if was is pool or (was is not None and (was.cpus, was.lent) == (pool.cpus, pool.lent)):
            continue
        seen.update(dict.fromkeys(key for key in pool.members if after.grants[key].shares_pool))
    if before.grants is not after.grants:
        there = chain(before.grants.values(), repeat(None))  # most are at the same place, which is quick to find out
        others = [item for item, old in zip(after.grants.items(), there, strict=False) if item[1] is not old]
        for key, grant in others:
            old = before.grants.get(key)
            if old is not grant and (old is None or set_of(before, old) != set_of(after, grant)):
                seen[key] = None
    for key in seen:
        old = before.grants.get(key)
        if old is None or set_of(before, old) != set_of(after, after.grants[key]):
            yield key


def starved(before: Pools, after: Pools) -> tuple[str, ...]:
    """The keys that share a pool without a CPU: the kernel takes an empty set for "all CPUs"."""
    empty = [name for name, pool in after.pools.items() if not pool.cpus and pool is not before.pools.get(name)]
    keys = [key for name in empty for key in after.pools[name].members]
    return tuple(key for key in keys if after.grants[key].shares_pool and not set_of(after, after.grants[key]))


def _left(pools: Mapping[str, Pool], grant: Grant) -> Mapping[str, Pool]:
    pool = pools.get(grant.pool)
    if pool is None:
        return pools
    return put(pools, grant.pool, replace(pool, members=tuple(key for key in pool.members if key != grant.key)))
