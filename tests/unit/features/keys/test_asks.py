"""What kubelet is answered: which ids a pod is given and which pod may start, as the kernel, the journal and the quote
service go on."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.workload import ContainerId, PodUid
from nodeward.features.keys.settings import Attestation
from nodeward.features.root import SettingsChanged
from tests.unit.features.build import container, sandbox
from tests.unit.features.keys.asking import ID, ROW, TDX, Node, kata, launcher, offering, with_row


def test_a_refusal_names_no_pod_to_end_where_none_was_promised_a_key() -> None:
    node = Node(capacity={"tdx": 1}).begin().having("a", ID[0], runs=True)
    node.views(8)
    node.tell(launcher("a", terminal=True))
    node.view()
    assert node.allocate(ID[0]).endswith(
        "; wait for the end of the VM that holds it (nodeward keys names it), then make the pod again"
    )


@pytest.mark.parametrize("fault", ["", "the disk hangs"])
def test_nothing_is_granted_before_kubelet_has_once_told_whose_its_ids_are(fault: str) -> None:
    """Given a pod of which kubelet alone knows, since the journal is younger, when the daemon starts and kubelet's
    checkpoint does not come, then nobody else is given the last key, however long it takes."""
    node = Node(capacity={"tdx": 1})
    node.tell(ev.ApiBack())
    node.tell(launcher("a"))
    node.tell(ev.GrantsRecalled({}))
    if fault:
        node.tell(ev.KeysHeld(node.state.seq, fault=fault))
    node.settle()
    assert node.state.keys.offers["tdx"].published == 0
    why = f" ({fault}; shop/pod-a asks for {TDX} and may have been given ids that nobody tells of)" if fault else ""
    told = f"what kubelet has handed out has not been read yet{why}; make the pod again"
    assert told in node.allocate(ID[0])
    node.view()
    assert node.settle().allocate(ID[0]) == ""


def test_foreign_use_withholds_ids_and_an_allocate_that_comes_first_is_refused_with_the_reason() -> None:
    node = Node().begin()
    node.root = 16
    refused = node.allocate(ID[0])
    assert refused == (
        f"Nodeward gives out no {TDX} for '{ID[0]}': 1 asked, 0 free of 16 and 0 published (0 held by pods or promised "
        "to them, 16 in foreign use, 0 in reserve); end what holds keys outside of the node's pods (nodeward keys "
        "names it), or place the pod elsewhere"
    )
    assert node.healthy() == 0, "the list was corrected before kubelet heard of the refusal"
    assert node.state.keys.refused == {"tdx/foreign": 1}


@pytest.mark.parametrize(
    ("made", "code"),
    [
        pytest.param(lambda: Node(with_row(replace(ROW, reserve=16))), "reserved", id="reserve"),
        pytest.param(lambda: Node(capacity={"sev_es": 4}), "unknown", id="module-not-loaded"),
    ],
)
def test_each_refusal_has_its_code(made: Callable[[], Node], code: str) -> None:
    node = made().begin()
    assert node.allocate(ID[0])
    assert node.state.keys.refused == {f"tdx/{code}": 1}


def test_promised_keys_are_never_granted_twice_and_kata_pods_count_before_they_start() -> None:
    node = Node(capacity={"tdx": 2}).begin()
    node.tell(kata("k"))
    assert node.admit("a", ID[0]) == ""
    assert "2 held by pods or promised to them" in node.allocate(ID[1])
    assert node.state.keys.refused == {"tdx/promised": 1}


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        pytest.param((), "kubelet asked for no id", id="none"),
        pytest.param((ID[0], ID[0]), "named an id twice", id="twice"),
        pytest.param((ID[0], "tdx99"), "1 of 2 ids are not on the list of 16", id="never-offered"),
        pytest.param(tuple(map(str, range(10_000))), "asked for 10000 ids at once", id="ten-thousand"),
        pytest.param(("x" * 100_000,), f"'{'x' * 64}...': 1 of 1 ids", id="a-huge-name"),
    ],
)
def test_a_question_without_sense_is_refused_without_a_look_at_the_kernel(ids: tuple[str, ...], said: str) -> None:
    node = Node().begin()
    refused = node.allocate(*ids)
    assert said in refused
    assert len(refused) < 1000
    assert node.waited_for == []
    assert node.allocate(ID[0]) == ""


def test_a_grant_that_cannot_be_put_on_record_is_given_back_and_refused() -> None:
    node = Node().begin()
    assert "could not be put on record (ENOSPC)" in node.allocate(ID[0], commit_error="ENOSPC")
    assert not node.state.keys.offers["tdx"].grants
    assert dict(node.listed)[ID[15]] is False, "the corrected list: one less, until samples agree again"
    node.settle()
    assert node.healthy() == 16


@pytest.mark.parametrize("over", [ev.Abandoned(1), ev.Expired(1)], ids=["nobody-waits", "deadline"])
def test_a_grant_that_nobody_waits_for_is_given_back(over: ev.Abandoned | ev.Expired) -> None:
    node = Node().begin()
    node.open(ev.Allocating(TDX, (ID[0],)))
    assert ID[0] in node.state.keys.offers["tdx"].grants
    node.tell(over)
    assert not node.state.keys.offers["tdx"].grants
    assert not node.state.keys.reserved
    assert node.allocate(ID[0]) == ""


def test_nothing_is_granted_while_the_journal_is_not_to_be_trusted() -> None:
    node = Node().begin({ID[0]: 1}, fault="version 9 is not known")
    assert (node.healthy(), dict(node.listed)[ID[0]]) == (1, True)
    assert "version 9 is not known" in node.allocate(ID[1])
    node.tell(ev.GrantsRecalled())
    assert node.settle().healthy() == 16


def after_an_init_container() -> Node:
    """Of one key, whose id kubelet has given to it."""
    node = Node(capacity={"tdx": 1}).begin()
    node.tell(launcher("a", init=1))
    assert node.allocate(ID[0]) == ""
    node.held["a"] = (ID[0],)
    return node


def test_the_next_container_of_a_pod_has_its_init_containers_id_for_nothing() -> None:
    node = after_an_init_container()
    assert node.allocate(ID[0]) == ""
    assert node.waited_for == ["keys", "keys", "held"]
    assert len(node.commits) == 1
    assert node.state.keys.offers["tdx"].grants[ID[0]].times == 1


def test_no_id_is_taken_for_a_pods_own_by_a_view_from_before_the_question() -> None:
    node = after_an_init_container()
    node.view()
    node.held_fault = "torn"
    assert "1 held by pods" in node.allocate(ID[0])


def test_an_id_of_a_pod_that_has_started_needs_a_second_key() -> None:
    """Kubelet has forgotten that it gave the id away, as it may while somebody lists its pods' resources."""
    node = after_an_init_container()
    node.tell(ev.SandboxStarted(sandbox("a")))
    assert "1 held by pods or promised to them" in node.allocate(ID[0])
    node.capacity = {"tdx": 2}
    node.settle()
    assert node.allocate(ID[0]) == ""
    assert node.state.keys.offers["tdx"].grants[ID[0]].times == 2


