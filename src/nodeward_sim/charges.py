"""Enclave memory of the simulated node: who takes and gives back pages, and at which level the kernel double refuses.

Containers charge in their own cgroups. A sandbox that has overhead charges in its own too, which has no limit: only the
pod's budget stands above it, as with a VM's hypervisor beside the containers. Some ask for more than they may have.
"""

import errno
from dataclasses import dataclass, field
from random import Random

from nodeward.neighbours.formats import misc_files
from nodeward_sim.doubles.kernel import SimKernel
from nodeward_sim.doubles.runtime import CGROUP_ROOT
from nodeward_sim.invariants import Judge, upwards

EPC = "sgx_epc"
PAGE = 4096
BY_CONTAINER, BY_POD, BY_NODE = "by containers", "by pods' budgets", "for want of capacity"
FORGOTTEN = {"kernel-forgets-limits": False, "kernel-forgets-budgets": True}
"""Mutants, and whether they are about pods: who charges lifts the limits of that level before."""


@dataclass(slots=True)
class Charger:
    """A process that charges. `own` is what it may hold in its own cgroup, in bytes. Where only the pod's budget bounds
    it, `pod` is that pod's cgroup and `budget` its bytes."""

    cgroup: str
    own: int
    pod: str = ""
    budget: int = 0


@dataclass(slots=True)
class Charges:
    """Charges one by one, and what became of them. `mutant` is one of FORGOTTEN, or empty."""

    kernel: SimKernel
    judge: Judge
    random: Random
    greedy: float
    mutant: str = ""
    tried: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """By the level that refused."""

    def one(self, charger: Charger) -> None:
        """Takes or gives back some pages; for a greedy one, more than there is room for."""
        held = self.held(charger.cgroup)
        greedy = self.random.random() < self.greedy
        room = max(charger.own - held, 0)
        if not greedy and room < PAGE:
            self.give_back(charger.cgroup)
            return
        if greedy and charger.pod:
            room = max(charger.budget - self.held(charger.pod), 0)
        extra = self.random.randrange(1, 64) * PAGE
        self._take(charger.cgroup, room + extra if greedy else self.random.randint(1, room // PAGE) * PAGE)

    def give_back(self, cgroup: str) -> None:
        """Everything that is charged in this cgroup."""
        held = self.held(cgroup)
        if held:
            self.kernel.uncharge(CGROUP_ROOT + cgroup, EPC, held)

    def held(self, cgroup: str) -> int:
        """What the kernel counts there."""
        try:
            data = self.kernel.read(f"{CGROUP_ROOT}{cgroup}/misc.current", misc_files.MAX_BYTES)
        except OSError:
            return 0
        return misc_files.parse(data).get(EPC, 0)

    def limit(self, cgroup: str) -> int | None:
        """What the kernel enforces there, None for `max`."""
        try:
            data = self.kernel.read(f"{CGROUP_ROOT}{cgroup}/misc.max", misc_files.MAX_BYTES)
        except OSError:
            return None
        return misc_files.parse_limits(data).get(EPC)

    def lift(self, cgroup: str) -> None:
        """Writes `max`, as somebody else would."""
        self.kernel.write(f"{CGROUP_ROOT}{cgroup}/misc.max", f"{EPC} max".encode())

    def _take(self, cgroup: str, amount: int) -> None:
        self.tried += 1
        try:
            if self.mutant in FORGOTTEN:
                self.lift(cgroup.rpartition("/")[0] if FORGOTTEN[self.mutant] else cgroup)
            self.kernel.charge(CGROUP_ROOT + cgroup, EPC, amount)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EINVAL, errno.ENOENT):
                raise
            level = self._refusing(cgroup, amount)
            self.refused[level] = self.refused.get(level, 0) + 1
        else:
            self.judge.charged(cgroup, {path: self.held(path) for path in upwards(cgroup)})

    def _refusing(self, cgroup: str, amount: int) -> str:
        """The level that has just refused so much: the lowest that has no room for it."""
        for path in upwards(cgroup):
            limit = self.limit(path)
            if limit is not None and self.held(path) + amount > limit:
                return BY_CONTAINER if path == cgroup else BY_POD
        return BY_NODE
