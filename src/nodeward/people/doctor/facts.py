"""The facts that `nodeward doctor` collects and judges. `people.doctor.machine` finds them.

None, or an empty text, means everywhere that it could not be found out; `Facts.failed` says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.finding import Access, Neighbour, ParameterRef, Registered, RuntimeClass, Unlisted
from nodeward.features.cpus.findings import CpuFacts
from nodeward.features.keys.findings import KeyFacts
from nodeward.features.limits.findings import CgroupFacts
from nodeward.features.podapi.findings import ColdPlugFacts
from nodeward.features.sandboxes.findings import VmFacts
from nodeward.features.sandboxes.settings import SizingSettings
from nodeward.people.relay_view import RelayView
from nodeward.people.rows import NodeView


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """The container runtime. `versions` holds what each program says of itself, `nri_off_in` the file that
    switches NRI off."""

    nri_socket: str = ""
    nri_there: bool | None = None
    nri_off_in: str = ""
    cdi_wanted: bool = False
    """Containers are to get device nodes or folders of their claims, by CDI."""
    cdi: bool | None = None
    """Whether containerd's settings say that it obeys CDI; None where they say nothing."""
    multi_line: bool = False
    """The setting: the OCI runtime is given `misc.max` of several lines."""
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class HookFacts:
    """The OCI hook. `wanted` is the setting `hook.enabled`; None where nobody looked."""

    wanted: bool | None = None
    socket: str = ""
    socket_there: bool = False
    installed_in: tuple[str, ...] = ()
    """The files of hooks.d, CDI and containerd's base specs that name the hook."""
    missing: tuple[str, ...] = ()
    """The programs that these files name and that are not there."""
    unread_in: tuple[str, ...] = ()
    """The files of hooks.d that name the hook in a folder into which no runtime looks by its settings."""


@dataclass(frozen=True, slots=True)
class ApiFacts:
    """The API server. `behind_s` is its clock minus ours, within a second."""

    access: Access = Access.UNKNOWN
    where: str = ""
    detail: str = ""
    behind_s: float | None = None
    webhooks: tuple[Registered, ...] | None = None
    """The webhooks in all MutatingWebhookConfigurations; None where they were not listed."""
    daemon_sets: tuple[str, ...] | None = None
    """NAMESPACE/NAME of all DaemonSets; None where they were not listed."""
    twin_slices: tuple[tuple[str, str], ...] = ()
    """ResourceSlices of this node by a driver of ours that somebody else has made: the driver, and the slice."""
    ending: tuple[str, ...] = ()
    """NAMESPACE/NAME of pods of this node with claims that were to have ended two minutes ago or longer."""
    no_parameters: tuple[ParameterRef, ...] = ()
    """Those that are missing."""
    unlisted: tuple[Unlisted, ...] = ()
    """Of these, what was not listed, or not looked at."""
    our_object: str = ""
    """NAMESPACE/NAME of our NodeFeature object for this node, empty for none that is seen."""
    on_node: Mapping[str, int] | None = None
    """How many the node has of the resources that promise keys and are not our plugin's; None where that was not
    read."""
    left_by_nfd: tuple[str, ...] = ()
    """Of which of them NFD put the number there, and has nothing for this node any more."""
    no_events: tuple[str, ...] | None = None
    """What we may not do with Events though kube.events wants them; None where that could not be asked."""
    classes: tuple[RuntimeClass, ...] | Unlisted | None = None
    """All RuntimeClasses, or why they were not listed."""
    device_classes: tuple[tuple[str, str], ...] | None = None
    """Each DeviceClass that stands for an extended resource, with that; None where they were not listed."""
    policies: tuple[str, ...] | None = None
    """The policies of ours that some binding names; None where bindings were not listed."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """This process: who it is on the host."""

    uid: int | None = None
    host_root: bool | None = None
    """Whether its user 0 is the host's user 0 (no user namespace between them)."""
    capabilities: int | None = None
    """The effective set, as the kernel's bit mask."""


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """`nodeward node` on this machine: whether it answers, and which of the sources that it needs are not ready."""

    answers: bool | None = None
    where: str = ""
    not_ready: tuple[str, ...] = ()
    settings_faults: tuple[str, ...] = ()
    """The paths of settings that have faults; never their values."""
    no_metrics: str = ""
    """Why it serves no metrics though the settings want them; empty where it does, or they do not."""
    joins: bool = False
    """It gives a runtime `misc.max` of several lines."""
    object_faults: tuple[str, ...] = ()
    """As `settings_faults`, of the policy object that means this node."""
    no_zones: str = ""
    """Why this node's NodeResourceTopology object is not as the settings want it."""
    second: str = ""
    """Another daemon that waits for the end of this one."""
    no_epc: str = ""
    """Why `sgx.intel.com/epc` in the node's status is not."""


@dataclass(frozen=True, slots=True)
class KubeletFacts:
    """The sockets that kubelet asks, as paths. `seen_at` is by what that was seen, empty for no kubelet."""

    seen_at: str = ""
    runtime: str = ""
    images: str = ""


@dataclass(frozen=True, slots=True)
class RelayFacts:
    """The relay: `view` is what it says of itself, None where it does not answer; `fault` why not, though somebody
    listens. `where` is its relay.sock, empty where nobody looked. The rest are settings."""

    where: str = ""
    view: RelayView | None = None
    fault: str = ""
    listen: str = ""
    wants: tuple[str, ...] = ()
    """What calls are to be held for."""
    kubelet: KubeletFacts = field(default_factory=KubeletFacts)
    sizing: SizingSettings = field(default_factory=SizingSettings)

    @property
    def wanted(self) -> tuple[str, ...] | None:
        """What the relay that answers holds calls for; None where none does."""
        return self.view.daemon.wants if self.view is not None else None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything. `failed`: each probe that did not come to its end, and why."""

    kernel: str = ""
    resources: tuple[str, ...] = ()
    """The misc resources that the settings name."""
    cgroups: CgroupFacts = field(default_factory=CgroupFacts)
    runtime: RuntimeFacts = field(default_factory=RuntimeFacts)
    hook: HookFacts = field(default_factory=HookFacts)
    api: ApiFacts = field(default_factory=ApiFacts)
    process: ProcessFacts = field(default_factory=ProcessFacts)
    synchronised: bool | None = None
    """Whether the kernel holds the clock for synchronised."""
    neighbours: tuple[Neighbour, ...] = ()
    cpus: CpuFacts = field(default_factory=CpuFacts)
    daemon: DaemonFacts = field(default_factory=DaemonFacts)
    view: NodeView | None = None
    """The daemon's picture of the node; None where it does not answer."""
    keys: KeyFacts = field(default_factory=KeyFacts)
    relay: RelayFacts = field(default_factory=RelayFacts)
    vms: VmFacts = field(default_factory=VmFacts)
    cold_plug: ColdPlugFacts = field(default_factory=ColdPlugFacts)
    settings_faults: tuple[str, ...] = ()
    """What is wrong with the settings that doctor was given, as `config check` says it: with values."""
    failed: Mapping[str, str] = field(default_factory=dict)
