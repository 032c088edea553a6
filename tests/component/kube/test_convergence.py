"""Whatever happens to the API server and in whatever order, what was told adds up to what is there."""

import asyncio
import random
from collections.abc import Callable

import pytest

from nodeward.doubles.apiserver import ApiServer
from nodeward.model.events import PodGone, PodSeen, PodsListed
from nodeward.model.workload import PodSpec
from tests.component.kube.support import WITHIN_S, Ears, pod, reflecting, settings_for, until


def folded(ears: Ears) -> dict[str, int]:
    """What a listener that believes every event now holds: amounts by pod name."""
    pods: dict[str, PodSpec] = {}
    for event in ears.heard:
        if isinstance(event, PodsListed):
            pods = {found.uid: found for found in event.pods}
        elif isinstance(event, PodSeen):
            pods[event.pod.uid] = event.pod
        elif isinstance(event, PodGone):
            pods.pop(event.uid, None)
    return {found.name: found.containers[0].declared["sgx_epc"] for found in pods.values()}


class World:
    """Random deeds on the server, and what is there after them."""

    def __init__(self, server: ApiServer, chance: random.Random) -> None:
        self.server = server
        self.chance = chance
        self.truth: dict[str, int] = {}
        self.deeds: list[Callable[[], None]] = [
            *[self.add, self.change, self.delete] * 3,
            self.add_elsewhere,
            server.kill_watches,
            lambda: server.kill_watches(mid_line=True),
            lambda: server.kill_watches(abort=True),
            lambda: server.send_raw(b"garbage\n"),
            lambda: server.send_error(410, "Expired", "too old"),
            lambda: server.send_error(500, "InternalError", "harm"),
            lambda: server.faults.refuse.append(503),
            server.send_bookmarks,
            server.compact,
        ]

    def add(self) -> None:
        name, amount = f"p{self.chance.randrange(10)}", self.chance.randrange(1, 100)
        if name not in self.truth:
            self.server.add_pod(pod(name, epc=str(amount)))
            self.truth[name] = amount

    def add_elsewhere(self) -> None:
        self.server.add_pod(pod(f"other-{self.server.version}", node="n2"))

    def change(self) -> None:
        if self.truth:
            name, amount = self.chance.choice(sorted(self.truth)), self.chance.randrange(1, 100)
            self.server.update_pod(pod(name, epc=str(amount)))
            self.truth[name] = amount

    def delete(self) -> None:
        if self.truth:
            name = self.chance.choice(sorted(self.truth))
            self.server.delete_pod("default", name)
            del self.truth[name]


@pytest.mark.parametrize("seed", range(4))
async def test_what_was_told_adds_up_to_what_is_there(seed: int) -> None:
    async with asyncio.timeout(2 * WITHIN_S), ApiServer() as server:
        world = World(server, random.Random(seed))
        async with reflecting(settings_for(server, page_limit=3)) as ears:
            for _ in range(60):
                world.chance.choice(world.deeds)()
                for _ in range(world.chance.randrange(8)):
                    await asyncio.sleep(0)
            server.faults.refuse.clear()
            await until(lambda: folded(ears) == world.truth and server.open_watches == 1)