def test_a_pod_starts_when_the_kernel_has_its_key_and_waits_while_it_has_not() -> None:
    node = two_and_somebody_foreign()
    assert node.start(ID[0]) == ""
    assert node.waited_for[-2:] == ["keys", "held"]
    assert node.start(ID[1]) == (
        f"Nodeward gives out no {TDX} for '{ID[1]}': its start takes 1, of 2 there are 1 in use, and 1 are on their "
        "way to pods that start; kubelet tries again by itself; see nodeward keys for who holds the keys"
    )
    assert node.start(ID[0]) == "", "it starts again"
    node.root = 0
    assert node.start(ID[1]) == ""
    node.charged, node.root = {"a": 1}, 2
    assert node.start(ID[0]) == "", "its VM runs: another of its containers starts"


def test_a_start_of_ids_that_nobody_is_known_to_have_is_refused_until_kubelet_tells() -> None:
    node = Node().begin()
    assert node.allocate(ID[0]) == ""
    assert "no pod is known to have these ids" in node.start(ID[0])
    node.of_kubelet = (launcher("a").pod,)
    assert node.start(ID[0]) == "", "by kubelet's pods"
    assert node.state.keys.offers["tdx"].passed == {PodUid("a"): 1}
    node.view()
    assert node.state.keys.offers["tdx"].passed, "kept, though the checkpoint has not named it yet"
    node.of_kubelet = (launcher("a").pod, launcher("b").pod)
    assert node.start(ID[0]), "it can be either"
    node.held["a"] = (ID[0],)
    assert node.start(ID[0]) == "", "by the checkpoint"


