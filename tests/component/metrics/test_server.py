"""The metrics server on a real socket: what it serves, and that no client can make it hold or do much."""

import asyncio
import contextlib
import errno
import gc
import logging
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import pytest

from nodeward.core.ports import Pace
from nodeward.host import pace
from nodeward.host.lanes import ThreadLane
from nodeward.host.loop import new_loop
from nodeward.people.metrics import server
from nodeward.people.metrics.exposition import PIECE_CHARACTERS, pieces
from nodeward.people.metrics.mapping import metrics
from nodeward.people.rows import NodeView
from tests.component.daemon.test_metrics import port
from tests.patience import scaled
from tests.rigs.stories import under_way
from tests.unit.people.metrics.build import full_node, node

WITHIN_S = scaled(30.0)
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: nodeward\r\n\r\n"


class Site:
    def __init__(self, draw: Callable[[], NodeView]) -> None:
        self.draw, self.port = draw, 0
        self.threads: list[int] = []
        """In which each picture was drawn."""
        self.waits: list[str] = []

    def drawn(self, _: Pace) -> NodeView:
        self.threads.append(threading.get_ident())
        return self.draw()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)

    async def get(self, request: bytes = SCRAPE) -> tuple[bytes, bytes]:
        reader, writer = await self.open()
        try:
            return await answer(reader, writer, request)
        finally:
            writer.close()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[bytes, bytes]:
    async with asyncio.timeout(WITHIN_S):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
        return head, await reader.readexactly(int(length.split(b":")[1]))


async def ended(reader: asyncio.StreamReader) -> bytes:
    got = b""
    async with asyncio.timeout(WITHIN_S):
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(1 << 20):
                got += part
    return got


@contextlib.asynccontextmanager
async def site(caplog: pytest.LogCaptureFixture, draw: Callable[[], NodeView] = node) -> AsyncIterator[Site]:
    caplog.set_level(logging.INFO, "nodeward.people.metrics.server")
    loop = asyncio.get_running_loop()
    own = Site(draw)
    lane = ThreadLane("metrics", loop, lambda _: None)
    texts = server.Texts(lambda: own.drawn, lane)
    try:
        async with under_way(server.run("127.0.0.1", 0, texts, waiting=lambda: own.waits)):
            own.port = await port(caplog)
            yield own
    finally:
        lane.close(WITHIN_S)


async def test_kubelets_probe_reads_what_the_daemon_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    asked = SCRAPE.replace(b"/metrics", server.READY.encode())
    async with site(caplog) as own:
        own.waits = ["nri: not connected yet", "kube: not reached yet"]
        head, body = await own.get(asked)
        assert b" 503 " in head
        assert body == b"not ready: nri: not connected yet\nnot ready: kube: not reached yet\n"
        own.waits = []
        head, body = await own.get(asked)
        assert (b" 200 " in head, body) == (True, b"ready\n")


async def test_prometheus_reads_the_text_and_strangers_are_told_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async with site(caplog) as own:
        head, body = await own.get()
        assert b" 200 " in head
        assert b"text/plain; version=0.0.4; charset=utf-8" in head
        assert b"\nnodeward_misc_capacity{" in body
        for request, status in (
            (b"GET / HTTP/1.1\r\nHost: nodeward\r\n\r\n", b" 404 "),
            (b"POST /metrics HTTP/1.1\r\nHost: nodeward\r\nContent-Length: 0\r\n\r\n", b" 405 "),
            (b"GET /metrics?name=x HTTP/1.1\r\nHost: nodeward\r\n\r\n", b" 200 "),
        ):
            assert status in (await own.get(request))[0]


async def test_a_picture_is_drawn_on_the_lane_and_once_for_all_who_ask_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> NodeView:
        begun.set()
        assert go_on.wait(WITHIN_S)
        return node()

    async with site(caplog, slowly) as own:
        asked = [asyncio.create_task(own.get()) for _ in range(20)]
        assert await asyncio.to_thread(begun.wait, WITHIN_S)
        go_on.set()
        assert all(b" 200 " in head for head, _ in await asyncio.gather(*asked))
        assert len(own.threads) == 1
        assert threading.get_ident() not in own.threads


async def test_a_text_is_drawn_anew_once_it_is_old(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "FRESH_S", 0.0)

    async with site(caplog) as own:
        reader, writer = await own.open()
        for _ in range(3):
            await answer(reader, writer, SCRAPE)
        writer.close()
        assert len(own.threads) == 3


async def test_a_picture_sets_off_no_collection_and_one_that_cannot_be_drawn_is_said_and_the_next_one_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collects: list[bool] = []

    def draw() -> NodeView:
        collects.append(gc.isenabled())
        if len(collects) == 1:
            raise ValueError("no such colour")
        return node()

    async with site(caplog, draw) as own:
        for status in (b" 503 ", b" 200 "):
            assert status in (await own.get())[0]
            assert gc.isenabled()
        assert "metrics=failed error=ValueError: no such colour" in caplog.messages
    assert collects == [False, False]


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX: "], ids=["nothing", "half a request"])
async def test_a_client_that_sends_no_whole_request_is_sent_away(
    sent: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.2)

    async with site(caplog) as own:
        reader, writer = await own.open()
        writer.write(sent)
        assert await ended(reader) == b""
        writer.close()


