"""Seeded lives of containers under each CPU policy, while daemons die, sets drift and CPUs go offline.

Outside the daemon there are a kernel (each cgroup's set), a runtime (its own record of each container), an API server
that tells late, and the journal of CPU grants in its own format. `make nightly` plays 2000 histories of every policy.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nodeward.core import events as ev
from nodeward.core import record
from nodeward.core.annotations import ANTI_AFFINITY, STATIC_POOL
from nodeward.core.claims import Allocated, Claim, ClaimUid, Promised
from nodeward.core.cpuset import ids, parse, text
from nodeward.core.decision import Adjustment, Decision, Final
from nodeward.core.hints import NO_HINTS, Hint, HintKind, Hints
from nodeward.core.modes import Mode
from nodeward.core.topology import Machine, MemoryNode
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
from nodeward.features.cpus import claims as cpu_claims
from nodeward.features.cpus import pool_settings as kinds
from nodeward.features.cpus import recorded
from nodeward.features.cpus.claim_parameters import KIND, KNOWN, VERSION
from nodeward.features.cpus.effects import journal as cpus_journal
from nodeward.features.cpus.place import wanted
from nodeward.features.cpus.policies import claims as policy_claims
from nodeward.features.cpus.policies.claims import pool_of
from nodeward.features.cpus.pools import apart
from nodeward.features.cpus.requested import shares_of
from nodeward.features.cpus.settings import Amount, AmountKind, CpuClaims, CpusSettings, PolicySettings
from nodeward.features.cpus.values import CpusRecalled, Ground, Recorded
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from nodeward.programs.once.replay import replay
from tests.unit.features.build import Told
from tests.unit.features.cpus.machines import machine, without

DRIVER = "cpus.nodeward.io"
BY_CLAIM = CpusSettings(dra=CpuClaims(Mode.ENFORCE, DRIVER))
STEPS = 24
BOOT = "this-boot"
SIZES = (("burstable", 100), ("burstable", 700), ("besteffort", 0), ("", 1000), ("", 2000), ("", 2500), ("", 500))
NAMESPACES = ("shop", "lab", "kube-system")
CPU0 = Amount(AmountKind.CPUSET, 1)
SHARING = (
    kinds.BalloonType("near", ("shop",), share_idle_cpus_in_same=kinds.Within.NUMA, max_cpus=8),
    kinds.BalloonType("new", ("lab",), prefer_new_balloons=True, share_idle_cpus_in_same=kinds.Within.PACKAGE),
)
COMPOSED = (
    kinds.BalloonType("pair", ("shop",), components=("left", "right"), component_creation=kinds.Creation.BALANCE),
    kinds.BalloonType("all", ("lab",), components=("left", "right")),
    kinds.BalloonType("left", max_balloons=3),
    kinds.BalloonType("right", components=("r1", "r2"), component_creation=kinds.Creation.BALANCE, max_cpus=4),
    kinds.BalloonType("r1"),
    kinds.BalloonType("r2", max_cpus=2),
)
_LISTS = (
    kinds.StaticPool("shared", False, (kinds.CpuList(0, "1"),)),
    kinds.StaticPool("own", True, tuple(kinds.CpuList(0, f"{n}") for n in range(2, 7))),
)
_PODS = (kinds.PodPool("pair", 2, 3, "3"), kinds.PodPool("one", 1, 0, "2"))
_KINDS = (kinds.DynamicPoolType("fast", ("lab",)), kinds.DynamicPoolType("slow", ("shop",)))
_TREE = kinds.TopologyAwareSettings(
    colocate_pods=True, reserved_pool_namespaces=("infra",), unlimited_burstable=kinds.PoolLevel.NUMA
)


def _by(policy: str, **more: object) -> PolicySettings:
    return replace(PolicySettings(policy, reserved=CPU0), **more)  # type: ignore[arg-type]


RULES = {
    "static": _by("static"),
    "static-plus": _by("static-plus"),
    "balloons": _by("balloons", balloons=kinds.BalloonsSettings(balloon_types=SHARING)),
    "composed": _by("balloons", balloons=kinds.BalloonsSettings(balloon_types=COMPOSED)),
    "podpools": _by("podpools", podpools=kinds.PodpoolsSettings(pools=_PODS)),
    "static-pools": _by("static-pools", static_pools=kinds.StaticPoolsSettings(_LISTS)),
    "dynamic-pools": _by("dynamic-pools", dynamic_pools=kinds.DynamicPoolsSettings(dynamic_pool_types=_KINDS)),
    "claims": _by("claims"),
    "topology-aware": _by("topology-aware", topology_aware=_TREE),
}
MACHINE = machine(packages=2, nodes=2, cores=2)
"""16 CPUs."""


def _with_memory(of: Machine, *, gib: int = 4, others: tuple[int, ...] = ()) -> Machine:
    """So much DRAM a node, and nodes without CPUs of these sizes behind the first ones."""
    count = len(of.nodes)
    far = {i: 10 + 7 * i for i in range(count + len(others))}
    near = {one.id: {i: far[abs(one.id - i)] for i in far} for one in of.nodes}
    dram = [MemoryNode(one.id, one.cpus, gib << 30, distances=near[one.id]) for one in of.nodes]
    more = [MemoryNode(count + i, 0, size << 30, distances={j: 17 + j for j in far}) for i, size in enumerate(others)]
    return replace(of, memory=(*dram, *more))


TREES = (
    MACHINE,
    _with_memory(MACHINE),
    _with_memory(machine(packages=1, nodes=8, cores=1), gib=1),
    _with_memory(machine(packages=1, nodes=2, caches=2, cores=2), others=(1, 16)),
    machine(packages=1, nodes=1, cores=8),
    machine(packages=2, nodes=1, cores=4, isolated=0b1000_0000_1100_0000),
    machine(packages=1, nodes=2, cores=4, efficient=0xF0F0),
    _with_memory(machine(packages=2, nodes=2, cores=4, threads=1), gib=2),
)
"""Of 16 CPUs too: one socket to eight nodes, memory without CPUs, isolated and efficient CPUs, one thread a core."""


class WrongError(AssertionError):
    """What must never be, with the history that led to it."""


@dataclass
class Taped(Told):
    """With the record that its daemon would leave."""

    lines: list[bytes] = field(default_factory=list)

    def __call__(self, event: ev.Event) -> Decision:
        if not self.lines:
            self.lines.append(b"".join(record.segment_pieces("", self.state)))
        self.lines.append(record.encode_event(self.stamped(event)))
        decision = super().__call__(event)
        self.lines.append(record.encode_decision(decision))
        return decision

    def must_replay(self) -> None:
        """From its record the same is decided again, byte for byte."""
        found = replay(self.lines)
        if found.difference or found.events * 2 + 1 < len(self.lines):
            raise WrongError(f"replayed {found.events} of {len(self.lines) // 2} events: {found.difference[:2000]}")


@dataclass(slots=True)
class Pod:
    """A pod with one container, as everybody else knows it."""

    name: str
    qos: str
    milli: int
    namespace: str
    kernel: int = 0
    """The cgroup's set; 0 for none of its own."""
    record: int = 0
    """The set in the runtime's record."""
    shares: int = 0
    life: int = 0
    claim: bool = False
    """It uses a claim of CPUs."""

    @property
    def home(self) -> Sandbox:
        path = "/".join(part for part in ("/kubepods", self.qos, f"pod{self.name}") if part)
        notes = {STATIC_POOL: "own", "intel.com/resources": _LIST, _ISOLATED: "1"} if self.namespace == "lab" else _NEAR
        return Sandbox(SandboxId(f"s-{self.name}"), PodUid(self.name), self.namespace, self.name, notes, path)

    @property
    def container(self) -> Container:
        quota = 0 if self.qos else self.milli * 100
        cpu = CpuRecord(self.shares or shares_of(self.milli), quota, 100_000, self.record)
        home = self.home
        made_id, path = ContainerId(f"{self.name}-{self.life}"), f"{home.cgroup_parent}/{self.life}"
        return Container(made_id, home.id, "app", cgroups_path=path, cpu=cpu)

    @property
    def running(self) -> Container:
        return self.container.in_phase(Phase.RUNNING)

    @property
    def spec(self) -> PodSpec:
        limit = 0 if self.qos else self.milli
        qos = {"burstable": Qos.BURSTABLE, "besteffort": Qos.BEST_EFFORT, "": Qos.GUARANTEED}[self.qos]
        claims = (f"{self.name}-own",) if self.claim else ()
        one = ContainerSpec("app", cpu_m=self.milli, cpu_limit_m=limit, memory_request=self.milli << 20, claims=claims)
        return PodSpec(PodUid(self.name), self.namespace, self.name, (one,), qos=qos)


