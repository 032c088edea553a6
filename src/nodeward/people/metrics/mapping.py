"""Maps the picture of a node to metric families.

Series are made anew from each picture, so they vanish with their container. What bounds them is the node: a handful for
each cgroup that is known, and MOST_CGROUPS at most. Labels come from what others wrote, so they are cut and cleaned.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from nodeward import __version__
from nodeward.core.conditions import CODES
from nodeward.core.modes import Mode
from nodeward.core.shown import Family, Labels, Values
from nodeward.features.all import FEATURES
from nodeward.features.limits.rows import CgroupRow, ResourceRow
from nodeward.host.pace import paced
from nodeward.neighbours.cri.rows import DoorRow
from nodeward.people.metrics import families as f
from nodeward.people.relay_view import RelayView
from nodeward.people.rows import NodeView

MOST_CGROUPS = 5000
MOST_CHARACTERS = 512
UNITS = {"sgx_epc": "bytes", "sev": "asids", "sev_es": "asids", "tdx": "keys"}
COUNTERS: dict[str, tuple[Family, float]] = {
    "goals": (f.GOALS, 1),
    "goals_unreached": (f.UNREACHED, 1),
    "goals_quarantined": (f.QUARANTINED, 1),
    "sample_age_ms": (f.SAMPLE_AGE, 1e3),
    "watch_age_ms": (f.WATCH_AGE, 1e3),
    "loop_lag_max_us": (f.LAG_MAX, 1e6),
    "loop_lag_p99_us": (f.LAG_P99, 1e6),
    "loop_stalls": (f.STALLS, 1),
    "component_restarts": (f.RESTARTS, 1),
    "lanes_stuck": (f.STUCK, 1),
    "not_restorable": (f.NOT_RESTORABLE, 1),
    "state_unread": (f.STATE_UNREAD, 1),
    "record_dropped": (f.RECORD_DROPPED, 1),
    "files_unwritten": (f.FILES_UNWRITTEN, 1),
    "feature_faults": (f.FEATURE_FAULTS, 1),
    "notices_left_out": (f.KUBE_EVENTS_LEFT_OUT, 1),
    "relay_unread": (f.RELAY_UNREAD, 1),
}
"""The daemon's own counters by their names in the view: the family, and what to divide by."""
DOORS: dict[Family, Callable[[DoorRow], int]] = {
    f.RELAY_CLIENTS: lambda door: door.clients,
    f.RELAY_CONNECTIONS: lambda door: door.connections,
    f.RELAY_UNSEEN: lambda door: door.unseen,
    f.RELAY_UNDECIDED: lambda door: door.undecided,
    f.RELAY_FAULTS: lambda door: door.faults,
}
"""What is counted of each of the relay's sockets."""

Labelled = list[tuple[Labels, ResourceRow]]


def metrics(view: NodeView) -> Iterator[Metric]:
    """All families that have something to show, one after the other."""
    rows = list(islice(view.rows, MOST_CGROUPS))
    yield from _daemon(view)
    if view.relay is not None or view.relay_missing:
        yield _metric(f.RELAY_UP, [({}, view.relay is not None)])
    if view.relay is not None:
        yield from _relay(view.relay)
    yield _metric(f.LEFT_OUT, [({}, len(view.rows) - len(rows))])
    yield from _node(view)
    for feature in FEATURES:
        if feature.series is not None and (shown := getattr(view, feature.shown)) is not None:
            yield from (_metric(*series) for series in feature.series(shown, _clean, paced))
    names = [_names(row) for row in paced(rows, 64)]
    yield _metric(f.STATE, [({**known, "state": row.state}, 1) for known, row in _once(names, rows)])
    yield _metric(f.CONTAINER, _containers(names, rows))
    yield from _cgroups(view, names, rows)
    yield from _like_cadvisor(names, rows)


def _metric(family: Family, values: Values) -> Metric:
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    metric = Metric(name, family.help, family.kind)
    add = metric.samples.append
    for labels, value in paced(values, 256):
        if isinstance(value, (int, float)):
            add(Sample(family.name, labels, value + 0))
            continue
        bounds = [(f"{at_most_ns / 1e9:g}", count) for at_most_ns, count in value.at_most]
        for bound, count in (*bounds, ("+Inf", value.count)):
            add(Sample(f"{family.name}_bucket", {**labels, "le": bound}, count))
        add(Sample(f"{family.name}_count", labels, value.count))
        add(Sample(f"{family.name}_sum", labels, value.sum_ns / 1e9))
    return metric


