"""The devices of one pod: as kubelet and CDI describe them, and as a VM runtime receives them.

A CDI name is `vendor/class=device` (Container Device Interface, SPEC.md); `vendor/class` is its kind. A PCI address is
DOMAIN:BUS:DEVICE.FUNCTION. A NUMA node is a number from 0; None is not known.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.workload import PodUid

_WORD = r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_NAME = re.compile(rf"(?P<kind>{_WORD}/{_WORD})=[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
MAX_NAME = 512
"""Characters of a CDI name."""


def kind_of(name: str) -> str:
    """The kind of a CDI name; empty where it is none."""
    found = _NAME.fullmatch(name) if len(name) <= MAX_NAME else None
    return found["kind"] if found is not None else ""


ENCLAVE, PROVISION = "sgx.intel.com/enclave", "sgx.intel.com/provision"
"""Extended resources that stand for device nodes of SGX, by the names of Intel's plugin."""
SGX_NODES: Mapping[str, str] = {ENCLAVE: "/dev/sgx_enclave", PROVISION: "/dev/sgx_provision"}
"""The device node of each, on the host and in containers."""


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character device, at the same path on the host and in a container, to read and write."""

    path: str
    major: int
    minor: int


class DeviceKind(Enum):
    """Who allocated a device."""

    PLUGIN = "device-plugin"
    DRA = "dra"


class PluginStanding(Enum):
    """The state of the device plugin for one resource."""

    WAITING = "waiting"
    """Kubelet's socket is not there, or does not answer."""
    RIVAL = "rival"
    """Somebody else publishes the resource: ours is not registered, since the last to register evicts the other."""
    REFUSED = "refused"
    """Kubelet does not take the registration."""
    SERVING = "serving"
    """Registered, and kubelet reads our list."""
    ENDED = "ended"
    """Nothing is to be published any more."""


@dataclass(frozen=True, slots=True)
class Told:
    """One device of a container, as kubelet reports it. `resource` is the plugin's resource, or NAMESPACE/NAME of the
    claim; `device` the plugin's id, or DRIVER/POOL/DEVICE. `names` are CDI names: of a plugin's device the one that
    Kata makes, which need not exist."""

    container: str
    kind: DeviceKind
    resource: str
    device: str
    names: tuple[str, ...]
    numa: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """The hardware behind a CDI name: device nodes on the host, the PCI devices behind them, and their NUMA nodes;
    these two are in order."""

    file: str
    paths: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    numa: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CdiFault:
    """A CDI spec that could not be used. `kind` is empty where it is not known what the spec is of."""

    file: str
    why: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the host's files say: CDI specs, and which pods kubelet has given what by its own checkpoints."""

    devices: Mapping[str, CdiDevice] = field(default_factory=dict)
    """By CDI name."""
    faults: tuple[CdiFault, ...] = ()
    holders: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """UIDs of pods by resource and id of a device plugin."""
    holders_fault: str = ""
    """Why the checkpoint of devices was not read."""
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UIDs of pods by NAMESPACE/NAME of a claim."""
    claims_fault: str = ""


@dataclass(frozen=True, slots=True)
class PodDevice:
    """One device of a pod, merged from all its sources. `name` is its CDI name, empty for none; `left_out` says why a
    VM runtime is not told of it, empty where it is."""

    container: str
    kind: DeviceKind
    resource: str
    device: str
    name: str
    paths: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    numa: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """The devices of a pod with this UID. `refused` says why they must not be handed on, empty where they may be."""

    uid: PodUid | None
    devices: tuple[PodDevice, ...] = ()
    refused: str = ""

    def handed(self) -> Mapping[str, tuple[str, ...]]:
        """The CDI names to hand on, by container; each name once in the pod."""
        found: dict[str, tuple[str, ...]] = {}
        for one in self.devices:
            if one.name and not one.left_out:
                found[one.container] = (*found.get(one.container, ()), one.name)
        return found


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory of one NUMA node or more, in bytes. `kind` is `memory` or such as `hugepages-2Mi`."""

    kind: str
    size: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ContainerNuma:
    """Exclusive CPUs and memory of a container, by kubelet's managers. The pod as a whole has no name."""

    container: str
    cpus: tuple[int, ...]
    memory: tuple[MemoryBlock, ...]


@dataclass(frozen=True, slots=True)
class PodNuma:
    """The NUMA nodes of a pod. `nodes`: the NUMA nodes of its devices and memory."""

    nodes: tuple[int, ...]
    containers: tuple[ContainerNuma, ...]
