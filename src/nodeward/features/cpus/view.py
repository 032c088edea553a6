"""The machine's CPUs for people: what they share, who sits where, and why there, in rows and in sentences.

The rows are whole (JSON has them); `drawing` makes lines for a terminal of them. Nothing is decided here.
"""

from collections.abc import Iterator, Mapping

from nodeward.core import cpuset
from nodeward.core.topology import Level, Machine
from nodeward.core.workload import ContainerId, PodUid
from nodeward.features.cpus.amounts import RESERVED as RESERVED_CPUS
from nodeward.features.cpus.amounts import reserved_offline
from nodeward.features.cpus.place import begun
from nodeward.features.cpus.pools import set_of
from nodeward.features.cpus.rows import CpuHolderRow, CpuPoolRow, CpuRow, CpusView, in_order
from nodeward.features.cpus.state import Cpus, Held
from nodeward.features.cpus.step import is_unfit
from nodeward.features.cpus.values import Denied, Grant, Ground
from nodeward.features.cpus.words import cpu_sentence
from nodeward.features.root import State
from nodeward.features.settings import Mode
from nodeward.people.rows import Pace, at_once

RESERVED = "reserved"
"""The pool of this name is the one kept for the system."""
ROWS_AT_ONCE = 32
_MOST_NAMES = 5
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghjklmnopqstuvwxyz"
"""Names of owners in the drawing; i and r have a meaning of their own."""
_SHARED, _RESERVED, _ISOLATED, _IDLE = ".", "r", "i", "-"


def cpus_view(state: State, now_ns: int, pace: Pace = at_once) -> CpusView | None:
    """The CPUs now; None while the machine is not known."""
    cpus, settings = state.cpus, state.settings.cpus
    if cpus.machine is None:
        return None
    names = {key: name_of(state, key) for key in (*cpus.pools.grants, *cpus.unplaced)}
    shown = {key: "/".join(part for part in name if part) for key, name in names.items()}
    held = {one.key: (container_id, one) for container_id, one in cpus.held.items()}
    rows = [
        _holder(cpus, names[key], grant, held.get(key), now_ns, settings.mode)
        for key, grant in pace(cpus.pools.grants.items(), ROWS_AT_ONCE)
    ]
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
        pools=tuple(
            CpuPoolRow(name, cpuset.text(pool.cpus), tuple(shown[key] for key in pool.members), cpuset.text(pool.lent))
            for name, pool in cpus.pools.pools.items()
        ),
        holders=in_order(rows),
        refused=cpus.refused,
        faults=cpus.machine.faults,
        drifts=cpus.drifts,
        late=cpus.late,
        notes=tuple(_notes(cpus, cpus.machine)),
        in_force=not is_unfit(cpus),
    )


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
    kind = _kind(grant)
    return kind if kind == "unpinned" else f"{kind} {cpuset.text(set_of(cpus.pools, grant))}"


def _id(held: tuple[ContainerId, Held] | None) -> str:
    return "" if held is None else str(held[0])


def _holder(
    cpus: Cpus,
    name: tuple[str, str, str],
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
        _kind(grant),
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
    )


def _kind(grant: Grant) -> str:
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


def head(view: CpusView) -> str:
    """The policy and how much is whose, in one line."""
    own = sum(bool(row.owner) for row in view.cpus)
    owners = sum(bool(row.own) for row in view.holders)
    sharers = sum(bool(row.pool) for row in view.holders)
    return (
        f"cpus {view.mode} by {view.driver} | policy {view.policy} | {own} of {len(view.cpus)} CPUs exclusive to "
        f"{owners} container(s), {sharers} share"
    )


def troubles(view: CpusView) -> Iterator[str]:
    """What somebody should know of, a sentence each."""
    for why in view.refused:
        which = "newer settings of the policy" if view.in_force else "the settings of the policy"
        yield f"{which} are not in force: {why}"
    yield from view.notes
    for row in view.holders:
        if row.error:
            yield f"{row.name}: its CPUs could not be set: {row.error}"
        if row.memory_error:
            yield f"{row.name}: its memory nodes could not be set: {row.memory_error}"
        if row.kind == "unplaced":
            yield f"{row.name}: has no CPUs by the policy and stays where it is: {row.why}"
    if view.drifts:
        yield f"somebody else changed CPUs of containers {view.drifts} time(s); each was put right"
    if view.late:
        yield f"{view.late} program(s) started, or were refused, while others were still on their CPUs"


