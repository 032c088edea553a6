"""The policy `static`: kubelet's CPU manager policy of that name. A container of a Guaranteed pod that requests whole
CPUs has them for itself; all others share what is left, the reserved CPUs among it.

Promises kubelet 1.37's sets for the same history, and goes beyond it where kubelet has no answer: a resize keeps the
CPUs that it can, a container that ran before keeps its own, and CPUs that the kernel isolates are a second store. The
room around it refuses what would leave containers that share without a CPU.
"""

from dataclasses import dataclass, replace

from nodeward.core.annotations import PREFER_ISOLATED
from nodeward.core.cpuset import CpuSet, text
from nodeward.core.refusal import Reason
from nodeward.core.tables import kept
from nodeward.core.topology import Machine
from nodeward.core.workload import Qos, Role
from nodeward.features.cpus import amounts
from nodeward.features.cpus.policies.kubelet_take import Options, tables, take
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.pools import joined, left, resized
from nodeward.features.cpus.requested import flag
from nodeward.features.cpus.settings import STATIC_OPTIONS, PolicySettings, StaticSettings
from nodeward.features.cpus.values import Ask, Denied, Grant, Ground, Pool, Pools

SHARED = "shared"
_OPTIONS = "policy.static.Options"
_FULL, _STRICT, _SOCKET = "full-pcpus-only", "strict-cpu-reservation", "align-by-socket"
_NUMA, _CORES, _CACHE = (
    "distribute-cpus-across-numa",
    "distribute-cpus-across-cores",
    "prefer-align-cpus-by-uncorecache",
)
_APART = ((_FULL, _CORES), (_NUMA, _CORES), (_CACHE, _CORES), (_CACHE, _NUMA))
"""Kubelet takes no two of these together."""


@dataclass(frozen=True, slots=True)
class _Node:
    """What the settings make of the machine."""

    machine: Machine
    home: CpuSet
    """CPUs of the pool while no container has CPUs of its own."""
    reserved: CpuSet
    reserved_cores: CpuSet
    """The reserved CPUs and their siblings."""
    isolated: CpuSet
    """The second store."""
    options: Options
    relaxed: bool


# ---- the settings ----------------------------------------------------------------------------------------------------


@kept
def _node(machine: Machine, rules: PolicySettings) -> _Node | Denied:
    options = _options(rules.static, machine)
    if isinstance(options, Denied):
        return options
    ground = Ground(machine, rules)
    allowed = amounts.universe(ground)
    reserved = amounts.reserved(ground, lambda cpus, count: take(machine, cpus, count, options) or 0)
    if isinstance(allowed, Denied):
        return allowed
    if isinstance(reserved, Denied):
        return reserved
    ordinary, strict = allowed & ~machine.isolated, rules.static.options.get(_STRICT, False)
    if strict and reserved == ordinary:
        return Denied(
            f"{amounts.RESERVED} keeps all of {text(ordinary)}, and {_OPTIONS}.{_STRICT} gives containers none of "
            "these; reserve fewer, or leave the option out"
        )
    cores = reserved
    for core in machine.cores:
        if core.cpus & reserved:
            cores |= core.cpus
    home = ordinary & ~reserved if strict else ordinary
    return _Node(machine, home, reserved, cores, allowed & machine.isolated, options, rules.static.relaxed_isolation)


def _options(rules: StaticSettings, machine: Machine) -> Options | Denied:
    unknown = [name for name in rules.options if name not in STATIC_OPTIONS]
    if unknown:
        near = max(STATIC_OPTIONS, key=lambda one: _likeness(one, unknown[0]))
        return Denied(
            f"{_OPTIONS}.{unknown[0][:64]} is no option of kubelet's CPU manager; did you mean {near}? There are "
            f"{', '.join(STATIC_OPTIONS)}"
        )
    on = tuple(name for name in STATIC_OPTIONS if rules.options.get(name))
    for one, other in _APART:
        if one in on and other in on:
            return Denied(f"{_OPTIONS}: {one} and {other} cannot be used together, as in kubelet; leave one out")
    if _SOCKET in on and len(machine.packages) > len(machine.nodes):
        return Denied(
            f"{_OPTIONS}.{_SOCKET} needs a NUMA node or more in each socket, and this machine has "
            f"{len(machine.packages)} sockets and {len(machine.nodes)} NUMA nodes; leave it out"
        )
    return Options(_FULL in on, _NUMA in on, _SOCKET in on, _CORES in on, _CACHE in on)


