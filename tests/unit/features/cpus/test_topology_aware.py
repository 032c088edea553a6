"""`topology-aware`: who goes to which pool of the tree, near whom, and what others have then."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from nodeward.core import events as ev
from nodeward.core.cpuset import of, parse, text
from nodeward.core.hints import Hint, HintKind
from nodeward.core.topology import Machine, MemoryNode
from nodeward.core.workload import POD, ContainerId, Phase, Qos
from nodeward.features.cpus.place import all_placed, begun
from nodeward.features.cpus.policies import topology_aware, tree_choice
from nodeward.features.cpus.policies.topology_aware import TOPOLOGY_AWARE
from nodeward.features.cpus.pool_settings import PoolLevel, TopologyAwareSettings
from nodeward.features.cpus.pool_tree import tree_of
from nodeward.features.cpus.pools import changed, set_of
from nodeward.features.cpus.recorded import change
from nodeward.features.cpus.requested import UNREAD, UNREAD_STAYS
from nodeward.features.cpus.settings import Amount, AmountKind, PolicySettings
from nodeward.features.cpus.values import Ask, Denied, Recorded
from nodeward.features.cpus.words import cpu_sentence
from nodeward.neighbours.formats.described import sandbox
from tests.unit.features.build import Told
from tests.unit.features.cpus import build
from tests.unit.features.cpus.machines import PolicyNode, W, ask, machine, refusal, shapes

RESERVED = Amount(AmountKind.QUANTITY, milli=750)
RULES = PolicySettings("topology-aware", reserved=RESERVED)
N, C = "resource-policy.nri.io", "cri-resource-manager.intel.com"
ISOLATED = machine(isolated=of((14, 15, 30, 31)))
HIDDEN = {f"hide-hyperthreads.{N}": "true"}


def rules(**own: object) -> PolicySettings:
    return replace(RULES, topology_aware=TopologyAwareSettings(**own))  # type: ignore[arg-type]


def test_the_example_of_the_reference() -> None:
    """Machine W: 2 packages of 2 NUMA nodes of 4 cores of 2 threads."""
    node = PolicyNode(RULES).comes(*(ask(name, 2000) for name in "abcd"))
    assert [node.own(name) for name in "abcd"] == ["4,20", "8,24", "12,28", "1,17"]
    node.comes(ask("limited", 500, Qos.BURSTABLE, 3000), ask("unlimited", 1000, Qos.BURSTABLE))
    assert (node.has("limited"), node.has("unlimited")) == ("5-7,21-23", "9-11,13-15,25-27,29-31")
    node.comes(ask("large", 6000))
    assert node.own("large") == "9-11,25-27"
    assert node.has("unlimited") == "13-15,29-31"
    assert node.updated == ["large/large", "unlimited/unlimited"]
    assert cpu_sentence(node.grant("limited").reason) == (
        "NUMA node #1 was chosen of 7 pools with room: before NUMA node #2, since it comes first."
    )
    node.ends("large")
    assert node.has("unlimited") == "9-11,13-15,25-27,29-31"


ASKED = {
    "a fraction shares": (ask("c", 900), "0/900"),
    "one and a half": (ask("c", 1500), "1/500"),
    "one and a half, shared by wish": (ask("c", 1500, notes={f"prefer-shared-cpus.{N}": "t"}), "0/1500"),
    "whole ones": (ask("c", 3000), "3/0"),
    "whole ones, shared by wish": (ask("c", 3000, notes={f"prefer-shared-cpus.{C}/pod": "true"}), "0/3000"),
    "two and a half": (ask("c", 2500), "0/2500"),
    "two and a half, not shared": (ask("c", 2500, notes={f"prefer-shared-cpus.{N}": "false"}), "2/500"),
    "the container's word is the stronger": (
        ask("c", 2000, notes={f"prefer-shared-cpus.{N}": "false", f"prefer-shared-cpus.{N}/container.c": "1"}),
        "0/2000",
    ),
    "no boolean counts as none": (ask("c", 2000, notes={f"prefer-shared-cpus.{N}": "maybe"}), "2/0"),
    "burstable": (ask("c", 3000, Qos.BURSTABLE, 4000), "0/3000"),
    "best effort": (ask("c", 0, Qos.BEST_EFFORT), "0/0"),
    "system": (ask("c", 500, namespace="kube-system"), "reserved 0/500"),
    "system, elsewhere by wish": (
        ask("c", 500, namespace="kube-system", notes={f"prefer-reserved-cpus.{N}": "0"}),
        "0/500",
    ),
    "reserved by wish": (ask("c", 2000, notes={f"prefer-reserved-cpus.{N}": "true"}), "0/2000"),
    "unknown requests give nothing exclusive": (replace(ask("c", 2000), known=False), "0/0"),
    "left alone": (ask("c", 2000, notes={f"cpu.preserve.{N}": "true"}), "unpinned 0/0"),
}


@pytest.mark.parametrize(("one", "expected"), ASKED.values(), ids=ASKED)
def test_what_is_exclusive_and_what_is_shared(one: Ask, expected: str) -> None:
    """Where reserved CPUs have no room, what would have these shares those of all."""
    node = PolicyNode(RULES).comes(one)
    grant = node.grant("c")
    kind = "reserved " if grant.pool == "reserved" else "" if grant.pinned else "unpinned "
    assert f"{kind}{grant.own.bit_count()}/{grant.part_m}" == expected
    if grant.own and grant.part_m:
        assert grant.own & set_of(node.at, grant) == grant.own != set_of(node.at, grant)


def test_isolated_cpus_are_for_whom_they_are_wished() -> None:
    require = {f"require-isolated-cpus.{N}": "true"}
    node = PolicyNode(rules(prefer_isolated_cpus=True), ISOLATED)
    node.comes(ask("one", 1000), ask("two", 2000), ask("must", 2000, notes=require))
    assert (node.own("one"), node.own("must")) == ("14", "15,31")
    assert not parse(node.own("two")) & ISOLATED.isolated
    why = node.admit(ask("more", 2000, notes=require))
    assert "it takes isolated CPUs only, and 1 of these are free" in why
    prefers = {**require, f"prefer-isolated-cpus.{N}/container.soft": "true"}
    assert node.admit(ask("soft", 2000, notes=prefers)) == ""  # the stronger scope does not require
    node.ends("must")
    assert node.cpus("isolated") == "15,30-31"


def test_the_last_isolated_cpu_is_taken_by_who_prefers_it() -> None:
    node = PolicyNode(rules(prefer_isolated_cpus=True), machine(isolated=of((15,)))).comes(ask("c", 1500))
    assert node.own("c") == "15"
    one = ask("c", 2000, notes={f"prefer-isolated-cpus.{C}": "true"})
    assert PolicyNode(RULES, machine(isolated=of((0, 4)))).comes(one).own("c") == "0,4"


def test_of_a_core_that_is_hidden_a_container_has_one_thread() -> None:
    node = PolicyNode(RULES).comes(ask("c", 2000, notes=HIDDEN), ask("d", 100, notes=HIDDEN))
    assert (node.own("c"), node.has("c"), node.has("d")) == ("4,20", "4", "8-11")


LEVELS = {"": "root", "package": "socket #0", "numa": "NUMA node #1", "die": "socket #0", "l3cache": "NUMA node #1"}


@pytest.mark.parametrize(("level", "pool"), LEVELS.items())
def test_burstable_without_limit_gets_a_pool_of_the_level_or_of_the_next_one_above(level: str, pool: str) -> None:
    node = PolicyNode(rules(unlimited_burstable=PoolLevel.SYSTEM))
    notes = {f"unlimited-burstable.{N}": level} if level else {}
    assert node.admit(ask("first", 900, Qos.GUARANTEED)) == ""  # makes node 0 and package 1 unlike
    node.comes(ask("c", 100, Qos.BURSTABLE, notes=notes))
    expected = {"socket #0": "socket #1", "NUMA node #1": "NUMA node #2"}.get(pool, pool)
    assert node.grant("c").pool == expected


def test_containers_of_a_pod_and_of_a_namespace_are_near_one_another() -> None:
    for colocate, count in ((False, 3), (True, 1)):
        node = PolicyNode(rules(colocate_pods=colocate)).comes(*(ask(name, 1000, pod="web") for name in "abc"))
        assert len({grant.pool for grant in node.at.grants.values()}) == count
    spaces = PolicyNode(rules(colocate_namespaces=True))
    spaces.comes(ask("a", 1000), ask("b", 1000, namespace="lab"), ask("c", 1000))
    assert spaces.grant("a").pool == spaces.grant("c").pool != spaces.grant("b").pool


GPU = "vendor.com/gpu"
W_OF_8 = replace(W, memory=tuple(MemoryNode(one.id, one.cpus, 8 << 30) for one in W.nodes))


def near(*nodes: int, kind: HintKind = HintKind.POD_RESOURCE) -> tuple[Hint, ...]:
    return tuple(Hint(kind, nodes=1 << node, resource=GPU) for node in nodes)


NEAR = {
    "a node": (ask("c", 500), near(3), "NUMA node #3"),
    "nothing that is there": (ask("c", 500), near(9), "NUMA node #1"),
    "what the firmware does not place": (ask("c", 500), (Hint(HintKind.MOUNT, W.online),), "NUMA node #1"),
    "two nodes of a package": (ask("c", 500), near(2, 3), "socket #1"),
    "two nodes of two packages": (ask("c", 500), near(0, 3), "root"),
    "a disk of a package": (ask("c", 500), (Hint(HintKind.MOUNT, W.nodes[2].cpus | W.nodes[3].cpus),), "socket #1"),
    "most of what it uses": (ask("c", 500), (*near(3), Hint(HintKind.DEVICE, W.nodes[3].cpus)), "NUMA node #3"),
    "who has no room there": (ask("c", 10_000), near(3), "socket #1"),
}


@pytest.mark.parametrize(("one", "hints", "pool"), NEAR.values(), ids=NEAR)
def test_a_container_is_placed_near_what_it_uses(one: Ask, hints: tuple[Hint, ...], pool: str) -> None:
    assert PolicyNode(RULES, W_OF_8).comes(replace(one, hints=hints)).grant("c").pool == pool


def test_strict_hints_let_it_run_near_all_that_it_uses_or_not_at_all() -> None:
    node, notes = PolicyNode(RULES, W_OF_8), {f"strict.topologyhints.{N}": "true"}
    one = ask("c", 6000, notes=notes)
    node.comes(replace(one, hints=near(3)))
    assert node.grant("c").pool == "NUMA node #3"
    for hints in (near(0, 3), near(3)):
        why = node.admit(replace(ask("d", 6000, notes=notes), hints=hints))
        assert "strict.topologyhints lets it run only near what it uses" in why
    assert "that this machine does not have" in node.admit(replace(ask("x", 100, notes=notes), hints=near(9)))
    node.comes(replace(ask("y", 100, notes=notes, namespace="kube-system"), hints=near(1)))
    assert node.grant("y").pool == "NUMA node #1"  # not on the reserved CPUs of node 0
    why = node.admit(replace(ask("e", 100, notes=notes), unhinted=("kubelet's PodResources did not answer",)))
    assert why.endswith("and kubelet's PodResources did not answer")


def test_cpus_are_picked_near_each_thing_that_kubelet_has_given() -> None:
    node, notes = PolicyNode(RULES, W_OF_8), {f"pick-resources-by-hints.{N}": "true"}
    node.comes(replace(ask("even", 4000, notes=notes), hints=near(1, 3)))
    assert (node.own("even"), node.grant("even").memory_near) == ("4,12,20,28", of((1, 3)))
    assert cpu_sentence(node.grant("even").reason).startswith(
        "In root, near the 2 thing(s) that kubelet has given it, 2"
    )
    node.comes(replace(ask("odd", 3000, notes=notes), hints=near(0, 2)))
    own = parse(node.own("odd"))
    assert (own.bit_count(), [bool(own & W.nodes[i].cpus) for i in (0, 2)]) == (3, [True, True])
    assert node.admit(replace(ask("few", 1000, notes=notes), hints=near(0, 2))) == ""  # more things than CPUs
    assert node.own("few").count(",") == 0


def test_a_container_is_near_those_that_its_pod_names_and_far_from_others() -> None:
    node = PolicyNode(RULES).comes(ask("db", 2000), ask("noise", 2000))
    node.comes(replace(ask("web", 1000), kin={"db/db": 5, "gone/gone": 9}))
    assert node.grant("web").pool == node.grant("db").pool
    assert cpu_sentence(node.grant("web").reason).endswith(
        "since more of the containers that it is to be near to are there."
    )
    node.comes(replace(ask("shy", 1000), kin={"db/db": -1, "noise/noise": -1, "web/web": -1}))
    assert node.grant("shy").pool not in {node.grant(name).pool for name in ("db", "noise", "web")}


def test_memory_is_chosen_where_it_has_room() -> None:
    sizes = (("large", 7 << 30), ("next", 2 << 30))
    asks = [replace(ask(name, 100, Qos.BURSTABLE, 200), memory_request=size) for name, size in sizes]
    node = PolicyNode(RULES, W_OF_8).comes(*asks)
    assert node.grant("next").pool != node.grant("large").pool


def test_a_resize_stays_in_its_pool_or_goes_to_one_around_it_and_else_is_refused() -> None:
    node = PolicyNode(RULES).comes(*(ask(name, 4000) for name in "abc"))
    own = parse(node.own("a"))
    for size, pool in ((6000, "NUMA node #1"), (10_000, "socket #0")):
        node.comes(ask("a", size))
        assert (node.grant("a").pool, parse(node.own("a")) & own) == (pool, own)
    before = node.at
    assert "no pool has that" in node.admit(ask("a", 40_000))
    assert node.at is before
    node.comes(ask("a", 1000))
    assert parse(node.own("a")) & ~parse(text(own | (before.grants["a/a"].own))) == 0


def test_a_pool_within_never_gives_what_it_promised_to_others() -> None:
    """Upstream takes CPUs for a package from a node whose CPUs are promised already."""
    node = PolicyNode(RULES).comes(*(ask(name, 6500, Qos.BURSTABLE, 7000) for name in "abcd"))
    node.admit(ask("wide", 5000))
    for one in node.at.pools.values():
        promised = sum(node.at.grants[key].part_m for key in one.members)
        assert 1000 * one.cpus.bit_count() >= promised


def test_settings_that_leave_nothing_to_share_are_refused() -> None:
    every = replace(RULES, reserved=Amount(AmountKind.CPUSET, cpus=W.online))
    assert "topology-aware needs one to share; reserve fewer" in refusal(every)


TREES = {
    "one package, one node": (machine(1, 1), "socket #0"),
    "two nodes": (machine(1, 2), "socket #0 (NUMA node #0 NUMA node #1)"),
    "caches": (machine(1, 1, 2), "socket #0 (L3 cache #0 L3 cache #1)"),
    "caches in nodes": (
        machine(1, 2, 2),
        "socket #0 (NUMA node #0 (L3 cache #0 L3 cache #1) NUMA node #1 (L3 cache #2 L3 cache #3))",
    ),
    "a node without memory": (
        replace(machine(1, 3), memory=tuple(MemoryNode(i, g.cpus, i << 30) for i, g in enumerate(machine(1, 3).nodes))),
        "socket #0 (NUMA node #1 NUMA node #2)",
    ),
}


@pytest.mark.parametrize(("one", "expected"), TREES.values(), ids=TREES)
def test_the_tree_leaves_out_what_divides_nothing(one: Machine, expected: str) -> None:
    tree = tree_of(one)

    def told(i: int) -> str:
        inside = " ".join(map(told, tree.inside[i]))
        return tree.pools[i].name + (f" ({inside})" if inside else "")

    assert told(0) == expected


some_hints = st.lists(
    st.builds(Hint, st.sampled_from(HintKind), cpus=st.integers(0, 255), nodes=st.sampled_from((0, 1, 2, 3, 1 << 9))),
    max_size=3,
)
asks = st.builds(
    lambda one, hints, kin: replace(one, hints=tuple(hints), kin=kin),
    st.builds(
        ask,
        st.sampled_from("abcdefgh"),
        st.sampled_from((0, 100, 900, 1000, 1500, 2000, 2500, 5000)),
        st.sampled_from(Qos),
        st.sampled_from((0, 3000)),
        st.sampled_from(
            (
                {},
                {f"unlimited-burstable.{N}": "numa"},
                {f"require-isolated-cpus.{N}": "1"},
                {f"pick-resources-by-hints.{N}": "1"},
                {f"pick-resources-by-hints.{N}": "1", f"prefer-isolated-cpus.{N}": "1"},
            )
        ),
        namespace=st.sampled_from(("shop", "lab", "kube-system")),
    ),
    some_hints,
    st.none() | st.dictionaries(st.sampled_from([f"{name}/{name}" for name in "abcdefgh"]), st.integers(-5, 5)),
)


@drawn(shapes, st.lists(asks, max_size=12), st.booleans())
def test_the_choice_is_strict_and_every_sum_holds(of: Machine, wants: list[Ask], near: bool) -> None:
    """Whatever is asked on whatever machine: of any two pools one is better, by keys that can be compared; no CPU is
    two containers' own, and no pool promises more than it has, with those within it."""
    own = rules(colocate_namespaces=near)
    if isinstance(begun(of, own), Denied):
        return
    node = PolicyNode(own, of)
    made = topology_aware._node(of, own)
    assert not isinstance(made, Denied)
    for one in wants:
        free = tree_choice.free_m(made, node.at)
        want = topology_aware._want(made, one)
        keys = [choice.key for choice in tree_choice.choices_of(made, node.at, free, one, want)]
        assert all(a < b for a, b in pairwise(keys))
        node.admit(one)
        assert all(m >= 0 for m in tree_choice.free_m(made, node.at))
        node.alone()
    for key in list(node.at.grants):
        node.at = node.policy.release(node.ground, node.at, key)
    assert node.at == node.begun


