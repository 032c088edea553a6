"""`make bench`: what Nodeward costs, as ratios measured in one run on this machine.

Each figure stands beside a floor measured in the same rounds, so that it means something on a busy machine too. Nothing
is asserted: a person reads it. The NRI part needs the built neighbour (`scripts/build-peers nriside-0.12`).
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nodeward.engine.apply import apply
from nodeward.engine.state import State
from nodeward.model import events as ev
from nodeward.model.workload import Container, ContainerId, ContainerSpec, PodSpec, PodUid, Sandbox, SandboxId
from tests.peers.find import peer
from tests.peers.nriside import member, nriside

ROUNDS = 5
CALLS = 3000
PROGRAMS = ("bare", "nodeward")


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    return sorted(values)[int(len(values) * share)]


def engine() -> None:
    """`apply` with 500 containers known: one create, one stop, in microseconds."""
    state, seq = State(), 0
    times: dict[str, list[float]] = {}

    def step(event: ev.Event) -> None:
        nonlocal state, seq
        seq += 1
        stamped = replace(event, seq=seq, at_ns=seq * 1_000_000)
        began = time.perf_counter_ns()
        state, _ = apply(state, stamped)
        times.setdefault(type(event).__name__, []).append((time.perf_counter_ns() - began) / 1000)

    step(ev.CapacityRead(controller=True, capacity={"sgx_epc": 1 << 40}))
    homes: list[Sandbox] = []
    for number in range(250):
        uid, specs = PodUid(f"u{number}"), (ContainerSpec("a", declared={"sgx_epc": 4096}), ContainerSpec("b"))
        step(ev.PodSeen(PodSpec(uid, "default", f"p{number}", specs)))
        homes.append(Sandbox(SandboxId(f"s{number}"), uid, "default", f"p{number}", cgroup_parent=f"/k/{uid}"))
        for name in "ab":
            made = Container(ContainerId(f"c{number}{name}"), homes[-1].id, name, cgroups_path=f"/k/{uid}/{name}")
            step(ev.Started(homes[-1], made))
    times.clear()
    for number in range(3000):
        home = homes[number % 250]
        made = Container(ContainerId(f"x{number}"), home.id, "a", cgroups_path=f"/k/{home.pod_uid}/x{number}")
        step(ev.Creating(home, made, ask_id=number))
        step(ev.Started(home, made))
        step(ev.Stopped(home, made))
    for kind in ("Creating", "Started", "Stopped"):
        p50, p99 = quantile(times[kind], 0.5), quantile(times[kind], 0.99)
        print(f"apply {kind:9} at 500 containers: p50 {p50:6.1f} us   p99 {p99:6.1f} us   (goal 30, 300)")


def start_up() -> None:
    """`nodeward --help` against an interpreter that does nothing."""

    def took(*command: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        return (time.perf_counter() - began) * 1000

    floor, helped = [], []
    for _ in range(7):
        floor.append(took("-c", "pass"))
        helped.append(
            took("-c", "from nodeward.cli.main import main; import sys; sys.argv=['nodeward','--help']; main()")
        )
    ours, empty = statistics.median(helped), statistics.median(floor)
    print(f"nodeward --help: {ours:.0f} ms, {ours / empty:.1f}x an empty interpreter ({empty:.0f} ms)   (goal 120 ms)")


def command_of(program: str, folder: Path, socket: Path) -> list[str]:
    """How a plugin is started: the bare one, or the whole daemon with record and sampler."""
    if program == "bare":
        return [sys.executable, "-m", "bench.nri_bare", str(socket)]
    cgroup = folder / "cgroup"
    cgroup.mkdir()
    (cgroup / "misc.capacity").write_text("sgx_epc 1099511627776\n")
    (cgroup / "misc.current").write_text("sgx_epc 0\n")
    config = folder / "nodeward.yaml"
    config.write_text(
        f"state_dir: {folder}/state\nrun_dir: {folder}/run\nkube: {{enabled: false}}\nnri: {{socket: {socket}}}\n"
        f"cgroups: {{root: {cgroup}}}\nrecord: {{path: {folder}/record}}\n"
    )
    return [str(Path(sys.executable).parent / "nodeward"), "node", "--log-level", "error", "--config", str(config)]


async def nri_round(program: str, home: Path) -> dict[str, float]:
    """One round: start, synchronize 250 pods of 2 containers, CALLS creates; times in microseconds."""
    with tempfile.TemporaryDirectory(prefix="nwb") as name:
        folder = Path(name)
        async with asyncio.timeout(120), nriside(home, folder / "s") as side:
            await side.command("populate", pods=250, per_pod=2, filler=2000)
            await side.command("listen")
            process = subprocess.Popen(command_of(program, folder, side.socket))
            try:
                synchronized = await side.event("synchronized")
                await side.event("log", "connected and synchronized")
                answer = await side.command("bench", calls=CALLS, filler=2000)
                sync = synchronized["ns"]
                p50, p99 = member(answer, "bench", "p50_ns"), member(answer, "bench", "p99_ns")
                assert isinstance(sync, int)
                assert isinstance(p50, int)
                assert isinstance(p99, int)
                status = Path(f"/proc/{process.pid}/status").read_text()
                rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
                return {"p50": p50 / 1000, "p99": p99 / 1000, "sync": sync / 1000, "rss": rss / 1024}
            finally:
                process.terminate()
                process.wait(30)


def nri() -> None:
    """CreateContainer and Synchronize by NRI's own Go adaptation, the daemon beside the bare plugin."""
    home = peer("nriside-0.12")
    if home is None:
        print("nri: skipped, the neighbour is not built: scripts/build-peers nriside-0.12")
        return
    rounds: dict[str, list[dict[str, float]]] = {program: [] for program in PROGRAMS}
    for _ in range(ROUNDS):
        for program in PROGRAMS:
            rounds[program].append(asyncio.run(nri_round(program, home)))
    for what, goal in (("p50", "1.6x"), ("p99", "2x"), ("sync", "2.5x"), ("rss", "-")):
        bare, ours = (statistics.median(one[what] for one in rounds[program]) for program in PROGRAMS)
        unit = "MiB" if what == "rss" else "us"
        print(
            f"nri {what:4}: nodeward {ours:8.1f} {unit}, bare Python {bare:8.1f} {unit}, {ours / bare:.2f}x"
            f"   (goal {goal})"
        )


if __name__ == "__main__":
    start_up()
    engine()
    nri()
