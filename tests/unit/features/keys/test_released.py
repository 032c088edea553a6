"""When ids are free again, and what keeps them from it: lost views, a torn checkpoint, a restart, a long sleep."""

from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.devices import PluginStanding
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from tests.unit.features.build import sandbox
from tests.unit.features.keys.asking import ID, KATA, TDX, Node, kata, launcher


def test_after_a_boot_each_pod_has_its_ids_again_once() -> None:
    node = Node(capacity={"tdx": 1})
    node.held["a"] = (ID[0],)
    node.tell(launcher("a"))
    node.begin()
    assert node.allocate(ID[0]) == ""
    assert node.commits, "the journal of the last boot is void"
    node.after(60)
    node.view()
    assert "1 held by pods" in node.allocate(ID[0])


def test_an_id_by_kubelets_word_alone_is_not_given_again_while_the_kernel_has_no_key_for_it() -> None:
    node = Node(capacity={"tdx": 1})
    node.held["a"] = (ID[0],)
    node.tell(launcher("a"))
    node.root = 1
    node.begin()
    assert "1 in foreign use" in node.allocate(ID[0])
    node.root = 0
    node.sample()
    assert node.allocate(ID[0]) == ""


def test_a_full_node_gives_the_key_of_a_pod_that_has_ended_to_the_next_at_once() -> None:
    """Kubelet's checkpoint goes on naming the pod: it forgets it as it gives out the next device."""
    node = Node(capacity={"tdx": 1}).begin().having("a", ID[0], runs=True)
    node.views(6)
    node.sample()
    assert node.allocate(ID[0]), "it runs"
    node.tell(launcher("a", terminal=True))
    node.charged, node.root = {}, 0
    assert node.allocate(ID[0]) == ""
    assert node.state.keys.offers["tdx"].grants[ID[0]].times == 1
    assert node.allocate(ID[0]), "not twice"
    node.view()
    assert node.state.keys.offers["tdx"].grants[ID[0]].times == 1, "the old pod is not taken for the next one"


@pytest.mark.parametrize("has_api", [True, False], ids=["api-server", "no-api-server"])
def test_the_id_of_a_pod_that_kubelet_forgot_is_withheld_and_counted_once_while_its_vm_runs(*, has_api: bool) -> None:
    node = Node(capacity={"tdx": 1})
    node.begin(api=has_api)
    assert node.allocate(ID[0]) == ""
    node.held = {"a": (ID[0],)}
    if has_api:
        node.tell(launcher("a"))
    node.tell(ev.SandboxStarted(sandbox("a")))
    node.charged, node.root = {"a": 1}, 1
    node.views(6)
    node.sample()
    node.tell(ev.PodGone(PodUid("a")))
    node.tell(ev.SandboxRemoved(sandbox("a")))
    node.held = {}
    node.views(4)
    node.sample()
    row = node.row
    assert (node.listed, row.ids[0].state) == ([(ID[0], False)], "draining")
    assert "(pods 1," in row.sentence
    node.charged, node.root = {}, 0
    assert node.settle().listed == [(ID[0], True)]
    node.views(2)
    assert not node.state.keys.offers["tdx"].grants


def test_a_pod_that_kubelets_own_list_lacks_has_ended_where_no_api_server_is_asked() -> None:
    node = Node(capacity={"tdx": 1}, held={"a": (ID[0],)})
    node.tell(ev.PodsOfKubelet(0))
    node.begin({ID[0]: 1}, api=False)
    node.views(8)
    assert "1 held by pods" in node.allocate(ID[0]), "it may have been admitted since"
    node.of_kubelet = ()
    node.view()
    assert node.allocate(ID[0]) == ""


def test_a_list_that_began_with_the_view_that_named_the_pod_says_that_it_has_ended() -> None:
    node = Node(capacity={"tdx": 1})
    node.tell(ev.PodsOfKubelet(0))
    node.begin({ID[0]: 1}, api=False)
    node.held = {"a": (ID[0],)}
    node.view()
    node.tell(ev.PodsOfKubelet(node.state.seq))
    node.views(8)
    assert node.allocate(ID[0]) == ""


