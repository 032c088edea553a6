"""The Pod API's two doors and its watchers, on real sockets, without a daemon around them."""

import asyncio
import contextlib
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import uvloop

from nodeward.contracts import podapi_pb2
from nodeward.core.errors import AnswerError, Failure, NodewardError
from nodeward.core.workload import PodSpec, PodUid
from nodeward.features.podapi.door import grpc as grpc_server
from nodeward.features.podapi.door import http as server
from nodeward.features.podapi.door import methods
from nodeward.features.podapi.effects import answers as podapi_answers
from nodeward.features.podapi.effects.watch import MOST_QUEUED, MOST_WATCHERS, Watchers
from nodeward.features.podapi.rows import (
    DescribePodRequest,
    ListPodsRequest,
    ListPodsResponse,
    PodChange,
    Section,
    WatchEvent,
)
from nodeward.features.pods.state import KnownSpec, Pods
from nodeward.features.root import State
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcClient, GrpcError
from tests.component.kubelet.node import called
from tests.component.kubernetes.support import until
from tests.patience import scaled
from tests.rigs.stories import under_way

WITHIN_S = scaled(20.0)
LIST = "/nodeward.podapi.v1.PodApi/ListPods"
LONG = "x" * 5000


class Node:
    def __init__(self, pods: int = 0) -> None:
        self.state = State()
        self.watchers = Watchers(lambda: self.state)
        self.set(dict.fromkeys(range(pods), 0))

    def set(self, pods: dict[int, int]) -> None:
        specs = {
            PodUid(f"u{number}"): KnownSpec(PodSpec(PodUid(f"u{number}"), "shop", LONG, overhead_memory=version), 1)
            for number, version in pods.items()
        }
        self.state = replace(self.state, pods=Pods(specs))
        self.watchers.changed()


@contextlib.asynccontextmanager
async def served(folder: Path, node: Node, *answers: methods.Method) -> AsyncIterator[tuple[str, str]]:
    api, desk = methods.Api({one.name: one for one in answers}, node.watchers.opened), methods.Desk()
    paths, up = (str(folder / "h.sock"), str(folder / "g.sock")), asyncio.Semaphore(0)
    for path in paths:
        with socket.socket(socket.AF_UNIX) as of_a_daemon_that_was_killed:
            of_a_daemon_that_was_killed.bind(path)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(server.run(paths[0], [os.getuid()], api, desk, up.release)),
            group.create_task(grpc_server.run(paths[1], api, desk, up.release)),
            group.create_task(node.watchers.run()),
        ]
        for _ in paths:
            await up.acquire()
        yield paths
        for task in tasks:
            task.cancel()


def list_of(node: Node) -> methods.Method:

    async def answer(_: ListPodsRequest) -> ListPodsResponse:
        return ListPodsResponse()

    return methods.Method("ListPods", ListPodsRequest, answer)


async def http(path: str, head: str, body: bytes = b"") -> tuple[int, bytes]:
    reader, writer = await asyncio.open_unix_connection(path)
    text = f"{head} HTTP/1.1\r\nHost: n\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(text.encode() + body)
    answer = await reader.read(-1)
    writer.close()
    return int(answer.split(b" ", 2)[1]), answer.partition(b"\r\n\r\n")[2]


