"""Policies whose containers share the CPUs of a pool that is chosen by rules: balloons, podpools, static-pools and
dynamic-pools.

A policy gives a few small functions (`Hooks`); who comes, stays, grows and goes is written here once. A container
keeps its pool while it lives: a resize grows or shrinks that pool, and is refused where it cannot. On a refusal nothing
of the attempt stays. Nothing here chooses CPUs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nodeward.engine.cpus.match import globs
from nodeward.engine.cpus.policy import Policy
from nodeward.engine.cpus.pools import joined, left
from nodeward.model.cpus import Ask, Denied, Grant, Ground, Pool, Pools
from nodeward.model.cpuset import CpuSet
from nodeward.model.pool_rule import SYSTEM_NAMESPACE
from nodeward.model.refusal import Reason
from nodeward.model.topology import Machine


@dataclass(frozen=True, slots=True)
class Offer:
    """One possibility: the pools with the one that was made for it, if any, and the grant."""

    at: Pools
    grant: Grant


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the policies differ in."""

    carve: Callable[[Ground], Pools | Denied]
    """The pools before any container."""
    order: Callable[[Ground, Pools, Ask], Iterable[Offer] | Denied]
    """Where the container may go, the best first; lazily."""
    capacity: Callable[[Ground, Pools, str], bool]
    """Whether the pool may have the members that it has now."""
    size: Callable[[Ground, Pools, str, bool], Pools | None]
    """With the pool as large as its members need, and all that follows; None where there are too few CPUs. True: it may
    shrink, or end."""
    full: Callable[[Ground, Pools, Ask], str]
    """Why no offer was good, with numbers and a remedy."""


Resume = Callable[[Ground, Pools, Sequence[Ask]], Pools]


def policy(name: str, about: str, hooks: Hooks, resume: Resume | None = None, needs: tuple[str, ...] = ()) -> Policy:
    """The policy made of these functions."""

    def admit(ground: Ground, at: Pools, ask: Ask) -> Pools | Denied:
        before = at.grants.get(ask.key)
        if before is not None:
            return _changed(hooks, ground, at, before, ask)
        offers = hooks.order(ground, at, ask)
        if isinstance(offers, Denied):
            return offers
        for offer in offers:
            after = _taken(hooks, ground, offer, shrinks=False)
            if after is not None:
                return after
        return Denied(hooks.full(ground, at, ask))

    def release(ground: Ground, at: Pools, key: str) -> Pools:
        gone = at.grants.get(key)
        if gone is None:
            return at
        after = left(at, key)
        return (hooks.size(ground, after, gone.pool, True) or after) if gone.pool else after

    def resumed(ground: Ground, at: Pools, asks: Sequence[Ask]) -> Pools:
        """By default each that may stay where it is, by the offers for it."""
        for ask in asks:
            if ask.has:
                after = admit(ground, at, ask)
                at = at if isinstance(after, Denied) else after
        return at

    return Policy(name, about, hooks.carve, admit, release, keeps=False, needs=needs, resume=resume or resumed)


def _changed(hooks: Hooks, ground: Ground, at: Pools, before: Grant, ask: Ask) -> Pools | Denied:
    """A restart, a resize, or a late word on what it requests: it stays in its pool."""
    if not ask.known:
        return at
    counted = ask.request_m if before.pool else 0
    grant = replace(before, part_m=counted, request_m=ask.request_m, role=ask.role, source=ask.source)
    if grant == before:
        return at
    after = _taken(hooks, ground, Offer(at, grant), shrinks=True)
    return after if after is not None else Denied(hooks.full(ground, left(at, ask.key), ask))


def _taken(hooks: Hooks, ground: Ground, offer: Offer, *, shrinks: bool) -> Pools | None:
    after = joined(offer.at, offer.grant)
    if not offer.grant.pool:
        return after
    fits = hooks.capacity(ground, after, offer.grant.pool)
    return hooks.size(ground, after, offer.grant.pool, shrinks) if fits else None


def grant_of(ask: Ask, pool: str, reason: Reason, pinned: bool = True, pins_memory: bool | None = None) -> Grant:
    """The grant of a container that shares a pool."""
    return Grant(
        ask.key,
        pool,
        part_m=ask.request_m if pool else 0,
        request_m=ask.request_m,
        role=ask.role,
        source=ask.source,
        reason=reason,
        pinned=pinned,
        pins_memory=pins_memory,
        namespace=ask.namespace,
    )


def type_of(name: str) -> str:
    """The type of which the pool of this name is an instance."""
    return name.partition("[")[0]


def requested_m(at: Pools, name: str) -> int:
    """What the pool's members request together."""
    return sum(at.grants[key].part_m for key in at.pools[name].members)


def used(at: Pools) -> CpuSet:
    """The CPUs of all pools."""
    cpus = 0
    for pool in at.pools.values():
        cpus |= pool.cpus
    return cpus


def pods_of(pool: Pool) -> Iterator[str]:
    """The pods that have a container there, each once."""
    yield from dict.fromkeys(key.rpartition("/")[0] for key in pool.members)


def is_of(namespaces: Iterable[str], ask: Ask) -> bool:
    """Whether the container's namespace matches one of these."""
    return any(globs(one, ask.namespace) for one in namespaces)


def is_system(more: Iterable[str], ask: Ask) -> bool:
    """Whether it runs on the reserved CPUs by its namespace."""
    return ask.namespace == SYSTEM_NAMESPACE or is_of(more, ask)


def firsts(machine: Machine, cpus: CpuSet, lent: CpuSet) -> CpuSet:
    """The lowest thread of each core: of `cpus`, and in cores where there is none of `lent`."""
    found = 0
    for core in machine.cores:
        have = core.cpus & cpus or core.cpus & lent
        found |= have & -have
    return found


def is_there(pool: Pool, has: CpuSet) -> bool:
    """Whether a container with these CPUs seems to run in the pool: on all of it, or on one thread of each core."""
    return bool(pool.cpus & has) and (pool.cpus & ~has == 0 or has & ~(pool.cpus | pool.lent) == 0)
