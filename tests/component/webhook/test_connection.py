"""One connection over real TLS: requests behind one another, in pieces, half ones, and what is no HTTP."""

import asyncio
import json

import pytest

from nodeward.edges.webhook.doors import Patience
from tests.component.kube.support import until
from tests.component.webhook.support import EPC, GOOD, HEAD, REQUEST, Serving, served
from tests.patience import scaled
from tests.unit.edges.webhook.rounds import container, pod_of, review

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of the next answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split()[1]), await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))


@served()
async def test_requests_written_behind_one_another_are_answered_in_their_order(here: Serving) -> None:
    reader, writer = await here.open()
    writer.write((REQUEST + HEALTH) * 300 + REQUEST[:-9])
    for _ in range(300):
        assert json.loads((await answer(reader))[1])["response"]["allowed"] is True
        assert await answer(reader) == (200, b"ok\n")
    writer.write(REQUEST[-9:])
    assert (await answer(reader))[0] == 200
    writer.close()
    assert here.server.counts.allowed == 301


@served()
async def test_others_are_served_between_requests_behind_one_another(here: Serving) -> None:
    crowd, writer = await here.open()
    other, second = await here.open()
    writer.write(HEALTH * 2000)
    second.write(REQUEST)
    seen: list[str] = []

    async def last() -> None:
        for _ in range(2000):
            await answer(crowd)
        seen.append("crowd")

    async def once() -> None:
        await answer(other)
        seen.append("other")

    await asyncio.gather(last(), once())
    assert seen == ["other", "crowd"]
    writer.close()
    second.close()


@served()
async def test_a_request_in_pieces_of_one_byte_is_answered_and_holds_nothing_then(here: Serving) -> None:
    reader, writer = await here.open()
    for place in range(len(REQUEST)):
        writer.write(REQUEST[place : place + 1])
        await asyncio.sleep(0)
    assert (await answer(reader))[0] == 200
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in GOOD)
    writer.write(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n")
    assert (await answer(reader))[0] == 200
    assert here.server.arriving == 0
    writer.close()


NO_HTTP = {
    "garbage": (b"\x00\x01\x02garbage\r\n\r\n", 400),
    "garbage behind a request": (REQUEST + b"\xff\xff\xff\r\n\r\n", 200),
    "a head without end": (b"GET / HTTP/1.1\r\nHost: " + b"x" * 70_000, 400),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "two lengths": (HEAD.encode() + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "a length that is none": (HEAD.encode() + b"Content-Length: -1\r\n\r\n", 400),
    "length and chunks": (HEAD.encode() + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "a chunk that is none": (HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    "a change to another protocol": (HEALTH[:-2] + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00", 200),
    "a tunnel": (b"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n\x16\x03", 404),
}


@pytest.mark.parametrize(("sent", "status"), NO_HTTP.values(), ids=NO_HTTP)
@served()
async def test_what_is_no_http_gets_a_status_and_the_end(here: Serving, sent: bytes, status: int) -> None:
    reader, writer = await here.open()
    writer.write(sent)
    assert (await answer(reader))[0] == status
    rest = await reader.read()
    assert rest == b"" or rest.startswith(b"HTTP/1.1 400 ")
    writer.close()
    await until(lambda: len(here.server.doors) == 0)
    assert here.server.arriving == 0
    assert (await here.post(GOOD))[0] == 200
    assert here.server.counts.faults == 0


@served()
async def test_an_answer_to_half_a_request_can_be_read_while_the_rest_is_written(here: Serving) -> None:
    reader, writer = await here.open()
    size = 4 << 20
    writer.write(f"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
    assert (await answer(reader))[0] == 404
    writer.write(b" " * size)
    await writer.drain()
    assert await reader.read() == b""
    writer.close()
    await until(lambda: len(here.server.doors) == 0)
    assert here.server.doors.counts.slow == 0


@served()
async def test_who_never_writes_the_rest_of_an_answered_request_is_closed_and_not_called_slow(here: Serving) -> None:
    reader, writer = await here.open()
    writer.write(b"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
    assert (await answer(reader))[0] == 404
    assert await reader.read() == b""
    writer.close()
    assert here.server.doors.counts.slow == 0


@served()
async def test_an_answer_to_head_has_no_body(here: Serving) -> None:
    reader, writer = await here.open()
    writer.write(HEALTH.replace(b"GET", b"HEAD") + HEALTH)
    assert b"\r\nContent-Length: 3\r\n" in await reader.readuntil(b"\r\n\r\n")
    assert await answer(reader) == (200, b"ok\n")
    writer.close()


@served(patience=Patience(idle_s=0.3))
async def test_a_connection_that_is_idle_for_long_is_closed(here: Serving) -> None:
    reader, writer = await here.open()
    writer.write(REQUEST)
    assert (await answer(reader))[0] == 200
    assert await reader.read() == b""
    writer.close()
    assert here.server.doors.counts.slow == 0


@served(patience=Patience(request_s=scaled(60.0)))
async def test_who_takes_its_answers_late_gets_all_of_them(here: Serving) -> None:
    """While nobody takes answers no more requests are read, so that what waits is bounded."""
    many = pod_of(*(container(f"c{number}", {EPC: "4Ki"}) for number in range(500)))
    body = json.dumps(review(many)).encode()
    request = f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body
    times = 250
    reader, writer = await here.open()
    asking = asyncio.create_task(_write(writer, request, times))
    reviewed = -1
    while reviewed != here.server.counts.allowed:  # until it does not go on
        reviewed = here.server.counts.allowed
        await asyncio.sleep(scaled(0.5))
    assert 0 < reviewed < times
    assert not asking.done()
    for _ in range(times):
        assert (await answer(reader))[0] == 200
    await asking
    assert here.server.counts.allowed == times
    writer.close()


async def _write(writer: asyncio.StreamWriter, request: bytes, times: int) -> None:
    for _ in range(times):
        writer.write(request)
        await writer.drain()
