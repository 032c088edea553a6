"""What kubelet is offered, granted and let start: the rules one by one."""

from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.ledger import device_ids
from nodeward.engine.ledger.device_ids import GROW_NS
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
    assert device_ids.publish(now, 16, 9, 20 + GROW_NS - 1).published == 1
    assert device_ids.publish(now, 16, 9, 20 + GROW_NS).published == 5
    assert device_ids.publish(now, 16, 0, 20 + GROW_NS).published == 0


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
