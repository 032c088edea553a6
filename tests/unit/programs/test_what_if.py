"""What other settings would have decided: the first difference is real, all that follows is hypothetical."""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from nodeward.core import events as ev
from nodeward.core import record
from nodeward.core.modes import Mode, OnError
from nodeward.core.workload import Phase
from nodeward.features.all import apply
from nodeward.features.limits.settings import LimitsSettings, UnknownPod, Unsupported
from nodeward.features.pods.settings import PodsSettings
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from nodeward.programs.once.what_if import MOST_KEPT, WhatIf, what_if
from tests.unit.features.build import EPC, container_spec, creating, pod_spec, sandbox, started
from tests.unit.features.cpus.build import STATIC_RULES, home, machine, one

RECORDED = EngineSettings()
STRICT = EngineSettings(LimitsSettings(strict=True))


@dataclass(slots=True)
class Recorded:
    settings: EngineSettings = RECORDED
    state: State = field(init=False)
    lines: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = State(settings=self.settings)
        self.segment()

    def segment(self) -> None:
        self.lines.append(b"".join(record.segment_pieces("test", self.state)))

    def __call__(self, *events: ev.Event) -> "Recorded":
        for event in events:
            seq = self.state.seq + 1
            stamped = replace(event, at_ns=seq * 10**9, wall_ns=seq * 10**9, seq=seq)
            self.state, decision = apply(self.state, stamped)
            self.lines += [record.encode_event(stamped), record.encode_decision(decision)]
        return self

    def under(self, other: EngineSettings) -> WhatIf:
        return what_if(self.lines, other)


def lived(settings: EngineSettings = RECORDED) -> Recorded:
    """A pod that declares EPC, then one that declares none; both run."""
    told = Recorded(settings)
    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}), ev.ApiBack())
    told(ev.PodSeen(pod_spec("u", container_spec("app", 4096))), ev.SandboxStarted(sandbox("u")))
    told(creating("u", "app"), started("u", "app"))
    told(ev.PodSeen(pod_spec("v", container_spec("web"))), ev.SandboxStarted(sandbox("v")))
    return told(creating("v", "web"), started("v", "web"))


def test_strict_first_differs_at_the_pod_that_declares_nothing() -> None:
    found = lived().under(STRICT)

    first, creates = found.differences[0], [one for one in found.differences if one.event == "Creating"]
    assert (first.event, first.about, first.hypothetical) == ("SandboxStarted", "shop/pod-v", False)
    assert first.recorded == ()
    assert f"wants misc.max:{EPC}:/kubepods/podv 0 (budget shop/pod-v)" in first.other
    assert [(create.about, create.hypothetical) for create in creates] == [("shop/pod-v/web", True)]
    assert creates[0].recorded == ("changes nothing (none-declared web)",)
    assert creates[0].other == ("sets misc.max to 'sgx_epc 0' (strict web)",)
    assert found.count == len(found.differences)
    assert all(later.hypothetical for later in found.differences[1:])


def test_another_cpu_policy_tells_which_containers_would_have_other_cpus_and_which_have_no_place() -> None:
    told = Recorded()(ev.TopologyRead(machine()))
    for pod, count in (("a", 4), ("b", 5)):
        made = one(pod, count)
        told(ev.Creating(home(pod), made, ask_id=1), ev.Created(home(pod), made))
        told(ev.Started(home(pod), made.in_phase(Phase.RUNNING)))

    found = told.under(EngineSettings(policy=STATIC_RULES))

    creates = {each.about: each.other for each in found.differences if each.event == "Creating"}
    assert creates["shop/a/app"][0].startswith("sets cpus to '2-5'")
    assert creates["shop/b/app"][0].startswith("refuses: shop/b, container app")
    first, second = found.cpus
    assert (first.container, first.recorded, first.other) == ("shop/a/app", "", "exclusive 2-5")
    assert (second.container, second.recorded) == ("shop/b/app", "")
    assert "requested=5, available=3" in second.other
    assert told.under(RECORDED).cpus == ()


def test_a_change_of_settings_in_the_record_is_left_out_and_said() -> None:
    told = lived()
    told(SettingsChanged(STRICT))

    same_as_before = told.under(RECORDED)

    assert [difference.event for difference in same_as_before.differences] == ["SettingsChanged"]
    assert same_as_before.differences[0].other == ()
    assert "first at seq 11" in same_as_before.notes[0]