def moved(node: PolicyNode, asks: Sequence[Ask], by: PolicySettings = RULES, *, written: bool = True) -> list[str]:
    """Who has other CPUs once another process has found these containers, by the record or without one."""
    before = node.at
    after = PolicyNode(by, node.ground.machine)

    def found(one: Ask) -> Ask:
        grant = before.grants[one.key]
        has = set_of(before, grant)
        return replace(one, has=grant.own or has, was=grant.pool) if written else replace(one, has=has)

    after.finds(map(found, asks))
    node.at = after.at
    return sorted(changed(before, after.at))


RUNNING = [
    ask("x", 1000, namespace="kube-system"),
    ask("f", 1000, namespace="kube-system"),
    *(ask(name, size) for name, size in (("a", 2000), ("b", 1500), ("d", 6000), ("e", 900))),
    ask("h", 2000, notes=HIDDEN),
    ask("c", 300, Qos.BURSTABLE, 500),
]


def test_who_runs_stays() -> None:
    """By the record all; without one those who have CPUs of their own alone: a larger set may be anything."""
    node = PolicyNode(RULES).comes(*RUNNING)
    node.ends("x")
    node.comes(ask("g", 500, namespace="kube-system"))
    there = [*RUNNING[1:], ask("g", 500, namespace="kube-system")]
    assert moved(node, there) == []
    assert moved(node, there, rules(colocate_pods=True)) == []
    whole = [one for one in there if one.container in "adh"]
    assert [key for key in moved(node, whole, written=False) if key[0] in "adh"] == []


