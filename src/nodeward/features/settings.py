"""Every setting, its default and meaning: the settings file, the schema and the docs follow this.

The loader is `settings.load`. A field's docstring is its description in `nodeward config schema`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from nodeward.core.modes import NO_POLICY, Mode, OnError
from nodeward.features.admission.settings import WebhookSection
from nodeward.features.cpus.settings import CpusSettings, Driver, PolicySettings
from nodeward.features.gate.settings import GateSettings
from nodeward.features.keys.settings import KeysSettings
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.podapi.settings import ColdPlugSection, PodapiSection
from nodeward.features.pods.settings import PodsSettings
from nodeward.features.sandboxes.settings import SandboxesSettings, SizingSettings


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the engine decides by; part of its state, so that a record carries it."""

    limits: LimitsSettings = field(default_factory=LimitsSettings)
    pods: PodsSettings = field(default_factory=PodsSettings)
    period_ms: int = 1000
    """How often cgroups are read (cgroups.period_s): what was not read for two and a half periods is stale."""
    keys: KeysSettings = field(default_factory=KeysSettings)
    kube_events: bool = False
    """Whether pods are told by Kubernetes Events (kube.enabled and kube.events)."""
    cpus: CpusSettings = field(default_factory=CpusSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    sandboxes: SandboxesSettings = field(default_factory=SandboxesSettings)
    gate: GateSettings = field(default_factory=GateSettings)

    @property
    def declared(self) -> Mapping[str, str]:
        """Every extended resource that is read from pods, to the word by which a pod's amounts have it: for `limits`
        the misc controller's name, for `keys` its own, since ids are given for one of several that promise a key.
        """
        keys = {name: name for row in self.keys.kinds.values() for name in row.resources}
        return {**(keys if self.keys.mode is not Mode.OFF else {}), **self.limits.resources}

    def words(self, resources: Iterable[str]) -> tuple[str, ...]:
        """The words by which a pod's amounts have these resources."""
        declared = self.declared
        return tuple(dict.fromkeys(declared.get(name, name) for name in resources))


@dataclass(frozen=True, slots=True)
class NriSection:
    """The NRI plugin: how the container runtime is reached."""

    enabled: bool = True
    socket: str = "/var/run/nri/nri.sock"
    plugin_name: str = "nodeward"
    plugin_index: str = "90"
    multi_line: bool = False


@dataclass(frozen=True, slots=True)
class HookSection:
    """The OCI hook `nodeward-oci-hook`, for nodes without NRI: it asks the daemon, or goes by what it left."""

    enabled: bool = False
    folder: str = "/run/nodeward"


@dataclass(frozen=True, slots=True)
class KubeSection:
    """The API server. `kubeconfig` empty: in-cluster; `url` set: that address, with `token_file` and `ca_file`.
    `events`: pods are told by Kubernetes Events what became of their limits."""

    enabled: bool = True
    events: bool = True
    kubeconfig: str = ""
    url: str = ""
    token_file: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class PolicyObjectsSection:
    """BalloonsPolicy objects of nri-plugins in the API server: the one that means this node stands in the place of the
    section policy. `namespace`: where they are."""

    enabled: bool = False
    namespace: str = "kube-system"


@dataclass(frozen=True, slots=True)
class TopologyObjectsSection:
    """This node's NodeResourceTopology object in the API server, which schedulers read."""

    enabled: bool = False


@dataclass(frozen=True, slots=True)
class CgroupsSection:
    """The mount point of the cgroup2 tree, and how often it is read."""

    root: str = "/sys/fs/cgroup"
    kubelet_root: str = "/"
    """Kubelet's `--cgroup-root`, below which its pods are."""
    period_s: float = 1.0


@dataclass(frozen=True, slots=True)
class RecordSection:
    """The record of events and decisions for `nodeward replay`; off while `path` is empty."""

    path: str = ""
    max_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RelaySection:
    """The CRI relay, `nodeward relay`: kubelet's end and the runtime's."""

    listen: str = "/run/nodeward/cri.sock"
    runtime: str = "/run/containerd/containerd.sock"
    image_listen: str = ""
    image: str = ""
    limits: bool = False
    count_calls: bool = True
    vm_checkpoint: OnError = OnError.PASS
    vm_resize: OnError = OnError.PASS
    own_namespace: str = "nodeward-system"


RELAYED_WAITS_MS = 60_000
"""So long creates may wait for facts in any ten seconds, all together, where a relay holds them: there they do not wait
for one another, as they do with NRI, for which the setting `pods.wait_budget_ms` is."""
SECRETS = ("credentials", "environment", "commands", "annotations")
"""What is blanked in a dump unless `dump.show` names it."""


@dataclass(frozen=True, slots=True)
class DumpSection:
    """The relay's dump of CRI messages; off while `file` is empty."""

    file: str = ""
    rules: str = "full:.*"
    max_bytes: int = 256 * 1024 * 1024
    show: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricsSection:
    """Metrics of `nodeward node` for Prometheus. Nobody has to log in, so `listen` is this machine."""

    enabled: bool = False
    listen: str = "127.0.0.1:9743"


@dataclass(frozen=True, slots=True)
class AgentSection:
    """A cluster's configuration by `nodeward agent`. `config_socket`: the socket at which the process that gives
    containers CPUs (cpus.driver) takes it; empty for none."""

    config_socket: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings file of `nodeward node`, `nodeward relay` and `nodeward webhook`."""

    node_name: str = ""
    state_dir: str = "/var/lib/nodeward"
    run_dir: str = "/run/nodeward"
    limits: LimitsSettings = field(default_factory=LimitsSettings)
    keys: KeysSettings = field(default_factory=KeysSettings)
    pods: PodsSettings = field(default_factory=PodsSettings)
    cpus: CpusSettings = field(default_factory=CpusSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    sandboxes: SandboxesSettings = field(default_factory=SandboxesSettings)
    sizing: SizingSettings = field(default_factory=SizingSettings)
    gate: GateSettings = field(default_factory=GateSettings)
    nri: NriSection = field(default_factory=NriSection)
    hook: HookSection = field(default_factory=HookSection)
    kube: KubeSection = field(default_factory=KubeSection)
    policy_objects: PolicyObjectsSection = field(default_factory=PolicyObjectsSection)
    topology_objects: TopologyObjectsSection = field(default_factory=TopologyObjectsSection)
    cgroups: CgroupsSection = field(default_factory=CgroupsSection)
    record: RecordSection = field(default_factory=RecordSection)
    metrics: MetricsSection = field(default_factory=MetricsSection)
    podapi: PodapiSection = field(default_factory=PodapiSection)
    cold_plug: ColdPlugSection = field(default_factory=ColdPlugSection)
    agent: AgentSection = field(default_factory=AgentSection)
    webhook: WebhookSection = field(default_factory=WebhookSection)
    relay: RelaySection = field(default_factory=RelaySection)
    dump: DumpSection = field(default_factory=DumpSection)

    def pins_by(self, driver: Driver) -> bool:
        """Whether a policy gives containers CPUs, carried by this one."""
        return self.cpus.driver is driver and self.cpus.mode is not Mode.OFF and self.policy.active not in NO_POLICY

    @property
    def relayed(self) -> tuple[str, ...]:
        """What a relay's calls are held for: `containers` (limits and CPUs), `sizing`, `gate`, and what a VM cannot
        do."""
        by_relay = self.cpus.driver is Driver.RELAY and self.cpus.mode is not Mode.OFF
        chosen = {
            "containers": (self.relay.limits and self.limits.mode is not Mode.OFF) or by_relay,
            "sizing": self.sizing.mode is not Mode.OFF,
            "gate": self.gate.mode is not Mode.OFF,
            "checkpoints": self.relay.vm_checkpoint is OnError.REFUSE,
            "resizes": self.relay.vm_resize is OnError.REFUSE,
        }
        return tuple(name for name, is_chosen in chosen.items() if is_chosen)

    @property
    def engine(self) -> EngineSettings:
        """The part that the node daemon's decisions depend on."""
        sections = {one.name: getattr(self, one.name) for one in fields(EngineSettings) if hasattr(self, one.name)}
        return replace(
            EngineSettings(**sections),
            period_ms=round(self.cgroups.period_s * 1000),
            kube_events=self.kube.enabled and self.kube.events,
            pods=replace(self.pods, wait_budget_ms=RELAYED_WAITS_MS) if "containers" in self.relayed else self.pods,
        )
