"""Who comes to the webhook's door over real TLS: clients that stop, drip, shake no hands, or are too many; and one
connection: requests behind one another, in pieces, half ones, and what is no HTTP."""

import asyncio
import json
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.features.admission.door.connection import Common, Connection
from nodeward.features.admission.door.doors import Patience
from nodeward.features.admission.door.server import WebhookServer
from nodeward.features.settings import Settings
from nodeward.host.tls import shake_hands
from nodeward.programs.webhook import decider
from tests.component.kubernetes.support import until
from tests.component.webhook.support import EPC, GOOD, HEAD, REQUEST, Serving, answer, served
from tests.patience import scaled
from tests.unit.features.admission.rounds import container, pod_of, review

SLOW = {
    "that says nothing": b"",
    "in the middle of a header": f"{HEAD}X-More: ".encode(),
    "in the middle of a body": f"{HEAD}Content-Length: 99999\r\n\r\n{{".encode(),
}


@pytest.mark.parametrize("start", SLOW.values(), ids=SLOW)
@served(patience=Patience(request_s=scaled(1.0)))
async def test_a_client_that_stops_is_closed_and_one_that_drips_too(
    here: Serving, caplog: pytest.LogCaptureFixture, start: bytes
) -> None:
    reader, writer = await here.open()
    writer.write(start)

    async def drip() -> None:
        while True:
            writer.write(b"x" if start else b"")
            await asyncio.sleep(0.05)

    dripping = asyncio.create_task(drip())
    try:
        assert await reader.read(1) == b""
    except ConnectionError:
        pass
    finally:
        dripping.cancel()
    await until(lambda: here.server.doors.counts.slow == 1)
    assert "turned_away=slow times=1 because=" in caplog.text
    assert (await here.post(GOOD))[0] == 200


