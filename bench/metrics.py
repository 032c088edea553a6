"""What a scrape of a full node costs the daemon: processor time, text, memory, and how late the event loop is by it.

The whole daemon with the pods of nriside, every limit enforced, read over HTTP as Prometheus reads it. Processor time
is the process' own while it is scraped, less what it uses in as long a time without. A second daemon, on the same node
without metrics, says what they take of memory. In a third one a ticker on the loop (bench/ticking.py) says how long
the loop waits for the interpreter that the drawing thread has, and how late it is woken: in a time in which nobody
asks, in as long a one in which the daemon is scraped, and in one in which it is scraped while every cgroup's usage
changes before each pass. A fourth one says how long one callback works in such times; it is on asyncio's own loop, as
the daemon's lets nobody measure its callbacks. In all of them the daemon reads the kernel's files once a second. What
callbacks work and what the loop waits for is processor time, which other work on the machine does not lengthen, but
for the interrupts that fall into it (a kernel without CONFIG_IRQ_TIME_ACCOUNTING counts them in); the rest is not.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from bench import plugins, ticking, tree
from bench.measure import cpu_us, median, memory_mib, quantile
from tests.peers.nriside import nriside
from tests.peers.ports import free_port

NODE = tree.Shape(pods=167, per_pod=3)
"""500 containers."""
HUGE = tree.Shape(pods=500, per_pod=3)
SCRAPES = 12
ROUNDS = 5
SCRAPES_A_ROUND = 8
LOOP_GOAL_MS = 5
APART_S = 0.7
"""More than the server's FRESH_S, so that each one is drawn."""
PATIENCE_S = 30

TIMES = ("nobody asks", "scraped", "scraped, and every usage changes")
Heard = ticking.Seen
"""Of one time."""
TOLD = {
    ticking.CALLBACKS: (
        ("worked", "works in one callback, by its own processor time", f"   goal {LOOP_GOAL_MS}"),
        ("took", "is in one callback, by the wall's clock", ""),
    ),
    ticking.WAITS: (
        ("waited", "waits for the thread that draws, by that one's processor time", f"   goal {LOOP_GOAL_MS}"),
        ("late", "is woken late, whoever is the reason", ""),
    ),
}
"""What is measured in which daemon, with its goal."""


def run() -> None:
    """Milliseconds of a core and bytes a scrape; MiB."""
    for shape in (NODE, HUGE):
        asyncio.run(_measure(shape))
    for what in TOLD:
        asyncio.run(_lateness(HUGE, what))


