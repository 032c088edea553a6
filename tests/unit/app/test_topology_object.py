"""The session of the NodeResourceTopology object, by an API server that a test writes: when and how often it writes."""

import asyncio
from collections.abc import Callable

import pytest

from nodeward.app.node.topology_object import Session
from nodeward.edges.kube.errors import KubeAwayError
from nodeward.model.zones import NodeZones, Zone
from nodeward.wire.topology_object import Found, body, found
from tests.unit.app.test_reload import YieldingClock


class Api:
    """Has the object, and each write's time. `spoils`: somebody edits it after each; `away`: so many looks fail."""

    def __init__(self, spoils: bool = False, away: int = 0) -> None:
        self.node, self.clock, self.spoils, self.away = "n1", YieldingClock(), spoils, away
        self.there: Found | None = None
        self.writes, self.notes = list[float](), list[tuple[bool, str]]()

    async def look(self) -> Found | None:
        await asyncio.sleep(0)
        if self.away:
            self.away -= 1
            raise KubeAwayError("away")
        return self.there

    async def write(self, wanted: NodeZones, _: Found | None) -> None:
        self.writes.append(self.clock.now_ns() / 1e9)
        said = body("n1", "u", wanted)
        self.there = found(said.replace(b'"node-0"', b'"mine"') if self.spoils else said)

    async def until_touched(self, _: str) -> None:
        await asyncio.Event().wait()

    @staticmethod
    def writers(_: Found) -> str:
        return "written by nfd"

    def note(self, _: str, ready: bool, detail: str) -> None:
        self.notes.append((ready, detail))


def play(api: Api, wanted: Callable[[], NodeZones | None], until_s: float) -> list[float]:
    """When it was written in so long; seconds between two writes."""

    async def story() -> None:
        session = Session(api, wanted, lambda: None, api.clock, api.note)  # type: ignore[arg-type]
        running = asyncio.create_task(session.forever())
        async with asyncio.timeout(30):
            while api.clock.now_ns() < until_s * 1e9:
                await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
    return [after - before for before, after in zip(api.writes, api.writes[1:], strict=False)]


def zones(name: str = "node-0") -> NodeZones:
    return NodeZones((Zone(name, "Node"),))


def test_cpus_that_change_all_the_time_are_written_once_a_second_at_most() -> None:
    asked = iter(range(100_000))
    gaps = play(Api(), lambda: zones(str(next(asked))), 60)
    assert len(gaps) > 20
    assert min(gaps) >= 1


def test_what_is_there_is_not_written_again() -> None:
    api = Api()
    play(api, zones, 600)
    assert len(api.writes) == 1
    assert api.notes[-1] == (True, "written")


def test_who_edits_it_again_and_again_is_answered_less_and_less_often() -> None:
    gaps = play(Api(spoils=True), zones, 600)
    assert gaps[0] < 5
    assert min(gaps[-3:]) >= 30


@pytest.mark.parametrize("wanted", [None, NodeZones()], ids=["unknown", "nothing"])
def test_nothing_is_written_that_is_not_wanted(wanted: NodeZones | None) -> None:
    api = Api()
    play(api, lambda: wanted, 60)
    assert api.writes == []


def test_an_api_server_that_was_away_gets_it_when_it_is_back() -> None:
    api = Api(away=4)
    play(api, zones, 120)
    assert len(api.writes) == 1
    assert api.notes[0] == (False, "away")
