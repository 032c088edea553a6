"""The pods of a simulated history, and what each container of them was promised: worked out by hand for each kind.

On purpose not with the engine's code; amounts are pages of 4096 bytes.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from nodeward.core.workload import ContainerSpec, PodSpec, PodUid, Role
from nodeward.features.limits.settings import LimitsSettings, UnknownPod

EPC = "sgx_epc"
PAGE = 4096
Promises = Mapping[str, int | None]
"""Container name to its promise in bytes; None where nothing limits it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a pod asks for. `told` and `noted`: what containers are promised by the spec, and by annotations alone."""

    containers: tuple[ContainerSpec, ...]
    told: Promises
    budget: int | None
    noted: Promises | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    overhead: int = 0
    in_api: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """One pod to live. `uid` is the runtime's; a static pod's differs from the API server's."""

    uid: PodUid
    spec: PodSpec
    kind: Kind
    cgroup: str
    systemd: bool

    def container_cgroup(self, container_id: str) -> str:
        return f"{self.cgroup}/" + (f"cri-containerd-{container_id}.scope" if self.systemd else container_id)

    def promise(self, name: str, known: bool, rule: LimitsSettings) -> int | None:
        """What the container is promised, with the spec known or not."""
        if known:
            found = self.kind.told.get(name, 0 if self.kind.budget is not None else None)
            return 0 if found is None and rule.strict else found
        noted = self.kind.noted.get(name) if self.kind.noted is not None else None
        return 0 if noted is None and rule.unknown_pod is UnknownPod.ZERO else noted

    def budget(self, known: bool, rule: LimitsSettings) -> int | None:
        if not known:
            return None
        return 0 if self.kind.budget is None and rule.strict else self.kind.budget


def _spec(name: str, pages: int | None = None, role: Role = Role.REGULAR) -> ContainerSpec:
    return ContainerSpec(name, role, {} if pages is None else {EPC: pages * PAGE})


def _plain(a: int, b: int, c: int) -> Kind:
    return Kind((_spec("app", a),), {"app": a * PAGE}, a * PAGE)


def sidecar_before_init(a: int, b: int, c: int) -> Kind:
    containers = (_spec("side", b, Role.SIDECAR), _spec("init", c, Role.INIT), _spec("app", a))
    told = {"side": b * PAGE, "init": c * PAGE, "app": a * PAGE}
    return Kind(containers, told, max(b + c, b + a) * PAGE)


def _overhead(a: int, b: int, c: int) -> Kind:
    b += 1
    return Kind((_spec("app", a), _spec("web")), {"app": a * PAGE, "web": 0}, (a + b) * PAGE, overhead=b * PAGE)


def _own_annotation(a: int, b: int, c: int) -> Kind:
    notes = {"nodeward.io/limits": json.dumps({"app": {EPC: str(a * PAGE)}})}
    return Kind((_spec("app"), _spec("web")), {}, None, {"app": a * PAGE, "web": 0}, notes, in_api=False)


def _upstream_annotation(a: int, b: int, c: int) -> Kind:
    notes = {"epc-limit.nri.io/container.app": str(a * PAGE), "epc-limit.nri.io/pod": str(b * PAGE)}
    noted = {"app": a * PAGE or None, "web": b * PAGE or None}
    return Kind((_spec("app"), _spec("web")), {}, None, noted, notes, in_api=False)


def _annotated_otherwise(a: int, b: int, c: int) -> Kind:
    """The annotation promises another amount than the spec, which wins as soon as it is known."""
    noted = {"epc-limit.nri.io": str(c * PAGE)}
    return Kind((_spec("app", a),), {"app": a * PAGE}, a * PAGE, {"app": c * PAGE or None}, noted)


def _annotated_for_nothing(a: int, b: int, c: int) -> Kind:
    """An annotation limits what the spec, once known, leaves alone."""
    notes = {"epc-limit.nri.io/pod": str(c * PAGE)}
    return Kind((_spec("app"),), {"app": None}, None, {"app": c * PAGE or None}, notes)


def _unknown(a: int, b: int, c: int) -> Kind:
    return Kind((_spec("app"),), {}, None, in_api=False)


KINDS: tuple[Callable[[int, int, int], Kind], ...] = (
    _plain,
    sidecar_before_init,
    _overhead,
    _own_annotation,
    _upstream_annotation,
    _annotated_otherwise,
    _annotated_for_nothing,
    _unknown,
)


def make(number: int, random: Random) -> Plan:
    kind = random.choice(KINDS)(*(random.randint(0, 6) for _ in range(3)))
    uid, static, systemd = f"0000-{number:04d}", random.random() < 0.1, random.random() < 0.3
    api_uid = f"mirror-{number:04d}" if static else uid
    overhead = {EPC: kind.overhead} if kind.overhead else {}
    spec = PodSpec(
        PodUid(api_uid), "shop", f"pod-{number}", kind.containers, overhead, config_hash=uid if static else ""
    )
    slice_ = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid.replace('-', '_')}.slice"
    return Plan(PodUid(uid), spec, kind, slice_ if systemd else f"/kubepods/burstable/pod{uid}", systemd)