def test_a_later_segment_is_decided_anew_from_its_checkpoint_and_stays_hypothetical() -> None:
    told = lived()
    told.segment()
    found = told.under(STRICT)

    last = found.differences[-1]
    assert (last.segment, last.event, last.hypothetical) == (2, "SettingsChanged", True)
    assert last.about == "the segment's begin"
    assert any(f"misc.max:{EPC}:/kubepods/podv/v-web 0" in text for text in last.other)


def test_an_event_that_both_tell_is_no_difference_whatever_its_number() -> None:
    told = lived(replace(RECORDED, kube_events=True))
    refused = {EPC: 1}
    for path in ("/kubepods/podv/v-web", "/kubepods/podu/u-app"):
        for count in ({}, refused):
            read = ev.MiscReading(limit={EPC: 0 if "podv" in path else 4096}, refusals=count)
            told(ev.Sampled({path: read}, as_of=told.state.seq))
    found = told.under(replace(STRICT, kube_events=True))

    tells = [one.other for one in found.differences if one.event == "Sampled"]
    assert [[text.partition(" sgx")[0] for text in texts] for texts in tells] == [
        ["tells shop/pod-v/web charge-refused"]
    ]
    assert all(one.recorded or one.other for one in found.differences)


def test_what_shaped_the_events_stays_as_recorded_and_is_said() -> None:
    other = EngineSettings(LimitsSettings(resources={"example.com/x": "x"}), period_ms=9)
    found = lived().under(other)

    assert found.count == 0
    assert [note.split()[0] for note in found.notes] == ["limits.resources", "cgroups.period_s"]


def test_a_torn_place_is_counted_and_what_follows_it_is_not_compared() -> None:
    told = lived()
    cut = told.lines[:-2]
    cut[-4:-4] = [record.encode_torn("the disk is full")]

    found = what_if(cut, STRICT)

    assert found.torn == 1
    assert found.events < 10
    assert found.count == 0


def test_a_record_of_another_version_is_said_to_be_one() -> None:
    told = lived()
    told.lines[-1] = b'["decision",{"answer":null}]\n'
    found = told.under(RECORDED)

    assert found.count == 0
    assert "seq 10 (Started)" in found.notes[0]


def test_of_many_differences_the_first_are_kept_and_all_are_counted() -> None:
    told = lived()
    told(*[started("v", "web") for _ in range(MOST_KEPT + 5)])
    found = told.under(STRICT)

    assert len(found.differences) == MOST_KEPT
    assert found.count > MOST_KEPT + 5


SETTINGS = st.builds(
    EngineSettings,
    limits=st.builds(
        LimitsSettings,
        mode=st.sampled_from(Mode),
        on_error=st.sampled_from(OnError),
        strict=st.booleans(),
        unsupported=st.sampled_from(Unsupported),
        unknown_pod=st.sampled_from(UnknownPod),
    ),
    pods=st.builds(PodsSettings, wait_ms=st.integers(0, 1000), wait_budget_ms=st.integers(0, 5000)),
)
EVENTS = st.lists(
    st.sampled_from(
        [
            ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}),
            ev.CapacityRead(controller=False),
            ev.ApiBack(),
            ev.ApiLost("away"),
            ev.PodSeen(pod_spec("u", container_spec("app", 4096), container_spec("web"))),
            ev.PodSeen(pod_spec("v", container_spec("web"))),
            ev.SandboxStarted(sandbox("u")),
            ev.SandboxStarted(sandbox("v")),
            creating("u", "app"),
            creating("v", "web", ask_id=2),
            ev.FactRead(1),
            ev.Expired(2),
            started("u", "app"),
            started("v", "web"),
            SettingsChanged(STRICT),
            ev.Tick(),
        ]
    ),
    max_size=25,
)


@given(recorded=SETTINGS, other=SETTINGS, events=EVENTS)
def test_only_the_first_difference_is_real_and_it_is_what_a_node_with_those_settings_would_have_decided(
    recorded: EngineSettings, other: EngineSettings, events: list[ev.Event]
) -> None:
    told = Recorded(recorded)(*events)
    found = told.under(other)

    fresh = Recorded(other)(*[event for event in events if not isinstance(event, SettingsChanged)])
    assert [difference.hypothetical for difference in found.differences] == [n > 0 for n in range(found.count)]
    for difference in found.differences:
        assert difference.recorded or difference.other  # words tell the two apart
    if not any(isinstance(event, SettingsChanged) for event in events):
        mine = [line for line in told.lines if line.startswith(b'["decision"')]
        theirs = [line for line in fresh.lines if line.startswith(b'["decision"')]
        apart = [number for number, (one, two) in enumerate(zip(mine, theirs, strict=True), 1) if one != two]
        assert [difference.seq for difference in found.differences] == apart