def test_new_settings_give_nobody_the_cpus_of_one_that_runs() -> None:
    asks = [ask(f"a{n}", 2000) for n in range(6)]
    asks.append(ask("b", 1500, notes={f"prefer-shared-cpus.{N}": "false"}))
    node = PolicyNode(rules(prefer_shared_cpus=True)).comes(*asks)
    own = node.own("b")
    moved(node, asks)
    assert node.own("b") == own


def test_a_container_whose_request_could_not_be_read_keeps_its_cpus_if_nobody_else_has_them() -> None:
    lost = replace(ask("lost", 0), known=False, source=UNREAD, has=of((4, 20)))
    node = PolicyNode(RULES)
    node.finds([lost])
    assert node.own("lost") == "4,20"
    others = replace(ask("other", 500), has=of((4, 5, 20, 21)))
    placed = all_placed(node.ground, node.begun, [lost, others])
    assert (placed.denied, list(placed.pools.grants)) == ({"lost/lost": UNREAD_STAYS}, ["other/other"])


def test_a_system_container_without_room_in_the_reserved_pool_is_placed_like_others_and_stays() -> None:
    late = ask("late", 2000, Qos.BURSTABLE, namespace="kube-system")
    node = PolicyNode(RULES).comes(ask("full", 1000, namespace="kube-system"), late)
    assert node.grant("late").pool == "socket #1"
    assert cpu_sentence(node.grant("late").reason).startswith("The reserved CPUs have no room for it. socket #1 was")
    node.ends("full")
    node.comes(late)
    assert node.grant("late").pool == "socket #1"


