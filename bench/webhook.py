"""The admission webhook beside a bare aiohttp server that reads the body and answers a constant, over TLS.

Both are processes of their own, and rounds of them take turns. One review is timed from the first byte sent to the last
byte of the answer, by a client of plain sockets; with 16 connections the client keeps one review on each under way. The
small pod is a review of some 5.5 kB with two containers, one with EPC; the large one has twenty containers with 1,600
environment variables, 200 KiB. Processor time is the server's.
"""

import json
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import webhook_crowd
from bench.measure import cpu_us, median, memory_mib, quantile
from bench.webhook_crowd import Crowd
from nodeward.features.admission.door.server import PATH
from tests.component.kubernetes.support import make_ca, make_leaf
from tests.component.webhook.support import port_of, program
from tests.unit.features.admission.rounds import Json, container, pod_of, review

ROUNDS = 5
WAIT_S = 60.0
SMALL_BYTES, LARGE_BYTES = 5_500, 200 * 1024
EPC: Mapping[str, object] = {"cpu": "500m", "memory": "256Mi", "sgx.intel.com/epc": "16Mi"}


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent: a review, on so many connections, so often a round; and the goal for p50, in milliseconds."""

    title: str
    body: bytes
    connections: int
    calls: int
    goal: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """A process that answers reviews."""

    name: str
    pid: int
    port: int


def small_pod() -> Json:
    """A review as it comes from a cluster: with tokens, environment and managed fields."""
    volumes = [{"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]
    mount = {"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    env = [{"name": f"KEY_{n}", "value": "v" * 20} for n in range(8)]
    app = container("app", EPC, env=env, volumeMounts=[mount])
    side = container("side", env=env, volumeMounts=[mount])
    return _padded(pod_of(app, side, volumes=volumes), SMALL_BYTES)


def large_pod() -> Json:
    """Twenty containers with eighty variables each."""
    env = [{"name": f"SOME_SETTING_{n}", "value": "v" * 60} for n in range(80)]
    made = pod_of(*(container(f"c{n}", EPC if n == 0 else None, env=env) for n in range(20)))
    return _padded(made, LARGE_BYTES)


def _padded(made: Json, size: int) -> Json:
    """A review of the pod, of about `size` bytes of JSON: managed fields fill it up."""
    rest = size - len(json.dumps(review(made)))
    metadata = made["metadata"]
    assert isinstance(metadata, dict)
    metadata["managedFields"] = [{"fieldsV1": {f"f:field-{n:04}": {} for n in range(max(0, rest // 20))}}]
    return review(made)


def run() -> None:
    """Latency, throughput and processor time of both; then the webhook's memory."""
    small, large = json.dumps(small_pod()).encode(), json.dumps(large_pod()).encode()
    loads = (
        Load(f"two containers, {len(small) / 1000:.1f} kB, 1 connection", small, 1, 1500, "0.4"),
        Load("the same, 16 connections", small, 16, 3000),
        Load(f"twenty containers, {len(large) / 1024:.0f} KiB, 1 connection", large, 1, 300, "1.5"),
        Load("the same, 16 connections", large, 16, 480),
    )
    with tempfile.TemporaryDirectory(prefix="nwb") as name, ExitStack() as stack:
        folder = certificate(Path(name))
        trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        both = (stack.enter_context(bare(folder)), stack.enter_context(webhook(folder)))
        for load in loads:
            _compare(load, both, trust)
    with tempfile.TemporaryDirectory(prefix="nwb") as name:
        memory(certificate(Path(name)), small, large)
    with tempfile.TemporaryDirectory(prefix="nwb") as name:
        crowds(certificate(Path(name)), small, large)


def _compare(load: Load, both: tuple[Server, Server], trust: ssl.SSLContext) -> None:
    figures: dict[str, list[tuple[float, float, float, float]]] = {server.name: [] for server in both}
    for server in both:
        drive(server.port, trust, load.body, load.connections, 50)
    for _ in range(ROUNDS):
        for server in both:
            before, began = cpu_us(server.pid), time.perf_counter()
            times = drive(server.port, trust, load.body, load.connections, load.calls)
            took, used = time.perf_counter() - began, cpu_us(server.pid) - before
            row = (quantile(times, 0.5), quantile(times, 0.99), len(times) / took, used / len(times) / 1000)
            figures[server.name].append(row)
    floor, ours = ([median(column) for column in zip(*rows, strict=True)] for rows in figures.values())
    print(f"webhook, {load.title}: nodeward, bare aiohttp, ratio")
    for number, (what, goal) in enumerate(
        (("p50 ms", f"1.6x, {load.goal or '-'}"), ("p99 ms", "-"), ("reviews/s", "-"), ("CPU ms", "-"))
    ):
        print(
            f"  {what:10} {ours[number]:8.3f} {floor[number]:8.3f} {ours[number] / floor[number]:5.2f}x   goal {goal}"
        )


