"""SetGate, and the section `gate` of DescribePod, as the Pod API asks and answers. Flat values, in JSON's words."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.modes import Mode
from nodeward.core.shown import Metric, counter, shows


@dataclass(frozen=True, slots=True)
class GateRow:
    """What became of the calls that a relay held for gates of pods."""

    mode: str = Mode.OFF.value
    counts: Mapping[str, int] = field(default_factory=dict)
    """Held calls by what became of them: `passed`, `refused`, `would-refuse` (mode observe)."""
    last: str = ""
    """The last refusal, in a line."""


@dataclass(frozen=True, slots=True)
class GatedRow:
    """A pod whose start has asked at its gate. `verdict`: PENDING, PASSED, EXPIRED or DENIED; `why` the gate is shut,
    empty where it is open."""

    namespace: str
    pod: str
    uid: str
    verdict: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class GatesView:
    """The gates. `refused`: creates that were refused, in mode observe those that would have been. `fault`: why earlier
    verdicts are not known."""

    mode: str
    rows: tuple[GatedRow, ...] = ()
    refused: int = counter(
        "nodeward_gate_refused_total",
        "Containers refused over NRI at a shut gate; in observe, those it would refuse.",
        default=0,
    )
    fault: str = ""

    @property
    @shows(Metric("nodeward_gate_pods", "Pods that asked at their gate: open or shut.", by="state"))
    def pods(self) -> Mapping[str, int]:
        """How many gates are open, and how many shut."""
        shut = sum(bool(row.why) for row in self.rows)
        return {"open": len(self.rows) - shut, "shut": shut}


PASSED, DENIED = "PASSED", "DENIED"


@dataclass(frozen=True, slots=True)
class SetGateRequest:
    """The verdict on a pod, which is named by its UID, or by namespace and name. `verdict` is PASSED or DENIED, and
    DENIED is final for the UID. `evidence_digest`: what was verified, as the verifier names it. `expires_s`: for so
    many seconds, 0 for as long as the pod is there; DENIED does not expire."""

    verdict: str
    uid: str = ""
    namespace: str = ""
    name: str = ""
    reason: str = ""
    evidence_digest: str = ""
    expires_s: int = 0


@dataclass(frozen=True, slots=True)
class SetGateResponse:
    """The verdict as it is now on disk. `set_at` and `expires_at` are nanoseconds since 1970, 0 for never."""

    uid: str
    namespace: str
    name: str
    verdict: str
    set_at: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class GateCondition:
    """One condition of the pod's gate; `why` says what it waits for."""

    name: str
    open: bool
    why: str


@dataclass(frozen=True, slots=True)
class PodGate:
    """A pod's gate. `verdict` is PENDING, PASSED, EXPIRED or DENIED; `set_by` the user whose process said it, -1 for
    nobody. Times are nanoseconds since 1970, 0 for never."""

    mode: str
    open: bool
    conditions: tuple[GateCondition, ...]
    verdict: str
    reason: str
    evidence_digest: str
    set_by: int
    set_at: int
    expires_at: int
