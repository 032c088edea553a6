"""Gates of pods: which conditions hold a pod's start, and what is known of each.

Exists so that the engine, the relay and the settings share these words. Times are nanoseconds of the wall clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from nodeward.core.annotations import GATE

CONDITIONS = ("key", "quotes", "verdict")
"""`key`: the pod has the TEE keys that its spec asks for, by `keys`. `quotes`: the services that make quotes for
these answer. `verdict`: SetGate said PASSED for this pod, and that has not expired."""
MOST_WAIT_S = 5.0
MOST_HANDLERS = 64
MOST_WORDS = 16
"""In the annotation."""


class GateAt(Enum):
    """Which call of kubelet's the relay holds."""

    SANDBOX = "sandbox"
    """RunPodSandbox: not even the VM starts."""
    CONTAINER = "container"
    """CreateContainer: the VM runs and may prove what it is; no container of the pod exists."""


@dataclass(frozen=True, slots=True)
class Gated:
    """A pod with a gate: its conditions, in the order of CONDITIONS, and in `fault` why what it asks for itself cannot
    be read, which keeps the gate shut."""

    uid: str
    namespace: str
    name: str
    conditions: tuple[str, ...]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of SetGate on one pod. `by`: the user whose process said it. `expires_ns` is 0 for never."""

    passed: bool
    reason: str = ""
    evidence_digest: str = ""
    by: int = 0
    at_ns: int = 0
    expires_ns: int = 0


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of one condition; `why` says what it waits for."""

    name: str
    open: bool
    why: str = ""


def gated(
    handlers: Mapping[str, tuple[str, ...]], handler: str, notes: Mapping[str, str], pod: tuple[str, str, str]
) -> Gated | None:
    """The gate of a pod (UID, namespace, name) with this runtime handler and these annotations, None for none. Its
    annotation adds to what the settings ask, and takes nothing away."""
    words, fault = list(handlers.get(handler, ())), ""
    if GATE in notes:
        asked = [word.strip() for word in notes[GATE].split(",", MOST_WORDS)]
        wrong = [number for number, word in enumerate(asked, 1) if word not in CONDITIONS]
        words += asked
        if wrong:  # its value is not shown: annotations may hold anything
            fault = f"annotation {GATE}: word {wrong[0]} is no condition; write one or more of {listed()}, with commas"
    return Gated(*pod, in_order(words), fault) if words or fault else None


def in_order(words: Iterable[str]) -> tuple[str, ...]:
    """Those of the words that are conditions, each once."""
    asked = tuple(words)
    return tuple(name for name in CONDITIONS if name in asked)


def listed() -> str:
    """The conditions that there are, for people."""
    return ", ".join(CONDITIONS)


def refusal(pod: Gated, why: str) -> str:
    """The message for the caller that starts a pod while its gate is shut."""
    return f"{pod.namespace}/{pod.name}: its gate is shut: {why}. It is tried again; see nodeward explain"
