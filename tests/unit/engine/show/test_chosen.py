"""Which rows people get, in which order; and what they are told of two pictures."""

from dataclasses import replace

import pytest

from nodeward.cli.asked import STATES
from nodeward.engine.limits.readings import Standing
from nodeward.engine.show.chosen import chosen, natural, ordered
from nodeward.engine.show.happened import happened
from nodeward.model.view import CgroupRow, ComponentRow, NodeView, ResourceRow


def row(pod: str, container: str = "", state: str = "enforced", namespace: str = "shop", refused: int = 0) -> CgroupRow:
    level = "container" if container else "pod"
    held = ResourceRow("sgx_epc", 4096, 4096, 0, 0, refused, refused, state)
    path = f"/{namespace}/{pod}/{container}"
    return CgroupRow(level, namespace, pod, container, "", path, state, "spec", "declared", (held,))


def view(*rows: CgroupRow, ready: bool = True) -> NodeView:
    source = ComponentRow("runtime", ready, "no socket")
    return NodeView("enforce", "containerd", "answers", True, {}, {}, rows, components=(source,))


ROWS = (row("web-10"), row("web-10", "b"), row("web-2"), row("db", namespace="data"), row("web-3", "app", "drift"))


@pytest.mark.parametrize(
    ("asked", "pods"),
    [
        pytest.param({}, ["web-3", "db", "web-2", "web-10", "web-10"], id="all: unhealthy first, then natural order"),
        pytest.param({"namespace": "data"}, ["db"], id="a namespace"),
        pytest.param({"states": ("drift",)}, ["web-3"], id="a state"),
        pytest.param({"pod": "web-10"}, ["web-10", "web-10"], id="a pod by its bare name"),
        pytest.param({"pod": "data/db"}, ["db"], id="a pod with its namespace"),
        pytest.param({"pod": "db", "namespace": "shop"}, [], id="none"),
    ],
)
def test_rows_are_chosen_and_ordered(asked: dict[str, str], pods: list[str]) -> None:
    assert [one.pod for one in chosen(ROWS, **asked)] == pods


def test_a_pods_rows_stay_together_its_own_first() -> None:
    rows = (row("a", "c10"), row("b", "x", "stale"), row("a", "c2"), row("b"), row("a"))
    assert [(one.pod, one.container) for one in ordered(rows)] == [
        *(("b", ""), ("b", "x")),
        *(("a", ""), ("a", "c2"), ("a", "c10")),
    ]


def test_a_number_of_any_length_can_be_sorted() -> None:
    assert natural("pod-2") < natural("pod-10") < natural(f"pod-{'9' * 5000}") < natural("pod-x")


def test_every_state_can_be_asked_for() -> None:
    assert set(STATES) == {one.value for one in Standing}


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        pytest.param(None, view(row("a", state="drift")), [], id="the first picture is the table's"),
        pytest.param(view(row("a")), view(row("a", state="drift")), ["shop/a is drift, was enforced"], id="a fault"),
        pytest.param(view(row("a", state="drift")), view(row("a")), ["shop/a is enforced, was drift"], id="it is over"),
        pytest.param(view(row("a", state="pending")), view(row("a")), [], id="no fault"),
        pytest.param(view(), view(row("a", "c", "outside")), ["shop/a/c is outside"], id="a new one with a fault"),
        pytest.param(
            view(row("a", "c", refused=1)),
            view(row("a", "c", refused=3)),
            ["shop/a/c was refused sgx_epc 2 more times"],
            id="refused charges",
        ),
        pytest.param(view(), view(ready=False), ["runtime is not ready: no socket"], id="a source is gone"),
    ],
)
def test_what_happened_between_two_pictures(before: NodeView | None, after: NodeView, lines: list[str]) -> None:
    assert happened(before, after) == lines


def test_a_picture_after_itself_tells_nothing() -> None:
    assert happened(view(*ROWS), replace(view(*ROWS), seq=2)) == []
