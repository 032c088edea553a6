"""What runtimes report of their sandboxes by the Pod API: kept for as long as the sandbox is there, and bounded."""

from dataclasses import replace

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.app.node.podapi_answers import EARLY_NS, MOST_REPORTS, Reports
from nodeward.engine.state.pods import KnownSandbox, Pods
from nodeward.engine.state.root import State
from nodeward.model.podapi import AnswerError, ReportSandboxRequest
from nodeward.model.workload import PodUid, Sandbox, SandboxId


class Still(SystemClock):
    """A clock that a test sets."""

    at = 1

    def now_ns(self) -> int:
        return self.at


class Node:
    """Sandboxes that there are, and reports."""

    def __init__(self) -> None:
        self.state, self.clock = State(), Still()
        self.reports = Reports(lambda: self.state, self.clock)

    def has(self, *ids: str) -> None:
        """These sandboxes are there from now on."""
        found = {SandboxId(one): KnownSandbox(Sandbox(SandboxId(one), PodUid("u"), "shop", "web"), 1) for one in ids}
        self.state = replace(self.state, pods=Pods(sandboxes=found))


def test_a_report_is_replaced_and_ends_with_its_sandbox() -> None:
    node = Node()
    node.has("s1")
    for vcpus in (2, 3):
        assert node.reports.put(ReportSandboxRequest("s1", vcpus=vcpus))
    node.clock.at += 2 * EARLY_NS
    assert node.reports.of("s1") == (ReportSandboxRequest("s1", vcpus=3), node.clock.at - 2 * EARLY_NS)
    node.has()
    assert node.reports.of("s1") == (None, 0)


def test_a_report_that_comes_before_its_sandbox_is_kept_for_a_minute() -> None:
    node = Node()
    assert not node.reports.put(ReportSandboxRequest("early"))
    assert not node.reports.put(ReportSandboxRequest("never"))
    node.clock.at += EARLY_NS
    node.has("early")
    assert node.reports.of("early")[0] is not None
    node.clock.at += 1
    assert (node.reports.of("never")[0], node.reports.of("early")[0] is None) == (None, False)


def test_one_report_too_many_is_refused_and_one_that_replaces_is_not() -> None:
    node = Node()
    for number in range(MOST_REPORTS):
        node.reports.put(ReportSandboxRequest(f"s{number}"))
    node.reports.put(ReportSandboxRequest("s0"))
    with pytest.raises(AnswerError, match="reports of 512 sandboxes"):
        node.reports.put(ReportSandboxRequest("more"))
