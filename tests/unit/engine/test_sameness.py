"""Model and engine say the same in every process: nothing impure, no order of keys, tables that nobody changes."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

import nodeward
from nodeward.engine.state.limits import Wanted
from nodeward.engine.state.root import State
from nodeward.engine.tables import KEPT, beside, kept, put, without
from nodeward.model import events as ev
from nodeward.model.annotations import OWN_LIMITS, UPSTREAM_EPC
from nodeward.model.decision import Decision, Final, Need
from nodeward.model.settings import EngineSettings, LimitsSettings, UnknownPod, Unsupported
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid, Role
from tests.unit.engine.build import EPC, SECOND, Told, container, creating, pod_spec, sandbox, started

HOUSE = Path(nodeward.__file__).parent
PURE = [file for part in ("model", "engine") for file in sorted((HOUSE / part).rglob("*.py"))]
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
