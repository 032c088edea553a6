"""A journal of grants that was removed since the boot: what kubelet names is granted, and nothing moves until that is
known. Every history of it: test_views.py."""

import pytest

from nodeward.app.node.grants import on_record
from nodeward.engine.ledger.device_ids import SETTLE_NS
from nodeward.engine.ledger.loss import PODS_NS
from nodeward.engine.show.key_rows import key_rows
from nodeward.model import events as ev
from tests.unit.engine.build import SECOND
from tests.unit.engine.ledger.asking import ID, TDX, Node, launcher

FROZEN = "the journal of grants was removed since the boot, and what was granted is still being found out from kubelet"


def begun(*, api: bool = True, keys: int = 2) -> Node:
    """The daemon starts without its journal, beside a pod that has an id and has not started."""
    node = Node(capacity={"tdx": keys})
    node.held["a"] = (ID[0],)
    if api:
        node.tell(ev.ApiBack())
        node.tell(launcher("a"))
    node.tell(ev.GrantsRecalled({}, lost=True))
    node.sample()
    node.view()
    return node


def lives(node: Node, seconds: int) -> None:
    """Samples and views come for so long."""
    for _ in range(seconds // 2):
        node.after(2)
        node.sample()
        node.view()


def findings(node: Node) -> tuple[str, ...]:
    (row,) = key_rows(node.state, node.at_ns)
    return row.findings


def test_nothing_is_given_out_until_a_view_can_name_all_that_was_granted() -> None:
    node = begun()
    for _ in range(SETTLE_NS // (2 * SECOND)):
        assert node.listed == [(ID[0], True), (ID[1], False)], "what kubelet names is promised"
        assert FROZEN in node.allocate(ID[1])
        lives(node, 2)
    lives(node, 4)
    assert node.healthy() == 2
    assert node.allocate(ID[1]) == ""


def test_while_it_lasts_people_are_told_why_and_then_of_which_ids_kubelet_alone_told() -> None:
    node = begun()
    assert findings(node) == (f"{FROZEN}; no id is released and no more are offered.",)
    (row,) = key_rows(node.state, node.at_ns)
    assert row.offer is not None
    assert (row.offer.withheld, row.offer.journal_lost) == ("journal", f"{FROZEN}.")
    lives(node, 10)
    (said,) = findings(node)
    assert said.startswith("the journal of grants was removed since the boot: 1 id(s) are taken for granted")
    node.held.clear()
    node.tell(launcher("a", terminal=True))
    lives(node, 10)
    assert findings(node) == (), "the pod is gone, and with it all that the loss could mean"


def test_what_kubelet_names_is_on_record_again_as_granted_in_this_boot() -> None:
    """So that the next start knows it, and nobody takes it for an id of an earlier boot, which its pod may have again
    without a key beside it."""
    node = begun()
    assert on_record(node.state) == {TDX: {ID[0]: 1}}
    lives(node, 10)
    assert node.allocate(ID[0]) == "", "it counts once more: there are two keys"
    assert node.allocate(ID[1])


@pytest.mark.parametrize("heard", ["the API server", "the Pods API"])
def test_the_pods_are_waited_for_and_not_for_ever(heard: str) -> None:
    node = begun(api=False)
    lives(node, 20)
    assert FROZEN in node.allocate(ID[1])
    if heard == "the API server":
        node.tell(ev.ApiBack())
    else:
        node.of_kubelet = ()
    lives(node, 4)
    assert FROZEN not in node.allocate(ID[1])
    alone = begun(api=False)
    lives(alone, PODS_NS // SECOND + 6)
    assert alone.allocate(ID[1]) == ""


def test_time_in_which_the_machine_sleeps_does_not_count() -> None:
    node = begun()
    node.after(3600)
    lives(node, 2)
    assert FROZEN in node.allocate(ID[1])


def test_a_refused_journal_that_is_removed_while_the_daemon_runs_is_a_loss() -> None:
    """Given views that came before, then what they named is granted since the boot as well."""
    node = Node(capacity={"tdx": 2})
    node.held["a"] = (ID[0],)
    node.begin(fault="of another version")
    assert on_record(node.state) == {TDX: {}}
    node.tell(ev.GrantsRecalled({}, lost=True))
    assert on_record(node.state) == {TDX: {ID[0]: 1}}
    lives(node, 4)
    assert FROZEN in node.allocate(ID[1])
    lives(node, 8)
    assert node.allocate(ID[1]) == ""


def test_what_kubelet_names_after_a_boot_is_no_loss() -> None:
    node = Node(capacity={"tdx": 2})
    node.held["a"] = (ID[0],)
    node.begin()
    assert on_record(node.state) == {TDX: {}}
    assert findings(node) == ()
    assert node.healthy() == 2
