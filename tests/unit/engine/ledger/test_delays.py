"""Given somebody else who takes a key, then it is measured how long it may have been there before kubelet was told."""

import pytest

from nodeward.engine.ledger.delays import BOUNDS_MS, row
from nodeward.engine.state.ledger import Delays
from nodeward.model import events as ev
from nodeward.model.decision import Target
from nodeward.model.tee import PluginStanding
from nodeward.model.workload import PodUid
from tests.unit.engine.build import SECOND
from tests.unit.engine.ledger.asking import TDX, Node

OFFER = Target("offer", TDX)


def serving() -> Node:
    node = Node().begin()
    node.tell(ev.PluginTold(TDX, PluginStanding.SERVING))
    return node


def read(node: Node, began_s: float) -> None:
    """A sample that has taken so long."""
    pods = {PodUid(uid): {"tdx": (amount, amount)} for uid, amount in node.charged.items()}
    began_ns = node.at_ns - int(began_s * SECOND)
    node.tell(ev.KeysRead(node.state.seq, node.capacity, {"tdx": (node.root, node.root)}, pods, read_ns=began_ns))


def taken(node: Node, amount: int, after_s: float = 2.0) -> None:
    """Somebody takes so many, and the next sample shows it."""
    node.after(after_s)
    node.root += amount
    read(node, 0.0)


def handed_over(node: Node, target: Target = OFFER) -> None:
    node.tell(ev.Reached((target,), (target,)))


def delays(node: Node) -> Delays:
    return node.state.ledger.delays.get("tdx", Delays())


def test_it_is_from_where_the_sample_before_began_to_where_kubelet_had_the_list() -> None:
    node = serving()
    read(node, 0.25)
    taken(node, 3)
    assert node.healthy() == 13
    node.after(0.5)
    assert delays(node) == Delays(), "kubelet has not been told yet"
    handed_over(node, Target("offer", "example.com/other"))
    assert delays(node) == Delays(), "another list has"
    handed_over(node)
    assert delays(node).sum_ns == int(2.75 * SECOND)
    shown = dict(row(node.state, "tdx").at_most)
    assert (shown[2_500_000_000], shown[3_000_000_000], shown[30_000_000_000]) == (0, 1, 1)
    handed_over(node)
    assert row(node.state, "tdx").count == 1, "once"


def test_a_second_growth_before_kubelet_is_told_counts_from_the_first() -> None:
    node = serving()
    taken(node, 1)
    taken(node, 1)
    handed_over(node)
    assert (row(node.state, "tdx").count, delays(node).sum_ns) == (1, 4 * SECOND)
    taken(node, 1, after_s=60)
    handed_over(node)
    assert (row(node.state, "tdx").count, delays(node).sum_ns) == (2, 64 * SECOND)
    assert row(node.state, "tdx").at_most[-1] == (30_000_000_000, 1), "the last is beyond every bound"


def test_each_bound_takes_what_is_as_long() -> None:
    for place, bound in enumerate(BOUNDS_MS):
        node = serving()
        taken(node, 1, after_s=bound / 1000)
        handed_over(node)
        assert delays(node).counts == tuple(int(at == place) for at in range(len(BOUNDS_MS) + 1))


@pytest.mark.parametrize(
    "what",
    ["what pods hold themselves", "less than before", "what the lists had no ids for", "a counter below zero"],
)
def test_what_withholds_nothing_for_foreign_use_is_not_measured(what: str) -> None:
    node = serving()
    match what:
        case "what pods hold themselves":
            assert node.admit("vm", "tdx-key-0000") == ""
            node.view()
            node.charged = {"vm": 1}
            taken(node, 1)
        case "less than before":
            taken(node, 2)
            handed_over(node)
            taken(node, -1)
        case "what the lists had no ids for":
            taken(node, 16)
            handed_over(node)
            taken(node, 1)
        case _:
            node.charged = {"vm": -1}
            taken(node, 3)
    before = delays(node)
    handed_over(node)
    assert delays(node) == before
    assert node.state.ledger.grown == {}


def test_while_kubelet_reads_no_list_it_gives_out_nothing_and_nothing_is_measured() -> None:
    node = serving()
    taken(node, 1)
    node.tell(ev.PluginTold(TDX, PluginStanding.WAITING, "kubelet is gone"))
    taken(node, 1)
    node.tell(ev.PluginTold(TDX, PluginStanding.SERVING))
    handed_over(node)
    assert delays(node) == Delays()
