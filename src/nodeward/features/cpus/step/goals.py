"""The goals by which cgroups get their CPUs, and what becomes of them."""

from collections.abc import Iterable
from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.cpuset import CpuSet, text
from nodeward.core.decision import NOTHING, Decision, Goal, Target
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason
from nodeward.core.tables import beside, without
from nodeward.core.workload import ContainerId, Phase
from nodeward.features.cpus import memory
from nodeward.features.cpus.place import wanted
from nodeward.features.cpus.pools import changed
from nodeward.features.cpus.state import Cpus, Held
from nodeward.features.cpus.values import Pools
from nodeward.features.root import State

KIND = "cpuset"


def goals_of(state: State, before: Pools, touched: Iterable[ContainerId] = ()) -> tuple[Goal, ...]:
    """A goal for each set that has changed since `before`, with every cgroup that is to have it, and for the containers
    that something was just told of (`touched`) where they do not have theirs. Sets that shrink come first."""
    cpus = state.cpus
    keys = dict.fromkeys(changed(before, cpus.pools)) if before is not cpus.pools else {}
    ids = [one for one, held in cpus.held.items() if held.key in keys]
    ids += [one for one in touched if one in cpus.held and cpus.held[one].key not in keys]
    places = dict[CpuSet, list[str]]()
    shrinks = dict[CpuSet, bool]()
    for one in ids:
        held, known = cpus.held[one], state.pods.containers.get(one)
        to = wanted(cpus.pools, held.key)
        if not held.path or known is None or known.container.phase is not Phase.RUNNING:
            continue
        if not to and (held.has or held.given) and cpus.machine is not None and held.key not in cpus.unplaced:
            to = cpus.machine.online  # pinned by an earlier policy, and by nobody now
        if to and to != (held.asked or held.has):
            places.setdefault(to, []).append(held.path)
            shrinks[to] = shrinks.get(to, False) or bool(held.has & ~to) or not held.has
    perform = state.settings.cpus.mode is Mode.ENFORCE
    order = sorted(places, key=lambda to: not shrinks[to])
    return tuple(
        Goal(Target(KIND, paths[0], "cpus"), text(to), Reason("cpus-changed"), perform=perform, also=tuple(paths[1:]))
        for to, paths in ((to, places[to]) for to in order)
    )


def on_outcome(state: State, event: ev.Reached | ev.Missed) -> tuple[Cpus, Decision]:
    """Goals were reached, and read back, or were missed."""
    cpus = state.cpus
    at = {held.path: one for one, held in cpus.held.items() if held.path}
    if isinstance(event, ev.Missed):
        missed, short = dict[ContainerId, str](), dict[ContainerId, str]()
        for target, why in event.why:
            if target.where in at:
                (missed if target.kind == KIND else short)[at[target.where]] = why
        misses, memory_misses = beside(cpus.misses, missed), beside(cpus.memory_misses, short)
        return replace(cpus, misses=misses, memory_misses=memory_misses), NOTHING
    mended = [at[target.where] for target in event.targets if target.kind == memory.KIND and target.where in at]
    cpus = replace(cpus, memory_misses=without(cpus.memory_misses, mended)) if cpus.memory_misses else cpus
    ids = [at[target.where] for target in event.targets if target.kind == KIND and target.where in at]
    new = dict[ContainerId, Held]()
    for one in ids:
        held = cpus.held[one]
        to = wanted(cpus.pools, held.key)
        if held.has != to or held.asked:
            new[one] = held.read_back(to, event.at_ns, event.seq)
    return replace(cpus, held=beside(cpus.held, new), misses=without(cpus.misses, ids)), NOTHING


def on_read(state: State, event: ev.CpusetsRead) -> tuple[Cpus, Decision]:
    """Somebody else has written, or taken away, a set that we had read back: it is written again."""
    cpus = state.cpus
    new = dict[ContainerId, Held]()
    for one, held in cpus.held.items():
        to, known = wanted(cpus.pools, held.key), held.has | held.may
        if not to or held.seq > event.as_of or not held.has or not (held.asked or held.has == to):
            continue
        has = 0 if held.path in event.lost else event.sets.get(held.path, held.has)
        if has == held.has or (held.asked and has and not has & ~known):
            continue  # as it was, or as a write that is under way makes it
        nodes = held.mems_asked if has else 0  # who takes the controller takes the memory nodes too
        new[one] = replace(held, has=has, mems_asked=nodes, since_ns=event.at_ns, seq=event.seq)
    if not new:
        return cpus, NOTHING
    drifts = cpus.drifts + (0 if event.hangs else len(new))
    after = replace(cpus, held=beside(cpus.held, new), drifts=drifts)
    goals = goals_of(replace(state, cpus=after), after.pools, tuple(new))
    notes = tuple(
        Reason("cpus-drift", (held.path, text(held.has)))
        if held.path not in event.lost
        else Reason("cpus-lost", (held.path, event.lost[held.path]))
        for held in list(new.values())[:10]
    )
    return after, Decision(goals=goals, notes=notes)


def targets_of(of: Iterable[Held]) -> tuple[Target, ...]:
    """Every target of these containers that there may be a goal for."""
    paths = [held.path for held in of if held.path]
    kinds = ((KIND, "cpus"), (memory.KIND, "memory"))
    return tuple(Target(kind, path, resource) for kind, resource in kinds for path in paths)


def both(one: Decision, two: Decision) -> Decision:
    """The second decision with what follows from the first."""
    return replace(two, goals=one.goals + two.goals, forget=one.forget + two.forget, notes=one.notes + two.notes)
