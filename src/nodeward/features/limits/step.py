"""How events change what each cgroup is to have, and which goals follow.

`wanted` says for each cgroup what it is to have. Whatever may change that (a pod seen, a container started, the
kernel's capacity, a list) recomputes the cgroups of the pods concerned and emits goals for them; the slots make goals
cheap to repeat, so restart, adoption, late knowledge and drift repair are this one path.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from nodeward.core import events as ev
from nodeward.core.decision import NOTHING, Adjustment, Decision, Fault, Final, Goal
from nodeward.core.events import Question
from nodeward.core.feature import Hear
from nodeward.core.modes import Mode
from nodeward.core.refusal import Refusal
from nodeward.core.tables import beside, without
from nodeward.core.workload import ContainerId, Phase, PodUid
from nodeward.features.limits import claims, devices, readings
from nodeward.features.limits.answer import answer
from nodeward.features.limits.goals import forget, limit_goals, subtree_goals
from nodeward.features.limits.state import Limits, Wanted
from nodeward.features.limits.want import container_wanted, given_to, pod_outline, pod_wanted
from nodeward.features.pods.fault import passed_or_refused
from nodeward.features.pods.found import homes
from nodeward.features.root import SettingsChanged, State


def on_fault(state: State, question: Question, fault: Fault) -> Final | None:
    return passed_or_refused(state, question, fault, state.settings.limits.on_error, state.settings.limits.mode)


def _updating(state: State, event: ev.Updating) -> tuple[Limits, Decision]:
    limits, decision = answer(state, event)
    limits, news = reconcile(replace(state, limits=limits), (event.sandbox.pod_uid,))
    return limits, replace(decision, goals=news.goals)  # it may be the first that is heard of the container


def _there(state: State, event: ev.Created | ev.Updated | ev.Started) -> tuple[Limits, Decision]:
    return reconcile(state, (event.sandbox.pod_uid,), touched=event.container.id)


def _stopped(state: State, event: ev.Stopped) -> tuple[Limits, Decision]:
    return _prune(state, state.limits, NOTHING, (event.container.cgroups_path, event.sandbox.cgroup_parent))


def _removed(state: State, event: ev.Removed) -> tuple[Limits, Decision]:
    ended = state.pods.ended.get(event.container_id)  # not there where the feature `pods` has failed
    path = ended.path if ended is not None else ""
    return _prune(state, state.limits, NOTHING, (path, path.rpartition("/")[0]))  # its pod may have ended with it


def _outcome(state: State, event: ev.Reached | ev.Missed) -> tuple[Limits, Decision]:
    return readings.outcome(state.limits, event), NOTHING


def _creating(state: State, event: ev.Creating) -> tuple[Limits, Decision]:
    """Limits and device nodes are two settings, and each says by itself what it gives."""
    limits, decision = answer(state, event) if state.settings.limits.mode is not Mode.OFF else (state.limits, NOTHING)
    nodes, limited = devices.given(state, event), decision.answer
    if nodes is None or (isinstance(limited, Final) and isinstance(limited.value, Refusal)):
        return limits, decision
    if isinstance(nodes.value, Adjustment) and isinstance(limited, Final) and isinstance(limited.value, Adjustment):
        nodes = replace(limited, value=limited.value.beside(nodes.value))
    return limits, replace(decision, answer=nodes)


def _hooked(state: State, event: ev.Hooked) -> tuple[Limits, Decision]:
    return reconcile(state, (event.sandbox.pod_uid,), touched=event.container.id if event.container else None)


def _pod_seen(state: State, event: ev.PodSeen) -> tuple[Limits, Decision]:
    uid = PodUid(event.pod.config_hash or event.pod.uid)
    return reconcile(state, (uid,)) if uid in state.pods.sandbox_of else (state.limits, NOTHING)


def _listed(state: State, event: ev.Listed | ev.PodsListed) -> tuple[Limits, Decision]:
    return _prune(state, *reconcile(state, state.pods.sandbox_of, afresh=isinstance(event, ev.Listed)))


def _may_have_ended(state: State, _: ev.Event) -> tuple[Limits, Decision]:
    """A container or a pod may be known no more."""
    return _prune(state, state.limits, Decision())


def _capacity_read(state: State, event: ev.CapacityRead) -> tuple[Limits, Decision]:
    """What the kernel has is known with mode off too, for when it is switched on."""
    if state.settings.limits.mode is not Mode.OFF:
        return _capacity(state, event)
    return replace(
        state.limits, controller=event.controller, capacity=event.capacity, usage=event.usage, tree=event.tree
    ), NOTHING


def _settings(state: State, _: SettingsChanged) -> tuple[Limits, Decision]:
    mode = state.settings.limits.mode
    limits, offered = devices.listed(state, state.limits.devices)
    if mode is Mode.OFF:
        limits, news = _switched_off(limits) if limits.wanted else (limits, NOTHING)
        return limits, replace(news, goals=offered.goals)
    if mode is not Mode.ENFORCE:
        limits = replace(limits, misses={})  # nothing is tried any more
    limits, news = reconcile(replace(state, limits=limits), state.pods.sandbox_of, afresh=True)
    news = replace(news, goals=news.goals + offered.goals)
    return (replace(limits, left={}) if limits.left else limits), news


def _switched_off(limits: Limits) -> tuple[Limits, Decision]:
    """Goals end, and limits stay as they are."""
    targets = tuple(target for path, wanted in limits.wanted.items() for target in forget(wanted, path))
    left = {path: tuple(dict.fromkeys((*w.values, *w.taken_back, *w.given))) for path, w in limits.wanted.items()}
    off = replace(limits, wanted={}, readings={}, repairs_ns={}, misses={}, answered={}, left=left)
    return off, Decision(forget=targets)


def reconcile(
    state: State, uids: Iterable[PodUid], *, touched: ContainerId | None = None, afresh: bool = False
) -> tuple[Limits, Decision]:
    """What the cgroups of these pods are to have now, and the goals that make it so.

    A goal stands until it is reached, so it is given once: when the wanted changes, for a container that something was
    just done to (`touched`), and for everything `afresh`. What changes behind our back, the sampler sees.
    """
    limits = state.limits
    changed: dict[str, Wanted] = {}
    homes: list[str] = []
    goals: list[Goal] = []
    for uid in uids:
        for path, wanted in _of_pod(state, uid, touched):
            before = limits.wanted.get(path)
            wanted = wanted.after(before, _given(state, path, wanted), anew=afresh)
            if before != wanted:
                changed[path] = wanted
            again = afresh or (touched is not None and wanted.container_id == touched)
            if not again and before is not None and (before.values, before.given) == (wanted.values, wanted.given):
                continue
            if wanted.container_id is None and (before is None or afresh):
                homes.append(path)
            if afresh or _is_there(state, path, wanted):
                goals += limit_goals(state, path, wanted)
    if changed:
        known = [wanted.container_id for wanted in changed.values() if wanted.container_id is not None]
        limits = replace(limits, wanted=beside(limits.wanted, changed), answered=without(limits.answered, known))
    if homes:
        goals = subtree_goals(state, homes) + goals
    return limits, Decision(goals=tuple(goals)) if goals else NOTHING


def _of_pod(state: State, uid: PodUid, touched: ContainerId | None) -> Iterator[tuple[str, Wanted]]:
    """The cgroups of a pod and what each is to have, the pod's own first. What is done to one container changes nothing
    for the others, unless the event has told of the sandbox as well."""
    sandbox_id = state.pods.sandbox_of.get(uid)
    if sandbox_id is None:
        return
    parent = state.pods.sandboxes[sandbox_id].sandbox.cgroup_parent
    if parent:
        yield parent, pod_wanted(state, uid)
    of_pod = pod_outline(state, uid)
    is_new = state.pods.sandboxes[sandbox_id].seq == state.seq
    for container_id in (touched,) if touched is not None and not is_new else state.pods.by_pod.get(uid, ()):
        known = state.pods.containers[container_id]
        if known.container.cgroups_path:
            yield known.container.cgroups_path, container_wanted(state, known, of_pod)


def _given(state: State, path: str, wanted: Wanted) -> tuple[str, ...]:
    left = state.limits.left.get(path, ())
    if wanted.container_id is None:
        return left
    return left + given_to(state, wanted.container_id, wanted.values)


def _is_there(state: State, path: str, wanted: Wanted) -> bool:
    """Whether the cgroup can be expected: containerd makes a container's when it starts, which it may not tell of."""
    if wanted.container_id is None or path in state.limits.readings:
        return True
    return state.pods.containers[wanted.container_id].container.phase is Phase.RUNNING


