"""Objects in the API server: a BalloonsPolicy that is read, and a NodeResourceTopology that is written."""

import asyncio
import json
from collections.abc import Callable, Mapping

import pytest

from nodeward.app.node.policy_objects import Session
from nodeward.app.node.topology_object import Session as ZonesSession
from nodeward.app.settings import policy_object
from nodeward.app.settings.load import SettingsError
from nodeward.app.settings.policy_object import Chosen, translated
from nodeward.app.settings.reload import Reload
from nodeward.doubles.kernel import SimKernel
from nodeward.edges.kube.errors import KubeAwayError
from nodeward.edges.kube.policy_objects import Seen
from nodeward.engine.state.root import State
from nodeward.model.events import Event
from nodeward.model.policy_object import PolicyKind, PolicyObject, Said
from nodeward.model.policy_rule import CpusSettings
from nodeward.model.settings import EngineSettings, Mode, PolicyObjectsSection, Settings
from nodeward.model.zones import NodeZones, Zone
from nodeward.wire.topology_object import Found, body, found
from tests.lanes import InlineLane
from tests.rigs.daemon import YieldingClock, folders


def an_object(spec: object, kind: PolicyKind = PolicyKind.BALLOONS) -> PolicyObject:
    return PolicyObject(kind, "kube-system", "default", "u", 1, json.dumps(spec).encode())


FAULTS = {
    "unknown key": ({"balloonTyps": []}, "spec.balloonTyps: unknown key; did you mean balloonTypes?"),
    "unknown amount": ({"reservedResources": {"cpus": 1}}, "spec.reservedResources.cpus: unknown key"),
    "available by number": ({"availableResources": {"cpu": 4}}, "spec.availableResources.cpu: '4' is a number of CPUs"),
    "no mapping": ([], "spec: is no mapping"),
}


@pytest.mark.parametrize(("spec", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_has_its_path_below_spec(spec: object, fault: str) -> None:
    if isinstance(spec, dict):
        spec = {"reservedResources": {"cpu": 1}, **spec}
    with pytest.raises(SettingsError) as refused:
        translated(an_object(spec))

    assert fault in str(refused.value)


def test_topology_aware_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="topology-aware comes with a later version"):
        translated(an_object({}, PolicyKind.TOPOLOGY_AWARE))


def test_what_was_in_force_is_kept_and_a_damaged_file_is_none(caplog: pytest.LogCaptureFixture) -> None:
    kernel: SimKernel = folders()
    settings = Settings(policy_objects=PolicyObjectsSection(enabled=True))
    path = policy_object.path_in(settings.state_dir)
    chosen = translated(an_object({"reservedResources": {"cpu": 1}}))
    assert policy_object.kept(kernel, settings) is None

    def after(data: bytes, of: Settings = settings) -> Chosen | None:
        kernel.replace(path, data)
        return policy_object.kept(kernel, of)

    assert after(policy_object.encode(chosen)) == chosen
    assert after(policy_object.encode(chosen), Settings()) is None
    assert after(policy_object.encode(None)) is None
    assert not caplog.records
    for damaged in (
        b"",
        b"{",
        b"[]",
        b'{"v": 2}',
        b'{"v": 1, "name": "a", "spec": "{\\"x\\": 1}"}',
        b'{"v": 1, "name": 4}',
    ):
        assert after(damaged) is None
    assert len(caplog.records) == 6


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"reservedResources": dict.fromkeys(map(str, range(40_000)), 1)}, id="amounts"),
        pytest.param(dict.fromkeys(map(str, range(40_000)), 1), id="keys"),
        pytest.param(
            {"balloonTypes": [{"name": "a", "matchExpressions": [{"key": "x"}] * 256}] * 64}, id="expressions"
        ),
    ],
)
def test_very_many_faults_are_told_by_the_first_ones(spec: object) -> None:
    """They are logged and shown; and what compares each fault with each key would take minutes."""
    with pytest.raises(SettingsError) as told:
        translated(an_object(spec))
    assert len(told.value.faults) <= 101


SERVED: Mapping[PolicyKind, str] = {PolicyKind.BALLOONS: "1"}
RULES = {"reservedResources": {"cpu": 1}}


class Told:
    """A core, and an API server's client: `answers` are what it finds, one a round; None: the API server is away."""

    def __init__(self, *answers: Seen | None, mode: Mode = Mode.ENFORCE, began: PolicyObject | None = None) -> None:
        self.node, self.namespace = "n1", "kube-system"
        self._answers = list(answers)
        self.state = State(settings=EngineSettings(cpus=CpusSettings(mode)))
        self.events, self.said = list[Event](), list[tuple[str, Said | None]]()
        chosen = translated(began) if began is not None else None
        self.reload = Reload(Settings(), None, folders(), InlineLane(), YieldingClock(), chosen)
        self.over = asyncio.Event()

    async def look(self) -> Seen:
        if not self._answers:
            self.over.set()
            await asyncio.Event().wait()
        found = self._answers.pop(0)
        if found is None:
            raise KubeAwayError("away")
        return found

    async def until_touched(self, *_: object) -> None:
        await asyncio.sleep(0)

    async def until_moved(self, *_: object) -> None:
        await asyncio.sleep(0)

    async def say(self, _: PolicyKind, name: str, said: Said | None) -> None:
        self.said.append((name, said))

    def tell(self, event: Event) -> int:
        self.events.append(event)
        return len(self.events)


