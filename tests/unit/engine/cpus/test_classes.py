"""The classes that a container's create is answered with."""

from dataclasses import replace

import pytest

from nodeward.model import events as ev
from nodeward.model.annotations import BLOCKIO_CLASSES, PRESERVE_CPU, RDT_CLASSES, SCHEDULING_CLASS
from nodeward.model.decision import Adjustment, Decision, Final
from nodeward.model.policy_rule import CpusSettings, PolicySettings
from nodeward.model.pool_rule import BalloonsSettings, BalloonType, SchedulingClass
from nodeward.model.settings import Mode
from tests.unit.engine.cpus.build import STATIC_RULES, home, one, told

RDT_CLASS, CRI_RM_RDT = RDT_CLASSES
BLOCKIO_CLASS, CRI_RM_BLOCKIO = BLOCKIO_CLASSES


def created(annotations: dict[str, str], mode: Mode = Mode.ENFORCE, policy: PolicySettings = STATIC_RULES) -> Decision:
    node = told(policy, CpusSettings(mode=mode))
    return node(ev.Creating(replace(home("a"), annotations=annotations), one("a", 1), ask_id=node.state.seq + 1))


def given(decision: Decision) -> Adjustment:
    assert isinstance(decision.answer, Final)
    assert isinstance(decision.answer.value, Adjustment)
    return decision.answer.value


def test_a_create_is_answered_with_the_classes_that_annotations_name() -> None:
    """The one for the container comes before the pod's. An update carries none; observing gives none."""
    said = {f"{RDT_CLASS}/container.app": "gold", RDT_CLASS: "silver", f"{BLOCKIO_CLASS}/pod": "slow"}
    classes = given(created(said))
    assert (classes.cpus != "", classes.rdt_class, classes.blockio_class) == (True, "gold", "slow")
    assert given(created(said, Mode.OBSERVE)) == Adjustment()

    node, pod = told(), replace(home("a"), annotations=said)
    node(ev.Creating(pod, one("a", 1), ask_id=node.state.seq + 1))
    node(ev.Created(pod, one("a", 1)))
    updated = given(node(ev.Updating(pod, one("a", 1), ask_id=node.state.seq + 1)))
    assert (updated.rdt_class, updated.blockio_class) == ("", "")


def test_the_keys_of_cri_resource_manager_act_as_those_of_nri_plugins_do() -> None:
    classes = given(created({f"{CRI_RM_RDT}/pod": "gold", f"{CRI_RM_BLOCKIO}/pod": "slow"}))
    assert (classes.rdt_class, classes.blockio_class) == ("gold", "slow")
    assert given(created({CRI_RM_RDT: "gold", RDT_CLASS: "silver"})).rdt_class == "silver"


@pytest.mark.parametrize("name", ["", "../../root", "gold\n", "x" * 64, "gôld"])
def test_what_is_no_name_of_a_class_is_noted_and_counts_as_none(name: str) -> None:
    decision = created({RDT_CLASS: name, BLOCKIO_CLASS: "slow"})
    assert (given(decision).rdt_class, given(decision).blockio_class) == ("", "slow")
    (note,) = decision.notes
    assert (note.code, RDT_CLASS in str(note.values[1])) == ("cpus-source", True)


@pytest.mark.parametrize(
    ("annotations", "name"),
    [
        ({}, "calm"),  # the type's
        ({SCHEDULING_CLASS: "calm", f"{SCHEDULING_CLASS}/container.app": "fast"}, "fast"),
        ({SCHEDULING_CLASS: "unknown"}, "calm"),
        ({SCHEDULING_CLASS: "fast", PRESERVE_CPU: "true"}, ""),  # left alone
    ],
)
def test_a_scheduling_class_is_the_annotations_or_else_the_balloon_types(
    annotations: dict[str, str], name: str
) -> None:
    fast, calm = SchedulingClass("fast", nice=-5), SchedulingClass("calm", nice=5)
    types = (BalloonType("default", scheduling_class="calm"),)
    rules = BalloonsSettings(balloon_types=types, scheduling_classes=(fast, calm))
    decision = created(annotations, policy=replace(STATIC_RULES, active="balloons", balloons=rules))
    assert given(decision).scheduling == {"fast": fast, "calm": calm}.get(name)
    notes = [str(note.values[1]) for note in decision.notes]
    assert all("'unknown' is no scheduling class; classes are fast, calm" in note for note in notes)
    assert len(notes) == ("unknown" in annotations.values())
