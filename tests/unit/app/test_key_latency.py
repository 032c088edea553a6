"""How soon kubelet's list follows what somebody else takes: bounds that hold by construction, on virtual time."""

import asyncio
from collections.abc import Sequence

import pytest

from nodeward.edges.cgroups.keys import Homes, KeyReader
from nodeward.model.events import KeysRead
from tests.unit.app.keyed_node import INSIDE, KEYS, VM, Node, play

MOVED_S, SWEPT_S = 0.5, 2.5
"""Issue 5, B6."""
PHASES = 40
FULL = 500


def test_what_moves_the_nodes_counter_is_withheld_in_half_a_second_at_any_moment() -> None:
    took: list[float] = []

    async def story(node: Node) -> None:
        for phase in range(PHASES):
            await asyncio.sleep(phase * 0.0347)
            node.charge(VM, 1)
            took.append(await node.until(KEYS - 1, MOVED_S))
            node.charge(VM, -1)
            await node.until(KEYS, 30)

    play(story)

    assert len(took) == PHASES

    assert max(took) > 0.05, "else nothing was waited for, and this shows nothing"


def test_of_500_pods_the_first_look_after_it_moved_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a full node, then between the charge and kubelet's list lie as few looks as with one pod: one that was
    under way, and the next. Each may take LANE_S here; `bench keys` says how long one really takes."""
    looks: list[KeysRead | None] = []
    really = KeyReader.look

    def look(
        reader: KeyReader, keys: Sequence[str], homes: Homes, due: bool, as_of: int, *, sweep: bool
    ) -> KeysRead | None:
        found = really(reader, keys, homes, due, as_of, sweep=sweep)
        looks.append(found)
        return found

    monkeypatch.setattr(KeyReader, "look", look)
    spent: list[int] = []

    async def story(node: Node) -> None:
        for phase in range(5):
            await asyncio.sleep(phase * 0.0347)
            before = len(looks)
            node.charge(VM, 1)
            await node.until(KEYS - 1, MOVED_S)
            spent.append(len(looks) - before)
            assert len(node.core.state.pods.sandbox_of) == FULL
            node.charge(VM, -1)
            await node.until(KEYS, 30)

    play(story, others=FULL - 1)

    assert len(spent) == 5
    assert 1 <= max(spent) <= 2


def test_what_leaves_the_nodes_counter_as_it_was_is_withheld_in_two_and_a_half_seconds() -> None:
    """Given a pod that keeps its id while its machine ends, and foreign ones that begin in the same instant."""
    took: list[float] = []

    async def story(node: Node) -> None:
        for phase in range(PHASES):
            await asyncio.sleep(phase * 0.147)
            node.charge(INSIDE, -1)
            node.charge(VM, 1)
            took.append(await node.until(KEYS - 1, SWEPT_S))
            node.charge(VM, -1)
            node.charge(INSIDE, 1)
            await node.until(KEYS, 30)

    play(story)

    assert len(took) == PHASES

    assert max(took) > MOVED_S, "else the sweep was never needed, and this shows nothing"
