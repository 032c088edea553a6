"""Rows of limits, as people and programs read them."""

from dataclasses import dataclass, field, replace
from enum import Enum

from nodeward.core.devices import PluginStanding
from nodeward.core.shown import Label, Metric, Total, gauge, known, shown, shows

_CADVISOR = ("container", "id=cgroup", "image", "name=id", "namespace", "pod", "resource")
"""cAdvisor's labels, of ours."""
USAGE = Metric("nodeward_misc_usage", "Charged now, with everything below.")
UNDERFLOW = Metric("nodeward_misc_underflow", "1 while the kernel's counter is below zero.")
_REFUSALS = Total(
    "nodeward_misc_refusals_total",
    "Charges refused by this cgroup's limit (local), or by it and those below (subtree).",
)


def _at_least_none(value: int) -> int | None:
    """A counter's value; None for one below zero."""
    return value if value >= 0 else None


def _below_zero(value: int) -> int | None:
    """1 for a counter below zero."""
    return 1 if value < 0 else None


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """One misc resource of one cgroup. None where it is not known or has no bound; bytes for `sgx_epc`."""

    resource: str = field(metadata=shown(Label()))
    wanted: int | None = field(
        metadata=shown(Metric("nodeward_misc_declared", "What the pod's declarations allow. 0 if denied."))
    )
    limit: int | None = gauge("nodeward_misc_limit", "The limit in the kernel. Absent for none.")
    usage: int | None = known(
        replace(USAGE, of=_at_least_none),
        replace(UNDERFLOW, of=_below_zero),
        Metric(
            "container_misc_usage",
            "As nodeward_misc_usage, with cAdvisor's labels.",
            labels=_CADVISOR,
            of=_at_least_none,
        ),
    )
    peak: int | None = gauge("nodeward_misc_peak", "The most ever asked for, refused charges included.")
    refusals: int | None = known(
        _REFUSALS.at(scope="subtree"),
        Total("container_misc_events", "As nodeward_misc_refusals_total of scope subtree.", labels=_CADVISOR),
    )
    refusals_here: int | None = known(_REFUSALS.at(scope="local"))
    state: str = ""
    """Where this resource stands; the cgroup's state is that of the resources this kernel has."""
    taken_back: bool = False
    """It was wanted here, is no longer, and is not known to be taken back yet."""
    declared: int | None = None
    """What the container declares, of a pod the budget that follows. None for nothing, though 0 may be wanted: `wanted`
    is what the rule makes of it."""

    @property
    @shows(Metric("nodeward_misc_limited", "1 if the kernel has a limit, else 0."))
    def is_limited(self) -> bool | None:
        """None where nothing was read: then there may be a limit or not."""
        return None if self.limit is None and self.usage is None else self.limit is not None

    @property
    def is_idle(self) -> bool:
        """Nothing is wanted, limited, used or refused: nothing to tell people of."""
        return self.wanted is None and self.limit is None and not (self.usage or self.peak or self.refusals)


@dataclass(frozen=True, slots=True)
class LinesRow:
    """Whether a runtime is given `misc.max` of several lines: off or on, or, with `nri.multi_line`, held since an OCI
    runtime is too old or does not tell, or unverified since none is seen. `why` is by what."""

    state: str = gauge(
        "nodeward_multi_line_info",
        "1, with the state of nri.multi_line: off, on, held or unverified.",
        by="state",
        default="off",
    )
    why: str = ""

    @property
    def text(self) -> str:
        """The state in words for people."""
        meant = {
            "held": "true is not followed, the first limit goes by the runtime and the others by direct write",
            "unverified": "true is followed and not verified: with an older OCI runtime two limits fail a container",
        }
        return f"nri.multi_line={self.state}: {meant.get(self.state, 'is followed')} ({self.why})"


