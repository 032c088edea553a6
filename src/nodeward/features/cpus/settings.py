"""The settings of the feature `cpus`: the section `policy` says which CPUs containers get, in CRI Resource Manager's
words; the section `cpus` says how that is carried out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.cpuset import CpuSet, text
from nodeward.core.modes import Mode, OnError
from nodeward.core.setting import setting, table
from nodeward.features.cpus.pool_settings import (
    BalloonsSettings,
    ClaimsSettings,
    DynamicPoolsSettings,
    PodpoolsSettings,
    StaticPoolsSettings,
    TopologyAwareSettings,
)


class Driver(Enum):
    """Who carries the decisions to the runtime."""

    NRI = "nri"
    RELAY = "relay"


MOST_LATE_MS: Mapping[Driver, int] = {Driver.NRI: 1000, Driver.RELAY: 4000}
"""The largest `late_ms`: the transport answers a runtime, or kubelet, at the latest after so long."""


class OnLate(Enum):
    """What happens to a container whose own CPUs are not free of others in time."""

    START = "start"
    REFUSE = "refuse"


class MemoryNodes(Enum):
    """Which NUMA nodes' memory a container may use: any; by the policy's `pinMemory`, if it has that; always those of
    its CPUs, unless `pinMemory` is false."""

    OFF = "off"
    POLICY = "policy"
    FOLLOW = "follow"


class AmountKind(Enum):
    """How an amount of CPUs is given."""

    NONE = "none"
    CPUSET = "cpuset"
    EXCLUDE = "exclude-cpuset"
    QUANTITY = "quantity"


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of CPUs as CRI Resource Manager and nri-plugins write it (`reference`: `cpuset:0-3`, `750m`, `2`)."""

    kind: AmountKind = AmountKind.NONE
    cpus: CpuSet = 0
    """For CPUSET and EXCLUDE."""
    milli: int = 0
    """For QUANTITY, in thousandths of a CPU."""

    def __str__(self) -> str:
        """As settings have it; empty for none."""
        match self.kind:
            case AmountKind.NONE:
                return ""
            case AmountKind.QUANTITY:
                return f"{self.milli}m" if self.milli % 1000 else str(self.milli // 1000)
            case kind:
                return f"{kind.value}:{text(self.cpus)}"


STATIC_OPTIONS: Mapping[str, str] = {
    "full-pcpus-only": "whole cores only: requests that are no multiple of a core's threads are refused",
    "strict-cpu-reservation": "the reserved CPUs are not among those that others share",
    "prefer-align-cpus-by-uncorecache": "CPUs of one uncore cache where that can be",
    "distribute-cpus-across-numa": "where one NUMA node is not enough, evenly over several",
    "align-by-socket": "with distribute-cpus-across-numa, CPUs of one socket where one has enough",
    "distribute-cpus-across-cores": "threads of different cores rather than whole cores",
}
"""Kubelet's CPU manager policy options that the policy `static` has, and what each means."""


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """The settings of the policy `static`."""

    relaxed_isolation: bool = setting(
        False, "`true`: containers with CPUs of their own get kernel-isolated CPUs if there are enough."
    )
    options: Mapping[str, bool] = table(
        dict,
        'Options of kubelet\'s CPU manager, such as `full-pcpus-only: "true"`. Each is explained by '
        "`nodeward cpus policies show static`.",
    )


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """Which CPUs containers get. `active`: the policy's name. `available`: the CPUs that
    containers may have at all; `reserved`: those kept for the system, as `cpuset:0,32` or as a number of CPUs."""

    active: str = setting("none", "The policy; `nodeward cpus policies list` lists them. Also `Active`.")
    available: Amount = table(
        Amount,
        "The CPUs for containers: `cpuset:0-7` or `exclude-cpuset:0`. Empty: all online. Also `AvailableResources: "
        "{CPU: ...}`.",
    )
    reserved: Amount = table(
        Amount,
        "The CPUs for the system: `cpuset:0,32`, or how many (`2`; `750m` is one). Also `ReservedResources: {CPU: "
        "...}`.",
    )
    static: StaticSettings = field(default_factory=StaticSettings)
    balloons: BalloonsSettings = field(default_factory=BalloonsSettings)
    podpools: PodpoolsSettings = field(default_factory=PodpoolsSettings)
    static_pools: StaticPoolsSettings = field(default_factory=StaticPoolsSettings)
    dynamic_pools: DynamicPoolsSettings = field(default_factory=DynamicPoolsSettings)
    topology_aware: TopologyAwareSettings = field(default_factory=TopologyAwareSettings)
    claims: ClaimsSettings = field(default_factory=ClaimsSettings)
    pod_resources: bool = setting(
        False,
        "Whether kubelet's PodResources is asked which devices a new container has, so that `topology-aware` places it "
        "near them. Also `agent.podResourceAPI` of a policy object.",
    )


@dataclass(frozen=True, slots=True)
class CpuClaims:
    """CPUs by claim (Dynamic Resource Allocation), Kubernetes 1.36 or newer: for the policy `claims`."""

    mode: Mode = setting(
        Mode.OFF,
        "`enforce`: publish the node's CPUs to the scheduler, and prepare claims; `off` and `observe`: do not.",
    )
    driver: str = setting("cpus.nodeward.io", "The driver's name, which the DeviceClass has.")


@dataclass(frozen=True, slots=True)
class CpusSettings:
    """The feature `cpus`: how the policy is carried out."""

    mode: Mode = setting(Mode.ENFORCE, "`enforce` the policy's CPUs; `observe`: decide and show only; `off`: neither.")
    driver: Driver = setting(
        Driver.NRI,
        "What sends the decisions to the runtime: `nri` (needs `nri.enabled`), or `relay`, for a runtime without NRI "
        "(needs `nri.enabled: false`).",
    )
    on_error: OnError = setting(
        OnError.PASS, "As `limits.on_error`, for CPUs; also while no settings of the policy fit the machine."
    )
    on_late: OnLate = setting(
        OnLate.START, "A container whose own CPUs others still use after `cpus.late_ms`: `start` or `refuse` it."
    )
    late_ms: int = setting(
        1000, "How long a program waits for others to leave its CPUs: 1 to 1000 with `nri`, 1 to 4000 with `relay`."
    )
    memory: MemoryNodes = setting(
        MemoryNodes.POLICY,
        "Memory nodes: `follow` the container's CPUs; `policy`: if the policy has `pinMemory: true`; `off`: left as "
        "they are.",
    )
    dra: CpuClaims = field(default_factory=CpuClaims)
    kubevirt_label: bool = setting(
        False,
        '`true`: the node labels by which KubeVirt finds nodes for VMs with `dedicatedCpuPlacement` are `"true"` while '
        "the policy gives such VMs exclusive CPUs, also after KubeVirt resets them.",
    )
