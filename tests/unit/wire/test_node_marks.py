"""What the policy static-pools says on a Node: the patches that put it there and take it back, step by step."""

import json

import pytest

from nodeward.wire.node_marks import Marks, next_patch
from tests.unit.edges.webhook.rounds import at

CORES = "cmk.intel.com/exclusive-cores"
POOLS = Marks(4, label=True, taint=True, ours=True)
OWN = {"key": "own", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
NODE = {
    "metadata": {"resourceVersion": "7", "labels": {"a": "b"}},
    "spec": {"taints": [OWN]},
    "status": {"capacity": {"cpu": "8", "cmk.intel.com/exclusive-cores": "0"}},
}


def merged(target: object, patch: object) -> object:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        found[key] = merged(found.get(key), value)
        if value is None:
            del found[key]
    return found


def steps(node: object, wanted: Marks) -> list[object]:
    """The node after each patch until there is none."""
    found = [node]
    while (step := next_patch(json.dumps(found[-1]).encode(), wanted)) is not None:
        assert len(found) < 4
        body = json.loads(step[1])
        assert (step[0], set(body) - {"metadata", "spec"}) in (("/status", {"status"}), ("", set()))
        found.append(merged(found[-1], body))
    return found


def test_what_an_agent_put_on_a_node_is_taken_back_from_each_step_on_and_nothing_else() -> None:
    made = steps(NODE, POOLS)

    assert len(made) == 3
    assert at(made[1], "metadata", "annotations") == {"nodeward.io/static-pools": "true"}, "what is ours is said first"
    assert at(made[-1], "status", "capacity") == {"cpu": "8", CORES: "4"}
    assert at(made[-1], "metadata", "labels") == {"a": "b", "cmk.intel.com/cmk-node": "true"}
    assert at(made[-1], "spec", "taints") == [OWN, {"key": "cmk", "value": "true", "effect": "NoSchedule"}]
    bare = merged(NODE, {"status": {"capacity": {CORES: None}}, "metadata": {"annotations": {}}})
    for begun in made[1:]:
        for between in steps(begun, Marks())[:-1]:
            assert steps(between, Marks())[-1] == bare
        assert steps(begun, POOLS)[-1] == made[-1]


def test_what_another_put_on_a_node_stays_under_another_policy() -> None:
    assert steps(NODE, Marks()) == [NODE]


@pytest.mark.parametrize(("said", "cores", "count"), [("1k", 1000, 1), (4, 4, 1), ("many", 4, 2)])
def test_amounts_are_compared_as_numbers(said: object, cores: int, count: int) -> None:
    node = merged(NODE, {"metadata": {"annotations": {"nodeward.io/static-pools": ""}}})
    node = merged(node, {"status": {"capacity": {CORES: said}}})
    assert len(steps(node, Marks(cores, ours=True))) == count
