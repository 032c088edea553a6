"""CreateContainer and Synchronize as a runtime sees them, driven by NRI's own Go adaptation (the peer nriside).

What one timed create consists of. nriside calls `CreateContainer` of the adaptation with one pod and one container
(2 kB of environment), and the time ends when it returns. In between: the adaptation marshals the request for its one
plugin and sends it over ttrpc through the mux on a unix socket; the plugin decodes it, answers an adjustment of
`misc.max` and encodes it; the adaptation decodes the answer and applies it to the request. The bare plugin and the one
on the Go stub answer a constant. The daemon has the settings' defaults and holds the state of the whole node: the event
is stamped and every feature is stepped with it before the answer. Event and decision are encoded for the record later.

What goes on beside it. In a *life*, each container is told of as created, starting, started, stopped and removed before
the next one is created; these calls are not timed, yet what they leave behind runs on while the next create is timed:
the goals of a started container (one read, one write, one read back; a read for each `+misc` above it) on the cgroup
lane, the record on the disk lane. The sampler reads all cgroups once a second on kept descriptors. *Back to back* is
create after create of the same hundred containers, without lives.

Processor time is the whole process' (all threads) divided by the number of creates: busy neighbours on the machine move
it less than they move a latency. For lives it covers the create and the five notices that follow.
"""

import asyncio
from pathlib import Path

from bench import plugins, tree
from bench.measure import cpu_us, median
from tests.peers.nriside import NriSide, member, nriside

ROUNDS = 5
NODE = tree.Shape(pods=110, per_pod=3, calls=3000)
"""As many pods as a kubelet runs by default, in the shape of the sampler's and the memory's part of the bench."""
LARGE = tree.Shape(pods=500, per_pod=1)
"""For Synchronize. Its time ends with the plugin's answer; the daemon answers when every limit is decided and its slot
filled."""
FILLER = 2000

CREATE_LINES = {
    "life p50": ("create in lives, p50", "1.2x Go"),
    "life p99": ("create in lives, p99", "1x Go"),
    "life cpu": ("processor time a life", "-"),
    "back p50": ("create back to back, p50", "1.2x Go"),
    "back p99": ("create back to back, p99", "1x Go"),
    "back cpu": ("processor time a create", "-"),
}
Figures = dict[str, float]


async def one_round(program: str, home: Path, shape: tree.Shape) -> Figures:
    """One round of one program: it starts, synchronizes with the node, and answers; times in microseconds."""
    with tree.scratch() as folder:
        command = plugins.command_of(program, folder, folder / "s", shape)
        async with asyncio.timeout(180), nriside(home, folder / "s") as side:
            await side.command("populate", pods=shape.pods, per_pod=shape.per_pod, filler=FILLER)
            await side.command("listen")
            with plugins.running(command) as process:
                synchronized = await side.event("synchronized")
                await side.event("log", "connected and synchronized")
                if program == plugins.DAEMON:
                    await plugins.settled(folder, shape)
                figures = {"sync": _number(synchronized["ns"]) / 1000}
                if shape.calls:
                    await side.command("bench", calls=shape.calls // 10, filler=FILLER)  # warms both ends
                    figures |= await _creates(side, process.pid, shape.calls, lives=True)
                    figures |= await _creates(side, process.pid, shape.calls, lives=False)
                if program == plugins.DAEMON:
                    plugins.check(folder)
                return figures


async def _creates(side: NriSide, pid: int, calls: int, *, lives: bool) -> Figures:
    kind = "life" if lives else "back"
    before = cpu_us(pid)
    answer = await side.command("bench", calls=calls, filler=FILLER, lives=lives)
    spent = (cpu_us(pid) - before) / calls
    if member(answer, "bench", "failed") != 0:
        raise plugins.UnfairError(f"creates failed: {answer}")
    p50, p99 = (_number(member(answer, "bench", name)) / 1000 for name in ("p50_ns", "p99_ns"))
    return {f"{kind} p50": p50, f"{kind} p99": p99, f"{kind} cpu": spent}


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def run() -> None:
    """The daemon beside the floors, in interleaved rounds; medians."""
    home = plugins.built("nriside-0.12")
    plugins.built("nristub")
    _print(NODE, asyncio.run(_rounds(home, NODE)), CREATE_LINES)
    _print(LARGE, asyncio.run(_rounds(home, LARGE)), {"sync": ("synchronize", "2.5x bare")})


async def _rounds(home: Path, shape: tree.Shape) -> dict[str, list[Figures]]:
    rounds: dict[str, list[Figures]] = {program: [] for program in plugins.PROGRAMS}
    for _ in range(ROUNDS):
        for program in plugins.PROGRAMS:
            rounds[program].append(await one_round(program, home, shape))
    return rounds


def _print(shape: tree.Shape, rounds: dict[str, list[Figures]], lines: dict[str, tuple[str, str]]) -> None:
    print(f"nri, {shape}, median of {ROUNDS} interleaved rounds, microseconds")
    for what, (title, goal) in lines.items():
        middle = {program: median([one[what] for one in rounds[program]]) for program in plugins.PROGRAMS}
        ours = middle[plugins.DAEMON]
        beside = "  ".join(f"{floor} {middle[floor]:9.1f} ({ours / middle[floor]:5.2f}x)" for floor in plugins.FLOORS)
        print(f"  {title:26} {ours:9.1f}  {beside}   goal {goal}")
    best = {program: min(one["sync"] for one in rounds[program]) for program in plugins.PROGRAMS}
    beside = "  ".join(f"{program} {value:9.1f}" for program, value in best.items())
    print(f"  {'synchronize, best round':26} {beside}")
