"""How soon kubelet's list follows what somebody else takes: bounds that hold by construction, on virtual time."""

import asyncio

from tests.unit.app.keyed_node import INSIDE, KEYS, VM, Node, play

MOVED_S, SWEPT_S = 0.5, 2.5
"""Issue 5, B6."""
PHASES = 40


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
