"""Every way in which a start can end, against the engine; and that a broken rule of its end is told by one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest

from nodeward.engine.ledger import asks, device_ids
from nodeward.engine.ledger import step as stepping
from nodeward.engine.tables import without
from tests.told import tell
from tests.unit.engine.ledger.starts import ASKS, GONE, IDLE, OVER, explore

Breaks = Callable[[pytest.MonkeyPatch], None]
_RESUMED = device_ids.resumed


class _Gate:
    """The gate's functions, but for these."""

    def __init__(self, **broken: object) -> None:
        self.__dict__.update(vars(device_ids) | broken)


def test_nobody_is_let_start_beside_a_start_that_may_still_take_the_last_key() -> None:
    found = explore()
    tell(f"ends of starts: {found.worlds} worlds, b let by a's stage {found.let}, {found.unsafe} unsafe")
    assert found.unsafe == 0
    assert set(found.let) == {(ASKS,), (IDLE,), (OVER,), (GONE,)}, "one that is over stands in nobody's way for ever"


@pytest.fixture
def _made_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """By when a container is there: here a tick is two seconds, and it takes two at most."""
    monkeypatch.setattr(device_ids, "MADE_NS", device_ids.SETTLE_NS)


@pytest.mark.usefixtures("_made_soon")
def test_nobody_is_let_start_beside_one_whom_the_daemon_has_let_start_before_it_died() -> None:
    found = explore(dies=True)
    tell(
        f"ends of starts, the daemon dies: {found.worlds} worlds, b let by a's stage {found.let}, {found.unsafe} unsafe"
    )
    assert found.unsafe == 0
    assert set(found.let) == {(ASKS,), (IDLE,), (OVER,), (GONE,)}, "nor does one of before"


@pytest.mark.usefixtures("_made_soon")
@pytest.mark.parametrize(
    ("name", "broken"),
    [
        pytest.param("resumed", lambda offer, known, charged, at_ns: offer, id="starts of before are forgotten"),
        pytest.param(
            "resumed",
            lambda offer, known, charged, at_ns: offer if known else _RESUMED(offer, known, charged, at_ns),
            id="starts of before are looked for in the first view alone, which may be in part",
        ),
        pytest.param("MADE_NS", 0, id="starts of before are over where no container is there yet"),
    ],
)
def test_a_broken_rule_of_restarts_lets_somebody_start_without_a_key(
    name: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_ids, name, broken)
    assert explore(until_unsafe=True, dies=True).unsafe


def _at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stepping, "device_ids", _Gate(SETTLE_NS=0))


def _though_it_is_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stepping, "may_take", lambda state, uid, resource: False)


def _by_a_stop_of_before(patch: pytest.MonkeyPatch) -> None:
    def kept(table: Mapping[object, object], keys: Iterable[object]) -> Mapping[object, object]:
        return table if all(isinstance(one, int) for one in table.values()) else without(table, keys)

    patch.setattr(asks, "without", kept)


def _by_one_sample_that_shows_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(device_ids, "settled", lambda offer, charged: replace(offer, passed={}))


def _never_booked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(device_ids, "pending", lambda offer, charged, without_uid=None: 0)


@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param(_at_once, id="a stop that is told late ends the start that was let through after it, at once"),
        pytest.param(_though_it_is_there, id="a start ends though its container is there"),
        pytest.param(_by_a_stop_of_before, id="a stop from before a start ends it"),
        pytest.param(_by_one_sample_that_shows_nothing, id="a sample ends a start that has taken nothing"),
        pytest.param(_never_booked, id="starts under way are not counted"),
    ],
)
def test_a_broken_rule_lets_somebody_start_without_a_key(breaks: Breaks, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch)
    assert explore(until_unsafe=True).unsafe


def test_a_rule_that_counts_one_start_under_way_at_a_time_is_told_by_three_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pending = device_ids.pending
    monkeypatch.setattr(device_ids, "pending", lambda offer, charged, uid=None: min(1, pending(offer, charged, uid)))
    assert explore().unsafe == 0
    assert explore(3, until_unsafe=True).unsafe
