"""Histories of the ledger's step that take longer: two keys by each world, and three by the ids' states."""

import pytest

from tests.told import tell
from tests.unit.engine.ledger import views
from tests.unit.engine.ledger.alone import Alones
from tests.unit.engine.ledger.checked import Check
from tests.unit.engine.ledger.histories import explore
from tests.unit.engine.ledger.test_histories import Breaks, forgets_the_ended, releases_early
from tests.unit.engine.ledger.together import weigh
from tests.unit.engine.ledger.views import ENDED, RUNS, Kind


def test_each_world_of_two_keys_is_safe_and_made_of_ids_that_were_played_one_by_one() -> None:
    """VMs, foreigners and pods move between the questions; within one sample they stand still here, and one pod at a
    time has ended and is not forgotten by everybody."""
    check = Check(Alones(2))
    found = explore(2, 0, 1, played=check.played, met=check.met)
    tell(f"two keys, each world: {found.worlds}, of {len(check.ids)} ids; {found.grants} grants, {found.wrong} wrong")
    assert found.beside_charged
    assert found.again
    assert found.wrong == 0, found
    assert check.unlike == []


def test_no_history_of_three_keys_has_an_unsafe_grant_or_a_start_without_a_key() -> None:
    """Pods end and are forgotten in any order, ids are given out twice, answers are lost, and the daemon dies."""
    found = weigh(Alones(3), 1)
    tell(f"three keys, up to one transition a sample: {found}")
    assert found.beside_charged
    assert found.naive
    assert found.starts
    assert found.wrong == 0, found


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(Kind(2, RUNS), id="beside a pod that runs, also with its id"),
        pytest.param(Kind(1, ENDED), id="after a pod that has ended and that kubelet still names"),
        pytest.param(Kind(2, RUNS, beside=True, late=False, form=False), id="by PodResources, beside a pod that runs"),
    ],
)
def test_the_key_of_a_pod_is_never_sold_again_however_late_kubelet_tells_of_it(kind: Kind) -> None:
    found = views.explore(kind)
    tell(f"kubelet's views, {kind}: {found.worlds} worlds, {found.granted} grants, {found.unsafe} unsafe")
    assert found.unsafe == 0
    assert found.granted


@pytest.mark.parametrize(("broken", "size"), [(forgets_the_ended, 2), (releases_early, 1)])
def test_ids_that_are_played_one_by_one_tell_of_a_broken_rule(
    broken: Breaks, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert weigh(Alones(size), 0).wrong