def test_a_container_that_is_not_pinned_keeps_its_weight() -> None:
    grant = PolicyNode(rules(pin_cpu=False)).comes(ask("c", 1500)).grant("c")
    assert (grant.pinned, grant.shares) == (False, 0)


def test_a_resize_in_its_pool_is_one_line_of_the_record() -> None:
    node = PolicyNode(RULES).comes(ask("a", 2000), ask("b", 2000))
    before = Recorded(W, RULES, node.at)
    node.comes(ask("a", 3000))
    assert change(before, Recorded(W, RULES, node.at)) is not None


def test_annotations_that_are_not_followed_are_said() -> None:
    notes = {f"prefer-isolated-cpus.{N}": "x", f"{N}/cold-start": "c: 1s", f"prefer-cpu-priority.{N}": "top"}
    notes |= {f"topologyhints.{N}": "disks", f"deny.topologyhints.{N}": "[1]"}
    notes |= {f"cpu.preserve.{C}": "yes", f"memory-type.{N}": "zzz"}
    found = TOPOLOGY_AWARE.faults(ask("c", notes=notes))
    assert sorted(found) == [
        f"annotation cpu.preserve.{C}: 'yes' is not allowed; one of true, false",
        f"annotation deny.topologyhints.{N}: '[1]' is no rule; write {{type: prefix, paths: [/dev/]}}",
        f"annotation memory-type.{N}: 'zzz' names no types of memory; write some of dram, hbm, pmem",
        f"annotation prefer-cpu-priority.{N}: 'top' is not allowed; one of high, normal, low, none, default",
        f"annotation prefer-isolated-cpus.{N}: 'x' is no boolean; write true or false",
        f"annotation {N}/cold-start: is not followed by Nodeward, and changes nothing; "
        f"write cold-start.{N}/container.NAME instead",
        f"annotation topologyhints.{N}: 'disks' is not allowed; true, false, or some of mounts, devices, "
        "pod-resources, all, none",
    ]