@served(patience=Patience(handshake_s=0.3))
async def test_a_handshake_that_does_not_end_is_ended(here: Serving, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
    writer.write(b"\x16\x03\x01")
    assert await reader.read() == b""
    writer.close()
    await until(lambda: here.server.doors.counts.failed_handshakes == 1)
    assert "turned_away=handshake times=1 because=TLS: " in caplog.text


@served()
async def test_the_log_says_at_once_who_does_not_trust_the_certificate_but_not_who_only_looks(
    here: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """As an API server whose configuration has another caBundle, and as a probe that only connects."""
    _, writer = await asyncio.open_connection("127.0.0.1", here.port)
    writer.close()
    await until(lambda: here.server.doors.counts.failed_handshakes == 1)
    assert caplog.text == ""
    with pytest.raises(ssl.SSLCertVerificationError):
        await replace(here, trust=ssl.create_default_context()).post(GOOD)
    await until(lambda: here.server.doors.counts.failed_handshakes == 2)
    (line,) = [one.getMessage() for one in caplog.records]
    assert line.startswith("turned_away=handshake times=1 because=TLS: "), line
    assert "another authority as the caBundle" in line


@served(patience=Patience(request_s=scaled(1.0)))
async def test_what_is_idle_after_an_answer_stays_open(here: Serving) -> None:
    """An API server keeps connections; closing one under its next request would fail that review."""
    reader, writer = await here.known()
    other, closed = await here.open()
    assert await other.read() == b""  # a stranger's whole patience went by meanwhile
    closed.close()
    writer.write(REQUEST)
    await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert here.server.counts.patched == 2


@pytest.mark.parametrize("greeted", [False, True], ids=["before the handshake", "after the handshake"])
@served(patience=Patience(scaled(60.0), scaled(60.0), max_connections=16))
async def test_strangers_make_room_for_newcomers_and_known_clients_stay(
    here: Serving, caplog: pytest.LogCaptureFixture, greeted: bool
) -> None:
    known, writer = await here.known()
    strangers = [await (here.open() if greeted else asyncio.open_connection("127.0.0.1", here.port)) for _ in range(30)]
    assert (await here.post(GOOD))[0] == 200
    writer.write(REQUEST)
    assert b"200" in await known.readuntil(b"\r\n")
    assert here.server.doors.counts.evicted >= 30 - 16 + 2
    assert [one.getMessage() for one in caplog.records if "turned_away=evicted" in one.getMessage()] == [
        "turned_away=evicted times=1 because=more than 16 connections; the oldest idle ones go"
    ]
    assert len(here.server.doors) <= 16
    with suppress(ConnectionError):
        assert await strangers[0][0].read() == b""  # the oldest one is told
    assert not any(stranger.at_eof() for stranger, _ in strangers[-16 + 2 :])  # and the latest ones stay
    for _, stranger in [*strangers, (known, writer)]:
        stranger.close()


@served(patience=Patience(max_connections=4))
async def test_who_has_brought_a_review_and_is_idle_for_longest_makes_room_where_all_have(here: Serving) -> None:
    """Else who has brought one on each of all connections would keep API servers out for an hour."""
    known = []
    for _ in range(4):
        known.append(await here.known())
        while any(one.answered for one in here.server.doors._known):
            await asyncio.sleep(0.01)
    assert (await here.post(GOOD))[0] == 200
    assert (here.server.doors.counts.evicted, here.server.doors.counts.turned_away) == (1, 0)
    with suppress(ConnectionError):
        await known[0][0].read()
    assert [writer.is_closing() for _, writer in known] == [True, False, False, False]
    for _, writer in known:
        writer.close()


class LateCancel(asyncio.Transport):
    """A loop whose call is cancelled once hands are shaken. As uvloop does, it closes the socket and tells nobody."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        super().__init__()
        self._said, self._heard = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._client = trust.wrap_bio(self._said, self._heard, server_hostname="127.0.0.1")
        self.call_later, self.call_soon = asyncio.get_running_loop().call_later, asyncio.get_running_loop().call_soon
        self.create_future, self.get_debug = asyncio.get_running_loop().create_future, lambda: False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._said.write(data)

    async def connect_accepted_socket(self, make: Callable[[], SSLProtocol], _: socket.socket) -> None:
        tls = make()
        tls.connection_made(self)
        for _turn in range(2):
            with suppress(ssl.SSLWantReadError):
                self._client.do_handshake()
            data = self._heard.read()
            tls.get_buffer(len(data))[: len(data)] = data
            tls.buffer_updated(len(data))
        raise asyncio.CancelledError


async def test_a_handshake_whose_call_is_cancelled_as_it_ends_leaves_no_connection(
    pki: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a loop in which two thousand came at once, when the oldest one is evicted or the server stops."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki / "first.crt", pki / "first.key")
    server = WebhookServer(decider(Settings()), lambda: context)
    connection = Connection(server.doors, server, Common(asyncio.get_running_loop()))
    loop = LateCancel(ssl.create_default_context(cafile=str(pki / "ca.crt")))
    with socket.socket() as peer, monkeypatch.context() as patch, suppress(asyncio.CancelledError):
        patch.setattr(asyncio, "get_running_loop", lambda: loop)
        await shake_hands(peer, connection, context, bytearray(1 << 16), 5.0, 1.0)
    await asyncio.sleep(0)
    assert len(server.doors) == 0


class Dead(asyncio.Transport):
    def close(self) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


@served()
async def test_a_connection_that_cannot_be_closed_keeps_no_other_open(here: Serving) -> None:
    (_, dead), (reader, writer) = await here.open(), await here.open()
    await until(lambda: len(here.server.doors._greeted()) == 2)
    here.server.doors._greeted()[0]._transport = Dead()
    await here.server.doors.close()
    assert await reader.read() == b""
    await until(lambda: len(here.server.doors) == 0)
    for one in (dead, writer):
        one.close()


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@served()
async def test_requests_written_behind_one_another_are_answered_in_their_order(here: Serving) -> None:
    reader, writer = await here.open()
    writer.write(HEALTH.replace(b"GET", b"HEAD"))
    assert b"\r\nContent-Length: 3\r\n" in await reader.readuntil(b"\r\n\r\n"), "an answer to HEAD has no body"
    writer.write((REQUEST + HEALTH) * 300 + REQUEST[:-9])
    for _ in range(300):
        assert json.loads((await answer(reader))[2])["response"]["allowed"] is True
        assert (await answer(reader))[::2] == (200, b"ok\n")
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

    async def answers(reader: asyncio.StreamReader, count: int, who: str) -> None:
        for _ in range(count):
            await answer(reader)
        seen.append(who)

    await asyncio.gather(answers(crowd, 2000, "crowd"), answers(other, 1, "other"))
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


@served()
async def test_what_is_no_http_gets_a_status_and_the_end(here: Serving) -> None:
    for what, (sent, status) in NO_HTTP.items():
        reader, writer = await here.open()
        writer.write(sent)
        assert (await answer(reader))[0] == status, what
        rest = await reader.read()
        assert rest == b"" or rest.startswith(b"HTTP/1.1 400 "), what
        writer.close()
        await until(lambda: len(here.server.doors) == 0)
        assert here.server.arriving == 0, what
        assert (await here.post(GOOD))[0] == 200, what
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


@served(patience=Patience(idle_s=0.3))
async def test_a_connection_that_is_idle_for_long_is_closed(here: Serving) -> None:
    reader, writer = await here.known()
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

    async def ask() -> None:
        for _ in range(times):
            writer.write(request)
            await writer.drain()

    asking = asyncio.create_task(ask())
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