def _daemon(view: NodeView) -> Iterator[Metric]:
    yield _metric(f.BUILD, [({"version": __version__}, 1)])
    yield _metric(f.MODE, [({"mode": mode.value}, view.mode == mode.value) for mode in Mode])
    if view.verdict is not None:
        found = dict.fromkeys(one.code for one in view.verdict.conditions)
        labelled = [({"code": code, "severity": how.value}, code in found) for code, (how, _) in CODES.items()]
        yield _metric(f.CONDITION, labelled)
    yield _metric(f.READY, [({}, view.ready)])
    yield _metric(f.COMPONENT, [({"component": part.name}, part.ready) for part in view.components])
    since = [({"component": part.name}, part.since_wall_ns / 1e9) for part in view.components if part.since_wall_ns]
    yield _metric(f.COMPONENT_SINCE, since)
    yield _metric(f.LINES, [({"state": _clean(view.lines.state)}, 1)])
    yield _metric(f.SETTINGS_FAULTS, [({}, len(view.settings.faults))])
    yield _metric(f.SETTINGS_RESTART, [({}, len(view.settings.need_restart))])
    yield _metric(f.EVENTS, [({}, view.seq)])
    yield _metric(f.REPAIRS, [({}, sum(row.repairs for row in view.rows))])
    was_sampled = any(part.name == "cgroups" and part.since_wall_ns for part in view.components)
    for name, (family, divisor) in COUNTERS.items():
        count = view.health.get(name)
        if count is not None and (family is not f.SAMPLE_AGE or was_sampled):
            yield _metric(family, [({}, count / divisor)])
    yield _metric(f.DECIDE, [({"event": row.event}, row) for row in view.decided])
    ages = [({"lane": part}, age / 1e3) for part, age in _between(view, "lane_", "_age_ms")]
    yield _metric(f.LANE_AGE, ages)
    for family, label, named in (
        (f.LANE_WAITING, "lane", ("lane_", "_waiting")),
        (f.LANE_HUNG, "lane", ("lane_", "_hung")),
        (f.ASKS, "outcome", ("asks_", "")),
        (f.KUBE_EVENTS, "outcome", ("kube_events_", "")),
        (f.GATE_RELAYED, "outcome", ("gate_calls_", "")),
    ):
        yield _metric(family, [({label: part}, count) for part, count in _between(view, *named)])


def _relay(relay: RelayView) -> Iterator[Metric]:
    """The relay, as it last answered."""
    yield _metric(f.RELAY, [({"version": _clean(relay.version)}, 1)])
    results = [(row.method, result, count) for row in relay.calls for result, count in row.results.items()]
    yield _metric(f.RELAY_CALLS, [({"method": _clean(name), "result": _clean(how)}, n) for name, how, n in results])
    held = [(row.method, fate, n) for row in relay.calls for fate, n in row.fates.items() if fate != "passed"]
    yield _metric(f.RELAY_DECISIONS, [({"method": _clean(name), "outcome": _clean(how)}, n) for name, how, n in held])
    yield _metric(f.RELAY_ADDED, [({"how": _clean(row.how)}, row) for row in relay.added])
    for family, count in DOORS.items():
        yield _metric(family, [({"listen": _clean(door.listen)}, count(door)) for door in relay.doors])
    asked = [door for door in relay.doors if door.present is not None]
    places = [{"listen": _clean(door.listen), "runtime": _clean(door.runtime)} for door in asked]
    yield _metric(f.RELAY_RUNTIME, [(at, bool(door.present)) for at, door in zip(places, asked, strict=True)])
    yield _metric(f.RELAY_QUEUE, [({"queue": _clean(name)}, count) for name, count in relay.queues.items()])
    if relay.dump is not None:
        yield _metric(f.RELAY_DUMP_TOLD, [({}, relay.dump.told)])
        yield _metric(f.RELAY_DUMP_LOST, [({}, relay.dump.lost)])
        yield _metric(f.RELAY_DUMP_CUT, [({}, relay.dump.cut)])
    if relay.daemon.wants:
        yield _metric(f.RELAY_DECIDED, [({}, bool(relay.daemon.process))])


def _between(view: NodeView, start: str, end: str) -> Iterator[tuple[str, int]]:
    for name, count in view.health.items():
        if name.startswith(start) and name.endswith(end):
            yield _clean(name.removeprefix(start).removesuffix(end)), count