def test_of_two_pods_with_one_id_the_one_that_has_taken_nothing_starts() -> None:
    node = Node(capacity={"tdx": 2}).begin().having("a", ID[0], runs=True)
    node.settle()
    assert node.admit("b", ID[0]) == ""
    node.root = 2
    assert "its start takes 1" in node.start(ID[0])


@pytest.mark.parametrize("attestation", [Attestation.OBSERVE, Attestation.ENFORCE])
def test_without_quotes_only_ids_that_are_not_granted_are_withheld(attestation: Attestation) -> None:
    node = Node(with_row(replace(ROW, attestation=attestation, attestation_socket="/run/qgs")))
    node.begin()
    node.tell(ev.QuotesTold("tdx", answers=True))
    node.settle()
    assert node.admit("a", ID[0]) == ""
    node.tell(ev.QuotesTold("tdx", answers=False, why="nobody accepts"))
    strict = attestation is Attestation.ENFORCE
    assert node.healthy() == (1 if strict else 16)
    refused = node.allocate(ID[1])
    assert ("at /run/qgs does not answer (nobody accepts)" in refused) is strict
    assert bool(node.start(ID[0])) is strict
    node.tell(ev.QuotesTold("tdx", answers=True))
    assert node.start(ID[0]) == ""
    assert node.settle().healthy() == 16


def test_without_quotes_an_init_containers_id_goes_on_to_the_pods_next_container_and_to_nobody_else() -> None:
    """Kubelet would fail the pod for good; at the next start quotes are waited for."""
    node = Node(with_row(replace(ROW, attestation=Attestation.ENFORCE, attestation_socket="/run/qgs"))).begin()
    node.tell(ev.QuotesTold("tdx", answers=True))
    node.settle()
    node.tell(launcher("a", init=1))
    assert node.allocate(ID[0]) == ""
    node.held["a"] = (ID[0],)
    node.tell(ev.QuotesTold("tdx", answers=False, why="nobody accepts"))
    assert node.allocate(ID[0]) == ""
    assert "does not answer (nobody accepts)" in node.allocate(ID[0], ID[1])
    assert "does not answer (nobody accepts)" in node.start(ID[0])
    node.tell(ev.SandboxStarted(sandbox("a")))
    assert "does not answer (nobody accepts)" in node.allocate(ID[0])


def test_what_the_service_said_before_attestation_was_switched_off_is_not_gone_by_after() -> None:
    asked = replace(ROW, attestation=Attestation.ENFORCE, attestation_socket="/run/qgs")
    node = Node(with_row(asked)).begin()
    node.tell(ev.QuotesTold("tdx", answers=True))
    assert node.settle().admit("a", ID[0]) == ""
    node.tell(SettingsChanged(offering(replace(asked, reserve=1))))
    assert node.start(ID[0]) == "", "another setting leaves what it said"
    node.tell(SettingsChanged(offering(replace(asked, attestation=Attestation.OFF))))
    node.settle()
    node.tell(SettingsChanged(offering(asked)))
    assert node.healthy() == 1
    assert "it has not answered yet" in node.start(ID[0])
    node.tell(ev.QuotesTold("tdx", answers=True))
    assert node.start(ID[0]) == ""


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
    assert node.state.keys.offers["tdx"].unseen_ns == {}


def test_no_start_ends_while_a_view_is_lost() -> None:
    node = waiting(api=False)
    node.of_kubelet = ()
    node.view()
    node.of_kubelet = None
    node.tell(ev.PodsOfKubelet(node.state.seq, fault="hangs"))
    node.views(30)
    assert ON_ITS_WAY in node.start(ID[1])


def test_another_container_of_the_pod_may_stop() -> None:
    node = two_and_somebody_foreign()
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
    assert node.state.keys.offers["tdx"].passed == {PodUid("b"): 1}
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
    assert (PodUid("a") in node.state.keys.offers["tdx"].passed) is stays