def play(told: Told) -> Told:
    async def story() -> None:
        session = Session(told, told, told.tell, told.reload, YieldingClock(), lambda *_: None)  # type: ignore[arg-type]
        running = asyncio.create_task(session.forever())
        async with asyncio.timeout(10):
            await told.over.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
    return told


def seen(*objects: PolicyObject) -> Seen:
    return Seen("", objects, SERVED)


def test_what_is_in_force_outlives_an_api_server_that_is_away_or_does_not_serve_the_kind_yet() -> None:
    object_ = an_object(RULES)

    assert play(Told(None, Seen(), None, seen(object_), began=object_)).reload.chosen == translated(object_)
    assert play(Told(Seen(), Seen(), began=object_)).reload.chosen is None


def test_an_object_is_put_in_force_once_and_never_while_the_domain_is_off() -> None:
    told = play(Told(*[seen(an_object(RULES))] * 3))
    assert (len(told.events), told.said[0]) == (1, ("default", Said("Success", 1)))

    told = play(Told(*[seen(an_object(RULES))] * 3, mode=Mode.OFF))
    assert told.events == []
    assert told.reload.row.policy_object_faults == (
        "cpus.mode is off in the settings of this node: no policy is in force",
    )


class Api:
    """Has the object, and each write's time. `spoils`: somebody edits it after each; `away`: so many looks fail."""

    def __init__(self, spoils: bool = False, away: int = 0) -> None:
        self.node, self.clock, self.spoils, self.away = "n1", YieldingClock(), spoils, away
        self.there: Found | None = None
        self.writes, self.notes = list[float](), list[tuple[bool, str]]()

    async def look(self) -> Found | None:
        await asyncio.sleep(0)
        if self.away:
            self.away -= 1
            raise KubeAwayError("away")
        return self.there

    async def write(self, wanted: NodeZones, _: Found | None) -> None:
        self.writes.append(self.clock.now_ns() / 1e9)
        said = body("n1", "u", wanted)
        self.there = found(said.replace(b'"node-0"', b'"mine"') if self.spoils else said)

    async def until_touched(self, _: str) -> None:
        await asyncio.Event().wait()

    @staticmethod
    def writers(_: Found) -> str:
        return "written by nfd"

    def note(self, _: str, ready: bool, detail: str) -> None:
        self.notes.append((ready, detail))


def written_in(api: Api, wanted: Callable[[], NodeZones | None], until_s: float) -> list[float]:
    """When it was written in so long; seconds between two writes."""

    async def story() -> None:
        session = ZonesSession(api, wanted, lambda: None, api.clock, api.note)  # type: ignore[arg-type]
        running = asyncio.create_task(session.forever())
        async with asyncio.timeout(30):
            while api.clock.now_ns() < until_s * 1e9:
                await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
    return [after - before for before, after in zip(api.writes, api.writes[1:], strict=False)]


def zones(name: str = "node-0") -> NodeZones:
    return NodeZones((Zone(name, "Node"),))


def test_cpus_that_change_all_the_time_are_written_once_a_second_at_most() -> None:
    asked = iter(range(100_000))
    gaps = written_in(Api(), lambda: zones(str(next(asked))), 60)
    assert len(gaps) > 20
    assert min(gaps) >= 1


def test_what_is_there_is_not_written_again() -> None:
    api = Api()
    written_in(api, zones, 600)
    assert len(api.writes) == 1
    assert api.notes[-1] == (True, "written")


def test_who_edits_it_again_and_again_is_answered_less_and_less_often() -> None:
    gaps = written_in(Api(spoils=True), zones, 600)
    assert gaps[0] < 5
    assert min(gaps[-3:]) >= 30


@pytest.mark.parametrize("wanted", [None, NodeZones()], ids=["unknown", "nothing"])
def test_nothing_is_written_that_is_not_wanted(wanted: NodeZones | None) -> None:
    api = Api()
    written_in(api, lambda: wanted, 60)
    assert api.writes == []


def test_an_api_server_that_was_away_gets_it_when_it_is_back() -> None:
    api = Api(away=4)
    written_in(api, zones, 120)
    assert len(api.writes) == 1
    assert api.notes[0] == (False, "away")
