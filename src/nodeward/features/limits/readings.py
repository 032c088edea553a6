"""What the kernel's files say, and the state that follows for each cgroup (docs/limits.md)."""

from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.decision import Decision, Goal
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason
from nodeward.core.tables import beside, put, without
from nodeward.core.workload import Phase
from nodeward.features.limits.goals import limit_goals, subtree_goals
from nodeward.features.limits.rows import MAX_REPAIRS, Standing
from nodeward.features.limits.state import Limits, Read, Wanted
from nodeward.features.root import State

REPAIR_WINDOW_NS = 300_000_000_000
FRESH_NS_PER_MS = 2_500_000
"""A reading is fresh for two and a half periods of the sampler."""


def standing(state: State, path: str, wanted: Wanted, now_ns: int) -> Standing:
    """The state to show for one cgroup."""
    if not wanted.known:
        return Standing.UNKNOWN
    if state.settings.limits.mode is not Mode.ENFORCE:
        return Standing.UNMANAGED
    read = state.limits.readings.get(path)
    if not wanted.values:
        stale = differs(state, wanted, read.reading) if read is not None else ()
        came_back = read is not None and _judged(state.limits, path, wanted, stale, read.as_of)
        return Standing.DRIFT if came_back else Standing.UNMANAGED
    if not any(state.limits.capacity.get(resource, 0) > 0 for resource in wanted.values):
        return Standing.UNSUPPORTED
    if read is None:
        return Standing.PENDING if path else Standing.RELAYED
    if now_ns - read.at_ns > state.settings.period_ms * FRESH_NS_PER_MS:
        return Standing.STALE
    if not read.reading.controller:
        return Standing.CONTROLLER_OFF
    wrong = differs(state, wanted, read.reading)
    if not wrong:
        return Standing.OUTSIDE if read.reading.outside else Standing.ENFORCED
    return Standing.DRIFT if _judged(state.limits, path, wanted, wrong, read.as_of) else Standing.PENDING


def differs(state: State, wanted: Wanted, reading: ev.MiscReading) -> tuple[str, ...]:
    """The resources whose limit in the kernel differs from the wanted one, or is ours and no longer wanted."""
    capacity, limit = state.limits.capacity, reading.limit
    wrong = [
        resource
        for resource, value in wanted.values.items()
        if limit.get(resource, 2**64 - 1) != value and capacity.get(resource, 0) > 0
    ]
    for name in wanted.given:
        if name in limit and name not in wanted.values and capacity.get(name, 0) > 0:
            wrong.append(name)
    return tuple(wrong)


def _judged(limits: Limits, path: str, wanted: Wanted, resources: tuple[str, ...], as_of: int) -> tuple[str, ...]:
    """Those of these resources whose difference means something: a pass that began before the goal was reached shows
    the world before it. A goal that was missed has been tried."""
    if wanted.reached and as_of >= wanted.reached:
        return resources
    missed = limits.misses.get(path, {})
    return tuple(name for name in resources if name in missed)


def sampled(state: State, event: ev.Sampled) -> tuple[Limits, Decision]:
    """Keeps the readings, and repairs what differs: at most three times in five minutes for each cgroup."""
    limits = state.limits
    kept = beside(without(limits.readings, event.gone), _held_again(limits, event))
    repairs = limits.repairs_ns
    goals: list[Goal] = []
    notes: list[Reason] = []
    for path, reading in to_look_at(limits, event):
        wanted = limits.wanted.get(path)
        if wanted is None:
            continue
        before = kept.get(path)
        if before is None:
            if _started_untold(state, wanted):
                goals += limit_goals(state, path, wanted)  # given when it is known to be there
        elif before.as_of > event.as_of:
            continue  # it has been read again meanwhile
        wrong = differs(state, wanted, reading)
        held = wanted if not wrong and not reading.outside and _supported(limits, wanted) else None
        kept[path] = Read(reading, event.at_ns, event.as_of, held)
        if not wrong or not _is_ours(state):
            continue
        wrong = _judged(limits, path, wanted, wrong, event.as_of)
        if not wrong:
            continue
        recent = tuple(at for at in repairs.get(path, ()) if at > event.at_ns - REPAIR_WINDOW_NS)
        if len(recent) >= MAX_REPAIRS:
            continue
        repairs = put(repairs, path, (*recent, event.at_ns))
        goals += _repair(state, path, wanted, reading)
        notes.append(Reason("drift", (path, *wrong, len(recent) + 1)))
    limits = replace(limits, readings=kept, repairs_ns=repairs)
    return limits, Decision(goals=tuple(goals), notes=tuple(notes))


