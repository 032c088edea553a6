"""The reflector against the API server double over real sockets: whatever happens, the core hears the truth."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from nodeward.core.events import ApiBack, ApiLost, PodGone, PodSeen, PodsListed
from nodeward.core.workload import PodSpec
from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.kubernetes.reflector import Missing, PodReader
from nodeward.neighbours.sockets.kube_http import Endpoint
from nodeward_sim.doubles.apiserver import ApiServer
from tests.component.kubernetes.support import WITHIN_S, Ears, HandClock, pod, reflecting, settings_for, until
from tests.rigs.stories import told_in


@asynccontextmanager
async def api(tokens: tuple[str, ...] = ()) -> AsyncIterator[ApiServer]:
    async with asyncio.timeout(WITHIN_S), ApiServer(tokens) as server:
        yield server


async def watching(server: ApiServer) -> None:
    await until(lambda: server.open_watches == 1)


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[ApiServer, Ears]]:
    async with api() as server, reflecting(settings_for(server)) as ears:
        await ears.wait(PodsListed)
        await watching(server)
        yield server, ears


def slept_over(clock: HandClock, count: int) -> bool:
    return len(clock.slept) > count


def names(listed: PodsListed) -> list[str]:
    return [found.name for found in listed.pods]


@told_in(api)
async def test_a_page_that_expires_starts_the_list_again_and_half_a_list_is_never_told(server: ApiServer) -> None:
    server.faults.expire_pages = 2
    for number in range(7):
        server.add_pod(pod(f"p{number}"))
    async with reflecting(settings_for(server, page_limit=3)) as ears:
        listed = await ears.wait(PodsListed)
        assert names(listed) == [f"p{number}" for number in range(7)]
        assert listed.as_of == 0, "as of the moment before its first page"
        assert sum("limit=3" in request for request in server.requests) == 2 + 2 + 3
        assert ears.all(ApiLost) == []


@told_in(watched, gives=2)
async def test_a_bookmark_moves_the_version_from_which_the_next_watch_starts(server: ApiServer, ears: Ears) -> None:
    version = server.add_pod(pod("elsewhere", node="n2"))
    server.send_bookmarks()
    server.kill_watches()
    await until(lambda: f"resourceVersion={version}&" in server.requests[-1])
    assert len(ears.all(PodsListed)) == 1


@pytest.mark.parametrize("as_status", [False, True], ids=["as an ERROR event", "as HTTP status"])
@told_in(api)
async def test_410_means_list_again(server: ApiServer, as_status: bool) -> None:
    server.faults.expired_as_status = as_status
    server.add_pod(pod("a"))
    async with reflecting(settings_for(server)) as ears:
        await ears.wait(PodsListed)
        await watching(server)
        server.kill_watches()  # and before the next watch opens, its version is compacted
        server.add_pod(pod("b", node="n2"))
        server.compact()
        assert names(await ears.wait(PodsListed, 2)) == ["a"]
        assert ears.all(ApiLost) == []


@told_in(watched, gives=2)
async def test_an_error_event_that_is_no_410_is_a_pause_and_the_watch_goes_on(server: ApiServer, ears: Ears) -> None:
    server.send_error(500, "InternalError", "etcd is gone")
    assert "etcd is gone" in (await ears.wait(ApiLost)).why
    await until(lambda: sum("watch=1" in request for request in server.requests) == 2)
    server.add_pod(pod("b"))
    assert (await ears.wait(PodSeen)).pod.name == "b"
    assert len(ears.all(PodsListed)) == 1


@told_in(watched, gives=2)
async def test_garbage_means_list_again_for_what_it_was_nobody_knows(server: ApiServer, ears: Ears) -> None:
    server.send_raw(b"<html>proxy error</html>\n")
    assert "cannot be read" in (await ears.wait(ApiLost)).why
    await ears.wait(PodsListed, 2)
    await ears.wait(ApiBack, 2)


@told_in(api)
async def test_a_watch_that_says_nothing_for_too_long_is_left(server: ApiServer) -> None:
    async with reflecting(settings_for(server, watch_s=1, watch_silence_s=1.1)) as ears:
        server.faults.silent_watches = True
        await ears.wait(PodsListed)
        assert "no answer in time" in (await ears.wait(ApiLost)).why
        server.faults.silent_watches = False
        server.add_pod(pod("a"))
        assert (await ears.wait(PodSeen)).pod.name == "a"
        await ears.wait(ApiBack, 2)


@told_in(api)
async def test_500s_are_pauses_that_grow_and_are_said_once(server: ApiServer) -> None:
    clock = HandClock()
    server.faults.refuse.extend([500, 503, 429, 500])
    async with reflecting(settings_for(server), clock) as ears:
        await ears.wait(PodsListed)
        assert [type(event) for event in ears.heard[:3]] == [ApiLost, ApiBack, PodsListed]
        assert len(clock.slept) == 4
        assert clock.slept[3] > clock.slept[0]


@told_in(api)
async def test_a_server_that_ends_each_watch_at_once_is_not_hammered(server: ApiServer) -> None:
    clock = HandClock()
    async with reflecting(settings_for(server), clock) as ears:
        await ears.wait(PodsListed)
        for number in range(3):
            await until(lambda: server.open_watches == 1)
            server.kill_watches()
            await until(partial(slept_over, clock, number))
        assert ears.all(ApiLost) == []


@told_in(watched, gives=2)
async def test_a_server_that_was_away_is_watched_from_where_it_was_left(server: ApiServer, ears: Ears) -> None:
    port = server.port
    await server.stop()
    await ears.wait(ApiLost)
    server.add_pod(pod("meanwhile"))
    await server.start(port=port)
    assert (await ears.wait(PodSeen)).pod.name == "meanwhile"
    await ears.wait(ApiBack, 2)
    assert len(ears.all(PodsListed)) == 1


@told_in(api, tokens=("first",))
async def test_401_looks_at_the_token_file_again(server: ApiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    settings = settings_for(server, endpoint=Endpoint(server.url, token_file=str(token)))
    async with reflecting(settings) as ears:
        await ears.wait(PodsListed)
        await watching(server)
        server.tokens = {"second"}
        server.kill_watches()
        lost = await ears.wait(ApiLost)
        assert "401" in lost.why
        assert "first" not in lost.why
        token.write_text("second\n")
        await ears.wait(ApiBack, 2)


async def test_over_a_unix_socket_too(tmp_path: Path) -> None:
    server = await ApiServer().start(unix_socket=str(tmp_path / "api.sock"))
    server.add_pod(pod("a"))
    endpoint = Endpoint(server.url, unix_socket=str(tmp_path / "api.sock"))
    async with asyncio.timeout(WITHIN_S), server, reflecting(settings_for(server, endpoint=endpoint)) as ears:
        assert names(await ears.wait(PodsListed)) == ["a"]


@told_in(api)
async def test_one_pod_is_read_for_a_decision_that_waits(server: ApiServer) -> None:
    server.add_pod(pod("a"))
    hashed = {"kubernetes.io/config.hash": "hash"}
    for name, notes in (("static", {**hashed, "kubernetes.io/config.mirror": "hash"}), ("forged", hashed)):
        made = pod(name)
        made["metadata"] = {"name": name, "namespace": "default", "uid": f"m-{name}", "annotations": notes}
        server.add_pod(made)
    async with aclosing(PodsClient(settings_for(server), HandClock())) as client:
        read = PodReader(client).read_pod
        assert isinstance(await read("default", "a", "u-a"), PodSeen)
        assert isinstance(await read("default", "static", "hash"), PodSeen)
        assert await read("default", "zz", "u") == Missing("the API server has no pod default/zz", gone=True)
        server.faults.refuse.append(503)
        busy, forged = await read("default", "a", "u-a"), await read("default", "forged", "hash")
        other, upwards = await read("default", "a", "u-other"), await read("..", "a", "u-a")
    found = [(isinstance(one, Missing), getattr(one, "gone", None)) for one in (busy, forged, other, upwards)]
    assert found == [(True, False), (True, True), (True, True), (True, True)]


@told_in(api)
async def test_a_read_that_hangs_ends_in_time(server: ApiServer) -> None:
    server.faults.hang = True
    async with aclosing(PodsClient(settings_for(server), HandClock())) as client:
        missing = await PodReader(client).read_pod("default", "a", "u-a")
    assert isinstance(missing, Missing)
    assert "no answer in time" in missing.why


@told_in(api)
async def test_the_server_is_heard_of_by_lists_changes_and_bookmarks(server: ApiServer) -> None:
    clock, settings = HandClock(), settings_for(server)
    client = PodsClient(settings, clock)
    assert client.heard_ns == 0
    async with reflecting(settings, clock, client) as ears:
        await ears.wait(PodsListed)
        await watching(server)
        for something in (lambda: server.add_pod(pod("a")), server.send_bookmarks):
            clock.ns += 60_000_000_000
            assert client.heard_ns < clock.ns
            something()
            await until(lambda: client.heard_ns == clock.ns)


def folded(ears: Ears) -> dict[str, int]:
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