def _capacity(state: State, event: ev.CapacityRead) -> tuple[Limits, Decision]:
    before = state.limits
    limits = replace(before, controller=event.controller, capacity=event.capacity, usage=event.usage, tree=event.tree)
    if (limits.controller, limits.capacity, limits.tree) == (before.controller, before.capacity, before.tree):
        return limits, NOTHING
    limits = replace(limits, readings=readings.looked_at_anew(limits))
    return reconcile(replace(state, limits=limits), state.pods.sandbox_of, afresh=True)


def _prune(
    state: State, limits: Limits, decision: Decision, paths: tuple[str, ...] | None = None
) -> tuple[Limits, Decision]:
    """Forgets cgroups whose container or sandbox is gone, looking at `paths` only where they are given."""
    if paths is None and limits.answered:
        limits = replace(limits, answered={i: given for i, given in limits.answered.items() if state.pods.container(i)})
    known, wanted = state.pods.containers, limits.wanted
    looked_at = wanted.items() if paths is None else [(path, wanted[path]) for path in paths if path in wanted]
    gone = [path for path, one in looked_at if one.container_id not in known and not _stands(state, path, one)]
    if not gone:
        return limits, decision
    targets = tuple(target for path in gone for target in forget(limits.wanted[path], path))
    limits = replace(
        limits,
        wanted=without(limits.wanted, gone),
        readings=without(limits.readings, gone),
        repairs_ns=without(limits.repairs_ns, gone),
        misses=without(limits.misses, gone),
    )
    goals = tuple(goal for goal in decision.goals if goal.target not in targets)
    return limits, replace(decision, goals=goals, forget=(*decision.forget, *targets))


