"""`balloons`: the rules of nri-plugins on two packages of two NUMA nodes, and what holds in any history."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import assume
from hypothesis import given as given_any
from hypothesis import strategies as st

from nodeward.core import annotations as keys
from nodeward.core import events as ev
from nodeward.core.cpuset import parse, text
from nodeward.core.topology import Machine
from nodeward.core.workload import ContainerId, Phase, Qos
from nodeward.features.cpus.barrier import in_the_way
from nodeward.features.cpus.place import all_placed
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.pool_settings import (
    BalloonsSettings,
    BalloonType,
    CoreType,
    Creation,
    Expression,
    Priority,
    Within,
)
from nodeward.features.cpus.pools import set_of
from nodeward.features.cpus.settings import Amount, AmountKind, PolicySettings
from nodeward.features.cpus.values import Ask, Ground, Pools
from tests.unit.features.cpus import build
from tests.unit.features.cpus.build import create, given, sets, settle, told, writes
from tests.unit.features.cpus.machines import PolicyNode, W, ask, machine, refusal, shapes

CPU0 = Amount(AmountKind.CPUSET, 1)


def by(*types: BalloonType, **more: object) -> PolicySettings:
    rules = replace(BalloonsSettings(balloon_types=types), **more)  # type: ignore[arg-type]
    return PolicySettings("balloons", reserved=CPU0, balloons=rules)


class Node(PolicyNode):
    def __init__(self, *types: BalloonType, of: Machine = W, reserved: Amount = CPU0, **more: object) -> None:
        super().__init__(replace(by(*types, **more), reserved=reserved), of)

    def asks(self, name: str, milli: int = 100, namespace: str = "a", pod: str = "", **notes: str) -> str:
        return self.admit(asked(name, milli, namespace, pod, 0, **notes)) or self.grant(name, pod).pool


def asked(name: str, milli: int, namespace: str = "a", pod: str = "", has: int = 0, **notes: str) -> Ask:
    written = {"type": keys.BALLOON_TYPES[0], "hide": keys.HIDE_HYPERTHREADS, "preserve": keys.PRESERVE_CPU}
    said = {written[key]: value for key, value in notes.items()}
    return ask(name, milli, Qos.BURSTABLE, notes=said, pod=pod, namespace=namespace, has=has)


def of(name: str = "t", *namespaces: str, **more: object) -> BalloonType:
    return replace(BalloonType(name, namespaces or ("a",)), **more)  # type: ignore[arg-type]


def test_built_in_types_catch_who_has_none() -> None:
    node = Node(of("t", "a*"), reserved=Amount(AmountKind.QUANTITY, milli=1500))
    assert node.sizes() == {"reserved": 2, "default[0]": 0}
    assert node.asks("s", 2500, "kube-system") == "reserved"
    assert node.asks("d", 0, "other") == "default[0]"
    assert node.asks("t", 1500, "a-1") == "t[0]"
    assert node.sizes() == {"reserved": 3, "default[0]": 1, "t[0]": 2}


def test_idle_cpus_are_lent_and_taken_back_with_exactly_the_updates_needed() -> None:
    node = Node(of("b", "b", share_idle_cpus_in_same=Within.NUMA), of("o", "o"), of("n", "n"))
    for name, cpus in (("b", "4,20"), ("o", "5,8-15,21,24-31")):
        node.finds([asked(name, 1000 * parse(cpus).bit_count(), name, has=parse(cpus))])
    assert node.has("b") == "4,6-7,20,22-23"
    node.finds([asked("n", 2000, "n", has=parse("6,22"))])
    assert node.updated == ["b/b", "n/n"]
    assert (node.has("b"), node.has("n")) == ("4,7,20,23", "6,22")
    node.ends("n")
    assert node.updated == ["b/b"]
    assert node.has("b") == "4,6-7,20,22-23"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param({"namespace": "a"}, "t[0]", id="a namespace"),
        pytest.param({"name": "web-1"}, "m[0]", id="an expression"),
        pytest.param({"type": "m"}, "m[0]", id="the annotation comes first"),
        pytest.param({"namespace": "kube-system", "type": "t"}, "t[0]", id="also in kube-system"),
        pytest.param({"namespace": "z"}, "default[0]", id="nothing"),
        pytest.param({"type": "nope"}, "names the balloon type 'nope', which is not there", id="an unknown type"),
        pytest.param({"preserve": "true"}, "", id="left alone by annotation"),
        pytest.param({"preserve": "yes"}, "t[0]", id="which is exactly true"),
        pytest.param({"name": "left"}, "", id="left alone by the settings"),
    ],
)
def test_which_type(said: dict[str, str], expected: str) -> None:
    matches = (Expression("name", "Matches", ("web-*",)),)
    left = (Expression(":name:namespace", "Equals", ("left:a",)),)
    node = Node(of("m", "none", match_expressions=matches), of("t"), preserve=left)
    found = node.asks(**{"name": "c", **said})  # type: ignore[arg-type]
    assert found == expected if "names" not in expected else expected in found
    if not expected:
        assert node.has(said.get("name", "c")) == ""


def spread(node: Node, *asks: tuple[str, int, str, str]) -> str:
    return "".join(node.asks(name, milli, namespace, pod)[-2] for name, milli, namespace, pod in asks)


SAME = [("a", 600, "a1", "p"), ("b", 100, "a2", "q"), ("c", 900, "a1", "p"), ("d", 900, "a2", "r")]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, "0000", id="fits, then grows"),
        pytest.param({"prefer_new_balloons": True}, "0102", id="new ones, but for the same pod"),
        pytest.param({"prefer_new_balloons": True, "prefer_spreading_pods": True}, "0123", id="pods spread"),
        pytest.param({"prefer_per_namespace_balloon": True}, "0101", id="one a namespace"),
        pytest.param({"prefer_new_balloons": True, "group_by": "${namespace}"}, "0101", id="a group together"),
        pytest.param({"max_cpus": 1}, "0012", id="none grows beyond the limit"),
        pytest.param({"max_cpus": 2, "max_balloons": 2}, "0001", id="several with a limit each"),
    ],
)
def test_which_balloon(more: dict[str, object], expected: str) -> None:
    assert spread(Node(of("t", "a*", **more)), *SAME) == expected


def test_of_several_the_one_with_most_room_and_then_with_fewest_containers() -> None:
    node = Node(of("t", min_cpus=2, min_balloons=3, prefer_spreading_pods=True))
    found = spread(node, ("a", 500, "a", ""), ("b", 500, "a", ""), ("c", 400, "a", ""), ("d", 0, "a", ""))
    assert found == "0122"
    assert spread(node, ("e", 0, "a", ""), ("f", 1900, "a", "")) == "22", "for what fits nowhere the most room counts"


def test_a_balloon_follows_its_containers_and_ends_with_the_last_one() -> None:
    node = Node(of("t", min_cpus=1, max_cpus=4))
    node.asks("a", 2500)
    node.asks("b", 1500)
    assert node.sizes()["t[0]"] == 4
    had = parse(node.has("a"))
    node.ends("b")
    assert node.sizes()["t[0]"] == 3
    assert parse(node.has("a")) & ~had == 0
    node.ends("a")
    assert "t[0]" not in node.sizes()


def test_a_resize_in_place_grows_and_shrinks_its_balloon_or_is_refused() -> None:
    node = Node(of("t", max_cpus=4))
    node.asks("a", 1000)
    node.asks("b", 1000)
    before = parse(node.has("a"))
    assert node.asks("a", 3000) == "t[0]"
    assert before & ~parse(node.has("b")) == 0
    at = node.at
    assert "at most 4 CPUs each" in node.asks("a", 3100)
    assert node.at is at
    node.asks("a", 100)
    assert node.sizes()["t[0]"] == 2


@pytest.mark.parametrize(
    ("kind", "milli", "why"),
    [
        pytest.param(of(max_cpus=-1), 0, "at most 0 CPUs each", id="nobody may run"),
        pytest.param(of(max_cpus=2), 2001, "at most 2 CPUs each", id="larger than its type"),
        pytest.param(of(), 32_000, "CPUs of no balloon are 31 (1-31)", id="larger than the machine"),
        pytest.param(of(min_cpus=16, min_balloons=1, max_balloons=1, max_cpus=16), 17_000, "at most 1,", id="no more"),
    ],
)
def test_who_fits_nowhere_is_refused_with_the_numbers(kind: BalloonType, milli: int, why: str) -> None:
    node = Node(kind)
    assert why in node.asks("c", milli).removeprefix("no suitable balloon instance available: ")
    assert node.at is node.begun


def test_hyperthreads_are_hidden_by_type_and_by_annotation_and_stay_allocated() -> None:
    node = Node(of("t", hide_hyperthreads=True))
    node.asks("c", 4000)
    node.asks("d", 0, hide="false")
    node.asks("e", 0, hide="maybe")
    whole = node.at.pools["t[0]"].cpus
    assert [node.has(name) for name in "cde"] == [text(whole & 0xFFFF), text(whole), text(whole)]


def test_hidden_threads_that_a_restart_adds_are_none_that_would_be_shown() -> None:
    """Of 1, 16 and 17 the first threads are 1 and 16: with 0 for 17 they would be 0 and 1."""
    node = Node(of("h", hide_hyperthreads=True), reserved=Amount())
    node.finds([asked("h", 3000, has=parse("1,16"))])
    assert (node.cpus("h[0]"), node.has("h")) == ("1,16-17", "1,16")


def test_isolated_cpus_are_for_types_that_ask_for_them_and_never_lent() -> None:
    lends = of("l", "l", share_idle_cpus_in_same=Within.SYSTEM)
    node = Node(of("i", "i", prefer_isol_cpus=True), lends, of("t"), of=machine(isolated=parse("8-9,24-25")))
    node.asks("i", 4000, "i")
    assert node.has("i") == "8-9,24-25"
    node.ends("i")
    node.asks("l", 1000, "l")
    assert parse(node.has("l")) & parse("8-9,24-25") == 0
    assert "CPUs of no balloon are 26" in node.asks("t", 27_000)


def test_who_prefers_a_kind_of_core_gets_it_and_others_leave_it_alone() -> None:
    hybrid = machine(packages=1, nodes=1, cores=8, efficient=parse("4-7,12-15"))
    node = Node(of("low", "low", prefer_core_type=CoreType.EFFICIENT), of("t"), of=hybrid)
    node.asks("l", 2000, "low")
    node.asks("t", 4000)
    assert parse(node.has("l")) & ~hybrid.efficient == parse(node.has("t")) & hybrid.efficient == 0


def test_a_composite_balloon_has_its_share_of_each_component() -> None:
    left, right = of("left", "none", max_cpus=4), of("right", "none", min_cpus=2)
    node = Node(of("t", components=("left", "right")), left, right)
    node.asks("c", 3000)
    assert [(part.type, part.cpus.bit_count()) for part in node.at.pools["t[0]"].parts] == [("left", 2), ("right", 2)]
    node.asks("d", 5000)
    assert node.sizes()["t[0]"] == 8
    assert node.asks("e", 100) == "t[1]", "no component may be larger than its type"
    node.ends("d")
    assert node.sizes()["t[0]"] == 4


def test_the_first_balloons_are_made_by_priority_then_in_the_order_of_the_list() -> None:
    first = {"min_cpus": 1, "min_balloons": 1}
    low, high = of("low", allocator_priority=Priority.LOW, **first), of("high", **first)
    node = Node(low, high, of("other", **first))
    assert [name for name in node.at.pools if name != "default[0]"] == ["high[0]", "other[0]", "reserved", "low[0]"]
    assert node.cpus("reserved") == "0", "others avoid it"


@pytest.mark.parametrize(
    ("amount", "size"),
    [(Amount(), 1), (Amount(AmountKind.QUANTITY, milli=1100), 2), (Amount(AmountKind.CPUSET, parse("3,19,4")), 3)],
    ids=["nothing is reserved", "a quantity is rounded up", "a set"],
)
def test_the_reserved_balloon(amount: Amount, size: int) -> None:
    node = Node(reserved=amount)
    assert node.sizes()["reserved"] == size
    assert not amount.cpus or node.cpus("reserved") == text(amount.cpus)
    assert node.asks("s", 5000, "kube-system") == "reserved"
    assert node.sizes()["reserved"] == 5, "it grows as any other"


def test_settings_that_do_not_fit_are_refused_whole() -> None:
    assert "4 balloon(s) of the type t with 8 CPU(s)" in refusal(by(of(min_cpus=8, min_balloons=4)))
    assert "CPUs 99 are not online" in refusal(replace(by(of()), reserved=Amount(AmountKind.CPUSET, 1 << 99)))


def test_other_settings_move_only_who_cannot_stay() -> None:
    node = Node(of("t"), of("n", "n"))
    for name, milli in (("a", 2000), ("b", 1500)):
        node.asks(name, milli)
        node.asks(f"n{name}", milli, "n")
    asks = [asked(name, 2000 if "a" in name else 1500, "n" if "n" in name else "a") for name in ("a", "na", "b", "nb")]
    asks = [replace(one, has=set_of(node.at, node.at.grants[one.key])) for one in asks]
    taken = Amount(AmountKind.CPUSET, 1 | asks[0].has & -asks[0].has)
    newer = Node(of("first", min_cpus=4, min_balloons=1), of("n", "n", max_cpus=2), of("t"), reserved=taken)
    newer.finds(asks)
    assert parse(newer.has("a")) & ~asks[0].has, "one of its CPUs is reserved now"
    assert newer.grant("na").pool != newer.grant("nb").pool, "together they are too large now"
    assert parse(newer.has("na")) & ~asks[1].has == 0
    assert parse(newer.cpus("first[0]")) & asks[1].has == 0, "a balloon without containers is not in the way"


def test_who_is_on_reserved_cpus_follows_them_and_who_was_there_makes_room() -> None:
    node = Node(of())
    node.asks("s", namespace="kube-system")
    node.asks("a", 1000)
    asks = [asked("s", 100, "kube-system", has=1), asked("a", 1000, has=parse(node.has("a")))]
    other = asks[1].has
    newer = Node(of(), reserved=Amount(AmountKind.CPUSET, other))
    newer.finds(asks)
    assert parse(newer.has("s")) == parse(newer.cpus("reserved")) == other
    assert parse(newer.has("a")) & other == 0


def test_a_program_waits_until_those_to_whom_its_cpus_were_lent_are_off_them() -> None:
    lends = of("l", "shop", share_idle_cpus_in_same=Within.SYSTEM, prefer_new_balloons=True)
    engine = told(by(lends, preserve=(Expression("pod/name", "Equals", ("free",)),)))
    for pod in ("free", "a", "b"):
        decision = create(engine, pod, qos="burstable")
    assert given(decision) == "2-7"
    waits_for = in_the_way(engine.state, ContainerId("b-0"))
    assert waits_for == (ContainerId("a-0"),)
    settle(engine, decision)
    assert in_the_way(engine.state, ContainerId("b-0")) == ()


@pytest.mark.parametrize("most", [0, -1], ids=["there is room", "its type lets nobody in"])
def test_a_label_that_newer_settings_name_moves_nobody_until_it_is_told(most: int) -> None:
    engine = told(by(of("a", "shop")))
    for pod in ("web", "db"):
        settle(engine, create(engine, pod, 2))
    before = sets(engine)
    matches = (Expression("pod/labels/tier", "Equals", ("web",)),)
    newer = by(of("w", "none", match_expressions=matches, max_cpus=most), of("a", "shop"))
    decision = build.settings(engine, newer)
    assert sets(engine) == before, "nobody knows yet whether they are of the type w"
    assert [note.values[0] for note in decision.notes] == [2]
    homes = [replace(build.home(pod), labels={"pod/labels/tier": pod}) for pod in ("web", "db")]
    ones = [build.one(pod, 2).in_phase(Phase.RUNNING) for pod in ("web", "db")]
    settle(engine, engine(ev.Listed(tuple(homes), tuple(ones), engine.state.seq)))
    grants = engine.state.cpus.pools.grants
    assert [(grants[f"{pod}/app"].pool, grants[f"{pod}/app"].waits) for pod in ("web", "db")] == [
        ("a[0]", True) if most else ("w[0]", False),
        ("a[0]", False),
    ]
    assert parse(sets(engine)["db"]) & ~parse(before["db"]) == 0, "who keeps its type keeps its CPUs"


def test_a_cpu_that_goes_offline_is_replaced_in_its_balloon() -> None:
    engine = told(by(of("g", "shop", prefer_new_balloons=True)))
    for pod in "ab":
        settle(engine, create(engine, pod, 2))
    before = sets(engine)
    decision = engine(ev.TopologyRead(build.machine(offline=parse(before["a"]) & -parse(before["a"]))))
    after = sets(engine)
    assert after["b"] == before["b"]
    assert (parse(after["a"]).bit_count(), (parse(after["a"]) & parse(before["a"])).bit_count()) == (2, 1)
    assert list(writes(decision).values()) == [after["a"]]


def test_a_balloon_goes_on_by_the_cpus_that_are_left_until_others_are_online_again() -> None:
    engine = told(by(of("g", "shop", prefer_new_balloons=True)))
    for pod, cpus in (("a", 4), ("b", 3)):
        settle(engine, create(engine, pod, cpus))
    before, offline = sets(engine), 0
    for lost in parse(before["a"]) & -parse(before["a"]), parse(before["b"]) & -parse(before["b"]):
        offline |= lost
        decision = engine(ev.TopologyRead(build.machine(offline=offline)))
        left = {pod: text(parse(cpus) & ~offline) for pod, cpus in before.items()}
        assert (sets(engine), engine.state.cpus.unplaced) == (left, {})
        assert "cpus-short" in [note.code for note in decision.notes]
        settle(engine, decision)
        assert "no suitable balloon" in str(build.refused(create(engine, "c", 1)))
    settle(engine, engine(ev.TopologyRead(build.machine())))
    assert sets(engine) == before


def test_who_is_not_pinned_any_more_may_use_all_cpus() -> None:
    engine = told(by(of("g", "shop")))
    settle(engine, create(engine, "a", 2))
    assert list(writes(build.settings(engine, by(of("g", "shop"), pin_cpu=False))).values()) == ["0-7"]
    assert given(create(engine, "b", 2)) == ""


TYPES = (
    of("t", max_cpus=4, min_cpus=1, min_balloons=1),
    of("n", "b", prefer_new_balloons=True, share_idle_cpus_in_same=Within.NUMA, hide_hyperthreads=True),
    of("s", "c", prefer_spreading_pods=True, prefer_spread_on_physical_cores=True, max_balloons=2),
    of("m", "d", components=("t", "z")),
    of("z", "none", max_balloons=3, allocator_topology_balancing=True),
)


def check(node: Node) -> None:
    """No CPU is in two balloons, each has what its containers request, only idle CPUs are lent, and types hold."""
    taken, pools = 0, node.at.pools.values()
    for pool in pools:
        assert not taken & pool.cpus, "in two balloons"
        taken |= pool.cpus
        requested = sum(node.at.grants[key].part_m for key in pool.members)
        assert 1000 * pool.cpus.bit_count() >= max(requested, bool(pool.members))
        assert all(set_of(node.at, node.at.grants[key]) for key in pool.members)
    assert not any(pool.lent & (taken | node.ground.machine.isolated) for pool in pools)
    assert not taken & ~node.ground.machine.online
    for kind in node.ground.rules.balloons.balloon_types:
        sizes = [size for name, size in node.sizes().items() if name.startswith(f"{kind.name}[")]
        assert kind.min_balloons <= len(sizes) <= (kind.max_balloons or len(sizes))
        assert max(sizes, default=0) <= (kind.max_cpus or W.online)


def restarted(node: Node, asks: dict[str, Ask]) -> Pools:
    """A daemon that knows nothing finds the containers where they are: each balloon is made of their CPUs."""
    has = {key: set_of(node.at, grant) for key, grant in node.at.grants.items()}
    again = all_placed(node.ground, node.begun, [replace(asks[key], has=cpus) for key, cpus in has.items()])
    assert again.denied == {}
    for key, cpus in has.items():
        grant = again.pools.grants[key]
        pool = again.pools.pools[grant.pool]
        assert pool.cpus & cpus if grant.hide else not pool.cpus & ~cpus, "it has moved"
    return again.pools


DRAWN = ["allocator_priority", "allocator_topology_balancing", "share_idle_cpus_in_same", "hide_hyperthreads"]
DRAWN += ["prefer_new_balloons", "prefer_spreading_pods", "prefer_per_namespace_balloon", "prefer_isol_cpus"]
DRAWN += ["prefer_spread_on_physical_cores"]
"""What may be any of its values."""


@st.composite
def types(draw: st.DrawFn, name: str) -> BalloonType:
    low, more, few, many = (draw(st.integers(0, 3)) for _ in range(4))
    sizes = {"min_cpus": low, "max_cpus": low + more if more else 0, "min_balloons": few}
    sizes["max_balloons"] = few + many if many else 0
    return replace(draw(st.builds(BalloonType, **dict.fromkeys(DRAWN, ...))), name=name, namespaces=(name,), **sizes)  # type: ignore[arg-type]


@given_any(
    shape=shapes.filter(lambda one: one.online.bit_count() > 3),
    kinds=st.tuples(types("a"), types("b"), types("default")),
    isolated=st.integers(0, 2**20),
    steps=st.lists(st.tuples(st.sampled_from("pqrs"), st.sampled_from("abcd"), st.integers(0, 4000)), max_size=12),
)
def test_whatever_the_settings_are(
    shape: Machine, kinds: tuple[BalloonType, ...], isolated: int, steps: list[tuple[str, str, int]]
) -> None:
    both = of("c", "c", components=("a", "b"))
    rules = replace(by(*kinds, both), reserved=Amount())
    ground = Ground(replace(shape, isolated=shape.online & isolated), rules)
    assume(isinstance(policy_of("balloons").begin(ground), Pools))
    node, asks = Node(*kinds, both, of=ground.machine, reserved=Amount()), dict[str, Ask]()
    for name, namespace, milli in steps:
        key = f"{name}/{name}"
        if key in asks and not milli % 3:
            node.ends(name)
            del asks[key]
        else:
            namespace, before = asks[key].namespace if key in asks else namespace, node.at
            if node.asks(name, milli, namespace).startswith("no suitable"):
                assert node.at is before
            else:
                asks[key] = asked(name, milli, namespace)
        check(node)
    node.at = restarted(node, asks)
    for key in list(node.at.grants):
        node.ends(key.partition("/")[2])
    assert sorted(node.sizes().values()) == sorted(pool.cpus.bit_count() for pool in node.begun.pools.values())


@given_any(
    shape=shapes.filter(lambda one: one.online.bit_count() > 3),
    namespace=st.sampled_from(["a", "b", "c", "d"]),
    milli=st.integers(0, 2500),
    order=st.permutations("pqrst"),
)
def test_the_order_of_equal_requests_decides_only_who_comes_first(
    shape: Machine, namespace: str, milli: int, order: list[str]
) -> None:
    def sets(names: Iterable[str]) -> list[str]:
        node = Node(*TYPES, of=shape, reserved=Amount())
        return [node.has(name) if not node.asks(name, milli, namespace).startswith("no suit") else "" for name in names]

    assert sets(order) == sets("pqrst")


def nested(*more: BalloonType, outer: Creation = Creation.BALANCE) -> Node:
    """Balloons of the type `out` are made of `p` or `q`, which are made of `a` or `b`, and of `c` and `d`."""
    return Node(
        BalloonType("out", ("a",), components=("p", "q"), component_creation=outer, prefer_new_balloons=True),
        BalloonType("p", components=("a", "b"), component_creation=Creation.BALANCE),
        *(more or (BalloonType("q", components=("c", "d")),)),
        *(BalloonType(name, min_cpus=1) for name in "abcd"),
    )


def test_nested_composites_alternate_each_over_its_own_components() -> None:
    node = nested()
    made = [node.asks(str(i)) for i in range(4)]
    parts = [[part.type for part in node.at.pools[name].parts] for name in made]
    assert parts == [["a"], ["c", "d"], ["b"], ["c", "d"]]


def test_limits_of_an_inner_composite_hold() -> None:
    at_most = replace(BalloonType("q", components=("c", "d")), max_balloons=1, max_cpus=2)
    node = nested(at_most, outer=Creation.ALL)
    assert node.asks("0", milli=1500) == "out[0]"
    assert node.asks("1") == "out[0]", "another one would have a second balloon of the type q"
    assert "no suitable balloon" in node.asks("2", milli=4000), "its part q would have three CPUs"
    assert {part.type: part.cpus.bit_count() for part in node.at.pools["out[0]"].parts} == {"a": 1, "c": 1, "d": 1}
