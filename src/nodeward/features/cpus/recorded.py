"""What a new process believes of the record of CPU grants, and how a decision changes the record.

The process that drives the policy writes down which container has which CPUs before it answers, and the next one begins
with that. A set that a container has says less: it may hold CPUs that are shared or lent, and anybody may have written
it. Promises: pools that could never be (a CPU that two containers have alone, a CPU that the machine lacks) are refused
whole, with the reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodeward.core.cpuset import CpuSet, of, text
from nodeward.core.tables import beside, put, without
from nodeward.features.cpus.ask import key_of, named
from nodeward.features.cpus.place import begun
from nodeward.features.cpus.policies.pools_with_rules import type_of
from nodeward.features.cpus.policies.table import ALIASES, POLICIES, policy_of
from nodeward.features.cpus.pool_settings import CLAIM, CLAIMS, DEFAULT, RESERVED, SHARED
from nodeward.features.cpus.pools import joined, left, set_of
from nodeward.features.cpus.values import Change, Denied, Ground, Pools, Recorded
from nodeward.features.root import State


def fault(recorded: Recorded) -> str:
    """Why these pools cannot be true; empty where they can."""
    pools, online = recorded.pools.pools, recorded.machine.online
    if recorded.rules.active not in (*POLICIES, *ALIASES):
        return f"its policy {recorded.rules.active[:64]!r} is not known"
    if why := _of_other_settings(recorded):
        return why
    shared = apart = 0
    for name, pool in pools.items():
        what = f"the pool {name[:64]!r} has CPUs"
        if pool.cpus & ~online:
            return f"{what} {text(pool.cpus & ~online)[:64]}, and the machine has none of these"
        if pool.lent & ~online or (recorded.rules.active == CLAIMS and pool.lent not in (0, pools[SHARED].cpus)):
            return f"{what} {text(pool.lent)[:64]} lent, which cannot be"
        if pool.apart and pool.cpus & apart:
            return f"{what} {text(pool.cpus & apart)[:64]}, which another one has too"
        shared |= pool.cpus if pool.members or not pool.apart else 0
        apart |= pool.cpus if pool.apart else 0
    alone, nodes = 0, of(node.id for node in recorded.machine.memory)
    for key, grant in recorded.pools.grants.items():
        who = f"the container {key[:300]!r}"
        if key != grant.key or (grant.pool and (grant.pool not in pools or key not in pools[grant.pool].members)):
            return f"{who} is not a member of its pool {grant.pool[:64]!r}"
        if grant.own & ~online:
            return f"{who} has CPUs {text(grant.own & ~online)[:64]}, and the machine has none of these"
        if grant.own & (alone | shared):
            return f"{who} has CPUs {text(grant.own & (alone | shared))[:64]} alone, which another one has too"
        alone |= grant.own
        if grant.zone & ~nodes:
            return f"{who} has memory nodes {text(grant.zone & ~nodes)[:64]}, and the machine has none of these"
    return ""


def _of_other_settings(recorded: Recorded) -> str:
    """Why its own settings cannot have led to its pools: a policy would not find what it looks for."""
    first = begun(recorded.machine, recorded.rules)
    if isinstance(first, Denied):
        return f"its settings do not fit its machine: {first.why[:300]}"
    if missing := next((name for name in first.pools if "[" not in name and name not in recorded.pools.pools), ""):
        return f"it lacks the pool {missing[:64]!r}"
    types = {one.name: None for one in recorded.rules.balloons.balloon_types}
    kinds = {**dict.fromkeys(type_of(name) for name in first.pools), **types, RESERVED: None, DEFAULT: None}
    kinds |= {CLAIM: None} if recorded.rules.active == CLAIMS else {}
    for name, pool in recorded.pools.pools.items():
        parts = [(part.type, part.shares) for part in pool.parts]
        parts += [(each.type, each.shares) for part in pool.parts for each in part.inside]
        if type_of(name) not in kinds or any(kind not in kinds or shares < 1 for kind, shares in parts):
            return f"the pool {name[:64]!r} is none that its settings have"
    return ""


def begun_with(state: State, ground: Ground) -> Pools | Denied:
    """The pools to begin with: as they were recorded, where settings and machine are the same; else without any
    container."""
    known = state.cpus.recorded
    if known is None or (known.rules, known.machine) != (ground.rules, ground.machine):
        return begun(ground.machine, ground.rules)
    pools = known.pools
    if state.cpus.listed:
        there, policy = keys_there(state), policy_of(ground.rules.active)
        for key in [key for key in pools.grants if key not in there]:
            pools = policy.release(ground, pools, key)
    return pools


def had(state: State, key: str) -> tuple[CpuSet, str]:
    """The CPUs and the pool that the container of this key has by the record; 0 and nothing where it is not there."""
    known = state.cpus.recorded
    grant = known.pools.grants.get(key) if known is not None else None
    if known is None or grant is None:
        return 0, ""
    return grant.own or set_of(known.pools, grant), grant.pool


def own(state: State, key: str) -> CpuSet:
    """The CPUs that the container of this key alone has by the record."""
    known = state.cpus.recorded
    grant = known.pools.grants.get(key) if known is not None else None
    return grant.own if grant is not None else 0


def mems_of(state: State, key: str) -> CpuSet:
    """The memory nodes that the container of this key has by the record; 0 for none."""
    known = state.cpus.recorded
    return known.mems.get(key, 0) if known is not None else 0


def awaited(state: State) -> Iterable[str]:
    """The recorded keys whose container is not known yet, while the runtime may still report it."""
    known = state.cpus.recorded
    if known is None:
        return ()
    return keys_there(state) if state.cpus.listed else known.pools.grants


def keys_there(state: State) -> Mapping[str, None]:
    """The keys of all containers that are there."""
    there = ((known, named(state, known)) for known in state.pods.containers.values())
    return {key_of(known.pod_uid, told[1].name): None for known, told in there if told is not None}


def mems(state: State) -> Mapping[str, CpuSet]:
    """The memory nodes of those who are bound to some, by key."""
    return {held.key: held.mems for held in state.cpus.held.values() if held.mems}


def change(before: Recorded, after: Recorded) -> Change | None:
    """What leads from the one to the other, which have the same machine and rules; None where only the whole of `after`
    tells it."""
    was, now = before.pools, after.pools
    gone = tuple(key for key in was.grants if key not in now.grants)
    grants = tuple(grant for key, grant in now.grants.items() if was.grants.get(key) is not grant)
    ended = {name: None for name in was.pools if name not in now.pools}
    pools = {name: replace(pool, members=()) for name, pool in now.pools.items() if was.pools.get(name) is not pool}
    near = {key: nodes for key, nodes in after.mems.items() if before.mems.get(key) != nodes}
    found = Change(gone, grants, {**ended, **pools}, near)
    led = changed(before, found)
    # the order in which containers came counts too
    same = led.pools == now and list(led.pools.grants) == list(now.grants) and list(led.pools.pools) == list(now.pools)
    return found if same else None


def changed(before: Recorded, by: Change) -> Recorded:
    """The record after the change. Never raises, whatever it names: what does not fit is found by `fault`."""
    at = before.pools
    for key in by.gone:
        at = left(at, key)
    pools = dict(at.pools)
    for name, pool in by.pools.items():
        if pool is not None and name not in pools:
            pools[name] = replace(pool, members=())
    at = Pools(pools, at.grants)
    for grant in by.grants:
        at = (
            joined(at, grant)
            if not grant.pool or grant.pool in at.pools
            else Pools(at.pools, put(at.grants, grant.key, grant))
        )
    news = {name: replace(pool, members=at.pools[name].members) for name, pool in by.pools.items() if pool is not None}
    ended = [name for name, pool in by.pools.items() if pool is None]
    return replace(
        before,
        pools=Pools(beside(without(at.pools, ended), news), at.grants),
        mems=beside(without(before.mems, by.gone), by.mems),
    )
