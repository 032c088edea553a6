"""How events change what is known of pods, and when a create or an update waits for its pod's spec."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.decision import NOTHING, Decision, Fault, Final, Need
from nodeward.core.events import Question
from nodeward.core.feature import Hear
from nodeward.core.refusal import Refusal
from nodeward.core.tables import copied, put, without
from nodeward.core.workload import Container, ContainerId, Phase, PodUid, Sandbox, SandboxId
from nodeward.features.pods import found, static
from nodeward.features.pods.fault import passed_or_refused
from nodeward.features.pods.state import KnownContainer, KnownSandbox, Pods
from nodeward.features.root import State

WINDOW_NS = 10_000_000_000
"""NRI is serial for the node: the waits for unknown pods are bounded within this window (settings `pods`)."""

TENTATIVE_NS = 120_000_000_000
"""A create of which nothing more was heard for so long did not happen."""


def _asked_to_create(state: State, event: ev.Creating) -> tuple[Pods, Decision]:
    """A Need where it should wait for its pod's spec. What it tells was taken in before it waited."""
    return _spec_needed(state, state.pods, event) if event.ask_id in state.asks else _creating(state, event)


def _asked_to_update(state: State, event: ev.Updating) -> tuple[Pods, Decision]:
    pods = state.pods
    if event.ask_id in state.asks:
        return _spec_needed(state, pods, event)
    before = pods.containers.get(event.container.id)
    if before is not None:
        pods = replace(pods, updating=put(pods.updating, event.ask_id, before))
    return _spec_needed(state, _seen(pods, event, event.sandbox, event.container), event)


def _there(state: State, event: ev.Created | ev.Updated | ev.Started) -> tuple[Pods, Decision]:
    phase = event.container.phase if not isinstance(event, ev.Started) else Phase.RUNNING
    return _seen(state.pods, event, event.sandbox, event.container.in_phase(phase)), NOTHING


def _stopped(state: State, event: ev.Stopped) -> tuple[Pods, Decision]:
    one = event.container
    pods = found.with_ended(_drop(state.pods, (one.id,)), one.id, event.seq, one.cgroups_path)
    return _ended(pods, event.sandbox.pod_uid), NOTHING


def _removed(state: State, event: ev.Removed | ev.CreateFailed) -> tuple[Pods, Decision]:
    known = state.pods.container(event.container_id)
    pods = _drop(state.pods, (event.container_id,))
    if isinstance(event, ev.Removed):
        path = known.container.cgroups_path if known is not None else ""
        pods = found.with_ended(pods, event.container_id, event.seq, path)
    return (_ended(pods, known.pod_uid) if known is not None else pods), NOTHING


def _sampled(state: State, event: ev.Sampled) -> tuple[Pods, Decision]:
    return (_cgroups_gone(state.pods, event) if event.gone else state.pods), NOTHING


def _abandoned(state: State, event: ev.Abandoned) -> tuple[Pods, Decision]:
    ask = state.asks.get(event.ask_id)
    pods = _without_update(state.pods, event.ask_id)
    tentative = ask.creating if ask else None
    if tentative is None or tentative.container.id not in pods.creating:
        return pods, NOTHING
    return _drop(pods, (tentative.container.id,)), NOTHING


def _tick(state: State, event: ev.Tick) -> tuple[Pods, Decision]:
    pods = state.pods
    late = [i for i, known in pods.creating.items() if known.at_ns + TENTATIVE_NS <= event.at_ns]
    return (_drop(pods, late) if late else pods), NOTHING


def _sandbox_started(state: State, event: ev.SandboxStarted) -> tuple[Pods, Decision]:
    return _with_sandbox(state.pods, event.sandbox, event.seq), NOTHING


def _sandbox_ended(state: State, event: ev.SandboxStopped | ev.SandboxRemoved) -> tuple[Pods, Decision]:
    pods = _lingers_not(_without_sandbox(state.pods, event.sandbox.id), (event.sandbox.id,))
    return found.with_ended(pods, event.sandbox.id, event.seq), NOTHING


def _hooked(state: State, event: ev.Hooked) -> tuple[Pods, Decision]:
    pods = _told_by_hook(state.pods, event.sandbox, event.seq)
    return (found.hooked(pods, event, event.container) if event.container else pods), NOTHING


def _pod_seen(state: State, event: ev.PodSeen) -> tuple[Pods, Decision]:
    return replace(state.pods, specs=static.kept(state.pods, event.pod, event.seq)), NOTHING


def _pod_gone(state: State, event: ev.PodGone) -> tuple[Pods, Decision]:
    return found.with_ended(_spec_gone(state.pods, event.uid), event.uid, event.seq), NOTHING


def _api_back(state: State, _: ev.ApiBack) -> tuple[Pods, Decision]:
    return replace(state.pods, api_up=True, stale_since_wall_ns=0), NOTHING