def cpu_sentences(view: CpusView, row: CpuHolderRow) -> Iterator[str]:
    """One container's CPUs, and why it has those."""
    asks = f"{row.request_m / 1000:g} CPU(s) requested{f' ({row.source})' if row.source else ''}"
    match row.kind:
        case "unplaced":
            yield f"cpus {row.name}: no CPUs by the policy; it stays where it is."
        case "unpinned":
            yield f"cpus {row.name}: not pinned; {asks}."
        case "exclusive+shared":
            yield f"cpus {row.name}: {row.own} exclusive, {row.cpus} with pool {row.pool}; {asks}."
        case _:
            yield f"cpus {row.name}: {row.cpus}, {row.kind}; {asks}."
    if row.why:
        yield f"  {row.why}"
    if row.memory:
        yield f"  It may use the memory of NUMA node(s) {row.memory}: they follow its CPUs (cpus.memory, pinMemory)."
    if row.memory_error:
        yield f"  These could not be set: {row.memory_error}."
    if (pool := view.of(row)) is not None:
        lent = f"; idle ones lent to it: {pool.lent}" if pool.lent else ""
        yield f"  Shares pool {pool.name} (CPUs {pool.cpus or 'none'}{lent}) with {_others(row.name, pool.members)}."
    since = "" if row.for_ms is None else f", for {row.for_ms / 1000:.0f} s"
    match row.state:
        case "observed":
            yield "  cpus.mode is observe: this is what would be, and nothing is written."
        case "held":
            yield f"  The kernel lets it use {row.has}{since}."
        case "waiting":
            yield "  No container of this name is there now; the CPUs are kept for it."
        case "pending" | "failed":
            may = row.has or "any CPU, as far as is known: its set was not read back"
            yield f"  The kernel lets it use {may}{since}; it is being put right."
    if row.error:
        yield f"  The last write failed: {row.error}."


def _others(name: str, members: tuple[str, ...]) -> str:
    others = sorted(member for member in members if member != name)
    if not others:
        return "nobody"
    more = f" and {len(others) - _MOST_NAMES} more" if len(others) > _MOST_NAMES else ""
    return f"{', '.join(others[:_MOST_NAMES])}{more}"


# ---- the drawing


def drawing(view: CpusView, width: int) -> Iterator[str]:
    """The machine in lines of at most `width` where a core fits: a line for each cache of level 3, in it each core in
    brackets, in that a sign for each thread. Below it what the signs mean."""
    yield head(view)
    signs = _signs(view)
    package = node = None
    for rows in _runs(view.cpus):
        first = rows[0]
        if first.package != package:
            package, node = first.package, None
            yield f"package {package}"
        if first.node != node:
            node = first.node
            yield f"  node {node}"
        yield from _cache_lines(rows, signs, width)
    yield from _legend(view, signs)


def _runs(cpus: tuple[CpuRow, ...]) -> Iterator[list[CpuRow]]:
    """The CPUs of each cache, by package, node, cache and core."""
    runs = dict[tuple[int, int, int], list[CpuRow]]()
    for row in sorted(cpus, key=lambda row: (row.package, row.node, row.l3, row.core, row.cpu)):
        runs.setdefault((row.package, row.node, row.l3), []).append(row)
    yield from runs.values()


def _cache_lines(rows: list[CpuRow], signs: Mapping[str, str], width: int) -> Iterator[str]:
    cores = dict[int, list[str]]()
    for row in rows:
        cores.setdefault(row.core, []).append(_sign(row, signs))
    between = " " if any(len(sign) > 1 for core in cores.values() for sign in core) else ""
    start = f"    L3 {rows[0].l3}  "
    line = start
    for core in cores.values():
        cell = f"[{between.join(core)}]"
        if line.strip() and len(line) > len(start) and len(line) + len(cell) > width:
            yield line
            line = " " * len(start)
        line += cell
    yield f"{line}  CPUs {cpuset.text(cpuset.of(row.cpu for row in rows))}"


def _sign(row: CpuRow, signs: Mapping[str, str]) -> str:
    if row.owner:
        return signs[row.owner]
    if row.isolated:
        return _ISOLATED
    if row.pools:
        return _RESERVED if row.pools == (RESERVED,) else _SHARED
    return _IDLE


def _signs(view: CpusView) -> dict[str, str]:
    """A sign for each owner, by the lowest of its CPUs."""
    signs = dict[str, str]()
    for row in sorted(view.cpus, key=lambda row: row.cpu):
        if row.owner and row.owner not in signs:
            at = len(signs)
            letter = _LETTERS[at % len(_LETTERS)]
            signs[row.owner] = letter if at < len(_LETTERS) else f"{letter}{at // len(_LETTERS)}"
    return signs


def _legend(view: CpusView, signs: Mapping[str, str]) -> Iterator[str]:
    used = dict.fromkeys(_sign(row, signs) for row in view.cpus)
    meanings = {_SHARED: "shared", _RESERVED: "reserved", _ISOLATED: "isolated by the kernel", _IDLE: "of nobody"}
    if plain := [f"{sign} {meaning}" for sign, meaning in meanings.items() if sign in used]:
        yield ", ".join(plain)
    for row in sorted((row for row in view.holders if row.own), key=lambda row: cpuset.ids(cpuset.parse(row.own))):
        beside = f" and pool {row.pool}" if row.pool else ""
        state = "" if row.state == "held" else f" ({row.state})"
        memory = f", memory of node(s) {row.memory}" if row.memory else ""
        yield f"{signs.get(row.name, '?')} {row.name}: {row.own}{beside}{memory}{state}"
    for pool in view.pools:
        lent = f", lent {pool.lent}" if pool.lent else ""
        yield f"pool {pool.name}: {pool.cpus or 'no CPUs'}{lent}, {len(pool.members)} container(s)"
    if economy := cpuset.text(cpuset.of(row.cpu for row in view.cpus if row.efficient)):
        yield f"made for economy: {economy}"
    yield from view.faults
    yield from troubles(view)
