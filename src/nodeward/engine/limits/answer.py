"""What the runtime is told when it creates or updates a container."""

from collections.abc import Mapping

from nodeward.engine.limits.grant import refusal, settable
from nodeward.engine.limits.want import container_promise
from nodeward.engine.state import KnownContainer, Limits, State
from nodeward.engine.tables import put, without
from nodeward.model import events as ev
from nodeward.model.decision import Adjustment, Decision, Final, Reason
from nodeward.model.settings import Mode
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
        who = f"{event.sandbox.namespace}/{event.sandbox.name}, container {event.container.name}"
        refused = refusal(state.settings.limits, state.limits.capacity, found, who)
        if refused is not None:
            return state.limits, Decision(Final(refused, Reason("refused", (refused.message,))))
    text = misc_max(state, found.values, whole=isinstance(event, ev.Creating) and event.by_hook)
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


def misc_max(state: State, values: Amounts, whole: bool = False) -> str:
    """The `misc.max` value for the runtime: only resources this kernel has, never a name it would refuse.

    One line for runtimes that write the whole value at once (runc before 1.2); the rest is written directly later.
    """
    given = settable(state.settings.limits, state.limits.capacity, values)
    lines = [f"{name} {value}" for name, value in given.items()]
    return "\n".join(lines if whole or state.pods.multi_line else lines[:1])
