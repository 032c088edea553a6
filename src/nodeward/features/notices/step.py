"""Which Kubernetes Events pods and the node get, and when.

Of a pod four things are worth one: a limit that does not hold, a limit that somebody else had changed and that was
repaired, a charge that was refused, and a limit that was set only after its container had started (adoption). What was
refused before the first reading of a cgroup is told of containers alone whose creation or start was: a pod's cgroup
outlives its sandboxes, so the start of one does not make it new. What the node is told, features.notices.keys knows.

What happens again to the same container is counted and sent as the same Event, at most once in QUIET_NS; a limit that
still does not hold is said again after AGAIN_NS. A node sends at most MOST_SENT in QUIET_NS. While the API server does
not answer, all of it waits and is counted. A call is made once: how it ends decides only whether the next one counts up
or begins anew.

This step runs before the other features, so `state` is from before the event and what changed can be seen.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.decision import NOTHING, Decision, PodEvent, Target
from nodeward.core.feature import Hear
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason
from nodeward.core.tables import put, without
from nodeward.core.workload import ContainerId, Phase, PodUid, Role
from nodeward.features.limits.readings import FRESH_NS_PER_MS, REPAIR_WINDOW_NS, differs, to_look_at
from nodeward.features.limits.rows import MAX_REPAIRS
from nodeward.features.limits.state import Read, Wanted
from nodeward.features.notices import keys
from nodeward.features.notices.state import Notice, Notices
from nodeward.features.pods.found import name_of
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings

QUIET_NS = 300_000_000_000
"""The same Event is sent at most once in this time."""
AGAIN_NS = 1_800_000_000_000
"""A limit that does not hold is said again after this time."""
FORGET_NS = 3_000_000_000_000
"""What has not happened for so long is forgotten: the API server keeps Events for an hour unless told otherwise."""
MOST_SENT = 100
"""So many calls a node makes in QUIET_NS."""
MOST_NOTICES = 1000
"""So many are kept; of what is beyond only the number is known."""

OF_NODE = "default"
"""The namespace in which the API server takes Events on what has none."""

_FIELDS = {Role.INIT: "initContainers", Role.SIDECAR: "initContainers", Role.EPHEMERAL: "ephemeralContainers"}
Happening = tuple[Wanted, Reason, int]
"""To whose cgroup what happened, and how many times."""
Told = tuple[PodUid, str, Reason, int]
"""Which pod and container are told of it, both empty for the node."""


def _of_node(state: State, event: ev.Event) -> Notices:
    found = keys.amiss(state, event.at_ns)
    told: Iterator[Told] = ((PodUid(""), "", *one) for one in keys.happened(state, event, found))
    notices, amiss_ns = _with(state, event, told), keys.since(state.notices.amiss_ns, found, event.at_ns)
    return notices if amiss_ns is notices.amiss_ns else replace(notices, amiss_ns=amiss_ns)


def _settings(state: State, event: SettingsChanged) -> tuple[Notices, Decision]:
    of_pods, of_node = _wanted(event.settings)
    return _of(state.notices, pods=of_pods, node=of_node), NOTHING


def _wanted(settings: EngineSettings) -> tuple[bool, bool]:
    """Whether anybody is told of pods, and of the node."""
    told = settings.kube_events
    return told and settings.limits.mode is Mode.ENFORCE, told and settings.keys.mode is Mode.ENFORCE


def _for_node(hear: Hear[State] | None = None) -> Hear[State]:
    """What the node is told, and then `hear` for pods."""

    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        of_pods, of_node = _wanted(state.settings)
        if of_node:
            state = replace(state, notices=_of_node(state, event))
        if of_pods and hear is not None:
            return hear(state, event)
        return _send(state, state.notices, event) if of_node else (state.notices, NOTHING)

    return heard


def _for_pods(hear: Hear[State]) -> Hear[State]:
    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        return hear(state, event) if _wanted(state.settings)[0] else (state.notices, NOTHING)

    return heard


def _of_sample(state: State, event: ev.Sampled) -> tuple[Notices, Decision]:
    notices = _with(state, event, _told(state, _sampled(state, event)))
    return _send(state, replace(notices, begun=_unread(state, event)) if notices.begun else notices, event)


def _reached(state: State, event: ev.Reached) -> tuple[Notices, Decision]:
    if not state.notices.newcomers:
        return state.notices, NOTHING
    notices = _with(state, event, _told(state, _adopted(state, event)))
    return _send(state, replace(notices, newcomers=_still_new(state, event)), event)


def _listed(state: State, event: ev.Listed) -> tuple[Notices, Decision]:
    return _newcomers(state, (one.id for one in event.containers if one.phase is Phase.RUNNING)), NOTHING


def _call_ended(state: State, event: ev.CallEnded) -> tuple[Notices, Decision]:
    return _ended(state.notices, event) if any(_wanted(state.settings)) else state.notices, NOTHING


def _of(notices: Notices, *, pods: bool, node: bool) -> Notices:
    """The slice without what is known for those who are told nothing."""
    if not (pods or node):
        return Notices(last_id=notices.last_id, left_out=notices.left_out)
    over = [key for key, one in notices.notices.items() if not (pods if one.pod_uid else node)]
    return replace(
        notices,
        notices=without(notices.notices, over),
        under_way={call_id: key for call_id, key in notices.under_way.items() if key not in over},
        newcomers=notices.newcomers if pods else {},
        begun=notices.begun if pods else {},
        amiss_ns=notices.amiss_ns if node else {},
    )


def _newcomers(state: State, ids: Iterable[ContainerId]) -> Notices:
    new = {one: True for one in ids if one not in state.pods.containers and one not in state.pods.creating}
    return replace(state.notices, newcomers={**state.notices.newcomers, **new}) if new else state.notices


def _begun(state: State, event: ev.Created | ev.Started | ev.Hooked) -> Notices:
    one, notices = event.container, state.notices
    if one is None or one.id in notices.begun or one.cgroups_path in state.limits.readings:
        return notices
    return replace(notices, begun=put(notices.begun, one.id, True))


def _unread(state: State, event: ev.Sampled) -> dict[ContainerId, bool]:
    """What has begun, is still there, and was not read by this pass either."""
    known, begun = state.pods.containers, state.notices.begun
    return {one: True for one in begun if one in known and known[one].container.cgroups_path not in event.readings}


def _gone(notices: Notices, container_id: ContainerId) -> Notices:
    if container_id not in notices.newcomers and container_id not in notices.begun:
        return notices
    over = (container_id,)
    return replace(notices, newcomers=without(notices.newcomers, over), begun=without(notices.begun, over))


def _ended(notices: Notices, event: ev.CallEnded) -> Notices:
    key = notices.under_way.get(event.call_id)
    if key is None:
        return notices
    known = notices.notices.get(key)
    table = notices.notices
    if known is not None:
        table = {**table, key: replace(known, series=0 if event.error else known.series or event.call_id)}
    return replace(notices, notices=table, under_way=without(notices.under_way, (event.call_id,)))


# ---- what happened ---------------------------------------------------------------------------------------------------


def _sampled(state: State, event: ev.Sampled) -> Iterator[Happening]:
    limits = state.limits
    for path, reading in to_look_at(limits, event):
        wanted, before = limits.wanted.get(path), limits.readings.get(path)
        if wanted is None or not wanted.values or not wanted.known:
            continue
        if before is None:
            if wanted.container_id in state.notices.begun:
                yield from _refused(state, wanted, ev.MiscReading(), reading)
            continue
        if before.as_of > event.as_of:
            continue
        if reading is not before.reading:
            yield from _refused(state, wanted, before.reading, reading)
        wrong = differs(state, wanted, reading)
        if not wrong and reading is not before.reading:
            yield from _restored(state, path, wanted, before)
        for why in _why_not(state, event, path, wanted, before, reading, wrong):
            yield wanted, why, 0


def _refused(state: State, wanted: Wanted, before: ev.MiscReading, now: ev.MiscReading) -> Iterator[Happening]:
    """Charges that this cgroup's own limit refused. Kernels before 6.11 tell a container's only, with what is below."""
    was, counted = before.refusals_local, now.refusals_local
    if not counted and wanted.container_id is not None:
        was, counted = before.refusals, now.refusals
    for resource, value in wanted.values.items():
        more = counted.get(resource, 0) - was.get(resource, 0)
        if more > 0:
            usage = now.usage.get(resource, 0)
            values = (resource, _declared_as(state, resource), value, usage, wanted.source)
            yield wanted, Reason("charge-refused", values), more


def _restored(state: State, path: str, wanted: Wanted, before: Read) -> Iterator[Happening]:
    repairs = state.limits.repairs_ns.get(path, ())
    if not repairs or repairs[-1] < before.at_ns - state.settings.period_ms * FRESH_NS_PER_MS:
        return
    for resource in (name for name in differs(state, wanted, before.reading) if name in wanted.values):
        found = before.reading.limit.get(resource, "max") if before.reading.controller else "no file"
        values = (resource, _declared_as(state, resource), wanted.values[resource], found, wanted.source)
        yield wanted, Reason("limit-restored", values), 1


def _why_not(
    state: State,
    event: ev.Sampled,
    path: str,
    wanted: Wanted,
    before: Read,
    reading: ev.MiscReading,
    wrong: tuple[str, ...],
) -> Iterator[Reason]:
    """Why limits do not hold, where that was so at the reading before as well."""
    capacity, held = state.limits.capacity, []
    for resource, value in wanted.values.items():
        if capacity.get(resource, 0) > 0:
            held.append(resource)
        elif wanted.container_id is not None:  # of a pod, its containers are told
            yield Reason("not-supported", (resource, _declared_as(state, resource), value, wanted.source))
    if not held or not (wrong or reading.outside):
        return
    before_wrong = differs(state, wanted, before.reading)
    if not wrong and not before_wrong and before.reading.outside:
        values = (held[0], _declared_as(state, held[0]), wanted.values[held[0]], wanted.source)
        yield Reason("processes-outside", values)
    recent = [at for at in state.limits.repairs_ns.get(path, ()) if at > event.at_ns - REPAIR_WINDOW_NS]
    for resource in (name for name in held if name in wrong and name in before_wrong):
        values = (resource, _declared_as(state, resource), wanted.values[resource], wanted.source)
        miss = state.limits.misses.get(path, {}).get(resource)
        if not reading.controller:
            yield Reason("controller-off", values)
            return  # which holds for all of them
        if miss:
            yield Reason("write-failed", (*values, miss))
        elif len(recent) >= MAX_REPAIRS:
            yield Reason("drift-stays", (*values, reading.limit.get(resource, "max")))


def _adopted(state: State, event: ev.Reached) -> Iterator[Happening]:
    for target in event.written:
        resource, wanted = target.resource, _limit_of(state, target)
        if wanted is not None and wanted.container_id in state.notices.newcomers and resource in wanted.values:
            usage = _usage(state, target)
            values = (resource, _declared_as(state, resource), wanted.values[resource], usage, wanted.source)
            yield wanted, Reason("limit-set-late", values), 1


def _still_new(state: State, event: ev.Reached) -> Mapping[ContainerId, bool]:
    at_home = [wanted.container_id for target in event.targets if (wanted := _limit_of(state, target)) is not None]
    return without(state.notices.newcomers, [one for one in at_home if one is not None])


def _limit_of(state: State, target: Target) -> Wanted | None:
    return state.limits.wanted.get(target.where) if target.kind == "misc.max" else None


def _usage(state: State, target: Target) -> int:
    read = state.limits.readings.get(target.where)
    return read.reading.usage.get(target.resource, 0) if read is not None else 0


def _declared_as(state: State, resource: str) -> str:
    """What a pod's spec calls the resource."""
    return next((name for name, kernel in state.settings.limits.resources.items() if kernel == resource), resource)


