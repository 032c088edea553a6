"""What the policies `balloons`, `topology-aware` and `claims` cost: 500 containers on 128 CPUs, milliseconds of
processor time.

Of `apply` alone:

- Synchronize where no container has CPUs yet, and after a restart: each runs already on its balloon's CPUs;
- a create in a balloon that has room, one in a balloon that grows, and how many cgroups each had written;
- other settings: another type comes first, and every balloon is made anew;
- on eight NUMA nodes, a create of a container that uses four things;
- with 60 claims of a CPU, Synchronize after a restart, and a Prepare of two CPUs.

Then Synchronize and creates as a runtime sees them, by the rounds of `bench/cpus.py`. Idle CPUs are lent within a NUMA
node, so that a balloon which grows changes the sets of those around it.
"""

import asyncio
import gc
import time
from dataclasses import replace
from pathlib import Path

from bench import cpus as by_nri
from bench import plugins
from bench.measure import median, quantile
from nodeward.core import events as ev
from nodeward.core.claims import Allocated, Claim, ClaimUid, Promised
from nodeward.core.decision import Adjustment, Decision, Final
from nodeward.core.hints import NO_HINTS, Hint, HintKind, Hints
from nodeward.core.modes import Mode
from nodeward.core.workload import (
    Container,
    ContainerId,
    ContainerSpec,
    CpuRecord,
    Phase,
    PodSpec,
    PodUid,
    Qos,
    Sandbox,
    SandboxId,
)
from nodeward.features.all import apply
from nodeward.features.cpus.place import wanted
from nodeward.features.cpus.pool_settings import BalloonsSettings, BalloonType, TopologyAwareSettings, Within
from nodeward.features.cpus.settings import Amount, AmountKind, CpuClaims, CpusSettings, PolicySettings
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from nodeward.neighbours.sysfs.topology import read
from nodeward_sim.doubles.cpus import Plan, sysfs
from nodeward_sim.doubles.kernel import SimKernel

PODS, ROUNDS, LIVES = 500, 5, 400
PLAN = Plan(sockets=2, nodes=2, cores=16)
EIGHT = Plan(sockets=2, nodes=4, cores=8)
HINTS = Hints(tuple(Hint(HintKind.DEVICE, nodes=1 << node) for node in (1, 3, 5, 7)))
SPACES, CLAIMS = 10, 60
DRIVER = "cpus.nodeward.io"
TYPES = tuple(
    BalloonType(f"t{i}", (f"n{i}",), max_cpus=8, share_idle_cpus_in_same=Within.NUMA, prefer_per_namespace_balloon=True)
    for i in range(SPACES)
)
CPU0 = Amount(AmountKind.CPUSET, 1)
FIRST = BalloonType("first", ("none",), min_balloons=1, min_cpus=4)
BALLOONS = PolicySettings("balloons", reserved=CPU0, balloons=BalloonsSettings(balloon_types=TYPES))
TREE = PolicySettings("topology-aware", reserved=CPU0)
BY_CLAIM = PolicySettings("claims", reserved=CPU0)
OTHERS = {
    "balloons": replace(BALLOONS, balloons=BalloonsSettings(balloon_types=(FIRST, *TYPES))),
    "topology-aware": replace(TREE, topology_aware=TopologyAwareSettings(colocate_pods=True)),
}
"""What the settings change to."""
SECTIONS = {
    "balloons": "balloons: {balloonTypes: [{name: t, namespaces: [default], maxCPUs: 8, shareIdleCPUsInSame: numa}]}",
    "topology-aware": "topology-aware: {unlimitedBurstable: numa}",
}
"""The same for the rounds with NRI: there all pods are in one namespace."""


class _Node:
    """The node, and what each kind of step took."""

    def __init__(self, rules: PolicySettings) -> None:
        self.state, self._seq = State(settings=EngineSettings(policy=rules)), 0
        self.times: dict[str, list[float]] = {}
        self.writes: dict[str, list[int]] = {}

    def step(self, event: ev.Event, what: str = "") -> Decision:
        self._seq += 1
        stamped = replace(event, seq=self._seq, at_ns=self._seq * 1_000_000)
        began = time.thread_time_ns()
        self.state, decision = apply(self.state, stamped)
        took_ms = (time.thread_time_ns() - began) / 1e6
        if what:
            self.times.setdefault(what, []).append(took_ms)
            written = [target for goal in decision.goals if goal.target.kind == "cpuset" for target in goal.targets()]
            self.writes.setdefault(what, []).append(len(written))
        targets = tuple(target for goal in decision.goals for target in goal.targets())
        if targets:
            self._seq += 1
            self.state, _ = apply(self.state, replace(ev.Reached(targets, targets), seq=self._seq))
        return decision


