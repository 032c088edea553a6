"""What doctor reads of cgroups, and finds of SGX devices and of enclave memory by claim."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.cgroup import Hierarchy
from nodeward.core.devices import PluginStanding
from nodeward.core.finding import Finding, Severity
from nodeward.features.limits.rows import EnclavesView


class Layout(Enum):
    """How cgroups are mounted."""

    UNKNOWN = ""
    NONE = "none"
    V1 = "v1"
    HYBRID = "hybrid"
    V2 = "v2"


@dataclass(frozen=True, slots=True)
class CgroupFacts:
    """The cgroup tree at `root`. `controllers` are its own, `handed_down` those it gives its children."""

    root: str = ""
    layout: Layout = Layout.UNKNOWN
    v2_at: str = ""
    """Where a cgroup2 tree is mounted, if not at `root`."""
    tree: Hierarchy = field(default_factory=Hierarchy)
    """Where the daemon would find the misc controller."""
    read_only: bool = False
    is_real_root: bool = True
    """False where `root` is a cgroup below the host's own root (a private cgroup namespace)."""
    controllers: tuple[str, ...] | None = None
    handed_down: tuple[str, ...] | None = None
    kubepods: str = ""
    """The cgroup of all pods, as the cgroup driver names it; empty for none."""
    kubepods_controllers: tuple[str, ...] | None = None
    capacity: Mapping[str, int] | None = None
    """`misc.capacity` of the root."""


_STUCK = (PluginStanding.RIVAL.value, PluginStanding.REFUSED.value, PluginStanding.WAITING.value)


def of_enclaves(view: EnclavesView | None) -> Iterator[Finding]:
    """Finds what keeps containers from the device nodes and the enclave memory that the settings promise."""
    for one in view.devices if view is not None else ():
        if not one.there and one.expected:
            what = f"no container is given {one.path}: it is {one.why}"
            remedy = (
                "See that SGX is on in the firmware and in the kernel (CONFIG_X86_SGX), and that the daemon sees the "
                "host's /dev (docs/claims.md)."
            )
            yield Finding("sgx-device-missing", Severity.WARNING, what, "limits.devices", remedy)
        elif one.there and one.standing in _STUCK:
            what = f"{one.resource} is not offered by us: {one.plugin}"
            remedy = "Take the other plugin away, or see that keys.kubelet_dir is where kubelet has device-plugins."
            yield Finding("sgx-plugin", Severity.WARNING, what, "limits.devices", remedy)
    if view is not None and view.registered is False and view.driver:
        what = f"no claim of enclave memory is prepared: {view.driver}"
        remedy = (
            "See that keys.kubelet_root is kubelet's --root-dir, and in a pod that deploy/node/dra.yaml is applied."
        )
        yield Finding("epc-unregistered", Severity.WARNING, what, "limits.dra", remedy)
