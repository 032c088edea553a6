"""Who wants to be near whom, by the annotations of `topology-aware`; events have their YAML as JSON."""

import json
from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.workload import POD, ContainerId, Phase
from nodeward.features.cpus.policies.topology_aware import TOPOLOGY_AWARE
from nodeward.features.cpus.settings import Amount, AmountKind, PolicySettings
from nodeward.neighbours.formats.described import sandbox
from tests.unit.features.build import Told
from tests.unit.features.cpus import build
from tests.unit.features.cpus.machines import W
from tests.unit.features.cpus.test_topology_aware import ask

NEAR, FAR = "resource-policy.nri.io/affinity", "resource-policy.nri.io/anti-affinity"
RULES = PolicySettings("topology-aware", reserved=Amount(AmountKind.CPUSET, 1))


def comes(engine: Told, pod: str, app: str = "", **notes: object) -> str:
    """Its pool, once it was created with 2 CPUs; `notes` are the YAML of affinity and anti-affinity."""
    keys = {"near": NEAR, "far": FAR}
    annotations = {keys[name]: json.dumps(said) for name, said in notes.items()}
    home = replace(build.home(pod), annotations=annotations, labels={f"{POD}app": app or None})
    made = build.one(pod, 2)
    engine(ev.Creating(home, made, ask_id=engine.state.seq + 1))
    engine(ev.Created(home, made))
    return engine.state.cpus.pools.grants[f"{pod}/app"].pool


def test_containers_go_near_those_of_a_label_and_far_from_others() -> None:
    engine = build.told(RULES, of=W)
    db, other = comes(engine, "db", "db"), comes(engine, "other", "batch")
    assert db != other
    anywhere = {"operator": "AlwaysTrue"}
    is_db = {"key": "pod/labels/app", "operator": "Equals", "values": ["db"]}
    assert comes(engine, "web", near={"app": [{"scope": anywhere, "match": is_db, "weight": 10}]}) == db
    of_shop = {"key": "pod/namespace", "operator": "In", "values": ["shop"]}
    assert comes(engine, "shy", far={"app": [{"scope": of_shop, "match": anywhere}]}) not in (db, other)


def test_the_short_form_holds_in_both_directions_and_in_the_pod_only() -> None:
    engine = build.told(RULES, of=W)
    home = replace(build.home("p"), annotations={NEAR: json.dumps({"a": ["b"]})})
    pools = dict[str, str]()
    for name in "abc":
        made = replace(build.one("p", 1), name=name, id=ContainerId(name), cgroups_path=f"/kubepods/podp/{name}")
        engine(ev.Creating(home, made, ask_id=engine.state.seq + 1))
        engine(ev.Created(home, made))
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
    one = ask("c", 1000, notes={NEAR: json.dumps(said)})
    (fault,) = TOPOLOGY_AWARE.faults(one)
    assert why in fault


def test_an_annotation_that_nests_without_end_takes_nobody_down() -> None:
    """It is no YAML that is read, so it stays as it is, and is no JSON either."""
    deep = "[" * 5000
    domain = "resource-policy.nri.io"
    words = ("affinity", "anti-affinity"), ("cold-start", "deny.topologyhints", "topologyhints")
    for key in (*(f"{domain}/{one}" for one in words[0]), *(f"{one}.{domain}" for one in words[1])):
        one = ask("c", 1000, notes=sandbox("s", "u", "shop", "c", annotations={key: deep}).annotations)
        assert [*TOPOLOGY_AWARE.faults(one)] or "cold-start" in key
    engine = build.told(RULES, of=W)
    comes(engine, "db")
    hostile = replace(build.home("x"), annotations={NEAR: deep, f"cold-start.{domain}": deep})
    homes, ones = (build.home("db"), hostile), (build.one("db", 2), build.one("x", 2))
    engine(ev.Listed(homes, tuple(one.in_phase(Phase.RUNNING) for one in ones), 9))
    grants = engine.state.cpus.pools.grants
    assert not grants["db/app"].own & grants["x/app"].own


def test_yaml_of_annotations_is_json_in_events_and_what_is_none_stays_as_it_is() -> None:
    bomb = "a: &a [x]\nb: *a"
    long = "a: [" + "b, " * 4000 + "]"
    for said, expected in (("web: [db] # near", '{"web":["db"]}'), (bomb, bomb), (long, long), ("a: [", "a: [")):
        home = sandbox("s", "u", "shop", "web", annotations={NEAR: said, "resource-policy.nri.io/other": "x"})
        assert home.annotations == {NEAR: expected}
    many = {f"cold-start.resource-policy.nri.io/container.{i}": "duration: 1s" for i in range(1000)}
    read = sandbox("s", "u", "shop", "web", annotations=many).annotations.values()
    assert 0 < sum(text.startswith("{") for text in read) < 40
