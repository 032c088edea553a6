"""What the relay adds to a CRI call, beside what a bare Go gRPC pass-through adds.

Server, pass-through and client are bench/cri_go, all on unix sockets. The three ways (direct, through the pass-through,
through the relay) take turns within each round; each client has made its calls once before. *Added* is the median of a
way's calls less the median of the direct calls of the same round. A call has a deadline, as kubelet's have, so that no
two header blocks are the same.

`nodeward relay` is the program as it is installed: it counts calls by method and result, which `uncounted` does not.
`dumped` writes each message to a file as well, by a process of its own that has its share of the machine; it is
compared with the `plain` relay beside it, in the same rounds. Behind `limits`, `limits-none` and `sized` a node daemon
of its own decides, as installed, for a kernel that is a folder of files: creates by a pod's annotation, with so many
containers known from the runtime's lists, and none; sizes of VMs by the pod that it remembers. At the end each is asked
whether it has changed every call. The pass-through is one process for all of it, and never dumps. Memory is that of
relays, and of the daemon of `limits-pods`, with a runtime that has PODS pods, after some thousand calls.
"""

import asyncio
import json
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
from nodeward.contracts import cri_pb2 as cri
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.pods.effects import last_known
from nodeward.neighbours.cri import relay_line
from nodeward.neighbours.cri import relay_socket as line
from nodeward.neighbours.sockets import unary_client
from nodeward.people.relay_view import RelayView
from tests.unit.neighbours.cri.between import Between
from tests.unit.neighbours.cri.strict import request

ROUNDS = 5
CONTAINERS, PODS = 500, 110
WAIT_S = 30.0
RELAYS = ("plain", "uncounted", "dumped", "limits", "limits-none", "sized", "pods", "limits-pods")
RUNTIMES = {"limits-none": "none", "pods": "some", "limits-pods": "some"}
"""The server behind each relay, where it is not `direct`."""
CREATE, RUN, VERSION = "CreateContainer", "RunPodSandbox", ("Version", b"")
REQUEST_BYTES = 4096
HELD = 1000, 4000
POD = PodSpec(PodUid("uid"), "default", "pod", (ContainerSpec("app", cpu_m=3000, memory_request=1 << 30),))
"""The pod of `_run`."""


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
    Load("the same, calls not counted: added p50", "Version", 2000, relay="uncounted", goal="0.5x"),
    Load("Version, 16 workers on 16 connections: calls/s", "Version", 8000, 16, 16, goal="1.3x"),
    Load("Version, 16 workers on one connection: calls/s", "Version", 8000, 1, 16, goal="-"),
    Load(
        f"ListContainers of {CONTAINERS}, limits on: added p50",
        *("ListContainers", 300),
        request="0",
        relay="limits",
        goal="0.75x",
    ),
    Load("Version, full dump beside none: p50", "Version", 2000, relay="dumped", goal="1.15x", beside="plain"),
    Load(
        f"ListContainers of {CONTAINERS}, full dump beside none: p50",
        *("ListContainers", 100),
        relay="dumped",
        goal="1.15x",
        beside="plain",
    ),
    Load("CreateContainer of 4 kB, limited, none known: added p50", *_CREATE, "limits-none", "2x"),
    Load(f"CreateContainer of 4 kB, limited, {CONTAINERS} known: added p50", *_CREATE, "limits", "2x"),
    Load("RunPodSandbox of 4 kB, sized: added p50", RUN, 1000, request="run", relay="sized", goal="1500 us added"),
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

    def close(self) -> None:
        """Ends the process."""
        self.process.terminate()
        self.process.wait(WAIT_S)


