"""Which CPUs are picked: by the tree, by affinity, by expressions; and the classes beside them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core import events as ev
from nodeward.core.annotations import BLOCKIO_CLASSES, PRESERVE_CPU, RDT_CLASSES, SCHEDULING_CLASS
from nodeward.core.cpuset import CpuSet, ids, of, parse, text
from nodeward.core.decision import Adjustment, Decision, SchedulingClass
from nodeward.core.modes import Mode
from nodeward.core.topology import Level, Machine
from nodeward.core.workload import Qos
from nodeward.features.cpus.match import filled, globs, holds, value_of
from nodeward.features.cpus.picker import CpuPriority, drop, pick, spans
from nodeward.features.cpus.pool_settings import BalloonsSettings, BalloonType, Expression
from nodeward.features.cpus.settings import CpusSettings, PolicySettings
from nodeward.features.cpus.tree import Wish, grow, shrink
from nodeward.features.cpus.values import Ask
from tests.unit.features.build import adjusted
from tests.unit.features.cpus.build import STATIC_RULES, home, one, told
from tests.unit.features.cpus.machines import W, machine, shapes

BALANCED, PACKED, SPREAD = Wish(balanced=True), Wish(), Wish(spread=True)


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        pytest.param(BALANCED, ["10", "4,20", "12-13,28", "1-2,17-18", "8-9,24-26"], id="balanced"),
        pytest.param(PACKED, ["16", "1,17", "2-3,18", "4-5,20-21", "8-10,24-25"], id="packed"),
    ],
)
def test_balloons_of_one_to_five_cpus(wish: Wish, expected: list[str]) -> None:
    free, found = W.online & ~1, list[str]()
    for n in range(1, 6):
        got = grow(W, 0, free, n, wish)
        free &= ~got
        found.append(text(got))
    assert found == expected


def test_packed_ones_grow_beside_what_they_have_and_give_the_last_back() -> None:
    first, fifth = parse("16"), parse("8-10,24-25")
    free = W.online & ~parse("0-5,8-10,16-18,20-21,24-25")
    more = grow(W, first, free, 3, PACKED)
    assert text(more) == "6-7,22"
    free &= ~more
    fifth |= grow(W, fifth, free, 4, PACKED)
    assert text(fifth) == "8-10,12-13,24-25,28-29"
    gone = shrink(W, fifth, free & ~fifth, 3, PACKED)
    assert text(gone) == "13,28-29"


def test_first_threads_come_before_second_ones_where_that_is_wished() -> None:
    assert text(grow(W, 0, W.online, 4, SPREAD)) == "0-3"
    assert text(grow(W, 0, W.online & ~3, 4, SPREAD)) == "2-3,16-17"


def test_hints_hold_where_they_suffice_and_are_given_back_last() -> None:
    wish = Wish(hints=(parse("5,9"), ~parse("0-4")))
    assert text(grow(W, 0, W.online, 2, wish)) == "5,9"
    assert grow(W, 0, W.online, 3, wish) & parse("0-4") == 0
    assert text(shrink(W, parse("1,5,9,21"), 0, 2, wish)) == "1,21"


@given(
    machine=shapes,
    wish=st.builds(Wish, st.booleans(), st.booleans(), hints=st.tuples(st.integers(0, 2**72))),
    held=st.integers(0, 2**72),
    part=st.floats(0, 1),
)
def test_exactly_as_many_of_what_there_is(machine: Machine, wish: Wish, held: int, part: float) -> None:
    held &= machine.online
    free = machine.online & ~held
    more = grow(machine, held, free, int(part * free.bit_count()), wish)
    assert more & ~free == 0
    assert more.bit_count() == int(part * free.bit_count())
    less = shrink(machine, held, free, int(part * held.bit_count()), wish)
    assert less & ~held == 0
    assert less.bit_count() == int(part * held.bit_count())


Question = tuple[Machine, CpuSet, int]
"""Of which CPUs of a machine are free, and how many are asked for."""


@st.composite
def asked(draw: st.DrawFn) -> Question:
    shape = draw(shapes)
    cpus = ids(shape.online)
    free = of(draw(st.lists(st.sampled_from(cpus), unique=True))) if draw(st.booleans()) else shape.online
    return shape, free, draw(st.integers(0, free.bit_count()))


def idle(shape: Machine, cpus: CpuSet) -> CpuSet:
    return sum(core.cpus for core in shape.cores if core.cpus & cpus == core.cpus)


@given(asked(), st.sampled_from(CpuPriority))
def test_it_takes_exactly_as_many_of_the_free_ones_and_the_same_again(asks: Question, kind: CpuPriority) -> None:
    shape, free, n = asks
    got = pick(shape, free, n, kind)
    assert (got & ~free, got.bit_count(), pick(shape, free, n, kind)) == (0, n, got)


@given(asked())
def test_it_stays_in_one_group_that_has_enough_and_breaks_at_most_one_core(asks: Question) -> None:
    """A package of which the CPUs suffice; a node or a cache of which the whole cores do."""
    shape, free, n = asks
    whole, got = idle(shape, free), pick(shape, free, n)
    for level in (Level.L3, Level.NUMA, Level.PACKAGE):
        enough = free if level is Level.PACKAGE else whole
        if any((group.cpus & enough).bit_count() >= n for group in shape.groups(level)):
            assert spans(shape, got) >= level
    if any((package.cpus & whole).bit_count() >= n for package in shape.packages):
        assert idle(shape, got).bit_count() >= n - n % shape.cores[0].cpus.bit_count()


@given(asked())
def test_what_is_dropped_is_exactly_as_many_and_leaves_whole_cores(asks: Question) -> None:
    shape, held, n = asks
    gone = drop(shape, held, n)
    assert (gone & ~held, gone.bit_count()) == (0, n)
    if held == idle(shape, held) and len(shape.packages) == 1:
        keep, threads = held.bit_count() - n, shape.cores[0].cpus.bit_count()
        assert idle(shape, held & ~gone).bit_count() >= keep - keep % threads


@pytest.mark.parametrize(
    ("free", "n", "expected"),
    [
        pytest.param("0-31", 2, "0,16", id="a whole core"),
        pytest.param("0-31", 3, "0-1,16", id="a whole core and one CPU"),
        pytest.param("1-31", 1, "16", id="one CPU of a core that is in use"),
        pytest.param("1-15,17-31", 8, "4-7,20-23", id="a whole node rather than six of another and two more"),
        pytest.param("1-15,17-31", 6, "1-3,17-19", id="the node that has just as many"),
        pytest.param("0-2,4-7,16-18,20-23", 10, "0,4-7,16,20-23", id="a whole node first and the rest in one core"),
        pytest.param("0-3,8-11,24-27", 4, "8-9,24-25", id="whole cores rather than the first CPUs"),
        pytest.param("0-7,24-27", 8, "0-7", id="one package though all its cores are in use"),
        pytest.param("0-31", 16, "0-7,16-23", id="a whole package"),
        pytest.param("0-31", 0, "", id="none"),
    ],
)
def test_on_w(free: str, n: int, expected: str) -> None:
    assert text(pick(W, parse(free), n)) == expected


@pytest.mark.parametrize("free", ["1-2", "1-2,99"], ids=["too few", "one is not online"])
def test_who_asks_for_more_than_are_free_has_a_fault(free: str) -> None:
    with pytest.raises(ValueError, match="3 CPUs of 2"):
        pick(W, parse(free), 3)


@pytest.mark.parametrize(
    ("held", "n", "expected"),
    [
        pytest.param("0-1,16", 1, "1", id="the CPU that leaves a whole core"),
        pytest.param("0-3,8,16-19,24", 2, "8,24", id="the core far from the others"),
        pytest.param("0-3,8,16-19,24", 8, "1-3,8,17-19,24", id="the rest is in the node that has most"),
        pytest.param("0,16", 2, "0,16", id="all"),
    ],
)
def test_dropped_on_w(held: str, n: int, expected: str) -> None:
    assert text(drop(W, parse(held), n)) == expected


@pytest.mark.parametrize(
    ("near", "n", "expected"),
    [
        pytest.param("4", 1, "20", id="the other thread of its core"),
        pytest.param("4,20", 2, "5,21", id="a core of its node"),
        pytest.param("8,24", 8, "9-11,13,25-27,29", id="its node, then its package"),
    ],
)
def test_more_is_taken_close_by(near: str, n: int, expected: str) -> None:
    held = parse(near)
    free = W.online & ~held & ~parse("0,16,12,28")
    assert text(pick(W, free, n, near=held)) == expected


@pytest.mark.parametrize(
    ("kind", "n", "expected"),
    [
        pytest.param(CpuPriority.HIGH, 3, "0-1,8", id="high takes no efficient core"),
        pytest.param(CpuPriority.LOW, 3, "4-6", id="low takes efficient ones"),
        pytest.param(CpuPriority.HIGH, 9, "0-4,8-11", id="one efficient core where the others do not suffice"),
    ],
)
def test_the_preferred_kind_comes_first(kind: CpuPriority, n: int, expected: str) -> None:
    hybrid = machine(packages=1, nodes=1, cores=8, threads=2, efficient=parse("4-7,12-15"))
    assert text(pick(hybrid, parse("0-11"), n, kind)) == expected


LABELS = {"pod/labels/app.kubernetes.io/name": "web", "pod/labels/tier": "", "labels/a": None}
ASK = Ask("u/app", "u", "shop", "web-1", "app", Qos.BEST_EFFORT, 0, labels=LABELS)


@pytest.mark.parametrize(
    ("key", "operator", "values", "is_true"),
    [
        ("name", "Equals", ("app",), True),
        ("name", "Equals", ("*",), True),
        ("name", "NotEqual", ("app",), False),
        ("qosclass", "In", ("Burstable", "BestEffort"), True),
        ("nothing", "In", ("x",), False),
        ("nothing", "NotIn", ("x",), True),
        ("pod/name", "Matches", ("web-[0-9]",), True),
        ("pod/name", "MatchesNot", ("web-?",), False),
        ("namespace", "MatchesAny", ("x*", "s*p"), True),
        ("nothing", "MatchesNone", ("*",), True),
        ("pod/uid", "Exists", (), True),
        ("nothing", "NotExist", (), True),
        ("pod/uid", "NotExists", (), False),
        ("nothing", "AlwaysTrue", (), True),
        (":namespace:name", "Equals", ("shop:app",), True),
        (":,-namespace,pod/name", "Equals", ("shop-web-1",), True),
        (":nothing:none", "Exists", (), False),
        ("pod/labels/app.kubernetes.io/name", "Equals", ("web",), True),
        ("pod/labels/tier", "Exists", (), True),
        ("labels/a", "NotExist", (), True),
        (":pod/labels/app.kubernetes.io/name:name", "Equals", ("web:app",), True),
    ],
)
def test_an_expression(key: str, operator: str, values: tuple[str, ...], is_true: bool) -> None:
    assert holds(Expression(key, operator, values), ASK) is is_true


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("${namespace}/${pod/name}${nothing}-x", "shop/web-1-x"),
        ("ns=$pod/namespace", "ns=shop"),
        ("$namespace$name", "shopapp"),
        ("$namespace$$5 {a}", "shop$5 {a}"),
        ("$$$name${name}", "$appapp"),
    ],
)
def test_a_text_with_keys_in_it(text: str, becomes: str) -> None:
    assert filled(text, ASK) == becomes
    assert value_of("pod/namespace", ASK) == "shop"


def test_patterns_do_not_cross_a_slash() -> None:
    asked = ("a*c", "abc"), ("a*c", "a/c"), ("*/c", "a/c"), ("[^a]", "b"), ("[^a]", "a")
    assert [globs(*one) for one in asked] == [True, False, True, True, False]


RDT_CLASS, CRI_RM_RDT = RDT_CLASSES
BLOCKIO_CLASS, CRI_RM_BLOCKIO = BLOCKIO_CLASSES


def created(annotations: dict[str, str], mode: Mode = Mode.ENFORCE, policy: PolicySettings = STATIC_RULES) -> Decision:
    node = told(policy, CpusSettings(mode=mode))
    return node(ev.Creating(replace(home("a"), annotations=annotations), one("a", 1), ask_id=node.state.seq + 1))


def test_a_create_is_answered_with_the_classes_that_annotations_name() -> None:
    """The one for the container comes before the pod's. An update carries none; observing gives none."""
    said = {f"{RDT_CLASS}/container.app": "gold", RDT_CLASS: "silver", f"{BLOCKIO_CLASS}/pod": "slow"}
    classes = adjusted(created(said))
    assert (classes.cpus != "", classes.rdt_class, classes.blockio_class) == (True, "gold", "slow")
    assert adjusted(created(said, Mode.OBSERVE)) == Adjustment()

    node, pod = told(), replace(home("a"), annotations=said)
    node(ev.Creating(pod, one("a", 1), ask_id=node.state.seq + 1))
    node(ev.Created(pod, one("a", 1)))
    updated = adjusted(node(ev.Updating(pod, one("a", 1), ask_id=node.state.seq + 1)))
    assert (updated.rdt_class, updated.blockio_class) == ("", "")


