"""Pods of 500 containers, names and paths at their limits, numbers that do not fit; the same decisions in any order."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nodeward
from nodeward.contracts import nri_pb2
from nodeward.core import events as ev
from nodeward.core.annotations import OWN_LIMITS, UPSTREAM_EPC
from nodeward.core.decision import Adjustment, Decision, Final, Goal, Need
from nodeward.core.quantity import MAX_VALUE
from nodeward.core.refusal import Reason
from nodeward.core.tables import KEPT, beside, kept, put, without
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid, Role
from nodeward.features.limits import promise as promise_module
from nodeward.features.limits.settings import LimitsSettings, UnknownPod, Unsupported
from nodeward.features.limits.state import Wanted
from nodeward.features.pods.budget import Outline
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.cgroups.sampler import Reader
from nodeward.neighbours.formats.cgroup_paths import MAX_PATH
from nodeward.neighbours.nri import mapping
from nodeward.people.view import node_view
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.goals import slots_of, target
from tests.lanes import InlineLane
from tests.unit.features.build import (
    EPC,
    SECOND,
    ManualClock,
    Told,
    container,
    container_spec,
    creating,
    known,
    node,
    pod_spec,
    sandbox,
    started,
    value_of,
)

ROOT = "/sys/fs/cgroup"
MANY = 500
PATH = "/kubepods/podA/A-app"
LIMIT = target(f"misc.max:{EPC}:{PATH}")


def crowd(declared: int = 1) -> Told:
    """A node on which a pod of 500 containers runs; every other one declares."""
    told = node()
    told(ev.PodSeen(pod_spec("A", *(container_spec(f"c{n}", declared if n % 2 else None) for n in range(MANY)))))
    for n in range(MANY):
        told(started("A", f"c{n}"))
    return told


def test_a_decision_on_one_of_500_containers_asks_for_one_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    told = crowd()
    asked: list[str] = []
    real = promise_module._from_spec

    def counted(spec: PodSpec, name: str, rule: LimitsSettings, known: Outline | None) -> promise_module.Promise:
        asked.append(name)
        return real(spec, name, rule, known)

    monkeypatch.setattr(promise_module, "_from_spec", counted)
    decision = told(started("A", "c7"))
    assert (asked, [goal.value for goal in decision.goals]) == (["c7"], ["1"])
    told(ev.Stopped(sandbox("A"), container("A", "c7")))
    assert asked == ["c7"]
    told(ev.PodSeen(pod_spec("A", *(container_spec(f"c{n}", 2) for n in range(MANY)))))
    assert len(asked) == MANY, "one a container that runs, and each once"


def test_a_cgroup_path_beyond_all_limits_is_no_path() -> None:
    raw = nri_pb2.Container(id="c", pod_sandbox_id="s-A", name="app")
    raw.linux.cgroups_path = "/" + "x" * (MAX_PATH - 1)
    assert len(mapping.container(raw).cgroups_path) == MAX_PATH
    raw.linux.cgroups_path += "x"
    made = mapping.container(raw)
    assert made.cgroups_path == ""

    told = known()
    assert value_of(told(ev.Creating(sandbox("A"), made, ask_id=1))) == Adjustment({"misc.max": "sgx_epc 5"}), (
        "the runtime sets it all the same"
    )
    assert [goal.target for goal in told(ev.Started(sandbox("A"), made)).goals if goal.target.where[-1:] == "c"] == []
    assert list(told.state.limits.wanted) == ["/kubepods/podA"]


def kernel_with_a_container() -> SimKernel:
    kernel = SimKernel({EPC: 1 << 40})
    kernel.make_cgroup(ROOT + PATH)
    kernel.mkdir("/var/lib/nodeward")
    for above in ("", "/kubepods", "/kubepods/podA"):
        kernel.write(f"{ROOT}{above}/cgroup.subtree_control", b"+misc")
    return kernel


class Vanishing(FaultyFiles):
    def __init__(self, kernel: SimKernel, before: int) -> None:
        super().__init__(kernel)
        self._kernel, self._before = kernel, before

    def _count(self, name: str, path: str) -> None:
        super()._count(name, path)
        if self.total == self._before:
            self._kernel.rmdir(ROOT + PATH)


def test_a_cgroup_may_vanish_before_any_call_of_a_reading() -> None:
    whole = FaultyFiles(kernel_with_a_container())
    Reader(whole, Tree(whole, ROOT)).read([PATH], with_root=False)
    for call in range(1, whole.total + 1):
        kernel = kernel_with_a_container()
        reader = Reader(Vanishing(kernel, call), Tree(Vanishing(kernel, call), ROOT))
        assert reader.read([PATH], with_root=False).gone == (PATH,)
        assert (reader.open_files, kernel._handles) == (0, {})


@pytest.mark.parametrize("amount", [MAX_VALUE + 1, 2**64 - 1])
def test_limits_near_the_largest_numbers_are_written_and_read_back(amount: int) -> None:
    kernel = kernel_with_a_container()
    told = node()
    told(started("A", "app", {"epc-limit.nri.io": str(amount)}))
    lane = InlineLane()
    slots = slots_of(lane, kernel, ManualClock())

    def tell(event: ev.Event) -> int:
        told(event)
        return told.state.seq

    slots.connect(tell, lambda: None)
    slots.set([Goal(LIMIT, str(amount), Reason("declared", ("app",)))])
    lane.drain()

    reading = Reader(kernel, Tree(kernel, ROOT)).read([PATH]).readings[PATH]
    assert reading.limit == ({} if amount == 2**64 - 1 else {EPC: amount})
    assert told(ev.Sampled({PATH: reading}, as_of=told.state.seq)).notes == ()
    assert next(row for row in node_view(told.state, told.at_ns, {}).rows if row.cgroup == PATH).state == "enforced"


HOUSE = Path(nodeward.__file__).parent
NOT_PURE = ("wiring.py", "by_claim.py", "by_id.py", "record.py", "redaction.py", "table.py")
"""They need a library, and decide nothing."""
PURE = [
    file
    for part in ("core", "features")
    for file in sorted((HOUSE / part).rglob("*.py"))
    if file.name not in NOT_PURE and not {"effects", "door", "spelling"} & set(file.parts)
] + [HOUSE / "people" / f"{name}.py" for name in ("view", "verdict", "pods", "explain")]
MODULES = (
    *("collections", "dataclasses", "datetime", "enum", "fnmatch", "fractions", "functools", "itertools", "json"),
    *("math", "re", "sys", "types", "typing", "nodeward"),
)
"""What may be imported; import-linter says which rooms of `nodeward`."""
NAMES = ("set", "frozenset", "hash", "id", "open", "input", "print", "eval", "exec", "__import__")
"""Builtins whose result, or order, is another in the next process, or that reach the system."""
CLOCKS = ("now", "today", "utcnow", "environ", "argv", "stdin", "getrandom")
"""What reaches a clock or the system through a module that may be imported for its values."""
OF_THIS_PLACE = {"fromtimestamp": 2, "astimezone": 1}
"""Methods of `datetime` that ask for this machine's time zone unless they get so many arguments."""


