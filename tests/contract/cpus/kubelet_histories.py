"""Random histories of pods on symmetric machines, told to our policy `static` and to kubelet's own code.

Compared after each step: the container's CPUs, the shared set, and what is said where a container is refused. What may
differ is not in these histories, and each has a test of its own: CPUs that the kernel isolates, a resize (kubelet has
neither), a shared set without a CPU (kubelet lets the containers that share run anywhere; we refuse), and cores that
are reserved in part with the two options of LOOPING (kubelet 1.37 may not answer at all). One difference is allowed
where it comes up, and ends its history: with the two options of CROSSING.

`python -m tests.contract.cpus.kubelet_histories 100000` compares so many, and prints the differences.
"""

import itertools
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from nodeward.core.cpuset import CpuSet, ids, of, parse, text
from nodeward.core.topology import Group, Machine
from nodeward.core.workload import Qos, Role
from nodeward.features.cpus.policies.static import SHARED, STATIC
from nodeward.features.cpus.settings import STATIC_OPTIONS, Amount, AmountKind, PolicySettings, StaticSettings
from nodeward.features.cpus.values import Ask, Denied, Ground, Pools
from nodeward.neighbours.sysfs.topology import read
from nodeward_sim.doubles.cpus import Plan, sysfs
from nodeward_sim.doubles.kernel import SimKernel
from tests.peers import cpuoracle
from tests.peers.cpuoracle import CpuOracle, Place, Step, cpu_oracle

