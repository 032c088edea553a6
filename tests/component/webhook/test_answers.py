"""Answers on the wire: their head, when the connection ends after one, who does not take them; and reviews in which
anything is missing, null or of another type."""

import asyncio
import base64
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime

import pytest

from nodeward.edges.webhook.doors import Patience
from nodeward.edges.webhook.server import Bounds
from tests.component.webhook.support import EPC, GOOD, HEAD, JSON_TYPE, REQUEST, Serving, served
from tests.patience import scaled
from tests.unit.edges.webhook.rounds import Json, container, pod_of, review


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, dict[str, str], bytes]:
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return status.encode(), headers, await reader.readexactly(int(headers["content-length"]))


CLOSING = {
    "by a header": REQUEST.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n"),
    "HTTP/1.0": REQUEST.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n"),
}


@served()
async def test_an_answer_has_the_head_that_http_asks_for_and_who_asks_for_one_gets_one_and_the_end(
    here: Serving,
) -> None:
    for request, ends in ((REQUEST + REQUEST, False), *((one, True) for one in CLOSING.values())):
        reader, writer = await here.open()
        writer.write(request)  # the second before the first is answered
        for _ in range(1 if ends else 2):
            status, headers, body = await answer(reader)
            assert (status, headers["content-type"]) == (b"HTTP/1.1 200 OK", "application/json")
            assert parsedate_to_datetime(headers["date"]).tzinfo is not None
            assert json.loads(body)["response"]["patchType"] == "JSONPatch"
        if ends:
            assert await reader.read() == b""
        writer.close()


def _deaf(here: Serving, bye: bool) -> ssl.SSLSocket:
    """A client that asks for more than a megabyte, takes nothing, and perhaps says that it is at its end."""
    body = json.dumps(review(pod_of(*(container(f"c{number}", {EPC: "1Mi"}) for number in range(60))))).encode()
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(("127.0.0.1", here.port))
    link = here.trust.wrap_socket(plain, server_hostname="127.0.0.1")
    link.settimeout(0.2)
    with suppress(OSError):
        for _ in range(150):
            link.sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        if bye:
            link.unwrap()
    return link


@pytest.mark.parametrize("bye", [False, True], ids=["silent", "at its end"])
@served(patience=Patience(request_s=scaled(1.0)))
async def test_who_has_asked_and_takes_no_answers_is_closed_in_time(here: Serving, bye: bool) -> None:
    deaf = await asyncio.to_thread(_deaf, here, bye)
    try:
        async with asyncio.timeout(scaled(30.0)):
            while len(here.server.doors):
                await asyncio.sleep(0.05)
    finally:
        deaf.close()
    assert bye or here.server.doors.counts.slow == 1  # the end of TLS has a time of its own, which may be up before


@served(bounds=Bounds(max_held_bytes=15_000), patience=Patience(request_s=scaled(60.0)))
async def test_while_many_answers_wait_for_their_clients_others_are_told_so(here: Serving) -> None:
    deaf = await asyncio.to_thread(_deaf, here, False)
    while not here.server._unsent:
        await asyncio.sleep(0.01)
    status, said = await here.post(GOOD)
    assert (status, said) == (503, b"nodeward webhook: too many answers that nobody takes\n")
    deaf.close()
    while len(here.server.doors):
        await asyncio.sleep(0.05)
    assert (await here.post(GOOD))[0] == 200


@served(bounds=Bounds(max_answer_bytes=2000))
async def test_a_pod_of_so_many_containers_that_its_changes_cannot_be_answered_is_refused(here: Serving) -> None:
    many = await here.review(pod_of(*(container(f"c{number}", {EPC: "1Mi"}) for number in range(20))))
    assert many["allowed"] is False
    assert "its 20 containers need changes of" in json.dumps(many)
    few = await here.review(pod_of(container("app", {EPC: "1Mi"})))
    assert few["allowed"] is True
    assert (here.server.counts.refused, here.server.counts.allowed) == (1, 1)


GONE = object()
OTHERS: dict[str, object] = {"gone": GONE, "null": None, "text": "x", "number": 7, "list": [[]], "map": {"": {}}}


def changed(tree: object) -> Iterator[tuple[str, object]]:
    """The tree with one thing in it gone, null, or of each other type; and which."""
    for path in _paths(tree):
        for kind, other in OTHERS.items():
            yield f"{'.'.join(map(str, path))} {kind}", _with(tree, path, other)


def _with(tree: object, path: tuple[str | int, ...], other: object) -> object:
    if not path:
        return other
    if isinstance(tree, dict):
        found = {key: _with(value, path[1:], other) if key == path[0] else value for key, value in tree.items()}
        return {key: value for key, value in found.items() if value is not GONE}
    assert isinstance(tree, list)
    items = [_with(value, path[1:], other) if place == path[0] else value for place, value in enumerate(tree)]
    return [value for value in items if value is not GONE]


def _paths(tree: object) -> Iterator[tuple[str | int, ...]]:
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in below:
        yield (key,)
        yield from ((key, *rest) for rest in _paths(value))


@served()
async def test_a_review_in_which_something_is_missing_or_another_type_gets_an_answer_and_is_no_fault_of_ours(
    here: Serving,
) -> None:
    made: Json = review(
        pod_of(
            container("app", {EPC: "1Mi"}, env=[{"name": "A"}], volumeMounts=[{"name": "v", "mountPath": "/v"}]),
            annotations={"sgx.intel.com/quote-provider": "aesmd", "nodeward.io/limits": "{}"},
            volumes=[{"name": "v"}],
        )
    )
    reader, writer = await here.open()
    for what, tree in changed(made):
        body = json.dumps(tree).encode()
        writer.write(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status, _, said = await answer(reader)
        assert status.split()[1] in (b"200", b"400"), what
        if status.split()[1] == b"200":
            assert isinstance(json.loads(said)["response"]["allowed"], bool), what
    writer.close()
    assert here.server.counts.faults == 0
    assert here.server.counts.not_reviews > 100
    assert here.server.counts.allowed > 50
    assert here.server.counts.refused > 5


FULL = "y" * (256 * 1024)


@served()
async def test_an_annotation_of_256_kib_is_replaced_or_left_and_never_repeated(here: Serving) -> None:
    for key in ("nodeward.io/limits", "sgx.intel.com/quote-provider", "somebody.else/note"):
        body = json.dumps(review(pod_of(container("app", {EPC: "1Mi"}), annotations={key: FULL}))).encode()
        status, said = await here.post(body, JSON_TYPE)
        response = json.loads(said)["response"]
        assert (status, response["allowed"], len(said) < 4096) == (200, True, True)
        assert FULL[:200].encode() not in base64.b64decode(response["patch"])
