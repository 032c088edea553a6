"""What the relay adds to a CRI call, beside what a bare Go gRPC pass-through adds.

Server, pass-through and client are bench/cri_go, all on unix sockets. The three ways (direct, through the pass-through,
through the relay) take turns within each round; each client has made its calls once before. *Added* is the median of a
way's calls less the median of the direct calls of the same round. A call has a deadline, as kubelet's have, so that no
two header blocks are the same.

`nodeward relay` is the program as it is installed: it counts calls by method and result. `dumped` writes each message
to a file as well, by a process of its own that has its share of the machine; it is compared with the `plain` relay
beside it, in the same rounds. `limits`, `limits-none` decide creates by a pod's annotation, for a kernel that is a
folder of files, with so many containers known from the runtime's lists, and none; at the end each is asked whether it
has changed every create. The relay of lists also copies what they answer (`watched`: bench/relay_here.py). The
pass-through is one process for all of it, and never dumps. Memory is that of relays before a runtime with PODS pods,
after some thousand calls; `limits-pods` knows these.
"""

import asyncio
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
from typing import IO

from bench.measure import cpu_us, median, memory_mib, quantile
from bench.plugins import built, running
from nodeward.aio.clock import SystemClock
from nodeward.app.relay_limits import RelayLimits
from nodeward.edges.local import relay_line as line
from nodeward.model.events import Removed
from nodeward.model.relayed import Call, Ended, Message, Replace
from nodeward.model.settings import Settings
from nodeward.model.workload import ContainerId, SandboxId
from nodeward.proto import cri_pb2 as cri
from nodeward.sim.kernel import SimKernel
from nodeward.transport import unary_client
from nodeward.wire import http2_frames as h2
from nodeward.wire import relay_line

ROUNDS = 5
CONTAINERS, PODS = 500, 110
WAIT_S = 30.0
RELAYS = ("plain", "dumped", "watched", "limits", "limits-none", "pods", "limits-pods")
RUNTIMES = {"limits-none": "none", "pods": "some", "limits-pods": "some"}
"""The server behind each relay, where it is not `direct`."""
REQUEST_BYTES = 4096
GROWTH_CREATES = 2000


@dataclass(frozen=True, slots=True)
class Load:
    """What is called, so often a round, on so many connections by so many workers; and through which relay."""

    title: str
    method: str
    calls: int
    connections: int = 1
    workers: int = 1
    request: str = "20"
    """So many bytes, or a file's."""
    relay: str = "plain"
    goal: str = ""
    beside: str = "go"
    """What it is compared with, by what both add; with a relay, by the whole call."""

    @property
    def ways(self) -> tuple[str, str, str]:
        """The three that take turns."""
        return "direct", self.beside, self.relay

    def ratio(self, of: "dict[str, tuple[float, float, float]]") -> float:
        """Of one round."""
        direct, beside, relay = (of[way] for way in self.ways)
        if self.workers > 1:
            return relay[2] / beside[2]
        if self.beside != "go":
            return relay[0] / beside[0]
        return (relay[0] - direct[0]) / (beside[0] - direct[0])


_CREATE = ("CreateContainer", 1000, 1, 1, "create")
LOADS = (
    Load("Version, one at a time: added p50", "Version", 2000, goal="0.65x"),
    Load("Version, 16 workers on 16 connections: calls/s", "Version", 8000, 16, 16, goal="1.3x"),
    Load("Version, 16 workers on one connection: calls/s", "Version", 8000, 1, 16, goal="-"),
    Load("Version, full dump beside none: p50", "Version", 2000, relay="dumped", goal="1.15x", beside="plain"),
    Load(
        f"ListContainers of {CONTAINERS}, full dump beside none: p50",
        *("ListContainers", 100),
        relay="dumped",
        goal="1.15x",
        beside="plain",
    ),
    Load(
        f"ListContainers of {CONTAINERS}, copied by a stand-in: added p50",
        *("ListContainers", 300),
        relay="watched",
        goal="0.75x",
    ),
    Load("CreateContainer of 4 kB, limited, none known: added p50", *_CREATE, "limits-none", "2x"),
    Load(f"CreateContainer of 4 kB, limited, {CONTAINERS} known: added p50", *_CREATE, "limits", "2x"),
)