def run() -> None:
    """Each load in turn; then the relay's memory."""
    program = built("cribench") / "cribench"
    with tempfile.TemporaryDirectory(prefix="nwb") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "create").write_bytes(_create())
        (folder / "run").write_bytes(_run())
        stack.enter_context(_up([str(program), "server"], folder / "direct", [str(CONTAINERS)]))
        stack.enter_context(_up([str(program), "server"], folder / "none", ["0"]))
        stack.enter_context(_up([str(program), "server"], folder / "some", [str(PODS)]))
        stack.enter_context(_up([str(program), "proxy"], folder / "go", [str(folder / "direct")]))
        pids = {how: stack.enter_context(_relay(folder, how)) for how in RELAYS}
        for how, known in (("limits", CONTAINERS), ("limits-none", 0), ("limits-pods", PODS)):
            _says(folder / f"node-{how}.log", f"relay=listed sandboxes={known} containers={known} ")
        _says(folder / "sized.log", "daemon=answers")
        print("relay: direct, Go pass-through (or the relay without), nodeward, ratio of what they add (or as told)")
        for load in LOADS:
            _compare(load, program, folder, pids[load.relay])
        for how in ("limits", "limits-none"):
            _decided(folder, how)
        _decided(folder, "sized", RUN)
        for how in ("pods", "limits-pods"):
            for method in ("Version", "ListContainers", "CreateContainer"):
                _call_once(Client(program, folder / how, Load("", method, 1000, request="create")))
            resident, private = memory_mib(pids[how])
            print(f"  resident memory of nodeward relay, {PODS} pods, {how}: {resident:.1f} MiB", end="")
            print(f", {private:.1f} private   goal 35")
        resident, private = memory_mib(_shown(folder, "limits-pods").daemon.process)
        print(f"  resident memory of its node daemon: {resident:.1f} MiB, {private:.1f} private   goal 60")
        passed = median([_start(folder, f"start-{number}", VERSION)[0] for number in range(ROUNDS)])
        print(f"  start, exec to the first passed call: {passed:.2f} s   goal 0.4")
        calls = (VERSION, (CREATE, _create()))
        both = [_start(folder, f"limits-start-{number}", *calls) for number in range(ROUNDS)]
        passed, held, spent = (median([one[column] for one in both]) for column in range(3))
        print(f"  the same beside a starting daemon: to the first passed call {passed:.2f} s   goal 0.4")
        print(f"    to the first held call: {held:.2f} s   goal 1   ({spent:.2f} s of processor)")
    _expire()


def _create() -> bytes:
    """A create as large as kubelet's, of a pod whose annotation limits it."""
    made = cri.CreateContainerRequest(pod_sandbox_id="5" * 64)
    made.sandbox_config.metadata.CopyFrom(cri.PodSandboxMetadata(name="limited", uid="limited", namespace="default"))
    made.sandbox_config.annotations["epc-limit.nri.io/container.app"] = "8192"
    made.config.metadata.name = "app"
    while made.ByteSize() < REQUEST_BYTES:
        made.config.envs.add(key="SERVICE_HOST", value=b"10.0.0.1")
    return made.SerializeToString()


def _run() -> bytes:
    """A pod as large as kubelet's, whose handler starts VMs."""
    made = cri.RunPodSandboxRequest(runtime_handler="kata")
    made.config.metadata.CopyFrom(cri.PodSandboxMetadata(name="pod", uid="uid", namespace="default"))
    made.config.linux.resources.CopyFrom(cri.LinuxContainerResources(cpu_shares=3072, cpu_period=100_000))
    while made.ByteSize() < REQUEST_BYTES:
        made.config.annotations[f"example.com/note-{len(made.config.annotations)}"] = "a note"
    return made.SerializeToString()


def _says(log: Path, what: str) -> None:
    """Waits until that is in the log."""
    end = time.monotonic() + WAIT_S
    while what not in log.read_text():
        if time.monotonic() > end:
            raise RuntimeError(f"{log.name} does not say {what!r}")
        time.sleep(0.01)


def _shown(folder: Path, how: str) -> RelayView:
    """What that relay says of itself."""
    return asyncio.run(line.ask(str(folder / f"run-{how}" / "relay.sock"), relay_line.STATUS, RelayView, WAIT_S))


def _decided(folder: Path, how: str, method: str = CREATE) -> None:
    """Makes sure that every one of these calls went on changed: a create with a limit, a pod with a size."""
    fates = {one.method: dict(one.fates) for one in _shown(folder, how).calls}.get(method, {})
    if list(fates) != ["changed"]:
        raise RuntimeError(f"the calls of {method} through {how} were not all changed: {fates}")


def _call_once(client: Client) -> None:
    """A round of calls that nobody times."""
    client.round()
    client.close()


