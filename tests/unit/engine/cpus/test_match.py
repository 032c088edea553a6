"""Expressions on containers, as nri-plugins has them."""

import pytest

from nodeward.engine.cpus.match import filled, globs, holds, value_of
from nodeward.model.cpus import Ask
from nodeward.model.pool_rule import Expression
from nodeward.model.workload import Qos

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


@pytest.mark.parametrize(
    ("pattern", "value", "is_match"),
    [("a*c", "abc", True), ("a*c", "a/c", False), ("*/c", "a/c", True), ("[^a]", "b", True), ("[^a]", "a", False)],
)
def test_patterns_do_not_cross_a_slash(pattern: str, value: str, is_match: bool) -> None:
    assert globs(pattern, value) is is_match
