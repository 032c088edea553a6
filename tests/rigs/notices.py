"""A node that may tell pods, as the tests of Kubernetes Events have it."""

from collections.abc import Mapping

from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.decision import PodEvent
from nodeward.model.settings import EngineSettings, LimitsSettings
from nodeward.model.workload import Role
from tests.goals import target
from tests.unit.engine.build import EPC, RULE, SECOND, Told, container_spec, creating, pod_spec, started

POD, APP = "/kubepods/podA", "/kubepods/podA/A-app"
GOAL = target(f"misc.max:{EPC}:{APP}")
LIMIT = 4096


def reading(
    limit: int | None = LIMIT, usage: int = 0, refused: int = 0, controller: bool = True, local: bool = True
) -> ev.MiscReading:
    if not controller:
        return ev.MiscReading(controller=False)
    return ev.MiscReading(
        limit={} if limit is None else {EPC: limit},
        usage={EPC: usage},
        refusals={EPC: refused},
        refusals_local={EPC: refused} if local else {},
    )


class Node:
    """An engine that may tell pods, with the pod A whose container `app` declares LIMIT and holds it."""

    def __init__(self, rule: LimitsSettings = RULE, capacity: int = 1 << 30, kube_events: bool = True) -> None:
        self.told = Told(State(settings=EngineSettings(limits=rule, kube_events=kube_events)))
        self.told(ev.CapacityRead(controller=True, capacity={EPC: capacity} if capacity else {}))
        self.told(ev.ApiBack())
        self.pod("A")

    def pod(self, uid: str, config_hash: str = "", role: Role = Role.REGULAR) -> None:
        self.told(ev.PodSeen(pod_spec(uid, container_spec("app", LIMIT, role), config_hash=config_hash)))
        of = config_hash or uid
        self.told(creating(of, "app"))
        self.told(started(of, "app"))
        path = f"/kubepods/pod{of}"
        self.told(ev.Reached((target(f"misc.max:{EPC}:{path}"), target(f"misc.max:{EPC}:{path}/{of}-app"))))

    def sees(self, app: ev.MiscReading, pod: ev.MiscReading | None = None, after_s: float = 1.0) -> list[PodEvent]:
        """A pass of the sampler, and what pods are told by it."""
        return self.hears({POD: pod or reading(), APP: app}, after_s)

    def hears(
        self, readings: Mapping[str, ev.MiscReading], after_s: float = 0.0, rest_same: bool = False
    ) -> list[PodEvent]:
        """A pass over these cgroups."""
        self.told.at_ns += int(after_s * SECOND)
        return list(self.told(ev.Sampled(readings, as_of=self.told.state.seq, rest_same=rest_same)).calls)

    def ends(self, call: PodEvent, error: str = "") -> None:
        self.told(ev.CallEnded(call.id, error))


def codes(calls: list[PodEvent]) -> list[tuple[str, str, int]]:
    return [(call.container, call.reason.code, call.count) for call in calls]


def seen() -> Node:
    """Whose cgroups were read once."""
    node = Node()
    node.sees(reading())
    return node
