"""What policies share that choose a pool by rules: balloons, podpools, static-pools, dynamic-pools.

A policy gives a few small functions (`Hooks`); who comes, stays, grows and goes is written here once. A hook never sees
settings that do not fit the machine. A container keeps its pool while it lives: a resize grows or shrinks that pool,
and is refused where it cannot. On a refusal nothing of the attempt stays. Chooses no CPUs but the reserved ones.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from nodeward.core import annotations as keys
from nodeward.core.cpuset import CpuSet
from nodeward.core.decision import SchedulingClass
from nodeward.core.hints import HintKind
from nodeward.core.refusal import Reason
from nodeward.core.tables import kept
from nodeward.core.topology import Machine
from nodeward.features.cpus import amounts
from nodeward.features.cpus.match import globs
from nodeward.features.cpus.picker import CpuPriority, pick
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.pool_settings import SYSTEM_NAMESPACE, MemoryType
from nodeward.features.cpus.pools import joined, left
from nodeward.features.cpus.requested import scoped
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Ask, Denied, Grant, Ground, Pool, Pools

N = TypeVar("N")
"""What the settings make of the machine."""
Admit = Callable[[Pools, Ask], Pools | Denied]


@dataclass(frozen=True, slots=True)
class Offer:
    """One possibility: the pools with the one that was made for it, if any, and the grant."""

    at: Pools
    grant: Grant


@dataclass(frozen=True, slots=True)
class Hooks(Generic[N]):
    """What the policies differ in."""

    node: Callable[[Machine, PolicySettings], N | Denied]
    carve: Callable[[N], Pools | Denied]
    """The pools before any container."""
    order: Callable[[N, Pools, Ask], Iterable[Offer] | Denied]
    """Where the container may go, the best first; lazily."""
    capacity: Callable[[N, Pools, str], bool]
    """Whether the pool may have the members that it has now."""
    size: Callable[[N, Pools, str, bool], Pools | None]
    """With the pool as large as its members need, and all that follows; None where there are too few CPUs. True: it may
    shrink, or end."""
    full: Callable[[N, Pools, Ask], str]
    """Why no offer was good, with numbers and a remedy."""
    resume: Callable[[N, Pools, Sequence[Ask], Admit], Pools] | None = None
    """`Policy.resume`. None: `stayed`."""
    rebalance: Callable[[N, Pools, Mapping[int, int]], Pools] | None = None
    room_m: Callable[[N, Pools, str], int] | None = None
    scheduling: Callable[[PolicySettings, Ask, Grant], tuple[Sequence[SchedulingClass], str]] | None = None
    hints: Callable[[PolicySettings], Collection[HintKind]] = lambda _: ()


def policy(name: str, about: str, hooks: Hooks[N], needs: tuple[str, ...] = ()) -> Policy:
    """The policy made of these functions."""

    def node_of(ground: Ground) -> N | Denied:
        return hooks.node(ground.machine, ground.rules)

    def begin(ground: Ground) -> Pools | Denied:
        node = node_of(ground)
        return node if isinstance(node, Denied) else hooks.carve(node)

    def admit(ground: Ground, at: Pools, ask: Ask) -> Pools | Denied:
        node = node_of(ground)
        return node if isinstance(node, Denied) else _admitted(hooks, node, at, ask)

    def release(ground: Ground, at: Pools, key: str) -> Pools:
        gone, node = at.grants.get(key), node_of(ground)
        after = left(at, key)
        if gone is None or not gone.pool or isinstance(node, Denied):
            return after
        return hooks.size(node, after, gone.pool, True) or after

    def resume(ground: Ground, at: Pools, asks: Sequence[Ask]) -> Pools:
        node = node_of(ground)
        if isinstance(node, Denied):
            return at
        return (hooks.resume or stayed)(node, at, asks, lambda at, ask: _admitted(hooks, node, at, ask))

    def rebalance(ground: Ground, at: Pools, load: Mapping[int, int]) -> Pools:
        node = node_of(ground)
        return at if isinstance(node, Denied) or hooks.rebalance is None else hooks.rebalance(node, at, load)

    def room_m(ground: Ground, at: Pools, pool: str) -> int:
        node = node_of(ground)
        return 0 if isinstance(node, Denied) or hooks.room_m is None else hooks.room_m(node, at, pool)

    return Policy(
        name,
        about,
        begin,
        admit,
        release,
        rebalance if hooks.rebalance is not None else None,
        keeps=False,
        resume=resume,
        room_m=room_m if hooks.room_m is not None else None,
        scheduling=hooks.scheduling,
        hints=hooks.hints,
        needs=needs,
    )


def stayed(_: object, at: Pools, asks: Sequence[Ask], admit: Admit) -> Pools:
    """Places each running container that may stay where it is, by the offers for it."""
    for ask in asks:
        if ask.has:
            after = admit(at, ask)
            at = at if isinstance(after, Denied) else after
    return at


def _admitted(hooks: Hooks[N], node: N, at: Pools, ask: Ask) -> Pools | Denied:
    before = at.grants.get(ask.key)
    if before is not None:
        return _changed(hooks, node, at, before, ask)
    offers = hooks.order(node, at, ask)
    if isinstance(offers, Denied):
        return offers
    for offer in offers:
        after = _taken(hooks, node, offer, shrinks=False)
        if after is not None:
            return after
    return Denied(hooks.full(node, at, ask))


def _changed(hooks: Hooks[N], node: N, at: Pools, before: Grant, ask: Ask) -> Pools | Denied:
    """A restart, a resize, or a late word on what it requests: it stays in its pool."""
    if not ask.known:
        return at
    counted = ask.request_m if before.pool else 0
    grant = replace(before, part_m=counted, request_m=ask.request_m, role=ask.role, source=ask.source)
    if (grant.part_m, grant.request_m) == (before.part_m, before.request_m):
        return at if grant == before else joined(at, grant)  # another source says the same: its pool stays as it is
    after = _taken(hooks, node, Offer(at, grant), shrinks=True)
    return after if after is not None else Denied(hooks.full(node, left(at, ask.key), ask))


def _taken(hooks: Hooks[N], node: N, offer: Offer, *, shrinks: bool) -> Pools | None:
    after = joined(offer.at, offer.grant)
    if not offer.grant.pool:
        return after
    fits = hooks.capacity(node, after, offer.grant.pool)
    return hooks.size(node, after, offer.grant.pool, shrinks) if fits else None


def kept_and_others(machine: Machine, settings: PolicySettings) -> tuple[CpuSet, CpuSet] | Denied:
    """The reserved CPUs, and those that pools are made of: all others that the kernel does not isolate."""
    ground = Ground(machine, settings)
    allowed = amounts.universe(ground)
    reserved = amounts.reserved(ground, lambda free, n: pick(machine, free, n, CpuPriority.NORMAL))
    if isinstance(allowed, Denied):
        return allowed
    return reserved if isinstance(reserved, Denied) else (reserved, allowed & ~machine.isolated & ~reserved)


def said(ask: Ask, key: str, *, container: bool = True) -> str | None:
    """What its annotation of this key says, the container's own first; None where it has none."""
    found = scoped(ask.annotations, key, ask.container if container else "")
    return found[0].strip() if found is not None else None


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


def memory_types(ask: Ask, key: str = keys.MEMORY_TYPE) -> tuple[MemoryType, ...]:
    """The types of memory that the pod's annotation names; none where it has none, or a word that is no type."""
    found = said(ask, key)
    words = [word.strip().upper() for word in found.split(",")] if found is not None else []
    known = [one.value for one in MemoryType]
    if words == ["MIXED"]:
        return tuple(MemoryType)
    return tuple(one for one in MemoryType if one.value in words) if all(word in known for word in words) else ()


def is_preserved(ask: Ask, key: str = keys.PRESERVE_CPU) -> bool:
    """Whether its pod's annotation leaves the container's CPUs alone."""
    found = scoped(ask.annotations, key, ask.container)
    return found is not None and found[0] == "true"


def type_of(name: str) -> str:
    """The type of which the pool of this name is an instance."""
    return name.partition("[")[0]


def requested_m(at: Pools, name: str) -> int:
    """What the pool's members request together."""
    return sum(at.grants[key].part_m for key in at.pools[name].members)


def used(at: Pools) -> CpuSet:
    """The CPUs of all pools."""
    return _used(at.pools)


@kept
def _used(pools: Mapping[str, Pool]) -> CpuSet:
    cpus = 0
    for pool in pools.values():
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
