"""Pods that are not what they say: none of their keys is sold twice.

A static pod whose manifest takes a living pod's UID: kubelet and the kernel take both for one pod, so the ids and the
charges of either count under that UID; and what becomes of the one frees nothing of the other's. And pods whose
overhead says another number than what they take: counted by the larger of both."""

from dataclasses import replace

import pytest

from nodeward.engine.show.key_rows import key_rows
from nodeward.model import events as ev
from nodeward.model.view import KeyRow
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from tests.unit.engine.build import sandbox
from tests.unit.engine.ledger.asking import ID, KATA, TDX, Node, kata, launcher

STATIC = PodSpec(PodUid("a"), "kube-system", "static", (ContainerSpec("other", declared={TDX: 1}),))
"""As kubelet has it; `a` is the UID of a VM's pod."""
MIRROR = replace(STATIC, uid=PodUid("mirror"), config_hash="a")
"""As the API server has it."""


def row(node: Node) -> KeyRow:
    (found,) = key_rows(node.state, node.at_ns)
    return found


def node() -> Node:
    """Four keys, and a VM's pod that was promised one and has not taken it."""
    found = Node(capacity={"tdx": 4}).begin()
    assert found.admit("a", ID[0]) == ""
    found.views(8)
    found.settle()
    assert row(found).free == 3
    return found


@pytest.mark.parametrize("first", [True, False], ids=["the mirror is told first", "kubelet admits it first"])
def test_what_it_is_given_counts_beside_what_the_living_pod_was_promised(first: bool) -> None:
    found = node()
    if first:
        found.tell(ev.PodSeen(MIRROR))
    assert found.allocate(ID[1]) == "", "kubelet asks for a key of its own"
    found.held["a"] = (ID[0], ID[1])
    found.tell(ev.PodSeen(MIRROR))
    found.tell(ev.SandboxStarted(replace(sandbox("a"), namespace="kube-system", name="static")))
    found.views(8)
    found.settle()
    assert row(found).free == 2
    assert [found.start(ID[0]), found.start(ID[1])] == ["", ""]
    found.charged, found.root = {"a": 2}, 2
    found.settle()
    assert row(found).free == 2
    assert [found.allocate(ID[2]), found.allocate(ID[3]) == ""] == ["", True]
    assert found.allocate(ID[1]), "there are no more"


def test_a_second_vm_under_the_same_id_counts_once_it_has_its_key() -> None:
    """Given a container of the same name: kubelet takes the id for its own and asks nobody."""
    found = node()
    found.charged, found.root = {"a": 2}, 2
    found.settle()
    assert row(found).free == 2


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param([ev.PodSeen(MIRROR), ev.PodSeen(replace(MIRROR, terminal=True))], id="its mirror has ended"),
        pytest.param([ev.PodSeen(MIRROR), ev.PodGone(MIRROR.uid)], id="its mirror is gone"),
        pytest.param([ev.PodsOfKubelet(0, (replace(STATIC, terminal=True),))], id="kubelet says that it has ended"),
        pytest.param(
            [ev.PodsOfKubelet(0, (launcher("a").pod, replace(STATIC, terminal=True)))], id="kubelet tells of both"
        ),
    ],
)
def test_its_end_is_not_the_end_of_the_living_pod(ended: list[ev.Event]) -> None:
    found = node()
    for event in ended:
        found.tell(event)
    found.views(20)
    found.settle()
    assert row(found).free == 3
    assert row(found).entitled == 1


def test_the_end_of_the_living_pod_is_not_its_end() -> None:
    """Given kubelet has the static pod, and the API server says that the other one has ended."""
    found = node()
    found.tell(ev.PodsOfKubelet(0, (STATIC,)))
    found.tell(launcher("a", terminal=True))
    found.views(20)
    found.settle()
    assert (row(found).free, row(found).entitled) == (3, 1)
    found.tell(ev.PodsOfKubelet(0, (replace(STATIC, terminal=True),)))
    found.views(20)
    found.settle()
    assert (row(found).free, row(found).entitled) == (4, 0), "both have ended"


def test_what_it_asks_by_another_name_counts_beside_the_living_pod() -> None:
    found = node()
    overhead = replace(MIRROR, containers=(ContainerSpec("other"),), overhead={KATA: 1})
    found.tell(ev.PodSeen(overhead))
    found.settle()
    assert row(found).free == 2


# ---- overheads that lie ---------------------------------------------------------------------------------------------


def asks(amount: int, *, terminal: bool = False) -> ev.PodSeen:
    return ev.PodSeen(replace(kata("liar").pod, overhead={KATA: amount} if amount else {}, terminal=terminal))


@pytest.mark.parametrize(
    ("says", "takes", "free"),
    [
        pytest.param(0, 1, 15, id="it says none and takes one"),
        pytest.param(1, 3, 13, id="it says one and takes three"),
        pytest.param(3, 1, 13, id="it says three and takes one"),
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
    assert (node.allocate(ID[0]) == "") is (free > 0)


def test_one_that_says_more_than_there_is_stops_new_grants_alone_and_only_until_it_has_failed() -> None:
    """Kubelet has no room for it, so it fails; a VM that was granted its key keeps it meanwhile."""
    node = Node().begin()
    assert node.admit("vm", ID[0]) == ""
    node.tell(asks(10**18))
    node.view()
    node.settle()
    assert [name for name, healthy in node.listed if healthy] == [ID[0]]
    assert str(10**18 + 1) in row(node).sentence
    node.tell(asks(10**18, terminal=True))
    node.settle()
    assert row(node).free == 15
