"""Every way in which a start can end, and in which kubelet's Pods API can fall silent, against the engine; and that a
broken rule of either is told."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from nodeward.engine.ledger import asks, device_ids, pods_api_loss
from nodeward.engine.ledger import step as stepping
from nodeward.engine.state.ledger import Ledger
from nodeward.engine.state.root import State
from nodeward.engine.tables import without
from nodeward.model.events import PodsOfKubelet
from tests.told import tell
from tests.unit.engine.ledger import without_api
from tests.unit.engine.ledger.starts import ASKS, GONE, IDLE, OVER, explore

_RESUMED, _PENDING = device_ids.resumed, device_ids.pending
SOON_NS = 2_000_000_000


class _Gate:
    """The gate's functions, but for these."""

    def __init__(self, **broken: object) -> None:
        self.__dict__.update(vars(device_ids) | broken)


@pytest.mark.parametrize("dies", [False, True], ids=["one daemon", "the daemon dies"])
def test_nobody_is_let_start_beside_a_start_that_may_still_take_the_last_key(
    dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the daemon dies a container is there after two ticks of two seconds."""
    monkeypatch.setattr(device_ids, "MADE_NS", device_ids.SETTLE_NS)
    found = explore(dies=dies)
    tell(f"ends of starts: {found.worlds} worlds, b let by a's stage {found.let}, {found.unsafe} unsafe")
    assert found.unsafe == 0
    assert set(found.let) == {(ASKS,), (IDLE,), (OVER,), (GONE,)}, "one that is over stands in nobody's way for ever"


def _by_a_stop_of_before(table: Mapping[object, object], keys: Iterable[object]) -> Mapping[object, object]:
    return table if all(isinstance(one, int) for one in table.values()) else without(table, keys)


@pytest.mark.parametrize(
    ("module", "name", "broken", "dies"),
    [
        pytest.param(
            device_ids, "resumed", lambda offer, known, charged, at_ns: offer, True, id="starts of before are forgotten"
        ),
        pytest.param(
            device_ids,
            "resumed",
            lambda offer, known, charged, at_ns: offer if known else _RESUMED(offer, known, charged, at_ns),
            True,
            id="starts of before are looked for in the first view alone, which may be in part",
        ),
        pytest.param(device_ids, "MADE_NS", 0, True, id="starts of before are over where no container is there yet"),
        pytest.param(
            stepping,
            "device_ids",
            _Gate(SETTLE_NS=0),
            False,
            id="a stop that is told late ends the start that was let through after it, at once",
        ),
        pytest.param(
            stepping,
            "may_take",
            lambda state, uid, resource: False,
            False,
            id="a start ends though its container is there",
        ),
        pytest.param(asks, "without", _by_a_stop_of_before, False, id="a stop from before a start ends it"),
        pytest.param(
            device_ids,
            "settled",
            lambda offer, charged: replace(offer, passed={}),
            False,
            id="a sample ends a start that has taken nothing",
        ),
        pytest.param(
            device_ids,
            "pending",
            lambda offer, charged, without_uid=None: 0,
            False,
            id="starts under way are not counted",
        ),
    ],
)
def test_a_broken_rule_lets_somebody_start_without_a_key(
    module: object, name: str, broken: object, dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_ids, "MADE_NS", device_ids.SETTLE_NS)
    monkeypatch.setattr(module, name, broken)
    assert explore(until_unsafe=True, dies=dies).unsafe


def test_a_rule_that_counts_one_start_under_way_at_a_time_is_told_by_three_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_ids, "pending", lambda offer, charged, uid=None: min(1, _PENDING(offer, charged, uid)))
    assert explore(3, until_unsafe=True).unsafe


# ---- the Pods API ----------------------------------------------------------------------------------------------------


def test_what_was_promised_by_the_word_of_the_pods_api_stands_while_the_pod_may_be_there() -> None:
    found = without_api.explore()
    tell(f"without the Pods API: {found.worlds} worlds, {found.granted} grants, {found.unsafe} unsafe")
    assert found.unsafe == 0
    assert found.without, "a kubelet that has none any more is not waited for"
    assert found.granted > found.without, "nor one that tells again"


def _forgotten(state: State, of_kubelet: PodsOfKubelet | None) -> PodsOfKubelet | None:
    return replace(of_kubelet, pods=()) if of_kubelet is not None else None


def _though_it_hangs(ledger: Ledger) -> bool:
    return bool(ledger.of_kubelet_fault) and pods_api_loss.restarts(ledger) > 0


@pytest.mark.parametrize(
    ("module", "name", "broken"),
    [
        pytest.param(
            stepping,
            "restarts",
            lambda ledger: 0,
            id="several kubelets that begin are given the time of one",
            marks=pytest.mark.nightly,
        ),
        pytest.param(pods_api_loss, "GONE_NS", SOON_NS, id="a kubelet that begins is given no time"),
        pytest.param(
            stepping,
            "serves_without_api",
            lambda ledger: ledger.of_kubelet_absent,
            id="an API of the same kubelet is gone for good",
        ),
        pytest.param(stepping, "serves_without_api", _though_it_hangs, id="an API that hangs is gone for good"),
        pytest.param(stepping, "still_there", _forgotten, id="pods with a sandbox are forgotten with it"),
    ],
)
def test_a_broken_rule_sells_the_key_of_a_pod_that_is_there(
    module: object, name: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, broken)
    assert without_api.explore(until_unsafe=True).unsafe
