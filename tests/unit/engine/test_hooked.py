"""What the OCI hook tells, alone and beside a runtime that tells the same, and in which order it may come."""

from dataclasses import replace

from nodeward.engine.show.decision_words import about
from nodeward.engine.show.explain import rule_sentence
from nodeward.model import events as ev
from nodeward.model.decision import Adjustment, Final
from nodeward.model.events import FoundCgroup, MiscReading
from nodeward.model.settings import LimitsSettings
from nodeward.model.workload import Container, Phase, PodUid
from tests.unit.engine.build import EPC, Told, container, container_spec, node, pod_spec, sandbox, started

PATH = "/kubepods/podu/u-app"
POD = "/kubepods/podu"


def hooked(name: str = "app", sandbox_id: str = "") -> ev.Hooked:
    return ev.Hooked(sandbox("u", sandbox_id=sandbox_id), running(name, sandbox_id))


def running(name: str = "app", sandbox_id: str = "") -> Container:
    return container("u", name, sandbox_id).in_phase(Phase.RUNNING)


def asks(name: str = "app") -> ev.Creating:
    return ev.Creating(sandbox("u"), running(name), by_hook=True, ask_id=7)


def known_node(rule: LimitsSettings | None = None) -> Told:
    told = node(rule or LimitsSettings())
    told(ev.PodSeen(pod_spec("u", container_spec("app", 4096), container_spec("other"))))
    return told


def given(told: Told, event: ev.Creating) -> str:
    answer = told(event).answer
    assert isinstance(answer, Final)
    assert isinstance(answer.value, Adjustment)
    return answer.value.unified.get("misc.max", "")


def test_the_hook_gets_every_resource_whatever_the_runtime_can_write() -> None:
    rule = LimitsSettings(resources={"sgx.intel.com/epc": EPC, "tdx.intel.com/keys": "tdx"})
    told = node(rule)
    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30, "tdx": 9}))
    both = replace(container_spec("app", 4096), declared={"tdx": 1, EPC: 4096})
    told(ev.PodSeen(pod_spec("u", both)))

    assert given(told, asks()) == f"{EPC} 4096\ntdx 1"
    assert given(told, replace(asks(), by_hook=False)) == f"{EPC} 4096", "a runtime that writes one line"


def test_a_container_of_the_hooks_has_goals_at_once_and_its_pod_too() -> None:
    told = known_node()
    given(told, asks())
    goals = {str(goal.target) for goal in told(hooked()).goals}

    assert {f"misc.max:{EPC}:{PATH}", f"misc.max:{EPC}:{POD}", f"subtree:{POD}"} <= goals
    assert told.state.pods.creating == {}


def test_it_ends_with_its_cgroup_and_so_does_its_pod() -> None:
    told = known_node()
    told(hooked())
    told(ev.Sampled({POD: MiscReading()}, as_of=told.state.seq, gone=(PATH,)))
    assert list(told.state.limits.wanted) == [POD]
    told(ev.Sampled({}, as_of=told.state.seq, gone=(POD,)))

    assert told.state.limits.wanted == {}
    assert told.state.pods.sandboxes == {}


def test_what_the_runtime_has_told_stays() -> None:
    told = known_node()
    told(started("u", "app", {"nodeward.io/limits": "{}"}))
    before = told.state.pods
    given(told, asks())
    told(hooked())
    told(ev.Abandoned(7))

    assert told.state.pods.containers == before.containers
    assert told.state.pods.sandboxes == before.sandboxes
    assert told.state.pods.creating == {}


def test_what_the_runtime_tells_later_takes_its_place() -> None:
    told = known_node()
    told(hooked())
    told(started("u", "app"))
    told(ev.Sampled({POD: MiscReading()}, as_of=told.state.seq, gone=(PATH,)))

    assert list(told.state.limits.wanted) == [POD, PATH], "its end is the runtime's to tell"


def test_a_container_that_was_found_nameless_has_a_name_by_the_hook() -> None:
    for event in (hooked(), asks()):
        told = known_node()
        told(ev.CgroupsFound((FoundCgroup(PATH, running().id, PodUid("u")),), as_of=told.state.seq))
        assert told.state.limits.wanted[PATH].values == {}
        if isinstance(event, ev.Creating):
            assert given(told, event) == f"{EPC} 4096"
        told(hooked())
        assert told.state.limits.wanted[PATH].values == {EPC: 4096}
        assert list(told.state.pods.sandboxes) == ["s-u"], "the stand-in has made way"


def test_a_hook_that_nobody_waits_for_any_more_takes_nothing_of_the_runtimes_along() -> None:
    told = node()
    told(started("u", "app"))
    assert not isinstance(told(asks()).answer, Final), "the pod is unknown, so it waits"
    told(ev.Abandoned(7))

    assert list(told.state.pods.containers) == ["u-app"]


def test_a_sandbox_of_the_hooks_alone_switches_the_controller_on() -> None:
    told = known_node()
    decision = told(ev.Hooked(sandbox("u")))

    assert f"subtree:{POD}" in {str(goal.target) for goal in decision.goals}
    assert about(ev.Hooked(sandbox("u"))) == "shop/pod-u"
    assert about(hooked()) == "shop/pod-u/app"
    assert rule_sentence(told.state.limits.wanted[POD].reason)
