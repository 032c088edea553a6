"""gRPC over unix sockets, as the kubelet edge and its double use it: both ends ours, on real sockets."""

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodeward.neighbours.sockets import grpc_unix
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcClient, GrpcError, GrpcServer, Stream, Unary
from tests.patience import scaled

WITHIN_S = scaled(20.0)


@asynccontextmanager
async def talking(
    path: Path, unary: dict[str, Unary], streams: dict[str, Stream] | None = None
) -> AsyncIterator[tuple[GrpcServer, GrpcClient]]:
    server, client = GrpcServer("test.Service", unary, streams), GrpcClient(str(path))
    await server.start(str(path))
    yield server, client
    await client.close()
    await server.stop()


async def refuses(request: bytes) -> bytes:
    raise GrpcError(Code.RESOURCE_EXHAUSTED, f"no key is left, ü {'x' * 5000}")


async def fails(request: bytes) -> bytes:
    raise ValueError("a secret of the request")


async def echo(request: bytes) -> bytes:
    return request


async def test_a_call_is_answered_and_a_refusal_is_told_with_a_bounded_text_and_a_fault_without_its_words(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.sock"
    async with talking(path, {"Echo": echo, "Refuse": refuses, "Fail": fails}) as (_, client):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await client.call("/test.Service/Echo", b"\x00abc", WITHIN_S) == b"\x00abc"
        with pytest.raises(GrpcError) as refused:
            await client.call("/test.Service/Refuse", b"", WITHIN_S)
        assert (refused.value.code, refused.value.text[:22]) == (Code.RESOURCE_EXHAUSTED, "no key is left, ü xxxx")
        assert len(refused.value.text) == grpc_unix.MAX_TEXT
        with pytest.raises(GrpcError, match="ValueError") as failed:
            await client.call("/test.Service/Fail", b"", WITHIN_S)
        assert failed.value.code is Code.INTERNAL
        assert "secret" not in str(failed.value)
        with pytest.raises(GrpcError) as unknown:
            await client.call("/test.Service/Other", b"", WITHIN_S)
        assert unknown.value.code is Code.UNIMPLEMENTED
    assert not path.exists()


async def test_a_call_ends_with_an_error_when_its_client_is_closed_and_as_cancelled_when_its_caller_is(
    tmp_path: Path,
) -> None:
    begun, ended = asyncio.Event(), list[object]()

    async def never(request: bytes) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return request

    async with talking(tmp_path / "a.sock", {"Never": never}) as (_, client):
        for by_caller in (True, False):
            begun.clear()
            calling = asyncio.ensure_future(client.call("/test.Service/Never", b"", WITHIN_S))
            await begun.wait()
            if by_caller:
                calling.cancel()
            else:
                await client.close()
            ended += await asyncio.gather(calling, return_exceptions=True)
    cancelled, closed = ended
    assert isinstance(cancelled, asyncio.CancelledError)
    assert isinstance(closed, GrpcError)
    assert closed.code is Code.CANCELLED


async def test_a_message_beyond_the_bound_is_refused_by_who_would_read_it(tmp_path: Path) -> None:
    path, size = tmp_path / "a.sock", grpc_unix.MAX_MESSAGE + 1
    async with talking(path, {"Echo": echo}) as (_, client):
        with pytest.raises(GrpcError) as large:
            await client.call("/test.Service/Echo", bytes(size), WITHIN_S)
        assert large.value.code is Code.RESOURCE_EXHAUSTED
        assert await client.call("/test.Service/Echo", b"a", WITHIN_S) == b"a"


@pytest.mark.parametrize("end", ["the reader stops", "the client closes", "the server stops"])
async def test_a_stream_ends_for_both_when_either_ends_it(tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.sock"
    ended = asyncio.Event()

    async def count(request: bytes) -> AsyncIterator[bytes]:
        try:
            yield b"1"
            yield b"2"
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with talking(path, {}, {"Count": count}) as (server, client):
        stream = client.stream("/test.Service/Count", b"")
        assert [await anext(stream), await anext(stream)] == [b"1", b"2"]
        if end == "the reader stops":
            await stream.aclose()
        elif end == "the client closes":
            await client.close()
        else:
            await server.stop()
            with pytest.raises(GrpcError):
                await anext(stream)
        await ended.wait()


async def test_a_place_that_cannot_be_listened_at_is_an_error_of_the_system(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "a.sock"
    for path, why in ((missing, "No such file or directory"), (tmp_path / ("long" * 40), "longer than 107 bytes")):
        with pytest.raises(OSError, match=str(path)) as failed:
            async with talking(path, {}):
                pass
        assert why in str(failed.value)
