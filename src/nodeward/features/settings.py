"""Every setting, its default and meaning: the settings file, the schema and the docs follow this.

The loader is `settings.load`. A field's docstring is its description in `nodeward config schema`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from nodeward.core.modes import NO_POLICY, Mode, OnError
from nodeward.core.setting import setting
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

    enabled: bool = setting(
        True, "Be an NRI plugin. Without it no annotation is read, and containers are found up to a period late."
    )
    socket: str = setting("/var/run/nri/nri.sock", "The runtime's NRI socket.", path=True)
    plugin_name: str = setting("nodeward", "The plugin's name in the runtime.")
    plugin_index: str = setting("90", "Two digits, in quotes: the order of plugins.")
    multi_line: bool = setting(
        False,
        "`true`: several misc resources in one value; every OCI runtime must accept that (runc 1.2, crun 1.18). "
        "`false`: the daemon writes all but the first.",
    )


@dataclass(frozen=True, slots=True)
class HookSection:
    """The OCI hook `nodeward-oci-hook`, for nodes without NRI: it asks the daemon, or goes by what it left."""

    enabled: bool = setting(
        False, "Answer the OCI hook `nodeward-oci-hook`, and leave it what it needs while no daemon answers."
    )
    folder: str = setting(
        "/run/nodeward",
        "The hook's `hook.sock`, `hook.json` and `pods/UID.json`; the same as its `--folder`.",
        path=True,
    )


@dataclass(frozen=True, slots=True)
class KubeSection:
    """The API server. `kubeconfig` empty: in-cluster; `url` set: that address, with `token_file` and `ca_file`.
    `events`: pods are told by Kubernetes Events what became of their limits."""

    enabled: bool = setting(True, "Watch this node's pods. Without it only annotations count.")
    events: bool = setting(True, "Write Kubernetes Events on pods about limits, and on the node about TEE keys.")
    kubeconfig: str = setting(
        "", "A kubeconfig with token, token file or client certificate; `exec` is refused. Empty: in-cluster."
    )
    url: str = setting("", "An address instead of a kubeconfig; it wins if both are set.")
    token_file: str = setting("", "The token's file, with `kube.url`.")
    ca_file: str = setting("", "The certificate authority's file, with `kube.url`.")


@dataclass(frozen=True, slots=True)
class PolicyObjectsSection:
    """BalloonsPolicy objects of nri-plugins in the API server: the one that means this node stands in the place of the
    section policy. `namespace`: where they are."""

    enabled: bool = setting(
        False,
        "The node's `BalloonsPolicy` or `TopologyAwarePolicy` object replaces the section `policy`. Needs "
        "`kube.enabled`, NRI and `deploy/node/policy-objects.yaml`.",
    )
    namespace: str = setting("kube-system", "The namespace of these objects.")


@dataclass(frozen=True, slots=True)
class TopologyObjectsSection:
    """This node's NodeResourceTopology object in the API server, which schedulers read."""

    enabled: bool = setting(
        False, "Write this node's `NodeResourceTopology`. Needs `kube.enabled` and `deploy/node/topology-objects.yaml`."
    )


@dataclass(frozen=True, slots=True)
class CgroupsSection:
    """The mount point of the cgroup2 tree, and how often it is read."""

    root: str = setting("/sys/fs/cgroup", "The mounted cgroup2 tree, or the folder of the v1 hierarchies.", path=True)
    kubelet_root: str = setting(
        "/",
        "Kubelet's `--cgroup-root`. `/kubelet` means `/kubelet/kubepods`, with systemd "
        "`/kubelet.slice/kubelet-kubepods.slice`.",
    )
    period_s: float = setting(
        1.0,
        "Seconds between two readings. After two and a half periods a reading is `stale`.",
        0.1,
        3600,
        "seconds",
    )