def _home(number: int) -> Sandbox:
    uid = PodUid(f"u{number}")
    return Sandbox(
        SandboxId(f"s{number}"), uid, f"n{number % SPACES}", f"p{number}", cgroup_parent=f"/kubepods/burstable/pod{uid}"
    )


def _one(home: Sandbox, milli: int, phase: Phase = Phase.RUNNING, cpus: int = 0) -> Container:
    record = CpuRecord(milli * 1024 // 1000, cpus=cpus)
    made = ContainerId(f"c-{home.pod_uid}")
    return Container(made, home.id, "app", phase, f"{home.cgroup_parent}/{made}", cpu=record)


def _life(node: _Node, number: int, milli: int, what: str, hints: Hints = NO_HINTS) -> None:
    home = _home(number)
    made = _one(home, milli, Phase.CREATING)
    node.step(ev.Creating(home, made, ask_id=number, hints=hints), what)
    node.step(ev.Created(home, made.in_phase(Phase.CREATED)))
    node.step(ev.Started(home, made.in_phase(Phase.RUNNING)))
    node.step(ev.Removed(home.id, made.id), f"end of {what}")


def run() -> None:
    """The figures of both policies, and the aims of a node that nobody notices."""
    for rules in (BALLOONS, TREE):
        _print_decisions(rules)
        _print_rounds(plugins.built("nriside-0.12"), rules.active)
    _print_hints()
    _print_claims()


def _print_decisions(rules: PolicySettings) -> None:
    kernel = SimKernel({})
    kernel.lay(sysfs(PLAN))
    machine = read(kernel)
    node = _Node(rules)
    synchronize, settings = list[float](), list[float]()
    homes = [_home(i) for i in range(PODS)]
    cpus = dict[str, int]()
    for _ in range(ROUNDS):
        gc.collect()
        node = _Node(rules)
        node.step(ev.TopologyRead(machine))
        ones = [_one(home, 100, cpus=cpus.get(home.pod_uid, 0)) for home in homes]
        node.step(ev.Listed(tuple(homes), tuple(ones), 1), "sync")
        grants = node.state.cpus.pools
        cpus = {home.pod_uid: wanted(grants, f"{home.pod_uid}/app") for home in homes}
        synchronize += node.times["sync"]
    for i in range(LIVES):
        _life(node, PODS + i, 1, "fits")
        _life(node, PODS + i, 1500, "grows")
    for i in range(ROUNDS):
        other = OTHERS[rules.active] if i % 2 == 0 else rules
        node.step(SettingsChanged(replace(node.state.settings, policy=other)), "settings")
    settings = node.times["settings"]
    print(f"{rules.active} at {len(node.state.cpus.held)} containers, milliseconds of processor time")
    print(f"  Synchronize, new containers     {synchronize[0]:7.2f}   aim 100 with all around it")
    print(f"  Synchronize, after a restart    {median(synchronize[1:]):7.2f}   aim 100 with all around it")
    for what in ("fits", "grows"):
        times, writes = node.times[what], node.writes[what]
        line = f"p50 {quantile(times, 0.5):6.2f}  p99 {quantile(times, 0.99):6.2f}"
        print(f"  create, {what:22}  {line}   aim 1.5 / 6   {median(writes):.0f} cgroups written")
    print(f"  other settings                  {median(settings):7.2f}   aim 250 with all around it")


def _print_hints() -> None:
    kernel = SimKernel({})
    kernel.lay(sysfs(EIGHT))
    node = _Node(TREE)
    node.step(ev.TopologyRead(read(kernel)))
    homes = [_home(i) for i in range(PODS)]
    node.step(ev.Listed(tuple(homes), tuple(_one(home, 100) for home in homes), 1))
    for i in range(LIVES):
        _life(node, PODS + i, 100, "near", HINTS)
    times = node.times["near"]
    print(f"topology-aware, eight NUMA nodes, {PODS} containers, milliseconds of processor time")
    line = f"p50 {quantile(times, 0.5):6.2f}  p99 {quantile(times, 0.99):6.2f}"
    print(f"  create that uses four things    {line}   aim 5 (p99)")


def _print_claims() -> None:
    kernel = SimKernel({})
    kernel.lay(sysfs(PLAN))
    machine, homes = read(kernel), [_home(i) for i in range(PODS)]
    numas = [node.id for node in machine.nodes]

    def claim(number: int, cpus: int) -> Claim:
        given = (Allocated("cpus", f"cpus-numa-{numas[number % len(numas)]}", consumed={"cpu": cpus}),)
        home = _home(number)
        return Claim(ClaimUid(f"c{number}"), home.namespace, f"c{number}", given, {home.pod_uid: home.name})

    def spec(number: int) -> PodSpec:
        uses = (f"c{number}",) if number < CLAIMS else ()
        home, of_pod = homes[number], ContainerSpec("app", cpu_m=1000 if uses else 100, claims=uses)
        return PodSpec(home.pod_uid, home.namespace, home.name, (of_pod,), qos=Qos.BURSTABLE)

    settings = EngineSettings(policy=BY_CLAIM, cpus=CpusSettings(dra=CpuClaims(Mode.ENFORCE)))
    synchronize, node, known = list[float](), _Node(BY_CLAIM), tuple[Promised, ...]()
    cpus = dict[str, int]()
    for _ in range(ROUNDS):
        gc.collect()
        node = _Node(BY_CLAIM)
        node.state = State(settings=settings)
        node.step(ev.TopologyRead(machine))
        node.step(ev.ClaimsRecalled(DRIVER, known))
        node.step(ev.DriverTold(DRIVER, registered=True))
        node.step(ev.PodsListed(tuple(spec(i) for i in range(PODS)), as_of=0))
        for i in range(CLAIMS if not known else 0):
            node.step(ev.Preparing(DRIVER, claim(i, 1), ask_id=i))
        ones = [_one(home, 1000 if i < CLAIMS else 100, cpus=cpus.get(home.pod_uid, 0)) for i, home in enumerate(homes)]
        node.step(ev.Listed(tuple(homes), tuple(ones), 1), "sync")
        synchronize += node.times["sync"]
        grants, known = node.state.cpus.pools, tuple(node.state.cpus.by_claim.claims.values())
        cpus = {home.pod_uid: wanted(grants, f"{home.pod_uid}/app") for home in homes}
    for i in range(PODS, PODS + LIVES):
        decision = node.step(ev.Preparing(DRIVER, claim(i, 2), ask_id=i), "prepare")
        assert isinstance(decision.answer, Final)
        assert isinstance(decision.answer.value, Adjustment), decision.answer
        node.step(ev.Unprepared(DRIVER, ClaimUid(f"c{i}")))
    times = node.times["prepare"]
    print(f"claims, {PODS} containers and {CLAIMS} claims, milliseconds of processor time")
    print(f"  Synchronize, after a restart    {median(synchronize[1:]):7.2f}   aim 60")
    line = f"p50 {quantile(times, 0.5):6.2f}  p99 {quantile(times, 0.99):6.2f}"
    print(f"  Prepare                         {line}   aim 20 (p99)")


def _print_rounds(home: Path, active: str) -> None:
    """As a runtime sees it."""
    settings = f"policy:\n  active: {active}\n  reservedResources: {{cpu: 2}}\n  {SECTIONS[active]}\n"
    rounds = [asyncio.run(by_nri.one_round(plugins.DAEMON, home, settings)) for _ in range(by_nri.ROUNDS)]
    figures = {what: median([one[what] for one in rounds]) / 1000 for what in rounds[0]}
    print(f"by NRI, median of {by_nri.ROUNDS} rounds, milliseconds")
    for what, title, aim in (
        ("sync", "Synchronize", "100"),
        ("shared p50", "create, p50", "1.5"),
        ("shared p99", "create, p99", "6"),
        ("own p50", "create that grows, to the last read back, p50", "-"),
    ):
        print(f"  {title:46} {figures[what]:9.2f}   aim {aim}")
