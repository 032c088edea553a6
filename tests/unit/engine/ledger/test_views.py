"""Every way in which kubelet's words come late, of one pod; and that a broken rule of whom to believe is told by one.

`make nightly` plays those that take seconds; beside another pod: tests/component/test_histories.py."""

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
    found = explore(kind)
    tell(f"{kind}: {found.worlds} worlds, {found.granted} grants, {found.unsafe} unsafe")
    assert found.unsafe == 0
    assert found.granted, "once it has ended it is free again"


def _puts(module: object, name: str, value: object) -> Breaks:
    return lambda patch: patch.setattr(module, name, value)


def _viewed(change: Callable[[KeysHeld], KeysHeld]) -> Breaks:
    """Views are taken for others than they are."""
    viewed = stepping._viewed
    return _puts(stepping, "_viewed", lambda state, event: viewed(state, change(event)))


def _before_the_first(state: State, key: str) -> tuple[str, str]:
    return _WITHHELD(state, key) if state.ledger.viewed else ("", "")


def _by_any_answer(patch: pytest.MonkeyPatch) -> None:
    for module in (kubelet_view, stepping):
        patch.setattr(module, "stands_in", lambda state: bool(state.ledger.held_fault) and state.ledger.list_answers)


def _lists(ledger: Ledger) -> bool:
    return ledger.of_kubelet is not None


_WITHHELD = sums.withheld
SOON_NS = 2_000_000_000
WHATEVER_IS_LOST = _puts(stepping, "_stays", lambda state: False)
WHOEVER_IS_LEFT_OUT = _puts(kubelet_view, "unaccounted", lambda state: "")
BROKEN: dict[str, tuple[Breaks, Kind]] = {
    "a journal that was removed is taken for none": (
        _puts(loss, "is_frozen", lambda ledger: False),
        Kind(1, loses=True),
    ),
    "kubelet is given no time after a loss": (_puts(loss, "SETTLE_NS", SOON_NS), Kind(1, loses=True)),
    "kubelet is given no time to write down a grant": (_puts(device_ids, "SETTLE_NS", SOON_NS), Kind(1)),
    "what was granted is forgotten by a restart": (
        _puts(device_ids, "recalled", lambda offer, grants, at_ns, seq: offer),
        Kind(1),
    ),
    "keys are granted before kubelet's first view": (
        _puts(sums, "withheld", _before_the_first),
        Kind(1, by_kubelet=True),
    ),
    "what PodResources leaves out is taken for free": (
        _viewed(lambda event: replace(event, fault="")),
        Kind(1, api=REMEMBERED, beside=True),
    ),
    "a view is taken for as new as it comes": (
        _viewed(lambda event: replace(event, read_ns=0)),
        Kind(2, RUNS, dies=False),
    ),
    "PodResources is believed with nobody to compare it with": (
        _by_any_answer,
        Kind(1, api=SILENT, beside=True, form=False, by_kubelet=True),
    ),
    "a pod that PodResources leaves out is taken for one without ids": (
        WHOEVER_IS_LEFT_OUT,
        Kind(1, beside=True, form=False, by_kubelet=True),
    ),
}
BROKEN_LONG: dict[str, tuple[Breaks, Kind]] = {
    "a list of kubelet's pods from before it admitted a pod is believed": (
        _puts(kubelet_view, "_lists_all", _lists),
        Kind(1, api=SILENT, pods_api=True, late=False),
    ),
    "ids are released while a view is lost": (
        WHATEVER_IS_LOST,
        Kind(2, RUNS, api=REMEMBERED, beside=True, late=False, dies=False),
    ),
    "and ids of one that it leaves out are released": (WHOEVER_IS_LEFT_OUT, Kind(1, beside=True, form=False)),
    "ids are released by a Pods API that is late": (
        WHATEVER_IS_LOST,
        Kind(1, api=SILENT, pods_api=True, beside=True, form=False),
    ),
}


@pytest.mark.parametrize(
    ("breaks", "kind"),
    [
        *(pytest.param(*one, id=name) for name, one in BROKEN.items()),
        *(pytest.param(*one, id=name, marks=pytest.mark.nightly) for name, one in BROKEN_LONG.items()),
    ],
)
def test_a_broken_rule_sells_the_key_of_a_pod_that_lives(
    breaks: Breaks, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    assert explore(kind, until_unsafe=True).unsafe
