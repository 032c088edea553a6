"""Several deciders of one call: the first that refuses it decides, and what one replaces is handed on."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field

import pytest

from nodeward.app.relay.run import Chain
from nodeward.model.relayed import Call, Pass, Refuse, Replace, Verdict

CALL = Call(1, 1, "/held", 0, held=True)
NO = Refuse(9, "no")


@dataclass
class One:
    """A decider with this verdict, which it has later where it `waits`."""

    verdict: Verdict = field(default_factory=Pass)
    waits: bool = False
    path: str = "/held"
    heard: list[object] = field(default_factory=list)

    def holds(self, path: str) -> bool:
        return path == self.path

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        self.heard.append((message, within_ns))
        return self._later() if self.waits else self.verdict

    async def _later(self) -> Verdict:
        await asyncio.sleep(0)
        return self.verdict

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        self.heard.append(why)
        return self.verdict


def verdict(*deciders: One) -> Verdict:
    ticks = iter(range(100))
    found = Chain(deciders, lambda: next(ticks)).decide(CALL, b"came", 10)
    if not isinstance(found, Awaitable):
        assert not any(one.waits for one in deciders)
        return found

    async def later() -> Verdict:
        return await found

    return asyncio.run(later())


@pytest.mark.parametrize("waits", [False, True])
def test_a_replaced_request_is_handed_on_and_a_refusal_ends_it(waits: bool) -> None:
    other, last = One(NO, path="/other"), One(waits=waits)
    first, second = One(Replace(b"one"), waits), One(Replace(b"two"))
    assert verdict(other, first, second, last) == Replace(b"two")
    assert [one.heard for one in (other, first, second, last)] == [[], [(b"came", 9)], [(b"one", 8)], [(b"two", 7)]]
    assert verdict(One(waits=waits), One()) == Pass()
    after = One()
    assert verdict(One(Replace(b"one")), One(NO, waits), after) == NO
    assert after.heard == []


def test_what_nobody_decided_is_told_to_all_and_refused_by_the_first_that_does() -> None:
    deciders = One(), One(NO), One(Refuse(1, "later")), One(path="/other")
    chain = Chain(deciders, lambda: 0)
    assert chain.undecided(CALL, None, "odd", ending=False) == NO
    assert [one.heard for one in deciders] == [["odd"], ["odd"], ["odd"], []]
    assert (chain.holds("/other"), chain.holds("/nothing")) == (True, False)
