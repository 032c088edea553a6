"""A static pod whose manifest takes a living pod's UID. Kubelet and the kernel take both for one pod, so the ids and
the charges of either count under that UID; and what becomes of the one frees nothing of the other's."""

from dataclasses import replace

import pytest

from nodeward.engine.ledger.device_ids import id_name
from nodeward.engine.show.key_rows import key_rows
from nodeward.model import events as ev
from nodeward.model.view import KeyRow
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from tests.unit.engine.build import sandbox
from tests.unit.engine.ledger.asking import KATA, TDX, Node, launcher

ID = [id_name("tdx", number) for number in range(4)]
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
