"""The settings of gates."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodeward.core.gating import MOST_WAIT_S, GateAt
from nodeward.core.modes import Mode
from nodeward.core.setting import setting, table


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The feature `gate`: conditions that are met before a pod starts (docs/pods.md)."""

    mode: Mode = setting(
        Mode.OFF,
        "Pods that start once their conditions are met: `observe`: decide and say; `enforce`: also refuse; `off`: "
        "neither.",
    )
    handlers: Mapping[str, tuple[str, ...]] = table(
        dict, "The conditions of a handler's pods: `HANDLER: [key, quotes, verdict]`."
    )
    at: GateAt = setting(
        GateAt.SANDBOX,
        "The call that is held: `sandbox`: RunPodSandbox; `container`: CreateContainer, if the VM must run to prove "
        "what it is.",
    )
    wait_s: float = setting(
        MOST_WAIT_S,
        "The relay holds a call this many seconds, then refuses; kubelet tries again.",
        0,
        MOST_WAIT_S,
        "seconds",
    )
    uids: tuple[int, ...] = setting(
        (0,), "The users who may set verdicts, 1 to 64. All but root must be in `podapi.uids` too."
    )
