"""The section policy, pushed by an agent or as an object in the API server; a NodeResourceTopology that is written."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from nodeward.core.decision import Special
from nodeward.core.events import Event
from nodeward.core.modes import Mode
from nodeward.core.topology import NodeZones, Zone
from nodeward.features.cpus.pool_settings import ClassOf
from nodeward.features.cpus.settings import Amount, AmountKind, CpusSettings, Driver, PolicySettings, StaticSettings
from nodeward.features.cpus.spelling.policy import amount
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings, PolicyObjectsSection, Settings
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.kubernetes.errors import KubeAwayError
from nodeward.neighbours.kubernetes.owned import Found, Owned, body, found
from nodeward.neighbours.kubernetes.policy_object import PolicyKind, PolicyObject, Said
from nodeward.neighbours.kubernetes.policy_objects import PolicyObjectList
from nodeward.neighbours.kubernetes.topology_object import TOPOLOGY
from nodeward.programs.cri_resmgr.pushed import over_file
from nodeward.settings import last_good, policy_object
from nodeward.settings.follow_object import PolicyObjectFollower
from nodeward.settings.load import SettingsError, from_tree, load
from nodeward.settings.policy_object import ChosenPolicy, translated
from nodeward.settings.pushed import FILE, Pushed
from nodeward.settings.reload import Reload, merged
from nodeward.settings.source import SettingsSource
from nodeward_sim.doubles.kernel import SimKernel
from tests.lanes import InlineLane
from tests.rigs.daemon import YieldingClock, folders

CPUS, RESERVED = Amount(AmountKind.CPUSET, 0xFF), Amount(AmountKind.QUANTITY, milli=1000)
WANTED = PolicySettings("static", CPUS, RESERVED, StaticSettings(True, {"full-pcpus-only": True}))
Pairs = Mapping[str, str]


def loaded(text: str, folder: Path, environ: Pairs | None = None, flags: Pairs | None = None) -> Settings:
    file = folder / "s.yaml"
    file.write_text(text)
    return load(str(file), environ or {}, flags)


def test_all_faults_of_a_policy_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded("policy: {Active: x, reserved: y}", tmp_path)
    assert [one.partition(": ")[0] for one in caught.value.faults] == ["policy.Active", "policy.reserved"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "{ReservedResources: {CPU: 1}, AvailableResources: {CPU: 'cpuset:0-7'}, Active: static, "
            "static: {RelaxedIsolation: true, Rdt: auto, Options: {full-pcpus-only: 'true'}}}",
            id="CRI Resource Manager",
        ),
        pytest.param(
            "{reservedResources: {cpu: 1000m}, availableResources: {cpu: 'cpuset:0-7'}, active: static, "
            "static: {relaxedIsolation: 'true', options: {full-pcpus-only: true}}}",
            id="nri-plugins",
        ),
        pytest.param(
            "{reserved: '1', available: 0-7, active: static, "
            "static: {relaxed_isolation: true, options: {full-pcpus-only: true}}}",
            id="ours",
        ),
    ],
)
def test_every_spelling_means_the_same_and_is_kept_for_the_next_start(text: str, tmp_path: Path) -> None:
    settings = loaded(f"policy: {text}", tmp_path)

    assert settings.policy == WANTED
    assert from_tree(json.loads(json.dumps(last_good.plain(settings))), {}) == settings


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("cpuset:0-3,8", Amount(AmountKind.CPUSET, 0x10F)),
        ("#0,2", Amount(AmountKind.CPUSET, 0b101)),
        ("0-1", Amount(AmountKind.CPUSET, 0b11)),
        ("0,1", Amount(AmountKind.CPUSET, 0b11)),
        ("exclude-cpuset:8191", Amount(AmountKind.EXCLUDE, 1 << 8191)),
        ("750m", Amount(AmountKind.QUANTITY, milli=750)),
        ("2", Amount(AmountKind.QUANTITY, milli=2000)),
        (2, Amount(AmountKind.QUANTITY, milli=2000)),
        (1.5, Amount(AmountKind.QUANTITY, milli=1500)),
        ("0.0001", Amount(AmountKind.QUANTITY, milli=1)),
    ],
)
def test_an_amount_is_read_as_the_field_writes_it_and_written_to_be_read_again(value: object, expected: Amount) -> None:
    assert amount(value) == expected
    assert amount(str(expected)) == expected


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("cgroup:/x", "CPUs are not taken from a cgroup"),
        ("cpuset:", "it names no CPU"),
        ("cpuset:3-1", "runs backwards"),
        ("cpuset:0-40000", "above 8191"),
        ("0", "not between 1m and 8192 CPUs"),
        (-1, 'write "cpuset:0-3"'),
        ("2.5m", 'write "cpuset:0-3"'),
        ("9" * 5000, 'write "cpuset:0-3"'),
        (1 << 30_000, 'write "cpuset:0-3"'),
        (float("nan"), 'write "cpuset:0-3"'),
        (True, 'write "cpuset:0-3"'),
    ],
    ids=lambda value: str(value)[:32] if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_amount_is_refused_with_the_reason(value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        amount(value)


@pytest.mark.parametrize("written", ["null", "''", "none", "'null'"])
def test_no_policy_has_many_names(written: str, tmp_path: Path) -> None:
    assert loaded(f"policy: {{Active: {written}}}", tmp_path).policy == PolicySettings()


def test_environment_and_flags_overrule_a_file_in_another_spelling(tmp_path: Path) -> None:
    text = "policy: {Active: none, ReservedResources: {CPU: 2}, static: {Options: {full-pcpus-only: 'false'}}}"
    environ = {
        "NODEWARD_POLICY__RESERVED_RESOURCES__CPU": "1",
        "NODEWARD_POLICY__STATIC__OPTIONS__FULL_PCPUS_ONLY": "true",
        "NODEWARD_POLICY__STATIC__RELAXED_ISOLATION": "true",
    }
    flags = {"policy.active": "static", "policy.AvailableResources.CPU": "cpuset:0-7"}

    assert loaded(text, tmp_path, environ, flags).policy == WANTED
    with pytest.raises(SettingsError) as caught:
        loaded(text, tmp_path, flags={"policy.active": "statik"})
    assert caught.value.faults[0].startswith("policy.active: 'statik' is no policy")
    assert caught.value.faults[0].endswith("(flag --set policy.active=...)")


def test_a_relay_that_gives_cpus_needs_no_nri_and_nri_has_to_be_on_to_give_them(tmp_path: Path) -> None:
    text = "policy: {active: static, reserved: 1}\nnri: {enabled: false}\ncpus: {driver: relay}"
    assert loaded(text, tmp_path).pins_by(Driver.RELAY)
    with pytest.raises(SettingsError, match=r"^cpus\.driver: nri carries no CPUs while nri\."):
        loaded(text.replace("relay", "nri"), tmp_path)


def test_policy_and_mode_change_at_once_and_the_driver_needs_a_restart() -> None:
    wanted = Settings(policy=WANTED, cpus=CpusSettings(Mode.OBSERVE, Driver.RELAY, late_ms=5))
    live, late = merged(Settings(), wanted)

    assert (live.policy, live.cpus) == (WANTED, CpusSettings(Mode.OBSERVE, Driver.NRI, late_ms=5))
    assert late == ["cpus.driver"]


BALLOONS = {"policy": "Active: balloons\nballoons: {BalloonTypes: [{Name: a}]}\n"}


def test_a_file_is_replaced_and_environment_and_flags_win() -> None:
    variables = {"NODEWARD_POLICY__ACTIVE": "static", "NODEWARD_POLICY__RESERVED": "1"}
    by_variables = over_file(None, variables, {})(BALLOONS).policy
    by_flags = over_file(None, {}, {"policy.active": "static", "policy.reserved": "1"})(BALLOONS).policy
    assert (by_variables.active, by_flags.active) == ("static", "static")
    assert by_variables.balloons.balloon_types[0].name == "a", "what they do not say is as it was pushed"


def test_a_misspelled_section_is_refused_and_that_of_another_policy_has_no_effect() -> None:
    """Else balloons would be in force without any of their types."""
    with pytest.raises(SettingsError, match=r"policy\.ballons is not known; did you mean policy\.balloons\?"):
        over_file(None, {}, {})({"policy": "Active: balloons\nballons: {BalloonTypes: [{Name: a}]}\n"})
    assert over_file(None, {}, {})({"policy": "Active: balloons\ntopology-aware: {}\n"}).policy.active == "balloons"


def test_a_start_with_a_broken_file_goes_on_by_what_was_pushed_once_the_file_is_mended(tmp_path: Path) -> None:
    """Else containers would move to the file's own policy, and back with the agent's next push."""
    file, files = tmp_path / "nodeward.yaml", OsFiles()
    file.write_text(f"state_dir: {tmp_path}\nagent: {{config_socket: {tmp_path}/config.sock}}\n")
    Path(FILE.path_in(str(tmp_path))).write_text(json.dumps({"v": 1, "holds": BALLOONS}))
    overlaid = over_file(str(file), {}, {})
    last, good = Pushed(overlaid, files).first(), file.read_text()
    file.write_text(f"{good}polcy: none\n")
    pushed = Pushed(overlaid, files)
    with pytest.raises(SettingsError):
        pushed.first()
    pushed.go_on(last)
    assert pushed.is_known(BALLOONS)
    file.write_text(good)
    assert pushed.read().policy.active == "balloons"


def pushes(times: int, unfit: Sequence[str] = (), by_object: bool = False, mode: str = "enforce") -> list[str]:
    """What the daemon answers, where the policy in force does not fit the machine."""
    pushed, lane = Pushed(over_file(None, {}, {"cpus.mode": mode}), folders()), InlineLane()
    chosen = translated(an_object({"reservedResources": {"cpu": 1}})) if by_object else None
    source = SettingsSource(pushed.read, "a test", pushed=pushed)
    reload = Reload(Settings(), source, folders(), lane, YieldingClock(), chosen)

    async def push() -> str:
        asked = asyncio.ensure_future(reload.push("n", BALLOONS, lambda _: 0, lambda: tuple(unfit)))
        while not asked.done():
            lane.drain()
            await asyncio.sleep(0)
        return await asked

    async def story() -> list[str]:
        return [await push() for _ in range(times)]

    return asyncio.run(story())


def test_faults_of_a_policy_object_are_not_held_against_what_is_pushed() -> None:
    assert pushes(2, ["too large"], by_object=True) == ["", ""]
    assert pushes(1, ["too large"], by_object=False) == ["policy balloons: too large"]


def test_a_policy_is_not_said_to_be_in_force_where_none_is() -> None:
    assert pushes(1) == [""]
    assert pushes(1, mode="off") == [
        "policy balloons: cpus.mode is off in the settings of this node: no policy is in force"
    ]


def an_object(spec: object, kind: PolicyKind = PolicyKind.BALLOONS) -> PolicyObject:
    return PolicyObject(kind, "kube-system", "default", "u", 1, json.dumps(spec).encode())


BALLOON_FAULTS: dict[str, tuple[object, str]] = {
    "unknown key": ({"balloonTyps": []}, "spec.balloonTyps: unknown key; did you mean balloonTypes?"),
    "unknown amount": ({"reservedResources": {"cpus": 1}}, "spec.reservedResources.cpus: unknown key"),
    "available by number": ({"availableResources": {"cpu": 4}}, "spec.availableResources.cpu: '4' is a number of CPUs"),
    "no mapping": ([], "spec: is no mapping"),
}


def test_a_topology_aware_object_is_the_policy_of_that_name() -> None:
    spec = {
        "reservedResources": {"cpu": "750m"},
        "preferIsolatedCPUs": True,
        "unlimitedBurstable": "numa",
        "defaultCPUPriority": "high",
        "schedulingClasses": [{"name": "fast", "policy": "fifo", "priority": 1}],
        "namespaceSchedulingClasses": {"web": "fast"},
        "podQoSSchedulingClasses": {"Guaranteed": "fast"},
        "cpuClasses": [{"name": "turbo"}],
        "agent": {"podResourceAPI": True},
    }
    found = translated(an_object(spec, PolicyKind.TOPOLOGY_AWARE)).policy
    own = found.topology_aware
    assert (found.active, str(found.reserved)) == ("topology-aware", "750m")
    assert own.prefer_isolated_cpus
    assert (own.unlimited_burstable.value, own.default_cpu_priority.value) == ("numa", "high")
    classes = own.namespace_scheduling_classes, own.pod_qos_scheduling_classes
    assert classes == ((ClassOf("web", "fast"),), (ClassOf("Guaranteed", "fast"),))


TREE_FAULTS: dict[str, tuple[object, str]] = {
    "level": ({"unlimitedBurstable": "cluster"}, "spec.unlimitedBurstable: 'cluster' is not allowed; one of system"),
    "class": ({"namespaceSchedulingClasses": {"web": "x"}}, "spec.namespaceSchedulingClasses.web: 'x' is no schedu"),
    "qos": ({"podQoSSchedulingClasses": {"gold": ""}}, "spec.podQoSSchedulingClasses: 'gold' is no QoS class; one of"),
    "twice": (
        {"podQoSSchedulingClasses": {"burstable": "", "Burstable": ""}},
        "spec.podQoSSchedulingClasses: 'burstable' has more than one class; keep one of them",
    ),
    "no class": ({"namespaceSchedulingClasses": {"b": None}}, "spec.namespaceSchedulingClasses.b: None is no text of"),
    "pattern": ({"reservedPoolNamespaces": ["[a"]}, "spec.reservedPoolNamespaces[0]: '[a' is no pattern"),
    "misspelled": ({"preferSharedCPU": True}, "spec.preferSharedCPU: unknown key; did you mean preferSharedCPUs?"),
}


FAULTS = {PolicyKind.BALLOONS: BALLOON_FAULTS, PolicyKind.TOPOLOGY_AWARE: TREE_FAULTS}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, rows in FAULTS.items() for name in rows])
def test_a_fault_of_an_object_has_its_path_below_spec(kind: PolicyKind, name: str) -> None:
    spec, fault = FAULTS[kind][name]
    if isinstance(spec, dict):
        spec = {"reservedResources": {"cpu": 1}, **spec}
    with pytest.raises(SettingsError) as refused:
        translated(an_object(spec, kind))

    assert fault in str(refused.value)


def test_what_was_in_force_is_kept_and_a_damaged_file_is_none(caplog: pytest.LogCaptureFixture) -> None:
    kernel: SimKernel = folders()
    settings = Settings(policy_objects=PolicyObjectsSection(enabled=True))
    path = policy_object.FILE.path_in(settings.state_dir)
    chosen = translated(an_object({"reservedResources": {"cpu": 1}}))
    assert policy_object.kept(kernel, settings) is None

    def after(data: bytes, of: Settings = settings) -> ChosenPolicy | None:
        kernel.replace(path, data)
        return policy_object.kept(kernel, of)

    assert after(policy_object.FILE.encode(policy_object.keeps(chosen))) == chosen
    assert after(policy_object.FILE.encode(policy_object.keeps(chosen)), Settings()) is None
    assert after(policy_object.FILE.encode(policy_object.keeps(None))) is None
    assert not caplog.records
    faulty = policy_object.FILE.encode(policy_object.Kept(an_object({"x": 1})))
    for damaged in (b"", b"{", b"[]", b'{"v": 2}', faulty, b'{"v": 1, "holds": {"named": 4}}'):
        assert after(damaged) is None
    assert len(caplog.records) == 6


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"reservedResources": dict.fromkeys(map(str, range(40_000)), 1)}, id="amounts"),
        pytest.param(dict.fromkeys(map(str, range(40_000)), 1), id="keys"),
        pytest.param({"balloonTypes": [{"name": "a", "matchExpressions": [{"key": "x"}] * 256}] * 64}, id="matches"),
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

    def __init__(self, *answers: PolicyObjectList | None, mode: Mode = Mode.ENFORCE, began: PolicyObject | None = None):
        self.node, self.namespace = "n1", "kube-system"
        self._answers = list(answers)
        self.state = State(settings=EngineSettings(cpus=CpusSettings(mode)))
        self.events, self.said = list[Event](), list[tuple[str, Said | None]]()
        chosen = translated(began) if began is not None else None
        self.reload = Reload(Settings(), None, folders(), InlineLane(), YieldingClock(), chosen)
        self.over = asyncio.Event()

    async def look(self) -> PolicyObjectList:
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
        session = PolicyObjectFollower(told, told, told.tell, told.reload, YieldingClock(), lambda *_: None)  # type: ignore[arg-type]
        running = asyncio.create_task(session.forever())
        async with asyncio.timeout(10):
            await told.over.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
    return told


def seen(*objects: PolicyObject) -> PolicyObjectList:
    return PolicyObjectList("", objects, SERVED)


def test_what_is_in_force_outlives_an_api_server_that_is_away_or_does_not_serve_the_kind_yet() -> None:
    object_ = an_object(RULES)

    assert play(Told(None, PolicyObjectList(), None, seen(object_), began=object_)).reload.chosen == translated(object_)
    assert play(Told(PolicyObjectList(), PolicyObjectList(), began=object_)).reload.chosen is None


def test_an_object_is_put_in_force_once_and_never_while_the_feature_is_off() -> None:
    told = play(Told(*[seen(an_object(RULES))] * 3))
    assert (len(told.events), told.said[0]) == (1, ("default", Said("Success", 1)))

    off = play(Told(*[seen(an_object(RULES))] * 3, mode=Mode.OFF))
    why = "cpus.mode is off in the settings of this node: no policy is in force"
    assert (off.events, off.reload.row.policy_object_faults) == ([], (why,))


class Api:
    """Has the object, and each write's time. `spoils`: somebody edits it after each; `away`: so many looks fail."""

    def __init__(self, spoils: bool = False, away: int = 0) -> None:
        self.kind, self.title, self.clock, self.spoils, self.away = TOPOLOGY, "n1", YieldingClock(), spoils, away
        self.there: Found | None = None
        self.writes, self.notes = list[float](), list[tuple[bool, str]]()

    async def look(self) -> Found | None:
        await asyncio.sleep(0)
        if self.away:
            self.away -= 1
            raise KubeAwayError("away")
        return self.there

    async def write(self, wanted: NodeZones, _: Found | None) -> bool:
        self.writes.append(self.clock.now_ns() / 1e9)
        said = body(TOPOLOGY, "n1", "n1", "u", wanted)
        self.there = found(said.replace(b'"node-0"', b'"mine"') if self.spoils else said, TOPOLOGY.kind)
        return True

    async def until_touched(self, _: str) -> None:
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        pass

    def note(self, ready: bool, detail: str) -> None:
        self.notes.append((ready, detail))


def written_in(api: Api, wanted: Callable[[], NodeZones | Special | None], until_s: float) -> list[float]:
    """When it was written in so long; seconds between two writes."""

    async def story() -> None:
        session = Owned(api, wanted, lambda: None, api.clock, api.note)  # type: ignore[arg-type]
        running = asyncio.create_task(session.run())
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


def test_who_edits_it_again_and_again_is_answered_less_and_less_often() -> None:
    gaps = written_in(Api(spoils=True), zones, 600)
    assert gaps[0] < 5
    assert min(gaps[-3:]) >= 30


@pytest.mark.parametrize("wanted", [None, Special.ABSENT], ids=["unknown", "nothing"])
def test_nothing_is_written_that_is_not_wanted(wanted: Special | None) -> None:
    api = Api()
    written_in(api, lambda: wanted, 60)
    assert api.writes == []


def test_an_api_server_that_was_away_gets_it_once_when_it_is_back() -> None:
    api = Api(away=4)
    written_in(api, zones, 600)
    assert len(api.writes) == 1
    assert (api.notes[0], api.notes[-1]) == ((False, "away"), (True, "written"))
