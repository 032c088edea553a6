"""The policy `static-pools` of CRI Resource Manager, and of CMK before: pools are lists of CPUs that the settings name.

A container of an exclusive pool has as many lists as it asks for, for itself until its pod ends; of any other pool it
shares one list. A pool is chosen by annotation (`exclusive`, or `exclusive/1` for lists of socket 1), and is `shared`
for all others. How many lists: `cmk.intel.com/exclusive-cores` in the annotation of the resource-annotating webhook.

Differs from CRI Resource Manager: it reads the pool from a container's environment and command line, which no edge of
Nodeward copies; it shares a random list, here it is the one with fewest containers; and it puts variables into the
container's environment, which is not done here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nodeward.core import annotations as keys
from nodeward.core.cpuset import CpuSet, parse, text
from nodeward.core.modes import EXCLUSIVE_CORES
from nodeward.core.refusal import Reason
from nodeward.core.tables import kept
from nodeward.core.topology import Machine
from nodeward.features.cpus import amounts
from nodeward.features.cpus.policies.pools_with_rules import Admit, Hooks, Offer, grant_of, is_there, policy, type_of
from nodeward.features.cpus.pool_settings import SHARED, StaticPool
from nodeward.features.cpus.requested import scoped
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Ask, Denied, Ground, Pool, Pools


@dataclass(frozen=True, slots=True)
class _Node:
    kinds: Mapping[str, StaticPool]
    sockets: Mapping[str, int]
    """Of each list, by its pool's name here (`exclusive[0]`)."""
    first: Pools


@kept
def _node(machine: Machine, settings: PolicySettings) -> _Node | Denied:
    allowed = amounts.universe(Ground(machine, settings))
    if isinstance(allowed, Denied):
        return allowed
    pools, sockets, taken = dict[str, Pool](), dict[str, int](), 0
    for one in settings.static_pools.pools:
        for i, given in enumerate(one.cpu_lists):
            cpus, where = parse(given.cpuset), f"policy.static-pools: list {given.cpuset!r} of the pool {one.name}"
            if cpus & ~allowed:
                return Denied(f"{where}: CPUs {text(cpus & ~allowed)} are not available; name some of {text(allowed)}")
            if cpus & taken:
                return Denied(f"{where}: CPUs {text(cpus & taken)} are in another list too; a CPU is in one list")
            taken |= cpus
            name = f"{one.name}[{i}]"
            pools[name], sockets[name] = Pool(cpus, apart=True), given.socket
    kinds = {one.name: one for one in settings.static_pools.pools}
    if not any(type_of(name) == SHARED for name in pools) or kinds[SHARED].exclusive:
        return Denied(
            f"policy.static-pools: there is no pool {SHARED} that is not exclusive, with a list; containers that "
            "name no pool run there: define it"
        )
    return _Node(kinds, sockets, Pools(pools))


def _order(node: _Node, at: Pools, ask: Ask) -> Sequence[Offer] | Denied:
    said = scoped(ask.annotations, keys.STATIC_POOL, ask.container)
    kind, _, socket = (said[0].strip() if said is not None else SHARED).partition("/")
    if kind not in node.kinds or not (socket.isdecimal() or not socket):
        return Denied(
            f"its annotation {keys.STATIC_POOL} is {said[0][:64] if said else ''!r}, which is no pool; write one of "
            f"{', '.join(node.kinds)}, or a pool and a socket, as {kind[:63] or SHARED}/0"
        )
    lists = [n for n in at.pools if type_of(n) == kind and (not socket or node.sockets[n] == int(socket[:9]))]
    if not node.kinds[kind].exclusive:
        lists.sort(key=lambda name: (not is_there(at.pools[name], ask.has), len(at.pools[name].members)))
        return [Offer(at, grant_of(ask, name, Reason("cpus-static-pool", (kind, 1)))) for name in lists]
    count = exclusive_lists(ask)
    if isinstance(count, str):
        return Denied(count)
    free = [name for name in lists if not any(grant.own & at.pools[name].cpus for grant in at.grants.values())]
    free.sort(key=lambda name: at.pools[name].cpus & ~ask.has != 0)
    if count > len(free):
        return Denied(
            f"it asks for {count} list(s) of the pool {kind}, and {len(free)} of {len(lists)} are free; ask for "
            "fewer, or end a container that has some"
        )
    own: CpuSet = 0
    for name in free[:count]:
        own |= at.pools[name].cpus
    return [Offer(at, replace(grant_of(ask, "", Reason("cpus-static-pool", (kind, count))), own=own))]


def exclusive_lists(ask: Ask) -> int | str:
    """How many lists the container asks for; what is wrong where it says no number from 1 to 9999."""
    written = next((ask.annotations[key] for key in keys.CPU_REQUESTS if key in ask.annotations), "")
    why = (
        f"it is to be in an exclusive pool and asks for no lists: request {EXCLUSIVE_CORES}, and let the webhook "
        f"write it into the annotation {keys.CPU_REQUESTS[1]}"
    )
    try:
        found: object = json.loads(written or "{}", parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return why
    sections = [found.get(name) for name in ("containers", "initContainers")] if isinstance(found, dict) else []
    path: tuple[str, ...]
    for section in sections:
        for path in ((ask.container, "requests", EXCLUSIVE_CORES), (ask.container, "limits", EXCLUSIVE_CORES)):
            inside: object = section
            for name in path:
                inside = inside.get(name) if isinstance(inside, dict) else None
            if isinstance(inside, str) and inside.isascii() and inside.isdecimal() and 0 < int(inside[:9]) < 10_000:
                return int(inside[:9])
    return why


def _resume(_: _Node, at: Pools, asks: Sequence[Ask], admit: Admit) -> Pools:
    """Those on the fewest CPUs first: who has one list is not taken for one that has several."""
    for ask in sorted((ask for ask in asks if ask.has), key=lambda ask: ask.has.bit_count()):
        after = admit(at, ask)
        if isinstance(after, Pools) and not after.grants[ask.key].own & ~ask.has:
            at = after
    return at


STATIC_POOLS = replace(
    policy(
        "static-pools",
        "lists of CPUs that the settings name, shared or given whole, chosen by annotation",
        Hooks(
            _node,
            lambda node: node.first,
            _order,
            lambda _, __, ___: True,
            lambda _, at, __, ___: at,
            lambda _, __, ___: "no list is free",
            _resume,
        ),
    ),
    keeps=True,
)