def impure(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Set() | ast.SetComp():
            yield "a set"
        case ast.Import():
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] not in MODULES)
        case ast.ImportFrom() if node.level or (node.module or "").split(".")[0] not in MODULES:
            yield f"from {node.module}"
        case ast.ImportFrom():
            yield from (alias.name for alias in node.names if alias.name in CLOCKS)
        case ast.Name(id=name, ctx=ast.Load()) if name in NAMES:
            yield name
        case ast.Attribute(attr=name) if name in CLOCKS:
            yield name
        case ast.Call(func=ast.Attribute(attr=name)) if name in OF_THIS_PLACE:
            if len(node.args) + len(node.keywords) < OF_THIS_PLACE[name]:
                yield f"{name} in the zone of this machine"
        case _:
            pass


def test_nothing_differs_from_run_to_run() -> None:
    assert len(PURE) > 100
    assert [
        f"{file}:{getattr(node, 'lineno', 0)}: {what}"
        for file in PURE
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for what in impure(node)
    ] == []


TABLES = st.dictionaries(st.integers(0, 50), st.integers())


@given(TABLES, st.lists(st.integers(0, 50), max_size=40), TABLES, st.integers(0, 50), st.booleans())
def test_a_change_makes_another_table_and_leaves_the_first(
    table: dict[int, int], taken_out: list[int], more: dict[int, int], key: int, as_view: bool
) -> None:
    for one in taken_out:
        table.pop(one, None)
    rows = list(table.items())
    given_table: Mapping[int, int] = MappingProxyType(table) if as_view else table
    assert list(put(given_table, key, -1).items()) == list((dict(rows) | {key: -1}).items())
    assert list(beside(given_table, more).items()) == list((dict(rows) | more).items())
    assert list(without(given_table, [key, *more]).items()) == [row for row in rows if row[0] not in (key, *more)]
    assert list(table.items()) == rows


def test_what_was_found_in_a_table_is_said_again_for_the_same_table_alone_and_the_newest_are_kept() -> None:
    walks: list[Mapping[str, int]] = []

    @kept
    def total(table: Mapping[str, int], names: tuple[str, ...]) -> int:
        walks.append(table)
        return sum(table[name] for name in names)

    one, equal = {"a": 1, "b": 2}, {"a": 1, "b": 2}
    assert [total(one, ("a", "b")), total(one, (*"ab",)), total(one, ("a",)), total(equal, ("a",))] == [3, 3, 1, 1]
    assert [table is one for table in walks] == [True, True, False]

    many = [{"a": number} for number in range(KEPT + 1)]
    walks.clear()
    assert [total(table, ("a",)) for table in (*many, many[KEPT], many[1], many[0])][-3:] == [KEPT, 1, 0]
    assert len(walks) == KEPT + 2, "the oldest is found anew"


TDX = "tdx"
PODS, CONTAINERS = ("A", "B"), ("app", "db")
RESOURCES = {"sgx.intel.com/epc": EPC, "intel.com/tdx": TDX}
OWN = '{"app": {"sgx_epc": 5, "tdx": 1}}'
NOTES = {OWN_LIMITS: OWN, f"{UPSTREAM_EPC}/pod": "7", UPSTREAM_EPC: "8"}

amounts = st.dictionaries(st.sampled_from([EPC, TDX]), st.sampled_from([0, 1, 5]))
pods, names = st.sampled_from(PODS), st.sampled_from(CONTAINERS)
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
    ids = {name: str(container(uid, name).id) for name in CONTAINERS}
    return replace(pod_spec(uid, *both), overhead=overhead, container_ids=ids)


def reading(limit: Mapping[str, int], usage: Mapping[str, int]) -> ev.MiscReading:
    return ev.MiscReading(limit=limit, usage=usage, peak=usage, refusals=limit, refusals_local=limit)


def sample(read: Mapping[tuple[str, str], ev.MiscReading]) -> ev.Sampled:
    paths = {f"/kubepods/pod{uid}" + f"/{uid}-{name}" * bool(name): one for (uid, name), one in read.items()}
    return ev.Sampled(paths, as_of=1 << 40)


places = st.tuples(pods, st.sampled_from([*CONTAINERS, ""]))
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
