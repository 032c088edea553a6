"""What the runtime is told when it creates or updates a container."""

from collections.abc import Mapping

from nodeward.engine.limits.want import container_promise, resource_names
from nodeward.engine.state import KnownContainer, Limits, State
from nodeward.engine.tables import put, without
from nodeward.model import events as ev
from nodeward.model.decision import Adjustment, Decision, Final, Reason, Refusal
from nodeward.model.settings import Mode, Unsupported
from nodeward.model.workload import Amounts


def answer(state: State, event: ev.Asked) -> tuple[Limits, Decision]:
    """The adjustment with the whole current `misc.max`, or a refusal where a setting asks for one.

    Nothing is wanted yet: the cgroup is there once the container is created, and is reconciled then.
    """
    known = state.pods.container(event.container.id)
    if known is None:  # the domain pods has failed on this event: the limits stand on the event alone
        known = KnownContainer(event.container, event.sandbox.pod_uid, event.seq, event.at_ns)
    found = container_promise(state, known)
    enforce = state.settings.limits.mode is Mode.ENFORCE
    creating = isinstance(event, ev.Creating)
    if enforce and creating:
        refusal = _refusal(state, event, found.values, found.refuse)
        if refusal is not None:
            return state.limits, Decision(Final(refusal, Reason("refused", (refusal.message,))))
    text = misc_max(state, found.values)
    unified = {"misc.max": text} if text and enforce else {}
    return _remembered(state.limits, event, unified), Decision(Final(Adjustment(unified), found.reason))


def _remembered(limits: Limits, event: ev.Asked, unified: Mapping[str, str]) -> Limits:
    """What the runtime was told, until the container's cgroup is wanted something of: it may have to be taken back."""
    container_id = event.container.id
    if event.container.cgroups_path in limits.wanted:
        return limits
    if unified:
        given = tuple(line.partition(" ")[0] for line in unified["misc.max"].split("\n"))
        return limits.with_answered(put(limits.answered, container_id, given))
    if container_id in limits.answered:
        return limits.with_answered(without(limits.answered, (container_id,)))
    return limits


def misc_max(state: State, values: Amounts) -> str:
    """The `misc.max` value for the runtime: only resources this kernel has, never a name it would refuse.

    One line for runtimes that write the whole value at once (runc before 1.2); the rest is written directly later.
    """
    lines = [f"{name} {value}" for name, value in _in_order(state, values) if state.limits.capacity.get(name, 0) > 0]
    return "\n".join(lines if state.pods.multi_line else lines[:1])


def _in_order(state: State, values: Amounts) -> list[tuple[str, int]]:
    """As the settings name them, then by name: where only one can be told, it is the same one each time."""
    if len(values) < 2:
        return list(values.items())
    return [(name, values[name]) for name in dict.fromkeys((*resource_names(state), *sorted(values))) if name in values]


def _refusal(state: State, event: ev.Asked, values: Amounts, unknown: bool) -> Refusal | None:
    name = f"{event.sandbox.namespace}/{event.sandbox.name}, container {event.container.name}"
    if unknown:
        return Refusal(
            f"{name}: nobody knows this pod, and limits.unknown_pod is refuse. Check that the API server answers "
            "(nodeward status), or set limits.unknown_pod to unlimited or zero."
        )
    if state.settings.limits.unsupported is not Unsupported.REFUSE:
        return None
    for resource, value in _in_order(state, values):
        if value > 0 and state.limits.capacity.get(resource, 0) == 0:
            return Refusal(
                f"{name}: declares {value} of {resource}, which this kernel cannot limit (not in misc.capacity), and "
                "limits.unsupported is refuse. Use a kernel with this resource, or set limits.unsupported to "
                "allow-unenforced."
            )
    return None
