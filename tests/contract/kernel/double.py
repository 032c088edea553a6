"""The kernel double as a kernel under test."""

import itertools

from nodeward.core import cpuset
from nodeward.host.hostfs import HostFiles
from nodeward_sim.doubles.cpus import Plan
from nodeward_sim.doubles.kernel import SimKernel
from nodeward_sim.doubles.processes import Process, Processes
from tests.contract.kernel.vocabulary import CAPACITY, MOUNT, V1_MOUNT

_FIRST_PID = 100
EIGHT = Plan(nodes=1, cores=2, adjacent=True)
"""The machine of the guest that has several CPUs."""


class Double:
    """On either kernel `version` is 1 where misc is mounted as a cgroup v1 hierarchy at `mount`, else 2. `charge` has a
    process in a cgroup take an amount, OSError if refused; `uncharge` gives back what was charged there, oldest first;
    by `underflow` a driver gives back what nobody took, and by `set_capacity` it registers what the host has. After
    `offline` these CPUs (a kernel list) are offline, and no others. `new_process` does nothing in the cgroup, OSError
    if it may not live there, or has taken that much memory in it; by `outgrow` one takes memory until the kernel has
    killed it."""

    def __init__(self, version: int = 2) -> None:
        self._kernel = kernel = SimKernel(CAPACITY, resources=("sev", "sev_es"), machine=EIGHT)
        self.files: HostFiles = kernel
        self.version, self.mount = version, MOUNT if version == 2 else V1_MOUNT
        self.base = f"{self.mount}/case"
        self.charge, self.uncharge, self.underflow = kernel.charge, kernel.uncharge, kernel.underflow
        self.set_capacity = kernel.set_capacity
        self._pids = itertools.count(_FIRST_PID)
        self._processes, self._takers = Processes(kernel), dict[int, Process]()
        if version == 1:
            kernel.mount_misc_v1()
        else:
            kernel.write(f"{MOUNT}/cgroup.subtree_control", b"+misc")
        kernel.make_cgroup(self.base)

    def offline(self, cpus: str) -> None:
        self._kernel.take_offline(cpuset.parse(cpus))

    def new_process(self, cgroup: str, memory: int = 0) -> int:
        if memory:
            one = self._processes.start(cgroup.removeprefix(MOUNT), ("taker",))
            self._processes.take(one, memory)
            self._takers[one.pid] = one
            return one.pid
        pid = next(self._pids)
        self._kernel.add_process(cgroup, pid)
        return pid

    def outgrow(self, cgroup: str) -> None:
        one = self._processes.start(cgroup.removeprefix(MOUNT), ("outgrows",))
        while one.alive:
            self._processes.take(one, 1 << 20)

    def end_process(self, pid: int) -> None:
        if pid in self._takers:
            self._processes.end(self._takers.pop(pid))
        else:
            self._kernel.end_process(pid)
