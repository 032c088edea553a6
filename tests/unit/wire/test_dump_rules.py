"""Which methods a dump shows, by both grammars of CRI Resource Manager; the cases follow its documents and its code."""

import pytest

from nodeward.wire import dump_rules
from nodeward.wire.dump_rules import Level, parse
from nodeward.wire.errors import WireError

EVERY = ("Version", "CreateContainer", "ListContainers", "PullImage", "ContainerStatus")


def levels(spec: str) -> dict[str, str]:
    rules = parse(spec)
    return {method: rules.level(method).name.lower() for method in EVERY if rules.level(method)}


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        (dump_rules.FINAL_DEFAULT, {"CreateContainer": "name"}),
        ("full:.*", dict.fromkeys(EVERY, "full")),
        ("*", dict.fromkeys(EVERY, "full")),
        ("short:Version,ListContainers", {"Version": "name", "ListContainers": "name"}),  # a level holds on
        ("short:Version,full:.*Image", {"Version": "name", "PullImage": "full"}),
        ("full:.*Container.*,off:.*List.*", {"CreateContainer": "full", "ContainerStatus": "full"}),  # the last decides
        ("off:Version,full:.*", {method: "full" for method in EVERY if method != "Version"}),  # but for a name
        ("verbose:Version,suppress:.*", {"Version": "full"}),
        ("FULL:Version", {"Version": "full"}),
        ("full:*,short:.*Image.*", dict.fromkeys(EVERY, "full") | {"PullImage": "name"}),
        ("full:Container", {}),  # a name is a whole name
        ("full:Container.", {"ListContainers": "full", "ContainerStatus": "full"}),  # an expression is looked for
    ],
)
def test_the_final_grammar(spec: str, shown: dict[str, str]) -> None:
    assert levels(spec) == shown


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("reset,full:.*", dict.fromkeys(EVERY, "full")),
        ("reset", {}),
        ("on", {"CreateContainer": "full", "PullImage": "full"}),  # the historic defaults stand
        ("disable", {}),
        ("reset,full:.*,off", {}),
        ("reset,off:*,full:.*", {}),  # there * comes before every expression
        ("reset,off:*,full:Version", {"Version": "full"}),
        ("reset,full:Version,off:Version", {}),  # the newer rule for a name takes the older one's place
        ("reset,count:Version", {"Version": "name"}),
        ("reset,name:.*List.*,full:.*Status", {"ListContainers": "name", "ContainerStatus": "full"}),
    ],
)
def test_the_historic_grammar(spec: str, shown: dict[str, str]) -> None:
    assert levels(spec) == shown


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("loud:.*", "dump rule 'loud:.*': 'loud' is no level; write off, short or full before the colon"),
        ("full:", "names no method"),
        ("full:.*,,off:Version", "names no method"),
        ("full:.*(", "is no expression (missing ): .*()"),
        ("full:(?<!a).*", "is no expression"),
        (r"full:(\pL{150})", r"'(\\pL{150})' is no expression (pattern too large - compile failed)"),
        ("x" * (dump_rules.MAX_SPEC + 1), "at most 65536"),
        ("a," * dump_rules.MAX_RULES + "a", "at most 1024"),
        ("on," + "a," * dump_rules.MAX_RULES + "a", "1025 rules; at most 1024"),
    ],
)
def test_a_rule_that_cannot_be_is_named_with_its_fault(spec: str, said: str) -> None:
    with pytest.raises(WireError) as raised:
        parse(spec)
    assert said in str(raised.value)


def test_words_between_rules_do_not_count() -> None:
    assert parse("on," + "a," * (dump_rules.MAX_RULES - 1) + "a").level("a") is Level.FULL


def test_a_hostile_expression_takes_no_time_and_a_hostile_name_no_memory() -> None:
    rules = parse("full:(a+)+$,full:(x|x)*y.*")
    assert rules.level("a" * 200 + "b") is Level.OFF  # Python's own would take longer than the universe has
    assert rules.level("a" * (dump_rules.MAX_METHOD + 1)) is Level.OFF
    for number in range(2 * dump_rules.MAX_RULES):
        rules.level(f"Method{number}")
    assert len(rules._known) <= dump_rules.MAX_RULES


@pytest.mark.parametrize(
    "spec", ["{}", "reset,{}", "reset,{},reset,full:Version"], ids=["final", "historic", "forgotten"]
)
def test_many_large_expressions_are_refused_after_a_bounded_work(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest that one may be: a few are compiled, whatever their number is."""
    compiled: list[int] = []
    one = dump_rules._compiled

    def counted(expression: str) -> dump_rules.Expression:
        made = one(expression)
        compiled.append(made.programsize)
        return made

    monkeypatch.setattr(dump_rules, "_compiled", counted)
    large = spec.format(",".join(f"a{number}.{{999}}" for number in range(1000)))
    with pytest.raises(WireError, match=r"dump rule 'a8\.\{999\}': .* at most 65536 are taken"):
        parse(large)
    assert sum(compiled) < dump_rules.MAX_PROGRAM + 8192 + 1000


def test_as_many_rules_as_there_may_be_are_taken_where_they_are_usual_ones() -> None:
    usual = dump_rules.FINAL_DEFAULT.split(",")[1]
    assert len(parse(",".join([usual] * dump_rules.MAX_RULES)).rules) == dump_rules.MAX_RULES
    assert parse("full:.{999}").level("Version") is Level.OFF
