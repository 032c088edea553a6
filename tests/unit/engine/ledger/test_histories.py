"""Every history of a small node against the production step, and that a broken rule is told by one.

Two keys and more: tests/component/test_histories.py, which `make nightly` plays."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from nodeward.engine.ledger import asks, device_ids, rule, sums
from nodeward.engine.ledger.rule import Claim, Count
from nodeward.engine.state.ledger import Grant, Offer
from nodeward.model.workload import PodUid
from tests.told import tell
from tests.unit.engine.ledger.alone import Alones
from tests.unit.engine.ledger.together import weigh


def test_no_history_of_one_key_has_an_unsafe_grant_or_a_start_without_a_key() -> None:
    """Up to three VMs begin or end within one sample."""
    found = weigh(Alones(1), 3)
    tell(f"1 key, by the states of its id: {found}")
    assert found.beside_charged
    assert found.naive
    assert found.starts
    assert found.wrong == 0, found


Breaks = Callable[[pytest.MonkeyPatch], None]


def _counts(change: Callable[[Count], Count]) -> Breaks:
    def broken(capacity: int, reserve: int, roots: tuple[int, ...], pods: Iterable[Claim]) -> Count:
        return change(rule.count(capacity, reserve, roots, pods))

    return lambda patch: patch.setattr(sums, "count", broken)


def _ignores_fresh_ids(patch: pytest.MonkeyPatch) -> None:
    def broken(offer: Offer, names: list[str], reused: object, free: int, at_ns: int, seq: int) -> Offer | None:
        return replace(offer, grants={**offer.grants, **{name: Grant(at_ns, seq) for name in names}})

    patch.setattr(asks, "device_ids", _Gate(allocate=broken))


def _ignores_what_was_published(patch: pytest.MonkeyPatch) -> None:
    def broken(offer: Offer, names: list[str], reused: list[str], free: int, at_ns: int, seq: int) -> Offer | None:
        after = device_ids.allocate(replace(offer, published=9), names, reused, free, at_ns, seq)
        return after and replace(after, published=max(0, offer.published - 1))

    patch.setattr(asks, "device_ids", _Gate(allocate=broken))


def _lets_every_start_through(patch: pytest.MonkeyPatch) -> None:
    def broken(offer: Offer, uid: PodUid, names: int, charged: int, capacity: int, used: int, others: int) -> Offer:
        return replace(offer, passed={**offer.passed, uid: names})

    patch.setattr(asks, "device_ids", _Gate(start=broken))


def releases_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(device_ids, "ABSENT_VIEWS", 1)
    patch.setattr(device_ids, "_is_late", lambda grant, as_of: True)


def forgets_the_ended(patch: pytest.MonkeyPatch) -> None:
    """As it was before: an id's next owner was lost behind an ended pod that kubelet still named."""

    def broken(offer: Offer, ended: Iterable[PodUid]) -> Offer:
        return replace(gate_living(offer, ended), over={})

    gate_living = device_ids.living
    patch.setattr(device_ids, "living", broken)


class _Gate:
    """The gate's functions, but for these."""

    def __init__(self, **broken: object) -> None:
        self.__dict__.update(vars(device_ids) | broken)


@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param(_counts(lambda one: replace(one, free=one.free + one.foreign)), id="foreign use is forgotten"),
        pytest.param(_ignores_fresh_ids, id="fresh ids are granted for nothing"),
        pytest.param(releases_early, id="an id is released by a view from before its grant"),
        pytest.param(_lets_every_start_through, id="a start is let through without a look"),
        pytest.param(_ignores_what_was_published, id="more is granted than was published"),
    ],
)
def test_a_history_tells_that_a_rule_is_broken(breaks: Breaks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside those that a node with one key does not tell: tests/component/test_histories.py."""
    breaks(monkeypatch)
    assert weigh(Alones(1), 0).wrong
