"""Whether a pod's gate is open: each condition by itself, from what the engine knows. Pure.

Whatever is not known keeps the gate shut, with the reason.
"""

from collections.abc import Iterator

from nodeward.core.gating import Condition, Gated, Verdict, listed
from nodeward.core.modes import Mode
from nodeward.core.workload import PodSpec, PodUid
from nodeward.features.keys.kubelet_view import held_ids, promised, versions
from nodeward.features.keys.settings import Attestation
from nodeward.features.keys.sums import counted, is_offered
from nodeward.features.root import State

_KEYS_OFF = "keys.mode is off, so nothing is known of keys and quotes: set it to observe or enforce"


def conditions(state: State, pod: Gated, wall_ns: int) -> tuple[Condition, ...]:
    """The state of each of the pod's conditions. A pod that was denied has the verdict among them in any case."""
    names = pod.conditions
    if "verdict" not in names and is_denied(state, pod.uid):
        names = (*names, "verdict")
    return tuple(Condition(name, not why, why) for name in names for why in (_why(state, pod, name, wall_ns),))


def shut(state: State, pod: Gated, wall_ns: int) -> str:
    """Why the pod must not start now; empty where its gate is open."""
    closed = [f"{one.name}: {one.why}" for one in conditions(state, pod, wall_ns) if not one.open]
    return "; ".join([*([pod.fault] if pod.fault else []), *closed])


def is_denied(state: State, uid: str) -> bool:
    """Whether it will never start."""
    said = state.gate.verdicts.get(PodUid(uid))
    return said is not None and not said.verdict.passed


def is_over(verdict: Verdict, wall_ns: int) -> bool:
    """Whether it has expired."""
    return bool(verdict.expires_ns) and wall_ns >= verdict.expires_ns


def _why(state: State, pod: Gated, name: str, wall_ns: int) -> str:
    match name:
        case "verdict":
            return _no_verdict(state, pod.uid, wall_ns)
        case "key":
            return _KEYS_OFF if _is_off(state) else "; ".join(_no_key(state, pod.uid))
        case "quotes":
            return _KEYS_OFF if _is_off(state) else "; ".join(_no_quotes(state, pod.uid))
        case _:
            return f"is no condition of this version; those are {listed()}"


def _is_off(state: State) -> bool:
    return state.settings.keys.mode is Mode.OFF


def _no_verdict(state: State, uid: str, wall_ns: int) -> str:
    said = state.gate.verdicts.get(PodUid(uid))
    if said is None:
        lost = f" (verdicts of before are lost: {state.gate.fault})" if state.gate.fault else ""
        return f"no verdict was set yet{lost}"
    verdict = said.verdict
    because = f" ({verdict.reason})" if verdict.reason else ""
    if not verdict.passed:
        return f"DENIED{because}, which is final for this pod"
    return f"PASSED{because} has expired: set it anew" if is_over(verdict, wall_ns) else ""


def _no_key(state: State, uid: str) -> Iterator[str]:
    """What the pod lacks of the keys that it asks for. Ids are kubelet's to give where a device plugin offers the
    resource; of a resource that only the scheduler counts, the pod has what its spec says while no more is promised
    than there is."""
    told = versions(state).get(PodUid(uid))
    if told is None:
        yield "the pod's spec is not known yet"
        return
    view = state.keys.held
    asks = False
    for key, kind in state.settings.keys.kinds.items():
        for resource in kind.resources:
            need = promised(told, state.settings.words([resource]))
            if not need:
                continue
            asks, sums = True, counted(state, key)
            if (view is not None and resource in view.registered) or (
                is_offered(state, key) and resource == kind.publish
            ):
                have = len(held_ids(state, resource).get(PodUid(uid), ()))
                free = f", {sums.free} of {sums.capacity} are free beside what was promised" if sums is not None else ""
                if have < need:
                    yield f"kubelet has given it {have} of {need} {resource}{free}"
            elif sums is None:
                yield f"how many keys of {key} are in use is not known"
            elif sums.entitled > sums.capacity:
                yield f"{sums.entitled} keys of {key} are promised and there are {sums.capacity}: none is free"
    if not asks:
        yield "its spec asks for no TEE key"


def _no_quotes(state: State, uid: str) -> Iterator[str]:
    """Which services do not answer: those of the keys that the pod asks for, else all that are asked."""
    rows = state.settings.keys.kinds
    told = versions(state).get(PodUid(uid), ())
    own = [key for key, kind in rows.items() if _asks(state, told, kind.resources)]
    watched = [key for key in own or rows if rows[key].attestation is not Attestation.OFF]
    if not watched:
        key = next(iter(own or rows), "KEY")
        yield f"nobody asks a service that makes quotes: set keys.kinds.{key}.attestation"
    for key in watched:
        said = state.keys.quotes.get(key)
        if said is None or not said.answers:
            why = (said.why if said is not None else "") or "it has not answered yet"
            yield f"the service at {rows[key].attestation_socket} does not answer ({why})"


def _asks(state: State, told: tuple[PodSpec, ...], resources: tuple[str, ...]) -> bool:
    return bool(told and promised(told, state.settings.words(resources)))
