"""Makes the rows of the machine's CPUs: what they share, and which container uses them, and why.

The rows are whole (JSON has them); `drawing` makes lines for a terminal of them. Nothing is decided here.
"""

from collections.abc import Iterator, Mapping

from nodeward.core import cpuset
from nodeward.core.modes import Mode
from nodeward.core.ports import Pace, at_once
from nodeward.core.topology import Level, Machine
from nodeward.core.workload import ContainerId, PodUid
from nodeward.features.cpus import claims
from nodeward.features.cpus.amounts import RESERVED as RESERVED_CPUS
from nodeward.features.cpus.amounts import reserved_offline
from nodeward.features.cpus.memory_zones import promised
from nodeward.features.cpus.place import begun
from nodeward.features.cpus.policies.claims import is_claim, pool_of, title_of
from nodeward.features.cpus.policies.pools_with_rules import requested_m
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.pools import set_of
from nodeward.features.cpus.rows import (
    CpuClaimRow,
    CpuClaimsView,
    CpuDeviceRow,
    CpuHolderRow,
    CpuPoolRow,
    CpuRow,
    CpusView,
    MemoryZoneRow,
    in_order,
)
from nodeward.features.cpus.state import Cpus, Held, is_unfit
from nodeward.features.cpus.values import Denied, Grant, Ground, Pools
from nodeward.features.cpus.words import RESERVED, cpu_sentence
from nodeward.features.root import State

ROWS_AT_ONCE = 32


def cpus_view(state: State, now_ns: int, pace: Pace = at_once) -> CpusView | None:
    """The CPUs now; None while the machine is not known."""
    cpus, settings = state.cpus, state.settings.cpus
    if cpus.machine is None:
        return None
    names = {key: name_of(state, key) for key in (*cpus.pools.grants, *cpus.unplaced)}
    shown = {key: "/".join(part for part in name if part) for key, name in names.items()}
    held = {one.key: (container_id, one) for container_id, one in cpus.held.items()}
    rows = [
        _holder(cpus, names[key], shown.get(grant.widened, ""), grant, held.get(key), now_ns, settings.mode)
        for key, grant in pace(cpus.pools.grants.items(), ROWS_AT_ONCE)
    ]
    zones = tuple(_memory_zones(cpus.machine, cpus))
    rows += [
        CpuHolderRow(*names[key], "unplaced", _id(held.get(key)), state="unplaced", why=why)
        for key, why in cpus.unplaced.items()
        if key not in cpus.pools.grants
    ]
    return CpusView(
        policy=cpus.rules.active,
        mode=settings.mode.value,
        driver=settings.driver.value,
        online=cpuset.text(cpus.machine.online),
        cpus=_cpu_rows(cpus.machine, cpus, shown),
        pools=tuple(_pool_rows(Ground(cpus.machine, cpus.rules), cpus.pools, shown)),
        holders=in_order(rows),
        refused=cpus.refused,
        faults=cpus.machine.faults,
        drifts=cpus.drifts,
        late=cpus.late,
        notes=tuple(_notes(cpus, cpus.machine)),
        memory={node.id: node.bytes for node in cpus.machine.memory},
        memory_zones=zones,
        memory_used=_memory_used(cpus.machine, cpus) if zones else {},
        claims=_by_claim(state, cpus.machine),
        in_force=not is_unfit(cpus),
    )


def _by_claim(state: State, machine: Machine) -> CpuClaimsView | None:
    of, sold, pools = state.cpus.by_claim, claims.are_sold(state), state.cpus.pools.pools
    if not sold and not of.claims:
        return None
    ground = Ground(machine, state.cpus.rules)
    published = claims.values(state, ground) if sold and of.recalled else {}
    sizes = claims.devices(ground) if sold else {}
    rows = [
        CpuClaimRow(
            one.title,
            str(one.uid),
            one.amounts,
            cpuset.text(pools[name].cpus) if (name := pool_of(one.title)) in pools else "",
            tuple(one.pods.values()),
            one.since_wall_ns,
            one.options,
        )
        for one in of.claims.values()
    ]
    return CpuClaimsView(
        tuple(
            CpuDeviceRow(name, cpus.bit_count(), published.get(name, 0), claims.promised(state, name))
            for name, cpus in sizes.items()
        ),
        tuple(rows),
        (of.driver is not None and of.driver.registered) if sold else None,
        of.driver.why if of.driver is not None else "",
        of.fault,
    )


def _pool_rows(ground: Ground, at: Pools, names: Mapping[str, str]) -> Iterator[CpuPoolRow]:
    policy = policy_of(ground.rules.active)
    tree, room_m = policy.tree(ground), policy.room_m
    for name, pool in at.pools.items():
        members = tuple(names[key] for key in pool.members)
        free_m = max(room_m(ground, at, name) - requested_m(at, name), 0) if room_m is not None else None
        within = tree.around(name) if tree is not None else ""
        yield CpuPoolRow(name, cpuset.text(pool.cpus), members, cpuset.text(pool.lent), within, free_m)


def _memory_zones(machine: Machine, cpus: Cpus) -> Iterator[MemoryZoneRow]:
    grants = cpus.pools.grants
    known = [cpus.memory_used[one] for one in cpus.held if one in cpus.memory_used]
    for zone, bytes_ in sorted(promised(grants).items(), key=lambda one: (one[0].bit_count(), one[0])):
        has = sum(node.bytes for node in machine.memory if zone >> node.id & 1)
        inside = sum(bool(grant.zone) and not grant.zone & ~zone for grant in grants.values())
        uses = [sum(size for node, size in used.items() if zone >> node & 1) for used in known]
        used = sum(uses) if known else None
        users, unread = sum(map(bool, uses)), len(cpus.held) - len(known)
        yield MemoryZoneRow(cpuset.text(zone), has, bytes_, inside, used, users, unread)


