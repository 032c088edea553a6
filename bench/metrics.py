"""What a scrape of a full node costs the daemon: processor time, text, memory, and how late the event loop is by it.

The whole daemon with the pods of nriside, every limit enforced, read over HTTP as Prometheus reads it. Processor time
is the process' own while it is scraped, less what it uses in as long a time without. A second daemon, on the same node
without metrics, says what they take of memory.
"""

import asyncio
import re
import socket
import time
from pathlib import Path
from urllib.request import urlopen

from bench import plugins, tree
from bench.measure import cpu_us, median, memory_mib
from nodeward.aio.watchdog import BEAT_S, WINDOW
from tests.peers.nriside import nriside

NODE = tree.Shape(pods=167, per_pod=3)
"""500 containers."""
HUGE = tree.Shape(pods=500, per_pod=3)
SCRAPES = 12
APART_S = 0.7
"""More than the server's FRESH_S, so that each one is drawn."""
PATIENCE_S = 30


def run() -> None:
    """Milliseconds of a core and bytes a scrape; MiB."""
    for shape in (NODE, HUGE):
        asyncio.run(_measure(shape))


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


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
    print("  (a minute's wait, until the start no longer counts as a delay of the loop)", flush=True)
    time.sleep(WINDOW * BEAT_S + 1)
    idle_ms = _lag_ms(scrape(port))
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
    print(f"  the loop's worst delay    {_lag_ms(text):8.1f} ms in the last minute, {idle_ms:.1f} in that before")
    return text


def _lag_ms(text: str) -> float:
    found = re.search(r"^nodeward_loop_lag_max_seconds (\S+)", text, re.MULTILINE)
    return float(found[1]) * 1e3 if found else 0.0


def _spent_us(pid: int, port: int) -> float:
    """In APART_S, and a scrape if there is a port."""
    before = cpu_us(pid)
    if port:
        scrape(port)
    time.sleep(APART_S)
    return cpu_us(pid) - before
