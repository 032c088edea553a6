"""Remembers for a while (LATELY_NS) what happened and is over, so that the verdict can say it.

A counter says how often, and not when. This compares the state before and after one event. It decides nothing, answers
nobody, and keeps at most MOST entries.
"""

from collections.abc import Iterator
from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.decision import Decision, Final
from nodeward.core.quantity import binary_text
from nodeward.core.refusal import Refusal, Refused
from nodeward.core.times import LATELY_NS
from nodeward.core.vms import Place
from nodeward.core.workload import PodUid
from nodeward.features.keys.kubelet_view import home
from nodeward.features.lately.state import Happening
from nodeward.features.root import State

NOTES = (ev.Sampled, ev.StartLate, ev.CpusetsRead, ev.VmsRead)
"""The events by which something happens that is neither a refusal nor a fault."""
MOST = 256
"""So many entries are kept; what is beyond is counted under no pod's name."""
MOST_WHY = 300
_Found = tuple[str, str, int, str]
"""Code, pod, how many times, why."""


def noted(before: State, after: State, event: ev.Event, decision: Decision) -> State:
    """The state after `event` with what happened by it; the same object where nothing did."""
    table: dict[str, Happening] | None = None
    for code, pod, count, why in _found(before, after, event, decision):
        if table is None:
            table = {key: one for key, one in after.lately.items() if event.at_ns - one.last_ns <= LATELY_NS}
        key = f"{code}/{pod}"
        if key not in table and len(table) >= MOST:
            key, pod = f"{code}/", ""
        known = table.pop(key, None)  # the newest is the last
        first_ns, so_far = (known.first_wall_ns, known.count) if known is not None else (event.wall_ns, 0)
        table[key] = Happening(code, pod, so_far + count, first_ns, event.wall_ns, event.at_ns, why[:MOST_WHY])
    return after if table is None else replace(after, lately=table)


def _found(before: State, after: State, event: ev.Event, decision: Decision) -> Iterator[_Found]:
    yield from _refused(before, after, event, decision)
    for fault in decision.faults:
        yield "faults", "", 1, f"{fault.feature}: {fault.error}"
    if after.cpus is not before.cpus:
        yield from _of_cpus(before, after, event)
    if isinstance(event, ev.Sampled):
        yield from _charges(before, after, event)
        for note in decision.notes:
            if note.code == "drift" and (wanted := after.limits.wanted.get(str(note.values[0]))) is not None:
                yield "drift", _name(after, wanted.pod_uid), 1, "its limit was changed by another program"
    if after.sandboxes.vms is not before.sandboxes.vms:
        yield from _kills(before, after)


def _refused(before: State, after: State, event: ev.Event, decision: Decision) -> Iterator[_Found]:
    answer = decision.answer
    if not isinstance(answer, Final) or not isinstance(answer.value, Refusal) or answer.reason.code == "gate":
        return  # a shut gate is a condition of its own while it is shut
    ask = before.asks.get(event.ask_id) if isinstance(event, ev.News) else None
    match ask.question if ask is not None else event:
        case ev.Creating(sandbox=sandbox) | ev.Updating(sandbox=sandbox):
            pod = f"{sandbox.namespace}/{sandbox.name}" if sandbox.name else _name(after, sandbox.pod_uid)
            yield "refused", pod, 1, answer.value.message
        case ev.Preparing(claim=claim) if answer.value.kind is not Refused.NO_CAPACITY:  # else its pod waits
            yield (
                "keys-refused",
                next((f"{claim.namespace}/{name}" for name in claim.pods.values()), ""),
                1,
                (answer.value.message),
            )
        case ev.Allocating() | ev.Starting():
            yield "keys-refused", "", 1, answer.value.message


def _of_cpus(before: State, after: State, event: ev.Event) -> Iterator[_Found]:
    held = after.cpus.held
    if after.cpus.drifts > before.cpus.drifts:
        keys = [one.key for which, one in held.items() if one is not before.cpus.held.get(which)]
        left = after.cpus.drifts - before.cpus.drifts
        for key in keys[:left]:
            yield "drift", _of_key(after, key), 1, "another program changed its CPUs"
        if left > len(keys):
            yield "drift", "", left - len(keys), "another program changed CPUs of containers"
    if after.cpus.late > before.cpus.late:
        one = held.get(event.container_id) if isinstance(event, ev.StartLate) else None
        yield "late-starts", "" if one is None else _of_key(after, one.key), after.cpus.late - before.cpus.late, ""


def _charges(before: State, after: State, event: ev.Sampled) -> Iterator[_Found]:
    """Charges that a cgroup's own limit refused. Kernels before 6.11 tell a container's only, with what is below."""
    for path, reading in event.readings.items():
        known, wanted = before.limits.readings.get(path), after.limits.wanted.get(path)
        if known is None or wanted is None or known.as_of > event.as_of or known.reading is reading:
            continue
        was, now = known.reading.refusals_local, reading.refusals_local
        if not now and wanted.container_id is not None:
            was, now = known.reading.refusals, reading.refusals
        for resource, count in now.items():
            if count > was.get(resource, 0):
                yield "charges-refused", _name(after, wanted.pod_uid), count - was.get(resource, 0), resource


def _kills(before: State, after: State) -> Iterator[_Found]:
    for sandbox_id, vm in after.sandboxes.vms.items():
        known = before.sandboxes.vms.get(sandbox_id)
        if vm.killed is None or not vm.killed.wall_ns or (known is not None and known.killed == vm.killed):
            continue
        pod, by = after.pods.sandboxes.get(sandbox_id), vm.killed
        above = vm.reading.cgroup(Place.POD)
        where = "its pod" if above is not None and above.path == by.path else by.path
        why = "" if by.limit is None else f"the limit of {where} is {binary_text(by.limit)}"
        yield "vm-killed", str(sandbox_id) if pod is None else _name(after, pod.sandbox.pod_uid), by.count, why


def _of_key(state: State, key: str) -> str:
    return _name(state, PodUid(key.rpartition("/")[0]))


def _name(state: State, uid: PodUid) -> str:
    namespace, name = home(state, uid)
    return f"{namespace}/{name}" if name else str(uid)


def lasting(state: State, now_ns: int) -> tuple[Happening, ...]:
    """What happened within LATELY_NS before now, the newest last."""
    return tuple(one for one in state.lately.values() if now_ns - one.last_ns <= LATELY_NS)
