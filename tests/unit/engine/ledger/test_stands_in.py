"""A kubelet whose checkpoint can never be read, since its form is unknown: what else it says stands in for it where it
agrees with those who know all pods, so that keys are granted; an error does not, nor an answer of a kubelet that has
only just begun. Every order of it is played in views.py."""

import pytest

from nodeward.engine.ledger.device_ids import id_name
from nodeward.engine.ledger.kubelet_view import lost
from nodeward.model import events as ev
from nodeward.model.workload import PodUid
from tests.unit.engine.build import sandbox
from tests.unit.engine.ledger.asking import TDX, Node, launcher

ID = [id_name("tdx", number) for number in range(4)]
FORM = "Checksum is not that of Data"


def begun(*pods: ev.PodSeen, answered: bool | None = None, api: bool = True, keys: int = 2) -> Node:
    """The daemon has begun, without a journal of before, and knows these pods by the API server."""
    node = Node(capacity={"tdx": keys}, held_fault=FORM, answered=answered)
    if api:
        node.tell(ev.ApiBack())
    for pod in pods:
        node.tell(pod)
    node.tell(ev.GrantsRecalled({}))
    return node


def looked(node: Node) -> Node:
    """Kubelet has been asked, and samples have agreed for long enough."""
    node.view()
    node.settle()
    return node


def test_an_answer_of_pod_resources_that_names_nobody_is_a_first_view() -> None:
    node = looked(begun(answered=True))
    assert node.healthy() == 2
    assert node.allocate(ID[0]) == ""
    assert lost(node.state) == (
        f"what kubelet has handed out cannot be read ({FORM}); what else it says of its pods stands in for that.",
    )


def test_an_answer_of_the_pods_api_that_names_nobody_is_one_too() -> None:
    node = begun(api=False)
    node.of_kubelet = ()
    assert looked(node).allocate(ID[0]) == ""


@pytest.mark.parametrize("api", [True, False], ids=["with the API server", "without"])
@pytest.mark.parametrize(
    ("answered", "why"),
    [
        pytest.param(None, "", id="nobody has asked it"),
        pytest.param(False, "", id="it is an error, or names somebody who is not known"),
    ],
)
def test_an_error_is_none(answered: bool | None, why: str, api: bool) -> None:
    node = looked(begun(answered=answered, api=api))
    assert f"has not been read yet ({FORM})" in node.allocate(ID[0])
    assert node.healthy() == 0


def test_an_answer_with_nobody_to_compare_it_with_is_none() -> None:
    """Given a kubelet that has only just begun: it names no pods as long as it has heard of none."""
    node = looked(begun(answered=True, api=False))
    assert f"has not been read yet ({FORM})" in node.allocate(ID[0])
    node.tell(ev.PodsOfKubelet(node.state.seq, fault="Kubelet is initializing"))
    assert f"has not been read yet ({FORM})" in looked(node).allocate(ID[0])


def test_an_answer_that_leaves_out_a_pod_that_may_have_ids_is_none_until_that_is_clear() -> None:
    node = looked(begun(launcher("a"), answered=True, keys=1))
    why = f"shop/pod-a asks for {TDX} and may have been given ids that nobody tells of"
    assert lost(node.state) == (
        f"what kubelet has handed out cannot be read ({FORM}); nothing is granted before that could be, while {why}.",
    )
    assert f"({FORM}; {why})" in node.allocate(ID[0])
    node.beside = {"a": (ID[0],)}
    looked(node)
    assert [name for name, healthy in node.listed if healthy] == [ID[0]], "it is a's"
    assert "0 free of 1" in node.allocate(ID[0])
    node.tell(launcher("a", terminal=True))
    node.views(20)
    assert looked(node).allocate(ID[0]) == ""


def test_a_pod_that_has_its_sandbox_counts_by_what_it_asks_for_though_it_is_left_out() -> None:
    """As the ids of an ordinary init container are, and all that kubelet has lost with its checkpoint."""
    node = begun(launcher("a"), answered=True)
    node.tell(ev.SandboxStarted(sandbox("a")))
    looked(node)
    assert node.healthy() == 1
    assert [node.allocate(ID[0]), node.allocate(ID[1]) != ""] == ["", True]
    assert node.state.ledger.offers["tdx"].passed == {PodUid("a"): 1}, "it may have been let start in the life before"


def test_a_pod_with_a_sandbox_of_which_nobody_tells_what_it_asks_for_is_waited_for() -> None:
    node = begun(answered=True)
    node.tell(ev.SandboxStarted(sandbox("a")))
    assert "nobody tells what shop/pod-a asks for, which has a sandbox" in looked(node).allocate(ID[0])


def test_what_is_not_accounted_for_later_holds_growth_and_takes_nothing_back() -> None:
    node = looked(begun(answered=True))
    assert node.healthy() == 2
    node.tell(launcher("a"))
    node.root = 1
    node.settle()
    node.root = 0
    node.settle()
    assert node.healthy() == 1, "pod a may have been given the id of a kubelet that is asked later"
    node.beside = {"a": (ID[0],)}
    node.view()
    node.settle()
    assert node.healthy() == 2, "a's, and the other one"


def test_ids_are_free_again_once_their_pod_has_ended_however_soon() -> None:
    node = looked(begun(answered=True))
    for _ in range(5):
        assert node.admit("a", ID[0]) == ""
        node.beside = {"a": (ID[0],)}
        node.view()
        node.tell(launcher("a", terminal=True))
        node.tell(ev.SandboxRemoved(sandbox("a")))
        node.tell(ev.PodGone(PodUid("a")))
        node.beside = {}
        node.views(30)
        node.settle()
        assert (node.state.ledger.offers["tdx"].grants, node.healthy()) == ({}, 2)