# ---- what is known of it ---------------------------------------------------------------------------------------------


def _told(state: State, happenings: Iterable[Happening]) -> Iterator[Told]:
    for wanted, reason, times in happenings:
        if wanted.pod_uid:  # else nobody could be told, and it is not the node
            yield wanted.pod_uid, _container_name(state, wanted), reason, times


def _with(state: State, event: ev.Event, happenings: Iterable[Told]) -> Notices:
    notices = state.notices
    table: dict[str, Notice] | None = None
    left_out = 0
    for uid, name, reason, times in happenings:
        key = f"{uid}/{name}/{reason.code}/{reason.values[0]}"  # the resource
        known = (table if table is not None else notices.notices).get(key)
        if known is not None and not times and (known.unsent or event.at_ns - known.sent_at_ns < AGAIN_NS):
            continue  # it is said already, or waits to be
        if table is None:
            table = dict(notices.notices)
        if known is not None:
            table[key] = replace(
                known, reason=reason, count=known.count + (times or 1), last_ns=event.at_ns, unsent=True
            )
        elif len(table) < MOST_NOTICES:
            table[key] = Notice(uid, name, reason, times or 1, event.at_ns, event.at_ns)
        else:
            left_out += 1
    if table is None:
        return notices
    return replace(notices, notices=table, left_out=notices.left_out + left_out)