@contextlib.asynccontextmanager
async def scraping(own: Site) -> AsyncIterator[socket.socket]:
    """A client that has asked, and takes little at a time."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", own.port))
        await asyncio.get_running_loop().sock_sendall(client, SCRAPE)
        yield client


async def test_a_client_that_takes_no_answer_is_sent_away_and_others_are_served(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 10 * WITHIN_S)
    monkeypatch.setattr(server, "FRESH_S", 10 * WITHIN_S)
    given_up = asyncio.Event()
    held: list[int] = []
    abort = server._Connection.abort

    def told(connection: server._Connection) -> None:
        assert connection.transport is not None
        held.append(connection.transport.get_write_buffer_size())
        given_up.set()
        abort(connection)

    monkeypatch.setattr(server._Connection, "abort", told)
    view = full_node(pods=1200, per_pod=3)

    async with site(caplog, lambda: view) as own:
        _, whole = await own.get()  # it is drawn, however long that takes
        monkeypatch.setattr(server, "REQUEST_S", scaled(1.0))
        async with scraping(own) as slow:
            assert (await own.get())[1] == whole
            await given_up.wait()
            reader, writer = await asyncio.open_connection(sock=slow.dup())
            assert 0 < len(await ended(reader)) < len(whole)
            assert held[0] <= 4 * PIECE_CHARACTERS
            writer.close()


async def test_a_prometheus_that_vanishes_within_an_answer_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 10 * WITHIN_S)  # it is not their time that is up
    lost: list[BaseException | None] = []
    connection_lost = server._Connection.connection_lost

    def told(connection: server._Connection, why: Exception | None) -> None:
        lost.append(why)
        connection_lost(connection, why)

    monkeypatch.setattr(server._Connection, "connection_lost", told)
    view = full_node(pods=1200, per_pod=3)
    scrapes = server.MOST_CONNECTIONS + 8

    async with site(caplog, lambda: view) as own:
        _, whole = await own.get()
        for _ in range(scrapes):
            async with scraping(own) as gone:
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                assert (await asyncio.get_running_loop().sock_recv(gone, 100)).startswith(b"HTTP/1.1 200")
        while len(lost) < scrapes:
            await asyncio.sleep(0.01)
        assert len((await own.get())[1]) >= len(whole) * 0.9
        assert [line for line in caplog.records if line.levelno >= logging.WARNING] == []


async def test_many_connections_hold_no_more_than_the_bound_and_do_not_lock_prometheus_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 10 * WITHIN_S)  # it is not their time that is up

    async with site(caplog) as own:
        kept = await own.open()
        await answer(*kept, SCRAPE)
        others = [await own.open() for _ in range(10 * server.MOST_CONNECTIONS)]
        gone = [asyncio.create_task(ended(reader)) for reader, _ in others]
        while sum(not one.done() for one in gone) > server.MOST_CONNECTIONS:
            await asyncio.sleep(0.01)
        assert b" 200 " in (await answer(*kept, SCRAPE))[0]
        assert b" 200 " in (await own.get())[0]
        for _, writer in (kept, *others):
            writer.close()
        await asyncio.gather(*gone)


def test_a_scrape_of_a_full_node_takes_the_loop_less_than_five_milliseconds_at_a_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given 500 pods of three containers, when they are scraped, then no callback of the loop has worked longer.

    It is the loop thread's own processor time, which other work on the machine does not lengthen."""
    worked: list[float] = []
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        worked.append(time.thread_time() - began)

    view = full_node(pods=500, per_pod=3)

    async def story() -> None:
        async with site(caplog, lambda: view) as own:
            await own.get()
            reader, writer = await own.open()
            monkeypatch.setattr(asyncio.Handle, "_run", timed)
            writer.write(SCRAPE)
            await reader.readuntil(b"# HELP")
            async with asyncio.timeout(WITHIN_S):
                while b"container_misc_events" not in await reader.read(1 << 16):
                    pass
            monkeypatch.setattr(asyncio.Handle, "_run", run)
            writer.close()

    monkeypatch.setattr(server, "FRESH_S", 0.0)
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:  # whose callbacks Python can look at
        runner.run(story())
    assert max(worked) < 0.005


def test_the_drawing_thread_pauses_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(pace, "time", SimpleNamespace(sleep=pauses.append))
    families = list(metrics(full_node(pods=500, per_pod=3)))
    of_families = len(pauses)
    samples = sum(len(family.samples) for family in families)
    lengths = [len(piece) for piece in pieces(families)]
    assert (samples > 20_000, sum(lengths) > 2**21) == (True, True)
    assert max(lengths) < 128 * 1024, "none keeps the interpreter to itself for long"
    assert of_families > samples / 256
    assert len(pauses) - of_families > samples / 200


def test_the_interface_of_a_link_local_address_reaches_the_kernel() -> None:
    """Given one that is nobody's, then the kernel says that it is not here; without interface it takes none."""

    async def story() -> None:
        lane = ThreadLane("metrics", asyncio.get_running_loop(), lambda _: None)
        try:
            await server.run("fe80::9:7:4:3%lo", 0, server.Texts(lambda: lambda _: node(), lane))
        finally:
            lane.close(WITHIN_S)

    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(OSError, match="fe80::9:7:4:3") as caught:
        runner.run(asyncio.wait_for(story(), WITHIN_S))
    assert caught.value.errno == errno.EADDRNOTAVAIL