def asks_to_watch(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: n\r\n\r\n")
    return client


async def taken(events: AsyncIterator[WatchEvent], count: int) -> list[WatchEvent]:
    async with asyncio.timeout(WITHIN_S):
        return [await anext(events) for _ in range(count)]


async def test_a_watcher_hears_what_there_is_and_each_change_and_one_gap_where_it_was_too_slow(tmp_path: Path) -> None:
    node = Node(1)
    comparing = asyncio.create_task(node.watchers.run())
    with node.watchers.opened() as events:
        assert [one.kind for one in await taken(events, 1)] == [PodChange.ADDED]
        node.set({0: 1, 1: 0})
        assert [one.kind for one in await taken(events, 2)] == [PodChange.CHANGED, PodChange.ADDED]
        node.set({1: 0})
        (gone,) = await taken(events, 1)
        assert (gone.kind, gone.uid, gone.seq) == (PodChange.GONE, "u0", 3)
        node.set(dict.fromkeys(range(1, MOST_QUEUED + 3), 0))
        (gap,) = await taken(events, 1)
        assert (gap.kind, gap.seq, gap.uid) == (PodChange.GAP, 3 + MOST_QUEUED + 1, "")
    comparing.cancel()


async def test_a_thousand_watchers_that_stop_reading_cost_no_one_else_an_answer_and_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STALLED_S", 0.5)

    node = Node(200)
    async with served(tmp_path, node, list_of(node)) as (path, grpc_path):
        stuck = await asyncio.to_thread(lambda: [asks_to_watch(path) for _ in range(1000)])
        assert len(node.watchers._watchers) <= MOST_WATCHERS
        assert (await http(path, "POST /v1/ListPods"))[0] == 200
        assert await called(Path(grpc_path), LIST) == b""
        await until(lambda: not node.watchers._watchers, "all are ended")
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET /v1/watch HTTP/1.1\r\nHost: n\r\n\r\n")
        while b'"ADDED"' not in (line := await reader.readline()):
            assert line
        writer.close()
        for one in stuck:
            one.close()
        await until(lambda: not node.watchers._watchers, "who has gone leaves its place")


async def test_calls_that_wait_for_a_pod_keep_no_other_method_from_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "MOST_AT_ONCE", 6)
    monkeypatch.setattr(grpc_server, "MOST_AT_ONCE", 6)
    monkeypatch.setattr(grpc_server, "SPARE_CALLS", 4)
    monkeypatch.setattr(grpc_server, "MOST_REFLECTING", 2)
    begun = asyncio.Semaphore(0)
    describe, asked = "/nodeward.podapi.v1.PodApi/DescribePod", b'{"selector": {"uid": "u1"}}'
    message = podapi_pb2.DescribePodRequest(selector=podapi_pb2.Selector(uid="u1")).SerializeToString()

    async def waits(_: DescribePodRequest) -> ListPodsResponse:
        begun.release()
        await asyncio.Event().wait()
        return ListPodsResponse()

    node = Node()
    waiting = methods.Method("DescribePod", DescribePodRequest, waits)
    async with served(tmp_path, node, waiting, list_of(node)) as (path, grpc_path):
        client = GrpcClient(grpc_path)
        calls: list[asyncio.Task[object]] = [
            asyncio.create_task(http(path, "POST /v1/DescribePod", asked)) for _ in range(3)
        ]
        calls += [asyncio.create_task(client.call(describe, message, 2 * WITHIN_S)) for _ in range(3)]
        for _ in calls:
            await begun.acquire()
        channel = grpc.aio.insecure_channel(f"unix:{grpc_path}")
        reflecting = channel.stream_stream(f"/{grpc_server.REFLECTIONS[0]}/ServerReflectionInfo")
        streams = [asyncio.ensure_future(reflecting().code()) for _ in range(20)]
        await until(lambda: sum(one.done() for one in streams) >= 18, "eighteen are refused")
        status, why = await http(path, "POST /v1/DescribePod", asked)
        assert (status, b"6 DescribePod requests are being answered, which is the most" in why) == (503, True)
        with pytest.raises(GrpcError, match="6 DescribePod requests are being answered"):
            await client.call(describe, message, WITHIN_S)
        assert (await http(path, "POST /v1/ListPods"))[0] == 200
        assert await client.call(LIST, b"", WITHIN_S) == b""
        for one in calls:
            one.cancel()
        await asyncio.wait(calls)
        await client.close()
        await channel.close()


async def test_a_connection_too_many_is_closed_and_one_that_ends_leaves_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)
    monkeypatch.setattr(server, "KEPT_S", 2 * WITHIN_S)  # else who says nothing is closed for that

    node = Node()
    async with served(tmp_path, node, list_of(node)) as (path, _):
        _, first = await asyncio.open_unix_connection(path)
        second, _ = await asyncio.open_unix_connection(path)
        assert await second.read() == b""
        first.close()
        while True:
            with contextlib.suppress(OSError, IndexError):  # it is closed while the first one's end is not seen
                assert (await http(path, "POST /v1/ListPods"))[0] == 200
                break
            await asyncio.sleep(0.01)


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    """What connects here is this user's. No task may have its turn meanwhile."""
    before = os.geteuid()
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(before)


def connects(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    client.connect(path)
    return client


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_user_whom_the_settings_do_not_name_takes_no_place_and_hears_why_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(server, "KEPT_S", 2 * WITHIN_S)

    async def story(folder: str) -> None:
        node, path = Node(), f"{folder}/h.sock"
        api = methods.Api({"ListPods": list_of(node)}, node.watchers.opened)
        up = asyncio.Event()
        async with under_way(server.run(path, [0, 12345], api, methods.Desk(), up.set)):
            await up.wait()
            with as_user(65534):
                silent = [connects(path) for _ in range(100)]
            for _ in range(25):
                assert (await http(path, "POST /v1/ListPods"))[0] == 200
            for one in silent:
                one.close()
            with as_user(65534):
                refused = connects(path)
            reader, writer = await asyncio.open_unix_connection(sock=refused)
            writer.write(b"POST /v1/ListPods HTTP/1.1\r\nHost: n\r\nContent-Length: 2\r\n\r\n{}")
            said = await reader.read(-1)
            assert said.startswith(b"HTTP/1.1 403")
            assert b"this user may not ask: podapi.uids" in said
            writer.close()

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=loop) as runner:
        os.chmod(folder, 0o711)
        runner.run(asyncio.wait_for(story(folder), WITHIN_S))


