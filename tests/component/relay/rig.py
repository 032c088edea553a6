"""A CRI runtime of grpcio's, a relay before it, and a client: all on real sockets."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from nodeward.host.clock import SystemClock
from nodeward.host.loop import new_loop
from nodeward.programs.relay import run as relay
from nodeward.programs.relay.plan import RelayPlan
from tests.patience import scaled

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
def runtime_at(path: Path, behave: Behave = echo) -> Iterator[Runtime]:
    made = Runtime(behave)
    with ThreadPoolExecutor(16) as threads:
        server = grpc.server(threads, handlers=(made,), options=UNLIMITED)
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
def relay_here(plan: RelayPlan) -> Iterator[None]:
    """The relay in a thread of this process, so that a test can watch and decide."""
    loop = new_loop()
    task: asyncio.Task[None] | None = None
    began = threading.Event()

    async def run() -> None:
        nonlocal task
        task = asyncio.ensure_future(relay.run(plan, SystemClock()))
        began.set()
        await asyncio.wait([task])

    def serve() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert began.wait(WAIT_S)
        wait_for(Path(plan.listen).is_socket, f"socket {plan.listen}")
        yield
    finally:
        assert task is not None
        loop.call_soon_threadsafe(task.cancel)
        thread.join(WAIT_S)
    error = None if task.cancelled() else task.exception()
    if error is not None:
        raise error


@contextmanager
def relay_process(
    listen: Path, runtime: Path, *flags: str, within: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """`nodeward relay` as a process of its own, executed by the command `within` if there is one; its log is in
    `listen` with the suffix `.log`."""
    program = Path(sys.executable).parent / "nodeward"
    command = [*within, str(program), "relay", "--listen", str(listen), "--runtime", str(runtime), *flags]
    if "--config" not in flags:
        command += ["--set", f"run_dir={listen.parent}/run"]
    with listen.with_suffix(".log").open("a") as log:
        process = subprocess.Popen(command, stderr=log, text=True)
    try:
        wait_for(lambda: listen.is_socket() or process.poll() is not None, f"socket {listen}")
        yield process
    finally:
        process.terminate()
        process.wait(WAIT_S)


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
