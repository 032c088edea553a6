"""Every way in which kubelet's words come late, of one pod; and that a broken rule of whom to believe is told by one.

Beside another pod: tests/component/test_histories.py."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeward.engine.ledger import device_ids, kubelet_view, loss, sums
from nodeward.engine.ledger import step as stepping
from nodeward.engine.state.ledger import Ledger
from nodeward.engine.state.root import State
from nodeward.model.events import KeysHeld
from tests.told import tell
from tests.unit.engine.ledger.views import REMEMBERED, RUNS, SILENT, Kind, explore

Breaks = Callable[[pytest.MonkeyPatch], None]
KINDS = {
    "the checkpoint is late": Kind(1),
    "the checkpoint is late and nobody else tells of pods": Kind(1, api=SILENT),
    "PodResources is late, and of pods is known what is remembered": Kind(1, api=REMEMBERED, beside=True),
    "kubelet alone knows of the pod": Kind(1, by_kubelet=True),
    "kubelet alone knows of the pod, by PodResources": Kind(1, api=SILENT, beside=True, by_kubelet=True),
    "the journal is removed when the daemon dies": Kind(1, loses=True),
    "the journal is removed, and nobody else tells of pods": Kind(1, api=SILENT, loses=True),
    "the journal is removed, and the checkpoint's form is unknown": Kind(1, beside=True, form=False, loses=True),
    "the journal is removed, and the Pods API alone tells": Kind(1, api=SILENT, pods_api=True, form=False, loses=True),
    "its form is unknown": Kind(1, beside=True, form=False),
    "its form is unknown, and the pod is older than the journal": Kind(1, beside=True, form=False, by_kubelet=True),
    "the Pods API is late, and it alone tells": Kind(1, api=SILENT, pods_api=True, late=False),
    "its form is unknown, and the Pods API is late": Kind(1, api=SILENT, pods_api=True, form=False),
    "its form is unknown, and the Pods API and PodResources are late": Kind(
        1, api=SILENT, pods_api=True, beside=True, form=False, by_kubelet=True
    ),
}


LONG = {
    "PodResources is late, and of pods is known what is remembered",
    "the journal is removed when the daemon dies",
    "the journal is removed, and nobody else tells of pods",
    "the journal is removed, and the checkpoint's form is unknown",
    "its form is unknown",
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in LONG)) for name in KINDS])
def test_the_key_of_a_pod_is_never_sold_again_however_late_kubelet_tells_of_it(name: str) -> None:
    found = explore(KINDS[name])
    tell(f"{name}: {found.worlds} worlds, {found.granted} grants, {found.unsafe} unsafe")
    assert found.unsafe == 0
    assert found.granted, "once it has ended it is free again"


def _viewed(change: Callable[[Ledger, KeysHeld], KeysHeld]) -> Breaks:
    """Views are taken for others than they are."""

    def broken(state: State, event: KeysHeld) -> Ledger:
        return viewed(state, change(state.ledger, event))

    viewed = stepping._viewed
    return lambda patch: patch.setattr(stepping, "_viewed", broken)


def _by_partial_views(patch: pytest.MonkeyPatch) -> None:
    _viewed(lambda ledger, event: replace(event, fault=""))(patch)


def _in_no_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(device_ids, "SETTLE_NS", 2_000_000_000)


def _without_a_journal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(device_ids, "recalled", lambda offer, grants, at_ns, seq: offer)


def _before_the_first(patch: pytest.MonkeyPatch) -> None:
    def broken(state: State, key: str) -> tuple[str, str]:
        code, why = withheld(state, key)
        return (code, why) if state.ledger.viewed else ("", "")

    withheld = sums.withheld
    patch.setattr(sums, "withheld", broken)


def _whatever_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stepping, "_stays", lambda state: False)


def _by_any_answer(patch: pytest.MonkeyPatch) -> None:
    for module in (kubelet_view, stepping):
        patch.setattr(module, "stands_in", lambda state: bool(state.ledger.held_fault) and state.ledger.list_answers)


def _whoever_is_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kubelet_view, "unaccounted", lambda state: "")


def _by_any_list(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kubelet_view, "_lists_all", lambda ledger: ledger.of_kubelet is not None)


def _a_loss_is_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loss, "is_frozen", lambda ledger: False)


def _a_loss_is_over_soon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loss, "SETTLE_NS", 2_000_000_000)


@pytest.mark.parametrize(
    ("breaks", "kind"),
    [
        pytest.param(_a_loss_is_nothing, Kind(1, loses=True), id="a journal that was removed is taken for none"),
        pytest.param(_a_loss_is_over_soon, Kind(1, loses=True), id="kubelet is given no time after a loss"),
        pytest.param(_in_no_time, Kind(1), id="kubelet is given no time to write down a grant"),
        pytest.param(_without_a_journal, Kind(1), id="what was granted is forgotten by a restart"),
        pytest.param(_before_the_first, Kind(1, by_kubelet=True), id="keys are granted before kubelet's first view"),
        pytest.param(
            _by_any_list,
            Kind(1, api=SILENT, pods_api=True, late=False),
            id="a list of kubelet's pods from before it admitted a pod is believed",
        ),
        pytest.param(
            _by_partial_views,
            Kind(1, api=REMEMBERED, beside=True),
            id="what PodResources leaves out is taken for free",
        ),
        pytest.param(
            _viewed(lambda ledger, event: replace(event, read_ns=0)),
            Kind(2, RUNS, dies=False),
            id="a view is taken for as new as it comes",
        ),
        pytest.param(
            _whatever_is_lost,
            Kind(2, RUNS, api=REMEMBERED, beside=True, late=False, dies=False),
            id="ids are released while a view is lost",
        ),
        pytest.param(
            _by_any_answer,
            Kind(1, api=SILENT, beside=True, form=False, by_kubelet=True),
            id="PodResources is believed with nobody to compare it with",
        ),
        pytest.param(
            _whoever_is_left_out,
            Kind(1, beside=True, form=False, by_kubelet=True),
            id="a pod that PodResources leaves out is taken for one without ids",
        ),
        pytest.param(
            _whoever_is_left_out,
            Kind(1, beside=True, form=False),
            id="and ids of one that it leaves out are released",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            _whatever_is_lost,
            Kind(1, api=SILENT, pods_api=True, beside=True, form=False),
            id="ids are released by a Pods API that is late",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_broken_rule_sells_the_key_of_a_pod_that_lives(
    breaks: Breaks, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    assert explore(kind, until_unsafe=True).unsafe
