"""Copies that are written out for speed leave no field behind."""

from dataclasses import fields

from nodeward.engine.state import Limits, Pods, State
from nodeward.model.workload import ContainerId


def filled(kind: type[Pods] | type[Limits] | type[State]) -> Pods | Limits | State:
    """One whose every field has a value of its own."""
    whole = object.__new__(kind)
    for field in fields(kind):
        object.__setattr__(whole, field.name, {field.name: 1})
    return whole


def test_copies_of_pods() -> None:
    whole = filled(Pods)
    assert isinstance(whole, Pods)
    assert whole.with_sandboxes(whole.sandboxes, whole.sandbox_of) == whole
    assert whole.with_containers(whole.containers, whole.by_pod, whole.creating) == whole
    assert whole.with_ended(whole.ended) == whole


def test_copies_of_limits() -> None:
    whole = filled(Limits)
    assert isinstance(whole, Limits)
    assert whole.with_answered(whole.answered) == whole
    assert whole.with_answered({ContainerId("c"): ()}) != whole


def test_copies_of_the_root() -> None:
    whole = filled(State)
    assert isinstance(whole, State)
    assert whole.stamped(whole.seq, whole.at_ns) == whole
    assert whole.with_pods(whole.pods) == whole
    assert whole.with_limits(whole.limits) == whole
    assert whole.with_asks(whole.asks) == whole
