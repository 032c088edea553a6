"""Given one history told twice, with the keys of every table in another order, then the same is decided."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.state.limits import Wanted
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.annotations import OWN_LIMITS, UPSTREAM_EPC
from nodeward.model.decision import Decision, Final, Need
from nodeward.model.settings import EngineSettings, LimitsSettings, UnknownPod, Unsupported
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid, Role
from tests.unit.engine.build import EPC, SECOND, Told, container, creating, pod_spec, sandbox, started

TDX = "tdx"
PODS, NAMES = ("A", "B"), ("app", "db")
RESOURCES = {"sgx.intel.com/epc": EPC, "intel.com/tdx": TDX}
OWN = '{"app": {"sgx_epc": 5, "tdx": 1}}'
NOTES = {OWN_LIMITS: OWN, f"{UPSTREAM_EPC}/pod": "7", UPSTREAM_EPC: "8"}

amounts = st.dictionaries(st.sampled_from([EPC, TDX]), st.sampled_from([0, 1, 5]))
pods, names = st.sampled_from(PODS), st.sampled_from(NAMES)
notes = st.sampled_from([{}, NOTES])


def shuffled(value: object, source: Random) -> object:
    """The same value, the keys of each table within it in an order of chance."""
    if isinstance(value, Mapping):
        items = [(key, shuffled(one, source)) for key, one in value.items()]
        source.shuffle(items)
        return dict(items)
    if isinstance(value, tuple):
        return tuple(shuffled(one, source) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: shuffled(getattr(value, one.name), source) for one in fields(value)})
    return value


def spec(uid: str, app: Mapping[str, int], db: Mapping[str, int], overhead: Mapping[str, int]) -> PodSpec:
    both = ContainerSpec("app", Role.REGULAR, app), ContainerSpec("db", Role.SIDECAR, db)
    ids = {name: str(container(uid, name).id) for name in NAMES}
    return replace(pod_spec(uid, *both), overhead=overhead, container_ids=ids)


def reading(limit: Mapping[str, int], usage: Mapping[str, int]) -> ev.MiscReading:
    return ev.MiscReading(limit=limit, usage=usage, peak=usage, refusals=limit, refusals_local=limit)


def sample(read: Mapping[tuple[str, str], ev.MiscReading]) -> ev.Sampled:
    paths = {f"/kubepods/pod{uid}" + f"/{uid}-{name}" * bool(name): one for (uid, name), one in read.items()}
    return ev.Sampled(paths, as_of=1 << 40)


places = st.tuples(pods, st.sampled_from([*NAMES, ""]))
specs = st.builds(spec, pods, amounts, amounts, amounts)
steps: st.SearchStrategy[ev.Event] = st.one_of(
    specs.map(ev.PodSeen),
    specs.map(lambda one: ev.PodsListed((one,), as_of=1 << 40)),
    st.builds(lambda uid, name, said: creating(uid, name, annotations=said), pods, names, notes),
    st.builds(started, pods, names, notes),
    st.builds(lambda uid, said: ev.SandboxStarted(sandbox(uid, said)), pods, notes),
    st.builds(lambda uid: ev.SandboxRemoved(sandbox(uid)), pods),
    st.builds(lambda uid: ev.PodGone(PodUid(uid)), pods),
    amounts.map(lambda has: ev.CapacityRead(controller=True, capacity=has)),
    st.dictionaries(places, st.builds(reading, amounts, amounts)).map(sample),
    st.booleans().map(lambda every_line: ev.RuntimeConnected("containerd", "2.1", "", every_line)),
    st.sampled_from([ev.ApiLost("down"), ev.ApiBack()]),
)
rules = st.builds(
    LimitsSettings,
    resources=st.just(RESOURCES),
    strict=st.booleans(),
    unknown_pod=st.sampled_from(UnknownPod),
    unsupported=st.sampled_from(Unsupported),
)


def decided(decision: Decision) -> tuple[object, ...]:
    """A decision without the order in which it names things."""
    answer = decision.answer
    lines = answer.value if isinstance(answer, Final) else answer if isinstance(answer, Need) else None
    return lines, *(sorted(map(repr, said)) for said in (decision.goals, decision.forget, decision.faults))


def unordered(wanted: Wanted) -> Wanted:
    return replace(wanted, given=tuple(sorted(wanted.given)), taken_back=tuple(sorted(wanted.taken_back)))


def told(rule: LimitsSettings, history: list[ev.Event], look: Callable[[ev.Event], ev.Event]) -> Iterator[object]:
    engine = Told(State(settings=EngineSettings(limits=rule)))
    both = {EPC: 5, TDX: 1}
    begin = [ev.CapacityRead(controller=True, capacity=both), ev.PodSeen(spec("A", both, {TDX: 1}, {}))]
    end = [creating("A", "app"), creating("B", "db"), started("A", "app"), sample({("A", "app"): reading({}, both)})]
    for event in (*begin, *history, *end):
        engine.at_ns += SECOND
        yield decided(engine(look(event)))
    yield {path: unordered(wanted) for path, wanted in engine.state.limits.wanted.items()}
    yield {
        path: replace(read, held=unordered(read.held)) if read.held is not None else read
        for path, read in engine.state.limits.readings.items()
    }


@given(rules, st.lists(steps, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_keys_decides_nothing(rule: LimitsSettings, history: list[ev.Event], source: Random) -> None:
    def look(event: ev.Event) -> ev.Event:
        other = shuffled(event, source)
        assert isinstance(other, ev.Event)
        return other

    assert list(told(rule, history, look)) == list(told(rule, history, lambda event: event))
