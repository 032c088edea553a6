"""Starts that were let through and never take a key: each counts for others until it cannot take one any more."""

from dataclasses import replace

import pytest

from nodeward.model import events as ev
from nodeward.model.workload import ContainerId, PodUid
from tests.unit.engine.build import container, sandbox
from tests.unit.engine.ledger.asking import ID, TDX, Node, launcher

ON_ITS_WAY = "1 are on their way to pods that start"


def waiting(*, api: bool) -> Node:
    """Two keys, of which somebody foreign has one; pod a was let start by kubelet's Pods API alone, and b waits."""
    node = Node(capacity={"tdx": 2})
    if api:
        node.tell(ev.ApiBack())
    node.tell(ev.GrantsRecalled({}))
    node.view()
    node.settle()
    assert node.allocate(ID[0]) == ""
    node.of_kubelet = (launcher("a").pod,)
    assert node.start(ID[0]) == ""
    assert node.admit("b", ID[1]) == ""
    node.root = 1
    assert ON_ITS_WAY in node.start(ID[1])
    return node


def test_who_starts_is_told_by_kubelets_word_and_how_much_it_may_take_by_the_larger() -> None:
    node = Node(capacity={"tdx": 2}).begin()
    assert node.allocate(ID[0]) == ""
    node.held_fault = "torn"
    node.of_kubelet = (launcher("a").pod,)
    node.tell(launcher("a", 2))
    node.root = 1
    assert "its start takes 2, of 2 there are 1 in use" in node.start(ID[0])
    node.root = 0
    assert node.start(ID[0]) == ""


@pytest.mark.parametrize("api", [True, False], ids=["with an API server", "without"])
def test_the_start_of_a_pod_that_no_view_shows_any_more_ends(api: bool) -> None:
    node = waiting(api=api)
    node.views(30)
    assert ON_ITS_WAY in node.start(ID[1]), "kubelet has the pod, and it may start at any moment"
    node.of_kubelet = ()
    node.view()
    assert ON_ITS_WAY in node.start(ID[1]), "not at once: a view may be late"
    node.views(8)
    assert node.start(ID[1]) == ""
    assert node.state.ledger.offers["tdx"].unseen_ns == {}


def test_no_start_ends_while_a_view_is_lost() -> None:
    node = waiting(api=False)
    node.of_kubelet = ()
    node.view()
    node.of_kubelet = None
    node.tell(ev.PodsOfKubelet(node.state.seq, fault="hangs"))
    node.views(30)
    assert ON_ITS_WAY in node.start(ID[1])


def test_another_container_of_the_pod_may_stop() -> None:
    node = Node(capacity={"tdx": 2}).begin()
    assert [node.admit("a", ID[0]), node.admit("b", ID[1])] == ["", ""]
    node.root = 1
    assert node.start(ID[0]) == ""
    for name in ("compute", "log"):
        node.tell(ev.Created(sandbox("a"), container("a", name)))
    node.tell(ev.Stopped(sandbox("a"), container("a", "log")))
    node.views(30)
    assert ON_ITS_WAY in node.start(ID[1])


@pytest.mark.parametrize(("whose", "waits"), [("a", True), ("other", False)])
def test_a_container_that_is_being_created_counts_for_its_own_pod(whose: str, waits: bool) -> None:
    node = two_and_somebody_foreign()
    node.tell(launcher("other", 0))
    assert node.start(ID[0]) == ""
    node.tell(ev.Created(sandbox("a"), container("a", "compute")))
    node.tell(ev.Stopped(sandbox("a"), container("a", "compute")))
    made = replace(container(whose, "compute"), id=ContainerId("next"))
    node.tell(ev.Creating(sandbox(whose), made, ask_id=99))
    node.views(10)
    assert (ON_ITS_WAY in node.start(ID[1])) is waits


