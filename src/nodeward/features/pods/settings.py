"""The settings of pods: how long a create waits for its pod's spec."""

from dataclasses import dataclass

from nodeward.core.modes import OnError
from nodeward.core.setting import setting


@dataclass(frozen=True, slots=True)
class PodsSettings:
    """The feature `pods`: how long a create may wait for a pod that is not known yet."""

    on_error: OnError = setting(OnError.PASS, "As `limits.on_error`, for what is known of pods.")
    wait_ms: int = setting(
        200, "How long one create may wait for a pod that is not known yet.", 0, 1000, "milliseconds"
    )
    wait_budget_ms: int = setting(
        1000,
        "All such waits in any ten seconds. NRI handles one request at a time.",
        0,
        5000,
        "milliseconds",
    )
