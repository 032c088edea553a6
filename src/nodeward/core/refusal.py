"""The reason of a decision, and a refusal. Apart from `core.decision`, since the OCI hook imports them at each start.

`core.decision` has these names too, and is where all others find them.
"""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Reason:
    """Why: a code and values, not prose. `people.explain` turns it into a sentence."""

    code: str
    values: tuple[str | int, ...] = ()


class Refused(Enum):
    """The kind of a refusal."""

    FOR_NOW = "for-now"
    """Trying again here may help."""
    NO_CAPACITY = "no-capacity"
    """The node has not, or cannot limit, what is declared."""
    BAD_VALUE = "bad-value"
    """What is declared cannot be read as an amount."""
    FAULT = "fault"
    """Nodeward failed."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The container must not be created. `message` names container, field, value, rule, remedy."""

    message: str
    kind: Refused = Refused.FOR_NOW
