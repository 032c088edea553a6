"""A policy of nri-plugins as an object in the API server: its kinds, the names that mean a node, and what is read."""

from dataclasses import dataclass
from enum import Enum


class PolicyKind(Enum):
    """The kinds of `config.nri` that mean a policy."""

    BALLOONS = "BalloonsPolicy"
    TOPOLOGY_AWARE = "TopologyAwarePolicy"


@dataclass(frozen=True, slots=True)
class Said:
    """What an object's status says of one node. `status` is Success or Failure."""

    status: str
    generation: int
    errors: str = ""


@dataclass(frozen=True, slots=True)
class PolicyObject:
    """An object. `spec` is JSON; `said` is what its status has of this node, None for nothing."""

    kind: PolicyKind
    namespace: str
    name: str
    uid: str
    generation: int
    spec: bytes
    said: Said | None = None

    @property
    def mark(self) -> tuple[str, int]:
        """Another one means another spec: a status alone changes none of it."""
        return self.uid, self.generation

    def __str__(self) -> str:
        return f"{self.kind.value} {self.namespace}/{self.name}, generation {self.generation}"


def names(node: str, group: str) -> tuple[str, ...]:
    """The names that mean this node, the strongest first."""
    return (f"node.{node}", *((f"group.{group}",) if group else ()), "default")