def _memory_used(machine: Machine, cpus: Cpus) -> Mapping[int, int]:
    known = [cpus.memory_used[one] for one in cpus.held if one in cpus.memory_used]
    return {node.id: sum(used.get(node.id, 0) for used in known) for node in machine.memory} if known else {}


def _notes(cpus: Cpus, machine: Machine) -> Iterator[str]:
    """What of the machine does not fit the settings in force."""
    ground = Ground(cpus.newer or machine, cpus.rules)
    if cpus.newer is not None and isinstance(why := begun(ground.machine, ground.rules), Denied):
        online = f"{cpuset.text(machine.online)} before, {cpuset.text(cpus.newer.online)} now"
        yield (
            f"CPUs that are online have changed ({online}), and the policy {cpus.rules.active} does not fit these: "
            f"{why.why}. It goes on by those before"
        )
    elif away := reserved_offline(ground):
        left = cpuset.text(cpus.rules.reserved.cpus & ground.machine.online)
        yield f"{RESERVED_CPUS}: CPUs {cpuset.text(away)} are offline; until they are back only {left} is reserved"


def name_of(state: State, key: str) -> tuple[str, str, str]:
    """Namespace, pod and container of a grant's key."""
    uid, _, container = key.rpartition("/")
    sandbox_id = state.pods.sandbox_of.get(PodUid(uid))
    if sandbox_id is not None:
        sandbox = state.pods.sandboxes[sandbox_id].sandbox
        if sandbox.name:
            return sandbox.namespace, sandbox.name, container
    known = state.pods.specs.get(PodUid(uid))
    return (known.spec.namespace, known.spec.name, container) if known is not None else ("", uid, container)


def in_words(cpus: Cpus, key: str) -> str:
    """What the container of this key has, in a few words; empty where it has no grant and none was refused."""
    grant = cpus.pools.grants.get(key)
    if grant is None:
        return f"no place: {cpus.unplaced[key]}" if key in cpus.unplaced else ""
    kind = _kind(cpus.pools, grant)
    return kind if kind == "unpinned" else f"{kind} {cpuset.text(set_of(cpus.pools, grant))}"


def _id(held: tuple[ContainerId, Held] | None) -> str:
    return "" if held is None else str(held[0])


def _holder(
    cpus: Cpus,
    name: tuple[str, str, str],
    widened_for: str,
    grant: Grant,
    held: tuple[ContainerId, Held] | None,
    now_ns: int,
    mode: Mode,
) -> CpuHolderRow:
    wanted = set_of(cpus.pools, grant)
    has = held[1].has if held is not None else 0
    error = cpus.misses.get(held[0], "") if held is not None else ""
    if not wanted:
        stands = "unpinned"
    elif mode is not Mode.ENFORCE:
        stands = "observed"
    elif held is None:
        stands = "waiting"
    else:
        stands = "held" if has == wanted else "failed" if error else "pending"
    return CpuHolderRow(
        *name,
        _kind(cpus.pools, grant),
        _id(held),
        cpuset.text(wanted),
        cpuset.text(grant.own),
        grant.pool if grant.shares_pool else "",
        grant.request_m,
        grant.source,
        cpuset.text(has),
        max(now_ns - held[1].since_ns, 0) // 1_000_000 if held is not None and has and held[1].since_ns else None,
        stands,
        cpu_sentence(grant.reason),
        error,
        cpuset.text(held[1].mems) if held is not None else "",
        cpus.memory_misses.get(held[0], "") if held is not None else "",
        widened_for,
    )


def _kind(at: Pools, grant: Grant) -> str:
    if is_claim(grant.pool):
        return "exclusive+shared" if at.pools[grant.pool].lent else "exclusive"
    if grant.own:
        return "exclusive+shared" if grant.shares_pool else "exclusive"
    if not grant.shares_pool or not grant.pinned:
        return "exclusive" if grant.extra else "unpinned"
    return "reserved" if grant.pool == RESERVED else "shared"


def _cpu_rows(machine: Machine, cpus: Cpus, names: Mapping[str, str]) -> tuple[CpuRow, ...]:
    core, l2, l3 = (_places(machine, level) for level in (Level.CORE, Level.L2, Level.L3))
    node, die, package = (_places(machine, level) for level in (Level.NUMA, Level.DIE, Level.PACKAGE))
    owners = {cpu: names[key] for key, grant in cpus.pools.grants.items() for cpu in cpuset.ids(grant.own)}
    pools = dict[int, tuple[str, ...]]()
    for name, pool in cpus.pools.pools.items():
        owners |= dict.fromkeys(cpuset.ids(pool.cpus), f"claim {title_of(name)}") if is_claim(name) else {}
        for cpu in cpuset.ids(pool.cpus):
            pools[cpu] = (*pools.get(cpu, ()), name)
    return tuple(
        CpuRow(
            cpu,
            core[cpu],
            l2[cpu],
            l3[cpu],
            node[cpu],
            die[cpu],
            package[cpu],
            owners.get(cpu, ""),
            pools.get(cpu, ()),
            bool(machine.isolated >> cpu & 1),
            bool(machine.efficient >> cpu & 1),
        )
        for cpu in cpuset.ids(machine.online)
    )


def _places(machine: Machine, level: Level) -> dict[int, int]:
    return {cpu: group.id for group in machine.groups(level) for cpu in cpuset.ids(group.cpus)}


# ---- sentences


# ---- the drawing
