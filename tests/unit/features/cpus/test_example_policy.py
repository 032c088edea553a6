"""The page "CPU policies" is true: its example is a policy, and its table of static-plus is what comes out."""

import re
from pathlib import Path

import pytest

from nodeward.core.cpuset import text
from nodeward.core.workload import Qos
from nodeward.features.cpus.policies import table
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.pools import changed, set_of
from nodeward.features.cpus.settings import Amount, AmountKind, PolicySettings
from nodeward.features.cpus.values import Ask, Denied, Ground, Pools
from tests.unit.features.cpus.build import create, given, told
from tests.unit.features.cpus.machines import W, machine

PAGE = (Path(__file__).parents[4] / "docs" / "cpus.md").read_text()
HEAD = """
from dataclasses import replace
from nodeward.features.cpus.amounts import universe
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.pools import joined, left
from nodeward.features.cpus.values import Ask, Denied, Grant, Ground, Pool, Pools
from nodeward.core.cpuset import CpuSet, text
from nodeward.core.refusal import Reason
"""


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Policy:
    code: dict[str, object] = {"__name__": "example"}
    (block,) = PAGE.split("```python\n")[1:]
    exec(HEAD + block.split("```")[0], code)
    made = code["POLICY"]
    assert isinstance(made, Policy)
    monkeypatch.setattr(table, "POLICIES", {**table.POLICIES, made.name: made})
    return table.policy_of("namespace-node")


def asked(namespace: str, pod: str, request_m: int) -> Ask:
    return Ask(f"{pod}/app", pod, namespace, pod, "app", Qos.BURSTABLE, request_m)


def test_each_namespace_has_a_node(example: Policy) -> None:
    ground = Ground(machine(1, 2), PolicySettings(example.name))
    at = example.begin(ground)

    def then(ask: Ask) -> str:
        nonlocal at
        assert isinstance(at, Pools)
        after = example.admit(ground, at, ask)
        if isinstance(after, Denied):
            return after.why
        at = after
        return text(set_of(at, at.grants[ask.key]))

    assert then(asked("red", "a", 3000)) == "0-3,8-11"
    assert then(asked("blue", "b", 2000)) == "4-7,12-15"
    assert then(asked("red", "c", 5000)) == "0-3,8-11"
    assert then(asked("green", "d", 100)) == "4-7,12-15", "where less is requested"
    assert then(asked("red", "e", 1)) == "it requests 1m, and red's NUMA node has 0m left; request less"
    assert then(asked("red", "c", 4000)) == "0-3,8-11", "a resize"
    assert isinstance(at, Pools)
    before = at
    for pod in ("a", "c"):
        at = example.release(ground, at, f"{pod}/app")
    assert sorted(at.pools) == ["blue", "green"]
    assert list(changed(before, at)) == []


def test_the_engine_places_by_it(example: Policy) -> None:
    node = told(PolicySettings(example.name), of=machine(1, 2))
    assert given(create(node, "a", qos="burstable")) == "0-3,8-11"


def test_the_table_of_static_plus() -> None:
    rows = re.findall(r"^\| (?:then )?(\S+?)(, in kube-system)? \| (\S+) \| (\S+) \| (\d+) \|$", PAGE, re.MULTILINE)
    policy = table.policy_of("static-plus")
    ground = Ground(W, PolicySettings(policy.name, reserved=Amount(AmountKind.QUANTITY, milli=1000)))
    at, out = policy.begin(ground), list[tuple[str, str, str, str, str]]()
    for i, (written, system, *_) in enumerate(rows):
        milli = int(written[:-1]) if written.endswith("m") else 1000 * int(written)
        assert isinstance(at, Pools)
        at = policy.admit(ground, at, asked("kube-system" if system else "shop", str(i), milli))
        assert isinstance(at, Pools)
        grant = at.grants[f"{i}/app"]
        out.append((written, system, text(grant.own) or "none", text(set_of(at, grant)), str(grant.shares)))
    assert out == rows
    assert len(rows) == 3
