"""What a NodeResourceTopology object tells a scheduler of the node's CPUs: zones, each with amounts and a few words."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CpuAmount:
    """In thousandths of a CPU. `allocatable_m`: what containers can get of `capacity_m` at most; `available_m`: what
    they still can."""

    capacity_m: int
    allocatable_m: int
    available_m: int


@dataclass(frozen=True, slots=True)
class Zone:
    """CPUs that belong together: by the machine, or by the policy. `cpu` is None where it has none. `costs` are
    distances to zones, by name."""

    name: str
    type: str
    cpu: CpuAmount | None = None
    parent: str = ""
    costs: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeZones:
    """All of them, those of the machine first. Without a zone there is nothing to tell, and no object."""

    zones: tuple[Zone, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
