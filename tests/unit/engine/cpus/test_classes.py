"""The classes that a container's create is answered with."""

from dataclasses import replace

import pytest

from nodeward.model import events as ev
from nodeward.model.annotations import BLOCKIO_CLASS, RDT_CLASS
from nodeward.model.decision import Adjustment, Decision, Final
from nodeward.model.policy_rule import CpusSettings
from nodeward.model.settings import Mode
from tests.unit.engine.cpus.build import home, one, told


def created(annotations: dict[str, str], mode: Mode = Mode.ENFORCE) -> Decision:
    node = told(cpus=CpusSettings(mode=mode))
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


@pytest.mark.parametrize("name", ["", "../../root", "gold\n", "x" * 64, "gôld"])
def test_what_is_no_name_of_a_class_is_noted_and_counts_as_none(name: str) -> None:
    decision = created({RDT_CLASS: name, BLOCKIO_CLASS: "slow"})
    assert (given(decision).rdt_class, given(decision).blockio_class) == ("", "slow")
    (note,) = decision.notes
    assert (note.code, RDT_CLASS in str(note.values[1])) == ("cpus-source", True)
