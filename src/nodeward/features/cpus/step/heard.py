"""Which event is heard by what, and what follows for memory nodes and for what is published by claim."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nodeward.core import events as ev
from nodeward.core.cpuset import CpuSet, parse
from nodeward.core.decision import NOTHING, Decision
from nodeward.core.feature import Hear
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason
from nodeward.core.tables import beside, without
from nodeward.core.workload import PodUid
from nodeward.features.cpus import claims, memory
from nodeward.features.cpus.memory_zones import warmed
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.state import Cpus, is_active, is_unfit
from nodeward.features.cpus.step.anew import on_recalled, on_settings, on_topology
from nodeward.features.cpus.step.asked import on_creating, on_updating, undecided
from nodeward.features.cpus.step.goals import KIND, both, goals_of, on_outcome, on_read
from nodeward.features.cpus.step.there import all_there, pruned
from nodeward.features.cpus.values import CpusRecalled, Ground
from nodeward.features.root import SettingsChanged, State


def _used(state: State, event: ev.CpusUsed) -> tuple[Cpus, Decision]:
    cpus = state.cpus
    rebalance = policy_of(cpus.rules.active).rebalance
    if rebalance is None or cpus.machine is None:
        return cpus, NOTHING
    pools = rebalance(Ground(cpus.machine, cpus.rules), cpus.pools, event.used)
    after = replace(cpus, pools=pools)
    return after, Decision(goals=goals_of(replace(state, cpus=after), cpus.pools))


def _memory_used(state: State, event: ev.MemoryUsed) -> tuple[Cpus, Decision]:
    cpus = state.cpus
    now = beside(cpus.memory_used, event.used)
    return replace(cpus, memory_used={one: used for one in cpus.held if (used := now.get(one))}), NOTHING


def _late(state: State, event: ev.StartLate) -> Reason:
    held = state.cpus.held.get(event.container_id)
    paths = [other.path for one in event.others if (other := state.cpus.held.get(one)) is not None]
    return Reason("cpus-late", (held.key if held else str(event.container_id), event.refused, *paths[:5]))


def _there_now(state: State, event: ev.Created | ev.Started | ev.Updated) -> tuple[Cpus, Decision]:
    return all_there(state, (event.container.id,))


def _listed(state: State, event: ev.Listed | ev.CgroupsFound | ev.PodsListed) -> tuple[Cpus, Decision]:
    state, ended = pruned(state)
    after, decision = all_there(state, tuple(state.pods.containers), listed=isinstance(event, ev.Listed))
    return after, both(ended, decision)


def _pod_seen(state: State, event: ev.PodSeen) -> tuple[Cpus, Decision]:
    uid = PodUid(event.pod.config_hash or event.pod.uid)
    state, ended = pruned(state) if event.pod.terminal else (state, NOTHING)
    after, decision = all_there(state, state.pods.by_pod.get(uid, ()), late=True)
    return after, both(ended, decision)


def _started_late(state: State, event: ev.StartLate) -> tuple[Cpus, Decision]:
    return replace(state.cpus, late=state.cpus.late + 1), Decision(notes=(_late(state, event),))


def _abandoned(state: State, event: ev.Abandoned) -> tuple[Cpus, Decision]:
    ask = state.asks.get(event.ask_id)
    return (state.cpus, NOTHING) if ask is None or ask.creating is None else _may_have_ended(state, event)


def _may_have_ended(state: State, _: ev.Event) -> tuple[Cpus, Decision]:
    """A container or a pod may be known no more. Containers return to claims that have CPUs again by that."""
    state, decision = pruned(state)
    cpus = state.cpus
    short = {key: None for key, grant in cpus.pools.grants.items() if claims.may_return(cpus.pools, grant)}
    if not short:
        return cpus, decision
    after, more = all_there(state, [one for one, held in cpus.held.items() if held.key in short])
    return after, both(decision, more)


def next_wake(state: State) -> int | None:
    """When the next container gets its DRAM."""
    return min(state.cpus.cold.values(), default=None)


def _tick(state: State, event: ev.Tick) -> tuple[Cpus, Decision]:
    """Containers may have ended, and those get DRAM whose time without it is over."""
    state, decision = pruned(state)
    cpus, machine = state.cpus, state.cpus.machine
    due = [key for key, at_ns in cpus.cold.items() if at_ns <= event.at_ns]
    if not due or machine is None:
        return cpus, decision
    there = [key for key in due if key in cpus.pools.grants]
    pools = warmed(Ground(machine, cpus.rules), cpus.pools, there)
    return replace(cpus, pools=pools, cold=without(cpus.cold, due)), decision


def _unless_idle(hear: Hear[State]) -> Hear[State]:
    """Nothing is decided without a machine and a policy that pins; a create is passed or refused meanwhile."""

    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        cpus = state.cpus
        if is_unfit(cpus) and isinstance(event, ev.Creating):
            return cpus, undecided(state, event)
        return (cpus, NOTHING) if _is_idle(state) else hear(state, event)

    return heard


def _is_idle(state: State) -> bool:
    return state.cpus.machine is None or state.settings.cpus.mode is Mode.OFF or not is_active(state.cpus)


def _followed(hear: Hear[State]) -> Hear[State]:
    """With what follows for memory nodes, and with what the cpusets are asked to be."""

    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        if isinstance(event, ev.Listed) and event.complete and not state.cpus.listed:
            state = replace(state, cpus=replace(state.cpus, listed=True))
        cpus, decision = hear(state, event)
        assert isinstance(cpus, Cpus)
        if cpus.recorded is not None and cpus.listed and cpus.in_force and cpus.machine is not None:
            cpus = replace(cpus, recorded=None)  # who is left of it has its CPUs again
        cpus, decision = memory.followed(state, cpus, decision)
        asked = dict[str, CpuSet]()
        for goal in decision.goals:
            if goal.perform and goal.target.kind == KIND:
                asked.update(dict.fromkeys((goal.target.where, *goal.also), parse(str(goal.value))))
        if not asked:
            return cpus, decision
        new = {one: held.told(to) for one, held in cpus.held.items() if held.path and (to := asked.get(held.path, 0))}
        return replace(cpus, held=beside(cpus.held, new)), decision

    return heard


def _preparing(state: State, event: ev.Preparing) -> tuple[Cpus, Decision]:
    if event.driver != state.settings.cpus.dra.driver or not claims.are_sold(state):
        return state.cpus, NOTHING
    cpus, final = claims.preparing(state, event)
    return cpus, Decision(final, goals=goals_of(replace(state, cpus=cpus), state.cpus.pools))


def _driver_told(state: State, event: Any) -> tuple[Cpus, Decision]:
    """What an event about our driver changes, for the pools and containers of the claims too."""
    if event.driver != state.settings.cpus.dra.driver:
        return state.cpus, NOTHING
    before, cpus = state.cpus, claims.told(state, event)
    machine = cpus.machine
    if cpus.by_claim.claims is before.by_claim.claims and cpus.by_claim.recalled is before.by_claim.recalled:
        return cpus, NOTHING
    earlier, state = state, replace(state, cpus=cpus)
    waited = NOTHING
    if claims.lets_go(earlier, state):
        after, waited = on_settings(state)
        if after.rules is not cpus.rules:
            return after, waited
        state = replace(state, cpus=after)  # the other policy does not fit for another reason
    if machine is not None and cpus.in_force:
        pools = claims.with_pools(state, Ground(machine, cpus.rules), claims.tidied(state))
        state = replace(state, cpus=claims.as_placed(replace(state.cpus, pools=pools)))
    goals = goals_of(state, before.pools)
    after, decision = (state.cpus, NOTHING) if _is_idle(state) else all_there(state, tuple(state.pods.containers))
    return after, both(waited, replace(decision, goals=(*goals, *decision.goals)))


def _selling(hear: Hear[State]) -> Hear[State]:
    """What is published by claim follows from what the event has changed."""

    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        cpus, decision = hear(state, event)
        if state.settings.cpus.dra.mode is Mode.OFF and not state.cpus.by_claim.slices:
            return cpus, decision
        assert isinstance(cpus, Cpus)
        before = state.cpus
        is_same = cpus.pools is before.pools and cpus.by_claim is before.by_claim and cpus.machine is before.machine
        if is_same and cpus.listed is before.listed and not isinstance(event, SettingsChanged):
            return cpus, decision
        cpus, news = claims.published(state, cpus)
        return cpus, replace(decision, goals=(*decision.goals, *news.goals)) if news.goals else decision

    return heard


_BY_CLAIM: Mapping[type[ev.Event], Hear[State]] = {
    ev.Preparing: _preparing,
    ev.Unprepared: _driver_told,
    ev.ClaimsRecalled: _driver_told,
    ev.DriverTold: _driver_told,
}
_WITH_A_POLICY: Mapping[type[ev.Event], Hear[State]] = {
    ev.Creating: on_creating,
    ev.Updating: on_updating,
    ev.Created: _there_now,
    ev.Started: _there_now,
    ev.Updated: _there_now,
    ev.Listed: _listed,
    ev.CgroupsFound: _listed,
    ev.PodsListed: _listed,
    ev.PodSeen: _pod_seen,
    ev.Reached: on_outcome,
    ev.Missed: on_outcome,
    ev.CpusetsRead: on_read,
    ev.CpusUsed: _used,
    ev.MemoryUsed: _memory_used,
    ev.StartLate: _started_late,
    ev.Abandoned: _abandoned,
    ev.SandboxStopped: _may_have_ended,
    ev.SandboxRemoved: _may_have_ended,
    ev.Stopped: _may_have_ended,
    ev.Removed: _may_have_ended,
    ev.CreateFailed: _may_have_ended,
    ev.Tick: _tick,
    ev.PodGone: _may_have_ended,
}
HEARS: Mapping[type[ev.Event], Hear[State]] = {
    ev.TopologyRead: _selling(_followed(lambda state, event: on_topology(state, event.machine))),
    SettingsChanged: _selling(_followed(lambda state, _: on_settings(state))),
    CpusRecalled: _followed(on_recalled),
    **{kind: _selling(_followed(_unless_idle(hear))) for kind, hear in _WITH_A_POLICY.items()},
    **{kind: _selling(_followed(hear)) for kind, hear in _BY_CLAIM.items()},
}