PLANS = (
    *(Plan(1, 1), Plan(1, 1, threads=1), Plan(2, 1), Plan(2, 0), Plan(2, 2), Plan(2, 2, adjacent=True)),
    *(Plan(2, 2, 2, 2), Plan(1, 4, 2), Plan(2, 4, 1, 4, threads=1), Plan(2, 4, interleaved=True), Plan(2, 4, 2, 2)),
    *(Plan(1, 1, 4), Plan(2, 1, 2, 3, threads=4), Plan(1, 2, 1, 3, stride=65), Plan(4, 1, 1, 3), Plan(4, 2, 1, 2)),
)
APART = [{"full-pcpus-only", "distribute-cpus-across-cores"}]
APART += [{"distribute-cpus-across-numa", "distribute-cpus-across-cores"}]
APART += [{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"}]
APART += [{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"}]
COMBINATIONS = [
    chosen
    for number in range(len(STATIC_OPTIONS) + 1)
    for chosen in itertools.combinations(STATIC_OPTIONS, number)
    if not any(pair <= set(chosen) for pair in APART)
]
"""Every one that kubelet allows."""
LOOPING = {"full-pcpus-only", "distribute-cpus-across-numa"}
"""With these two, kubelet may search for ever where a NUMA node has a core of which only some CPUs are free."""
CROSSING = {"align-by-socket", "distribute-cpus-across-numa"}
"""With these two, kubelet may take CPUs of several sockets where ours are of one."""
ROLES = {"init": Role.INIT, "sidecar": Role.SIDECAR, "": Role.REGULAR}
ARRIVALS = 14
"""Pods in a history."""


def machine_of(plan: Plan) -> Machine:
    kernel = SimKernel({})
    kernel.lay(sysfs(plan))
    return read(kernel)


MACHINES = [machine_of(plan) for plan in PLANS]


@dataclass(slots=True)
class History:
    number: int
    ground: Ground
    steps: list[Step] = field(default_factory=list)
    ours: list[tuple[str, str, str]] = field(default_factory=list)
    at: Pools = field(default_factory=Pools)

    def allocate(self, pod: str, container: str, milli: int, role: str, burstable: bool) -> bool:
        qos = Qos.BURSTABLE if burstable else Qos.GUARANTEED
        key = f"{pod}/{container}"
        ask = Ask(key, pod, "default", pod, container, qos, milli, role=ROLES[role])
        after, why = STATIC.admit(self.ground, self.at, ask), ""
        if isinstance(after, Denied):
            why = after.why
        else:
            self.at = after
        self._say(cpuoracle.allocate(pod, container, milli, role, burstable=burstable), key, why)
        return not why

    def remove(self, pod: str, container: str) -> None:
        self.at = STATIC.release(self.ground, self.at, f"{pod}/{container}")
        self._say(cpuoracle.remove(pod, container), f"{pod}/{container}")

    def _say(self, step: Step, key: str, error: str = "") -> None:
        grant = self.at.grants.get(key)
        self.steps.append(step)
        self.ours.append((error, text(grant.own) if grant else "", text(self.at.pools[SHARED].cpus)))


def history(number: int) -> History:
    chance = random.Random(number)
    machine = chance.choice(MACHINES)
    options = dict.fromkeys(chance.choice(COMBINATIONS), "true")
    if len(machine.packages) > len(machine.nodes):
        options.pop("align-by-socket", None)
    every = ids(machine.online)
    keep, named = chance.randint(1, 3), list[int]()
    if options.keys() >= LOOPING:
        keep *= len(every) // len(machine.cores)
        named = [cpu for core in chance.sample(machine.cores, chance.randint(0, 2)) for cpu in ids(core.cpus)]
    elif chance.random() < 0.5:
        named = sorted(chance.sample(every, keep))
    reserved = Amount(AmountKind.QUANTITY, milli=keep * 1000)
    if named:
        reserved = Amount(AmountKind.CPUSET, of(named))
    rules = PolicySettings("static", reserved=reserved, static=StaticSettings(False, dict.fromkeys(options, True)))
    told = History(number, Ground(machine, rules))
    begun = STATIC.begin(told.ground)
    assert isinstance(begun, Pools), begun
    told.at = begun
    told._say(cpuoracle.machine(places(machine), named, options, 0 if named else keep), "")
    live = list[list[tuple[str, int, str, bool]]]()
    names = list[str]()
    for index in range(ARRIVALS):
        name, pod = f"p{index}", list(containers(chance, len(every)))
        if not all(told.allocate(name, *one) for one in pod):  # up to the first that is refused
            for container, *_ in pod:
                told.remove(name, container)
        else:
            live.append(pod)
            names.append(name)
        while live and chance.random() < 0.4:
            at = chance.randrange(len(live))
            if chance.random() < 0.2:
                for one in live[at]:  # kubelet was restarted: every container is admitted again, and keeps its set
                    told.allocate(names[at], *one)
                continue
            chance.shuffle(live[at])
            while live[at]:
                told.remove(names[at], live[at].pop()[0])
                if chance.random() < 0.2:
                    break
            if not live[at]:
                del live[at], names[at]
    return told


def containers(chance: random.Random, cpus: int) -> Iterator[tuple[str, int, str, bool]]:
    """Those of one pod, in the order in which kubelet admits them: name, request, role, and whether it is Burstable."""
    burstable = chance.random() < 0.1
    roles = [chance.choice(("init", "init", "sidecar")) for _ in range(chance.choice((0, 0, 0, 1, 2, 3)))]
    roles += [""] * chance.choice((1, 1, 1, 2, 3))
    for index, role in enumerate(roles):
        most = chance.choice((4, 4, 9, max(4, cpus // 3), max(4, cpus - 3)))
        milli = chance.randint(1, most) * 1000 + (chance.randint(1, 999) if chance.random() < 0.1 else 0)
        yield f"c{index}", milli, role, burstable


def places(machine: Machine) -> list[Place]:
    def number(groups: tuple[Group, ...], cpu: int) -> int:
        return next(group.id for group in groups if group.cpus >> cpu & 1)

    levels = (machine.cores, machine.packages, machine.nodes, machine.l3)
    return [Place(cpu, *(number(groups, cpu) for groups in levels)) for cpu in ids(machine.online)]


def differences(oracle: CpuOracle, told: History) -> Iterator[str]:
    for step, ours, theirs in zip(told.steps, told.ours, oracle.verdicts(told.steps), strict=True):
        error, cpus, shared = ours
        same = (cpus, shared) == (theirs.cpus, theirs.shared) and bool(error) == bool(theirs.error)
        if not same and told.ground.rules.static.options.keys() >= CROSSING:
            sockets = [group.cpus for group in told.ground.machine.packages]
            if cpus and _parts(cpus, sockets) == 1 < _parts(theirs.cpus, sockets):
                return
        if not same or theirs.error not in error:
            what = {name: value for name, value in step.items() if name != "cpus"}
            yield f"history {told.number}, {what}: we say {ours}, kubelet {theirs}"
            return


def _parts(cpus: str, groups: list[CpuSet]) -> int:
    """How many of the groups have one of the CPUs."""
    return sum(bool(parse(cpus) & group) for group in groups)


def main() -> int:
    count, begin, found, steps = int(sys.argv[1]), time.monotonic(), 0, 0
    with cpu_oracle() as oracle:
        for number in range(count):
            told = history(number)
            steps += len(told.steps)
            for line in differences(oracle, told):
                found += 1
                print(line, flush=True)
    print(f"{count} histories, {steps} steps, {found} differences, {time.monotonic() - begin:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
