"""Everything that can happen on a small node, against the engine: every history of an id, every way in which a start
can end, and in which kubelet's words come late. A broken rule of each is told.

`make nightly` plays those that take seconds; more keys, and beside other pods: tests/component/test_histories.py."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from nodeward.core.workload import PodUid
from nodeward.features.keys import device_ids, kubelet_view, sums
from nodeward.features.keys.rule import Count, PodKeys, count
from nodeward.features.keys.state import Offer
from tests.told import tell
from tests.unit.features.keys import starts, views
from tests.unit.features.keys.alone import Alones
from tests.unit.features.keys.starts import ASKS, GONE, IDLE, OVER
from tests.unit.features.keys.together import weigh
from tests.unit.features.keys.views import REMEMBERED, SILENT, Kind


def test_no_history_of_one_key_has_an_unsafe_grant_or_a_start_without_a_key() -> None:
    """Up to three VMs begin or end within one sample."""
    found = weigh(Alones(1), 3)
    tell(f"1 key, by the states of its id: {found}")
    assert found.beside_charged
    assert found.naive
    assert found.starts
    assert found.wrong == 0, found


def forgets_the_ended(patch: pytest.MonkeyPatch) -> None:
    """As it was before: an id's next owner was lost behind an ended pod that kubelet still named."""

    def broken(offer: Offer, ended: Iterable[PodUid]) -> Offer:
        return replace(gate_living(offer, ended), over={})

    gate_living = device_ids.living
    patch.setattr(device_ids, "living", broken)


def test_it_is_told_that_foreign_use_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(capacity: int, reserve: int, roots: tuple[int, ...], pods: Iterable[PodKeys]) -> Count:
        found = count(capacity, reserve, roots, pods)
        return replace(found, free=found.free + found.foreign)

    monkeypatch.setattr(sums, "count", broken)
    assert weigh(Alones(1), 0).wrong


@pytest.mark.parametrize("dies", [False, True], ids=["one daemon", "the daemon dies"])
def test_nobody_starts_beside_a_start_that_may_take_the_last_key(dies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the daemon dies a container is there after two ticks of two seconds."""
    monkeypatch.setattr(device_ids, "MADE_NS", device_ids.SETTLE_NS)
    found = starts.explore(dies=dies)
    tell(f"ends of starts: {found.worlds} worlds, b let by a's stage {found.let}, {found.unsafe} unsafe")
    assert found.unsafe == 0
    assert set(found.let) == {(ASKS,), (IDLE,), (OVER,), (GONE,)}, "one that is over stands in nobody's way for ever"


def test_it_is_told_that_starts_of_before_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_ids, "resumed", lambda offer, known, charged, at_ns: offer)
    assert starts.explore(until_unsafe=True, dies=True).unsafe


KINDS = {
    "the checkpoint is late": Kind(1),
    "kubelet alone knows of the pod": Kind(1, by_kubelet=True),
    "the journal is removed, and the Pods API alone tells": Kind(1, api=SILENT, pods_api=True, form=False, loses=True),
    "its form is unknown, and the pod is older than the journal": Kind(1, beside=True, form=False, by_kubelet=True),
    "its form is unknown, and the Pods API is late": Kind(1, api=SILENT, pods_api=True, form=False),
}
LONG = {
    "the checkpoint is late and nobody else tells of pods": Kind(1, api=SILENT),
    "PodResources is late, and of pods is known what is remembered": Kind(1, api=REMEMBERED, beside=True),
    "kubelet alone knows of the pod, by PodResources": Kind(1, api=SILENT, beside=True, by_kubelet=True),
    "the journal is removed when the daemon dies": Kind(1, loses=True),
    "the journal is removed, and nobody else tells of pods": Kind(1, api=SILENT, loses=True),
    "the journal is removed, and the checkpoint's form is unknown": Kind(1, beside=True, form=False, loses=True),
    "its form is unknown": Kind(1, beside=True, form=False),
    "the Pods API is late, and it alone tells": Kind(1, api=SILENT, pods_api=True, late=False),
    "its form is unknown, and the Pods API and PodResources are late": Kind(
        1, api=SILENT, pods_api=True, beside=True, form=False, by_kubelet=True
    ),
}


@pytest.mark.parametrize(
    "kind",
    [
        *(pytest.param(kind, id=name) for name, kind in KINDS.items()),
        *(pytest.param(kind, id=name, marks=pytest.mark.nightly) for name, kind in LONG.items()),
    ],
)
def test_the_key_of_a_pod_is_never_sold_again_however_late_kubelet_tells_of_it(kind: Kind) -> None:
    found = views.explore(kind)
    tell(f"{kind}: {found.worlds} worlds, {found.granted} grants, {found.unsafe} unsafe")
    assert found.unsafe == 0
    assert found.granted, "once it has ended it is free again"


@pytest.mark.parametrize(
    ("module", "name", "broken", "kind"),
    [
        pytest.param(device_ids, "SETTLE_NS", 2_000_000_000, Kind(1), id="kubelet has no time to write down a grant"),
        pytest.param(
            *(kubelet_view, "unaccounted", lambda state: "", Kind(1, beside=True, form=False, by_kubelet=True)),
            id="a pod that PodResources leaves out is taken for one without ids",
        ),
    ],
)
def test_it_is_told_that_the_key_of_a_pod_that_lives_is_sold(
    module: object, name: str, broken: object, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, broken)
    assert views.explore(kind, until_unsafe=True).unsafe