def _container_name(state: State, wanted: Wanted) -> str:
    if wanted.container_id is None:
        return ""
    known = state.pods.containers.get(wanted.container_id)
    return (name_of(state, known) if known is not None else "") or str(wanted.container_id)


# ---- what is sent ----------------------------------------------------------------------------------------------------


def _send(state: State, notices: Notices, event: ev.Event) -> tuple[Notices, Decision]:
    if not notices.notices:
        return notices, NOTHING
    old = [key for key, one in notices.notices.items() if _is_over(state, one, event.at_ns)]
    if old:
        notices = replace(notices, notices=without(notices.notices, old))
    if not state.pods.api_up:
        return notices, NOTHING
    sent = [at for at in notices.sent_ns if at > event.at_ns - QUIET_NS]
    under_way, last_id = dict(notices.under_way), notices.last_id
    held = dict.fromkeys(under_way.values())
    table: dict[str, Notice] = {}
    calls: list[PodEvent] = []
    due = [key for key, one in notices.notices.items() if key not in held and _is_due(one, event.at_ns)]
    for key in sorted(due, key=lambda key: notices.notices[key].sent_at_ns):  # else the same ones are sent each time
        if len(sent) >= MOST_SENT:
            break
        one = notices.notices[key]
        last_id += 1
        call = _call(state, one, last_id)
        if call is None:
            continue
        table[key] = replace(one, sent_at_ns=event.at_ns, unsent=False)
        under_way[last_id] = key
        sent.append(event.at_ns)
        calls.append(call)
    if not calls:
        return notices, NOTHING
    after = replace(
        notices,
        notices={**notices.notices, **table},
        under_way=under_way,
        sent_ns=tuple(sent),
        last_id=last_id,
    )
    return after, Decision(calls=tuple(calls))


