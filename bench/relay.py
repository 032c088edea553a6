"""What the relay adds to a CRI call, beside what a bare Go gRPC pass-through adds.

Server, pass-through and client are bench/cri_go, all on unix sockets. The three ways (direct, through the pass-through,
through the relay) take turns within each round; each client has made its calls once before. *Added* is the median of a
way's calls less the median of the direct calls of the same round. A call has a deadline, as kubelet's have, so that no
two header blocks are the same.

`nodeward relay` is the program as it is installed: it counts calls by method and result, and with `dumped` writes each
message to a file, by a process of its own that has its share of the machine. The relay of lists also copies
what they answer (`watched`), and that of creates replaces the request by a constant (`held`): bench/relay_here.py. What
a decision of `limits` costs beside that is not timed here.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.measure import cpu_us, median, memory_mib, quantile
from bench.plugins import built, running
from nodeward.wire import http2_frames as h2

ROUNDS = 5
CONTAINERS = 500
WAIT_S = 30.0
WAYS = ("direct", "go", "relay")


@dataclass(frozen=True, slots=True)
class Load:
    """What is called, so often a round, on so many connections by so many workers; and through which relay."""

    title: str
    method: str
    calls: int
    connections: int = 1
    workers: int = 1
    request_bytes: int = 20
    relay: str = "plain"
    goal: str = ""


LOADS = (
    Load("Version, one at a time: added p50", "Version", 2000, goal="0.65x"),
    Load("Version, 16 workers on 16 connections: calls/s", "Version", 8000, 16, 16, goal="1.3x"),
    Load("Version, 16 workers on one connection: calls/s", "Version", 8000, 1, 16, goal="-"),
    Load("Version, one at a time, full dump: added p50", "Version", 2000, relay="dumped", goal="-"),
    Load(f"ListContainers of {CONTAINERS}, copied: added p50", "ListContainers", 300, relay="watched", goal="0.75x"),
    Load("CreateContainer of 4 kB, replaced: added p50", "CreateContainer", 1000, 1, 1, 4096, "held", "2x"),
)


class Client:
    """A process that makes the calls of a load, a round for each line it is given."""

    def __init__(self, program: Path, path: Path, load: Load) -> None:
        shape = (load.method, load.calls, load.connections, load.workers, load.request_bytes)
        command = [str(program), "client", str(path), *map(str, shape)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def round(self) -> tuple[list[float], float]:
        """The times of the calls in microseconds, and calls a second."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said: dict[str, object] = json.loads(self.process.stdout.readline())
        times, took = said["times_ns"], said["took_ns"]
        assert isinstance(times, list)
        assert isinstance(took, int)
        return [one / 1000 for one in times], len(times) / took * 1e9


def run() -> None:
    """Each load in turn; then the relay's memory."""
    program = built("cribench") / "cribench"
    with tempfile.TemporaryDirectory(prefix="nwb") as name, ExitStack() as stack:
        folder = Path(name)
        stack.enter_context(_up([str(program), "server"], folder / "direct", [str(CONTAINERS)]))
        stack.enter_context(_up([str(program), "proxy"], folder / "go", [str(folder / "direct")]))
        pids = {how: stack.enter_context(_relay(folder, how)) for how in ("plain", "dumped", "watched", "held")}
        print("relay: direct, Go pass-through, nodeward, ratio of what they add (or of calls/s)")
        for load in LOADS:
            _compare(load, program, folder, pids[load.relay])
        resident, private = memory_mib(pids["plain"])
        print(f"  resident memory of nodeward relay: {resident:.1f} MiB, {private:.1f} private   goal 45")
        starts = median([_start(folder, number) for number in range(ROUNDS)])
        print(f"  start, exec to the first passed bytes: {starts:.2f} s   goal 0.4")


def _start(folder: Path, number: int) -> float:
    """Seconds from exec until a PING has gone through the relay and its answer back."""
    began = time.monotonic()
    with _relay(folder, f"start-{number}"), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(WAIT_S)
        client.connect(str(folder / f"start-{number}"))
        client.sendall(h2.PREFACE + h2.encode_settings({}) + h2.encode(h2.PING, 0, 0, bytes(8)))
        said, answer = b"", h2.encode(h2.PING, h2.ACK, 0, bytes(8))
        while answer not in said:
            said += client.recv(4096)
        return time.monotonic() - began


def _compare(load: Load, program: Path, folder: Path, pid: int) -> None:
    sockets = {"direct": folder / "direct", "go": folder / "go", "relay": folder / load.relay}
    rounds: list[dict[str, tuple[float, float, float]]] = []
    with ExitStack() as stack:
        clients = {way: Client(program, sockets[way], load) for way in WAYS}
        for client in clients.values():
            stack.callback(client.process.wait, WAIT_S)
            stack.callback(client.process.terminate)
            client.round()
        spent = cpu_us(pid)
        for _ in range(ROUNDS):
            rounds.append({})
            for way, client in clients.items():
                times, rate = client.round()
                rounds[-1][way] = quantile(times, 0.5), quantile(times, 0.99), rate
        spent = (cpu_us(pid) - spent) / ROUNDS / load.calls
    _say(load, rounds, spent)


def _say(load: Load, rounds: Sequence[dict[str, tuple[float, float, float]]], spent: float) -> None:
    def middle(way: str, column: int) -> float:
        return median([one[way][column] for one in rounds])

    print(f"  {load.title}")
    if load.workers > 1:
        values = [middle(way, 2) for way in WAYS]
        ratio = median([one["relay"][2] / one["go"][2] for one in rounds])
        shown = " ".join(f"{value:9.0f}" for value in values)
    else:
        values = [middle(way, 0) for way in WAYS]
        added = [(one["relay"][0] - one["direct"][0]) / (one["go"][0] - one["direct"][0]) for one in rounds]
        ratio = median(added)
        shown = " ".join(f"{value:9.1f}" for value in values)
    tails = " ".join(f"{middle(way, 1):.0f}" for way in WAYS)
    print(f"    {shown}   {ratio:5.2f}x   goal {load.goal}   (p99 {tails} us; {spent:.0f} us of processor a call)")


@contextmanager
def _up(command: list[str], path: Path, more: Sequence[str]) -> Iterator[int]:
    """The program, once it listens at the socket."""
    with running([*command, str(path), *more]) as process:
        end = time.monotonic() + WAIT_S
        while not path.is_socket():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{' '.join(command)} does not listen")
            time.sleep(0.01)
        yield process.pid


@contextmanager
def _relay(folder: Path, how: str) -> Iterator[int]:
    """A relay before the server."""
    program = str(Path(sys.executable).parent / "nodeward")
    listen, runtime = folder / how, folder / "direct"
    if how not in ("watched", "held"):
        dump = ["--dump-file", str(folder / "dump"), "--dump", "full:.*"] if how == "dumped" else []
        options = ["relay", "--log-level", "error", *dump, "--set", f"run_dir={folder}/run-{how}"]
        options += ["--runtime", str(runtime), "--listen"]
        with _up([program, *options], listen, ()) as pid:
            yield pid
    else:
        with _up([sys.executable, "-m", "bench.relay_here"], listen, (str(runtime), how)) as pid:
            yield pid
