"""A pass in which much has changed is told bit by bit, and means what it meant when it was told at once."""

import asyncio
from collections.abc import Callable

import pytest

from nodeward.edges.cgroups import sampler
from nodeward.model import events as ev
from nodeward.model.decision import Decision
from tests.goals import target
from tests.lanes import InlineLane
from tests.unit.edges.cgroups.test_sampler_news import ROOT, Sampled
from tests.unit.engine.build import EPC, SECOND

PODS, PER_POD = 7, 3
CGROUPS = PODS * (1 + PER_POD)
LIMIT = 4096


class Node(Sampled):
    """An engine that hears what passes of the sampler itself tell, and the turns of a loop in which it does."""

    def __init__(self) -> None:
        super().__init__(PODS, PER_POD)
        self.heard: list[tuple[int, ev.Sampled, Decision]] = []
        self.turn = 0
        self.between: Callable[[int], None] = lambda _: None
        self.lane = InlineLane()
        self.passes = sampler._Passes(self.lane, self.reader, None, self.known, self.tell)

    def known(self) -> dict[str, ev.MiscReading]:
        return {path: read.reading for path, read in self.told.state.limits.readings.items()}

    def tell(self, event: ev.Event) -> int:
        decision = self.told(event)
        if isinstance(event, ev.Sampled):
            self.heard.append((self.turn, event, decision))
        return self.told.state.seq

    def start(self) -> None:
        self.passes.begin(lambda: sampler.Scope(self.paths, (), lambda _: True), lambda: self.told.state.seq)

    def whole_pass(self) -> list[tuple[int, ev.Sampled, Decision]]:
        """What one pass told, with the turn of the loop; `between` is called in each turn."""
        self.told.at_ns += SECOND
        self.heard, self.turn = [], 0

        async def play() -> None:
            self.start()
            self.lane.drain()
            while self.passes._busy:
                self.turn += 1
                self.between(self.turn)
                await asyncio.sleep(0)

        asyncio.run(play())
        return self.heard

    def every_usage_changes(self) -> None:
        for path in self.paths:
            if path.count("/") > 2:
                self.kernel.charge(ROOT + path, EPC, 1)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    """One that has been settled for a while, and hears at most five cgroups at once."""
    monkeypatch.setattr(sampler, "MOST_TOLD", 5)
    node = Node()
    node.whole_pass()  # it tells of the capacity as well, so limits have to be reached again
    for path in node.paths:
        node.told(ev.Reached((target(f"misc.max:{EPC}:{path}"),)))
    node.whole_pass()
    assert dict.fromkeys(node.states().values()) == {"enforced": None}
    return node


def test_a_pass_in_which_all_changed_is_told_a_few_cgroups_a_turn_of_the_loop(node: Node) -> None:
    node.every_usage_changes()
    heard = node.whole_pass()

    assert [len(event.readings) for _, event, _ in heard] == [5, 5, 5, 5, 5, 3]
    assert [turn for turn, _, _ in heard] == list(range(6)), "each has a turn of its own"
    assert list(dict.fromkeys(event.as_of for _, event, _ in heard)) == [heard[0][1].as_of]
    assert [event.rest_same for _, event, _ in heard] == [False] * 5 + [True]
    assert node.known() == node.reader.read(node.paths).readings
    assert dict.fromkeys(node.states().values()) == {"enforced": None}


def test_a_drift_told_in_an_early_part_is_repaired_once_a_pass(node: Node) -> None:
    for path in node.paths:
        node.limit(path, 1)
    repaired = []
    for _ in range(4):
        notes = [note.values[0] for _, _, decision in node.whole_pass() for note in decision.notes]
        repaired.append(sorted(map(str, notes)))

    assert repaired == [sorted(node.paths)] * 3 + [[]]
    assert {len(times) for times in node.told.state.limits.repairs_ns.values()} == {3}


def test_what_somebody_else_reads_between_two_parts_stays(node: Node) -> None:
    first, last = node.paths[0], node.paths[-1]
    newer = ev.MiscReading(limit={EPC: LIMIT}, usage={EPC: 77})

    def between(turn: int) -> None:
        if turn == 2:
            node.told(ev.Sampled({first: newer, last: newer}, as_of=node.told.state.seq))

    node.every_usage_changes()
    node.between = between
    node.whole_pass()

    assert [node.known()[path] for path in (first, last)] == [newer, newer]


def test_no_pass_begins_while_one_is_being_told(node: Node) -> None:
    node.every_usage_changes()
    node.between = lambda _: node.start()
    heard = node.whole_pass()
    assert len(dict.fromkeys(event.as_of for _, event, _ in heard)) == 1
    assert node.lane.drain() == 0
