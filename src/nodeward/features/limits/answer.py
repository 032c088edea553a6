"""The answer to a runtime that creates or updates a container."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.decision import Adjustment, Decision, Final
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason
from nodeward.core.tables import put, without
from nodeward.core.workload import Amounts
from nodeward.features.limits.grant import refusal, settable
from nodeward.features.limits.settings import Unsupported
from nodeward.features.limits.state import Limits
from nodeward.features.limits.want import container_promise, given_to
from nodeward.features.pods.state import KnownContainer
from nodeward.features.root import State


def answer(state: State, event: ev.Asked) -> tuple[Limits, Decision]:
    """The adjustment with the whole current `misc.max`, or a refusal where a setting asks for one.

    Nothing is wanted yet: the cgroup is there once the container is created, and is reconciled then.
    """
    known = state.pods.container(event.container.id)
    if known is None:  # the feature pods has failed on this event: the limits stand on the event alone
        known = KnownContainer(event.container, event.sandbox.pod_uid, event.seq, event.at_ns)
    found = container_promise(state, known)
    rule, by_hook = state.settings.limits, False
    if isinstance(event, ev.Creating):
        by_hook = event.by_hook
        if rule.mode is Mode.ENFORCE and (found.refuse or rule.unsupported is Unsupported.REFUSE):
            who = f"{event.sandbox.namespace}/{event.sandbox.name}, container {event.container.name}"
            refused = refusal(rule, state.limits.capacity, found, who)
            if refused is not None:
                return state.limits, Decision(Final(refused, Reason("refused", (refused.message,))))
    released = () if isinstance(event, ev.Creating) else _released(state, known, found.values)
    given = _given(state, found.values, released, whole=by_hook)
    return _remembered(state.limits, event, tuple(given)), Decision(_adjusted(given, found.reason))


def leaves_rest(state: State) -> bool:
    """Whether a container can be wanted more limits than the answer to its create carries: the runtime is told one of
    several, or none with cgroup v1. Whatever the mode is: settings may change before the runtime is met again."""
    limits = state.limits
    if limits.tree.version == 1:
        return True
    names = dict.fromkeys(state.settings.limits.resources.values())
    here = [name for name in names if not limits.controller or limits.capacity.get(name, 0) > 0]
    return len(here) > 1 and not state.pods.multi_line


def _released(state: State, known: KnownContainer, values: Amounts) -> Iterable[str]:
    """What the runtime or we may have limited and is wanted no more: an update that does not say so brings it back."""
    before = state.limits.wanted.get(known.container.cgroups_path)
    had = (*before.given, *before.taken_back, *before.values) if before is not None else ()
    had += given_to(state, known.container.id, values)
    return [name for name in dict.fromkeys(had) if name not in values]


def _adjusted(given: Mapping[str, str], reason: Reason) -> Final:
    unified = {"misc.max": "\n".join([f"{name} {value}" for name, value in given.items()])} if given else {}
    return Final(Adjustment(unified), reason)


def _remembered(limits: Limits, event: ev.Asked, told: tuple[str, ...]) -> Limits:
    """What the runtime was told, until the container's cgroup is wanted something of: it may have to be taken back."""
    container_id = event.container.id
    before = limits.wanted.get(event.container.cgroups_path)
    if before is not None:
        told = tuple(name for name in told if name not in before.given)
    if told:
        return replace(limits, answered=put(limits.answered, container_id, told))
    if container_id in limits.answered:
        return replace(limits, answered=without(limits.answered, (container_id,)))
    return limits


def _given(state: State, values: Amounts, released: Iterable[str] = (), whole: bool = False) -> Mapping[str, str]:
    """What the runtime's `misc.max` is to say: only of resources this kernel has, never a name it would refuse; `max`
    of those `released`, since no word of them would let the runtime write again what it remembers.

    One for runtimes that write the whole value at once (runc before 1.2); the rest is written directly later, but
    `whole` for the OCI hook, which writes by itself. None for a runtime with cgroup v1, where it refuses containers
    with unified values: all is written directly.
    """
    rule = state.settings.limits
    if rule.mode is not Mode.ENFORCE or (state.limits.tree.version == 1 and not whole):
        return {}
    given = {name: str(value) for name, value in settable(rule, state.limits.capacity, values).items()}
    given |= {name: "max" for name in released if state.limits.capacity.get(name, 0) > 0}
    if whole or state.pods.multi_line or len(given) < 2:
        return given
    first = next(iter(given))
    return {first: given[first]}
