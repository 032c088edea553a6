"""What kubelet is offered, granted and let start: the rules one by one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.ledger import device_ids
from nodeward.engine.ledger.device_ids import GROW_NS, SETTLE_NS
from nodeward.engine.state.ledger import Grant, Offer
from nodeward.model.workload import PodUid

A, B = PodUid("a"), PodUid("b")
NAMES = [device_ids.id_name("tdx", number) for number in range(16)]


def offer(granted: int = 0, published: int = 0, size: int = 16, held: device_ids.Held | None = None) -> Offer:
    grants = {name: Grant(1, 1) for name in NAMES[:granted]}
    return Offer(size, grants, published, held=held or {})


def test_a_view_that_says_what_the_one_before_said_leaves_the_tables_as_they_are() -> None:
    """So what was found by a walk over them is kept: a view comes every two seconds."""
    view = {A: (NAMES[0],), B: (NAMES[1],)}
    now = offer(granted=2)
    for second in range(2, 12, 2):
        now = device_ids.viewed(now, dict(view), [B], {}, second * 1_000_000_000, 2)
    after = device_ids.viewed(now, dict(view), [B], {}, 12_000_000_000, 2)
    assert (after.grants is now.grants, after.held is now.held, after.over is now.over) == (True, True, True)
    assert after.passed is now.passed
    assert device_ids.viewed(after, {A: (NAMES[0],)}, [], {}, 14_000_000_000, 2).grants is not now.grants


def test_what_is_published_shrinks_at_once_and_grows_after_samples_that_agree() -> None:
    now = device_ids.publish(offer(published=3), 16, 1, 10)
    assert now.published == 1
    now = device_ids.publish(now, 16, 8, 20)
    now = device_ids.publish(now, 16, 5, 30)
    assert now.published == 1
    assert device_ids.publish(now, 16, 9, 20 + GROW_NS).published == 5
    assert device_ids.publish(now, 16, 0, 20 + GROW_NS).published == 0


@pytest.mark.parametrize("name", [NAMES[9], "tdx1"], ids=["the node has fewer keys", "a rival's"])
def test_an_id_that_is_none_of_so_many_is_listed_and_healthy_until_its_pod_has_ended(name: str) -> None:
    given = replace(offer(published=1), grants={name: Grant(1, 1)}, size=3)
    ours = ((NAMES[0], True), (NAMES[1], False), (NAMES[2], False))
    assert device_ids.devices(given, "tdx") == ((name, True), *ours)
    assert device_ids.devices(replace(given, grants={name: Grant(1, 1, times=0)}), "tdx") == ours


@given(
    st.integers(0, 5),
    st.integers(0, 6),
    st.dictionaries(st.integers(0, 6), st.integers(0, 2)),
)
def test_as_many_of_those_that_nobody_was_promised_are_healthy_as_are_published(
    size: int, published: int, times: dict[int, int]
) -> None:
    grants = {NAMES[number]: Grant(1, 1, amount) for number, amount in times.items()}
    listed = dict(device_ids.devices(Offer(size, grants, published), "tdx"))
    beyond = [number for number, amount in times.items() if number >= size and amount]
    assert list(listed) == [NAMES[number] for number in (*beyond, *range(size))]
    rest = [healthy for name, healthy in listed.items() if name not in grants or not grants[name].times]
    assert all(listed[NAMES[number]] for number, amount in times.items() if amount)
    assert rest == [place < published for place in range(len(rest))]


def promised(given: Offer, started: dict[PodUid, int] | None = None, *, sure: bool = True) -> int:
    """All that is promised, to pods and to nobody yet."""
    claims, nobodys = device_ids.claims(given.grants, given.held, {}, started or {}, {}, {}, sure=sure)
    return nobodys + sum(claim.entitled for claim in claims.values())


def test_no_more_is_granted_than_is_free_now_and_was_published() -> None:
    given = offer(published=2)
    assert device_ids.allocate(given, NAMES[:2], (), 1, 5, 5) is None
    assert device_ids.allocate(given, NAMES[:3], (), 9, 5, 5) is None
    granted = device_ids.allocate(given, NAMES[:2], (), 9, 5, 5)
    assert granted is not None
    assert (list(granted.grants), granted.published) == (NAMES[:2], 0)


def test_an_id_that_kubelet_gives_to_a_second_pod_needs_a_key_of_its_own() -> None:
    given = offer(granted=1, published=0, held={A: (NAMES[0],)})
    assert device_ids.allocate(given, NAMES[:1], (), 0, 5, 5) is None
    twice = device_ids.allocate(replace(given, published=1), NAMES[:1], (), 1, 5, 5)
    assert twice is not None
    assert promised(twice) == 2
    both = device_ids.viewed(twice, {A: (NAMES[0],), B: (NAMES[0],)}, (), {}, 9, 9)
    assert promised(both) == 2


def test_an_init_containers_id_is_given_to_the_pods_next_container_for_nothing() -> None:
    given = offer(granted=1, held={A: (NAMES[0],)})
    again = device_ids.allocate(given, NAMES[:1], NAMES[:1], 0, 5, 5)
    assert again is not None
    assert again.grants[NAMES[0]].times == 1


def test_a_grant_that_could_not_be_put_on_record_is_taken_back() -> None:
    before = offer(granted=1, published=2)
    after = device_ids.allocate(before, NAMES[:2], (), 2, 5, 5)
    assert after is not None
    back = device_ids.taken_back(after, NAMES[:2])
    assert {name: one.times for name, one in back.grants.items()} == {NAMES[0]: 1}


def test_an_id_is_free_again_after_two_late_views_without_an_owner_and_no_sooner() -> None:
    given = replace(offer(), grants={NAMES[0]: Grant(100, 7, had=(A,), awake_ns=SETTLE_NS - 10)}, viewed_ns=1000)
    late = 1010
    soon = device_ids.viewed(given, {}, (), {}, late - 1, 8)
    old = device_ids.viewed(given, {}, (), {}, late, 6)
    assert soon.grants[NAMES[0]].absent == old.grants[NAMES[0]].absent == 0
    assert device_ids.viewed(given, {}, (), {}, late, 8, frozen=True).grants[NAMES[0]].absent == 0
    new = replace(offer(), grants={NAMES[0]: Grant(100, 7)}, viewed_ns=50)
    assert device_ids.viewed(new, {}, (), {}, 130, 8).grants[NAMES[0]].awake_ns == 30

    once = device_ids.viewed(given, {}, (), {}, late, 8)
    assert once.grants[NAMES[0]].absent == 1
    assert device_ids.viewed(once, {}, (), {A: 1}, late, 9).grants
    assert not device_ids.viewed(once, {}, (), {}, late, 9).grants
    again = device_ids.viewed(once, {B: (NAMES[0],)}, (), {}, late, 9)
    assert (again.grants[NAMES[0]].absent, again.grants[NAMES[0]].had) == (0, (B,))


def test_what_only_kubelet_remembers_is_granted_after_a_loss_of_the_journal() -> None:
    found = device_ids.viewed(offer(), {A: (NAMES[3],), B: (NAMES[3],)}, (), {}, 5, 5)
    assert found.grants[NAMES[3]].times == 2


def test_before_the_first_view_started_pods_and_grants_may_be_different_ones() -> None:
    given = offer(granted=1)
    assert promised(given, {A: 1}) == 1
    assert promised(given, {A: 1}, sure=False) == 2


def test_a_start_waits_while_the_kernel_has_no_key_beside_those_on_their_way() -> None:
    given = offer(granted=2, held={A: (NAMES[0],), B: (NAMES[1],)})
    first = device_ids.start(given, A, 1, 0, 16, 15, 0)
    assert first is not None
    assert device_ids.pending(first, {}) == 1
    assert device_ids.start(first, B, 1, 0, 16, 15, device_ids.pending(first, {}, B)) is None
    assert device_ids.start(first, A, 1, 0, 16, 15, device_ids.pending(first, {}, A)) is not None
    assert device_ids.start(given, B, 1, 1, 16, 16, 0) is given
    assert device_ids.settled(first, {A: 1}).passed == {}
    assert device_ids.settled(first, {A: 0}) is first
    assert device_ids.viewed(first, {B: (NAMES[1],)}, (), {}, 5, 5).passed == {}
