"""What pods are told by Kubernetes Events: how often, and how many at once."""

from dataclasses import replace

from nodeward.engine.notices.step import MOST_NOTICES, MOST_SENT, QUIET_NS
from nodeward.model import events as ev
from nodeward.model.decision import PodEvent
from nodeward.model.settings import EngineSettings, Mode
from nodeward.model.workload import ContainerId, Phase
from tests.unit.engine.build import RULE, SECOND, container, container_spec, pod_spec, sandbox
from tests.unit.engine.notices import LIMIT, POD, Node, codes, reading


def test_each_start_of_a_container_counts_on_the_same_event() -> None:
    node = Node()
    (first,) = node.sees(reading(refused=9))
    node.ends(first)
    again = replace(container("A", "app"), id=ContainerId("A-app-2"), cgroups_path=f"{POD}/A-app-2")
    node.told(ev.Started(sandbox("A"), again))
    node.told.at_ns += QUIET_NS
    calls = node.told(ev.Sampled({again.cgroups_path: reading(refused=9)}, as_of=node.told.state.seq)).calls
    assert [(call.series, call.count) for call in calls] == [(first.id, 18)]


def test_refusals_are_counted_and_sent_at_most_once_in_five_minutes_on_the_same_event() -> None:
    node = Node()
    node.sees(reading())
    (first,) = node.sees(reading(refused=1))
    node.ends(first)
    for second in range(1, 299):
        assert node.sees(reading(refused=1 + second)) == []
    (again,) = node.sees(reading(refused=300), after_s=2)
    assert (again.series, again.count) == (first.id, 300)
    assert again.id != first.id
    assert again.first_ns == first.first_ns
    assert again.last_ns > first.last_ns
    node.ends(again)
    assert node.sees(reading(refused=300), after_s=600) == []  # nothing new


def test_what_is_left_unsent_within_the_quiet_time_is_sent_when_it_is_over() -> None:
    node = Node()
    node.sees(reading())
    node.ends(node.sees(reading(refused=1))[0])
    assert node.sees(reading(refused=5)) == []
    (late,) = node.sees(reading(refused=5), after_s=QUIET_NS / SECOND)
    assert late.count == 5


def test_an_event_that_was_not_taken_is_not_sent_again_and_the_next_one_is_made_anew() -> None:
    node = Node()
    node.sees(reading())
    (first,) = node.sees(reading(refused=1))
    node.ends(first, "403")
    assert node.sees(reading(refused=1), after_s=2000) == []
    (again,) = node.sees(reading(refused=2))
    assert again.series == again.id


def test_nothing_of_a_notice_is_sent_while_the_outcome_of_the_last_is_not_known() -> None:
    node = Node()
    node.sees(reading())
    (first,) = node.sees(reading(refused=1))
    assert node.sees(reading(refused=2), after_s=600) == []
    node.ends(first)
    (again,) = node.sees(reading(refused=2))
    assert again.series == first.id


def test_while_the_api_server_is_away_things_are_counted_and_sent_once_when_it_is_back() -> None:
    node = Node()
    node.sees(reading())
    node.told(ev.ApiLost("gone"))
    assert node.sees(reading(refused=1)) == []
    assert node.sees(reading(refused=4)) == []
    node.told(ev.ApiBack())
    assert codes(node.sees(reading(refused=4))) == [("app", "charge-refused", 4)]


def test_a_node_sends_a_bounded_number_and_the_rest_later() -> None:
    node = Node()
    uids = [f"p{number}" for number in range(MOST_SENT + 20)]
    for uid in uids:
        node.pod(uid)
    paths = [f"/kubepods/pod{uid}/{uid}-app" for uid in uids]

    def passes(refused: int, after_s: float = 1.0) -> tuple[PodEvent, ...]:
        node.told.at_ns += int(after_s * SECOND)
        return node.told(ev.Sampled(dict.fromkeys(paths, reading(refused=refused)), as_of=node.told.state.seq)).calls

    passes(0)
    first = passes(1)
    assert len(first) == MOST_SENT
    assert passes(1) == ()
    later = passes(1, QUIET_NS / SECOND)
    assert len(later) == 20
    assert {call.pod for call in first} | {call.pod for call in later} == {f"pod-{uid}" for uid in uids}


def test_of_more_than_a_node_sends_those_that_waited_longest_come_first() -> None:
    """Given more pods that are refused all the time than Events that may be sent, then each has its turn."""
    node = Node()
    uids = [f"p{number}" for number in range(MOST_SENT + 20)]
    for uid in uids:
        node.pod(uid)

    def told(refused: int) -> list[str]:
        node.told.at_ns += QUIET_NS
        readings = {f"/kubepods/pod{uid}/{uid}-app": reading(refused=refused) for uid in uids}
        calls = node.told(ev.Sampled(readings, as_of=node.told.state.seq)).calls
        for call in calls:
            node.ends(call)
        return [call.pod_uid for call in calls]

    assert told(1) == uids[:MOST_SENT]
    assert told(2) == uids[MOST_SENT:] + uids[: MOST_SENT - 20]
    assert told(3) == uids[MOST_SENT - 20 : MOST_SENT] + uids[: MOST_SENT - 20]
    assert told(4)[:20] == uids[MOST_SENT:]


def test_what_has_no_room_is_counted() -> None:
    node = Node()
    node.told(ev.ApiLost("away"))
    uids = [f"p{number}" for number in range(MOST_NOTICES + 7)]
    spec = pod_spec("big", *(container_spec(uid, LIMIT) for uid in uids))
    node.told(ev.PodSeen(spec))
    running = tuple(replace(container("big", uid), phase=Phase.RUNNING) for uid in uids)
    node.told(ev.Listed((sandbox("big"),), running, as_of=node.told.state.seq, complete=False))
    for refused in (0, 1):
        readings = {one.cgroups_path: reading(refused=refused) for one in running}
        node.told.at_ns += SECOND
        node.told(ev.Sampled(readings, as_of=node.told.state.seq))
    assert len(node.told.state.notices.notices) == MOST_NOTICES
    assert node.told.state.notices.left_out == 7


def test_notices_end_with_their_pod_and_with_time() -> None:
    node = Node()
    node.sees(reading())
    node.ends(node.sees(reading(refused=1))[0])
    node.sees(reading(refused=1), after_s=3001)
    assert node.told.state.notices.notices == {}
    node.sees(reading(refused=2))
    assert len(node.told.state.notices.notices) == 1
    node.told(ev.SandboxRemoved(sandbox("A")))
    node.told(ev.Sampled({}, as_of=node.told.state.seq))
    assert node.told.state.notices.notices == {}


def test_settings_that_switch_events_off_end_what_waits() -> None:
    node = Node()
    node.told(ev.ApiLost("away"))
    node.sees(reading())
    node.sees(reading(refused=1))
    assert node.told.state.notices.notices
    node.told(ev.SettingsChanged(EngineSettings(limits=replace(RULE, mode=Mode.OBSERVE), kube_events=True)))
    assert node.told.state.notices.notices == {}