class Client:
    """A process that makes the calls of a load, a round for each line it is given."""

    def __init__(self, program: Path, path: Path, load: Load) -> None:
        request = load.request if load.request.isdigit() else path.parent / load.request
        shape = (load.method, load.calls, load.connections, load.workers, request)
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
        (folder / "create").write_bytes(_create())
        stack.enter_context(_up([str(program), "server"], folder / "direct", [str(CONTAINERS)]))
        stack.enter_context(_up([str(program), "server"], folder / "none", ["0"]))
        stack.enter_context(_up([str(program), "server"], folder / "some", [str(PODS)]))
        stack.enter_context(_up([str(program), "proxy"], folder / "go", [str(folder / "direct")]))
        pids = {how: stack.enter_context(_relay(folder, how)) for how in RELAYS}
        for how, known in (("limits", CONTAINERS), ("limits-none", 0), ("limits-pods", PODS)):
            _knows(folder, how, known)
        print("relay: direct, Go pass-through (or the relay without), nodeward, ratio of what they add (or as told)")
        for load in LOADS:
            _compare(load, program, folder, pids[load.relay])
        for how in ("limits", "limits-none"):
            _decided(folder, how)
        for how in ("pods", "limits-pods"):
            for method in ("Version", "ListContainers", "CreateContainer"):
                _call_once(Client(program, folder / how, Load("", method, 1000, request="create")))
            resident, private = memory_mib(pids[how])
            print(f"  resident memory of nodeward relay, {PODS} pods, {how}: {resident:.1f} MiB", end="")
            print(f", {private:.1f} private   goal 45")
        starts = median([_start(folder, number) for number in range(ROUNDS)])
        print(f"  start, exec to the first passed bytes: {starts:.2f} s   goal 0.4")
        both = [_start_of_limits(folder, f"limits-start-{number}") for number in range(ROUNDS)]
        passed, held, spent = (median([one[column] for one in both]) for column in range(3))
        print(f"  the same with limits and {CONTAINERS} containers: to the first passed call {passed:.2f} s   goal 0.4")
        print(f"    to the first held call, decided: {held:.2f} s   goal 1   ({spent:.2f} s of processor)")
    _grow()


def _create() -> bytes:
    """A create as large as kubelet's, of a pod whose annotation limits it."""
    made = cri.CreateContainerRequest(pod_sandbox_id="5" * 64)
    made.sandbox_config.metadata.CopyFrom(cri.PodSandboxMetadata(name="pod", uid="uid", namespace="default"))
    made.sandbox_config.annotations["epc-limit.nri.io/container.app"] = "8192"
    made.config.metadata.name = "app"
    while made.ByteSize() < REQUEST_BYTES:
        made.config.envs.add(key="SERVICE_HOST", value=b"10.0.0.1")
    return made.SerializeToString()


def _knows(folder: Path, how: str, known: int) -> None:
    """Waits until that relay has the runtime's lists."""
    end, said = time.monotonic() + WAIT_S, f"limits know sandboxes={known} containers={known} "
    while said not in (folder / f"{how}.log").read_text():
        if time.monotonic() > end:
            raise RuntimeError(f"relay {how} does not know {known} containers")
        time.sleep(0.01)


def _decided(folder: Path, how: str) -> None:
    """Makes sure that every create went on with a limit."""
    view = asyncio.run(line.ask(str(folder / f"run-{how}" / "relay.sock"), relay_line.COUNTS, WAIT_S))
    fates = {one.method: dict(one.fates) for one in view.calls}.get("CreateContainer", {})
    if list(fates) != ["changed"]:
        raise RuntimeError(f"the creates through {how} were not all limited: {fates}")


def _call_once(client: Client) -> None:
    """A round of calls that nobody times."""
    client.round()
    client.process.terminate()
    client.process.wait(WAIT_S)


def _start_of_limits(folder: Path, how: str) -> tuple[float, float, float]:
    """Seconds from exec until a call has been passed and answered, and until a held create has; and of processor."""
    began = time.monotonic()
    with _relay(folder, how) as pid:

        async def answered(name: str, request: bytes) -> float:
            await unary_client.call(str(folder / how), f"/runtime.v1.RuntimeService/{name}", request, WAIT_S)
            return time.monotonic() - began

        passed = asyncio.run(answered("Version", b""))
        held = asyncio.run(answered("CreateContainer", _create()))
        return passed, held, cpu_us(pid) / 1e6