@pytest.mark.parametrize(("uids", "mode"), [([0], 0o600), ([0, 1], 0o666), ([1], 0o666)], ids=str)
def test_a_socket_has_its_mode_and_nobody_else_ever_another_umask(tmp_path: Path, uids: list[int], mode: int) -> None:
    """It is the whole process's, and others make files and sockets meanwhile."""
    before, seen, path = os.umask(0o022), set[int](), tmp_path / "s"

    def look() -> None:
        now = os.umask(0o022)
        os.umask(now)
        seen.add(now)
        asyncio.get_running_loop().call_soon(look)

    async def story() -> None:
        look()
        api = methods.Api({}, Node().watchers.opened)
        async with under_way(server.run(str(path), uids, api, methods.Desk())):
            await until(path.exists, "the socket")
            assert path.stat().st_mode & 0o777 == mode

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:  # uvloop takes no turn where this one does
        runner.run(asyncio.wait_for(story(), WITHIN_S))
    os.umask(before)
    assert seen == {0o022}


async def test_over_grpc_a_watcher_that_stops_reading_is_ended_and_one_too_many_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "STALLED_S", 0.5)

    node = Node(2000)
    async with served(tmp_path, node, list_of(node)) as (_, path):
        client = GrpcClient(path)
        stuck = client.stream("/nodeward.podapi.v1.PodApi/Watch", b"")
        assert podapi_pb2.WatchEvent.FromString(await anext(stuck)).kind == podapi_pb2.WatchEvent.ADDED
        await until(lambda: not node.watchers._watchers, "it is ended")
        await stuck.aclose()
        with contextlib.ExitStack() as others:
            for _ in range(MOST_WATCHERS):
                others.enter_context(node.watchers.opened())
            with pytest.raises(GrpcError, match="64 watchers") as refused:
                await anext(client.stream("/nodeward.podapi.v1.PodApi/Watch", b""))
            assert refused.value.code is Code.RESOURCE_EXHAUSTED
        await client.close()


FAILURES = {
    "a fault of ours": (ValueError("s3cret"), 500, Code.INTERNAL, "ValueError: a fault"),
    "a state": (NodewardError("not now"), 409, Code.FAILED_PRECONDITION, "not now"),
    "late": (TimeoutError(), 504, Code.DEADLINE_EXCEEDED, "not answered within"),
    "none": (AnswerError(Failure.NOT_FOUND, "none"), 404, Code.NOT_FOUND, "none"),
}


async def test_both_doors_tell_a_failure_alike(tmp_path: Path) -> None:
    raised: list[Exception] = []

    async def fails(_: ListPodsRequest) -> ListPodsResponse:
        raise raised[-1]

    async with served(tmp_path, Node(), methods.Method("ListPods", ListPodsRequest, fails)) as (path, grpc_path):
        for error, status, code, why in FAILURES.values():
            raised.append(error)
            found, body = await http(path, "POST /v1/ListPods", b"{}")
            with pytest.raises(GrpcError) as failed:
                await called(Path(grpc_path), LIST)
            text = json.loads(body)["error"]
            assert (found, failed.value.code) == (status, code)
            assert why in text
            assert text == failed.value.text
            assert "s3cret" not in text


REQUESTS = {
    "no such method": ("POST /v1/s3cret", b"", 404),
    "no such path": ("GET /s3cret", b"", 404),
    "another verb": ("PUT /v1/pods", b"", 405),
    "no JSON": ("POST /v1/ListPods", b"s3cret", 400),
    "too large": ("POST /v1/ListPods", b"s3cret" * 100_000, 413),
    "a selector without a name": ("POST /v1/ListPods", b'{"s3cret":1}', 400),
}


async def test_requests_that_are_none_are_refused_over_http_without_an_echo(tmp_path: Path) -> None:
    node = Node()
    async with served(tmp_path, node, list_of(node)) as (path, grpc_path):
        for name, (head, body, status) in REQUESTS.items():
            found, said = await http(path, head, body)
            assert (found, b"s3cret" in said) == (status, False), name
            assert json.loads(said)["error"], name
        with pytest.raises(GrpcError, match="no ListPodsRequest") as refused:
            await called(Path(grpc_path), LIST, b"\x0a\x05cut")
        assert refused.value.code is Code.INVALID_ARGUMENT
        with pytest.raises(GrpcError, match="no ListPodsRequest"):
            await called(Path(grpc_path), LIST, b"\x0a" * (512 * 1024))
        for method in (LIST, f"/{grpc_server.REFLECTIONS[0]}/ServerReflectionInfo"):
            with pytest.raises(GrpcError, match="larger than max"):
                await called(Path(grpc_path), method, b"\x0a" * (512 * 1024 + 1))


async def test_a_provider_that_fails_or_is_late_makes_its_section_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podapi_answers, "LATE_S", 0.01)

    async def late() -> Section[object]:
        await asyncio.Event().wait()
        return Section(None, "")

    async def fails() -> Section[object]:
        raise ValueError("s3cret")

    for told, why in ((late(), "not told within 0.01 s"), (fails(), "ValueError: a fault of nodeward's, see its log")):
        section = await podapi_answers.provided("gate", told)
        assert (section.complete, section.why) == (False, why)
