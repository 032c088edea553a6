"""The feature `keys`: what kubelet is offered and people are shown, as the kernel and the operator go on. What
kubelet is answered: test_asks.py."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeward.cli.keys import lines
from nodeward.core import events as ev
from nodeward.core.decision import Target
from nodeward.core.devices import PluginStanding
from nodeward.core.modes import Mode
from nodeward.core.workload import PodUid
from nodeward.features.all import ENGINE
from nodeward.features.keys.delays import BOUNDS_MS, row
from nodeward.features.keys.device_ids import MOST_IDS
from nodeward.features.keys.settings import Share
from nodeward.features.keys.state import Delays
from nodeward.features.root import SettingsChanged
from tests.unit.features.build import SECOND, there
from tests.unit.features.keys.asking import ID, ROW, TDX, Node, launcher, offering, with_row


def test_keys_are_offered_once_what_was_granted_is_known_and_grow_after_samples_that_agree() -> None:
    node = Node()
    node.sample()
    assert not node.goals, "the journal has not been read: nobody knows what is granted"
    node.tell(ev.GrantsRecalled({TDX: {ID[3]: 1}}))
    assert not node.goals, "kubelet's checkpoint has not been read either"
    node.view()
    assert node.listed == [(name, name == ID[3]) for name in ID]
    node.settle()
    assert node.healthy() == 16


def test_the_first_list_goes_out_after_a_second_whatever_is_silent() -> None:
    node = Node()
    node.tell(ev.GrantsRecalled({TDX: {ID[3]: 1}}))
    assert ENGINE.next_wake(node.state) == node.at_ns + SECOND
    node.after(1)
    node.tell(ev.Tick())
    assert (node.listed, ENGINE.next_wake(node.state)) == ([(ID[3], True)], None)


def test_a_sample_that_began_before_one_that_is_known_is_no_news() -> None:
    node = Node().begin()
    node.tell(ev.KeysRead(1, {"tdx": 2}, {"tdx": (2, 2)}))
    assert node.healthy() == 16


def test_a_split_offers_our_part_and_never_more_than_is_free() -> None:
    node = Node(with_row(replace(ROW, share=Share.SPLIT, split=4))).begin()
    assert (len(node.listed), node.healthy()) == (4, 4)
    assert [node.admit(uid, ID[place]) for place, uid in enumerate("abcd")] == [""] * 4
    node.root = 14
    node.settle()
    assert node.healthy() == 4
    node.tell(launcher("d", terminal=True))
    node.views(8)
    node.settle()
    assert node.healthy() == 3, "what others hold is more than their part: nothing is free of ours"


def test_more_and_fewer_keys_are_noticed_without_a_restart() -> None:
    node = Node(capacity={"sev_es": 4}).begin()
    assert not node.goals, "the module is not loaded: nothing is registered"
    node.capacity = {"sev_es": 4, "tdx": 3}
    assert len(node.settle().listed) == 3
    assert node.admit("a", ID[2]) == ""
    node.capacity = {"sev_es": 4, "tdx": 2}
    node.sample()
    assert node.listed == [(ID[2], True), (ID[0], True), (ID[1], False)]


def test_a_resource_that_counts_bytes_is_offered_by_so_many_ids_and_no_more() -> None:
    node = Node(capacity={"tdx": 100_000}).begin()
    assert (len(node.listed), node.healthy()) == (MOST_IDS, MOST_IDS)
    assert node.admit("a", ID[0]) == ""
    row = node.row
    assert row.free == 99_999
    assert row.findings == (
        "100000 are more than the 4096 ids of one kind that are offered at most; the others are not.",
    )


def test_a_kernel_that_cannot_be_read_has_nothing_to_give_and_the_list_stays() -> None:
    node = Node().begin().having("a", ID[0])
    node.tell(ev.KeysRead(node.state.seq))
    assert [healthy for _, healthy in node.listed] == [True] + [False] * 15
    row = node.row
    assert (there(row.offer).withheld, row.capacity, len(row.ids)) == ("uncounted", 0, 16), "an alert goes by that"
    assert "cannot be read" in row.sentence
    node.capacity = {}
    assert "is not told: misc.capacity" in node.start(ID[0])
    node.capacity = {"tdx": 0}
    node.sample()
    row = node.row
    assert (there(row.offer).withheld, row.capacity) == ("gone", 0), "the module was taken out: there are none"
    assert "the kernel has no such keys any more" in row.sentence
    refused = node.start(ID[0])
    assert "no such keys any more" in refused
    assert "load that module again" in refused
    node.capacity = {"tdx": 16}
    assert node.settle().healthy() == 16


def test_while_a_read_of_the_nodes_counter_fails_nothing_is_given_and_granted_ids_stay() -> None:
    node = Node().begin().having("a", ID[0])
    node.root_fails = True
    for refused in (node.allocate(ID[1]), node.start(ID[0])):
        assert "how many keys are in use is not told: the root's misc.current did not show them" in refused
    assert [healthy for _, healthy in node.listed] == [True] + [False] * 15
    row = node.row
    assert (row.free, row.capacity, row.refusals) == (None, 16, {"uncounted": 2})
    assert "did not show them at both reads" in row.sentence
    assert there(row.offer).withheld == "uncounted"
    node.root_fails = False
    assert node.settle().healthy() == 16
    assert node.allocate(ID[1]) == ""


def test_the_operator_goes_to_observe_and_back_and_no_grant_is_lost() -> None:
    node = Node().begin().having("a", ID[0])
    node.tell(SettingsChanged(offering(mode=Mode.OBSERVE)))
    assert node.withdrawn
    assert "it is not offered here" in node.allocate(ID[1])
    assert node.start(ID[0]) == ""
    node.view()
    node.tell(SettingsChanged(offering()))
    assert node.settle().healthy() == 16
    node.root = 16
    node.sample()
    assert [name for name, healthy in node.listed if healthy] == [ID[0]]
    node.tell(SettingsChanged(offering(mode=Mode.OFF)))
    assert node.withdrawn


def test_a_name_that_somebody_else_publishes_is_counted_by_what_pods_ask_for() -> None:
    node = Node().begin()
    node.tell(ev.PluginTold(TDX, PluginStanding.RIVAL, "kubevirt-tdx.sock"))
    node.tell(launcher("a"))
    assert "it is not offered here" in node.allocate(ID[0])
    node.sample()
    assert node.state.keys.offers["tdx"].published == 15


def test_each_id_is_shown_with_its_state_and_how_long_it_has_stood_so() -> None:
    node = Node(capacity={"tdx": 4}).begin()
    node.tell(ev.PluginTold(TDX, PluginStanding.SERVING))
    assert [node.admit("a", ID[0]), node.admit("b", ID[1])] == ["", ""]
    node.charged, node.root = {"a": 1}, 2
    node.view()
    node.sample()
    node.views(6)
    node.after(1)
    node.view()
    assert [(one.id, one.state, one.for_ms, one.pods) for one in node.row.ids] == [
        (ID[0], "charged", 7000, ("shop/pod-a",)),
        (ID[1], "granted", 7000, ("shop/pod-b",)),
        (ID[2], "free", 11000, ()),
        (ID[3], "withheld", 7000, ()),
    ]
    assert node.allocate(ID[3], ID[2])
    row = node.row
    assert (row.published, row.plugin, row.refusals) == (1, "serving", {"foreign": 1})
    said = list(lines(row))
    assert f"  {ID[0]}: charged for 7 s, shop/pod-a" in said
    assert "  1 more published to kubelet; device plugin serving" in said
    assert "  refused: foreign 1" in said

    node.tell(launcher("b", terminal=True))
    node.view()
    node.sample()
    assert [one.state for one in node.row.ids] == ["charged", "draining", "free", "withheld"]


# ---- the wall clock is for display -----------------------------------------------------------------------------------


@dataclass
class Jumping(Node):
    walls: list[int] = field(default_factory=list)

    @property
    def wall_ns(self) -> int:
        return self.walls[self.state.seq % len(self.walls)]


def life(walls: list[int]) -> list[object]:
    """What a node does from its daemon's start over a grant to its release."""
    node = Jumping(capacity={"tdx": 2}, walls=walls).begin()
    seen: list[object] = [node.listed, node.admit("a", ID[0]), node.start(ID[0])]
    node.charged, node.root = {"a": 1}, 2
    seen += [node.settle().listed, node.allocate(ID[1])]
    node.charged, node.root, node.held = {}, 0, {}
    node.tell(launcher("a", terminal=True))
    for _ in range(6):
        node.views(2)
        node.sample()
        seen += [node.listed, list(node.state.keys.offers["tdx"].grants)]
    return [*seen, node.commits, node.goals[f"offer:{TDX}"]]