def to_look_at(limits: Limits, event: ev.Sampled) -> list[tuple[str, ev.MiscReading]]:
    """What was read and may mean something: the readings told, and those known ones that were found to be the same, but
    for cgroups that hold just what they should, as they did. Those are most of a node's, once a second. What an earlier
    event of the same pass told has been looked at."""
    found = list(event.readings.items())
    if event.rest_same:
        others, wanted = _not_the_rest(event), limits.wanted
        found += [
            (path, read.reading)
            for path, read in limits.readings.items()
            if (read.held is None or read.held is not wanted.get(path))
            and read.as_of < event.as_of
            and path not in others
        ]
    return found


def _held_again(limits: Limits, event: ev.Sampled) -> dict[str, Read]:
    """The others of what was read."""
    if not event.rest_same:
        return {}
    others, wanted, at_ns, as_of = _not_the_rest(event), limits.wanted, event.at_ns, event.as_of
    return {
        path: Read(read.reading, at_ns, as_of, read.held)
        for path, read in limits.readings.items()
        if read.held is not None and read.held is wanted.get(path) and read.as_of < as_of and path not in others
    }


def _not_the_rest(event: ev.Sampled) -> dict[str, None]:
    return dict.fromkeys((*event.readings, *event.unread, *event.gone))


def _started_untold(state: State, wanted: Wanted) -> bool:
    """Whether nobody has told of the start of a container whose cgroup is there."""
    known = state.pods.containers.get(wanted.container_id) if wanted.container_id is not None else None
    return known is not None and known.container.phase is Phase.CREATED


def _supported(limits: Limits, wanted: Wanted) -> bool:
    return all(limits.capacity.get(resource, 0) > 0 for resource in wanted.values)


def _is_ours(state: State) -> bool:
    """Whether what differs is to be repaired, and can be."""
    return state.settings.limits.mode is Mode.ENFORCE and state.limits.controller


def looked_at_anew(limits: Limits) -> dict[str, Read]:
    """The readings, to be judged again: for a capacity that has changed."""
    return {path: Read(read.reading, read.at_ns, read.as_of) for path, read in limits.readings.items()}


def _repair(state: State, path: str, wanted: Wanted, reading: ev.MiscReading) -> list[Goal]:
    if reading.controller:
        return limit_goals(state, path, wanted)
    sandbox_id = state.pods.sandbox_of.get(wanted.pod_uid)
    parent = state.pods.sandboxes[sandbox_id].sandbox.cgroup_parent if sandbox_id is not None else ""
    return subtree_goals(state, (parent,)) + limit_goals(state, path, wanted)


def outcome(limits: Limits, event: ev.Reached | ev.Missed) -> Limits:
    """Remembers why goals were missed, until they are reached; and when they were."""
    misses = dict(limits.misses)
    if isinstance(event, ev.Missed):
        for target, why in event.why:
            misses[target.where] = {**misses.get(target.where, {}), target.resource: why}
        return replace(limits, misses=misses)
    reached: dict[str, Wanted] = {}
    for target in event.targets:
        if target.where in misses and (left := without(misses.pop(target.where), (target.resource,))):
            misses[target.where] = left
        wanted = reached.get(target.where) or limits.wanted.get(target.where)
        if target.kind == "misc.max" and wanted is not None:
            reached[target.where] = wanted.when_reached(target.resource, event.seq)
    if misses != limits.misses:
        limits = replace(limits, misses=misses)
    return replace(limits, wanted=beside(limits.wanted, reached)) if reached else limits