_ISOLATED = "prefer-isolated-cpus.resource-policy.nri.io"
_APART = {"app": [{"scope": {"operator": "AlwaysTrue"}, "match": {"key": "qosclass", "operator": "Exists"}}]}
_NEAR = {
    ANTI_AFFINITY[0]: json.dumps(_APART),
    "cold-start.resource-policy.nri.io": '{"duration":"1ms"}',
    "pick-resources-by-hints.resource-policy.nri.io": "true",
}
_LIST = '{"containers":{"app":{"requests":{"cmk.intel.com/exclusive-cores":"1"}}}}'


@dataclass(slots=True)
class World:
    """What outlives the daemon, and the daemon that lives now."""

    rules: PolicySettings
    choose: random.Random
    pods: dict[str, Pod] = field(default_factory=dict)
    journal: bytes = b""
    written: Recorded | None = None
    whole: Machine = MACHINE
    """With all of its CPUs."""
    of: Machine = MACHINE
    story: list[str] = field(default_factory=list)
    engine: Taped = field(default_factory=lambda: Taped(State()))
    restarts: int = 0
    book: tuple[Promised, ...] = ()
    """The claims that are on record as prepared."""
    away: bool = False
    """Whether the settings have another policy than `rules`, for a while."""

    def settings(self) -> EngineSettings:
        return EngineSettings(policy=replace(self.rules, active="static") if self.away else self.rules, cpus=BY_CLAIM)

    def begin(self) -> None:
        """A daemon that knows only what its files say."""
        self.engine.must_replay()
        self.engine = Taped(State(settings=self.settings()))
        found = cpus_journal.read(self.journal, BOOT)
        if found is not None:
            now = found.recorded
            for change in found.changes:
                now = recorded.changed(now, change)
            self.must(not recorded.fault(now), f"the journal is void: {recorded.fault(now)}")
            self.must(self.written is None or now == self.written, "the journal says what was not written")
            self.written = now
            self.engine(CpusRecalled(now))
        self.engine(ev.TopologyRead(self.of))

    def must(self, holds: bool, what: str) -> None:
        if not holds:
            raise WrongError("\n".join([*self.story, what]))

    def write_down(self) -> None:
        """What the daemon writes before it answers."""
        cpus = self.engine.state.cpus
        if cpus.by_claim.recalled:
            self.book = tuple(cpus.by_claim.claims.values())
        if cpus.machine is None or cpus.recorded is not None:
            return
        before = self.written
        after = Recorded(cpus.machine, cpus.rules, cpus.pools, recorded.mems(self.engine.state))
        change = None
        if before is not None and (before.machine, before.rules) == (after.machine, after.rules):
            change = recorded.change(before, after)
        self.journal = cpus_journal.whole(after, BOOT) if change is None else self.journal + cpus_journal.line(change)
        self.written = after

    def perform(self, decision: Decision, most: int = 10_000) -> bool:
        """Writes the goals' sets, so many at most; whether all were written."""
        at = {pod.container.cgroups_path: pod for pod in self.pods.values()}
        for goal in decision.goals:
            for target in goal.targets():
                if target.kind != "cpuset":
                    continue
                if most == 0:
                    return False
                most -= 1
                to = parse(str(goal.value))
                self.must(bool(to), f"an empty set for {target.where}")
                if target.where in at:
                    at[target.where].kernel = to
                self.perform(self.engine(ev.Reached((target,), (target,))))
        return True

    def sets(self) -> dict[str, int]:
        cpus = self.engine.state.cpus
        return {held.key.partition("/")[0]: wanted(cpus.pools, held.key) for held in cpus.held.values()}

    def consistent(self) -> None:
        """No CPU is two containers' own, no set is empty, and the kernel has what is wanted."""
        cpus = self.engine.state.cpus
        grants = cpus.pools.grants
        for name, pod in self.pods.items():
            key = f"{name}/app"
            grant = grants.get(key)
            if grant is None or key in cpus.unplaced:
                continue
            has = wanted(cpus.pools, key)
            self.must(not grant.pinned or bool(has), f"{name} has an empty set")
            self.must(pod.kernel == has, f"{name}: kernel {text(pod.kernel)}, wanted {text(has)}")
            own = apart(cpus.pools, grant)
            for other, theirs in grants.items():
                together = theirs.pool and theirs.pool == grant.pool and grant.shares_pool
                both = own & wanted(cpus.pools, other)
                self.must(
                    other == key or together or not theirs.pinned or not both,
                    f"{name} and {other} both have {text(both)}",
                )
        self.claims_hold()

    def claims_hold(self) -> None:
        """No CPU is two claims', and the scheduler is told of no more than there is."""
        state, taken = self.engine.state, 0
        if state.cpus.rules.active != "claims" or state.cpus.machine is None:
            return
        pools = state.cpus.pools.pools
        for one in state.cpus.by_claim.claims.values():
            pool = pools.get(pool_of(one.title))
            own = pool.cpus if pool is not None else 0
            self.must(not own & (taken | pools["shared"].cpus), f"{one.title} has {text(own)}, which others have too")
            taken |= own
        self.must(bool(pools["shared"].cpus), "nothing is left to share")
        ground = Ground(state.cpus.machine, state.cpus.rules)
        for name, value in cpu_claims.values(state, ground).items():
            free = policy_claims.free(ground, state.cpus.pools, cpu_claims.devices(ground)[name]).bit_count()
            self.must(value - cpu_claims.promised(state, name) <= free, f"{name} is sold with {value}, {free} are free")

    # ---- what happens

    def prepares(self, pod: Pod) -> bool:
        """Kubelet asks before the pod is made; whether its claim is promised, and on record."""
        node, count = self.choose.randrange(len(self.of.nodes)), self.choose.randint(1, 4)
        given = (Allocated("own", f"cpus-numa-{self.of.nodes[node].id}", "n", "s", {"cpu": count}),)
        wishes = [name for name in KNOWN if self.choose.random() < 0.2]
        text = json.dumps({"apiVersion": VERSION, "kind": KIND, **dict.fromkeys(wishes, True)})
        uid, pods = ClaimUid(f"u-{pod.name}"), {PodUid(pod.name): pod.name}
        claim = Claim(uid, pod.namespace, f"{pod.name}-own", given, pods, parameters=(text,) if wishes else ())
        decision = self.engine(ev.Preparing(DRIVER, claim, ask_id=self.engine.state.seq + 1))
        is_promised = isinstance(decision.answer, Final) and decision.answer.reason.code == "claim-prepared"
        self.must(not (self.away and is_promised), "a new claim gets CPUs while the settings have another policy")
        self.story.append(f"prepare {count} of {given[0].device} for {pod.name} {wishes}: {is_promised}")
        self.book = tuple(self.engine.state.cpus.by_claim.claims.values())
        self.write_down()
        self.perform(decision)
        return is_promised

    def unprepares(self, name: str) -> None:
        self.story.append(f"unprepare {name}")
        self.perform(self.engine(ev.Unprepared(DRIVER, ClaimUid(f"u-{name}"))))
        self.book = tuple(self.engine.state.cpus.by_claim.claims.values())
        self.write_down()

    def recalls(self) -> None:
        """The daemon has read its book, and kubelet has it registered."""
        self.perform(self.engine(ev.ClaimsRecalled(DRIVER, self.book)))
        self.perform(self.engine(ev.DriverTold(DRIVER, registered=True)))
        self.write_down()

    def create(self, name: str, dies: bool) -> None:
        sizes = (*SIZES, ("", 1500)) if self.rules.active == "topology-aware" else SIZES
        qos, milli = self.choose.choice(sizes)
        pod = Pod(name, qos, milli, self.choose.choice(NAMESPACES))
        if self.rules.active == "claims" and self.choose.random() < 0.6:
            pod.claim = self.prepares(pod)
            if not pod.claim:
                return
        if self.choose.random() < 0.5 or self.rules.active == "claims":
            self.perform(self.engine(ev.PodSeen(pod.spec)))
        hints = self.hints() if self.rules.active == "topology-aware" else NO_HINTS
        decision = self.asks(pod, f"create {name} {qos or 'guaranteed'} {milli} in {pod.namespace}", hints)
        if decision is None:
            if pod.claim:
                self.unprepares(name)
        elif dies:
            self.die(decision)
        else:
            self.starts(pod, decision)
            if self.choose.random() < 0.5:
                self.perform(self.engine(ev.PodSeen(pod.spec)))
            self.write_down()

    def asks(self, pod: Pod, what: str, hints: Hints = NO_HINTS) -> Decision | None:
        """The runtime asks for its container, and has what is answered; None, and its sandbox ends, if refused."""
        decision = self.engine(ev.Creating(pod.home, pod.container, ask_id=self.engine.state.seq + 1, hints=hints))
        self.must(isinstance(decision.answer, Final), "no answer")
        assert isinstance(decision.answer, Final)
        answer = decision.answer.value
        if not isinstance(answer, Adjustment):
            self.story.append(f"{what}: refused")
            self.pods.pop(pod.name, None)
            self.perform(self.engine(ev.SandboxRemoved(pod.home)))
            self.write_down()
            return None
        self.write_down()
        pod.kernel = pod.record = parse(answer.cpus) if answer.cpus else 0
        pod.shares = answer.cpu_shares
        self.story.append(f"{what}: {text(pod.kernel)}")
        self.pods[pod.name] = pod
        return decision

    def starts(self, pod: Pod, decision: Decision) -> None:
        self.engine(ev.Created(pod.home, pod.container))
        self.perform(decision)
        self.perform(self.engine(ev.Started(pod.home, pod.running)))
        self.write_down()

    def hints(self) -> Hints:
        """Two things at most that it uses, also at nodes that are not there."""
        count = self.choose.choice((0, 0, 1, 2))
        return Hints(tuple(Hint(HintKind.POD_RESOURCE, nodes=1 << self.choose.randrange(9)) for _ in range(count)))

    def end(self, name: str, dies: bool) -> None:
        if self.pods[name].claim and self.choose.random() < 0.3:
            self.unprepares(name)  # a pod deleted by force: its container runs on for a while
            self.consistent()
        pod = self.pods.pop(name)
        self.story.append(f"end {name}")
        decision = self.engine(ev.SandboxRemoved(pod.home))
        if not dies or self.choose.random() >= 0.5:  # else it dies before that is written down
            self.write_down()
        if dies:
            self.die(decision)
        else:
            self.perform(decision)
        if pod.claim:
            self.unprepares(name)

    def again(self, name: str) -> None:
        """The container ends and is created again in its pod."""
        pod = self.pods[name]
        self.perform(self.engine(ev.Stopped(pod.home, pod.container)))
        self.write_down()
        again = replace(pod, life=pod.life + 1, record=0, shares=0, kernel=0)
        decision = self.asks(again, f"again {name}")
        if decision is not None:
            self.starts(again, decision)

    def resize(self, name: str) -> None:
        """Kubelet asks the runtime for another amount; nothing is left of what is refused."""
        pod, milli = self.pods[name], self.choose.choice((40_000, 1000, 2000, 3000))
        if pod.qos or milli == pod.milli:
            return
        more = replace(pod, milli=milli, shares=0).container
        before, sets = self.engine.state, self.sets()
        decision = self.engine(ev.Updating(pod.home, more.in_phase(Phase.RUNNING), ask_id=before.seq + 1))
        assert isinstance(decision.answer, Final)
        if not isinstance(decision.answer.value, Adjustment):
            self.story.append(f"resize {name} to {milli}: refused")
            self.must(self.engine.state.pods == before.pods, "something is left of a refused resize")
            self.must(self.sets() == sets, "somebody has moved by a refused resize")
            return
        pod.milli, answer = milli, decision.answer.value
        self.story.append(f"resize {name} to {milli}: {answer.cpus}")
        pod.shares = answer.cpu_shares
        self.write_down()
        if answer.cpus:
            pod.record = pod.kernel = parse(answer.cpus)
        self.perform(decision)
        self.perform(self.engine(ev.Updated(pod.home, pod.running)))
        self.write_down()

    def drift(self) -> None:
        """Somebody else writes a set into a cgroup; the daemon finds it, or dies before."""
        pod = self.choose.choice(list(self.pods.values()))
        pod.kernel |= self.choose.getrandbits(16) & self.of.online or 1
        self.story.append(f"drift {pod.name}: {text(pod.kernel)}")
        if self.choose.random() < 0.5:
            self.die(Decision())
            return
        seen = {pod.container.cgroups_path: pod.kernel}
        self.perform(self.engine(ev.CpusetsRead(seen, self.engine.state.seq)))

    def hotplug(self) -> None:
        away = 1 << self.choose.randrange(1, 16) if self.of.online == self.whole.online else 0
        self.of = without(self.whole, away)
        self.story.append(f"hotplug: without {text(away) or 'none'}")
        decision = self.engine(ev.TopologyRead(self.of))
        for pod in self.pods.values():
            pod.kernel &= ~away if pod.kernel & ~away else pod.kernel
        self.perform(decision)
        for pod in self.pods.values():
            held = self.sets().get(pod.name, 0)
            pod.kernel = held or pod.kernel
        self.write_down()

    def used(self) -> None:
        use = {cpu: self.choose.randrange(1000) for cpu in ids(self.of.online)}
        self.perform(self.engine(ev.CpusUsed(use)))
        self.engine.at_ns += 10**7
        self.perform(self.engine(ev.Tick()))
        self.write_down()

    def turns(self) -> None:
        """The settings have another policy, or the first one again: nobody loses CPUs of its own."""
        self.away = not self.away
        before = self.alone()
        decision = self.engine(SettingsChanged(self.settings()))
        self.story.append(f"turn away {self.away}: {self.engine.state.cpus.rules.active}")
        self.write_down()
        self.perform(decision)
        after = self.alone()
        for name, own in before.items():
            self.must(not own & ~after.get(name, 0), f"{name} had {text(own)} alone: {_told(after)}")

    def alone(self) -> dict[str, int]:
        pools = self.engine.state.cpus.pools
        found = {key.partition("/")[0]: apart(pools, grant) for key, grant in pools.grants.items()}
        return {name: own for name, own in found.items() if own}

    def die(self, decision: Decision) -> None:
        """The daemon dies while it performs the decision, and another one begins: nobody may have to move."""
        self.perform(decision, self.choose.randrange(4))
        before, self.restarts = self.sets(), self.restarts + 1
        policy, alone = self.engine.state.cpus.rules.active, self.alone()
        for pod in self.pods.values():
            before.setdefault(pod.name, pod.record)
        self.story.append(f"restart: {_told(before)}")
        self.begin()
        by_claim = self.rules.active == "claims"
        api = self.choose.choice(("first", "last") if by_claim else ("first", "last", "never"))
        if by_claim and self.choose.random() < 0.5:
            self.recalls()
        specs = tuple(pod.spec for pod in self.pods.values())
        if api == "first":
            self.perform(self.engine(ev.PodsListed(specs, as_of=0)))
        homes, ones = tuple(pod.home for pod in self.pods.values()), tuple(pod.running for pod in self.pods.values())
        self.perform(self.engine(ev.Listed(homes, ones, as_of=self.engine.state.seq)))
        self.write_down()
        if api == "last":
            self.perform(self.engine(ev.PodsListed(specs, as_of=self.engine.state.seq)))
            self.write_down()
        if by_claim and not self.engine.state.cpus.by_claim.recalled:
            self.recalls()
        after = self.sets()
        self.must(set(after) == set(self.pods), "somebody is forgotten")
        if self.engine.state.cpus.rules.active != policy:  # no claim was left
            before, after = alone, self.alone()
        for name in before:
            had, has = before[name], after.get(name, 0)
            self.must(had == has, f"{name} had {text(had)} and has {text(has)} after a restart: {_told(after)}")

    def play(self) -> None:
        self.begin()
        if self.rules.active == "claims":
            self.engine(ev.Listed((), (), as_of=self.engine.state.seq))
            self.recalls()
        for _ in range(STEPS):
            self.step()
        self.engine.must_replay()

    def step(self) -> None:
        slot, chance = f"p{self.choose.randrange(8)}", self.choose.random()
        name = next((one for one in self.pods if one.startswith(slot)), f"{slot}-{len(self.story)}")
        dies = self.choose.random() < 0.2
        if self.rules.active == "claims" and self.choose.random() < 0.06:
            self.turns()
        elif chance < 0.08 and self.pods:
            self.drift()
        elif chance < 0.14:
            self.hotplug()
        elif chance < 0.2:
            self.used()
        elif chance < 0.3 and name in self.pods:
            self.again(name)
        elif chance < 0.4 and name in self.pods:
            self.resize(name)
        elif name in self.pods:
            self.end(name, dies)
        else:
            self.create(name, dies)
        self.consistent()


def _told(sets: dict[str, int]) -> str:
    return " ".join(f"{name}={text(cpus)}" for name, cpus in sorted(sets.items()))


def played(policy: str, seed: int) -> World:
    """The history of this seed; WrongError with its story where something went wrong."""
    whole = TREES[seed % len(TREES)] if policy == "topology-aware" else MACHINE
    world = World(RULES[policy], random.Random(f"{policy}/{seed}"), whole=whole, of=whole)
    world.story.append(f"{policy}, seed {seed}")
    world.play()
    return world


def wrong(policy: str, seeds: range) -> Iterator[str]:
    for seed in seeds:
        try:
            played(policy, seed)
        except WrongError as error:
            yield str(error)