def _stands(state: State, path: str, wanted: Wanted) -> bool:
    if wanted.container_id is not None:
        return wanted.container_id in state.pods.containers
    sandbox_id = state.pods.sandbox_of.get(wanted.pod_uid)
    return sandbox_id is not None and state.pods.sandboxes[sandbox_id].sandbox.cgroup_parent == path


def _unless_off(hear: Hear[State]) -> Hear[State]:
    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        return hear(state, event) if state.settings.limits.mode is not Mode.OFF else (state.limits, NOTHING)

    return heard


_WITH_A_MODE: Mapping[type[ev.Event], Hear[State]] = {
    ev.Updating: _updating,
    ev.Created: _there,
    ev.Updated: _there,
    ev.Started: _there,
    ev.Stopped: _stopped,
    ev.Removed: _removed,
    ev.Sampled: lambda state, event: _prune(state, *readings.sampled(state, event)),
    ev.Reached: _outcome,
    ev.Missed: _outcome,
    ev.Hooked: _hooked,
    ev.PodSeen: _pod_seen,
    ev.SandboxStarted: lambda state, event: reconcile(state, (event.sandbox.pod_uid,)),
    ev.CgroupsFound: lambda state, event: reconcile(state, dict.fromkeys(homes(state.pods, event).values())),
    ev.PodsListed: _listed,
    ev.Listed: _listed,
    ev.SandboxStopped: _may_have_ended,
    ev.SandboxRemoved: _may_have_ended,
    ev.CreateFailed: _may_have_ended,
    ev.Abandoned: _may_have_ended,
    ev.Tick: _may_have_ended,
    ev.PodGone: _may_have_ended,
}


def _selling(hear: Hear[State]) -> Hear[State]:
    """What is published by claim follows from what the event has changed."""

    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        limits, decision = hear(state, event)
        if state.settings.limits.dra.mode is Mode.OFF and not state.limits.by_claim.slices:
            return limits, decision
        assert isinstance(limits, Limits)
        limits, news = claims.published(state, limits)
        return limits, replace(decision, goals=(*decision.goals, *news.goals)) if news.goals else decision

    return heard


def _driver_told(state: State, event: Any) -> tuple[Limits, Decision]:
    """What an event about our driver changes, for the pods of the claims too."""
    if event.driver != state.settings.limits.dra.driver:
        return state.limits, NOTHING
    limits, before = claims.told(state, event), state.limits.by_claim
    if limits.by_claim.claims is before.claims or state.settings.limits.mode is Mode.OFF:
        return limits, NOTHING
    if limits.by_claim.recalled is not before.recalled:  # until now nothing was wanted of pods with claims
        return reconcile(replace(state, limits=limits), state.pods.sandbox_of)
    pods = [uid for table in (before.claims, limits.by_claim.claims) for one in table.values() for uid in one.pods]
    there = [uid for uid in dict.fromkeys(pods) if uid in state.pods.sandbox_of]
    return reconcile(replace(state, limits=limits), there)


def _preparing(state: State, event: ev.Preparing) -> tuple[Limits, Decision]:
    """Another feature's driver asks that one."""
    if event.driver != state.settings.limits.dra.driver or not claims.are_sold(state):
        return state.limits, NOTHING
    limits, final = claims.preparing(state, event)
    return limits, Decision(final)


_BY_CLAIM: Mapping[type[ev.Event], Hear[State]] = {
    ev.Preparing: _preparing,
    ev.Unprepared: _driver_told,
    ev.ClaimsRecalled: _driver_told,
    ev.DriverTold: _driver_told,
}
_CHANGES_WHAT_IS_SOLD = (ev.PodSeen, ev.PodGone, ev.PodsListed)
HEARS: Mapping[type[ev.Event], Hear[State]] = {
    ev.CapacityRead: _selling(_capacity_read),
    ev.Creating: _creating,
    ev.EnclavesSeen: _selling(devices.seen),
    ev.Allocating: lambda state, event: (state.limits, Decision(devices.allocating(state, event))),
    ev.PluginTold: lambda state, event: (devices.plugin_told(state, event), NOTHING),
    SettingsChanged: _selling(_settings),
    **{
        kind: _selling(_unless_off(hear)) if kind in _CHANGES_WHAT_IS_SOLD else _unless_off(hear)
        for kind, hear in _WITH_A_MODE.items()
    },
    **{kind: _selling(hear) for kind, hear in _BY_CLAIM.items()},
}