def _likeness(known: str, written: str) -> int:
    """How many letter pairs they have in common."""
    pairs = [known[i : i + 2] for i in range(len(known) - 1)]
    return sum(pair in written for pair in pairs) * 100 // len(pairs)


# ---- the policy ------------------------------------------------------------------------------------------------------


def _begin(ground: Ground) -> Pools | Denied:
    node = _node(ground.machine, ground.rules)
    return node if isinstance(node, Denied) else Pools({SHARED: Pool(node.home)})


def _admit(ground: Ground, at: Pools, ask: Ask) -> Pools | Denied:
    node = _node(ground.machine, ground.rules)
    if isinstance(node, Denied):
        return node
    before = at.grants.get(ask.key)
    if before is not None and not ask.known:
        return at
    why = _why_shared(ask)
    if why:
        return _with(node, at, ask, Grant(ask.key, SHARED, part_m=ask.request_m, reason=Reason(why, (ask.request_m,))))
    count = ask.request_m // 1000
    if before is not None and before.own.bit_count() == count:
        return at if before.source == ask.source else joined(at, replace(before, source=ask.source))
    found = _chosen(node, at, ask, count, before.own if before is not None else 0)
    if isinstance(found, Denied):
        return found
    own, reason = found
    return _with(node, at, ask, Grant(ask.key, own=own, reason=reason))


def _reserved(ground: Ground, _: Pools) -> CpuSet:
    """They are in the shared pool."""
    node = _node(ground.machine, ground.rules)
    return 0 if isinstance(node, Denied) else node.reserved


def _release(ground: Ground, at: Pools, key: str) -> Pools:
    node, grant = _node(ground.machine, ground.rules), at.grants.get(key)
    if grant is None or isinstance(node, Denied):
        return left(at, key)
    back = grant.own & ~_held(at, key) & node.home
    return left(resized(at, SHARED, at.pools[SHARED].cpus | back), key)


def _why_shared(ask: Ask) -> str:
    """The code of the reason why a container has no CPUs of its own; empty where it has."""
    if not ask.known:
        return "cpus-static-unknown"
    if ask.qos is not Qos.GUARANTEED:
        return "cpus-static-qos"
    if ask.pod_level:
        return "cpus-static-pod-level"
    if ask.request_m <= 0:
        return "cpus-static-none-requested"
    return "cpus-static-fraction" if ask.request_m % 1000 else ""


def _with(node: _Node, at: Pools, ask: Ask, grant: Grant) -> Pools:
    """With this grant in the place of an earlier one. What is given back returns to the pool, unless another container
    of the pod has it too."""
    before = at.grants.get(ask.key)
    back = before.own & ~_held(at, ask.key) & node.home if before is not None and before.own else 0
    cpus = (at.pools[SHARED].cpus | back) & ~grant.own
    return joined(resized(at, SHARED, cpus), replace(grant, request_m=ask.request_m, role=ask.role, source=ask.source))


def _siblings(at: Pools, key: str) -> list[Grant]:
    """Grants of own CPUs of the pod's other containers."""
    pod = f"{key.partition('/')[0]}/"
    return [one for one in at.grants.values() if one.own and one.key.startswith(pod) and one.key != key]


def _held(at: Pools, key: str) -> CpuSet:
    held = 0
    for one in _siblings(at, key):
        held |= one.own
    return held


def _reusable(at: Pools, key: str) -> CpuSet:
    """CPUs of the pod's init containers, which have ended when others of the pod run. Those of sidecars go on."""
    begun = going = 0
    for one in _siblings(at, key):
        if one.role is Role.INIT:
            begun |= one.own
        else:
            going |= one.own
    return begun & ~going


# ---- the choice ------------------------------------------------------------------------------------------------------


