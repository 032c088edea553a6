"""The wall clock is for display: however somebody sets it, the ledger grants, withholds and releases the same."""

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeward.engine.apply import apply
from nodeward.model import events as ev
from nodeward.model.decision import Decision
from tests.unit.engine.build import SECOND
from tests.unit.engine.ledger.asking import ID, TDX, Node, launcher


@dataclass
class Jumping(Node):
    """A node whose wall clock is set anew before each event."""

    walls: list[int] = field(default_factory=list)

    def tell(self, event: ev.Event) -> Decision:
        wall_ns = self.walls[self.state.seq % len(self.walls)] if self.walls else self.at_ns
        stamped = replace(event, at_ns=self.at_ns, wall_ns=wall_ns, seq=self.state.seq + 1)
        self.state, decision = apply(self.state, stamped)
        assert not decision.faults, decision.faults
        self.goals.update((str(goal.target), goal) for goal in decision.goals)
        return decision


def life(walls: list[int]) -> list[object]:
    """What a node does from its daemon's start over a grant to its release."""
    node = Jumping(capacity={"tdx": 2}, walls=walls)
    node.begin()
    seen: list[object] = [node.listed, node.admit("a", ID[0]), node.start(ID[0])]
    node.charged, node.root = {"a": 1}, 2
    seen += [node.settle().listed, node.allocate(ID[1])]
    node.charged, node.root, node.held = {}, 0, {}
    node.tell(launcher("a", terminal=True))
    for _ in range(6):
        node.views(2)
        node.sample()
        seen += [node.listed, list(node.state.ledger.offers["tdx"].grants)]
    return [*seen, node.commits, node.goals[f"offer:{TDX}"]]


@settings(max_examples=20)
@given(st.lists(st.integers(0, 1 << 62), min_size=1, max_size=7))
def test_a_wall_clock_that_jumps_changes_nothing(walls: list[int]) -> None:
    assert life(walls) == life([SECOND])