@settings(max_examples=20)
@given(st.lists(st.integers(0, 1 << 62), min_size=1, max_size=7))
def test_a_wall_clock_that_jumps_changes_nothing(walls: list[int]) -> None:
    assert life(walls) == life([SECOND])


# ---- how long a key that somebody else took may have been there before kubelet was told ------------------------------


OFFER = Target("offer", TDX)


def serving() -> Node:
    node = Node().begin()
    node.tell(ev.PluginTold(TDX, PluginStanding.SERVING))
    return node


def read(node: Node, began_s: float) -> None:
    pods = {PodUid(uid): {"tdx": (amount, amount)} for uid, amount in node.charged.items()}
    began_ns = node.at_ns - int(began_s * SECOND)
    node.tell(ev.KeysRead(node.state.seq, node.capacity, {"tdx": (node.root, node.root)}, pods, read_ns=began_ns))


def taken(node: Node, amount: int, after_s: float = 2.0) -> None:
    node.after(after_s)
    node.root += amount
    read(node, 0.0)


def handed_over(node: Node, target: Target = OFFER) -> None:
    node.tell(ev.Reached((target,), (target,)))


def delays(node: Node) -> Delays:
    return node.state.keys.delays.get("tdx", Delays())


def test_it_is_from_where_the_sample_before_began_to_where_kubelet_had_the_list() -> None:
    node = serving()
    read(node, 0.25)
    taken(node, 3)
    assert node.healthy() == 13
    node.after(0.5)
    assert delays(node) == Delays(), "kubelet has not been told yet"
    handed_over(node, Target("offer", "example.com/other"))
    assert delays(node) == Delays(), "another list has"
    handed_over(node)
    assert delays(node).sum_ns == int(2.75 * SECOND)
    shown = dict(row(node.state, "tdx").at_most)
    assert (shown[2_500_000_000], shown[3_000_000_000], shown[30_000_000_000]) == (0, 1, 1)
    handed_over(node)
    assert row(node.state, "tdx").count == 1, "once"