def test_an_id_of_two_pods_leaves_nothing_to_publish_when_one_of_them_ends() -> None:
    node = Node(capacity={"tdx": 2}).begin().having("a", ID[0], runs=True)
    node.settle()
    assert node.admit("b", ID[0]) == ""
    node.views(8)
    node.tell(launcher("a", terminal=True))
    node.charged, node.root = {}, 0
    assert "1 free of 2 and 0 published" in node.allocate(ID[1]), "samples have not agreed on it yet"


def test_ids_are_free_again_after_two_views_without_a_pod_that_lives_and_that_is_put_on_record() -> None:
    node = Node(capacity={"tdx": 2}).begin().having("a", ID[0])
    node.views(6)
    node.tell(launcher("a", terminal=True))
    node.view()
    node.view()
    assert node.state.keys.offers["tdx"].grants[ID[0]].times == 0, "kubelet still names it"
    node.held = {}
    node.view()
    assert node.state.keys.offers["tdx"].grants
    node.view()
    assert not node.state.keys.offers["tdx"].grants
    node.settle()
    assert node.allocate(ID[1]) == ""
    assert node.commits[-1] == f'{{"resource":"{TDX}","ids":["{ID[1]}"],"released":["{ID[0]}"]}}'
    assert node.state.keys.offers["tdx"].released == ()


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([False] * 6, id="never-answers"),
        pytest.param([True] * 6, id="answers"),
        pytest.param([True, False, False, True, False, False], id="fails-after-an-answer"),
    ],
)
def test_neither_errors_nor_answers_of_pod_resources_release_ids_beside_a_torn_checkpoint(
    answers: list[bool],
) -> None:
    """PodResources is asked only then. Given two pods of which one has ended and was left out by a first view of the
    checkpoint, when that is torn, then PodResources, which names the other one or fails, is no second view."""
    node = Node().begin()
    assert (node.admit("a", ID[0]), node.admit("b", ID[1])) == ("", "")
    node.root = 10
    node.sample()
    node.views(6)
    node.tell(launcher("a", terminal=True))
    node.held = {"b": (ID[1],)}
    node.view()
    node.sample()
    before = node.listed
    node.held_fault, node.root = "torn", 0
    for answered in answers:
        node.beside = node.held if answered else {}
        for _ in range(2):
            node.after(5)
            node.view()
            node.sample()
    assert list(node.state.keys.offers["tdx"].grants) == [ID[0], ID[1]]
    assert node.listed == before, "what was published stays"
    assert any("cannot be read (torn)" in finding for finding in node.row.findings)
    node.held_fault = ""
    node.views(8)
    node.settle()
    assert (node.healthy(), list(node.state.keys.offers["tdx"].grants)) == (16, [ID[1]])


@pytest.mark.parametrize(
    ("lost", "back"),
    [
        pytest.param(ev.PodsOfKubelet(0, fault="hangs"), ev.PodsOfKubelet(0), id="pods-api"),
        pytest.param(ev.ApiLost("gone"), ev.ApiBack(), id="api-server"),
    ],
)
def test_nothing_is_released_and_nothing_grows_while_a_view_is_lost(lost: ev.Event, back: ev.Event) -> None:
    node = Node()
    node.tell(ev.PodsOfKubelet(0))
    node.begin()
    assert node.admit("a", ID[0]) == ""
    node.root = 10
    node.sample()
    node.views(6)
    node.tell(launcher("a", terminal=True))
    node.tell(lost)
    node.root, node.held = 0, {}
    node.views(20)
    node.settle()
    assert ID[0] in node.state.keys.offers["tdx"].grants
    assert node.healthy() == 6, "what was published stays"
    assert len(node.row.findings) == 1
    node.tell(back)
    node.views(2)
    assert ID[0] in node.state.keys.offers["tdx"].grants, "two views are needed that nothing is amiss with"
    node.views(2)
    assert not node.state.keys.offers["tdx"].grants
    assert node.settle().healthy() == 16


def test_a_kubelet_that_never_had_a_pods_api_freezes_nothing() -> None:
    node = Node()
    node.tell(ev.PodsOfKubelet(0, fault="nobody accepts"))
    node.begin()
    assert node.healthy() == 16
    assert node.admit("a", ID[0]) == ""
    node.tell(launcher("a", terminal=True))
    node.held = {}
    node.views(8)
    assert not node.state.keys.offers["tdx"].grants