def memory(folder: Path, small: bytes, large: bytes) -> None:
    """Resident memory of a fresh webhook, as it goes on."""
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    with webhook(folder) as server:
        print("webhook, resident memory in MiB (the private part in brackets)")
        _say("started", server, "-")
        for thousands in (10, 90):
            drive(server.port, trust, small, 16, thousands * 1000)
            _say(f"after {thousands} 000 more small reviews", server, "50")
        drive(server.port, trust, large, 16, 16)
        _say("after 16 of 200 KiB at once", server, "80")
        drive(server.port, trust, large, 16, 800)
        _say("after 800 more of them", server, "80")


def crowds(folder: Path, small: bytes, large: bytes) -> None:
    """Many reviews in one moment, at a fresh webhook."""
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    chosen = (
        Crowd("2,000 of the small pod, connections that stand", small, 2000),
        Crowd("2,000 of the small pod, new connections", small, 2000, greeted=False),
        Crowd("200 of the 200 KiB pod, connections that stand", large, 200),
        Crowd("200 of the 200 KiB pod, new connections", large, 200, greeted=False),
    )
    with webhook(folder) as server:
        webhook_crowd.run(server.port, server.pid, trust, _message, chosen)


def _say(when: str, server: Server, goal: str) -> None:
    resident, private = memory_mib(server.pid)
    status = Path(f"/proc/{server.pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
    print(f"  {when:32} {resident:6.1f} ({private:.1f}), peak {peak:.1f}   goal {goal}")


def _message(body: bytes) -> bytes:
    """The whole request."""
    head = f"POST {PATH}?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def drive(port: int, trust: ssl.SSLContext, body: bytes, connections: int, calls: int) -> list[float]:
    """The time of each review in milliseconds; each connection has one under way at any time."""
    message = _message(body)
    with ExitStack() as stack:
        links = [stack.enter_context(_link(port, trust)) for _ in range(connections)]
        for link in links:
            link.sendall(message)
            size = _first(link)
        times: list[float] = []
        began = [0.0] * connections
        for number, link in enumerate(links):
            began[number] = time.perf_counter()
            link.sendall(message)
        for call in range(calls):
            number = call % connections
            link, left = links[number], size
            while left:
                left -= len(_received(link, left))
            now = time.perf_counter()
            times.append((now - began[number]) * 1000)
            if call + connections < calls:
                began[number] = time.perf_counter()
                link.sendall(message)
        return times


@contextmanager
def _link(port: int, trust: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    plain = socket.create_connection(("127.0.0.1", port), WAIT_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with trust.wrap_socket(plain, server_hostname="127.0.0.1") as link:
        yield link


def _first(link: ssl.SSLSocket) -> int:
    """The size of an answer, head and body: every later one has the same."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(link, 65536)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"the server does not answer: {data[:200]!r}")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    left = length - len(body)
    while left:
        left -= len(_received(link, left))
    return len(head) + 4 + length


def _received(link: ssl.SSLSocket, most: int) -> bytes:
    data = link.recv(most)
    if not data:
        raise RuntimeError("the server closed the connection")
    return data


def certificate(folder: Path) -> Path:
    """An authority and a pair in the folder."""
    make_ca(folder, "ca")
    make_leaf(folder, "tls", "ca")
    return folder


@contextmanager
def webhook(folder: Path) -> Iterator[Server]:
    """`nodeward webhook`, as it is installed."""
    with program(folder, "limits.mode=enforce") as process:
        yield Server("nodeward", process.pid, port_of(process))


@contextmanager
def bare(folder: Path) -> Iterator[Server]:
    """The floor; its answer is as long as that to the small pod."""
    command = [sys.executable, "-m", "bench.webhook_bare", str(folder / "tls.crt"), str(folder / "tls.key"), "900"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Server("bare", process.pid, int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait(WAIT_S)