def begun_anew(node: Node) -> Node:
    """The daemon's next life: with what is on record, the runtime's sandboxes and kubelet's checkpoint."""
    after = Node(capacity=node.capacity, at_ns=node.at_ns, root=node.root)
    after.charged, after.held = dict(node.charged), dict(node.held)
    after.tell(ev.ApiBack())
    for uid in node.held:
        after.tell(launcher(uid))
        after.tell(ev.SandboxStarted(sandbox(uid)))
    after.tell(ev.GrantsRecalled({TDX: {name: 1 for names in node.held.values() for name in names}}))
    return after


def two_and_somebody_foreign() -> Node:
    """Two keys, promised to pods a and b, of which somebody foreign has taken one since."""
    node = Node(capacity={"tdx": 2}).begin()
    assert [node.admit("a", ID[0]), node.admit("b", ID[1])] == ["", ""]
    node.root = 1
    return node


def test_one_that_never_was_let_through_stands_in_nobodys_way_for_long() -> None:
    node = begun_anew(two_and_somebody_foreign())
    node.views(150)
    assert ON_ITS_WAY in node.start(ID[1])
    node.views(10)
    assert node.start(ID[1]) == "", "pod a is not about to start: its image is not there, for one"


def test_what_has_its_key_already_is_not_waited_for_after_a_restart() -> None:
    node = two_and_somebody_foreign()
    node.capacity, node.charged, node.root = {"tdx": 3}, {"a": 1}, 2
    node = begun_anew(node)
    node.view()
    node.sample()
    assert node.state.ledger.offers["tdx"].passed == {PodUid("b"): 1}
    assert node.start(ID[1]) == ""


def test_nobody_is_let_start_before_the_first_view_of_what_kubelet_has_handed_out() -> None:
    node = begun_anew(two_and_somebody_foreign())
    node.held_fault, node.of_kubelet = "torn", (launcher("a").pod,)
    assert "what kubelet has handed out has not been read yet (torn)" in node.start(ID[0])
    node.held_fault, node.of_kubelet = "", None
    assert ON_ITS_WAY in node.start(ID[0])


def test_who_has_had_the_ids_and_lives_starts_by_kubelets_pods_once_the_checkpoint_cannot_be_read() -> None:
    node = two_and_somebody_foreign()
    node.view()
    node.held_fault, node.of_kubelet = "torn", (launcher("a").pod, launcher("b").pod)
    assert node.start(ID[0]) == ""
    assert ON_ITS_WAY in node.start(ID[1])
    node.of_kubelet = (launcher("b", terminal=True).pod,)
    assert "no pod is known to have these ids" in node.start(ID[1])


def test_who_may_have_been_given_the_same_ids_meanwhile_counts_beside_the_one_who_had_them() -> None:
    node = two_and_somebody_foreign()
    node.view()
    node.root, node.held_fault = 0, "torn"
    node.of_kubelet = tuple(launcher(uid).pod for uid in ("a", "b", "c"))
    assert node.start(ID[0]) == ""
    assert "2 are on their way to pods that start" in node.start(ID[1]), "a and c"


@pytest.mark.parametrize(
    ("container_ids", "stays"),
    [
        pytest.param({}, True, id="nobody names it"),
        pytest.param({"compute": ContainerId("x")}, True, id="the pod's status names it"),
        pytest.param({"log": ContainerId("x")}, False, id="it is another"),
    ],
)
def test_a_start_of_before_counts_for_as_long_as_its_container_may_be_there_where_only_cgroups_tell(
    container_ids: dict[str, ContainerId], stays: bool
) -> None:
    node = begun_anew(two_and_somebody_foreign())
    node.view()
    node.tell(ev.PodSeen(replace(launcher("a").pod, container_ids=container_ids)))
    node.tell(ev.CgroupsFound((ev.FoundCgroup("/kubepods/poda/x", ContainerId("x"), PodUid("a")),), node.state.seq))
    node.views(200)
    assert (PodUid("a") in node.state.ledger.offers["tdx"].passed) is stays
