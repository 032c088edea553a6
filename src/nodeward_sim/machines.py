"""The confidential VMs of the simulated node: who was promised a TDX key, who took one, and how many that leaves.

A VM in a pod takes its key late, in the pod's cgroup (as KubeVirt's do) or outside of it (as Kata's do where its
hypervisor has a cgroup of its own). A VM of nobody's lives in machine.slice. A pod can be torn down before its VM has
ended: its cgroup is gone then, and the key is not free. What is left is told to the judge at each change: from the
promises and from the kernel double's own list of charges, not from its counters, which the daemon reads. A key that is
charged outside of its pod counts beside the pod's promise, since nobody can tell by the kernel that they are one.
"""

import asyncio
import contextlib
import errno
import math
from collections.abc import Callable
from dataclasses import dataclass

from nodeward_sim.doubles.kernel import CGROUP_MOUNT, SimKernel
from nodeward_sim.shapes import Shape

TDX = "tdx"
KATA = "/kata_overhead"
MACHINES = "/machine.slice"
PODS = f"{CGROUP_MOUNT}/kubepods/pod"
LEARNED_S = 1.0
"""Within this time the daemon has heard of a promise that the API server was told of. An id's is one at once."""


@dataclass(slots=True, eq=False)
class Window:
    """The most keys that were left at any moment since it was opened, by what could be known."""

    most: int


class Machines:
    """The VMs. `left` is called at each change with the number of keys that nobody holds and nobody was promised.

    `uncounted` makes the kernel forget the keys of VMs outside of pods: the mutant of a driver that loses count."""

    def __init__(
        self,
        kernel: SimKernel,
        capacity: int,
        left: Callable[[int], None],
        now: Callable[[], float],
        *,
        uncounted: bool,
    ) -> None:
        self._kernel, self._capacity, self._left, self._uncounted = kernel, capacity, left, uncounted
        self._now = now
        self._promised: dict[str, int] = {}
        self._known_s: dict[str, float] = {}
        """By pod, from when on its promise can be known."""
        self._katas: dict[str, None] = {}
        self._windows: list[Window] = []
        self._orphan = ""
        self._leave_orphan = False
        self._outside: list[str] = []
        self._number = 0
        self.taken = 0
        self.refused = 0

    def promise(self, shape: Shape, uid: str) -> None:
        """Notes that the pod's spec is about to be seen."""
        if shape.machine is not None:
            if not shape.machine.inside:
                self._katas[uid] = None
            self.promised(uid, shape.machine.keys, self._now() + LEARNED_S)

    def promised(self, uid: str, keys: int, known_s: float = -math.inf) -> None:
        """The pod was promised so many keys, which can be known from then on. What is granted at once is nobody else's
        whose answer is still to come."""
        self._promised[uid], self._known_s[uid] = keys, known_s
        for window in self._windows if known_s == -math.inf else ():
            window.most -= keys
        self._changed()

    @property
    def unsold(self) -> int:
        """How many keys are neither held nor promised now."""
        return self._unsold(math.inf)

    @property
    def asked(self) -> int:
        """How many keys Kata's pods ask by NFD's number."""
        return sum(self._promised.get(uid, 0) for uid in self._katas)

    def watch_left(self) -> Window:
        """Notes the most that is left, from now on."""
        window = Window(self._unsold(self._now()))
        self._windows.append(window)
        return window

    def unwatch(self, window: Window) -> None:
        """Stops noting that."""
        self._windows.remove(window)

    def forget(self, uid: str) -> None:
        """The pod is about to be gone."""
        self._katas.pop(uid, None)
        if self._promised.pop(uid, 0):
            del self._known_s[uid]
            self._changed()

    async def live(self, shape: Shape, uid: str, name: str, cgroup: str) -> None:
        """The VM of this pod, whose container is in `cgroup`: takes its key after a while, keeps it until cancelled."""
        machine = shape.machine
        if machine is None:
            return
        await asyncio.sleep(machine.late_s)
        home = cgroup if machine.inside else f"{KATA}/{name}"
        if not machine.inside:
            self._make(home)
        took = self._take(home, machine.keys)
        try:
            await asyncio.Event().wait()
        finally:
            if took and machine.inside and self._leave_orphan:
                self._orphan, self._leave_orphan = home, False
            elif took:
                self._give_back(home, machine.keys)
            if not machine.inside:
                self._kernel.rmdir(CGROUP_MOUNT + home)

    def start_outside(self) -> None:
        """A VM outside of any pod takes a key."""
        self._number += 1
        home = f"{MACHINES}/vm-{self._number}.scope"
        self._make(home)
        if self._take(home, 1):
            self._outside.append(home)
            if self._uncounted:
                self._kernel.underflow(CGROUP_MOUNT + home, TDX, 1)

    def end_outside(self) -> None:
        """The oldest such VM ends."""
        if self._outside:
            home = self._outside.pop(0)
            self._give_back(home, 1)
            self._kernel.rmdir(CGROUP_MOUNT + home)

    def orphan(self) -> None:
        """The next VM of KubeVirt's kind that ends leaves its key behind. The orphan before it gives its key back."""
        if self._orphan:
            self._give_back(self._orphan, 1)
            self._orphan = ""
        self._leave_orphan = True

    def _take(self, home: str, keys: int) -> bool:
        try:
            self._kernel.charge(CGROUP_MOUNT + home, TDX, keys)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOENT):
                raise
            self.refused += 1
            return False
        self.taken += 1
        self._changed()
        return True

    def _give_back(self, home: str, keys: int) -> None:
        self._kernel.uncharge(CGROUP_MOUNT + home, TDX, keys)
        self._changed()

    def _make(self, path: str) -> None:
        """Makes the cgroup, with the misc controller on the way, as systemd does where it is asked to."""
        here = CGROUP_MOUNT
        for name in path.strip("/").split("/"):
            self._kernel.write(f"{here}/cgroup.subtree_control", b"+misc")
            here = f"{here}/{name}"
            with contextlib.suppress(FileExistsError):
                self._kernel.mkdir(here)

    def _changed(self) -> None:
        self._left(self._unsold(math.inf))
        for window in self._windows:
            window.most = max(window.most, self._unsold(self._now()))

    def _unsold(self, known_s: float) -> int:
        """How many keys nobody holds and nobody was promised, by the promises that can be known at that time."""
        promises = {uid: keys if self._known_s[uid] <= known_s else 0 for uid, keys in self._promised.items()}
        held, others = dict.fromkeys(promises, 0), 0
        for charge in self._kernel.charges():
            if charge.resource != TDX:
                continue
            uid = charge.path.removeprefix(PODS).partition("/")[0] if charge.path.startswith(PODS) else ""
            if uid in held:
                held[uid] += charge.amount
            else:
                others += charge.amount
        claimed = sum(max(promised, held[uid]) for uid, promised in promises.items())
        return max(0, self._capacity - claimed - others)