@dataclass(frozen=True, slots=True)
class RecordSection:
    """The record of events and decisions for `nodeward replay`; off while `path` is empty."""

    path: str = setting(
        "",
        "Record events and decisions for `nodeward replay`. Empty: do not. With the systemd unit, below `state_dir`.",
    )
    max_bytes: int = setting(64 * 1024 * 1024, "The record begins anew at this size.", 65536)


@dataclass(frozen=True, slots=True)
class RelaySection:
    """The CRI relay, `nodeward relay`: kubelet's end and the runtime's."""

    listen: str = setting("/run/nodeward/cri.sock", "Where kubelet connects to `nodeward relay`.", path=True)
    runtime: str = setting("/run/containerd/containerd.sock", "The runtime's socket.", path=True)
    image_listen: str = setting("", "Where kubelet connects for images, if that is another service.", path=True)
    image: str = setting("", "That service's socket; empty: the runtime's.", path=True)
    limits: bool = setting(
        False, "`true`: limits are given by the relay, for a runtime without NRI. Not with `nri.enabled`."
    )
    count_calls: bool = setting(True, "`false`: calls are not counted, which saves processor time.")
    vm_checkpoint: OnError = setting(OnError.PASS, "`refuse`: CheckpointContainer in a VM is refused with the reason.")
    vm_resize: OnError = setting(OnError.PASS, "`refuse`: a change of CPU or memory of a VM of fixed size is refused.")
    own_namespace: str = setting(
        "nodeward-system",
        "Nodeward's own namespace: its pods start without a decision while no daemon answers, also where `on_error` "
        "is `refuse`. Name the DaemonSet's: `nodeward`, with the chart the release's.",
    )


RELAYED_WAITS_MS = 60_000
"""So long creates may wait for facts in any ten seconds, all together, where a relay holds them: there they do not wait
for one another, as they do with NRI, for which the setting `pods.wait_budget_ms` is."""
SECRETS = ("credentials", "environment", "commands", "annotations")
"""What is blanked in a dump unless `dump.show` names it."""


@dataclass(frozen=True, slots=True)
class DumpSection:
    """The relay's dump of CRI messages; off while `file` is empty."""

    file: str = setting("", "The dump of `nodeward relay`; empty: none.", path=True)
    rules: str = setting("full:.*", "Which methods, and how much of them: `[level:]method[,...]`.")
    max_bytes: int = setting(
        256 * 1024 * 1024, "Beyond this the file begins anew, and the old one is kept as FILE.1.", 1024 * 1024
    )
    show: tuple[str, ...] = setting((), "What is not blanked: `credentials`, `environment`, `commands`, `annotations`.")


@dataclass(frozen=True, slots=True)
class MetricsSection:
    """Metrics of `nodeward node` for Prometheus. Nobody has to log in, so `listen` is this machine."""

    enabled: bool = setting(False, "Serve `/metrics` for Prometheus.")
    listen: str = setting(
        "127.0.0.1:9743", "`HOST:PORT`, `[::1]:9743`, or `:9743` for every address. There is no TLS and no login."
    )


@dataclass(frozen=True, slots=True)
class AgentSection:
    """A cluster's configuration by `nodeward agent`. `config_socket`: the socket at which the process that gives
    containers CPUs (cpus.driver) takes it; empty for none."""

    config_socket: str = setting(
        "",
        "Where the process of `cpus.driver` takes a configuration from `nodeward agent`, not the section `policy`. "
        "Empty: no socket.",
        path=True,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings file of `nodeward node`, `nodeward relay` and `nodeward webhook`."""

    node_name: str = setting("", "The node's name in the API server. Empty: `NODE_NAME`, else the host name.")
    state_dir: str = setting(
        "/var/lib/nodeward",
        "Undo list, pods as last known, last good settings. It must survive a restart of the machine.",
        path=True,
    )
    run_dir: str = setting("/run/nodeward", "The lock of the one instance, and the socket `nodeward.sock`.", path=True)
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
