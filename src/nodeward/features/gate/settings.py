"""The settings of gates."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.gating import MOST_WAIT_S, GateAt
from nodeward.core.modes import Mode


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The feature `gate`: its conditions are met before a pod starts, docs/gate.md. `mode`: off; observe, which
    decides and says; enforce, which also refuses. `handlers`: by runtime handler the conditions of its pods, of key,
    quotes and verdict. `at`: what the relay holds, a sandbox or a container. `wait_s`: for so long. `uids`: the users
    whose processes may set verdicts."""

    mode: Mode = Mode.OFF
    handlers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    at: GateAt = GateAt.SANDBOX
    wait_s: float = MOST_WAIT_S
    uids: tuple[int, ...] = (0,)
