"""What reading 200 VM sandboxes costs, as a node's daemon does it every other second.

Real processes with real threads in real cgroups of their own (removed again): 200 that stand for shims, 200 for VMMs of
two vCPUs and two other threads. They sleep. Their command lines and vCPUs' names are given beside /proc, since nothing
here is Kata. The floor is a plain look through /proc as `ps -eL` takes it, in the same rounds.
"""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.measure import median
from bench.plugins import MissingError, UnfairError
from nodeward.host.hostfs import OsFiles
from nodeward.host.process import raise_descriptor_limit
from nodeward.neighbours.cgroups.hierarchy import mounted
from nodeward.neighbours.kata.cgroups import Trees, trees
from nodeward.neighbours.kata.reader import SEARCH_S, Reader

SANDBOXES, THREADS, ROUNDS, WARM = 200, 4, 15, 40
ROOT = "/sys/fs/cgroup"
PERIOD_S = 2.0
GOAL_MS, GOAL_PERCENT = 50, 1


class NamedFiles(OsFiles):
    """The operating system's files, where some processes have another command line."""

    __slots__ = ("folder", "named")

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder, self.named = folder, dict[str, str]()

    def name(self, pid: int, words: str) -> None:
        place = f"{self.folder}/{pid}"
        Path(place).write_text(words)
        self.named[f"/proc/{pid}/cmdline"] = place

    def open(self, path: str) -> int:
        return super().open(self.named.get(path, path))


def run() -> None:
    """Milliseconds a round, beside a plain look through /proc."""
    raise_descriptor_limit()
    where = trees(mounted(OsFiles(), ROOT), ROOT)
    if not os.access(where.memory, os.W_OK):
        raise MissingError("the cgroup trees are not writable: run it as root")
    with tempfile.TemporaryDirectory(prefix="nwb") as folder:
        files = NamedFiles(folder)
        with _node(files, where):
            _measure(files, where)


def _measure(files: NamedFiles, where: Trees) -> None:
    ahead_ns = 0

    def now_ns() -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + ahead_ns

    reader = Reader(files, where, now_ns)
    first = _ms(lambda: _check(reader))
    for _ in range(WARM):  # until each VM's mappings were looked at once
        _check(reader)
    rounds, searches, floors = list[float](), list[float](), list[float]()
    for _ in range(ROUNDS):
        time.sleep(0.2)  # as between two rounds of a daemon, somebody else has had the processor
        rounds.append(_ms(lambda: _check(reader)))
        floors.append(_ms(_plain_look))
        ahead_ns += int(SEARCH_S * 1e9)
        searches.append(_ms(lambda: _check(reader)))
    one, floor, search = median(rounds), median(floors), max(0.0, median(searches) - median(rounds))
    percent = (one / PERIOD_S + search / SEARCH_S) / 10
    print(f"sandboxes, {SANDBOXES} of 2 processes and {THREADS} more threads, cgroup v{where.version}")
    print(f"  a round                    {one:6.2f} ms of a core   goal {GOAL_MS}")
    print(f"  the first one              {first:6.2f} ms")
    print(f"  a search through /proc     {search:6.2f} ms more, each {SEARCH_S:g} s")
    print(f"  all, a round each {PERIOD_S:g} s     {percent:6.2f} % of a core   goal {GOAL_PERCENT}")
    print(f"  a plain look, as ps -eL    {floor:6.2f} ms; a round is {one / floor:.2f} of it")
    print(f"  descriptors kept           {reader.open_files}")
    reader.close()


@contextmanager
def _node(files: NamedFiles, where: Trees) -> Iterator[None]:
    above = f"/nodeward-bench-{os.getpid()}"
    made, pids = list[Path](), list[int]()
    roots = list(dict.fromkeys((where.memory, where.cpuacct, where.cpu)))
    try:
        _make(made, roots, above)
        for number in range(SANDBOXES):
            sandbox = f"{number:064x}"
            pod = f"{above}/pod{number:08x}-0000-4000-8000-000000000000"
            _make(made, roots, pod)
            _make(made, roots, f"{pod}/kata_{sandbox}")
            shim, vmm = _sleeper(0), _sleeper(THREADS)
            pids += (shim, vmm)
            files.name(shim, f"containerd-shim-kata-v2\0-namespace\0k8s.io\0-id\0{sandbox}\0")
            files.name(vmm, f"qemu-system-x86_64\0-name\0sandbox-{sandbox}\0-m\0001G\0-smp\0002\0")
            for root in roots:
                for pid in (shim, vmm):
                    Path(f"{root}{pod}/kata_{sandbox}/cgroup.procs").write_text(str(pid))
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir()


def _make(made: list[Path], roots: list[str], path: str) -> None:
    for root in roots:
        folder = Path(root + path)
        folder.mkdir()
        made.append(folder)


def _sleeper(threads: int) -> int:
    """A process with so many threads more, which all sleep."""
    pid = os.fork()
    if pid == 0:
        for number in range(threads):
            threading.Thread(target=_named_sleep, args=(number,), daemon=True).start()
        while True:
            signal.pause()
    return pid


def _named_sleep(number: int) -> None:
    name = f"CPU {number}/KVM" if number < THREADS // 2 else "worker"
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
    threading.Event().wait()


def _plain_look() -> None:
    """Each process with its command line, memory and cgroups, and each thread with its time."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                for file in ("stat", "statm", "cmdline", "cgroup"):
                    Path(f"/proc/{name}/{file}").read_bytes()
                for thread in os.listdir(f"/proc/{name}/task"):
                    Path(f"/proc/{name}/task/{thread}/stat").read_bytes()


def _check(reader: Reader) -> None:
    """UnfairError where a round does not have everything: the figures are about all of it."""
    found = [one for one in reader.read({}).readings if len(one.cgroups) == 2 and len(one.tasks) == 2 + THREADS]
    if len(found) != SANDBOXES:
        raise UnfairError(f"only {len(found)} of {SANDBOXES} sandboxes were read whole")


def _ms(work: Callable[[], None]) -> float:
    began = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - began) / 1e6
