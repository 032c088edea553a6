"""The rows of a picture of CPUs: the machine, and who may run where. CPUs are written as the kernel does (`0-3,8`)."""

from collections.abc import Iterable
from dataclasses import dataclass


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
    owner: str = ""
    """The container that has it for its own, as NAMESPACE/POD/CONTAINER; empty for none."""
    pools: tuple[str, ...] = ()
    isolated: bool = False
    efficient: bool = False
    """A core made for economy, of a hybrid machine."""


@dataclass(frozen=True, slots=True)
class CpuPoolRow:
    """CPUs that containers share, and their names."""

    name: str
    cpus: str
    members: tuple[str, ...] = ()
    lent: str = ""
    """Idle CPUs of nobody that its members may use too."""


@dataclass(frozen=True, slots=True)
class CpuHolderRow:
    """One container. `kind`: exclusive, shared, reserved, exclusive+shared, unpinned, or unplaced for one that runs
    without a grant of the policy."""

    namespace: str
    pod: str
    container: str
    kind: str
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
    state: str = ""
    """held: the kernel lets it use what is wanted; pending: that is still to come; failed: see `error`; observed:
    nothing is written; waiting: it has CPUs and no container yet, or none any more; unpinned; unplaced."""
    why: str = ""
    error: str = ""
    memory: str = ""
    """The NUMA nodes whose memory it may use, where that is decided; empty for any."""
    memory_error: str = ""
    """Why they could not be set."""

    @property
    def name(self) -> str:
        """The name that is shown."""
        return f"{self.namespace}/{self.pod}/{self.container}" if self.namespace else f"{self.pod}/{self.container}"


@dataclass(frozen=True, slots=True)
class CpusView:
    """The machine's CPUs and who may use them, by the policy in force."""

    policy: str
    mode: str
    driver: str
    online: str
    cpus: tuple[CpuRow, ...] = ()
    pools: tuple[CpuPoolRow, ...] = ()
    holders: tuple[CpuHolderRow, ...] = ()
    refused: tuple[str, ...] = ()
    """Why newer settings of the policy are not in force."""
    faults: tuple[str, ...] = ()
    """What the machine did not tell of itself, and what is assumed."""
    drifts: int = 0
    """How often somebody else had changed a set, ever."""
    late: int = 0
    """How many programs were started, or refused, while others were still on their CPUs, ever."""
    notes: tuple[str, ...] = ()
    """What of the machine does not fit the settings in force, and what holds instead."""
    in_force: bool = True
    """False where the settings at the start do not fit the machine: then nothing is pinned."""

    def of(self, holder: CpuHolderRow) -> CpuPoolRow | None:
        """The pool that it shares."""
        return next((pool for pool in self.pools if pool.name == holder.pool), None)


def in_order(rows: Iterable[CpuHolderRow]) -> tuple[CpuHolderRow, ...]:
    """The rows, sorted by namespace, pod and container."""
    return tuple(sorted(rows, key=lambda row: (row.namespace, row.pod, row.container, row.id)))