def test_what_kubelets_pod_resources_say_beside_a_torn_checkpoint_only_adds() -> None:
    node = Node().begin()
    node.tell(ev.PluginTold(TDX, PluginStanding.RIVAL, "kubevirt-tdx.sock"))
    node.tell(launcher("b"))
    pods = {PodUid("a"): {TDX: (ID[0],)}, PodUid("c"): {TDX: (ID[2],)}}
    node.tell(ev.KeysHeld(node.state.seq, pods, {TDX: (ID[0], ID[1], ID[2])}))
    beside = {PodUid("b"): {TDX: (ID[1],)}, PodUid("c"): {TDX: (ID[3],)}}
    node.tell(ev.KeysHeld(node.state.seq, beside, fault="torn"))
    row = node.row
    assert {one.uid: one.ids for one in row.holders} == {"a": (ID[0],), "b": (ID[1],), "c": (ID[2], ID[3])}
    assert row.registered == {TDX: (ID[0], ID[1], ID[2])}
    assert any("torn" in finding for finding in row.findings)
    node.tell(ev.KeysHeld(node.state.seq, pods, {TDX: (ID[0],)}))
    assert {one.uid: one.ids for one in node.row.holders} == {"a": (ID[0],), "b": (), "c": (ID[2],)}


def test_the_owner_of_ids_that_start_is_found_by_kubelets_pod_resources() -> None:
    node = Node().begin()
    assert node.allocate(ID[0]) == ""
    node.tell(launcher("a"))
    node.tell(launcher("b"))
    node.held_fault = "torn"
    assert node.start(ID[0]), "nobody knows whose it is"
    node.beside["b"] = (ID[0],)
    assert node.start(ID[0]) == ""
    assert node.state.keys.offers["tdx"].passed == {"b": 1}


def test_pods_that_only_the_disk_remembers_freeze_nothing() -> None:
    """A node whose API server was switched off in the settings has them too."""
    node = Node()
    node.tell(ev.PodsListed((kata("old").pod,), as_of=0))
    node.tell(ev.ApiLost("not reached yet", since_wall_ns=1))
    node.tell(ev.GrantsRecalled({}))
    node.view()
    assert node.settle().healthy() == 15


def test_a_grant_is_no_older_for_a_machine_that_slept() -> None:
    node = Node(capacity={"tdx": 1}).begin()
    assert node.allocate(ID[0]) == ""
    node.after(3600)
    node.view()
    node.view()
    node.after(1)
    node.view()
    node.sample()
    assert node.state.keys.offers["tdx"].grants[ID[0]].absent == 0
    node.views(2)
    assert node.allocate(ID[0]), "it is somebody's"
    node.views(4)
    assert not node.state.keys.offers["tdx"].grants


def test_a_pod_that_only_kubelet_names_has_not_ended_because_the_machine_slept() -> None:
    node = Node(capacity={"tdx": 1}).begin()
    node.held["a"] = (ID[0],)
    node.view()
    node.after(3600)
    node.view()
    node.sample()
    assert node.row.free == 0, "it is a pod's that has just been admitted"
    node.views(6)
    assert node.row.free == 1


def test_a_rivals_id_is_listed_until_its_pod_has_ended_and_is_offered_to_nobody_then() -> None:
    node = Node(held={"a": ("tdx1",), "b": (ID[3],)})
    for uid in ("a", "b"):
        node.tell(launcher(uid))
    node.begin()

    assert node.listed == [("tdx1", True), *((name, number < 15) for number, name in enumerate(ID))]
    node.tell(launcher("a", terminal=True))
    node.views(8)
    node.settle()
    assert node.listed == [(name, True) for name in ID]
    del node.held["a"]
    node.views(8)
    assert "tdx1" not in node.state.keys.offers["tdx"].grants
    assert node.listed == [(name, True) for name in ID]


# ---- pods that are not what they say: static pods with a living pod's UID, overheads that lie ------------------------


