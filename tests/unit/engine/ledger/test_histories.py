"""Every history of a small node against the production step, and that a broken rule is told by one.

Two keys and more: tests/component/test_histories.py, which `make nightly` plays."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest

from nodeward.engine.ledger import asks, device_ids, rule, sums
from nodeward.engine.ledger.rule import Claim, Count
from nodeward.engine.state.ledger import Grant, Offer
from nodeward.model.workload import PodUid
from tests.told import tell
from tests.unit.engine.ledger.alone import Alones
from tests.unit.engine.ledger.checked import Check
from tests.unit.engine.ledger.histories import Explored, explore
from tests.unit.engine.ledger.together import weigh


def test_no_history_of_one_key_has_an_unsafe_grant_or_a_start_without_a_key() -> None:
    """Up to three VMs begin or end within one sample."""
    check = Check(Alones(1))
    found = explore(1, 3, played=check.played, met=check.met)
    tell(
        f"1 key, each world: {found.worlds} worlds, {found.wrong} wrong; counted apart: {found.overtaken.total()} "
        f"grants whose key foreigners took after the root's last read, {found.put_off} starts put off for want of a key"
    )
    assert found.beside_charged
    assert (bool(found.overtaken.total()), bool(found.put_off)) == (True, True)
    assert found.again, "the id of a pod that has ended goes to the next before it is released"
    assert found.wrong == 0, found
    assert check.unlike == []


Breaks = Callable[[pytest.MonkeyPatch], None]


def _counts(change: Callable[[Count], Count]) -> Breaks:
    def broken(capacity: int, reserve: int, roots: tuple[int, ...], pods: Iterable[Claim]) -> Count:
        return change(rule.count(capacity, reserve, roots, pods))

    return lambda patch: patch.setattr(sums, "count", broken)


def _adds_up(patch: pytest.MonkeyPatch) -> None:
    def broken(pods: Iterable[Claim]) -> Claim:
        return rule.together(Claim(one.entitled + max(one.charged, default=0), one.charged) for one in pods)

    patch.setattr(sums, "together", broken)


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


@dataclass(frozen=True)
class Mutant:
    """How a rule is broken, and on which node that is played."""

    breaks: Breaks = lambda patch: None
    size: int = 1
    moved: int = 0
    ended: int = 9
    order: str = "RPRP"


MUTANTS = {
    "one read of the root": Mutant(size=2, moved=1, ended=0, order="RPP"),
    "no second read of the pods": Mutant(size=2, moved=2, ended=0, order="RPR"),
    "foreign use is forgotten": Mutant(_counts(lambda one: replace(one, free=one.free + one.foreign))),
    "fresh ids are granted for nothing": Mutant(_ignores_fresh_ids),
    "an id is released by a view from before its grant": Mutant(releases_early),
    "a start is let through without a look": Mutant(_lets_every_start_through),
    "more is granted than was published": Mutant(_ignores_what_was_published),
}
"""Beside those that a node with one key does not tell by each world: tests/component/test_histories.py."""


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_history_tells_that_a_rule_is_broken(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.breaks(monkeypatch)
    assert _played(mutant, until_wrong=True).wrong


@pytest.mark.parametrize(
    "broken", [_counts(lambda one: replace(one, free=one.free + one.foreign)), _lets_every_start_through]
)
def test_what_is_wrong_in_a_history_is_wrong_where_ids_are_played_one_by_one(
    broken: Breaks, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert weigh(Alones(1), 0).wrong


def test_a_history_tells_that_what_is_promised_and_held_adds_up_to_more_than_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is unsafe then; but the last key is never granted while the others are in use, as it is by the rule
    itself (tests/component/test_histories.py)."""
    _adds_up(monkeypatch)
    assert not _played(Mutant(size=2, ended=0)).beside_charged


def _played(mutant: Mutant, *, until_wrong: bool = False) -> Explored:
    return explore(mutant.size, mutant.moved, mutant.ended, order=mutant.order, until_wrong=until_wrong)
