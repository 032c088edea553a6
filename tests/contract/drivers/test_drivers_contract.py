"""The contract of kubelet's manager of claims with a driver: every case on the double and on a real kubelet 1.37, with
the same id. Where the real end is not built the case skips; scripts/build-peers builds it.
"""

import time
from collections.abc import Iterator

import pytest

from tests.contract.drivers.sides import Node, Side, opened, play
from tests.contract.kubelet.sides import SIDES, Cases
from tests.patience import scaled
from tests.peers.daemon import until

CASES = case = Cases[Node]()
WIPED_S = 30.0


@case
def late_information_is_refused_and_asked_for_again(node: Node) -> None:
    driver = node.instance()
    driver.late_s = [1.5]
    with node.registered(driver):
        assert driver.count("GetInfo") > 1


@case
def a_claim_is_named_alone_and_is_on_record_before_the_driver_is_asked(node: Node) -> None:
    with node.registered() as driver:
        name, uid = node.claim()
        seen: list[tuple[str, ...]] = []
        driver.looks = lambda: seen.extend(one.drivers for one in node.known())
        node.run("one", name)
        assert driver.asked == [("default", name, uid)]
        assert 40.0 < driver.deadlines_s[0] <= 45.1  # gRPC's C core rounds up what it writes
        assert seen == [()]
        assert [(one.uid, one.drivers) for one in node.known()] == [(uid, (node.driver,))]
        node.end("one")
        assert driver.count("NodeUnprepareResources") == 1
        assert node.known() == []


@case
def a_refused_claim_keeps_its_pod_waiting_with_the_words_and_is_asked_about_again(node: Node) -> None:
    with node.registered() as driver:
        name, _ = node.claim()
        driver.refuses = "no key is free"
        node.create("waits", name)
        until(lambda: "no key is free" in node.side.says("waits"), "it is told why")
        driver.refuses = ""
        until(lambda: node.side.runs("waits"), "it runs")
        assert driver.count("NodePrepareResources") > 1
        node.end("waits")


@case
def a_claim_of_two_pods_is_prepared_once_and_taken_back_with_the_last(node: Node) -> None:
    with node.registered() as driver:
        name, _ = node.claim()
        node.run("first", name)
        node.run("second", name)
        assert driver.count("NodePrepareResources") == 1
        node.end("first")
        assert driver.count("NodeUnprepareResources") == 0
        node.end("second")
        assert driver.count("NodeUnprepareResources") == 1


@case
def a_pod_does_not_end_before_its_claim_is_taken_back(node: Node) -> None:
    with node.registered() as driver:
        name, _ = node.claim()
        node.run("ends", name)
        driver.refuses_end = "not yet"
        node.side.delete("ends")
        until(lambda: driver.count("NodeUnprepareResources") > 1, "it is asked again")
        assert not node.side.is_gone("ends")
        driver.refuses_end = ""
        node.end("ends")


@case
def without_the_driver_a_pod_waits(node: Node) -> None:
    name, _ = node.claim()
    node.create("early", name)
    until(lambda: f"{node.driver} is not registered" in node.side.says("early"), "it is told why")
    assert node.known() == []
    with node.registered():
        until(lambda: node.side.runs("early"), "it runs")
        node.end("early")


@case
def a_restart_deletes_the_slices_and_a_claim_is_prepared_again_for_the_next_pod(node: Node) -> None:
    with node.registered() as driver:
        name, _ = node.claim()
        node.run("stays", name)
        node.side.publish(node.driver)
        node.side.restart()
        until(lambda: not node.side.published(node.driver), "the slice is gone")
        until(lambda: len(driver.told) >= 2, "the driver is registered again")
        assert driver.count("NodePrepareResources") == 1
        node.run("comes", name)
        assert driver.count("NodePrepareResources") == 2
        node.end("comes")
        node.end("stays")
        assert driver.count("NodeUnprepareResources") == 1


@case
def of_two_instances_the_newest_is_called_and_the_other_when_that_has_gone(node: Node) -> None:
    with node.registered(node.instance("-old")) as old:
        name, _ = node.claim()
        with node.registered(node.instance("-new")) as new:
            node.run("one", name)
            assert (old.count("NodePrepareResources"), new.count("NodePrepareResources")) == (0, 1)
        node.end("one")
        assert old.count("NodeUnprepareResources") == 1


@case
def an_endpoint_that_another_instance_has_is_refused(node: Node) -> None:
    with node.registered() as driver:
        twin = node.instance("-twin")
        twin.info = driver.info  # type: ignore[method-assign]
        with twin.running():
            until(lambda: bool(twin.told), "it is told")
            assert not twin.told[0][0]
            assert "already registered" in twin.told[0][1]


@case
def the_slices_of_a_driver_go_a_while_after_its_last_instance(node: Node) -> None:
    with node.registered():
        node.side.publish(node.driver)
    gone_s = time.monotonic()
    until(lambda: not node.side.published(node.driver), "the slice is gone", scaled(2 * WIPED_S))
    assert time.monotonic() - gone_s > WIPED_S - 5.0


SLOW = ("the-slices-of-a-driver-go-a-while-after-its-last-instance",)


@pytest.fixture(name="side", scope="module", params=SIDES)
def _side(request: pytest.FixtureRequest) -> Iterator[Side]:
    """One node of each kind for all: a real one takes seconds to start."""
    with opened(request.param) as found:
        yield found


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case, marks=[pytest.mark.nightly] * (case in SLOW)) for case in CASES]
)
def test_contract(side: Side, case: str) -> None:
    play(CASES, case, side)
