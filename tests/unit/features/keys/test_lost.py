"""Views of kubelet's that are lost, for good or for a while: what stands in for them, what stands still until they are
back, and that nothing is frozen for ever. Every order of it: test_histories.py."""

import pytest

from nodeward.core import events as ev
from nodeward.core.devices import PluginStanding
from nodeward.core.workload import PodUid
from nodeward.features.keys.device_ids import SETTLE_NS
from nodeward.features.keys.effects.grants import on_record
from nodeward.features.keys.kubelet_view import lost
from nodeward.features.keys.loss import PODS_NS
from tests.unit.features.build import SECOND, sandbox, there
from tests.unit.features.keys.asking import ID, TDX, Node, kata, launcher

# ---- a journal that was removed since the boot: what kubelet names is granted, and nothing moves until that is known

FROZEN = "the journal of grants was removed since the boot, and what was granted is still being found out from kubelet"


def without_journal(*, api: bool = True, keys: int = 2) -> Node:
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
    for _ in range(seconds // 2):
        node.after(2)
        node.sample()
        node.view()


def test_nothing_is_given_out_until_a_view_can_name_all_that_was_granted() -> None:
    node = without_journal()
    for _ in range(SETTLE_NS // (2 * SECOND)):
        assert node.listed == [(ID[0], True), (ID[1], False)], "what kubelet names is promised"
        assert FROZEN in node.allocate(ID[1])
        lives(node, 2)
    lives(node, 4)
    assert node.healthy() == 2
    assert node.allocate(ID[1]) == ""


def test_while_it_lasts_people_are_told_why_and_then_of_which_ids_kubelet_alone_told() -> None:
    node = without_journal()
    row = node.row
    assert row.findings == (f"{FROZEN}; no id is released and no more are offered.",)
    assert (there(row.offer).withheld, there(row.offer).journal_lost) == ("journal", f"{FROZEN}.")
    lives(node, 10)
    (said,) = node.row.findings
    assert said.startswith("the journal of grants was removed since the boot: 1 id(s) are taken for granted")
    node.held.clear()
    node.tell(launcher("a", terminal=True))
    lives(node, 10)
    assert node.row.findings == (), "the pod is gone, and with it all that the loss could mean"


def test_what_kubelet_names_is_on_record_again_as_granted_in_this_boot() -> None:
    """So that the next start knows it, and nobody takes it for an id of an earlier boot, which its pod may have again
    without a key beside it."""
    node = without_journal()
    assert on_record(node.state) == {TDX: {ID[0]: 1}}
    lives(node, 10)
    assert node.allocate(ID[0]) == "", "it counts once more: there are two keys"
    assert node.allocate(ID[1])


@pytest.mark.parametrize("heard", ["the API server", "the Pods API"])
def test_the_pods_are_waited_for_and_not_for_ever(heard: str) -> None:
    node = without_journal(api=False)
    lives(node, 20)
    assert FROZEN in node.allocate(ID[1])
    if heard == "the API server":
        node.tell(ev.ApiBack())
    else:
        node.of_kubelet = ()
    lives(node, 4)
    assert FROZEN not in node.allocate(ID[1])
    alone = without_journal(api=False)
    lives(alone, PODS_NS // SECOND + 6)
    assert alone.allocate(ID[1]) == ""


def test_time_in_which_the_machine_sleeps_does_not_count() -> None:
    node = without_journal()
    node.after(3600)
    lives(node, 2)
    assert FROZEN in node.allocate(ID[1])


def test_where_its_form_is_unknown_a_sample_from_after_kubelets_time_ends_it() -> None:
    node = Node(held_fault=FORM, answered=True)
    node.tell(ev.ApiBack())
    node.tell(ev.GrantsRecalled({}, lost=True))
    node.view()
    for _ in range(SETTLE_NS // SECOND):
        node.after(1)
        node.sample()
    assert FROZEN in node.row.findings[-1]
    node.after(1)
    node.sample()
    assert FROZEN not in node.row.findings[-1]


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
    assert node.row.findings == ()
    assert node.healthy() == 2


# ---- a checkpoint whose form is unknown: kubelet's other words count where they agree with those who know all pods

FORM = "Checksum is not that of Data"


def without_form(*pods: ev.PodSeen, answered: bool | None = None, api: bool = True, keys: int = 2) -> Node:
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


def test_an_answer_of_pod_resources_or_of_the_pods_api_that_names_nobody_is_a_first_view() -> None:
    node = looked(without_form(answered=True))
    assert node.healthy() == 2
    assert node.allocate(ID[0]) == ""
    assert lost(node.state) == (
        f"what kubelet has handed out cannot be read ({FORM}); what else it says of its pods stands in for that.",
    )
    node = without_form(api=False)
    node.of_kubelet = ()
    assert looked(node).allocate(ID[0]) == ""


@pytest.mark.parametrize("api", [True, False], ids=["with the API server", "without"])
@pytest.mark.parametrize("answered", [None, False], ids=["nobody has asked it", "it names somebody who is not known"])
def test_an_error_is_none(answered: bool | None, api: bool) -> None:
    node = looked(without_form(answered=answered, api=api))
    assert f"has not been read yet ({FORM})" in node.allocate(ID[0])
    assert node.healthy() == 0


def test_an_answer_with_nobody_to_compare_it_with_is_none() -> None:
    node = looked(without_form(answered=True, api=False))
    assert f"has not been read yet ({FORM})" in node.allocate(ID[0])
    node.tell(ev.PodsOfKubelet(node.state.seq, fault="Kubelet is initializing"))
    assert f"has not been read yet ({FORM})" in looked(node).allocate(ID[0])


def test_an_answer_that_leaves_out_a_pod_that_may_have_ids_is_none_until_that_is_clear() -> None:
    node = looked(without_form(launcher("a"), answered=True, keys=1))
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
    node = without_form(launcher("a"), answered=True)
    node.tell(ev.SandboxStarted(sandbox("a")))
    looked(node)
    assert node.healthy() == 1
    assert [node.allocate(ID[0]), node.allocate(ID[1]) != ""] == ["", True]
    assert node.state.keys.offers["tdx"].passed == {PodUid("a"): 1}, "it may have been let start in the life before"


def test_a_pod_with_a_sandbox_of_which_nobody_tells_what_it_asks_for_is_waited_for() -> None:
    node = without_form(answered=True)
    node.tell(ev.SandboxStarted(sandbox("a")))
    assert "nobody tells what shop/pod-a asks for, which has a sandbox" in looked(node).allocate(ID[0])


def test_what_is_not_accounted_for_later_holds_growth_and_takes_nothing_back() -> None:
    node = looked(without_form(answered=True))
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


# ---- a Pods API that is gone for good: the next views take its place

ABSENT = ev.PodsOfKubelet(0, fault="no socket (UNAVAILABLE)", absent=True)
SERVING, AGAIN, TWICE = (ev.PluginTold(TDX, PluginStanding.SERVING, restarts=number) for number in range(3))


def with_pods_api(*, api: bool = True) -> Node:
    """Kubelet tells by its Pods API of one of our VMs, of a pod of Kata's that runs, and of one that is gone soon."""
    found = Node()
    found.tell(SERVING)
    if api:
        found.tell(ev.ApiBack())
        found.tell(kata("runs"))
    found.tell(ev.PodsOfKubelet(0, (kata("runs").pod, kata("gone").pod)))
    found.tell(ev.SandboxStarted(sandbox("runs")))
    found.tell(ev.GrantsRecalled({}))
    found.view()
    found.settle()
    assert found.admit("a", ID[0]) == ""
    found.views(6)
    return found


def released(found: Node) -> bool:
    """Whether the id of a pod that ends now is free again soon."""
    found.tell(launcher("a", terminal=True))
    found.held = {}
    found.views(8)
    return not found.state.keys.offers["tdx"].grants


@pytest.mark.parametrize("api", [True, False], ids=["with an API server", "without"])
def test_a_kubelet_that_began_anew_without_it_is_known_by_the_other_views(api: bool) -> None:
    found = with_pods_api(api=api)
    found.tell(ABSENT)
    found.tell(AGAIN)
    found.views(20)
    found.tell(TWICE)
    found.views(20)
    assert "kubelet no longer tells of its pods" in found.row.findings[0], "each that begins anew has its time"
    found.tell(TWICE)
    found.views(14)
    (said,) = found.row.findings
    assert "has begun anew without its Pods API (no socket" in said
    assert ("by the API server until" in said) == api
    assert released(found)
    assert found.row.entitled == 1, "the promise of the pod that runs stands, and no other"


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        pytest.param(ABSENT, SERVING, id="the same kubelet"),
        pytest.param(ABSENT, ev.PluginTold(TDX, PluginStanding.WAITING, restarts=1), id="one that does not read us"),
        pytest.param(ev.PodsOfKubelet(0, fault="hangs"), AGAIN, id="an API that hangs"),
    ],
)
def test_else_what_it_told_stands_and_nothing_is_released(lost: ev.Event, told: ev.Event) -> None:
    found = with_pods_api()
    found.tell(lost)
    found.tell(told)
    found.views(60)
    assert not released(found)
    assert "kubelet no longer tells of its pods" in found.row.findings[-1]


def test_where_nobody_else_tells_of_pods_all_that_it_told_of_stand() -> None:
    found = Node()
    found.tell(SERVING)
    found.tell(ev.PodsOfKubelet(0, (kata("runs").pod,)))
    found.tell(ev.GrantsRecalled({}))
    found.tell(ABSENT)
    found.tell(AGAIN)
    found.views(34)
    found.sample()
    assert ("has begun anew without its Pods API" in found.row.findings[0], found.row.entitled) == (True, 1)