def _api_lost(state: State, event: ev.ApiLost) -> tuple[Pods, Decision]:
    since = state.pods.stale_since_wall_ns or event.since_wall_ns or event.wall_ns
    return replace(state.pods, api_up=False, stale_since_wall_ns=since), NOTHING


def _runtime_connected(state: State, event: ev.RuntimeConnected) -> tuple[Pods, Decision]:
    name = f"{event.name} {event.version}".strip()
    return replace(state.pods, runtime=name, listed=False, multi_line=event.multi_line), NOTHING


def _runtime_lost(state: State, _: ev.RuntimeLost) -> tuple[Pods, Decision]:
    return replace(state.pods, runtime="", listed=False), NOTHING


def answered(state: State, question: ev.Question, answer: Final) -> Pods:
    """What an update would have changed is as before where the update is refused."""
    pods = state.pods
    before = pods.updating.get(question.ask_id)
    if before is None:
        return pods
    pods = _without_update(pods, question.ask_id)
    if isinstance(answer.value, Refusal) and before.container.id in pods.containers:
        pods = replace(pods, containers=put(pods.containers, before.container.id, before))
    return pods


def next_wake(state: State) -> int | None:
    oldest = next(iter(state.pods.creating.values()), None)
    return None if oldest is None else oldest.at_ns + TENTATIVE_NS


def on_fault(state: State, question: Question, fault: Fault) -> Final | None:
    return passed_or_refused(state, question, fault, state.settings.pods.on_error, state.settings.limits.mode)


def _without_update(pods: Pods, ask_id: int) -> Pods:
    updating = without(pods.updating, (ask_id,))
    return pods if updating is pods.updating else replace(pods, updating=updating)


def _creating(state: State, event: ev.Creating) -> tuple[Pods, Decision]:
    uid = event.sandbox.pod_uid
    pods = (_told_by_hook if event.by_hook else _with_sandbox)(state.pods, event.sandbox, event.seq)
    if event.by_hook and event.container.id in pods.containers:
        pods = found.hooked(pods, event, event.container)
    else:
        known = KnownContainer(event.container.in_phase(Phase.CREATING), uid, event.seq, event.at_ns)
        creating = copied(pods.creating)
        creating.pop(event.container.id, None)  # the newest is the last
        creating[event.container.id] = known
        pods = replace(pods, creating=creating)
    return _spec_needed(state, pods, event)


def _spec_needed(state: State, pods: Pods, event: ev.Creating | ev.Updating) -> tuple[Pods, Decision]:
    """A Need where the pod's spec is not known, is worth waiting for, and was not waited for yet."""
    uid = event.sandbox.pod_uid
    if uid in pods.specs or not pods.api_up:
        return pods, NOTHING
    ask = state.asks.get(event.ask_id)
    if ask is not None and (ask.needs or ask.expired):
        return pods, NOTHING
    recent = tuple(at for at in pods.waits_ns if at > event.at_ns - WINDOW_NS)
    rule = state.settings.pods
    if (len(recent) + 1) * rule.wait_ms > rule.wait_budget_ms:
        return replace(pods, waits_ns=recent), NOTHING
    need = Need("pod", f"{event.sandbox.namespace}/{event.sandbox.name}/{uid}", rule.wait_ms * 1_000_000)
    return replace(pods, waits_ns=(*recent, event.at_ns)), Decision(need)


def _seen(pods: Pods, event: ev.Event, sandbox: Sandbox, container: Container) -> Pods:
    pods = _with_sandbox(pods, sandbox, event.seq)
    before = pods.containers.get(container.id)
    if before is not None and before.pod_uid != sandbox.pod_uid:
        pods = _drop(pods, (container.id,))  # it was taken for another pod's
    known = KnownContainer(container, sandbox.pod_uid, event.seq, event.at_ns)
    mates = pods.by_pod.get(sandbox.pod_uid, ())
    by_pod = pods.by_pod if container.id in mates else put(pods.by_pod, sandbox.pod_uid, (*mates, container.id))
    creating = without(pods.creating, (container.id,))
    return replace(pods, containers=put(pods.containers, container.id, known), by_pod=by_pod, creating=creating)


def _drop(pods: Pods, ids: list[ContainerId] | tuple[ContainerId, ...]) -> Pods:
    creating = without(pods.creating, ids)
    if not any(container_id in pods.containers for container_id in ids):
        return pods if creating is pods.creating else replace(pods, creating=creating)
    by_pod = copied(pods.by_pod)
    for container_id in ids:
        known = pods.containers.get(container_id)
        if known is not None:
            left = tuple(mate for mate in by_pod.get(known.pod_uid, ()) if mate != container_id)
            by_pod[known.pod_uid] = left
            if not left:
                del by_pod[known.pod_uid]
    return replace(pods, containers=without(pods.containers, ids), by_pod=by_pod, creating=creating)