@dataclass(frozen=True, slots=True)
class CgroupRow:
    """One container's or pod's cgroup."""

    level: str = field(metadata=shown(Label()))
    namespace: str = field(metadata=shown(Label()))
    pod: str = field(metadata=shown(Label()))
    container: str = field(metadata=shown(Label()))
    id: str = field(metadata=shown(Label(named=True)))
    cgroup: str = field(metadata=shown(Label(named=True)))
    state: str = field(
        metadata=shown(Metric("nodeward_enforcement_state", "1 for the state of the cgroup.", by="state"))
    )
    source: str = field(metadata=shown(Label(named=True)))
    rule: str
    resources: tuple[ResourceRow, ...]
    last_error: str = ""
    repairs: int = 0
    stale_since: str = ""
    """Where `source` is the pod's spec and the API server does not answer: since when (RFC 3339)."""
    faults: tuple[str, ...] = ()
    """Declarations of this container, or of this pod's containers, that could not be read; they count as undeclared."""
    image: str = known(Label(named=True), default="")
    """The name of a container's image, where the runtime tells it."""

    @property
    @shows(
        Metric(
            "nodeward_container_info",
            "1 for each container, with its id.",
            labels=("level", "namespace", "pod", "container", "id", "source"),
        )
    )
    def is_container(self) -> bool | None:
        """None for a pod's."""
        return True if self.level == "container" else None

    @property
    def was_read(self) -> bool:
        """Of two cgroups of one container the kernel was asked about this one."""
        return self.state != "stale" and any(one.usage is not None for one in self.resources)


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device node of SGX that containers are given. `why` says why it is not there, and `expected` whether the node
    should have it, since it has enclave memory or had the device; `ids`, `standing` and `plugin` are of the device
    plugin: how many ids kubelet has, the plugin's state and the reason for that."""

    resource: str = field(metadata=shown(Label()))
    path: str
    there: bool = gauge("nodeward_sgx_device", "1 while the node has this device node of SGX, else 0.")
    why: str = ""
    ids: int = 0
    standing: str = gauge(
        "nodeward_sgx_plugin_state",
        "1 for the state of the device plugin, 0 for the others. Absent without one.",
        by="state",
        every=PluginStanding,
        default="",
    )
    plugin: str = ""
    expected: bool = False


@dataclass(frozen=True, slots=True)
class EpcDeviceRow:
    """What claims may have of the enclave memory of one NUMA node, or of the machine (`epc`), in bytes."""

    device: str = field(metadata=shown(Label()))
    size: int = gauge("nodeward_epc_claims_capacity_bytes", "Enclave memory of this device of the ResourceSlice.")
    published: int = gauge("nodeward_epc_claims_published_bytes", "What of it claims may have.")
    promised: int = gauge("nodeward_epc_claims_promised_bytes", "What prepared claims have of it.")


@dataclass(frozen=True, slots=True)
class EpcClaimRow:
    """A prepared claim of enclave memory, in bytes."""

    claim: str
    uid: str
    amount: int
    pods: tuple[str, ...] = ()
    since_wall_ns: int = 0


@dataclass(frozen=True, slots=True)
class EnclavesView:
    """What the node gives of SGX beside limits: device nodes (`given_by`, the setting `limits.devices`) and enclave
    memory by claim. `registered` is None while none goes by claim, `driver` says why kubelet has it not; `enforced` is
    false where the kernel can hold no limit."""

    given_by: str
    devices: tuple[DeviceRow, ...] = ()
    memory: tuple[EpcDeviceRow, ...] = ()
    claims: tuple[EpcClaimRow, ...] = ()
    registered: bool | None = gauge(
        "nodeward_epc_driver_registered", "1 while kubelet has our driver, else 0. Absent unless memory goes by claim."
    )
    driver: str = ""
    enforced: bool = True


def pod_name(row: CgroupRow) -> str:
    """NAMESPACE/POD; the UID alone of a pod of which only cgroups are known."""
    return f"{row.namespace}/{row.pod}" if row.namespace else row.pod


MAX_REPAIRS = 3


class Standing(Enum):
    """The state of a cgroup against what is wanted of it."""

    UNMANAGED = "unmanaged"
    COUNTED = "counted"
    """No limit is wanted here, and the pod has TEE keys."""
    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"
    CONTROLLER_OFF = "controller-off"
    ENFORCED = "enforced"
    DRIFT = "drift"
    PENDING = "pending"
    STALE = "stale"
    OUTSIDE = "outside"
    RELAYED = "relayed"
    """It was given through the relay, and its cgroup is not found: nobody reads the kernel."""
