"""The settings of the policies with pools, in CRI Resource Manager's and nri-plugins' words.

Only what Nodeward does is here. What it takes and does not enforce, and what it refuses, is in
`features.cpus.spelling.pools`.
"""

import re
from dataclasses import dataclass
from enum import Enum

from nodeward.core.decision import SchedulingClass
from nodeward.core.setting import setting

CLAIM, CLAIMS = "claim", "claims"
"""The type of a claim's pool, and the policy that has them."""
DEFAULT, RESERVED, SHARED = "default", "reserved", "shared"
"""Types and pools that are there without being written down."""
POD_RESOURCE = "podresourceapi:"
"""Before resources that kubelet has given a container, where a balloon type names devices."""
SYSTEM_NAMESPACE = "kube-system"
"""Its containers run on the reserved CPUs."""


class Priority(Enum):
    """Which CPUs are taken first where a machine has different ones."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    NONE = "none"


class Within(Enum):
    """The part of the machine whose idle CPUs a balloon may also use."""

    NOWHERE = ""
    SYSTEM = "system"
    PACKAGE = "package"
    DIE = "die"
    NUMA = "numa"
    L2CACHE = "l2cache"
    CORE = "core"
    THREAD = "thread"


class PoolLevel(Enum):
    """The level of a pool in the tree of `topology-aware`."""

    SYSTEM = "system"
    PACKAGE = "package"
    DIE = "die"
    NUMA = "numa"
    L3CACHE = "l3cache"


class DevicesBy(Enum):
    """What a device of the policy `claims` stands for: the CPUs of a NUMA node, a socket, or a cache of level 3."""

    NUMA = "numa"
    SOCKET = "socket"
    L3 = "l3"


class ClaimNames(Enum):
    """Whose names devices, attributes and capacity of the policy `claims` have."""

    NODEWARD = "nodeward"
    DRA_DRIVER_CPU = "dra-driver-cpu"


class MemoryType(Enum):
    """The memory type of a NUMA node. As nri-plugins tells them apart: a node with CPUs is DRAM, a small one without is
    HBM, another one PMEM."""

    DRAM = "DRAM"
    HBM = "HBM"
    PMEM = "PMEM"


class CoreType(Enum):
    """The core type of a hybrid machine."""

    ANY = ""
    EFFICIENT = "efficient"
    PERFORMANCE = "performance"


class Creation(Enum):
    """Which components an instance of a composite type is made of."""

    ALL = "all"
    BALANCE = "balance-balloons"


class FillOrder(Enum):
    """Which of several pools a pod goes to."""

    BALANCED = "Balanced"
    PACKED = "Packed"
    FIRST_FREE = "FirstFree"


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition on a container, such as `{key: pod/name, operator: In, values: [a, b]}`."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BalloonType:
    """A type of balloons. 0 for `max_cpus` and `max_balloons` is no limit, -1 for `max_cpus` lets nobody in."""

    name: str = ""
    namespaces: tuple[str, ...] = ()
    match_expressions: tuple[Expression, ...] = ()
    group_by: str = ""
    min_cpus: int = 0
    max_cpus: int = 0
    min_balloons: int = 0
    max_balloons: int = 0
    allocator_priority: Priority = Priority.HIGH
    prefer_new_balloons: bool = False
    prefer_spreading_pods: bool = False
    prefer_per_namespace_balloon: bool = False
    prefer_spread_on_physical_cores: bool | None = None
    """None: as the policy's."""
    allocator_topology_balancing: bool | None = None
    """None: as the policy's."""
    prefer_isol_cpus: bool = False
    prefer_core_type: CoreType = CoreType.ANY
    share_idle_cpus_in_same: Within = Within.NOWHERE
    hide_hyperthreads: bool = False
    components: tuple[str, ...] = ()
    """Names of types; then an instance has no CPUs but theirs."""
    component_creation: Creation = Creation.ALL
    pin_memory: bool | None = None
    """None: as the policy's."""
    memory_types: tuple[MemoryType, ...] = ()
    """Of which its memory is; none means any."""
    scheduling_class: str = ""
    """A name in the policy's `scheduling_classes`; empty for none."""
    prefer_close_to_devices: tuple[str, ...] = ()
    """Paths below /sys or /dev, and `podresourceapi:` before a glob of resources: it has CPUs near these first."""