def _is_creating(pods: Pods, uid: PodUid) -> bool:
    """Whether a container of the pod is being created."""
    return any(known.pod_uid == uid for known in pods.creating.values())


def _ended(pods: Pods, uid: PodUid) -> Pods:
    """Ends a deleted pod with its last container: a containerd (2.4.2) that was restarted never tells of the end of
    pods from before."""
    spec = pods.specs.get(uid)
    if spec is None or not spec.gone or uid in pods.by_pod or uid not in pods.sandbox_of or _is_creating(pods, uid):
        return pods
    sandbox_id = pods.sandbox_of[uid]
    known, pods = pods.sandboxes[sandbox_id], _without_sandbox(pods, sandbox_id)
    return pods if known.by_cgroup else replace(pods, lingering=put(pods.lingering, sandbox_id, known))


def _lingers_not(pods: Pods, ids: Iterable[SandboxId]) -> Pods:
    lingering = without(pods.lingering, tuple(ids))
    return pods if lingering is pods.lingering else replace(pods, lingering=lingering)


def _cgroups_gone(pods: Pods, event: ev.Sampled) -> Pods:
    """Ends pods whose cgroup is gone with those of all their containers, for the same reason; and what only its cgroup
    told of.
    """
    pods = _drop(pods, found.gone(pods, event))
    gone = dict.fromkeys(event.gone)
    for uid, sandbox_id in list(pods.sandbox_of.items()):
        known = pods.sandboxes[sandbox_id]
        if known.sandbox.cgroup_parent not in gone or known.seq > event.as_of or _is_creating(pods, uid):
            continue
        inside = [pods.containers[container_id] for container_id in pods.by_pod.get(uid, ())]
        if all(one.container.cgroups_path in gone and one.seq <= event.as_of for one in inside):
            pods = found.with_ended(_without_sandbox(pods, sandbox_id), sandbox_id, event.seq)
    for sandbox_id, known in list(pods.lingering.items()):
        if known.sandbox.cgroup_parent in gone and known.seq <= event.as_of:
            pods = found.with_ended(_lingers_not(pods, (sandbox_id,)), sandbox_id, event.seq)
    return pods


def _with_sandbox(pods: Pods, sandbox: Sandbox, seq: int) -> Pods:
    known = pods.sandboxes.get(sandbox.id)
    if known is not None and (known.sandbox is sandbox or known.sandbox == sandbox):
        return pods
    pods = static.rightful(_make_way(pods, sandbox), sandbox)
    return replace(
        pods,
        sandboxes=put(pods.sandboxes, sandbox.id, KnownSandbox(sandbox, seq)),
        sandbox_of=put(pods.sandbox_of, sandbox.pod_uid, sandbox.id),
    )


def _told_by_hook(pods: Pods, sandbox: Sandbox, seq: int) -> Pods:
    """With the sandbox as the hook sees it, unless the runtime, which sees more, has told of it."""
    known = pods.sandboxes.get(sandbox.id)
    return pods if known is not None and not known.by_cgroup else _with_sandbox(pods, sandbox, seq)


def _make_way(pods: Pods, sandbox: Sandbox) -> Pods:
    """What was found by cgroups makes way for the sandbox it belongs to; its own (pause) container is none of ours."""
    if ContainerId(sandbox.id) in pods.containers:
        pods = _drop(pods, (ContainerId(sandbox.id),))
    stand_in = found.stand_in_for(pods, sandbox)
    return pods if stand_in is None else found.adopt(pods, stand_in, sandbox.id)


def _without_sandbox(pods: Pods, sandbox_id: SandboxId) -> Pods:
    known = pods.sandboxes.get(sandbox_id)
    if known is None:
        return pods
    uid = known.sandbox.pod_uid
    inside = [i for i in pods.by_pod.get(uid, ()) if pods.containers[i].container.sandbox_id == sandbox_id]
    inside += [i for i, known in pods.creating.items() if known.container.sandbox_id == sandbox_id]
    pods = _drop(pods, inside)
    pods = replace(pods, sandboxes=without(pods.sandboxes, (sandbox_id,)))
    if pods.sandbox_of.get(uid) != sandbox_id:
        return pods
    spec = pods.specs.get(uid)
    specs = without(pods.specs, (uid,)) if spec is not None and spec.gone else pods.specs
    return replace(pods, sandbox_of=without(pods.sandbox_of, (uid,)), specs=specs)


