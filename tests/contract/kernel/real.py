"""The real kernel as a kernel under test; runs as root inside the guest of `tests/vm`, never on a host.

Charges go through /dev/fakemisc (tests/vm/kernel_module): the controller charges the cgroup of the calling thread, so
this process moves into the cgroup, takes, and moves back to the root. Each charge is an open file of its own, like a
virtual machine that holds what it took.
"""

import errno
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from nodeward.core import cpuset
from nodeward.host.hostfs import HostFiles, OsFiles
from tests.contract.kernel.vocabulary import CAPACITY, MOUNT, V1_MOUNT
from tests.patience import scaled

DEVICE: Final = "/dev/fakemisc"
_CPU: Final = "/sys/devices/system/cpu"
_NUMBERS: Final = {name: number for number, name in enumerate(CAPACITY)}
_bases = itertools.count()


@dataclass(slots=True)
class _Held:
    cgroup: str
    resource: str
    amount: int
    fd: int


class Real:
    def __init__(self, version: int = 2) -> None:
        self.files: HostFiles = OsFiles("/")
        self.version, self.mount = version, MOUNT if version == 2 else V1_MOUNT
        self.base = f"{self.mount}/case{next(_bases)}"
        self._held: list[_Held] = []
        self._lost: list[tuple[str, int]] = []
        self._pids: list[int] = []
        if version == 2:
            self.files.write(f"{MOUNT}/cgroup.subtree_control", b"+misc")
        self.files.mkdir(self.base)

    def charge(self, cgroup: str, resource: str, amount: int) -> None:
        fd = self._inside(cgroup, f"take {_NUMBERS[resource]} {amount}")
        self._held.append(_Held(cgroup, resource, amount, fd))

    def uncharge(self, cgroup: str, resource: str, amount: int) -> None:
        held = [one for one in self._held if (one.cgroup, one.resource) == (cgroup, resource)]
        if sum(one.amount for one in held) < amount:
            raise OSError(errno.ERANGE, os.strerror(errno.ERANGE), cgroup)
        for one in held:
            given = min(amount, one.amount)
            os.write(one.fd, f"give {_NUMBERS[resource]} {given}".encode())
            one.amount -= given
            amount -= given

    def underflow(self, cgroup: str, resource: str, amount: int) -> None:
        os.close(self._inside(cgroup, f"lose {_NUMBERS[resource]} {amount}"))
        self._lost.append((resource, amount))

    def set_capacity(self, resource: str, value: int) -> None:
        self.files.write(DEVICE, f"have {_NUMBERS[resource]} {value}".encode())

    def offline(self, cpus: str) -> None:
        off = cpuset.parse(cpus)
        for cpu in range(1, os.sysconf("SC_NPROCESSORS_CONF")):
            self.files.write(f"{_CPU}/cpu{cpu}/online", str(int(not off >> cpu & 1)).encode())

    def new_process(self, cgroup: str, memory: int = 0) -> int:
        if memory:
            taker = self._in(cgroup, f"import time; held = bytearray({memory}); print(flush=True); time.sleep(1000)")
            assert taker.stdout is not None
            taker.stdout.readline()
            self._pids.append(taker.pid)
            return taker.pid
        pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
        self._pids.append(pid)
        self.files.write(f"{cgroup}/cgroup.procs", str(pid).encode())
        return pid

    def outgrow(self, cgroup: str) -> None:
        greedy = self._in(cgroup, "held = []\nwhile True: held.append(bytearray(1 << 20))")
        assert greedy.wait() == -signal.SIGKILL

    def _in(self, cgroup: str, program: str) -> subprocess.Popen[bytes]:
        go = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); exec(sys.argv[2])"
        words = (sys.executable, "-I", "-S", "-c", go, f"{cgroup}/cgroup.procs", program)
        return subprocess.Popen(words, stdout=subprocess.PIPE)

    def end_process(self, pid: int) -> None:
        self._pids.remove(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def close(self) -> None:
        for pid in list(self._pids):
            self.end_process(pid)
        for name, amount in CAPACITY.items():
            self.set_capacity(name, amount)
        for one in self._held:
            os.close(one.fd)
        for resource, amount in self._lost:
            # Held by the root from now on, in a file that stays open: makes up for what was lost.
            self._inside(self.mount, f"take {_NUMBERS[resource]} {amount}")
        _remove_tree(self.files, self.base)
        if self.files.read(f"{_CPU}/offline", 4096).strip():
            self.offline("")

    def _inside(self, cgroup: str, command: str) -> int:
        """Writes `command` as a process of `cgroup`; the open device file."""
        self.files.write(f"{cgroup}/cgroup.procs", str(os.getpid()).encode())
        try:
            fd = os.open(DEVICE, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, command.encode())
            except OSError:
                os.close(fd)
                raise
            return fd
        finally:
            self.files.write(f"{self.mount}/cgroup.procs", str(os.getpid()).encode())


@contextmanager
def v1_mounted() -> Iterator[None]:
    """misc taken out of the v2 tree and mounted as a hierarchy of its own, as a user would."""
    OsFiles().write(f"{MOUNT}/cgroup.subtree_control", b"-misc")
    os.mkdir(V1_MOUNT)
    mount = ["mount", "-t", "cgroup", "-o", "misc", "none", V1_MOUNT]
    # the kernel refuses while it has not yet let go of a removed cgroup of the other tree
    end = time.monotonic() + scaled(10.0)
    while (status := subprocess.run(mount, check=False).returncode) and time.monotonic() < end:
        time.sleep(0.05)
    assert status == 0, f"{' '.join(mount)}: {status}"
    try:
        yield
    finally:
        subprocess.run(["umount", V1_MOUNT], check=True)
        os.rmdir(V1_MOUNT)


def _remove_tree(files: HostFiles, cgroup: str) -> None:
    for name in files.listdir(cgroup):
        if files.stat(f"{cgroup}/{name}").is_dir:
            _remove_tree(files, f"{cgroup}/{name}")
    files.rmdir(cgroup)
