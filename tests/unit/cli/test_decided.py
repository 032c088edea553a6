"""The latest decisions of the live view: what is wanted for whom, by which source and rule; and repairs."""

from nodeward.cli.decided import Decided, LatestDecisions
from nodeward.model.view import CgroupRow, NodeView, ResourceRow

MI = 1024**2
SPEC = "the pod's spec in the API server"
RULE = "The container declares this limit."
FIRST = Decided(f"shop/web/app: sgx_epc 4Mi, from {SPEC}", RULE)


def row(
    name: str = "app",
    wanted: int | None = 4 * MI,
    *,
    state: str = "enforced",
    source: str = SPEC,
    rule: str = RULE,
    repairs: int = 0,
) -> CgroupRow:
    """A container, or with an empty name the pod."""
    resources = (ResourceRow("sgx_epc", wanted, wanted, 0, 0, 0, 0),)
    level = "container" if name else "pod"
    return CgroupRow(level, "shop", "web", name, "", f"/web/{name}", state, source, rule, resources, repairs=repairs)


def told(*views: tuple[CgroupRow, ...]) -> list[Decided]:
    """What is kept after these views."""
    decisions = LatestDecisions()
    for rows in views:
        decisions.look(NodeView("enforce", "", "answers", True, {}, {}, rows))
    return list(decisions.latest)


def test_a_new_container_is_a_decision_and_stays_one() -> None:
    assert told((row(),), (row(),), (row(state="drift"),)) == [FIRST]


def test_another_limit_source_or_rule_is_a_decision() -> None:
    later = told((row(),), (row(wanted=None),), (row(wanted=None, rule="Because."),), (row(wanted=None, source="x"),))

    assert later == [
        FIRST,
        Decided(f"shop/web/app: no limit, from {SPEC}", RULE),
        Decided(f"shop/web/app: no limit, from {SPEC}", "Because."),
        Decided("shop/web/app: no limit, from x", RULE),
    ]


def test_a_repair_is_told() -> None:
    _, repaired = told((row(),), (row(repairs=1),), (row(repairs=1),), (row(repairs=0),))

    assert repaired.what == "shop/web/app: sgx_epc 4Mi is written again"
    assert "repaired 1 time(s)" in repaired.why


def test_the_last_five_are_kept() -> None:
    kept = told(tuple(row(f"app-{number}") for number in range(9)))

    assert [one.what.split(":")[0] for one in kept] == [f"shop/web/app-{number}" for number in range(4, 9)]


def test_a_pod_is_named_as_one() -> None:
    assert told((row(""),))[0].what.startswith("shop/web (pod): ")