def _is_due(one: Notice, at_ns: int) -> bool:
    return one.unsent and (not one.sent_at_ns or at_ns - one.sent_at_ns >= QUIET_NS)


def _is_over(state: State, one: Notice, at_ns: int) -> bool:
    if one.pod_uid and not one.unsent and one.pod_uid not in state.pods.sandbox_of:
        return True
    return at_ns - max(one.sent_at_ns, one.last_ns) > FORGET_NS


def _call(state: State, one: Notice, call_id: int) -> PodEvent | None:
    """The call for a notice; None while the pod has no name."""
    if not one.pod_uid:
        return _call_on(one, call_id, OF_NODE, "", "")
    spec = state.pods.specs.get(one.pod_uid)
    sandbox_id = state.pods.sandbox_of.get(one.pod_uid)
    home = spec.spec if spec is not None else state.pods.sandboxes[sandbox_id].sandbox if sandbox_id else None
    if home is None or not home.name or not home.namespace:
        return None
    field = ""
    if one.container:
        found = next((c for c in spec.spec.containers if c.name == one.container), None) if spec is not None else None
        group = _FIELDS.get(found.role, "containers") if found is not None else ""
        field = f"spec.{group}{{{one.container}}}" if group else ""
    return _call_on(one, call_id, home.namespace, home.name, field)


def _call_on(one: Notice, call_id: int, namespace: str, pod: str, field: str) -> PodEvent:
    return PodEvent(
        id=call_id,
        series=one.series or call_id,
        namespace=namespace,
        pod=pod,
        pod_uid=str(one.pod_uid),  # a static pod's hash, by which kubelet and kubectl tell of a mirror pod
        container=one.container,
        field_path=field,
        reason=one.reason,
        count=one.count,
        first_ns=one.first_ns,
        last_ns=one.last_ns,
    )


_OF_PODS: Mapping[type[ev.Event], Hear[State]] = {
    ev.Reached: _reached,
    ev.Created: lambda state, event: (_begun(state, event), NOTHING),
    ev.Started: lambda state, event: (_begun(state, event), NOTHING),
    ev.Hooked: lambda state, event: (_begun(state, event), NOTHING),
    ev.Listed: _listed,
    ev.CgroupsFound: lambda state, event: (_newcomers(state, (one.id for one in event.found)), NOTHING),
    ev.Stopped: lambda state, event: (_gone(state.notices, event.container.id), NOTHING),
    ev.Removed: lambda state, event: (_gone(state.notices, event.container_id), NOTHING),
}
HEARS: Mapping[type[ev.Event], Hear[State]] = {
    SettingsChanged: _settings,
    ev.CallEnded: _call_ended,
    ev.KeysRead: _for_node(),
    ev.KeysHeld: _for_node(),
    ev.GrantsRecalled: _for_node(),
    ev.Sampled: _for_node(_of_sample),
    **{kind: _for_pods(hear) for kind, hear in _OF_PODS.items()},
}
