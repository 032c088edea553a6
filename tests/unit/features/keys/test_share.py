"""How keys are shared with those who go by NFD's number, that nothing is sold twice, and what is shown of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core import events as ev
from nodeward.core.decision import Special, Target
from nodeward.core.devices import PluginStanding
from nodeward.core.modes import Mode
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.keys.rows import KeyFence, KeyRow, KeySharing
from nodeward.features.keys.rule import Count, PodKeys, count
from nodeward.features.keys.settings import Attestation, CapacitySource, KeyKind, KeysSettings, Publisher, Share
from nodeward.features.keys.share import (
    Shares,
    asked_by_nfd,
    capacity_of,
    may_follow,
    nfd_is_here,
    outside_of_pods,
    shares,
)
from nodeward.features.keys.sharing_view import TDX_LEFT_OUT, removals
from nodeward.features.keys.sums import can_share
from nodeward.features.keys.view import key_rows
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from tests.unit.features.build import SECOND, Told, sandbox, there

OURS, THEIRS = "devices.kubevirt.io/tdx", "tdx.intel.com/keys"
OWN, OVERRIDE, SPLIT, SHARED, AUTO = Share.OWN, Share.OVERRIDE, Share.SPLIT, Share.SHARED, Share.AUTO


def row(mode: Share, split: int = 0, reserve: int = 0) -> KeyKind:
    return KeyKind((OURS, THEIRS), publish=OURS, share=mode, split=split, reserve=reserve)


def node(ours: int = 0, kata: int = 0, foreign: int = 0, reserve: int = 0, capacity: int = 16) -> Count:
    """The sums of a node: `ours` and `kata` are promised and charged, `foreign` machines are outside of Kubernetes."""
    used = ours + kata + foreign
    return count(capacity, reserve, (used, used), [PodKeys(1, (1, 1))] * (ours + kata))


@pytest.mark.parametrize(
    ("key", "resources", "follows"),
    [("tdx", (OURS, THEIRS), True), ("tdx", (OURS,), False), ("sgx_epc", (OURS, THEIRS), False)],
    ids=["shipped", "a-row-without-nfds-resource", "a-key-that-nfd-does-not-count"],
)
def test_auto_sets_only_a_number_of_which_the_settings_say_who_asks_by_it(
    key: str, resources: tuple[str, ...], follows: bool
) -> None:
    assert may_follow(key, KeyKind(resources, publish=OURS)) is follows


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
    sums = count(16, 0, (6, 6), [PodKeys(1, (1, 1))] * 2 + [PodKeys(1, (0, 0))] * 3)
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
    claims = [PodKeys(entitled, (charged,)) for _, entitled, charged in pods]
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


def told(key: KeyKind, *events: ev.Event) -> State:
    tell = Told(State(settings=EngineSettings(keys=KeysSettings(Mode.OBSERVE, {"tdx": key}))))
    for event in events:
        tell(event)
    return tell.state


def pod(uid: str, name: str, amount: int, *, terminal: bool = False) -> ev.PodSeen:
    """A pod whose overhead asks by this name, as `neighbours.kubernetes.mapping` reads it."""
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
    key = KeyKind((THEIRS,), publish=publish)
    assert asked_by_nfd(told(key, ev.PodSeen(one)), "tdx") == asked


HERE = ev.NfdSeen(served=True, worker=True, discovered={"tdx": 9})


@pytest.mark.parametrize(
    ("source", "fixed", "shown", "capacity"),
    [
        pytest.param(CapacitySource.MISC, 0, {"tdx": 16}, 16, id="the-kernel"),
        pytest.param(CapacitySource.MISC, 7, {"tdx": 16}, 7, id="a-number-wins-over-the-kernel"),
        pytest.param(CapacitySource.FIXED, 5, {"tdx": 16}, 5, id="fixed"),
        pytest.param(CapacitySource.NFD, 5, {"tdx": 16}, 9, id="nfd"),
        pytest.param(CapacitySource.NFD, 0, {"sev_es": 4}, 9, id="nfd-where-the-kernel-does-not-show-it"),
        pytest.param(CapacitySource.MISC, 20, {"tdx": 16}, 16, id="no-more-than-the-kernel-has"),
        pytest.param(CapacitySource.FIXED, 20, {"tdx": 16}, 16, id="fixed-and-no-more-than-the-kernel-has"),
        pytest.param(CapacitySource.NFD, 0, {"tdx": 4}, 4, id="nfd-and-no-more-than-the-kernel-has"),
    ],
)
def test_capacity_is_of_the_source_that_was_chosen(
    source: CapacitySource, fixed: int, shown: dict[str, int], capacity: int
) -> None:
    key = KeyKind((OURS,), capacity_from=source, capacity=fixed)
    assert capacity_of(told(key, ev.KeysRead(0, shown), HERE), "tdx") == capacity
    assert capacity_of(told(KeyKind((OURS,), capacity_from=source)), "tdx") == 0, "before anybody has told"


def test_what_nfd_had_stands_while_it_cannot_be_asked() -> None:
    assert not nfd_is_here(told(row(AUTO)))
    away = told(row(AUTO), HERE, ev.NfdSeen(fault="the API server does not answer"))
    assert nfd_is_here(away)
    assert away.keys.nfd_fault
    assert not nfd_is_here(told(row(AUTO), HERE, ev.NfdSeen(served=True)))
    assert not nfd_is_here(told(row(AUTO), HERE, ev.NfdSeen()))


ASKS_OURS = ev.PodSeen(PodSpec(PodUid("vm"), "shop", "vm", (ContainerSpec("c", declared={OURS: 1}),)))
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
def test_numbers_wait_for_the_pods_and_the_kernel(key: KeyKind, events: tuple[ev.Event, ...], can: bool) -> None:
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
    read = ev.KeysRead(0, {"tdx": 16}, {"tdx": (9, 9)}, {PodUid("kata"): {"tdx": (inside, inside)}}, elsewhere=(held,))
    state = told(row(OVERRIDE), pod("kata", THEIRS, 2), ev.SandboxStarted(sandbox("kata")), read)
    assert outside_of_pods(state, "tdx") == outside


def enforcing() -> Told:
    return Told(State(settings=EngineSettings(keys=KeysSettings(Mode.ENFORCE, {"tdx": row(OVERRIDE)}))))


def test_the_number_follows_the_samples_and_makes_kubelet_wait_for_nothing() -> None:
    tell = enforcing()
    tell(ev.ApiBack())
    assert [(str(goal.target), goal.value) for goal in tell(SAMPLE).goals] == [("nfd:tdx", "16")]
    assert tell(ASKS_OURS).goals == ()
    assert tell(ev.Allocating(OURS, ("tdx-key-0000",), ask_id=1)).goals == ()
    assert [(str(goal.target), goal.value) for goal in tell(SAMPLE).goals] == [("nfd:tdx", "15")]
    assert (*tell(SAMPLE).goals, *tell(ev.KeysRead(0)).goals) == (), "nor while nothing can be counted"
    off = EngineSettings(keys=KeysSettings(Mode.OBSERVE, {"tdx": row(OVERRIDE)}))
    after = (*tell(SettingsChanged(off)).goals, *tell(SAMPLE).goals)
    assert [(str(goal.target), goal.value) for goal in after] == [("nfd:tdx", Special.ABSENT)]


def test_a_number_from_before_the_pods_were_listed_is_replaced_in_the_moment_in_which_they_are() -> None:
    tell = enforcing()
    early = (*tell(ev.SandboxStarted(sandbox("vm"))).goals, *tell(SAMPLE).goals, *tell(ev.ApiBack()).goals)
    assert [goal.value for goal in early] == ["16"]
    assert [goal.value for goal in tell(ev.PodsListed((ASKS_OURS.pod,), 0)).goals] == ["15"]


IDS, KATA_IDS = "devices.kubevirt.io/sev-esids", "sev-snp.amd.com/esids"
KIND = KeyKind((IDS, KATA_IDS), publish=IDS, publisher=Publisher.DEVICE_PLUGIN, share=Share.AUTO, reserve=1)
NFD = ev.NfdSeen(served=True, worker=True, written={"sev_es": 9}, on_node={KATA_IDS: 16, IDS: 12})


def row_of(*events: ev.Event, kind: KeyKind = KIND, key: str = "sev_es", mode: Mode = Mode.ENFORCE) -> KeyRow:
    tell = Told(State(settings=EngineSettings(keys=KeysSettings(mode, {key: kind}))))
    for event in (ev.GrantsRecalled({}), ev.KeysHeld(0), *events):
        tell.at_ns += SECOND
        tell(event)
    (row,) = key_rows(tell.state, tell.at_ns)
    return row


def sample(root: int, *elsewhere: tuple[str, int], key: str = "sev_es", **pods: int) -> ev.KeysRead:
    others = tuple(ev.HeldElsewhere(path, key, amount, below=False) for path, amount in elsewhere)
    held = {PodUid(uid): {key: (amount, amount)} for uid, amount in pods.items()}
    return ev.KeysRead(0, {key: 16}, {key: (root, root)}, held, elsewhere=others)


def sharing(row: KeyRow) -> KeySharing:
    return there(row.sharing)


def test_why_nfds_number_cannot_be_kept_is_shown_whatever_becomes_of_limits() -> None:
    number = Target("nfd", "sev_es")
    missed = ev.Missed(((number, "nodefeatures is forbidden"),))
    keys = KeysSettings(Mode.ENFORCE, {"sev_es": KIND})
    settings = [SettingsChanged(EngineSettings(LimitsSettings(mode=mode), keys=keys)) for mode in Mode]

    assert sharing(row_of(NFD, sample(3), *settings[:2], missed)).error == "nodefeatures is forbidden"
    assert sharing(row_of(NFD, sample(3), missed, *settings)).error == "nodefeatures is forbidden"
    assert sharing(row_of(NFD, sample(3), missed, ev.Reached((number,)))).error == ""


def test_the_mode_in_force_is_shown_with_both_sides_numbers() -> None:
    found = sharing(row_of(pod("kata", KATA_IDS, 2), NFD, sample(5, ("/machine.slice/vm", 3), kata=2)))
    assert (found.mode, found.chosen, found.published, found.nfd) == ("override", "auto", IDS, "working")
    assert (found.sellable, found.asked, found.total, found.written) == (10, 2, 12, 9)
    assert found.on_node == {KATA_IDS: 16}, "ours is the number that NFD's is to be, and says nothing of NFD's master"
    assert found.sentence == (
        f"share is override (chosen: auto): our plugin offers {IDS} and may sell 10 more; NFD's number is to be 12, "
        "and our object says 9, and pods here ask 2 by it"
    )


def test_without_nfd_auto_is_own_and_in_observe_nothing_is_offered_or_written() -> None:
    assert sharing(row_of(sample(0))).sentence == (
        f"share is own (chosen: auto): our plugin offers {IDS} and may sell 15 more; NFD's number is left alone, and "
        "pods here ask 0 by it"
    )
    seen = sharing(row_of(NFD, sample(0), mode=Mode.OBSERVE))
    assert (seen.published, seen.sellable, seen.total, seen.nfd) == ("", None, None, "working")
    rival = ev.PluginTold(IDS, PluginStanding.RIVAL, "kubevirt.sock")
    for more in ({"mode": Mode.OBSERVE}, {"kind": replace(KIND, publisher=Publisher.NONE)}):
        assert "We sell none" not in row_of(sample(0), rival, **more).sentence, "nor is it meant to be"
    assert sharing(row_of(ev.NfdSeen(), sample(0))).nfd == "absent"
    assert sharing(row_of(ev.NfdSeen(served=True), sample(0))).nfd == "served"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        pytest.param((), "not asked yet", id="not-yet"),
        pytest.param((ev.QuotesTold("sev_es", True),), "answers", id="well"),
        pytest.param((ev.QuotesTold("sev_es", False, "gone"),), "gone", id="away"),
    ],
)
def test_whether_quotes_are_made_is_shown_where_it_is_asked(events: tuple[ev.Event, ...], said: str) -> None:
    kind = replace(KIND, attestation=Attestation.OBSERVE, attestation_socket="/run/qgs")
    assert sharing(row_of(sample(0), *events, kind=kind)).quotes == said
    assert sharing(row_of(sample(0), *events)).quotes == ""


def test_fences_hold_each_pod_to_its_promise_and_slices_to_what_they_hold_and_tdx_has_none() -> None:
    events = (pod("kata", KATA_IDS, 2), ev.SandboxStarted(sandbox("kata")))
    others = (("/machine.slice/a", 1), ("/machine.slice/b", 2), ("/system.slice/c.service", 1), ("/kubepods/podx", 1))
    found = row_of(*events, sample(8, *others, kata=3)).fences
    assert found.rows == (
        KeyFence("/kubepods/podkata", 2, "what shop/kata was promised; it holds 1 more, which no fence takes back"),
        KeyFence("/machine.slice", 3, "what it holds now"),
        KeyFence("/system.slice", 1, "what it holds now"),
    )
    assert "every other pod and slice would have 0" in found.why
    assert "5 are set apart (5 in use, 1 in reserve); 11 could be promised" in found.why
    of_tdx = row_of(pod("kata", KATA_IDS, 2), sample(2, key="tdx", kata=2), key="tdx").fences
    assert (of_tdx.rows, of_tdx.why) == ((), TDX_LEFT_OUT)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (replace(KIND, share=Share.OWN), "; set keys.kinds.sev_es.share to auto, so that NFD's number counts what"),
        (KIND, "; end 3 of these pods."),
    ],
    ids=["own", "auto"],
)
def test_more_keys_promised_than_there_are_is_a_finding(kind: KeyKind, remedy: str) -> None:
    grant = ev.GrantsRecalled({IDS: {f"sev-es-key-{number:04d}": 1 for number in range(3)}})
    assert row_of(grant, pod("kata", KATA_IDS, 13), sample(3), kind=kind).findings == ()
    (said,) = row_of(grant, pod("kata", KATA_IDS, 16), sample(3), kind=kind).findings
    assert said.startswith("pods were promised 19 keys of sev_es, and there are 16: 16 by NFD's number and 3 otherwise")
    assert remedy in said


@pytest.mark.parametrize(
    ("event", "published", "why"),
    [
        (ev.QuotesTold("sev_es", False, "gone"), IDS, "We sell none now: the service that makes quotes at /run/qgs"),
        (ev.PluginTold(IDS, PluginStanding.RIVAL, "kubevirt.sock"), "", "is offered by somebody else"),
        (ev.PluginTold(IDS, PluginStanding.ENDED, "decommissioned"), "", "is not offered: decommissioned"),
    ],
    ids=["no quotes", "KubeVirt has the name", "decommissioned"],
)
def test_no_more_is_said_to_be_for_sale_than_kubelet_may_give_out(event: ev.Event, published: str, why: str) -> None:
    kind = replace(KIND, attestation=Attestation.ENFORCE, attestation_socket="/run/qgs")
    shown = row_of(ev.QuotesTold("sev_es", True), *[sample(0)] * 4, event, sample(0), kind=kind)
    assert why in " ".join((shown.sentence, *shown.findings))
    assert (sharing(shown).published, sharing(shown).sellable or 0, shown.published or 0) == (published, 0, 0)
    assert {one.state for one in shown.ids} == {"withheld"}


SHARING = KeySharing("override", "auto", nfd="working")


@pytest.mark.parametrize(
    ("sharing", "checkpoint", "said"),
    [
        pytest.param(KeySharing("own", "own"), True, (), id="nobody-hangs-on-anybody"),
        pytest.param(SHARING, True, ("so none ends",), id="nfd-without-users"),
        pytest.param(replace(SHARING, asked=3), True, ("3 key(s) are asked",), id="kata-runs"),
        pytest.param(replace(SHARING, asked=3), False, ("sets NFD's number to 0",), id="no-plugin-ever"),
        pytest.param(replace(SHARING, published=IDS), True, ("none ends", "2 pod(s) with ids run on"), id="our-plugin"),
        pytest.param(replace(SHARING, total=11), True, ("none ends", "is 16 again, though 5 of them"), id="our-object"),
        pytest.param(replace(SHARING, total=16), True, ("none ends",), id="our-object-changes-nothing"),
    ],
)
def test_what_a_removal_breaks_is_said_before(sharing: KeySharing, checkpoint: bool, said: tuple[str, ...]) -> None:
    found = removals(sharing, 16, 2, has_checkpoint=checkpoint)
    assert len(found) == len(said)
    assert all(part in one for part, one in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("standing", "said"),
    [
        (PluginStanding.RIVAL, "is offered by somebody else, so not by us: why; counting goes on"),
        (PluginStanding.REFUSED, "is not offered: kubelet refuses it: why."),
        (PluginStanding.WAITING, "is not offered at the moment: why."),
        (PluginStanding.ENDED, "is not offered: why."),
        (PluginStanding.SERVING, ""),
    ],
    ids=lambda value: value.value if isinstance(value, PluginStanding) else "",
)
def test_why_kubelet_does_not_read_our_list_is_a_finding(standing: PluginStanding, said: str) -> None:
    event = ev.PluginTold(KIND.publish, standing, "why")
    findings = row_of(sample(0), event).findings
    assert [one for one in findings if one.startswith(f"{KIND.publish} {said}")] == list(findings)
    assert len(findings) == bool(said)
    assert row_of(sample(0), event, mode=Mode.OBSERVE).findings == (), "nothing is to be offered then"