def _node(view: NodeView) -> Iterator[Metric]:
    yield _metric(f.CONTROLLER, [({}, view.controller)])
    if view.controller:
        yield _metric(f.TREE, [({"version": str(view.tree.version), "root": _clean(view.tree.root)}, 1)])
    yield _metric(f.CAPACITY, [({"resource": _clean(name)}, value) for name, value in view.capacity.items()])
    units = [(name, UNITS[name]) for name in view.capacity if name in UNITS]
    yield _metric(f.RESOURCE, [({"resource": name, "unit": unit}, 1) for name, unit in units])
    yield _metric(f.ORPHANED, [({"resource": _clean(name)}, value) for name, value in view.elsewhere.items()])


def _cgroups(view: NodeView, names: list[Labels], rows: list[CgroupRow]) -> Iterator[Metric]:
    shown: Labelled = [
        ({**known, "resource": part.resource}, part) for known, row in _once(names, rows) for part in row.resources
    ]
    node = {"level": "node", "namespace": "", "pod": "", "container": ""}
    roots = [({**node, "resource": _clean(name)}, value) for name, value in view.usage.items()]
    usage = [*roots, *_of(shown, lambda part: part.usage)]
    yield _metric(f.USAGE, [(labels, value) for labels, value in usage if value >= 0])
    yield _metric(f.UNDERFLOW, [(labels, 1) for labels, value in usage if value < 0])
    yield _metric(f.LIMIT, _of(shown, lambda part: part.limit))
    yield _metric(f.LIMITED, _of(shown, _is_limited))
    yield _metric(f.PEAK, _of(shown, lambda part: part.peak))
    yield _metric(f.DECLARED, _of(shown, lambda part: part.wanted))
    local = [({**known, "scope": "local"}, part) for known, part in shown if part.refusals_here is not None]
    subtree = [({**known, "scope": "subtree"}, part) for known, part in shown if part.refusals is not None]
    refused = [*_of(local, lambda part: part.refusals_here), *_of(subtree, lambda part: part.refusals)]
    yield _metric(f.REFUSALS, refused)


def _of(shown: Labelled, value: Callable[[ResourceRow], int | None]) -> list[tuple[Labels, int]]:
    return [(labels, amount) for labels, part in paced(shown, 512) if (amount := value(part)) is not None]


def _is_limited(part: ResourceRow) -> int | None:
    """None where nothing was read: then there may be a limit or not."""
    return None if part.limit is None and part.usage is None else int(part.limit is not None)


def _like_cadvisor(names: list[Labels], rows: list[CgroupRow]) -> Iterator[Metric]:
    places = [_place(known, row) for known, row in paced(zip(names, rows, strict=True), 64)]
    shown: Labelled = [
        ({**where, "resource": part.resource}, part)
        for where, row in paced(_once(places, rows), 64)
        for part in row.resources
    ]
    usage = _of(shown, lambda part: part.usage)
    yield _metric(f.CADVISOR_USAGE, [(labels, value) for labels, value in usage if value >= 0])
    yield _metric(f.CADVISOR_EVENTS, _of(shown, lambda part: part.refusals))


def _place(known: Labels, row: CgroupRow) -> Labels:
    where = {"id": _clean(row.cgroup), "image": _clean(row.image), "name": _clean(row.id)}
    return where | {name: known[name] for name in ("namespace", "pod", "container")}


def _containers(names: list[Labels], rows: list[CgroupRow]) -> list[tuple[Labels, float]]:
    held = [(known, row) for known, row in paced(zip(names, rows, strict=True), 64) if row.level == "container"]
    told = [{**known, "id": _clean(row.id), "source": _clean(row.source)} for known, row in paced(held, 64)]
    return [(labels, 1) for labels, _ in _once(told, [row for _, row in held])]


def _names(row: CgroupRow) -> Labels:
    return {
        "level": row.level,
        "namespace": _clean(row.namespace),
        "pod": _clean(row.pod),
        "container": _clean(row.container),
    }


def _once(names: list[Labels], rows: list[CgroupRow]) -> list[tuple[Labels, CgroupRow]]:
    """One cgroup for the same labels, else two series were the same: of two instances of a container, or two paths that
    are cut, it is one that was read."""
    held: dict[tuple[str, ...], tuple[Labels, CgroupRow]] = {}
    for known, row in paced(zip(names, rows, strict=True), 64):
        key = tuple(known.values())
        if key not in held or not _was_read(held[key][1]):
            held[key] = (known, row)
    return list(held.values())


def _was_read(row: CgroupRow) -> bool:
    return row.state != "stale" and any(part.usage is not None for part in row.resources)


def _clean(text: str) -> str:
    """A label's value. A newline, a quote and a backslash are escaped when it is written; other control characters and
    halves of a surrogate pair, which would cost the whole scrape, are replaced."""
    text = text[:MOST_CHARACTERS]
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