AFFINITY, ANTI_AFFINITY = "resource-policy.nri.io/affinity", "resource-policy.nri.io/anti-affinity"
BY_NAMES = replace(RULES, reserved=Amount(AmountKind.CPUSET, 1))


def comes(engine: Told, pod: str, app: str = "", **notes: object) -> str:
    """Its pool, once it was created with 2 CPUs; `notes` are the YAML of affinity and anti-affinity."""
    keys = {"near": AFFINITY, "far": ANTI_AFFINITY}
    annotations = {keys[name]: json.dumps(said) for name, said in notes.items()}
    home = replace(build.home(pod), annotations=annotations, labels={f"{POD}app": app or None})
    made = build.one(pod, 2)
    build.begin(engine, home, made)
    return engine.state.cpus.pools.grants[f"{pod}/app"].pool


def test_containers_go_near_those_of_a_label_and_far_from_others() -> None:
    engine = build.told(BY_NAMES, of=W)
    db, other = comes(engine, "db", "db"), comes(engine, "other", "batch")
    assert db != other
    anywhere = {"operator": "AlwaysTrue"}
    is_db = {"key": "pod/labels/app", "operator": "Equals", "values": ["db"]}
    assert comes(engine, "web", near={"app": [{"scope": anywhere, "match": is_db, "weight": 10}]}) == db
    of_shop = {"key": "pod/namespace", "operator": "In", "values": ["shop"]}
    assert comes(engine, "shy", far={"app": [{"scope": of_shop, "match": anywhere}]}) not in (db, other)


