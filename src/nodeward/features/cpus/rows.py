"""The rows of a picture of CPUs: the machine, and who may run where. CPUs are written as the kernel does (`0-3,8`)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from nodeward.core import cpuset
from nodeward.core.shown import Info, Label, Metric, Rows, counter, gauge, known, shown, shows

_POLICY = Info("nodeward_cpus_policy_info", "1, with the policy in force.")


def _how_many(cpus: str) -> int:
    return cpuset.parse(cpus).bit_count()


@dataclass(frozen=True, slots=True)
class CpuRow:
    """One CPU that is online, by the numbers of what it is in. A core's, L2's and die's may be its lowest CPU."""

    cpu: int
    core: int
    l2: int
    l3: int
    node: int
    die: int
    package: int
    owner: str = gauge(
        "nodeward_cpus_exclusive", "CPUs that one container or claim has for its own.", of=bool, adds=True, default=""
    )
    """Who has it for its own: NAMESPACE/POD/CONTAINER, or `claim` and NAMESPACE/NAME; empty for nobody."""
    pools: tuple[str, ...] = ()
    isolated: bool = False
    efficient: bool = False
    """A core made for economy, of a hybrid machine."""


@dataclass(frozen=True, slots=True)
class CpuPoolRow:
    """CPUs that containers share, and their names."""

    name: str = field(metadata=shown(Label("pool")))
    cpus: str = field(
        metadata=shown(Metric("nodeward_cpus_pool", "CPUs of the pool, shared by containers.", of=_how_many))
    )
    members: tuple[str, ...] = ()
    lent: str = gauge(
        "nodeward_cpus_pool_lent", "Idle CPUs that containers of the pool may also use.", of=_how_many, default=""
    )
    within: str = ""
    """The pool around it, of a policy whose pools lie within one another; empty for none."""
    free_m: int | None = None
    """How much its containers may still request, in thousandths of a CPU; None where the policy sets no such bound."""


@dataclass(frozen=True, slots=True)
class CpuHolderRow:
    """One container. `kind`: exclusive, shared, reserved, exclusive+shared, unpinned, or unplaced for one that runs
    without a grant of the policy."""

    namespace: str
    pod: str
    container: str
    kind: str = field(
        metadata=shown(
            Metric("nodeward_cpus_containers", "Containers, by the kind of CPUs they have.", by="kind", adds=True)
        )
    )
    id: str = ""
    """The runtime's id; empty where it is not there yet, or any more."""
    cpus: str = ""
    """What it may use; empty where it is not pinned."""
    own: str = ""
    pool: str = ""
    """The pool that it shares; its other members are those with whom it does."""
    request_m: int = 0
    source: str = ""
    has: str = ""
    """What the kernel was read to let it use; empty where that is not known."""
    for_ms: int | None = None
    """For how long `has` is so."""
    state: str = gauge(
        "nodeward_cpus_containers_state",
        "Containers, by whether the kernel has the wanted CPUs.",
        by="state",
        adds=True,
        default="",
    )
    """held: the kernel lets it use what is wanted; pending: that is still to come; failed: see `error`; observed:
    nothing is written; waiting: it has CPUs and no container yet, or none any more; unpinned; unplaced."""
    why: str = ""
    error: str = ""
    memory: str = ""
    """The NUMA nodes whose memory it may use, where that is decided; empty for any."""
    memory_error: str = ""
    """Why they could not be set."""
    memory_for: str = ""
    """The container for which it was given more nodes, since too much was promised of those that it had; itself where
    that was so when it came."""

    @property
    def name(self) -> str:
        """The name that is shown."""
        return f"{self.namespace}/{self.pod}/{self.container}" if self.namespace else f"{self.pod}/{self.container}"


@dataclass(frozen=True, slots=True)
class MemoryZoneRow:
    """NUMA nodes to which containers are held together. `promised`: to those whose nodes are all among these."""

    nodes: str
    bytes: int
    promised: int
    containers: int
    used: int | None = None
    """What containers use of these nodes, whatever nodes they are held to; None where it is not known."""
    users: int = 0
    """How many do."""
    unread: int = 0
    """Containers whose use is not known, and not in `used`."""


@dataclass(frozen=True, slots=True)
class NumaRow:
    """The CPUs of a NUMA node: how many are used how, and how many are requested."""

    numa: int = field(metadata=shown(Label()))
    uses: Counter[str] = known(
        Metric("nodeward_cpus_numa", "CPUs of the NUMA node, by use.", by="use"),
        default_factory=lambda: Counter(exclusive=0, shared=0, reserved=0, idle=0),
    )
    requested: float = gauge(
        "nodeward_cpus_numa_requested",
        "CPUs requested on the NUMA node; a pool's are spread evenly over its CPUs.",
        default=0.0,
    )