@dataclass(frozen=True, slots=True)
class BalloonsSettings:
    """The settings of the policy `balloons`."""

    pin_cpu: bool = setting(
        True,
        "Whether containers are held to the CPUs of their balloons. Also `PinCPU`, `pinCPU`, and so for each key "
        "below.",
    )
    reserved_pool_namespaces: tuple[str, ...] = setting(
        (), "Namespaces, besides kube-system, that run in the reserved balloon."
    )
    allocator_topology_balancing: bool = setting(
        False, "`true`: a new balloon is made where most CPUs are free; `false`: where fewest are."
    )
    prefer_spread_on_physical_cores: bool = setting(
        False, "`true`: balloons get the first thread of each core before any second one."
    )
    preserve: tuple[Expression, ...] = setting(
        (), "Expressions: matching containers are left alone. Also `preserve: {matchExpressions: [...]}`."
    )
    balloon_types: tuple[BalloonType, ...] = setting((), "The types of balloons.")
    pin_memory: bool = setting(
        True, "Whether new containers are held to the memory near their CPUs; see `cpus.memory`."
    )
    scheduling_classes: tuple[SchedulingClass, ...] = setting((), "How the kernel schedules containers of a type.")


def devices_named(rules: BalloonsSettings) -> tuple[str, ...]:
    """The paths of devices that types want to be near to."""
    named = (one for kind in rules.balloon_types for one in kind.prefer_close_to_devices)
    return tuple(dict.fromkeys(one for one in named if not one.startswith(POD_RESOURCE)))


@dataclass(frozen=True, slots=True)
class ClassOf:
    """The scheduling class of a namespace, or of a QoS class."""

    name: str = ""
    scheduling_class: str = ""


@dataclass(frozen=True, slots=True)
class TopologyAwareSettings:
    """The settings of the policy `topology-aware`."""

    pin_cpu: bool = setting(True, "Whether containers are held to the CPUs of their pools.")
    pin_memory: bool = setting(
        True, "Whether new containers are held to the memory near their CPUs; see `cpus.memory`."
    )
    prefer_isolated_cpus: bool = setting(
        False, "`true`: the one exclusive CPU of a request below two is a kernel-isolated one, if one is free."
    )
    prefer_shared_cpus: bool = setting(False, "`true`: no container has exclusive CPUs unless its annotation says so.")
    colocate_pods: bool = setting(False, "Whether containers of a pod are placed near one another.")
    colocate_namespaces: bool = setting(False, "The same for containers of a namespace.")
    reserved_pool_namespaces: tuple[str, ...] = setting(
        (), "Namespaces, besides kube-system, that run on the reserved CPUs; patterns such as `infra-*`."
    )
    default_cpu_priority: Priority = setting(
        Priority.NONE, "Which cores exclusive CPUs are of first: `high`, `normal`, `low` or `none`."
    )
    unlimited_burstable: PoolLevel = setting(
        PoolLevel.PACKAGE,
        "How large a pool Burstable containers without a CPU limit get: `system`, `package`, `die`, `numa` or "
        "`l3cache`.",
    )
    scheduling_classes: tuple[SchedulingClass, ...] = setting((), "How the kernel schedules containers of a class.")
    namespace_scheduling_classes: tuple[ClassOf, ...] = setting(
        (), "The scheduling class of each namespace, as `{web: fast}`."
    )
    pod_qos_scheduling_classes: tuple[ClassOf, ...] = setting(
        (), "The scheduling class of each QoS class, as `{guaranteed: fast}`; a namespace's comes first."
    )
    affinity_labels: tuple[str, ...] = setting(
        ("app", "app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"),
        "Labels of pods that annotations of affinity may name; no others are read.",
    )