def test_the_short_form_holds_in_both_directions_and_in_the_pod_only() -> None:
    engine = build.told(BY_NAMES, of=W)
    home = replace(build.home("p"), annotations={AFFINITY: json.dumps({"a": ["b"]})})
    pools = dict[str, str]()
    for name in "abc":
        made = replace(build.one("p", 1), name=name, id=ContainerId(name), cgroups_path=f"/kubepods/podp/{name}")
        build.begin(engine, home, made)
        pools[name] = engine.state.cpus.pools.grants[f"p/{name}"].pool
    assert pools["a"] == pools["b"] != pools["c"]


MATCH = {"match": {"key": "name", "operator": "In", "values": ["b"]}}
WRONG = {
    "no table": ([1], "it is no table by container names"),
    "no list": ({"c": 1}, "c has no list"),
    "an unknown key": ({"c": [{**MATCH, "wait": 1}]}, "c[0] must have match, and may have scope and weight"),
    "a weight beyond": ({"c": [{**MATCH, "weight": 2**63}]}, "c[0].weight is no number from -1000 to 1000"),
    "an unknown operator": ({"c": [{"match": {"operator": "Is"}}]}, "c[0].match.operator is none of Equals, "),
    "too few values": ({"c": [{"match": {"key": "name", "operator": "In"}}]}, "c[0].match has 0 values; In takes some"),
    "an unknown key to match": ({"c": [{"match": {"key": "id", "operator": "Exists"}}]}, "c[0].match.key is none of "),
    "a label that is not read": (
        {"c": [{"match": {"key": "pod/labels/tier", "operator": "Exists"}}]},
        "'pod/labels/tier' is not read; add the label to policy.topology_aware.affinity_labels",
    ),
}


