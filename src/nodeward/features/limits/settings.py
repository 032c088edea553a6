"""The settings of limits. Apart from others, since the OCI hook imports them at each start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.modes import DEFAULT_RESOURCES, Mode, OnError
from nodeward.core.setting import setting, table


class Unsupported(Enum):
    """What a declared resource means that this kernel does not have."""

    ALLOW_UNENFORCED = "allow-unenforced"
    REFUSE = "refuse"


class UnknownPod(Enum):
    """What a container gets if its pod is not known in time; mended when the pod becomes known."""

    UNLIMITED = "unlimited"
    ZERO = "zero"
    REFUSE = "refuse"


class GivenBy(Enum):
    """Who gives containers the device nodes of SGX."""

    OFF = "off"
    PLUGIN = "plugin"
    NRI = "nri"


@dataclass(frozen=True, slots=True)
class EpcClaims:
    """Enclave memory by claim (Dynamic Resource Allocation), Kubernetes 1.36 or newer."""

    mode: Mode = setting(
        Mode.OFF,
        "`enforce`: publish the node's EPC to the scheduler, and limit containers to what their claims consume; `off` "
        "and `observe`: do not.",
    )
    driver: str = setting("sgx.nodeward.io", "The driver's name, which the DeviceClass has.")
    cdi_dir: str = setting(
        "/run/cdi", "Where the runtime looks for device nodes of claims (Container Device Interface).", path=True
    )
    devices: tuple[str, ...] = setting(
        ("/dev/sgx_enclave",), "Device nodes that each container with a claim of EPC gets."
    )


@dataclass(frozen=True, slots=True)
class LimitsSettings:
    """The feature `limits`: misc limits of containers and pods."""

    mode: Mode = setting(Mode.ENFORCE, "`enforce`; `observe`: decide and show only; `off`: neither.")
    on_error: OnError = setting(
        OnError.PASS, "After a fault, `pass` starts the container that waits, `refuse` refuses it."
    )
    strict: bool = setting(
        False, "`true`: a container of a pod that declares nothing gets 0. `false`: it is left alone."
    )
    unsupported: Unsupported = setting(
        Unsupported.ALLOW_UNENFORCED,
        "A declared resource that this kernel lacks: `allow-unenforced` starts the container, `refuse` refuses it.",
    )
    unknown_pod: UnknownPod = setting(
        UnknownPod.UNLIMITED,
        "A container whose pod is not known in time: `unlimited`, `zero` (both corrected later) or `refuse`.",
    )
    resources: Mapping[str, str] = table(
        lambda: dict(DEFAULT_RESOURCES),
        "Extended resources of pods, and the misc controller's name of each. Your table replaces the default: keep "
        "`sgx.intel.com/epc`.",
    )
    devices: GivenBy = setting(
        GivenBy.OFF,
        "Who gives `/dev/sgx_enclave` and `/dev/sgx_provision`: `off`, somebody else; `plugin`, a device plugin with "
        "the names and ids of Intel's; `nri`, the runtime at our word, to containers whose spec declares EPC, and the "
        "plugin for `sgx.intel.com/provision` alone. The webhook has to know `nri` too.",
    )
    enclave_ids: int = setting(110, "How many ids of `sgx.intel.com/enclave`; 0: none.", 0, 4096)
    provision_ids: int = setting(110, "How many ids of `sgx.intel.com/provision`; 0: none.", 0, 4096)
    node_epc: bool = setting(
        False,
        "`true`: keep `sgx.intel.com/epc` in the node's status at the bytes that there are, in the place of Intel's "
        "`sgx_epchook`, also when kubelet has set it to 0.",
    )
    dra: EpcClaims = field(default_factory=EpcClaims)