@dataclass(frozen=True, slots=True)
class PodPool:
    """Pools of one size. `instances`: how many, as `2`, `7 cpus` or `50%`; `max_pods`: in each of them, 0 for any."""

    name: str = ""
    cpu: int = 0
    max_pods: int = 0
    instances: str = ""
    fill_order: FillOrder = FillOrder.BALANCED


_INSTANCES = re.compile(r"([0-9]{1,4}) *(cpus?|%)?", re.ASCII | re.IGNORECASE)


def instances(text: str, cpu: int, free: int) -> int | None:
    """How many pools of so many CPUs `PodPool.instances` means where so many are free; None where it says no number."""
    found = _INSTANCES.fullmatch(text.strip() or "1")
    if found is None:
        return None
    number, unit = int(found[1]), (found[2] or "").lower()
    return free * number // 100 // cpu if unit == "%" else number // cpu if unit else number


@dataclass(frozen=True, slots=True)
class PodpoolsSettings:
    """The settings of the policy `podpools`."""

    pin_cpu: bool = setting(True, "Whether containers are held to the CPUs of their pools.")
    pools: tuple[PodPool, ...] = setting(
        (), 'The pools, such as `{name: fast, cpu: 4, max_pods: 2, instances: "50%"}`.'
    )
    pin_memory: bool = setting(True, "Whether new containers are held to the memory near their CPUs.")


@dataclass(frozen=True, slots=True)
class CpuList:
    """CPUs that are given together."""

    socket: int = 0
    cpuset: str = ""


@dataclass(frozen=True, slots=True)
class StaticPool:
    """Lists of CPUs. `exclusive`: a container has as many lists as it asks for, alone; else lists are shared."""

    name: str = ""
    exclusive: bool = False
    cpu_lists: tuple[CpuList, ...] = ()


@dataclass(frozen=True, slots=True)
class StaticPoolsSettings:
    """The settings of the policy `static-pools`. A node agent labels and taints the node."""

    pools: tuple[StaticPool, ...] = setting(
        (), "The lists of CPUs. Also a table by name, `pools: {shared: {cpuLists: [{Socket: 0, Cpuset: 0-3}]}}`."
    )
    label_node: bool = setting(
        False, "Whether `nodeward agent`, which pushes this, gives the node the label `cmk.intel.com/cmk-node=true`."
    )
    taint_node: bool = setting(False, "Whether it gives the node the taint `cmk=true:NoSchedule`.")


@dataclass(frozen=True, slots=True)
class DynamicPoolType:
    """The settings of one pool that grows and shrinks with requests."""

    name: str = ""
    namespaces: tuple[str, ...] = ()
    allocator_priority: Priority = Priority.HIGH


@dataclass(frozen=True, slots=True)
class DynamicPoolsSettings:
    """The settings of the policy `dynamic-pools`."""

    pin_cpu: bool = setting(True, "Whether containers are held to the CPUs of their pools.")
    reserved_pool_namespaces: tuple[str, ...] = setting(
        (), "Namespaces, besides kube-system, that run on the reserved CPUs."
    )
    dynamic_pool_types: tuple[DynamicPoolType, ...] = setting(
        (), "The pools besides `reserved` and `shared`, such as `{name: web, namespaces: [web]}`."
    )
    pin_memory: bool = setting(True, "Whether new containers are held to the memory near their CPUs.")


@dataclass(frozen=True, slots=True)
class ClaimsSettings:
    """The settings of the policy `claims`."""

    devices: DevicesBy = setting(
        DevicesBy.NUMA,
        "What a device of the ResourceSlice stands for: the CPUs of a `numa` node, `socket` or `l3` cache.",
    )
    names: ClaimNames = setting(
        ClaimNames.NODEWARD,
        "`dra-driver-cpu`: devices, attributes and capacity have its names, for its claims; with `cpus.dra.driver: "
        "dra.cpu`.",
    )
