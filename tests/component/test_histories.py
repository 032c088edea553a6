"""Histories of the step of `keys` that take longer: up to four keys; and those of the whole engine with three."""

from itertools import combinations_with_replacement

import pytest

from nodeward.features.keys import device_ids
from tests.told import tell
from tests.unit.features.keys import starts, views
from tests.unit.features.keys.alone import Alones
from tests.unit.features.keys.test_histories import forgets_the_ended
from tests.unit.features.keys.together import weigh
from tests.unit.features.keys.views import ENDED, RUNS, SILENT, Kind

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("keys", [2, 3, 4])
def test_no_history_of_so_many_keys_has_an_unsafe_grant_or_a_start_without_a_key(keys: int) -> None:
    """Pods end and are forgotten in any order, ids are given out twice, answers are lost, and the daemon dies; within
    one sample up to three VMs begin or end. What is unsafe then no counter can show: a VM restarts in its pod."""
    found = weigh(Alones(keys), 3)
    tell(f"{keys} keys, by the states of their ids, up to three transitions a sample: {found}")
    assert found.beside_charged
    assert found.naive
    assert found.starts
    assert found.unsafe == found.hidden
    assert [moved for moved, unsafe in found.unsafe.items() if unsafe] == [3]
    assert found.short.total() == found.unpublished == 0


def test_of_three_keys_none_is_promised_to_two_starts_whenever_the_daemon_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two starts under way beside a third pod that asks, and somebody foreign. A container is there after two ticks."""
    monkeypatch.setattr(device_ids, "MADE_NS", device_ids.SETTLE_NS)
    found = starts.explore(3, dies=True)
    tell(f"ends of two starts, the daemon dies: {found.worlds} worlds, {found.let.total()} let, {found.unsafe} unsafe")
    assert found.unsafe == 0
    pairs = combinations_with_replacement(range(7), 2)
    taking = (starts.LET, starts.THERE, starts.RUNS)
    assert set(found.let) == {pair for pair in pairs if sum(stage in taking for stage in pair) < 2}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(Kind(2, RUNS), id="beside a pod that runs, also with its id"),
        pytest.param(Kind(1, api=SILENT, pods_api=True), id="with the Pods API beside a checkpoint that is late"),
        pytest.param(Kind(1, ENDED), id="after a pod that has ended and that kubelet still names"),
        pytest.param(Kind(2, RUNS, beside=True, late=False, form=False), id="by PodResources, beside a pod that runs"),
        pytest.param(Kind(3, RUNS, c=RUNS), id="of three keys, beside two pods that run, also with the id of either"),
        pytest.param(Kind(3, RUNS, c=RUNS, c_id=0), id="of three keys, beside two pods that run with one id"),
        pytest.param(Kind(2, RUNS, c=ENDED), id="of three keys, beside one that runs and one that has ended"),
    ],
)
def test_the_key_of_a_pod_is_never_sold_again_however_late_kubelet_tells_of_it(kind: Kind) -> None:
    found = views.explore(kind)
    tell(f"kubelet's views, {kind}: {found.worlds} worlds, {found.granted} grants, {found.unsafe} unsafe")
    assert found.unsafe == 0
    assert found.granted


def test_two_keys_tell_that_a_pod_that_has_ended_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    forgets_the_ended(monkeypatch)
    assert weigh(Alones(2), 0).wrong
