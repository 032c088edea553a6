"""Pods whose overhead says another number than what they take: counted by the larger of both, and none sold twice."""

from dataclasses import replace

import pytest

from nodeward.engine.ledger.device_ids import id_name
from nodeward.engine.show.key_rows import key_rows
from nodeward.model import events as ev
from nodeward.model.view import KeyRow
from tests.unit.engine.build import sandbox
from tests.unit.engine.ledger.asking import KATA, Node, kata

ID = id_name("tdx", 0)


def asks(amount: int, *, terminal: bool = False) -> ev.PodSeen:
    return ev.PodSeen(replace(kata("liar").pod, overhead={KATA: amount} if amount else {}, terminal=terminal))


def row(node: Node) -> KeyRow:
    (found,) = key_rows(node.state, node.at_ns)
    return found


@pytest.mark.parametrize(
    ("says", "takes", "free"),
    [
        pytest.param(0, 1, 15, id="it says none and takes one"),
        pytest.param(1, 3, 13, id="it says one and takes three"),
        pytest.param(3, 1, 13, id="it says three and takes one"),
        pytest.param(16, 0, 0, id="it says all that there are"),
        pytest.param(10**18, 0, 0, id="it says more than there can be"),
        pytest.param(10**18, 2, 0, id="it says more than there can be and takes two"),
    ],
)
def test_a_pod_counts_by_the_larger_of_what_it_says_and_takes(says: int, takes: int, free: int) -> None:
    node = Node().begin()
    node.tell(asks(says))
    node.tell(ev.SandboxStarted(sandbox("liar")))
    node.charged, node.root = ({"liar": takes} if takes else {}), takes
    node.settle()
    assert (row(node).free, node.healthy()) == (free, free)
    assert (node.allocate(ID) == "") is (free > 0)


def test_one_that_says_more_than_there_is_stops_new_grants_alone_and_only_until_it_has_failed() -> None:
    """Kubelet has no room for it, so it fails; a VM that was granted its key keeps it meanwhile."""
    node = Node().begin()
    assert node.admit("vm", ID) == ""
    node.tell(asks(10**18))
    node.view()
    node.settle()
    assert [name for name, healthy in node.listed if healthy] == [ID]
    assert str(10**18 + 1) in row(node).sentence
    node.tell(asks(10**18, terminal=True))
    node.settle()
    assert row(node).free == 15