def _start(folder: Path, how: str, *calls: tuple[str, bytes]) -> list[float]:
    """Seconds from exec until each of these calls, one after the other, has been answered; and of processor."""
    began = time.monotonic()
    with _relay(folder, how) as pid:

        async def answered(name: str, request: bytes) -> float:
            await unary_client.call(str(folder / how), f"/runtime.v1.RuntimeService/{name}", request, WAIT_S)
            return time.monotonic() - began

        taken = [asyncio.run(answered(*call)) for call in calls]
        spent = cpu_us(pid) / 1e6
        return [*taken, spent]


def _expire() -> None:
    """What it costs in this process that the time of so many requests without a body is up, all of one connection."""
    few, many = (median([_expired_ms(held) for _ in range(ROUNDS)]) for held in HELD)
    print(f"  held calls that expire, processor: {HELD[0]} {few:.1f} ms, {HELD[1]} {many:.1f} ms", end="")
    print(f"   {many / few:.2f}x   goal {HELD[1] / HELD[0] * 1.25:g}x")


def _expired_ms(held: int) -> float:
    rig, streams = Between(), range(1, 2 * held, 2)
    for stream in streams:
        rig.client.headers(stream, request("HoldCreate"))
    rig.settle()
    begun = time.thread_time_ns()
    for stream in streams:
        rig.session.holds.late(stream, ending=False)
    return (time.thread_time_ns() - begun) / 1e6


def _compare(load: Load, program: Path, folder: Path, pid: int) -> None:
    rounds: list[dict[str, tuple[float, float, float]]] = []
    with ExitStack() as stack:
        clients = {way: Client(program, folder / way, load) for way in load.ways}
        for client in clients.values():
            stack.callback(client.close)
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
    added = "" if load.workers > 1 else f"adds {values[2] - values[0]:.0f} us; "
    ratio = median([load.ratio(one) for one in rounds])
    tails = " ".join(f"{middle(way, 1):.0f}" for way in load.ways)
    print(
        f"    {shown}   {ratio:5.2f}x   goal {load.goal}   ({added}p99 {tails} us; {spent:.0f} us of processor a call)"
    )


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
    """A relay before the server, and the daemon that decides where something is to be."""
    program = str(Path(sys.executable).parent / "nodeward")
    listen, runtime = folder / how, folder / RUNTIMES.get(how, "direct")
    decides = _decides(folder, how)
    more = list(decides) or ["--log-level", "error"]
    if how == "uncounted":
        more += ["--set", "relay.count_calls=false"]
    if how == "dumped":
        more += ["--dump-file", str(folder / "dump"), "--dump", "full:.*"]
    options = ["relay", *more, "--set", f"run_dir={folder}/run-{how}", "--runtime", str(runtime), "--listen"]
    with ExitStack() as stack:
        if decides:
            log = stack.enter_context((folder / f"node-{how}.log").open("w"))
            node = [program, "node", *decides, "--set", f"run_dir={folder}/run-{how}"]
            stack.enter_context(running(node, log))
        log = stack.enter_context((folder / f"{how}.log").open("w"))
        yield stack.enter_context(_up([program, *options], listen, (), log))


def _decides(folder: Path, how: str) -> tuple[str, ...]:
    """Flags of a relay and a daemon that decides limits or sizes, for a kernel that can hold them; none for others."""
    chosen = {"limits": ("relay.limits=true",), "sized": ("sizing.mode=enforce", "sizing.handlers=[kata]")}
    pairs = chosen.get(how.partition("-")[0], ())
    if not pairs:
        return ()
    root, state = folder / "cgroup", folder / f"state-{how}"
    for made in (root, state):
        made.mkdir(exist_ok=True)
    for name, text in (("cgroup.controllers", "misc\n"), ("misc.capacity", "sgx_epc 1048576\n"), ("misc.current", "")):
        (root / name).write_text(text)
    known = last_known.Remembered((POD,), time.time_ns())
    Path(last_known.FILE.path_in(str(state))).write_bytes(last_known.FILE.encode(known))
    pairs += ("nri.enabled=false", "kube.enabled=false", f"cgroups.root={root}", f"state_dir={state}")
    return tuple(word for pair in pairs for word in ("--set", pair))