def test_a_second_growth_before_kubelet_is_told_counts_from_the_first() -> None:
    node = serving()
    taken(node, 1)
    taken(node, 1)
    handed_over(node)
    assert (row(node.state, "tdx").count, delays(node).sum_ns) == (1, 4 * SECOND)
    taken(node, 1, after_s=60)
    handed_over(node)
    assert (row(node.state, "tdx").count, delays(node).sum_ns) == (2, 64 * SECOND)
    assert row(node.state, "tdx").at_most[-1] == (30_000_000_000, 1), "the last is beyond every bound"


def test_each_bound_takes_what_is_as_long() -> None:
    for place, bound in enumerate(BOUNDS_MS):
        node = serving()
        taken(node, 1, after_s=bound / 1000)
        handed_over(node)
        assert delays(node).counts == tuple(int(at == place) for at in range(len(BOUNDS_MS) + 1))


@pytest.mark.parametrize(
    "what", ["what pods hold themselves", "less than before", "what the lists had no ids for", "a counter below zero"]
)
def test_what_withholds_nothing_for_foreign_use_is_not_measured(what: str) -> None:
    node = serving()
    match what:
        case "what pods hold themselves":
            assert node.admit("vm", "tdx-key-0000") == ""
            node.view()
            node.charged = {"vm": 1}
            taken(node, 1)
        case "less than before":
            taken(node, 2)
            handed_over(node)
            taken(node, -1)
        case "what the lists had no ids for":
            taken(node, 16)
            handed_over(node)
            taken(node, 1)
        case _:
            node.charged = {"vm": -1}
            taken(node, 3)
    before = delays(node)
    handed_over(node)
    assert delays(node) == before
    assert node.state.keys.grown == {}


def test_while_kubelet_reads_no_list_it_gives_out_nothing_and_nothing_is_measured() -> None:
    node = serving()
    taken(node, 1)
    node.tell(ev.PluginTold(TDX, PluginStanding.WAITING, "kubelet is gone"))
    taken(node, 1)
    node.tell(ev.PluginTold(TDX, PluginStanding.SERVING))
    handed_over(node)
    assert delays(node) == Delays()
