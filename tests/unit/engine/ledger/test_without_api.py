"""Every way in which kubelet's Pods API can fall silent; and that a broken rule of when it is gone is told by one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeward.engine.ledger import pods_api_loss
from nodeward.engine.ledger import step as stepping
from nodeward.engine.state.ledger import Ledger
from nodeward.engine.state.root import State
from nodeward.model.events import PodsOfKubelet
from tests.told import tell
from tests.unit.engine.ledger.without_api import explore

Breaks = Callable[[pytest.MonkeyPatch], None]


def test_what_was_promised_by_the_word_of_the_pods_api_stands_while_the_pod_may_be_there() -> None:
    found = explore()
    tell(f"without the Pods API: {found.worlds} worlds, {found.granted} grants, {found.unsafe} unsafe")
    assert found.unsafe == 0
    assert found.without, "a kubelet that has none any more is not waited for"
    assert found.granted > found.without, "nor one that tells again"


def _by(serves: Callable[[Ledger], bool]) -> Breaks:
    return lambda patch: patch.setattr(stepping, "serves_without_api", serves)


def _too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pods_api_loss, "GONE_NS", 2_000_000_000)


def _of_all_pods(patch: pytest.MonkeyPatch) -> None:
    def dropped(state: State, of_kubelet: PodsOfKubelet | None) -> PodsOfKubelet | None:
        return replace(of_kubelet, pods=()) if of_kubelet is not None else None

    patch.setattr(stepping, "still_there", dropped)


def _over_several_kubelets(patch: pytest.MonkeyPatch) -> None:
    """The time of one that was killed soon counts for the next, as it did once."""
    patch.setattr(stepping, "restarts", lambda ledger: 0)


@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param(_over_several_kubelets, id="several kubelets that begin are given the time of one"),
        pytest.param(_too_early, id="a kubelet that begins is given no time"),
        pytest.param(_by(lambda ledger: ledger.of_kubelet_absent), id="an API of the same kubelet is gone for good"),
        pytest.param(
            _by(lambda ledger: bool(ledger.of_kubelet_fault) and pods_api_loss.restarts(ledger) > 0),
            id="an API that hangs is gone for good",
        ),
        pytest.param(_of_all_pods, id="pods with a sandbox are forgotten with it"),
    ],
)
def test_a_broken_rule_sells_the_key_of_a_pod_that_is_there(breaks: Breaks, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch)
    assert explore(until_unsafe=True).unsafe