STATIC = PodSpec(PodUid("a"), "kube-system", "static", (ContainerSpec("other", declared={TDX: 1}),))
"""As kubelet has it; `a` is the UID of a VM's pod."""
MIRROR = replace(STATIC, uid=PodUid("mirror"), config_hash="a")
"""As the API server has it."""


def node() -> Node:
    """Four keys, and a VM's pod that was promised one and has not taken it."""
    found = Node(capacity={"tdx": 4}).begin()
    assert found.admit("a", ID[0]) == ""
    found.views(8)
    found.settle()
    assert found.row.free == 3
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
    assert found.row.free == 2
    assert [found.start(ID[0]), found.start(ID[1])] == ["", ""]
    found.charged, found.root = {"a": 2}, 2
    found.settle()
    assert found.row.free == 2
    assert [found.allocate(ID[2]), found.allocate(ID[3]) == ""] == ["", True]
    assert found.allocate(ID[1]), "there are no more"


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param([ev.PodSeen(MIRROR), ev.PodSeen(replace(MIRROR, terminal=True))], id="its mirror has ended"),
        pytest.param([ev.PodSeen(MIRROR), ev.PodGone(MIRROR.uid)], id="its mirror is gone"),
        pytest.param([ev.PodsOfKubelet(0, (replace(STATIC, terminal=True),))], id="kubelet says that it has ended"),
        pytest.param([ev.PodsOfKubelet(0, (launcher("a").pod, replace(STATIC, terminal=True)))], id="both by kubelet"),
    ],
)
def test_its_end_is_not_the_end_of_the_living_pod(ended: list[ev.Event]) -> None:
    found = node()
    for event in ended:
        found.tell(event)
    found.views(20)
    found.settle()
    assert found.row.free == 3
    assert found.row.entitled == 1


def test_the_end_of_the_living_pod_is_not_its_end() -> None:
    found = node()
    found.tell(ev.PodsOfKubelet(0, (STATIC,)))
    found.tell(launcher("a", terminal=True))
    found.views(20)
    found.settle()
    assert (found.row.free, found.row.entitled) == (3, 1)
    found.tell(ev.PodsOfKubelet(0, (replace(STATIC, terminal=True),)))
    found.views(20)
    found.settle()
    assert (found.row.free, found.row.entitled) == (4, 0), "both have ended"


def test_what_it_asks_by_another_name_counts_beside_the_living_pod() -> None:
    found = node()
    overhead = replace(MIRROR, containers=(ContainerSpec("other"),), overhead={KATA: 1})
    found.tell(ev.PodSeen(overhead))
    found.settle()
    assert found.row.free == 2


def asks(amount: int, *, terminal: bool = False) -> ev.PodSeen:
    return ev.PodSeen(replace(kata("liar").pod, overhead={KATA: amount} if amount else {}, terminal=terminal))


@pytest.mark.parametrize(
    ("says", "takes", "free"),
    [
        pytest.param(0, 1, 15, id="it says none and takes one"),
        pytest.param(1, 3, 13, id="it says one and takes three"),
        pytest.param(3, 1, 13, id="it says three and takes one"),
    ],
)
def test_a_pod_counts_by_the_larger_of_what_it_says_and_takes(says: int, takes: int, free: int) -> None:
    node = Node().begin()
    node.tell(asks(says))
    node.tell(ev.SandboxStarted(sandbox("liar")))
    node.charged, node.root = ({"liar": takes} if takes else {}), takes
    node.settle()
    assert (node.row.free, node.healthy()) == (free, free)
    assert (node.allocate(ID[0]) == "") is (free > 0)


def test_one_that_says_more_than_there_is_stops_new_grants_alone_and_only_until_it_has_failed() -> None:
    """Kubelet has no room for it, so it fails; a VM that was granted its key keeps it meanwhile."""
    node = Node().begin()
    assert node.admit("vm", ID[0]) == ""
    node.tell(asks(10**18))
    node.view()
    node.settle()
    assert [name for name, healthy in node.listed if healthy] == [ID[0]]
    assert str(10**18 + 1) in node.row.sentence
    node.tell(asks(10**18, terminal=True))
    node.settle()
    assert node.row.free == 15
