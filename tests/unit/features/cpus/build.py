"""A node with eight CPUs and a policy, containers of the sizes that tests ask for, and what follows from each event."""

from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.cpuset import text
from nodeward.core.decision import Decision, Final
from nodeward.core.refusal import Refusal
from nodeward.core.topology import Group, Machine
from nodeward.core.workload import Container, ContainerId, CpuRecord, Phase, PodUid, Sandbox, SandboxId
from nodeward.features.cpus.place import wanted
from nodeward.features.cpus.policies.static import STATIC
from nodeward.features.cpus.rows import CpusView
from nodeward.features.cpus.settings import Amount, AmountKind, CpusSettings, PolicySettings
from nodeward.features.cpus.view import cpus_view
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from tests.unit.features.build import Told, adjusted, there

RESERVED_ONE = Amount(AmountKind.QUANTITY, milli=1000)
STATIC_RULES = PolicySettings(STATIC.name, reserved=RESERVED_ONE)


def machine(cores: int = 4, offline: int = 0) -> Machine:
    """One socket; core c has the CPUs 2c and 2c + 1."""
    online = ((1 << 2 * cores) - 1) & ~offline
    pairs = [3 << 2 * core & online for core in range(cores)]
    one = (Group(0, online),)
    threads = tuple(Group(2 * core, pair) for core, pair in enumerate(pairs) if pair)
    return Machine(online, one, one, one, one, threads, threads, offline=offline)


def told(policy: PolicySettings = STATIC_RULES, cpus: CpusSettings | None = None, of: Machine | None = None) -> Told:
    engine = Told(State(settings=EngineSettings(policy=policy, cpus=cpus or CpusSettings())))
    engine(ev.TopologyRead(of or machine()))
    return engine


def home(pod: str, qos: str = "") -> Sandbox:
    path = "/".join(part for part in ("/kubepods", qos, f"pod{pod}") if part)
    return Sandbox(SandboxId(f"s-{pod}"), PodUid(pod), "shop", pod, cgroup_parent=path)


def one(pod: str, cpus: int = 0, qos: str = "", life: int = 0, now: int = 0) -> Container:
    """The container `app` of a pod: Guaranteed with so many CPUs where there is no `qos`, as kubelet would ask."""
    record = CpuRecord(cpus * 1024 or 2, cpus * 100_000, 100_000, now)
    where = f"{home(pod, qos).cgroup_parent}/{pod}-{life}"
    return Container(ContainerId(f"{pod}-{life}"), SandboxId(f"s-{pod}"), "app", cgroups_path=where, cpu=record)


def begin(engine: Told, pod: Sandbox, made: Container) -> Decision:
    decision = engine(ev.Creating(pod, made, ask_id=engine.state.seq + 1))
    if refused(decision) is None:
        engine(ev.Created(pod, made))
        engine(ev.Started(pod, made.in_phase(Phase.RUNNING)))
    return decision


def create(engine: Told, pod: str, cpus: int = 0, qos: str = "", life: int = 0) -> Decision:
    return begin(engine, home(pod, qos), one(pod, cpus, qos, life))


def stop(engine: Told, pod: str, cpus: int = 0, qos: str = "", life: int = 0) -> Decision:
    return engine(ev.Stopped(home(pod, qos), one(pod, cpus, qos, life)))


def end(engine: Told, pod: str, qos: str = "") -> Decision:
    return engine(ev.SandboxRemoved(home(pod, qos)))


def resize(engine: Told, pod: str, cpus: int) -> Decision:
    changed = one(pod, cpus).in_phase(Phase.RUNNING)
    return engine(ev.Updating(home(pod), changed, ask_id=engine.state.seq + 1))


def settle(engine: Told, decision: Decision) -> None:
    targets = tuple(target for goal in decision.goals if goal.perform for target in goal.targets())
    if targets:
        engine(ev.Reached(targets, targets))


def given(decision: Decision) -> str:
    return adjusted(decision).cpus


def refused(decision: Decision) -> str | None:
    value = decision.answer.value if isinstance(decision.answer, Final) else None
    return value.message if isinstance(value, Refusal) else None


def writes(decision: Decision) -> dict[str, str]:
    return {
        target.where: str(goal.value)
        for goal in decision.goals
        if goal.perform and goal.target.kind == "cpuset"
        for target in goal.targets()
    }


def sets(engine: Told) -> dict[str, str]:
    cpus = engine.state.cpus
    return {held.key.partition("/")[0]: text(wanted(cpus.pools, held.key)) for held in cpus.held.values()}


def shown(engine: Told) -> CpusView:
    return there(cpus_view(engine.state, 0))


def settings(engine: Told, policy: PolicySettings | None = None, cpus: CpusSettings | None = None) -> Decision:
    now = engine.state.settings
    new = replace(now, policy=policy or now.policy, cpus=cpus or now.cpus)
    return engine(SettingsChanged(new))
