"""What a pass of the sampler costs over the cgroups of a full node: processor time, and system calls.

Two measurements. *Reading* is the production code that a pass runs on the cgroup lane, over real cgroups that this
makes and removes again, while no value changes. Where this machine's cgroup2 has no misc controller, each misc file is
played by another of the same cgroup, which the kernel makes as it makes those and which is as short (LIKE). *Daemon* is
the whole daemon, otherwise idle, at 1 Hz on the folder of bench/tree.py: the same reading (of cheaper files), the
search for unknown containers, the decision on what was read, and its record; once while no value changes, once while
every cgroup's usage changes before each pass.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import plugins, tree
from bench.measure import cpu_us, median
from nodeward.host.hostfs import OsFiles
from nodeward.host.process import raise_descriptor_limit
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.cgroups.sampler import Pass, Reader
from tests.faults import FaultyFiles
from tests.peers.nriside import nriside

NODE = tree.Shape(pods=110, per_pod=3)
PASSES = 15
WATCHED_S = 10
PLACES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
LIKE = {
    "misc.max": "cgroup.stat.local",
    "misc.current": "cgroup.stat.local",
    "misc.peak": "cgroup.stat.local",
    "misc.events": "cgroup.events",
    "misc.events.local": "cgroup.events",
}
"""All have lines of a name and a number: `frozen_usec 0`; `populated 0`, `frozen 0`."""


class LikeFiles(OsFiles):
    """The operating system's files, where a misc file's name opens the file that plays it."""

    __slots__ = ()

    def open(self, path: str) -> int:
        folder, _, name = path.rpartition("/")
        return super().open(f"{folder}/{LIKE.get(name, name)}")


@contextmanager
def own_cgroups(shape: tree.Shape) -> Iterator[tuple[str, list[str]]]:
    """A root with cgroups of our own, and their paths below it; removed again."""
    place = next((Path(one) for one in PLACES if (Path(one) / "cgroup.controllers").is_file()), None)
    if place is None or not os.access(place, os.W_OK):
        raise plugins.MissingError("cgroup2 is not mounted, or not writable: run it as root")
    root = place / f"nodeward-bench-{os.getpid()}"
    paths = list(tree.cgroups_of(shape))
    made = [root, root / "kubepods", root / tree.QOS[1:], *(root / path[1:] for path in paths)]
    try:
        for folder in made:
            folder.mkdir()
        yield str(root), paths
    finally:
        for folder in reversed(made):
            if folder.is_dir():
                folder.rmdir()


def has_misc(root: str) -> bool:
    """Whether these cgroups have files of the misc controller."""
    return (Path(root) / "misc.max").exists()


def reader_of(root: str) -> Reader:
    """The production code, on the misc files below `root` or on those like them."""
    files = OsFiles() if has_misc(root) else LikeFiles()
    return Reader(files, Tree(files, root))


def check(seen: Pass, paths: Sequence[str]) -> None:
    """UnfairError where a pass has not read the misc files of each cgroup: the figures are about all of them."""
    unread = [path for path in paths if path not in seen.readings or not seen.readings[path].controller]
    if unread:
        raise plugins.UnfairError(f"{len(unread)} of {len(paths)} cgroups were not read, {unread[0]} among them")


def run() -> None:
    """Processor time of a pass, percent of a core at 1 Hz, calls of HostFiles and what each consists of."""
    raise_descriptor_limit()
    _reading()
    asyncio.run(_daemon())


def _reading() -> None:
    with own_cgroups(NODE) as (root, paths):
        real = has_misc(root)
        files = OsFiles() if real else LikeFiles()
        counter = FaultyFiles(files)
        counted = Reader(counter, Tree(counter, root))
        check(counted.read(paths), paths)
        counter.calls.clear()
        check(counted.read(paths), paths)
        calls = counter.calls.copy()
        counted.close()
        reader = reader_of(root)
        check(reader.read(paths), paths)
        times: list[float] = []
        for _ in range(PASSES):
            time.sleep(0.2)  # as between two passes of a daemon, somebody else has had the processor
            began = time.thread_time_ns()
            reader.read(paths)
            times.append((time.thread_time_ns() - began) / 1e6)
        held = reader.open_files
        reader.close()
    what = "misc files" if real else "files like misc's (no misc controller here)"
    print(f"sampler, {NODE} containers, {len(paths)} cgroups, on {what} of real cgroups")
    print(
        f"  a pass reads for           {median(times):6.2f} ms of a core = {median(times) / 10:.2f} % at 1 Hz   goal 1"
    )
    single, whole = calls.total() - calls["read"], calls["read"]
    print(f"  calls of HostFiles         {calls.total()} a pass, {calls.total() / NODE.pods:.1f} a pod and pass")
    print(f"    of one system call       {single} ({', '.join(sorted(name for name in calls if name != 'read'))})")
    print(
        f"    read, a whole file       {whole} of open, fstat, two reads or more, close; of open alone if it is missing"
    )
    print(f"  descriptors kept           {held}")


async def _daemon() -> None:
    home = plugins.built("nriside-0.12")
    with tree.scratch() as folder:
        command = plugins.command_of("nodeward", folder, folder / "s", NODE)
        async with asyncio.timeout(120), nriside(home, folder / "s") as side:
            await side.command("populate", pods=NODE.pods, per_pod=NODE.per_pod, filler=2000)
            await side.command("listen")
            with plugins.running(command) as daemon:
                await side.event("log", "connected and synchronized")
                await plugins.settled(folder, NODE)
                await asyncio.sleep(2.5)  # the first pass over the settled node tells everything
                still, quiet = await _spent_a_s(daemon.pid, folder / "record")
                changing = asyncio.create_task(_change(folder / "cgroup" / "misc.current"))
                moved, busy = await _spent_a_s(daemon.pid, folder / "record")
                changing.cancel()
                plugins.check(folder)
    print(f"  the whole daemon, idle     {still:6.2f} ms of a core a second = {still / 10:.2f} %")
    print(f"  and every usage changes    {moved:6.2f} ms of a core a second = {moved / 10:.2f} %")
    print(
        f"  the record grows by        {quiet / 1000:6.2f} kB a second, and {busy / 1000:.0f} where every usage changes"
    )


async def _spent_a_s(pid: int, record: Path) -> tuple[float, float]:
    """Milliseconds of a core, and bytes of the record, a second."""
    before, size, began = cpu_us(pid), record.stat().st_size, time.monotonic()
    await asyncio.sleep(WATCHED_S)
    passed_s = time.monotonic() - began
    return (cpu_us(pid) - before) / 1000 / passed_s, (record.stat().st_size - size) / passed_s


async def _change(usage: Path) -> None:
    """Another usage twice a second, in the one content that all cgroups of the folder share."""
    amount = 10000
    while True:
        amount += 1
        with usage.open("r+") as file:
            file.write(f"sgx_epc {amount}\n")
        await asyncio.sleep(0.5)
