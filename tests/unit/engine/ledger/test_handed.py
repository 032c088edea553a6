"""What kubelet has handed out, beside what pods asked for and what the kernel charged."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.cli.keys import lines
from nodeward.engine.ledger import kubelet_view as handed_out
from nodeward.engine.ledger.kubelet_view import specs
from nodeward.engine.pods.budget import pod_budget
from nodeward.model import events as ev
from nodeward.model.view import KeyHolder
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid, Role
from tests.unit.engine.build import SECOND, sandbox
from tests.unit.engine.ledger.test_book import KATA, TDX, handed, pod, row, sample, told


def test_each_holder_has_its_ids_and_the_resource_its_registered_ones() -> None:
    found = row(told(pod("a"), pod("b"), sample(1, a=1), handed(("tdx0", "tdx1", "tdx10"), a=("tdx10",))))
    assert found.holders == (
        KeyHolder("shop", "pod-a", "a", 1, 1, ("tdx10",)),
        KeyHolder("shop", "pod-b", "b", 1, None),
    )
    assert (found.registered, found.findings) == ({TDX: ("tdx0", "tdx1", "tdx10")}, ())
    said = list(lines(found))
    assert "  devices.kubevirt.io/tdx: 3 healthy ids registered with kubelet: tdx0 to tdx10" in said
    assert "  shop/pod-a: promised 1, holds 1, id tdx10" in said
    assert "  shop/pod-b: promised 1, holds nothing that is known" in said


def test_an_id_that_two_pods_have_is_counted_twice_and_is_a_finding() -> None:
    found = row(told(pod("a"), pod("b"), pod("c"), sample(0), handed(a=("tdx0",), b=("tdx0",), c=("tdx1",))))
    assert (found.entitled, found.free) == (3, 12)
    assert found.findings == (
        "kubelet gave tdx0 of devices.kubevirt.io/tdx to shop/pod-a and shop/pod-b: each may take a key, so each is "
        "counted; delete all but one.",
    )
    assert f"  finding: {found.findings[0]}" in list(lines(found))


@pytest.mark.parametrize(
    ("asked", "ids", "promised"),
    [
        pytest.param(2, ("tdx0",), 2, id="spec-asks-for-more"),
        pytest.param(1, ("tdx0", "tdx1"), 2, id="kubelet-gave-more"),
    ],
)
def test_a_pod_is_promised_the_larger_of_its_spec_and_its_ids(asked: int, ids: tuple[str, ...], promised: int) -> None:
    assert row(told(pod("a", asked), sample(0), handed(a=ids))).entitled == promised


def test_a_pod_that_kubelet_has_admitted_counts_before_anybody_else_tells_of_it() -> None:
    tell = told(ev.ApiBack(), sample(0), handed(new=("tdx3",)))
    assert row(tell).holders == (KeyHolder("", "", "new", 1, None, ("tdx3",)),)
    assert row(tell).free == 14
    assert "  pod new, which is not known: promised 1, holds nothing that is known, id tdx3" in list(lines(row(tell)))


def test_a_pod_that_only_kubelets_pods_api_tells_of_has_its_name_from_there() -> None:
    tell = told(ev.PodsOfKubelet(0, (pod("new").pod,)), sample(0), handed(new=("tdx3",)))
    assert row(tell).holders == (KeyHolder("shop", "pod-new", "new", 1, None, ("tdx3",)),)
    assert "  shop/pod-new: promised 1, holds nothing that is known, id tdx3" in list(lines(row(tell)))


@pytest.mark.parametrize(
    ("by_api", "by_kubelet", "promised"),
    [
        pytest.param(pod("a", 2), None, 2, id="only the API server tells of it"),
        pytest.param(None, pod("a", 2), 2, id="only kubelet tells of it"),
        pytest.param(pod("a"), pod("a", terminal=True), 0, id="kubelet says that it has ended"),
        pytest.param(pod("a", terminal=True), pod("a"), 0, id="the API server says that it has ended"),
    ],
)
@pytest.mark.parametrize("last", ["the API server", "kubelet"])
def test_a_pod_is_promised_the_larger_of_both_words_and_has_ended_by_either(
    by_api: ev.PodSeen | None, by_kubelet: ev.PodSeen | None, promised: int, last: str
) -> None:
    """Given a pod of which both views tell, or one of them, in whichever order."""
    words: list[ev.Event] = [by_api] if by_api is not None else []
    words += [ev.PodsOfKubelet(0, () if by_kubelet is None else (by_kubelet.pod,))]
    told_in = reversed(words) if last == "the API server" else words

    assert row(told(*told_in, sample(0))).entitled == promised


AMOUNTS = st.lists(st.tuples(st.sampled_from(Role), st.integers(0, 3)), max_size=4)


@given(AMOUNTS, AMOUNTS, st.integers(0, 3), st.integers(0, 3))
def test_however_two_words_of_a_pod_differ_it_is_promised_the_larger(
    by_api: list[tuple[Role, int]], by_kubelet: list[tuple[Role, int]], api_over: int, kubelet_over: int
) -> None:
    def spec(amounts: list[tuple[Role, int]], over: int) -> PodSpec:
        every = (ContainerSpec(f"c{number}", role, {TDX: one}) for number, (role, one) in enumerate(amounts))
        return PodSpec(PodUid("a"), "shop", "pod-a", tuple(every), {KATA: over})

    one, other = spec(by_api, api_over), spec(by_kubelet, kubelet_over)
    found = row(told(ev.PodSeen(one), ev.PodsOfKubelet(0, (other,)), sample(0)))
    assert found.entitled == max(pod_budget(one, TDX) + api_over, pod_budget(other, TDX) + kubelet_over)


def test_kubelets_word_comes_first_while_it_tells_of_the_pod_and_the_api_servers_fills_in() -> None:
    """Given a pod whose containers the two views name otherwise, and one that kubelet has not heard of."""
    renamed = replace(pod("a").pod, containers=(ContainerSpec("new", declared={TDX: 1}),))
    tell = told(ev.PodSeen(renamed), pod("b"), sample(0), ev.PodsOfKubelet(0, (pod("a").pod,)))
    assert {uid: spec.containers[0].name for uid, spec in specs(tell.state).items()} == {"a": "compute", "b": "compute"}
    assert handed_out.asking(tell.state, PodUid("a"), TDX) == ["compute", "new"], "either may take the key"
    tell(ev.PodsOfKubelet(0, (renamed,)))
    assert handed_out.asking(tell.state, PodUid("a"), TDX) == ["new"]
    tell(ev.PodsOfKubelet(0, fault="no socket", absent=True))
    assert handed_out.asking(tell.state, PodUid("a"), TDX) == ["new"], "what it told stands"


def test_a_pod_that_is_gone_is_shown_as_that_and_not_counted() -> None:
    tell = told(ev.ApiBack(), pod("a"), sample(0), handed(a=("tdx3",)))
    tell(ev.PodGone(PodUid("a")))
    for _ in range(3):
        tell.at_ns += 2 * SECOND
        tell(sample(0))
    assert (row(tell).entitled, row(tell).free) == (0, 15)
    assert row(tell).holders == (KeyHolder("", "", "a", 0, None, ("tdx3",), gone=True),)
    assert "  pod a, which has ended: kubelet has not taken back id tdx3 yet" in list(lines(row(tell)))


def test_a_pod_that_nobody_can_tell_of_counts_for_as_long_as_the_api_server_is_silent() -> None:
    tell = told(sample(0), handed(a=("tdx3",)))
    tell.at_ns += 700 * SECOND
    tell(sample(0))
    assert row(tell).entitled == 1


def test_a_pod_that_has_ended_and_still_holds_a_key_is_no_double_of_its_ids_next_owner() -> None:
    tell = told(pod("a", terminal=True), pod("b"), sample(1, a=1), handed(a=("tdx0",), b=("tdx0",)))
    assert [(one.pod, one.entitled, one.charged, one.gone) for one in row(tell).holders] == [
        ("pod-a", 0, 1, False),
        ("pod-b", 1, None, False),
    ]
    assert row(tell).findings == ()


def test_a_checkpoint_that_cannot_be_read_leaves_what_was_known_and_says_so() -> None:
    tell = told(ev.SandboxStarted(sandbox("a")), sample(0), handed(a=("tdx0",)))
    tell(handed(fault="torn"))
    assert row(tell).entitled == 1
    assert row(tell).findings == ("what kubelet has handed out cannot be read (torn); what was read before stands.",)
    tell(handed())
    assert (row(tell).entitled, row(tell).findings) == (0, ())


def test_what_kubelet_has_handed_out_is_shown_where_the_kernel_counts_nothing() -> None:
    tell = told(ev.SandboxStarted(sandbox("a")), pod("a"), handed(("tdx0", "tdx1"), a=("tdx0",)))
    for read in (ev.KeysRead(0), ev.KeysRead(0, {"tdx": 4})):
        tell(read)
        assert row(tell).free is None
        assert "  shop/pod-a: promised 1, holds nothing that is known, id tdx0" in list(lines(row(tell)))