@dataclass(frozen=True, slots=True)
class CpuDeviceRow:
    """What claims may have of the CPUs of one device: a NUMA node, socket or cache of level 3."""

    device: str = field(metadata=shown(Label()))
    size: int = gauge("nodeward_cpus_claims_capacity", "CPUs of this device of the ResourceSlice.")
    published: int = gauge("nodeward_cpus_claims_published", "CPUs of it that claims may have.")
    promised: int = gauge("nodeward_cpus_claims_promised", "CPUs of it that prepared claims have.")


@dataclass(frozen=True, slots=True)
class CpuClaimRow:
    """A prepared claim: how many CPUs of each device, and which they are; none while the policy is another."""

    claim: str
    uid: str
    amounts: Mapping[str, int]
    cpus: str = ""
    pods: tuple[str, ...] = ()
    since_wall_ns: int = 0
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CpuClaimsView:
    """CPUs by claim. `registered` is None while none go by claim, `driver` says why kubelet has it not, `fault` why it
    is not known which claims were prepared: then no claim is."""

    devices: tuple[CpuDeviceRow, ...] = ()
    rows: tuple[CpuClaimRow, ...] = ()
    registered: bool | None = gauge(
        "nodeward_cpus_driver_registered", "1 while kubelet has our driver, else 0. Absent unless CPUs go by claim."
    )
    driver: str = ""
    fault: str = gauge(
        "nodeward_cpus_claims_fault", "1 while it is not known which claims have CPUs, else 0.", of=bool, default=""
    )


@dataclass(frozen=True, slots=True)
class CpusView:
    """The machine's CPUs and who may use them, by the policy in force."""

    policy: str = field(metadata=shown(_POLICY))
    mode: str = field(metadata=shown(_POLICY))
    driver: str = field(metadata=shown(_POLICY))
    online: str
    cpus: tuple[CpuRow, ...] = gauge("nodeward_cpus_online", "CPUs of the machine that are online.", default=())
    pools: tuple[CpuPoolRow, ...] = ()
    holders: tuple[CpuHolderRow, ...] = ()
    refused: tuple[str, ...] = gauge(
        "nodeward_cpus_settings_refused",
        "1 while newer settings of the policy do not fit, else 0.",
        of=bool,
        default=(),
    )
    """Why newer settings of the policy are not in force."""
    faults: tuple[str, ...] = ()
    """What the machine did not tell of itself, and what is assumed."""
    drifts: int = counter(
        "nodeward_cpus_drifts_total", "CPU sets that another process changed and Nodeward restored.", default=0
    )
    late: int = counter(
        "nodeward_cpus_late_starts_total", "Programs started or refused while others were on their CPUs.", default=0
    )
    notes: tuple[str, ...] = ()
    """What of the machine does not fit the settings in force, and what holds instead."""
    memory: Mapping[int, int] = field(default_factory=dict)
    """Bytes of memory of each NUMA node; 0 where the machine does not tell."""
    memory_zones: tuple[MemoryZoneRow, ...] = ()
    """What is promised of the nodes' memory, where a policy holds containers to some."""
    memory_used: Mapping[int, int] = field(default_factory=dict)
    """Bytes that containers use of each NUMA node, where there are zones; empty where it is not known."""
    claims: CpuClaimsView | None = None
    """None where no CPUs go by claim, and no claim is left."""
    in_force: bool = True
    """False where the settings at the start do not fit the machine: then nothing is pinned."""

    @property
    @shows(Metric("nodeward_cpus_pool_requested", "CPUs that containers request of the pool.", by="pool", per=1e3))
    def requested_m(self) -> Mapping[str, int]:
        """What is requested of each pool, in thousandths of a CPU; what a container has for its own is not."""
        found = dict.fromkeys((pool.name for pool in self.pools), 0)
        for row in self.holders:
            if row.pool in found:
                found[row.pool] += max(row.request_m - 1000 * _how_many(row.own), 0)
        return found

    @property
    @shows(Rows(most=1024))
    def numa(self) -> tuple[NumaRow, ...]:
        """The NUMA nodes, with what is requested there to a thousandth."""
        of_pools = self.requested_m
        shares = {pool.name: of_pools[pool.name] / 1000 / max(_how_many(pool.cpus), 1) for pool in self.pools}
        found: dict[int, NumaRow] = {}
        for cpu in self.cpus:
            row = found.get(cpu.node) or NumaRow(cpu.node)
            shared = "reserved" if cpu.pools == ("reserved",) else "shared" if cpu.pools else "idle"
            row.uses["exclusive" if cpu.owner else shared] += 1
            found[cpu.node] = replace(
                row, requested=row.requested + (1 if cpu.owner else sum(shares.get(name, 0) for name in cpu.pools))
            )
        return tuple(replace(row, requested=round(row.requested, 3)) for row in found.values())

    def of(self, holder: CpuHolderRow) -> CpuPoolRow | None:
        """The pool that it shares."""
        return next((pool for pool in self.pools if pool.name == holder.pool), None)


def in_order(rows: Iterable[CpuHolderRow]) -> tuple[CpuHolderRow, ...]:
    """The rows, sorted by namespace, pod and container."""
    return tuple(sorted(rows, key=lambda row: (row.namespace, row.pod, row.container, row.id)))
