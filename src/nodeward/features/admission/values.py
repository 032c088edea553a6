"""The pod that a review is about, and the verdict on it.

Promises: nothing of a container's environment, commands or mounts is here but what admission looks at: whether one
name is in the environment, and where volumes are mounted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.modes import DEFAULT_RESOURCES
from nodeward.core.workload import Role


class Operation(Enum):
    """What somebody wants to do with a pod."""

    CREATE = "create"
    UPDATE = "update"
    DEBUG = "add an ephemeral container"
    OTHER = "something that admission has no say in"


@dataclass(frozen=True, slots=True)
class ContainerAsked:
    """One container of the pod, as its author wrote it. Quantities are text."""

    name: str
    role: Role = Role.REGULAR
    index: int = 0
    """Its place in its own list of the spec."""
    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    aesm_address: bool = False
    """Whether its environment names SGX_AESM_ADDR."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Cleaned mount path to the volume's name."""

    @property
    def place(self) -> str:
        """The container's path in the pod."""
        return f"spec.{LISTS[self.role]}[{self.index}]"


LISTS = {
    Role.INIT: "initContainers",
    Role.SIDECAR: "initContainers",
    Role.REGULAR: "containers",
    Role.EPHEMERAL: "ephemeralContainers",
}
"""The list of the spec in which a container of this role stands."""


@dataclass(frozen=True, slots=True)
class PodAsked:
    """The pod. `containers` is in the order of the spec: init containers and sidecars, regular, ephemeral ones."""

    namespace: str = ""
    name: str = ""
    """For people: `web-7f9-...` where the API server is still to choose a name. One line, as `namespace` is."""
    containers: tuple[ContainerAsked, ...] = ()
    overhead: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Only the keys of `nodeward.core.annotations.is_admitted`."""
    volumes: Mapping[str, bool] = field(default_factory=dict)
    """Name to whether it is a folder of the node."""


@dataclass(frozen=True, slots=True)
class AdmissionRule:
    """What admission decides by. `resources` is the setting `limits.resources`; no plugin is required if empty;
    `by_nri`: nodes give `/dev/sgx_enclave` to whoever declares EPC, and offer no `sgx.intel.com/enclave`."""

    resources: Mapping[str, str] = field(default_factory=lambda: DEFAULT_RESOURCES)
    required_plugin: str = ""
    by_nri: bool = False


AESM_VOLUME = "aesmd-socket"
"""The volume with the socket of Intel's aesmd, by the name that Intel's webhook gives it."""
AESM_FOLDER = "/var/run/aesmd"


class AesmVolume(Enum):
    """What the volume with the socket of aesmd is."""

    MEMORY = "shared by the pod's containers, in memory"
    HOST = "the node's folder"


@dataclass(frozen=True, slots=True)
class ContainerChange:
    """What one container gets. `limits` and `requests` name device resources that are to be 1, or, `dropped`, are to
    go from both."""

    container: ContainerAsked
    limits: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    aesm_address: bool = False
    aesm_mount: bool = False
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: refused if `refusals` is not empty, else allowed with these changes, which may be none."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    """Only what differs from the pod; None takes the annotation away."""
    containers: tuple[ContainerChange, ...] = ()
    aesm_volume: AesmVolume | None = None
