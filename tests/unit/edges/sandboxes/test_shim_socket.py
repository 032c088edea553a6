"""A shim is asked for metrics on a real unix socket; whatever is on the other side costs little and breaks nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nodeward.edges.sandboxes import shim_socket

GIB = 1 << 30
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SAID = b'kata_guest_meminfo{item="mem_total"} 2e+09\nkata_guest_meminfo{item="mem_available"} 1.5e+09\n'


def asked(folder: Path, serve: Serve | None, vm_memory: int | None = 2 * GIB) -> int | None:
    path = str(folder / "s")

    async def story() -> int | None:
        if serve is None:
            return await shim_socket.guest_used(path, vm_memory)
        server = await asyncio.start_unix_server(serve, path)
        try:
            return await shim_socket.guest_used(path, vm_memory)
        finally:
            server.close()

    return asyncio.run(story())


def answering(body: bytes, status: bytes = b"200 OK") -> Serve:
    """One that answers as Go's http does, and notes what it was asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /metrics HTTP/1.0\r\n")
        writer.write(b"HTTP/1.0 " + status + b"\r\nContent-Type: text/plain\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    return serve


def test_what_a_guest_uses_is_its_total_less_what_is_available(tmp_path: Path) -> None:
    assert asked(tmp_path, answering(b'x{a="b"} 1\n' * 10_000 + SAID)) == 500_000_000


@pytest.mark.parametrize(
    ("body", "used"),
    [
        pytest.param(SAID.replace(b"available", b"free"), 500_000_000, id="an-older-guest-tells-what-is-free"),
        pytest.param(SAID.replace(b"e+09", b"e+06"), 500_000 * 1024, id="kibibytes"),
        pytest.param(SAID.replace(b"1.5e", b"9e"), None, id="more-available-than-there-is"),
        pytest.param(SAID.replace(b"2e+09", b"1e+999"), None, id="no-number"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"kata_guest_meminfo{" + b'item="mem_total",' * 50_000 + b"} NaN\n", None, id="a-line-too-long"),
        pytest.param(b'kata_guest_meminfo{a="' + b"x" * 600 + b'"} 1\n' + SAID, 500_000_000, id="one-beside-others"),
    ],
)
def test_what_it_says_is_taken_with_care(tmp_path: Path, body: bytes, used: int | None) -> None:
    assert asked(tmp_path, answering(body)) == used


def test_an_error_is_no_figure(tmp_path: Path) -> None:
    assert asked(tmp_path, answering(SAID, b"500 Internal Server Error")) is None


def test_where_nobody_listens_nothing_is_known(tmp_path: Path) -> None:
    assert asked(tmp_path, None) is None


def test_one_that_hangs_is_waited_for_a_second_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim_socket, "PATIENCE_S", 0.05)
    hangs = asyncio.Event

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hangs().wait()

    assert asked(tmp_path, hang) is None


def test_of_one_that_sends_a_hundred_megabytes_one_is_read(tmp_path: Path) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + SAID)
        try:
            for _ in range(1600):
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536
        except OSError:
            writer.transport.abort()

    assert asked(tmp_path, flood) is None
    assert sent < 8 * shim_socket.MAX_BYTES