def test_the_keys_of_cri_resource_manager_act_as_those_of_nri_plugins_do() -> None:
    classes = adjusted(created({f"{CRI_RM_RDT}/pod": "gold", f"{CRI_RM_BLOCKIO}/pod": "slow"}))
    assert (classes.rdt_class, classes.blockio_class) == ("gold", "slow")
    assert adjusted(created({CRI_RM_RDT: "gold", RDT_CLASS: "silver"})).rdt_class == "silver"


@pytest.mark.parametrize("name", ["", "../../root", "gold\n", "x" * 64, "gôld"])
def test_what_is_no_name_of_a_class_is_noted_and_counts_as_none(name: str) -> None:
    decision = created({RDT_CLASS: name, BLOCKIO_CLASS: "slow"})
    assert (adjusted(decision).rdt_class, adjusted(decision).blockio_class) == ("", "slow")
    (note,) = decision.notes
    assert (note.code, RDT_CLASS in str(note.values[1])) == ("cpus-source", True)


@pytest.mark.parametrize(
    ("annotations", "name"),
    [
        ({}, "calm"),  # the type's
        ({SCHEDULING_CLASS: "calm", f"{SCHEDULING_CLASS}/container.app": "fast"}, "fast"),
        ({SCHEDULING_CLASS: "unknown"}, "calm"),
        ({SCHEDULING_CLASS: "fast", PRESERVE_CPU: "true"}, ""),  # left alone
    ],
)
def test_a_scheduling_class_is_the_annotations_or_the_balloon_types(annotations: dict[str, str], name: str) -> None:
    fast, calm = SchedulingClass("fast", nice=-5), SchedulingClass("calm", nice=5)
    types = (BalloonType("default", scheduling_class="calm"),)
    rules = BalloonsSettings(balloon_types=types, scheduling_classes=(fast, calm))
    decision = created(annotations, policy=replace(STATIC_RULES, active="balloons", balloons=rules))
    assert adjusted(decision).scheduling == {"fast": fast, "calm": calm}.get(name)
    notes = [str(note.values[1]) for note in decision.notes]
    assert all("'unknown' is no scheduling class; classes are fast, calm" in note for note in notes)
    assert len(notes) == ("unknown" in annotations.values())
