"""Pods, containers and events for tests, and a clock that is turned by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from nodeward.core import events as ev
from nodeward.core.decision import Adjustment, Decision, Final
from nodeward.core.feature import Hear
from nodeward.core.refusal import Refusal
from nodeward.core.workload import Container, ContainerId, ContainerSpec, PodSpec, PodUid, Role, Sandbox, SandboxId
from nodeward.features.all import EVENTS, apply
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings

T = TypeVar("T")
EPC = "sgx_epc"
SECOND = 1_000_000_000
RULE = LimitsSettings()


@dataclass(slots=True)
class ManualClock:
    ns: int = SECOND

    def now_ns(self) -> int:
        return self.ns

    def wall_ns(self) -> int:
        return self.ns

    async def sleep(self, seconds: float) -> None:
        self.ns += int(seconds * SECOND)


def container_spec(name: str, epc: int | None = None, role: Role = Role.REGULAR) -> ContainerSpec:
    return ContainerSpec(name, role, {} if epc is None else {EPC: epc})


def pod_spec(uid: str, *containers: ContainerSpec, overhead: int = 0, config_hash: str = "") -> PodSpec:
    return PodSpec(
        PodUid(uid),
        "shop",
        f"pod-{config_hash or uid}",
        containers,
        overhead={EPC: overhead} if overhead else {},
        config_hash=config_hash,
    )


def sandbox(uid: str, annotations: dict[str, str] | None = None, sandbox_id: str = "") -> Sandbox:
    return Sandbox(
        SandboxId(sandbox_id or f"s-{uid}"), PodUid(uid), "shop", f"pod-{uid}", annotations or {}, f"/kubepods/pod{uid}"
    )


def container(uid: str, name: str, sandbox_id: str = "") -> Container:
    return Container(
        ContainerId(f"{uid}-{name}"),
        SandboxId(sandbox_id or f"s-{uid}"),
        name,
        cgroups_path=f"/kubepods/pod{uid}/{uid}-{name}",
    )


def creating(uid: str, name: str, ask_id: int = 1, annotations: dict[str, str] | None = None) -> ev.Creating:
    return ev.Creating(sandbox(uid, annotations), container(uid, name), ask_id=ask_id)


def started(uid: str, name: str, annotations: dict[str, str] | None = None) -> ev.Started:
    return ev.Started(sandbox(uid, annotations), container(uid, name))


@dataclass(slots=True)
class Told:
    """An engine that is told events one by one, stamped as the core stamps them."""

    state: State = field(default_factory=State)
    at_ns: int = SECOND

    def stamped(self, event: ev.Event) -> ev.Event:
        return replace(event, at_ns=self.at_ns, wall_ns=self.at_ns, seq=self.state.seq + 1)

    def __call__(self, event: ev.Event) -> Decision:
        self.state, decision = apply(self.state, self.stamped(event))
        return decision


def node(limits: LimitsSettings = RULE, *, capacity: int = 1 << 30) -> Told:
    """An engine on a node with this much EPC whose API server answers."""
    told = Told(State(settings=EngineSettings(limits=limits)))
    told(ev.CapacityRead(controller=True, capacity={EPC: capacity} if capacity else {}))
    told(ev.ApiBack())
    return told


def known(epc: int | None = 5, limits: LimitsSettings = RULE) -> Told:
    """A node that knows pod A, whose container `app` declares so much."""
    told = node(limits)
    told(ev.PodSeen(pod_spec("A", container_spec("app", epc))))
    return told


def running(epc: int | None = 5, limits: LimitsSettings = RULE) -> Told:
    told = known(epc, limits)
    told(started("A", "app"))
    return told


def value_of(decision: Decision) -> object:
    assert isinstance(decision.answer, Final)
    return decision.answer.value


def there(found: T | None) -> T:
    assert found is not None
    return found


def refusal(decision: Decision) -> str:
    """Why it is refused; nothing where it is not."""
    value = value_of(decision)
    return value.message if isinstance(value, Refusal) else ""


def adjusted(decision: Decision) -> Adjustment:
    value = value_of(decision)
    assert isinstance(value, Adjustment), value
    return value


def everywhere(hear: Hear[State]) -> Mapping[type[ev.Event], Hear[State]]:
    """What a feature hears that takes every event by the one function."""
    return dict.fromkeys(EVENTS.values(), hear)