@pytest.mark.parametrize(("said", "why"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_read_is_said_and_counts_as_nothing(said: object, why: str) -> None:
    (fault,) = TOPOLOGY_AWARE.faults(ask("c", 1000, notes={AFFINITY: json.dumps(said)}))
    assert why in fault


def test_an_annotation_that_nests_without_end_takes_nobody_down() -> None:
    """It is no YAML that is read, so it stays as it is, and is no JSON either."""
    deep = "[" * 5000
    domain = "resource-policy.nri.io"
    words = ("affinity", "anti-affinity"), ("cold-start", "deny.topologyhints", "topologyhints")
    for key in (*(f"{domain}/{one}" for one in words[0]), *(f"{one}.{domain}" for one in words[1])):
        one = ask("c", 1000, notes=sandbox("s", "u", "shop", "c", annotations={key: deep}).annotations)
        assert [*TOPOLOGY_AWARE.faults(one)] or "cold-start" in key
    engine = build.told(BY_NAMES, of=W)
    comes(engine, "db")
    hostile = replace(build.home("x"), annotations={AFFINITY: deep, f"cold-start.{domain}": deep})
    homes, ones = (build.home("db"), hostile), (build.one("db", 2), build.one("x", 2))
    engine(ev.Listed(homes, tuple(one.in_phase(Phase.RUNNING) for one in ones), 9))
    grants = engine.state.cpus.pools.grants
    assert not grants["db/app"].own & grants["x/app"].own


def test_yaml_of_annotations_is_json_in_events_and_what_is_none_stays_as_it_is() -> None:
    bomb = "a: &a [x]\nb: *a"
    long = "a: [" + "b, " * 4000 + "]"
    for said, expected in (("web: [db] # near", '{"web":["db"]}'), (bomb, bomb), (long, long), ("a: [", "a: [")):
        home = sandbox("s", "u", "shop", "web", annotations={AFFINITY: said, "resource-policy.nri.io/other": "x"})
        assert home.annotations == {AFFINITY: expected}
    many = {f"cold-start.resource-policy.nri.io/container.{i}": "duration: 1s" for i in range(1000)}
    read = sandbox("s", "u", "shop", "web", annotations=many).annotations.values()
    assert 0 < sum(text.startswith("{") for text in read) < 40