def _grow() -> None:
    """What a create costs in this process, from its request to its answer, with none and with CONTAINERS known, in
    turns. The container is removed again in between, so that the count stays."""
    nodes = {known: _engine(known) for known in (0, CONTAINERS)}
    spent: dict[int, list[float]] = {known: [] for known in nodes}
    request, path = _create(), "/runtime.v1.RuntimeService/CreateContainer"
    answer = cri.CreateContainerResponse(container_id="f" * 64).SerializeToString()
    for number in range(GROWTH_CREATES):
        for known, limits in nodes.items():
            call = Call(number, 1, path, 0, held=True)
            begun = time.thread_time_ns()
            limits.decider.began(call)
            verdict = limits.decider.decide(call, request, 1_000_000_000)
            limits.decider.response(call, Message((answer,), len(answer), False, 0))
            limits.decider.ended(call, Ended(0, "", 0))
            spent[known].append((time.thread_time_ns() - begun) / 1000)
            if not isinstance(verdict, Replace) or len(limits.core.state.pods.containers) != known + 1:
                raise RuntimeError(f"the create was not limited: {verdict}")
            limits.core.tell(Removed(SandboxId("5" * 64), ContainerId("f" * 64)))
    empty, full = (median(spent[known]) for known in nodes)
    print(f"  a create, processor: none known {empty:.1f} us, {CONTAINERS} known {full:.1f} us", end="")
    print(f"   {full / empty:.2f}x   goal 1.3x")


def _engine(known: int) -> RelayLimits:
    kernel = SimKernel({"sgx_epc": 1 << 40})
    limits = RelayLimits(Settings(run_dir="/nonexistent"), kernel, SystemClock(), lambda do: do())
    sandboxes, containers = cri.ListPodSandboxResponse(), cri.ListContainersResponse()
    for number in range(known):
        home = sandboxes.items.add(id=f"s-{number}", annotations={"epc-limit.nri.io/pod": "4096"})
        home.metadata.CopyFrom(cri.PodSandboxMetadata(name=f"pod-{number}", uid=f"u-{number}", namespace="default"))
        containers.containers.add(id=f"c-{number}", pod_sandbox_id=home.id).metadata.name = "app"
    limits.decider.asked(sandboxes.SerializeToString(), containers.SerializeToString(), limits.core.seq())
    if len(limits.core.state.pods.containers) != known:
        raise RuntimeError(f"{known} containers were told, and are not known")
    return limits


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
    rounds: list[dict[str, tuple[float, float, float]]] = []
    with ExitStack() as stack:
        clients = {way: Client(program, folder / way, load) for way in load.ways}
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
        values = [middle(way, 2) for way in load.ways]
        shown = " ".join(f"{value:9.0f}" for value in values)
    else:
        values = [middle(way, 0) for way in load.ways]
        shown = " ".join(f"{value:9.1f}" for value in values)
    ratio = median([load.ratio(one) for one in rounds])
    tails = " ".join(f"{middle(way, 1):.0f}" for way in load.ways)
    print(f"    {shown}   {ratio:5.2f}x   goal {load.goal}   (p99 {tails} us; {spent:.0f} us of processor a call)")


@contextmanager
def _up(command: list[str], path: Path, more: Sequence[str], log: IO[str] | None = None) -> Iterator[int]:
    """The program, once it listens at the socket."""
    with running([*command, str(path), *more], log) as process:
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
    listen, runtime = folder / how, folder / RUNTIMES.get(how, "direct")
    if how == "watched":
        with _up([sys.executable, "-m", "bench.relay_here"], listen, (str(runtime),)) as pid:
            yield pid
        return
    more = _limited(folder) if how.startswith("limits") else ["--log-level", "error"]
    if how == "dumped":
        more += ["--dump-file", str(folder / "dump"), "--dump", "full:.*"]
    options = ["relay", *more, "--set", f"run_dir={folder}/run-{how}", "--runtime", str(runtime), "--listen"]
    with (folder / f"{how}.log").open("w") as log, _up([program, *options], listen, (), log) as pid:
        yield pid


def _limited(folder: Path) -> list[str]:
    """Flags of a relay that decides limits, for a kernel that can hold them."""
    root = folder / "cgroup"
    root.mkdir(exist_ok=True)
    for name, text in (("cgroup.controllers", "misc\n"), ("misc.capacity", "sgx_epc 1048576\n"), ("misc.current", "")):
        (root / name).write_text(text)
    return ["--set", "relay.limits=true", "--set", "nri.enabled=false", "--set", f"cgroups.root={root}"]
