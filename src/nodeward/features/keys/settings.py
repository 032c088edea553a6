"""The settings of TEE keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.modes import Mode
from nodeward.core.setting import setting, table


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

    resources: tuple[str, ...] = setting((), "Every extended resource that promises such a key.")
    capacity: int = setting(0, "The number itself, if `misc.capacity` is hidden or says more; 0: the kernel's.", 0)
    capacity_from: CapacitySource = setting(
        CapacitySource.MISC, "Who says how many there are: `misc` (the kernel), `nfd`, or `fixed` (`capacity`)."
    )
    reserve: int = setting(0, "This many keys are never free, and are listed as unhealthy.", 0)
    publisher: Publisher = setting(
        Publisher.NONE, "`device-plugin`: Nodeward offers the keys to kubelet, in mode `enforce`."
    )
    publish: str = setting(
        "",
        "The one of `resources` that is offered. Never a name below `intel.com`, `amd.com`, `kubernetes.io` or "
        "`katacontainers.io`.",
    )
    attestation: Attestation = setting(
        Attestation.OFF,
        "When the quote service does not answer: `observe`: say so; `enforce`: withhold ids that are not granted, and "
        "let pods wait; `off`: do not ask it.",
    )
    attestation_socket: str = setting("", "The quote service's socket.")
    devices: tuple[str, ...] = setting(
        (), "Device nodes that each container with a key gets from the `device-plugin`, such as `/dev/sev`."
    )
    share: Share = setting(
        Share.AUTO,
        "How Kata, which reads NFD's number, is told of the keys: `own`, `override`, `split`, `shared`. `auto`: "
        "`override` while NFD works on this node, else `own`.",
    )
    split: int = setting(0, "With `share: split`: how many keys are Nodeward's.")


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
class ClaimSettings:
    """Keys by claim (Dynamic Resource Allocation), Kubernetes 1.36 or newer."""

    mode: Mode = setting(
        Mode.OFF,
        "`enforce`: publish a device for each kind of key to the scheduler, and prepare the claims of pods; `observe`: "
        "only show what would be published; `off`: neither.",
    )
    share: str = setting(
        "all",
        "How many keys of each kind go by claim, with those that claims have: a number, `all` or `none`. The others "
        "are left to the `publisher`.",
    )
    driver: str = setting("tee.nodeward.io", "The driver's name, which the DeviceClasses have.")
    cdi_dir: str = setting(
        "/run/cdi", "Where the runtime looks for device nodes of claims (Container Device Interface).", path=True
    )

    @property
    def most(self) -> int | None:
        """How many keys of each kind at most; None for all."""
        return None if self.share == "all" else int(self.share) if self.share.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class KeysSettings:
    """The feature `keys`: TEE keys, by the misc controller's name. Observe counts and shows them; enforce also offers
    them to kubelet, and has NFD's number follow, where a row says so."""

    mode: Mode = setting(
        Mode.OFF,
        "`observe`: count TEE keys and show holders; `enforce`: also offer and share them as `keys.kinds` says; "
        "`off`: neither.",
    )
    kinds: Mapping[str, KeyKind] = table(_shipped_kinds, "The kinds of key, by the misc controller's name.")
    kubelet_dir: str = setting(
        "/var/lib/kubelet",
        "The folder of `device-plugins`, whatever kubelet's `--root-dir` is. Only the socket of a `publisher` is "
        "written there.",
        path=True,
    )
    kubelet_root: str = setting(
        "", "Kubelet's `--root-dir`, with `pods-api`, `pod-resources` and `plugins_registry`.", path=True
    )
    dra: ClaimSettings = field(default_factory=ClaimSettings)

    @property
    def root(self) -> str:
        """Kubelet's --root-dir."""
        return self.kubelet_root or self.kubelet_dir