def _listed(pods: Pods, event: ev.Listed) -> Pods:
    sandboxes = {sandbox.id: sandbox for sandbox in event.sandboxes}
    listed = {container.id: container for container in event.containers if container.phase is not Phase.STOPPED}
    if event.complete:
        all_of_them = (*pods.containers.items(), *pods.creating.items())
        pods = _drop(pods, [i for i, k in all_of_them if i not in listed and _may_end(k, event)])
        for sandbox_id in [i for i, k in pods.sandboxes.items() if i not in sandboxes and _may_end(k, event)]:
            pods = _without_sandbox(pods, sandbox_id)
        pods = _lingers_not(pods, [i for i, k in pods.lingering.items() if _may_end(k, event)])
    standing = [sandbox for sandbox in event.sandboxes if not pods.ended_after(sandbox.id, event.as_of)]
    for sandbox in standing:
        pods = static.rightful(_make_way(pods, sandbox), sandbox)
    new_sandboxes, sandbox_of = dict(pods.sandboxes), dict(pods.sandbox_of)
    for sandbox in standing:
        new_sandboxes[sandbox.id] = KnownSandbox(sandbox, event.seq)
        sandbox_of[sandbox.pod_uid] = sandbox.id
    at_home = {sandbox.id: sandbox.pod_uid for sandbox in standing}
    pods = _drop(pods, [i for i, k in pods.containers.items() if i in listed and _moved(k, listed[i], at_home)])
    containers, by_pod, creating = dict(pods.containers), dict(pods.by_pod), dict(pods.creating)
    for container in listed.values():
        known = containers.get(container.id) or creating.get(container.id)
        home = new_sandboxes.get(container.sandbox_id)
        if home is None or pods.ended_after(container.id, event.as_of):
            continue
        if known is not None and known.seq > event.as_of and not known.by_cgroup:
            continue
        uid = home.sandbox.pod_uid
        containers[container.id] = KnownContainer(container, uid, event.seq, event.at_ns)
        creating.pop(container.id, None)
        mates = by_pod.get(uid, ())
        if container.id not in mates:
            by_pod[uid] = (*mates, container.id)
    return replace(
        pods,
        sandboxes=new_sandboxes,
        sandbox_of=sandbox_of,
        containers=containers,
        by_pod=by_pod,
        creating=creating,
        listed=pods.listed or event.complete,
    )


def _moved(known: KnownContainer, listed: Container, at_home: Mapping[SandboxId, PodUid]) -> bool:
    """Whether the container was taken for another pod's."""
    return at_home.get(listed.sandbox_id, known.pod_uid) != known.pod_uid


def _may_end(known: KnownContainer | KnownSandbox, event: ev.Listed) -> bool:
    """Whether absence from this list says anything: not about what is newer, nor about what the runtime has lost."""
    return known.seq <= event.as_of and not known.by_cgroup


def _spec_gone(pods: Pods, api_uid: PodUid) -> Pods:
    by_api_uid = (uid for uid, known in pods.specs.items() if known.spec.uid == api_uid)
    uid = api_uid if api_uid in pods.specs else next(by_api_uid, None)
    if uid is None:
        return pods
    if uid in pods.sandbox_of:
        return _ended(replace(pods, specs=put(pods.specs, uid, replace(pods.specs[uid], gone=True))), uid)
    return replace(pods, specs=without(pods.specs, (uid,)))


def _pods_listed(pods: Pods, event: ev.PodsListed) -> Pods:
    specs = static.listed(pods, [one for one in event.pods if not pods.ended_after(one.uid, event.as_of)], event.seq)
    for uid, known in pods.specs.items():
        if uid in specs:
            if known.seq > event.as_of:
                specs[uid] = known
        elif known.seq > event.as_of:
            specs[uid] = known
        elif uid in pods.sandbox_of:
            specs[uid] = replace(known, gone=True)
    return replace(pods, specs=specs)


HEARS: Mapping[type[ev.Event], Hear[State]] = {
    ev.Creating: _asked_to_create,
    ev.Updating: _asked_to_update,
    ev.Created: _there,
    ev.Updated: _there,
    ev.Started: _there,
    ev.Stopped: _stopped,
    ev.Removed: _removed,
    ev.CreateFailed: _removed,
    ev.Sampled: _sampled,
    ev.Abandoned: _abandoned,
    ev.Tick: _tick,
    ev.SandboxStarted: _sandbox_started,
    ev.SandboxStopped: _sandbox_ended,
    ev.SandboxRemoved: _sandbox_ended,
    ev.Hooked: _hooked,
    ev.CgroupsFound: lambda state, event: (found.found(state, event), NOTHING),
    ev.Listed: lambda state, event: (_listed(state.pods, event), NOTHING),
    ev.PodSeen: _pod_seen,
    ev.PodGone: _pod_gone,
    ev.PodsListed: lambda state, event: (_pods_listed(state.pods, event), NOTHING),
    ev.ApiBack: _api_back,
    ev.ApiLost: _api_lost,
    ev.RuntimeConnected: _runtime_connected,
    ev.RuntimeLost: _runtime_lost,
}
