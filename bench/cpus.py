"""What a CPU policy costs as a runtime sees it: 500 containers on 128 CPUs, by NRI's own Go adaptation (peer nriside).

Three figures, in rounds beside a bare Python plugin that answers a constant:

- Synchronize, when every container has its place;
- a create that changes nothing for others (a container that shares): the adaptation's CreateContainer;
- a create with two CPUs of its own: CreateContainer, PostCreateContainer and StartContainer together. The last is
  answered when the sets of all 500 others were written and read back.

The machine is a sysfs tree of `nodeward_sim.doubles.cpus`, mounted over this one's for the daemon. The cgroups are
files on a tmpfs: what the kernel's cpuset controller itself takes for a write is not in the figures.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from bench import plugins, tree
from bench.measure import median, memory_mib, quantile
from nodeward.core.workload import Qos
from nodeward.features.pods.effects import last_known
from nodeward_sim.doubles import cpus
from tests.peers.nriside import NriSide, Record, member, nriside, number

ROUNDS = 3
SHAPE = tree.Shape(pods=500, per_pod=1, calls=500)
PLAN = cpus.Plan(sockets=2, nodes=2, cores=16)
OWN, OWN_CPUS = 60, 2
"""So many containers come with so many CPUs of their own, one after the other."""
SETTINGS = "policy: {Active: static, ReservedResources: {CPU: 2}}\n"
Figures = dict[str, float]
LINES = {
    "sync": ("Synchronize", 1e3, "<= 100"),
    "shared p50": ("create that shares, p50", 1e3, "<= 2x bare, <= 8"),
    "shared p99": ("create that shares, p99", 1e3, "-"),
    "decided p50": ("create with own CPUs, answered, p50", 1e3, "<= 8"),
    "own p50": ("create with own CPUs to the last read back, p50", 1e3, "<= 8"),
    "own p99": ("create with own CPUs to the last read back, p99", 1e3, "-"),
    "rss": ("resident, MiB", 1, "<= 70"),
}


def own_pod(at: int) -> tuple[Record, Record]:
    """A Guaranteed pod of whole CPUs, and its container, as NRI tells them."""
    uid = f"{0xE0000000 + at:08x}-0000-4000-8000-000000000000"
    parent, container_id = f"/kubepods/pod{uid}", f"ee{at:062x}"
    pod: Record = {
        "id": f"dd{at:062x}",
        "name": f"own-{at}",
        "namespace": "default",
        "uid": uid,
        "linux": {"cgroupParent": parent},
    }
    told = {"shares": OWN_CPUS * 1024, "quota": OWN_CPUS * 100_000, "period": 100_000}
    cpu: Record = {name: {"value": value} for name, value in told.items()}
    container: Record = {
        "id": container_id,
        "podSandboxId": pod["id"],
        "name": "app",
        "state": "CONTAINER_CREATED",
        "linux": {"cgroupsPath": f"{parent}/{container_id}", "resources": {"cpu": cpu}},
    }
    return pod, container


def lay_out(folders: Iterable[Path]) -> None:
    """The cpuset files of these cgroups: what is written is what holds."""
    for folder in folders:
        (folder / "cpuset.cpus").touch()
        (folder / "cpuset.cpus.effective").hardlink_to(folder / "cpuset.cpus")


def command_of(program: str, folder: Path, socket: Path, settings: str = SETTINGS) -> list[str]:
    """How the program is started, with these lines of settings; makes what it needs in `folder`."""
    if program != plugins.DAEMON:
        return plugins.command_of(program, folder, socket, SHAPE)
    line = plugins.daemon(folder, socket, SHAPE, more=settings)
    lay_out((folder / "cgroup").rglob("cc*"))
    pods = [
        replace(pod, qos=Qos.BURSTABLE, containers=tuple(replace(one, cpu_m=100) for one in pod.containers))
        for pod in plugins.specs(SHAPE)
    ]
    Path(last_known.FILE.path_in(str(folder / "state"))).write_bytes(
        last_known.FILE.encode(last_known.Remembered(tuple(pods), 1))
    )
    for path, content in cpus.sysfs(PLAN).items():
        place = folder / "machine" / path.removeprefix("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    apart = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "bench.cpus_daemon"]
    return [*apart, str(folder / "machine"), *line[1:]]


async def one_round(program: str, home: Path, settings: str = SETTINGS) -> Figures:
    """One round of one program; times in microseconds."""
    with tree.scratch() as folder:
        command = command_of(program, folder, folder / "s", settings)
        async with asyncio.timeout(180), nriside(home, folder / "s") as side:
            await side.command("populate", pods=SHAPE.pods, per_pod=SHAPE.per_pod)
            await side.command("listen")
            with plugins.running(command) as process:
                synchronized = await side.event("synchronized")
                await side.event("log", "connected and synchronized")
                if program == plugins.DAEMON:
                    await plugins.settled(folder, SHAPE)
                await side.command("bench", calls=50, lives=True)
                shared = await side.command("bench", calls=SHAPE.calls, lives=True)
                if member(shared, "bench", "failed") != 0:
                    raise plugins.UnfairError(f"creates failed: {shared}")
                own = [await _own(side, at, folder / "cgroup") for at in range(OWN)]
                if program == plugins.DAEMON:
                    await plugins.settled(folder, SHAPE)  # the last one's CPUs are everybody's again
                    plugins.check(folder)
                return {
                    "sync": number(synchronized, "ns") / 1e3,
                    "shared p50": _of(shared, "p50_ns"),
                    "shared p99": _of(shared, "p99_ns"),
                    "decided p50": median([create for create, _ in own]),
                    "own p50": median([whole for _, whole in own]),
                    "own p99": quantile([whole for _, whole in own], 0.99),
                    "rss": memory_mib(process.pid)[0],
                }


def _of(answer: Record, name: str) -> float:
    took_ns = member(answer, "bench", name)
    assert isinstance(took_ns, int)
    return took_ns / 1e3


async def _own(side: NriSide, at: int, cgroups: Path) -> tuple[float, float]:
    """A life of a container with CPUs of its own: what its create took, and that with all until it may start."""
    pod, container = own_pod(at)
    place = cgroups / str(member(container, "linux", "cgroupsPath")).lstrip("/")
    place.mkdir(parents=True)
    lay_out((place,))
    await _told(side, "run_pod", pod)
    created = await _told(side, "create", pod, container)
    started = [await _told(side, op, pod, container) for op in ("post_create", "start")]
    await _told(side, "post_start", pod, container | {"state": "CONTAINER_RUNNING", "pid": 4242})
    for op in ("stop", "remove", "stop_pod", "remove_pod"):
        await _told(side, op, pod, container)
    return created, created + sum(started)


async def _told(side: NriSide, op: str, pod: Record, container: Record | None = None) -> float:
    more: Record = {} if container is None else {"container": container}
    answer = await side.command(op, pod=pod, **more)
    if answer["error"]:
        raise plugins.UnfairError(f"{op}: {answer['error']}")
    return number(answer, "ns") / 1e3


def run() -> None:
    """The daemon beside a bare plugin, in interleaved rounds; medians."""
    home = plugins.built("nriside-0.12")
    programs = ("bare", plugins.DAEMON)
    rounds: dict[str, list[Figures]] = {program: [] for program in programs}
    for _ in range(ROUNDS):
        for program in programs:
            rounds[program].append(asyncio.run(one_round(program, home)))
    _print(rounds["bare"], rounds[plugins.DAEMON])


def _print(bare: Sequence[Figures], ours: Sequence[Figures]) -> None:
    print(f"cpus, policy static, {SHAPE.pods} containers, 128 CPUs, median of {ROUNDS} rounds, milliseconds")
    for what, (title, unit, aim) in LINES.items():
        floor, mine = (median([one[what] for one in rounds]) / unit for rounds in (bare, ours))
        print(f"  {title:48} {mine:9.2f}   bare {floor:9.2f} ({mine / floor:5.1f}x)   aim {aim}")
