"""A host's /proc and cgroup trees as plain files below a folder, with VM sandboxes on it."""

import errno
from collections.abc import Callable, Mapping
from pathlib import Path

from nodeward.core.vms import CgroupReading, Place, VmReading
from nodeward.core.workload import SandboxId
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.kata.cgroups import Trees
from nodeward.neighbours.kata.reader import Reader, Round
from tests.unit.features.build import SECOND, ManualClock

A, B = SandboxId("a1" * 32), SandboxId("b2" * 32)
POD = "/kubepods/burstable/pod11112222-0000-4000-8000-000000000000"
V1 = Trees(1, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu")
V2 = Trees(2, "/sys/fs/cgroup", "/sys/fs/cgroup", "/sys/fs/cgroup")


class HostFilesWithFaults(OsFiles):
    __slots__ = ("at", "faults", "on_read", "reads")

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.faults: dict[str, int] = {}
        self.at: dict[int, str] = {}
        self.reads: list[str] = []
        self.on_read: Callable[[], None] = lambda: None
        """Called as a whole file is read."""

    def open(self, path: str) -> int:
        handle = super().open(path)
        self.at[handle] = path
        return handle

    def pread(self, handle: int, max_bytes: int) -> bytes:
        self._check(self.at[handle])
        return super().pread(handle, max_bytes)

    def read(self, path: str, max_bytes: int, *, own: bool = False) -> bytes:
        self._check(path)
        self.on_read()
        return super().read(path, max_bytes, own=own)

    def _check(self, path: str) -> None:
        self.reads.append(path)
        if path in self.faults:
            raise OSError(self.faults[path], "no", path)


class Host:
    """What is on it. A process that is written again is changed in place, as its files are for open descriptors."""

    def __init__(self, root: Path, where: Trees = V2) -> None:
        self.root, self.files, self.clock = root, HostFilesWithFaults(str(root)), ManualClock()
        (root / "proc").mkdir()
        self.reader = Reader(self.files, where, self.clock.now_ns)

    def round(self, expected: Mapping[SandboxId, str] | None = None, after_s: float = 2) -> Round:
        self.clock.ns += int(after_s * SECOND)
        return self.reader.read(expected or {})

    def only(self, after_s: float = 2) -> VmReading:
        (reading,) = self.round(after_s=after_s).readings
        return reading

    def write(self, path: str, data: str | bytes) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data if isinstance(data, bytes) else data.encode())

    def process(
        self,
        pid: int,
        words: bytes,
        *,
        parent: int = 1,
        start: int = 100,
        ticks: int = 0,
        pages: int = 1000,
        cgroup: str = "0::/\n",
        threads: Mapping[int, tuple[str, int]] | None = None,
        name: str = "x",
    ) -> None:
        """`threads`: the others than the leader, by id their names and ticks."""
        others = threads or {}
        for base, said, spent in (
            (f"/proc/{pid}", name, ticks),
            (f"/proc/{pid}/task/{pid}", name, ticks),
            *((f"/proc/{pid}/task/{tid}", one, spent) for tid, (one, spent) in others.items()),
        ):
            count = 1 + len(others)
            self.write(f"{base}/stat", f"{pid} ({said}) S {parent} {' 0' * 9} {spent} 0 0 0 20 0 {count} 0 {start} 0\n")
            self.write(f"{base}/cgroup", cgroup)
        self.write(f"/proc/{pid}/cmdline", words)
        self.write(f"/proc/{pid}/statm", f"9000 {pages} 10 0 0 0 0\n")

    def moved(self, pid: int, tid: int, cgroup: str) -> None:
        self.write(f"/proc/{pid}/task/{tid}/cgroup", cgroup)

    def ended(self, *pids: int) -> None:
        for pid in pids:
            for file in sorted((self.root / "proc" / str(pid)).rglob("*"), reverse=True):
                if file.is_dir():
                    file.rmdir()
                else:
                    self.files.faults["/" + str(file.relative_to(self.root))] = errno.ESRCH
                    file.unlink()
            (self.root / "proc" / str(pid)).rmdir()


def at(place: Place, reading: VmReading) -> CgroupReading:
    found = reading.cgroup(place)
    assert found is not None
    return found


def shim(sandbox: str, *more: str) -> bytes:
    words = ("/usr/bin/containerd-shim-kata-v2", "-namespace", "k8s.io", "-address", "/run/c.sock", "-id", sandbox)
    return "\0".join((*words, *more, "")).encode()


def qemu(sandbox: str, *more: str) -> bytes:
    words = ("/usr/bin/qemu-system-x86_64", "-name", f"sandbox-{sandbox}", "-m", "64M", "-smp", "2,cores=1")
    return "\0".join((*words, *more, "")).encode()
