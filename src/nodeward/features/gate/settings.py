"""The settings of gates."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.gating import MOST_WAIT_S, GateAt
from nodeward.core.modes import Mode


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The feature `gate`: conditions that are met before a pod starts (docs/gate.md)."""

    mode: Mode = Mode.OFF
    handlers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    at: GateAt = GateAt.SANDBOX
    wait_s: float = MOST_WAIT_S
    uids: tuple[int, ...] = (0,)