def _chosen(node: _Node, at: Pools, ask: Ask, count: int, own: CpuSet) -> tuple[CpuSet, Reason] | Denied:
    """The CPUs of a container that asks for `count` of its own and has `own` so far, and why these."""
    uneven = _uneven(node, count)
    if count < own.bit_count():
        if uneven is not None:
            return uneven
        fewer = take(node.machine, own, count, node.options) or 0
        return fewer, Reason("cpus-static-shrunk", (own.bit_count(), count, text(own & ~fewer)))
    reusable = _reusable(at, ask.key) & ~own
    ordinary = at.pools[SHARED].cpus & ~node.reserved | reusable
    isolated = _isolated_free(node, at)
    had = ask.has
    if not own and had.bit_count() == count and not had & ~(ordinary | isolated):
        return had, Reason("cpus-static-kept", (count, text(had)))
    if uneven is not None:
        return uneven
    rest, by = count - own.bit_count(), _isolated_for(node, ask, count)
    if by and rest <= isolated.bit_count() and not own & ~node.isolated:
        got = own | (take(node.machine, isolated, rest, node.options) or 0)
        return got, Reason("cpus-static-isolated", (count, text(got), by))
    short = ordinary.bit_count() < rest <= (ordinary | isolated).bit_count()
    scattered = None if short else _scattered(node, at, count, own)
    if scattered is not None:
        return scattered
    more = take(node.machine, ordinary | isolated if short else ordinary, rest, node.options)
    if more is None:
        most = (ordinary | isolated | own).bit_count()
        return Denied(
            f"not enough cpus available to satisfy request: requested={count}, available={most}; "
            "request fewer CPUs, or end containers that have CPUs of their own"
        )
    if own:
        return own | more, Reason("cpus-static-grown", (own.bit_count(), count, text(more)))
    code = "cpus-static-short" if short else "cpus-static-reused" if more & reusable else "cpus-static-taken"
    return more, Reason(code, (count, text(more), ordinary.bit_count(), *_shape(node.machine, more)))


def _scattered(node: _Node, at: Pools, count: int, own: CpuSet) -> Denied | None:
    """Why full-pcpus-only finds too few CPUs: siblings of reserved ones do not count."""
    if not node.options.full_pcpus_only:
        return None
    most = ((at.pools[SHARED].cpus | own) & ~node.reserved_cores).bit_count()
    if count <= most:
        return None
    return Denied(
        f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {most}, "
        f"requested CPUs = {count}, CPUs per core = {tables(node.machine).per_core}; request at most {most} CPUs, or "
        "end containers that have CPUs of their own"
    )


def _uneven(node: _Node, count: int) -> Denied | None:
    """Why full-pcpus-only does not take the number."""
    each = tables(node.machine).per_core
    if not node.options.full_pcpus_only or count % each == 0:
        return None
    return Denied(
        f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {each}; request "
        f"{count + each - count % each} CPUs, or leave out {_OPTIONS}.{_FULL}"
    )


def _isolated_free(node: _Node, at: Pools) -> CpuSet:
    free = node.isolated
    if free:
        for grant in at.grants.values():
            free &= ~grant.own
    return free


def _isolated_for(node: _Node, ask: Ask, count: int) -> str:
    """Why CPUs that the kernel isolates are tried first; empty where they are not. A word that is no boolean counts as
    no annotation."""
    said = flag(ask.annotations, PREFER_ISOLATED, ask.container)
    if isinstance(said, bool):
        return "annotation" if said else ""
    return "relaxed" if node.relaxed else "single" if count == 1 else ""


def _shape(machine: Machine, own: CpuSet) -> tuple[int, int, int, int]:
    """Of how many whole sockets, else whole NUMA nodes, else whole cores, else single CPUs it is made."""
    found = list[int]()
    for groups in (machine.packages, machine.nodes, machine.cores):
        whole = [group.cpus for group in groups if group.cpus & own == group.cpus]
        for cpus in whole:
            own &= ~cpus
        found.append(len(whole))
    return found[0], found[1], found[2], own.bit_count()


STATIC = Policy(
    "static",
    "as kubelet's: whole CPUs of Guaranteed pods are exclusive, the others are shared",
    _begin,
    _admit,
    _release,
    reserved=_reserved,
    dedicates=lambda _: True,
    needs=("policy.reserved",),
)
