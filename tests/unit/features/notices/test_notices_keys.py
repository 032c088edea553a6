"""What the node is told of its TEE keys by Kubernetes Events: which, in what words, and how often."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from nodeward.core import events as ev
from nodeward.core.decision import Decision, PodEvent
from nodeward.core.devices import PluginStanding
from nodeward.core.modes import Mode
from nodeward.features.keys.settings import Publisher, Share
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.notices.keys import HOLDS_NS, STALE_NS
from nodeward.features.notices.step import AGAIN_NS, QUIET_NS
from nodeward.features.notices.words import told as words
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from nodeward.neighbours.kubernetes.events import MOST_NOTE
from tests.unit.features.build import EPC, SECOND, container, container_spec, pod_spec, sandbox
from tests.unit.features.keys.asking import ID, ROW, TDX, Node, kata, offering

TOLD = replace(offering(), kube_events=True)
OBSERVED = replace(TOLD.keys, mode=Mode.OBSERVE)
REFUSED = ev.GrantsRecalled(fault="/run/nodeward/grants.journal cannot be written: No space left on device")


@dataclass
class Telling(Node):
    state: State = field(default_factory=lambda: State(settings=TOLD))
    calls: list[PodEvent] = field(default_factory=list)

    def tell(self, event: ev.Event) -> Decision:
        decision = super().tell(event)
        self.calls += decision.calls
        return decision

    def lives(self, seconds: float) -> list[str]:
        before = len(self.calls)
        for _ in range(int(seconds) // 2):
            self.after(2)
            self.sample()
        for call in self.calls[before:]:
            self.tell(ev.CallEnded(call.id))
        return [call.reason.code for call in self.calls[before:]]


def uncounted(node: Telling) -> None:
    node.root_fails = True


def gone(node: Telling) -> None:
    node.capacity = {"tdx": 0}


def oversold(node: Telling) -> None:
    own = replace(offering(replace(ROW, share=Share.OWN)), kube_events=True)
    node.tell(SettingsChanged(own))
    for number in range(16):
        node.tell(kata(str(number)))


@pytest.mark.parametrize(
    ("breaks", "code", "note"),
    [
        (oversold, "keys-oversold", "On this node pods were promised 17 keys of tdx, and there are 16: 16 by NFD's"),
        (
            uncounted,
            "keys-uncounted",
            "No TEE key of kind tdx (devices.kubevirt.io/tdx) is given out on this node: how many keys are in use is "
            "not told: the root's misc.current did not show them at both reads. Pods that were given one keep it. "
            "Remedy: see nodeward keys; the row's setting `capacity` says how many there are where the kernel hides "
            "it.",
        ),
        (gone, "keys-uncounted", ""),
        (
            lambda node: node.tell(REFUSED),
            "journal-refused",
            "No TEE key is given out on this node, since grants cannot be put on record",
        ),
    ],
    ids=["more was promised", "the root cannot be read", "the module was taken out", "grants cannot be put on record"],
)
def test_what_keeps_keys_from_being_given_out_is_told_of_the_node_once_it_holds(
    breaks: Callable[[Telling], object], code: str, note: str
) -> None:
    node = Telling().begin()
    assert node.admit("a", ID[0]) == ""
    assert node.lives(60) == []
    breaks(node)
    assert node.lives(HOLDS_NS / SECOND - 1) == []
    assert node.lives(6) == [code]
    assert (ID[0], True) in node.listed, "a granted id stays healthy"
    assert node.lives(AGAIN_NS / SECOND - 60) == []
    assert node.lives(120) == [code]
    first, again = node.calls
    assert (again.series, again.count) == (first.id, 2)
    assert (first.namespace, first.pod, first.pod_uid) == ("default", "", "")
    assert words(first).is_warning
    assert note in words(first).note


def test_what_is_over_soon_is_not_told() -> None:
    node = Telling().begin()
    for _ in range(20):
        node.root_fails = True
        assert node.lives(4) == []
        node.root_fails = False
        assert node.lives(4) == []
        node.tell(REFUSED)
        assert node.lives(4) == []
        node.tell(ev.GrantsRecalled())
        assert node.lives(2) == []


@pytest.mark.parametrize(
    "other", [ev.KeysHeld(0), ev.Sampled({}, as_of=0), ev.GrantsRecalled()], ids=lambda one: type(one).__name__
)
def test_a_read_of_the_counters_that_hangs_is_told_by_whatever_else_happens(other: ev.Event) -> None:
    node = Telling().begin()
    node.after(STALE_NS / SECOND - 1)
    node.tell(other)
    node.after(2)
    node.tell(other)
    assert node.calls == []
    node.after(HOLDS_NS / SECOND)
    node.tell(other)
    (call,) = node.calls
    assert call.reason.values == ("tdx", TDX, "unread", "the kernel's counters have not been read for 36 s")
    assert words(call).reason == "KeysNotCounted"


def test_counters_that_were_never_read_are_told_too() -> None:
    node = Telling()
    node.tell(ev.ApiBack())
    node.tell(ev.GrantsRecalled())
    for _ in range(20):
        node.after(2)
        node.view()
    assert [call.reason.values[2] for call in node.calls] == ["unread"]


def test_a_machine_that_slept_has_nothing_to_tell() -> None:
    node = Telling().begin()
    node.after(7200)
    node.view()
    assert node.lives(20) == []


def test_while_the_api_server_is_away_it_waits_though_it_is_over_by_then() -> None:
    node = Telling()
    node.tell(ev.GrantsRecalled(lost=True))
    assert node.lives(120) == []
    assert node.calls == []
    node.tell(ev.ApiBack())
    assert node.lives(2) == ["journal-lost"]


def test_an_event_that_was_not_taken_is_not_sent_again_before_it_is_due() -> None:
    node = Telling().begin()
    node.root_fails = True
    while not node.calls:
        node.after(2)
        node.sample()
    (first,) = node.calls
    node.tell(ev.CallEnded(first.id, "403"))
    assert node.lives(QUIET_NS / SECOND) == []
    assert node.lives(AGAIN_NS / SECOND) == ["keys-uncounted"]
    assert node.calls[-1].series == node.calls[-1].id, "made anew"


def test_faults_that_change_all_the_time_are_one_event() -> None:
    node = Telling().begin()
    for number in range(200):
        node.tell(ev.GrantsRecalled(fault=f"{number}" * 9000))
        node.lives(4)
    (call,) = node.calls
    assert len(words(call).note) > MOST_NOTE, "which is cut where the Event is made"


@pytest.mark.parametrize(
    ("settings", "comes"),
    [
        pytest.param(replace(TOLD, kube_events=False), None, id="kube.events is off"),
        pytest.param(replace(TOLD, keys=OBSERVED), None, id="keys only observes"),
        pytest.param(replace(offering(replace(ROW, publisher=Publisher.NONE)), kube_events=True), None, id="none"),
        pytest.param(TOLD, ev.PluginTold(TDX, PluginStanding.RIVAL, "another"), id="somebody else offers them"),
    ],
)
def test_who_grants_nothing_has_nothing_to_tell(settings: EngineSettings, comes: ev.Event | None) -> None:
    node = Telling(state=State(settings=settings))
    node.begin()
    node.tell(comes or ev.GrantsRecalled(lost=True))
    node.root_fails = True
    node.tell(REFUSED)
    assert node.lives(60) == []


def test_settings_that_end_the_granting_end_what_waits() -> None:
    node = Telling()
    node.tell(ev.GrantsRecalled(lost=True))
    assert node.state.notices.notices
    node.tell(SettingsChanged(replace(TOLD, limits=LimitsSettings(mode=Mode.ENFORCE), keys=OBSERVED)))
    node.tell(ev.ApiBack())
    assert node.state.notices.notices == {}
    assert node.lives(2) == []


def test_pods_are_told_of_limits_as_before_beside_the_node_and_without_it() -> None:
    limits = LimitsSettings(mode=Mode.ENFORCE)
    node = Telling(state=State(settings=replace(TOLD, limits=limits)))
    node.begin()
    node.root_fails = True
    node.tell(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}))
    node.tell(ev.PodSeen(pod_spec("A", container_spec("app", 4096))))
    node.tell(ev.Started(sandbox("A"), container("A", "app")))
    node.lives(10)
    node.tell(ev.Sampled({"/kubepods/podA/A-app": ev.MiscReading(refusals_local={EPC: 2})}, as_of=node.state.seq))
    assert [(call.pod, call.reason.code) for call in node.calls] == [
        ("", "keys-uncounted"),
        ("pod-A", "charge-refused"),
    ]
    node.tell(SettingsChanged(replace(TOLD, limits=replace(limits, mode=Mode.OBSERVE))))
    assert [one.pod_uid for one in node.state.notices.notices.values()] == [""]
