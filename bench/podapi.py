"""The Pod API with 110 pods: 200 clients that ask DescribePod at once, over each door, and what the daemon grows by.

Every section but the spec, where nothing else is said. The first round also reads each pod at the API server double,
once. Clients and daemon share the machine, so processor time says more than milliseconds.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import api_pods, plugins, tree
from bench.measure import cpu_us, memory_mib, quantile
from nodeward.contracts import podapi_pb2
from nodeward.neighbours.sockets.grpc_unix import GrpcClient
from nodeward.people import client

NODE = tree.Shape(pods=110, per_pod=3, calls=0)
AT_ONCE, ROUNDS, WITHIN_S = 200, 10, 60.0
OF_STATE = ("identity", "containers", "totals", "overhead", "cgroup", "size")
ON = "podapi: {enabled: true}\n"
Ask = Callable[[int], Awaitable[None]]


def run() -> None:
    """Milliseconds from the first byte of 200 requests to each answer, and resident memory in MiB."""
    asyncio.run(_measure())


async def _measure() -> None:
    without = await _daemon("", None)
    await _daemon(ON, without)


async def _daemon(more: str, without: float | None) -> float:
    with tree.scratch() as folder, api_pods.running(NODE) as url:
        command = plugins.daemon(folder, folder / "s", NODE, url, more)
        with plugins.running(command) as process:
            if without is None:
                await _known(folder)
                await asyncio.sleep(1.0)
                return memory_mib(process.pid)[0]
            await _known(folder)
            pid, path = process.pid, folder / "run" / "podapi.sock"
            asks = GrpcClient(str(folder / "run" / "podapi-grpc.sock"))
            print(f"{AT_ONCE} at once, {NODE.pods} pods: ms p50 / p99, us of processor time each")
            await _round(pid, "DescribePod over HTTP, each pod read first", lambda n: _http(path, n, "DescribePod"), 1)
            resident = memory_mib(process.pid)[0]
            await _round(pid, "DescribePod over HTTP", lambda n: _http(path, n, "DescribePod"), ROUNDS)
            title = "DescribePod over HTTP, what the state has"
            await _round(pid, title, lambda n: _http(path, n, "DescribePod", OF_STATE), ROUNDS)
            await _round(pid, "ListPods over HTTP", lambda n: _http(path, n, "ListPods"), ROUNDS)
            await _round(pid, "DescribePod over gRPC", lambda n: _grpc(asks, n, "DescribePod"), ROUNDS)
            await _round(pid, "ListPods over gRPC", lambda n: _grpc(asks, n, "ListPods"), ROUNDS)
            await asks.close()
            now = memory_mib(process.pid)[0]
            print(f"resident, MiB: {without:.1f} without the Pod API, {resident:.1f} asked once, {now:.1f} at last")
            return now


async def _known(folder: Path) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not await asyncio.to_thread(_lists, folder):
            await asyncio.sleep(0.1)


def _lists(folder: Path) -> bool:
    """Whether the daemon has the API server's pods."""
    try:
        return any(row.name == "kube" and row.ready for row in plugins.view(folder).components)
    except client.DaemonError:
        return False


async def _round(pid: int, title: str, ask: Ask, rounds: int) -> None:
    took: list[float] = []

    async def timed(number: int) -> None:
        began = time.perf_counter()
        await ask(number)
        took.append((time.perf_counter() - began) * 1000)

    before_us = cpu_us(pid)
    for _ in range(rounds):
        await asyncio.gather(*map(timed, range(AT_ONCE)))
    each_us = (cpu_us(pid) - before_us) / len(took)
    print(f"  {title:45} {quantile(took, 0.5):7.1f} / {quantile(took, 0.99):7.1f}   {each_us:6.0f}")


async def _http(path: Path, number: int, method: str, fields: tuple[str, ...] = ()) -> None:
    uid = tree.pod_uid(number % NODE.pods)
    body = json.dumps({"selector": {"uid": uid}, "fields": fields} if method == "DescribePod" else {}).encode()
    reader, writer = await asyncio.open_unix_connection(path)
    head = f"POST /v1/{method} HTTP/1.1\r\nHost: n\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.read(-1)
    writer.close()
    assert b" 200 " in answer[:20], answer[:300]


async def _grpc(client: GrpcClient, number: int, method: str) -> None:
    selector = podapi_pb2.Selector(uid=tree.pod_uid(number % NODE.pods) if method == "DescribePod" else "")
    request = podapi_pb2.DescribePodRequest(selector=selector) if selector.uid else podapi_pb2.ListPodsRequest()
    await client.call(f"/nodeward.podapi.v1.PodApi/{method}", request.SerializeToString(), WITHIN_S)
