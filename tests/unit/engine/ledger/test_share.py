"""How keys are shared with those who go by NFD's number: the mode table row by row, and that nothing is sold twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.ledger.rule import Claim, Count, count
from nodeward.engine.ledger.share import (
    Shares,
    asked_by_nfd,
    capacity_of,
    may_follow,
    nfd_is_here,
    outside_of_pods,
    shares,
)
from nodeward.engine.ledger.sums import can_share
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.decision import Special
from nodeward.model.settings import CapacitySource, EngineSettings, KeySettings, LedgerSettings, Mode, Share
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from tests.unit.engine.build import Told, sandbox

OURS, THEIRS = "devices.kubevirt.io/tdx", "tdx.intel.com/keys"
OWN, OVERRIDE, SPLIT, SHARED, AUTO = Share.OWN, Share.OVERRIDE, Share.SPLIT, Share.SHARED, Share.AUTO


def row(mode: Share, split: int = 0, reserve: int = 0) -> KeySettings:
    return KeySettings((OURS, THEIRS), publish=OURS, share=mode, split=split, reserve=reserve)


def node(ours: int = 0, kata: int = 0, foreign: int = 0, reserve: int = 0, capacity: int = 16) -> Count:
    """The sums of a node: `ours` and `kata` are promised and charged, `foreign` machines are outside of Kubernetes."""
    used = ours + kata + foreign
    return count(capacity, reserve, (used, used), [Claim(1, (1, 1))] * (ours + kata))


@pytest.mark.parametrize(
    ("key", "resources", "follows"),
    [("tdx", (OURS, THEIRS), True), ("tdx", (OURS,), False), ("sgx_epc", (OURS, THEIRS), False)],
    ids=["shipped", "a-row-without-nfds-resource", "a-key-that-nfd-does-not-count"],
)
def test_auto_sets_only_a_number_of_which_the_settings_say_who_asks_by_it(
    key: str, resources: tuple[str, ...], follows: bool
) -> None:
    assert may_follow(key, KeySettings(resources, publish=OURS)) is follows


@pytest.mark.parametrize(
    ("mode", "nfd", "split", "sums", "kata", "wanted"),
    [
        pytest.param(OWN, True, 0, node(4, 2, 1), 2, Shares(OWN, 9, None), id="own-writes-nothing"),
        pytest.param(OVERRIDE, True, 0, node(), 0, Shares(OVERRIDE, 16, 16), id="override-of-an-empty-node-is-all"),
        pytest.param(OVERRIDE, True, 0, node(4, 2, 1), 2, Shares(OVERRIDE, 9, 11), id="override-less-what-others-hold"),
        pytest.param(OVERRIDE, True, 0, node(10, 6), 6, Shares(OVERRIDE, 0, 6), id="override-of-a-node-sold-out"),
        pytest.param(OVERRIDE, True, 0, node(10, 6, 3), 6, Shares(OVERRIDE, 0, 6), id="never-below-what-is-asked"),
        pytest.param(OVERRIDE, True, 0, node(2, 1, 0, 3), 1, Shares(OVERRIDE, 10, 11), id="override-keeps-the-reserve"),
        pytest.param(OVERRIDE, False, 0, node(4), 0, Shares(OVERRIDE, 12, 12), id="override-without-nfd-stands-ready"),
        pytest.param(SPLIT, True, 10, node(), 0, Shares(SPLIT, 10, 6), id="split-is-the-rest"),
        pytest.param(SPLIT, True, 10, node(4, 2), 2, Shares(SPLIT, 6, 6), id="split-stands-still-in-use"),
        pytest.param(SPLIT, True, 10, node(12), 0, Shares(SPLIT, 0, 4), id="split-lowered-below-what-we-sold"),
        pytest.param(SPLIT, True, 10, node(9, 0, 2), 0, Shares(SPLIT, 1, 4), id="machines-outside-are-of-their-part"),
        pytest.param(SPLIT, True, 10, node(0, 6, 9), 6, Shares(SPLIT, 1, 6), id="split-never-below-what-is-asked"),
        pytest.param(SPLIT, True, 20, node(), 0, Shares(SPLIT, 16, 0), id="split-beyond-all-leaves-them-none"),
        pytest.param(SHARED, True, 0, node(0, 5, 1), 5, Shares(SHARED, None, 15), id="shared-publishes-nothing"),
        pytest.param(AUTO, True, 0, node(4, 2, 1), 2, Shares(OVERRIDE, 9, 11), id="auto-with-nfd-is-override"),
        pytest.param(AUTO, False, 0, node(4, 2, 1), 2, Shares(OWN, 9, None), id="auto-without-nfd-is-own"),
    ],
)
def test_each_row_of_the_mode_table(mode: Share, nfd: bool, split: int, sums: Count, kata: int, wanted: Shares) -> None:
    assert shares(row(mode, split), sums, sums.free, kata, nfd=nfd) == wanted


@pytest.mark.parametrize(
    ("mode", "outside", "total"),
    [(OVERRIDE, 0, 10), (OVERRIDE, 3, 13), (OVERRIDE, 9, 14), (SPLIT, 0, 3), (SPLIT, 3, 5), (SPLIT, 9, 6)],
)
def test_keys_that_kata_holds_outside_of_its_pods_count_once_for_it(mode: Share, outside: int, total: int) -> None:
    sums = count(16, 0, (6, 6), [Claim(1, (1, 1))] * 2 + [Claim(1, (0, 0))] * 3)
    found = shares(row(mode, 10), sums, sums.free, 3, nfd=True, outside=outside)
    assert (found.sellable, found.total) == (7, total)


AMOUNT = st.integers(0, 12)


@given(
    mode=st.sampled_from(list(Share)),
    nfd=st.booleans(),
    split=AMOUNT,
    reserve=st.integers(0, 3),
    foreign=AMOUNT,
    pods=st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 2)), max_size=8),
    withheld=AMOUNT,
    outside=AMOUNT,
)
def test_nothing_is_sold_that_is_not_there(
    mode: Share,
    nfd: bool,
    split: int,
    reserve: int,
    foreign: int,
    pods: list[tuple[bool, int, int]],
    withheld: int,
    outside: int,
) -> None:
    """Whoever sells, what is left to either side is no more than there is beside all claims; in the mode split, what is
    left to both sides together is no more."""
    claims = [Claim(entitled, (charged,)) for _, entitled, charged in pods]
    sums = count(12, reserve, (foreign + sum(charged for _, _, charged in pods),), claims)
    asked = sum(entitled for theirs, entitled, _ in pods if theirs)
    free = max(0, sums.free - withheld)

    found = shares(row(mode, split, reserve), sums, free, asked, nfd=nfd, outside=outside)

    ours, theirs = found.sellable or 0, 0 if found.total is None else found.total - asked
    room = 12 - reserve - sums.claimed
    left = max(0, room - max(0, sums.foreign - outside))
    assert 0 <= ours <= max(0, room - sums.foreign)
    assert 0 <= theirs <= left
    if found.mode is Share.SPLIT:
        assert ours + theirs <= left
    assert found.mode is not Share.AUTO
    assert (found.total is None) == (found.mode is Share.OWN)


# ---- from the state -------------------------------------------------------------------------------------------------


def told(key: KeySettings, *events: ev.Event) -> State:
    tell = Told(State(settings=EngineSettings(ledger=LedgerSettings(Mode.OBSERVE, {"tdx": key}))))
    for event in events:
        tell(event)
    return tell.state


def pod(uid: str, name: str, amount: int, *, terminal: bool = False) -> ev.PodSeen:
    """A pod whose overhead asks by this name, as `edges.kube.mapping` reads it."""
    asked = {name: amount}
    return ev.PodSeen(PodSpec(PodUid(uid), "shop", uid, (ContainerSpec("c"),), overhead=asked, terminal=terminal))


def test_only_what_is_asked_by_the_other_name_is_asked_of_nfd() -> None:
    pods = [pod("vm", OURS, 2), pod("kata", THEIRS, 1), pod("kata-2", THEIRS, 3), pod("over", THEIRS, 5, terminal=True)]
    assert asked_by_nfd(told(row(OVERRIDE), *pods), "tdx") == 4


@pytest.mark.parametrize(
    ("publish", "asked"), [pytest.param("", 3, id="only-nfds-name"), pytest.param(THEIRS, 0, id="only-our-name")]
)
def test_a_kind_with_one_name_is_either_sides(publish: str, asked: int) -> None:
    one = PodSpec(PodUid("a"), "shop", "a", (ContainerSpec("c", declared={THEIRS: 3}),))
    key = KeySettings((THEIRS,), publish=publish)
    assert asked_by_nfd(told(key, ev.PodSeen(one)), "tdx") == asked


HERE = ev.NfdSeen(served=True, worker=True, discovered={"tdx": 9})


@pytest.mark.parametrize(
    ("source", "fixed", "capacity"),
    [
        pytest.param(CapacitySource.MISC, 0, 16, id="the-kernel"),
        pytest.param(CapacitySource.MISC, 7, 7, id="a-number-wins-over-the-kernel"),
        pytest.param(CapacitySource.FIXED, 5, 5, id="fixed"),
        pytest.param(CapacitySource.NFD, 5, 9, id="nfd"),
        pytest.param(CapacitySource.MISC, 20, 16, id="no-more-than-the-kernel-has"),
        pytest.param(CapacitySource.FIXED, 20, 16, id="fixed-and-no-more-than-the-kernel-has"),
    ],
)
def test_capacity_is_of_the_source_that_was_chosen(source: CapacitySource, fixed: int, capacity: int) -> None:
    key = KeySettings((OURS,), capacity_from=source, capacity=fixed)
    assert capacity_of(told(key, ev.KeysRead(0, {"tdx": 16}), HERE), "tdx") == capacity


def test_no_more_is_there_than_the_kernel_has_whatever_nfd_says() -> None:
    key = KeySettings((OURS,), capacity_from=CapacitySource.NFD)
    assert capacity_of(told(key, ev.KeysRead(0, {"tdx": 4}), HERE), "tdx") == 4
    assert capacity_of(told(key, ev.KeysRead(0, {"sev_es": 4}), HERE), "tdx") == 9, "the kernel does not show it"


def test_before_anybody_has_told_there_are_no_keys() -> None:
    for source in CapacitySource:
        assert capacity_of(told(KeySettings((OURS,), capacity_from=source)), "tdx") == 0


def test_what_nfd_had_stands_while_it_cannot_be_asked() -> None:
    assert not nfd_is_here(told(row(AUTO)))
    away = told(row(AUTO), HERE, ev.NfdSeen(fault="the API server does not answer"))
    assert nfd_is_here(away)
    assert away.ledger.nfd_fault
    assert not nfd_is_here(told(row(AUTO), HERE, ev.NfdSeen(served=True)))
    assert not nfd_is_here(told(row(AUTO), HERE, ev.NfdSeen()))


SAMPLE = ev.KeysRead(0, {"tdx": 16}, {"tdx": (0, 0)})


@pytest.mark.parametrize(
    ("key", "events", "can"),
    [
        pytest.param(row(OVERRIDE), (SAMPLE, ev.ApiBack()), True, id="counted-and-the-pods-known"),
        pytest.param(row(OVERRIDE), (SAMPLE,), False, id="pods-not-known"),
        pytest.param(row(OVERRIDE), (ev.ApiBack(),), False, id="not-counted"),
        pytest.param(row(OVERRIDE), (ev.KeysRead(0, {"tdx": 16}), ev.ApiBack()), False, id="the-root-tells-no-use"),
        pytest.param(row(OVERRIDE), (ev.KeysRead(0), ev.ApiBack()), True, id="there-are-none"),
        pytest.param(row(OWN), (ev.ApiBack(),), True, id="nothing-to-share"),
    ],
)
def test_numbers_wait_for_the_pods_and_the_kernel(key: KeySettings, events: tuple[ev.Event, ...], can: bool) -> None:
    assert can_share(told(key, *events)) is can


def elsewhere(path: str, amount: int, *, below: bool = False) -> ev.HeldElsewhere:
    return ev.HeldElsewhere(path, "tdx", amount, below)


@pytest.mark.parametrize(
    ("held", "inside", "outside"),
    [
        pytest.param(elsewhere("/kata_overhead/s-kata", 1), 0, 1, id="its-own"),
        pytest.param(elsewhere("/kata_overhead/s-kata", 5), 0, 2, id="no-more-than-promised"),
        pytest.param(elsewhere("/kata_overhead/s-kata", 2), 1, 1, id="less-what-the-pod-holds"),
        pytest.param(elsewhere("/kata_overhead/s-other", 1), 0, 0, id="another-sandbox"),
        pytest.param(elsewhere("/kata_overhead/s-kata", 1, below=True), 0, 0, id="an-orphan-below"),
        pytest.param(elsewhere("/machine.slice/vm", 1), 0, 0, id="a-machine"),
    ],
)
def test_what_kata_holds_outside_is_told_by_its_sandbox(held: ev.HeldElsewhere, inside: int, outside: int) -> None:
    sample = ev.KeysRead(
        0, {"tdx": 16}, {"tdx": (9, 9)}, {PodUid("kata"): {"tdx": (inside, inside)}}, elsewhere=(held,)
    )
    state = told(row(OVERRIDE), pod("kata", THEIRS, 2), ev.SandboxStarted(sandbox("kata")), sample)
    assert outside_of_pods(state, "tdx") == outside


def test_the_number_follows_the_samples_and_makes_kubelet_wait_for_nothing() -> None:
    tell = Told(State(settings=EngineSettings(ledger=LedgerSettings(Mode.ENFORCE, {"tdx": row(OVERRIDE)}))))
    tell(ev.ApiBack())
    assert [(str(goal.target), goal.value) for goal in tell(SAMPLE).goals] == [("nfd:tdx", "16")]
    asks_ours = PodSpec(PodUid("vm"), "shop", "vm", (ContainerSpec("c", declared={OURS: 1}),))
    assert tell(ev.PodSeen(asks_ours)).goals == ()
    assert tell(ev.Allocating(OURS, ("tdx-key-0000",), ask_id=1)).goals == ()
    assert [(str(goal.target), goal.value) for goal in tell(SAMPLE).goals] == [("nfd:tdx", "15")]
    assert (*tell(SAMPLE).goals, *tell(ev.KeysRead(0)).goals) == (), "nor while nothing can be counted"
    off = EngineSettings(ledger=LedgerSettings(Mode.OBSERVE, {"tdx": row(OVERRIDE)}))
    after = (*tell(ev.SettingsChanged(off)).goals, *tell(SAMPLE).goals)
    assert [(str(goal.target), goal.value) for goal in after] == [("nfd:tdx", Special.ABSENT)]


def test_a_number_from_before_the_pods_were_listed_is_replaced_in_the_moment_in_which_they_are() -> None:
    tell = Told(State(settings=EngineSettings(ledger=LedgerSettings(Mode.ENFORCE, {"tdx": row(OVERRIDE)}))))
    early = (*tell(ev.SandboxStarted(sandbox("vm"))).goals, *tell(SAMPLE).goals, *tell(ev.ApiBack()).goals)
    assert [goal.value for goal in early] == ["16"]
    asks_ours = PodSpec(PodUid("vm"), "shop", "vm", (ContainerSpec("c", declared={OURS: 1}),))
    assert [goal.value for goal in tell(ev.PodsListed((asks_ours,), 0)).goals] == ["15"]
