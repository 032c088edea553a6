"""The ledger as a domain: what kubelet is offered and people are shown, as the kernel and the operator go on. What
kubelet is answered: test_asks.py."""

from dataclasses import replace

from nodeward.cli.keys import lines
from nodeward.engine.apply import next_wake
from nodeward.engine.ledger.device_ids import MOST_IDS
from nodeward.engine.show.key_rows import key_rows
from nodeward.model import events as ev
from nodeward.model.settings import Mode, Share
from nodeward.model.tee import PluginStanding
from tests.unit.engine.build import SECOND
from tests.unit.engine.ledger.asking import ID, ROW, TDX, Node, launcher, offering, with_row


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
    assert next_wake(node.state) == node.at_ns + SECOND
    node.after(1)
    node.tell(ev.Tick())
    assert (node.listed, next_wake(node.state)) == ([(ID[3], True)], None)


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
    """Given a row for something of which the kernel has very many, then the daemon lives, and a finding tells of it."""
    node = Node(capacity={"tdx": 100_000}).begin()
    assert (len(node.listed), node.healthy()) == (MOST_IDS, MOST_IDS)
    assert node.admit("a", ID[0]) == ""
    (row,) = key_rows(node.state, node.at_ns)
    assert row.free == 99_999
    assert row.findings == (
        "100000 are more than the 4096 ids of one kind that are offered at most; the others are not.",
    )


def test_a_kernel_that_cannot_be_read_has_nothing_to_give_and_the_list_stays() -> None:
    node = Node().begin()
    assert node.admit("a", ID[0]) == ""
    node.tell(ev.KeysRead(node.state.seq))
    assert [healthy for _, healthy in node.listed] == [True] + [False] * 15
    (row,) = key_rows(node.state, node.at_ns)
    assert row.offer is not None
    assert (row.offer.withheld, row.capacity, len(row.ids)) == ("uncounted", 0, 16), "an alert goes by that"
    assert "cannot be read" in row.sentence
    node.capacity = {}
    assert "is not told: misc.capacity" in node.start(ID[0])
    node.capacity = {"tdx": 0}
    node.sample()
    (row,) = key_rows(node.state, node.at_ns)
    assert row.offer is not None
    assert (row.offer.withheld, row.capacity) == ("gone", 0), "the module was taken out: there are none"
    assert "the kernel has no such keys any more" in row.sentence
    refused = node.start(ID[0])
    assert "no such keys any more" in refused
    assert "load that module again" in refused
    node.capacity = {"tdx": 16}
    assert node.settle().healthy() == 16


def test_while_a_read_of_the_nodes_counter_fails_nothing_is_given_and_granted_ids_stay() -> None:
    node = Node().begin()
    assert node.admit("a", ID[0]) == ""
    node.root_fails = True
    for refused in (node.allocate(ID[1]), node.start(ID[0])):
        assert "how many keys are in use is not told: the root's misc.current did not show them" in refused
    assert [healthy for _, healthy in node.listed] == [True] + [False] * 15
    (row,) = key_rows(node.state, node.at_ns)
    assert (row.free, row.capacity, row.refusals) == (None, 16, {"uncounted": 2})
    assert "did not show them at both reads" in row.sentence
    assert row.offer is not None
    assert row.offer.withheld == "uncounted"
    node.root_fails = False
    assert node.settle().healthy() == 16
    assert node.allocate(ID[1]) == ""


def test_the_operator_goes_to_observe_and_back_and_no_grant_is_lost() -> None:
    node = Node().begin()
    assert node.admit("a", ID[0]) == ""
    node.tell(ev.SettingsChanged(offering(mode=Mode.OBSERVE)))
    assert node.withdrawn
    assert "it is not offered here" in node.allocate(ID[1])
    assert node.start(ID[0]) == ""
    node.view()
    node.tell(ev.SettingsChanged(offering()))
    assert node.settle().healthy() == 16
    node.root = 16
    node.sample()
    assert [name for name, healthy in node.listed if healthy] == [ID[0]]
    node.tell(ev.SettingsChanged(offering(mode=Mode.OFF)))
    assert node.withdrawn


def test_a_name_that_somebody_else_publishes_is_counted_by_what_pods_ask_for() -> None:
    node = Node().begin()
    node.tell(ev.PluginTold(TDX, PluginStanding.RIVAL, "kubevirt-tdx.sock"))
    node.tell(launcher("a"))
    assert "it is not offered here" in node.allocate(ID[0])
    node.sample()
    assert node.state.ledger.offers["tdx"].published == 15


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
    (row,) = key_rows(node.state, node.at_ns)
    assert [(one.id, one.state, one.for_ms, one.pods) for one in row.ids] == [
        (ID[0], "charged", 7000, ("shop/pod-a",)),
        (ID[1], "granted", 7000, ("shop/pod-b",)),
        (ID[2], "free", 11000, ()),
        (ID[3], "withheld", 7000, ()),
    ]
    assert node.allocate(ID[3], ID[2])
    (row,) = key_rows(node.state, node.at_ns)
    assert (row.published, row.plugin, row.refusals) == (1, "serving", {"foreign": 1})
    said = list(lines(row))
    assert f"  {ID[0]}: charged for 7 s, shop/pod-a" in said
    assert "  1 more published to kubelet; device plugin serving" in said
    assert "  refused: foreign 1" in said

    node.tell(launcher("b", terminal=True))
    node.view()
    node.sample()
    (row,) = key_rows(node.state, node.at_ns)
    assert [one.state for one in row.ids] == ["charged", "draining", "free", "withheld"]
