"""The settings of pods: how long a create waits for its pod's spec."""

from dataclasses import dataclass

from nodeward.core.modes import OnError


@dataclass(frozen=True, slots=True)
class PodsSettings:
    """The feature `pods`: how long a create may wait for a pod that is not known yet."""

    on_error: OnError = OnError.PASS
    wait_ms: int = 200
    wait_budget_ms: int = 1000