def scrape(port: int) -> str:
    """The text."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        body: bytes = answer.read()
    return body.decode()


async def _measure(shape: tree.Shape) -> None:
    print(f"scrape of {shape.pods * shape.per_pod} containers in {shape.pods} pods")
    without, _ = await _daemon(shape, 0)
    port = free_port()
    with_metrics, text = await _daemon(shape, port)
    goal = "   goal 60, metrics off" if shape is NODE else ""
    print(f"  resident without metrics  {without:8.1f} MiB{goal}")
    print(f"  with them, after scrapes  {with_metrics:8.1f} MiB")
    print(f"  text                      {len(text) / 2**20:8.2f} MiB{'   goal 2' if shape is NODE else ''}")


async def _daemon(shape: tree.Shape, port: int) -> tuple[float, str]:
    """Resident memory in the end, and the last text; `port` 0: no metrics."""
    home = plugins.built("nriside-0.12")
    more = f"metrics: {{enabled: true, listen: '127.0.0.1:{port}'}}\n" if port else ""
    with tree.scratch() as folder:
        command = plugins.daemon(folder, folder / "s", shape, more=more)
        async with asyncio.timeout(360), nriside(home, folder / "s") as side:
            await side.command("populate", pods=shape.pods, per_pod=shape.per_pod, filler=2000)
            await side.command("listen")
            with plugins.running(command) as process:
                await side.event("log", "connected and synchronized")
                await plugins.settled(folder, shape, within_s=120)
                text = await asyncio.to_thread(_scraped, process.pid, port, folder, shape) if port else ""
                plugins.check(folder)
                return memory_mib(process.pid)[0], text


def _scraped(pid: int, port: int, folder: Path, shape: tree.Shape) -> str:
    spent: list[float] = []
    took: list[float] = []
    for _ in range(SCRAPES):
        idle = _spent_us(pid, 0)
        began = time.monotonic()
        busy = _spent_us(pid, port)
        took.append(time.monotonic() - began - APART_S)
        spent.append((busy - idle) / 1000)
    text = scrape(port)
    goal = "   goal 60" if shape is NODE else ""
    print(f"  processor time            {median(spent):8.1f} ms{goal}   ({min(spent):.1f} to {max(spent):.1f})")
    print(f"  until it is there         {median(took) * 1e3:8.1f} ms")
    return text


async def _lateness(shape: tree.Shape, measured: str) -> None:
    """Prints what TOLD has of one daemon's loop, at each of TIMES in turn, in rounds."""
    port = free_port()
    more = f"metrics: {{enabled: true, listen: '127.0.0.1:{port}'}}\n"
    with tree.scratch() as folder:
        file = folder / "late.json"
        command = plugins.daemon(folder, folder / "s", shape, more=more)
        program = [sys.executable, "-m", "bench.ticking", measured, str(file), *command[1:]]
        async with asyncio.timeout(360), nriside(plugins.built("nriside-0.12"), folder / "s") as side:
            await side.command("populate", pods=shape.pods, per_pod=shape.per_pod, filler=2000)
            await side.command("listen")
            with plugins.running(program) as process:
                await side.event("log", "connected and synchronized")
                await plugins.settled(folder, shape, within_s=120)
                rounds = await asyncio.to_thread(
                    _late_rounds, process.pid, file, port, folder / "cgroup" / "misc.current"
                )
                plugins.check(folder)
    whose = "asyncio's loop" if measured == ticking.CALLBACKS else "the daemon's loop"
    print(f"{whose} with {shape.pods} pods of {shape.per_pod}, ms; each of {ROUNDS} rounds' worst")
    for key, what, goal in TOLD[measured]:
        print(f"  {what}")
        for name, seen in zip(TIMES, zip(*rounds, strict=True), strict=True):
            lists: list[list[int]] = [getattr(each, key) for each in seen]
            everything = [one for each in lists for one in each]
            worst = ", ".join(f"{max(each) / 1000:.1f}" for each in lists)
            p99, p999 = quantile(everything, 0.99) / 1000, quantile(everything, 0.999) / 1000
            print(f"    {name:31} {worst}; p99 {p99:.1f}, p99.9 {p999:.1f} of {len(everything)}{goal}")
    full = [one for seen in rounds for each in seen for one in each.collected]
    print(f"  {len(full)} full garbage collections, the longest {max(full, default=0) / 1000:.1f}")
    if measured == ticking.CALLBACKS:
        print("  kinds of callbacks that worked more than 1 ms, the longest of each kind in each of those times")
        for number, name in enumerate(TIMES):
            long: dict[str, int] = {}
            for seen in rounds:
                long |= {kind: max(took, long.get(kind, 0)) for kind, took in seen[number].long.items()}
            print(f"    {name}: {', '.join(f'{kind} {took / 1000:.1f}' for kind, took in long.items()) or 'none'}")


def _late_rounds(pid: int, file: Path, port: int, usage: Path) -> list[tuple[Heard, Heard, Heard]]:
    """Of each round what the ticker saw in each of TIMES."""
    scrape(port)
    found = []
    for _ in range(ROUNDS):
        _heard(pid, file)
        time.sleep(SCRAPES_A_ROUND * APART_S)
        idle = _heard(pid, file)
        _scrapes(port)
        scraped = _heard(pid, file)
        with _changing(usage):
            _scrapes(port)
        found.append((idle, scraped, _heard(pid, file)))
    return found


def _scrapes(port: int) -> None:
    for _ in range(SCRAPES_A_ROUND):
        began = time.monotonic()
        scrape(port)
        time.sleep(max(0.0, APART_S - (time.monotonic() - began)))


@contextmanager
def _changing(usage: Path) -> Iterator[None]:
    """Another usage twice a second, in the one content that all cgroups of the folder share."""
    ended = threading.Event()

    def change() -> None:
        amount = int(usage.read_text().split()[1])
        while not ended.wait(0.5):
            amount += 1
            with usage.open("r+") as file:
                file.write(f"sgx_epc {amount}\n")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _heard(pid: int, file: Path) -> Heard:
    """What the ticker has to tell since it was last asked."""
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    end = time.monotonic() + PATIENCE_S
    while not file.exists():
        if time.monotonic() > end:
            raise plugins.UnfairError(f"the ticker in process {pid} said nothing within {PATIENCE_S} s")
        time.sleep(0.01)
    return ticking.Seen(**json.loads(file.read_text()))


def _spent_us(pid: int, port: int) -> float:
    """In APART_S, and a scrape if there is a port."""
    before = cpu_us(pid)
    if port:
        scrape(port)
    time.sleep(APART_S)
    return cpu_us(pid) - before
