"""The state of gates: which pods have one, and the verdicts on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.gating import Gated, Verdict
from nodeward.core.workload import PodUid


@dataclass(frozen=True, slots=True)
class AtGate:
    """A pod whose start asked at its gate, and when last (by sequence number)."""

    pod: Gated
    seq: int


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict, and when the engine heard of it (by sequence number)."""

    verdict: Verdict
    seq: int


@dataclass(frozen=True, slots=True)
class Gate:
    """Slice of the feature `gate`, by the UIDs that the runtime uses. An entry ends with the pod."""

    pods: Mapping[PodUid, AtGate] = field(default_factory=dict)
    verdicts: Mapping[PodUid, Said] = field(default_factory=dict)
    refused: int = 0
    """Creates that were refused, or in mode observe would have been."""
    fault: str = ""
    """Why the verdicts of an earlier life of the daemon are not known."""
