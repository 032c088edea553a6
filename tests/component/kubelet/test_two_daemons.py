"""Two daemons with a run_dir each beside one kubelet: the one that came first offers the keys, the other waits."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from nodeward.doubles.kubelet import Asks
from nodeward.edges.kubelet import plugin
from tests.component.kubelet.node import TDX, WITHIN_S, Life, Node, ids, node, until


def standings(life: Life) -> list[str]:
    """How it stood, one after the other."""
    return [told.standing.value for told in life.said.told]


async def _waits_and_follows(found: Node) -> None:
    first = found.live(ids(4))
    await found.becomes((4, 4))
    await until(lambda: first.said.standing == "serving", "the first one has heard that it is registered")
    (socket,) = found.sockets
    second = found.live(ids(8))
    await until(lambda: second.said.standing == "rival", "the second one yields")
    assert second.said.told[-1].why == f"another nodeward listens at {socket}"
    first.offer(ids(4, 3))
    await found.becomes((4, 3))
    await found.kubelet.admit("a", TDX, (Asks("app"),))
    assert (len(first.said.asked), second.said.asked) == (1, [])
    assert (found.sockets, standings(first), standings(second)) == ([socket], ["serving"], ["rival"])
    await first.end()
    await found.becomes((8, 8))
    await until(lambda: second.said.standing == "serving", "the second one has heard that it is registered")
    assert (standings(second), found.kubelet.held("a", TDX)) == (["rival", "serving"], ("tdx-key-0000",))


def test_the_second_says_who_has_the_name_and_serves_once_that_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given one that serves, when another begins, then kubelet never hears of that, until the first ends."""
    monkeypatch.setattr(plugin, "RIVAL_S", 0.3)

    async def story(home: Path) -> None:
        async with asyncio.timeout(3 * WITHIN_S), node(home) as found:
            await _waits_and_follows(found)

    with tempfile.TemporaryDirectory(prefix="kub") as folder:
        asyncio.run(story(Path(folder)))
