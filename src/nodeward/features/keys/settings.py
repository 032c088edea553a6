"""The settings of TEE keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.modes import Mode


class CapacitySource(Enum):
    """Who says how many keys of a kind there are."""

    MISC = "misc"
    """The kernel, in misc.capacity."""
    NFD = "nfd"
    """Node Feature Discovery, where the daemon cannot see the real root cgroup."""
    FIXED = "fixed"
    """The setting `capacity`."""


class Publisher(Enum):
    """Who offers the keys to the scheduler."""

    NONE = "none"
    DEVICE_PLUGIN = "device-plugin"


class Attestation(Enum):
    """What it means for the keys that the service which makes quotes does not answer."""

    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class Share(Enum):
    """How the keys are shared with those who go by Node Feature Discovery's number (Kata)."""

    OWN = "own"
    OVERRIDE = "override"
    SPLIT = "split"
    SHARED = "shared"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class KeyKind:
    """One kind of TEE key: the resources that promise one, how many there are, and who offers and shares them."""

    resources: tuple[str, ...] = ()
    capacity: int = 0
    capacity_from: CapacitySource = CapacitySource.MISC
    reserve: int = 0
    publisher: Publisher = Publisher.NONE
    publish: str = ""
    attestation: Attestation = Attestation.OFF
    attestation_socket: str = ""
    devices: tuple[str, ...] = ()
    share: Share = Share.AUTO
    split: int = 0


def _shipped_kinds() -> Mapping[str, KeyKind]:
    return {
        "tdx": KeyKind(
            ("devices.kubevirt.io/tdx", "tdx.intel.com/keys"),
            publish="devices.kubevirt.io/tdx",
            attestation_socket="/var/run/tdx-qgs/qgs.socket",
        ),
        "sev_es": KeyKind(
            ("devices.kubevirt.io/sev-esids", "sev-snp.amd.com/esids"), publish="devices.kubevirt.io/sev-esids"
        ),
    }


@dataclass(frozen=True, slots=True)
class KeysSettings:
    """The feature `keys`: TEE keys, by the misc controller's name. Observe counts and shows them; enforce also offers
    them to kubelet, and has NFD's number follow, where a row says so."""

    mode: Mode = Mode.OFF
    kinds: Mapping[str, KeyKind] = field(default_factory=_shipped_kinds)
    kubelet_dir: str = "/var/lib/kubelet"
    """Where kubelet keeps its folder device-plugins: which ids pods were given is read below it."""
    kubelet_root: str = ""
    """Kubelet's --root-dir, where that is another folder: its sockets pods-api, pod-resources and plugins_registry are
    below it. Empty for the same."""

    @property
    def root(self) -> str:
        """Kubelet's --root-dir."""
        return self.kubelet_root or self.kubelet_dir
