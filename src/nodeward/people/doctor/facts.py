"""What `nodeward doctor` looks at, as plain facts, and what it makes of them. `people.doctor.machine` finds them.

None, or an empty text, means everywhere that it could not be found out; `Facts.failed` says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.cgroup import Hierarchy
from nodeward.core.vms import Handler
from nodeward.features.cpus.rows import CpusView
from nodeward.features.sandboxes.sizing_values import SizingSettings
from nodeward.people.rows import KeyRow, RelayView


class Severity(Enum):
    """How bad a finding is, best first."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is well, or is not: what, where, and how to mend it in one sentence (empty for what is well)."""

    code: str
    severity: Severity
    what: str
    where: str
    remedy: str = ""


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


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """The container runtime. `versions` holds what each program says of itself, `nri_off_in` the file that
    switches NRI off."""

    nri_socket: str = ""
    nri_there: bool | None = None
    nri_off_in: str = ""
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


class Access(Enum):
    """How the API server answered."""

    UNKNOWN = ""
    OFF = "off"
    OK = "ok"
    CONFIG = "config"
    DENIED = "denied"
    CERTIFICATE = "certificate"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Unlisted:
    """What the API server did not list, and why. `denied`: this user may not."""

    what: str
    why: str
    denied: bool


@dataclass(frozen=True, slots=True)
class Registered:
    """A webhook in a MutatingWebhookConfiguration. `has_ca`: the API server is told whose certificates to trust, or
    goes by its own where the webhook is a url."""

    name: str
    has_ca: bool


@dataclass(frozen=True, slots=True)
class ParameterRef:
    """A ConfigMap that a binding of one of our policies names; while it is missing, that policy refuses all it sees."""

    policy: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """A RuntimeClass: `memory` is its overhead in bytes (podFixed), None where it declares none."""

    name: str
    handler: str
    memory: int | None = None


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
class Neighbour:
    """Somebody else who is here, and by what it was seen."""

    name: str
    seen_at: str


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


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """TEE keys, as the daemon counts them. `our_object` is NAMESPACE/NAME of a NodeFeature object of ours for this
    node, whoever wants it; `has_checkpoint`: a device plugin has registered with this kubelet once; `hiding`: how many
    of the ids of SEV-ES and SEV-SNP are to hide ciphertext, by the parameter of kvm_amd, 0 for no part of them.
    `on_node` and `left_by_nfd` as in ApiFacts."""

    rows: tuple[KeyRow, ...] = ()
    our_object: str = ""
    has_checkpoint: bool = False
    hiding: int = 0
    on_node: Mapping[str, int] | None = None
    left_by_nfd: tuple[str, ...] = ()


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
    wants_limits: bool = False
    nri: bool = False
    kubelet: KubeletFacts = field(default_factory=KubeletFacts)
    sizing: SizingSettings = field(default_factory=SizingSettings)


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """Who gives containers CPUs: `policy` is ours, empty for none; `manager` the policy in kubelet's CPU manager state,
    a file at `manager_at`."""

    policy: str = ""
    by_relay: bool = False
    """Whether the relay carries it."""
    manager: str = ""
    manager_at: str = ""
    view: CpusView | None = None
    """What who carries it shows; None where nobody answers."""


@dataclass(frozen=True, slots=True)
class VmFacts:
    """What starts VMs on this node. `handlers` by the files of the runtime and of Kata, None where nobody looked;
    `classes` and `policies` as in ApiFacts, `where` is the API server. `version` of cgroups; 0 where not known."""

    handlers: tuple[Handler, ...] | None = None
    classes: tuple[RuntimeClass, ...] | Unlisted | None = None
    policies: tuple[str, ...] | None = None
    where: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class ColdPlugFacts:
    """The cold-plug socket. `listens`: None where that could not be seen; `there`: whether a file is at its path;
    `kube`: whether the settings have an API server, which tells the UIDs of pods."""

    enabled: bool = False
    socket: str = ""
    there: bool = False
    listens: bool | None = None
    kube: bool = True


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
    keys: KeyFacts = field(default_factory=KeyFacts)
    relay: RelayFacts = field(default_factory=RelayFacts)
    vms: VmFacts = field(default_factory=VmFacts)
    cold_plug: ColdPlugFacts = field(default_factory=ColdPlugFacts)
    settings_faults: tuple[str, ...] = ()
    """What is wrong with the settings that doctor was given, as `config check` says it: with values."""
    failed: Mapping[str, str] = field(default_factory=dict)
