"""A CRI runtime of grpcio's, a relay before it, and a client: all on real sockets."""

import asyncio
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import grpc
from click.testing import CliRunner

from nodeward.cli import main
from nodeward.core.errors import NodewardError
from nodeward.features.settings import Settings
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import HostFiles
from nodeward.host.loop import new_loop
from nodeward.neighbours.cri import door_frames, relay_line
from nodeward.people.relay_view import RelayView
from nodeward.programs.node import run as node
from nodeward.programs.relay import run as relay
from nodeward.programs.relay.plan import RelayPlan
from tests.patience import scaled

NODEWARD = str(Path(sys.executable).parent / "nodeward")
SERVICE = "/runtime.v1.RuntimeService"
WAIT_S = scaled(30.0)
UNLIMITED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
Behave = Callable[[str, bytes, grpc.ServicerContext], bytes]


class Runtime:
    """A generic handler of grpcio's: unary methods answer by `behave`, `Stream...` with a message for each byte,
    GetContainerEvents with nothing for as long as it is asked."""

    def __init__(self, behave: Behave) -> None:
        self.behave = behave
        self.begun: list[str] = []
        """Methods whose headers have come."""
        self.got: list[tuple[str, bytes]] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        path = str(details.method)
        name = path.rpartition("/")[2]
        self.begun.append(name)
        if name.endswith("Unknown"):
            return None

        def unary(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.got.append((name, request))
            return self.behave(name, request, context)

        def stream(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            return (bytes((one,)) for one in request)

        def silence(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            ended = threading.Event()
            if context.add_callback(ended.set):
                ended.wait(WAIT_S)
            return iter(())

        if name.startswith("Stream"):
            return grpc.unary_stream_rpc_method_handler(stream)
        if name == "GetContainerEvents":
            return grpc.unary_stream_rpc_method_handler(silence)
        return grpc.unary_unary_rpc_method_handler(unary)


def echo(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
    return request


@contextmanager
def runtime_at(path: Path, behave: Behave = echo, threads: int = 16) -> Iterator[Runtime]:
    """`threads`: so many calls, held ones among them, it can have under way."""
    made = Runtime(behave)
    with ThreadPoolExecutor(threads) as at_work:
        server = grpc.server(at_work, handlers=(made,), options=UNLIMITED)
        server.add_insecure_port(f"unix:{path}")
        server.start()
        try:
            yield made
        finally:
            server.stop(0).wait(WAIT_S)


@contextmanager
def client_of(path: Path) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"unix:{path}", options=UNLIMITED) as channel:
        yield channel


def call(channel: grpc.Channel, name: str, request: bytes = b"", timeout_s: float = WAIT_S) -> bytes:
    answer: bytes = channel.unary_unary(f"{SERVICE}/{name}")(request, timeout=timeout_s)
    return answer


@contextmanager
def in_thread(work: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """That in a thread of this process with a loop of its own, for as long as the block lasts."""
    loop = new_loop()
    task: asyncio.Future[None] | None = None
    began = threading.Event()

    async def run() -> None:
        nonlocal task
        task = asyncio.ensure_future(work())
        began.set()
        await asyncio.wait([task])

    def serve() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert began.wait(WAIT_S)
        yield
    finally:
        assert task is not None
        loop.call_soon_threadsafe(task.cancel)
        thread.join(WAIT_S)
    error = None if task.cancelled() else task.exception()
    if error is not None:
        raise error


@contextmanager
def relay_here(plan: RelayPlan) -> Iterator[None]:
    """The relay in a thread of this process, so that a test can watch and decide."""
    with in_thread(lambda: relay.run(plan, SystemClock())):
        wait_for(Path(plan.listen).is_socket, f"socket {plan.listen}")
        yield


@contextmanager
def running(
    command: Sequence[str], log: Path, ready: Callable[[], bool], env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The command as a process of its own, which adds to this log, once it is ready or has ended."""
    with log.open("a") as words:
        process = subprocess.Popen(command, stderr=words, text=True, env=env)
    try:
        wait_for(lambda: ready() or process.poll() is not None, f"ready {command}")
        yield process
    finally:
        process.terminate()
        process.wait(WAIT_S)


@contextmanager
def relay_process(
    listen: Path, runtime: Path, *flags: str, within: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """`nodeward relay` as a process of its own, executed by the command `within` if there is one; its log is in
    `listen` with the suffix `.log`."""
    command = [*within, NODEWARD, "relay", "--listen", str(listen), "--runtime", str(runtime), *flags]
    if "--config" not in flags:
        command += ["--set", f"run_dir={listen.parent}/run"]
    with running(command, listen.with_suffix(".log"), listen.is_socket) as process:
        yield process


@contextmanager
def relayed(
    folder: Path, *flags: str, behave: Behave = echo, threads: int = 16
) -> Iterator[tuple[Path, Runtime, subprocess.Popen[str]]]:
    """A relay at `cri.sock` before a runtime at `runtime.sock`, once its status can be asked; see `runtime_at`."""
    listen, behind = folder / "cri.sock", folder / "runtime.sock"
    with runtime_at(behind, behave, threads) as made, relay_process(listen, behind, *flags) as process:
        wait_for(status_socket(listen).is_socket, "relay.sock")
        yield listen, made, process


@contextmanager
def node_process(folder: Path, *flags: str, within: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """`nodeward node` as a process of its own, by the settings `nodeward.yaml` in this folder, once it answers a relay;
    its log is `node.log` there. It is executed by the command `within` if there is one."""
    command = [*within, NODEWARD, "node", "--config", str(folder / "nodeward.yaml"), *flags]
    with running(command, folder / "node.log", (folder / "run" / door_frames.SOCKET).is_socket) as process:
        yield process


@contextmanager
def in_its_place(path: Path, hear: Callable[[socket.socket], object]) -> Iterator[None]:
    """A socket of the test's own: each client is heard in a thread, and let go after that."""

    def accept() -> None:
        with suppress(OSError):  # the end of the block
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    def serve(link: socket.socket) -> None:
        with link, suppress(OSError):
            hear(link)

    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join(WAIT_S)
    path.unlink()


@contextmanager
def daemon_here(settings: Settings, files: HostFiles) -> Iterator[None]:
    """The daemon in a thread of this process, on these files, once it answers a relay."""
    with in_thread(lambda: node.run(settings, files, SystemClock())):
        wait_for(Path(settings.run_dir, door_frames.SOCKET).is_socket, "door for the relay")
        yield


def decided_by(listen: Path) -> None:
    """Returns once a daemon decides what the relay holds there, and knows what the runtime has."""

    def decides() -> bool:
        shown = people(listen, "status", "-o", "json")
        view: dict[str, Any] = json.loads(shown.stdout) if shown.returncode == 0 else {"alone": "nobody answers"}
        ready = [row["ready"] for row in view.get("components", ()) if row["name"] == "relay"]
        return bool(not view["alone"] and view["relay"] and view["relay"]["daemon"]["process"] and all(ready))

    wait_for(decides, "a daemon that decides")


def status_socket(listen: Path) -> Path:
    return listen.parent / "run" / relay_line.SOCKET


def socket_to(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    # One with a time-out of Python's would not wait for its place in the queue.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(WAIT_S), 0))
    client.connect(str(path))
    client.settimeout(WAIT_S)
    return client


def said(place: Path, line: bytes) -> bytes:
    with socket_to(place) as asked:
        answer = b""
        try:
            asked.sendall(line)
            while piece := asked.recv(1 << 16):
                answer += piece
        except (BrokenPipeError, ConnectionResetError):
            pass
        return answer


def status(listen: Path) -> RelayView:
    return relay_line.decode_answer(
        said(status_socket(listen), relay_line.encode_request(relay_line.STATUS)), RelayView
    )


def people(listen: Path, *words: str, socket: str = "nodeward.sock") -> subprocess.CompletedProcess[str]:
    """`nodeward` as a person runs it, but in this process, with the daemon's socket in the same folder."""
    command = [*words, "--socket", str(listen.parent / "run" / socket)]
    done = CliRunner().invoke(main.cli, command)
    if isinstance(done.exception, NodewardError):  # as the program's own end of it
        return subprocess.CompletedProcess(command, 1, done.stdout, f"nodeward: {done.exception}\n")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)


def metered(port: int) -> tuple[str, str]:
    """Flags of a daemon whose metrics are at this port."""
    return "--set=metrics.enabled=true", f"--set=metrics.listen=127.0.0.1:{port}"


def metrics(port: int) -> str:
    """Empty while nobody answers."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_S) as answer:
            return str(answer.read().decode())
    except URLError:
        return ""


def scraped(port: int) -> dict[str, float]:
    found = (line.rpartition(" ") for line in metrics(port).splitlines() if line.startswith("nodeward_relay_"))
    return {name: float(value) for name, _, value in found}


@contextmanager
def following(file: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """`nodeward dump FILE --follow` as a process of its own, its lines in `stdout`; it ends with the block."""
    command = [sys.executable, "-m", "nodeward", "dump", str(file), "--follow", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as reading:
        try:
            yield reading
        finally:
            reading.kill()


def log_of(listen: Path) -> str:
    return listen.with_suffix(".log").read_text()


def wait_for(true: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, f"no {what} within {within_s} s"
        time.sleep(0.01)


def lines_of_dump(file: Path, lines: int) -> list[str]:
    """The dump's lines, once there are so many: what its writer has not taken when the relay ends is lost."""
    wait_for(lambda: file.exists() and file.read_bytes().count(b"\n") >= lines, f"{lines} lines in the dump")
    return file.read_text().splitlines()
