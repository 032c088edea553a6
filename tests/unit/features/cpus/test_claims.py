"""CPUs by claim: what is published, what a Prepare promises, who runs where, and what comes back."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.claims import Allocated, Claim, ClaimUid
from nodeward.core.cpuset import of, parse, text
from nodeward.core.decision import Decision, Final, Special
from nodeward.core.modes import Mode
from nodeward.core.refusal import Refusal
from nodeward.core.topology import Machine
from nodeward.core.workload import ContainerId, ContainerSpec, Phase, PodSpec, PodUid, Qos
from nodeward.features.cpus.claims import KIND
from nodeward.features.cpus.place import wanted
from nodeward.features.cpus.pool_settings import ClaimNames, ClaimsSettings
from nodeward.features.cpus.settings import Amount, AmountKind, CpuClaims, CpusSettings, PolicySettings
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from tests.unit.features.build import Told
from tests.unit.features.cpus import build
from tests.unit.features.cpus.machines import W

DRIVER = "cpus.nodeward.io"
RULES = PolicySettings("claims", reserved=Amount(AmountKind.CPUSET, of((0, 16))))
ON = CpusSettings(dra=CpuClaims(Mode.ENFORCE))


def node(machine: Machine = W, rules: PolicySettings = RULES, driver: str = DRIVER) -> Told:
    cpus = replace(ON, dra=CpuClaims(Mode.ENFORCE, driver))
    engine = Told(State(settings=EngineSettings(policy=rules, cpus=cpus)))
    engine(ev.TopologyRead(machine))
    engine(ev.Listed((), (), 1))
    engine(ev.ClaimsRecalled(driver))
    engine(ev.DriverTold(driver, registered=True))
    return engine


def claim(pod: str, counts: Mapping[int, int], name: str = "") -> Claim:
    given = tuple(
        Allocated("cpus", f"cpus-numa-{numa}", "node", f"s{numa}", {"cpu": count}) for numa, count in counts.items()
    )
    name = name or f"{pod}-claim"
    return Claim(ClaimUid(f"uid-{name}"), "shop", name, given, {PodUid(pod): pod})


def prepared(engine: Told, one: Claim) -> str:
    """The CPUs of the claim, or why it is refused."""
    answer = engine(ev.Preparing(DRIVER, one, ask_id=engine.state.seq + 1)).answer
    assert isinstance(answer, Final)
    if isinstance(answer.value, Refusal):
        return answer.value.message
    return text(engine.state.cpus.by_claim.claims[one.uid].cpus)


def knows(engine: Told, pod: str, **uses: tuple[str, ...]) -> None:
    """The API server says which claims its containers use."""
    ones = tuple(ContainerSpec(name, cpu_m=1000, cpu_limit_m=1000, claims=of) for name, of in uses.items())
    engine(ev.PodSeen(PodSpec(PodUid(pod), "shop", pod, ones, qos=Qos.GUARANTEED)))


def begins(engine: Told, pod: str, name: str = "app", cpus: int = 1) -> Decision:
    made = replace(build.one(pod, cpus), name=name, id=ContainerId(f"{pod}-{name}"), cgroups_path=f"/{pod}/{name}")
    decision = engine(ev.Creating(build.home(pod), made, ask_id=engine.state.seq + 1))
    if build.refused(decision) is None:
        engine(ev.Created(build.home(pod), made))
        engine(ev.Started(build.home(pod), made.in_phase(Phase.RUNNING)))
    return decision


def sold(engine: Told) -> dict[str, int]:
    """What the scheduler may give out of each device; 0 where it is withheld."""
    devices = json.loads(engine.state.cpus.by_claim.slices[DRIVER])
    return {one["name"]: 0 if "taints" in one else int(one["capacity"]["cpu"]["value"]) for one in devices}


def test_a_claim_takes_its_cpus_from_those_who_share_and_gives_them_back() -> None:
    engine = node()
    assert sold(engine) == {"cpus-numa-0": 6, "cpus-numa-1": 8, "cpus-numa-2": 8, "cpus-numa-3": 8}
    assert build.given(begins(engine, "web")) == "0-31"
    before = engine.state.cpus.pools
    assert prepared(engine, claim("vm", {1: 3})) == "4-5,20"  # a whole core, and one of the next
    assert engine.state.cpus.pools is not before
    assert text(engine.state.cpus.pools.pools["shared"].cpus) == "0-3,6-19,21-31"
    knows(engine, "vm", app=("vm-claim",), side=("vm-claim",), other=())
    assert [build.given(begins(engine, "vm", name)) for name in ("app", "side")] == ["4-5,20"] * 2
    assert build.given(begins(engine, "vm", "other")) == "0-3,6-19,21-31"
    assert sold(engine)["cpus-numa-1"] == 8
    engine(ev.SandboxRemoved(build.home("vm")))
    engine(ev.Unprepared(DRIVER, ClaimUid("uid-vm-claim")))
    assert text(engine.state.cpus.pools.pools["shared"].cpus) == "0-31"


def test_others_leave_at_once_and_come_back_at_the_end() -> None:
    engine = node()
    begins(engine, "web")
    (goal,) = engine(ev.Preparing(DRIVER, claim("vm", {0: 2}), ask_id=engine.state.seq + 1)).goals
    assert (goal.target.where, goal.value) == ("/web/app", "0,2-16,18-31")
    engine(ev.Reached(tuple(goal.targets()), tuple(goal.targets())))
    (goal,) = (
        one for one in engine(ev.Unprepared(DRIVER, ClaimUid("uid-vm-claim"))).goals if one.target.kind == "cpuset"
    )
    assert goal.value == "0-31"


def test_the_last_shared_cpu_is_never_given_away() -> None:
    """dra-driver-cpu #295: an exclusive claim that takes it leaves others on it."""
    engine = node(build.machine(cores=2), replace(RULES, reserved=Amount(AmountKind.CPUSET, 1)))
    assert sold(engine) == {"cpus-numa-0": 3}  # CPU 0 is reserved, and shared
    begins(engine, "web", cpus=2)  # requests two
    assert sold(engine) == {"cpus-numa-0": 2}
    assert prepared(engine, claim("vm", {0: 3})) == "1-3"
    assert text(engine.state.cpus.pools.pools["shared"].cpus) == "0"
    assert "and free there are none" in prepared(engine, claim("more", {0: 1}))


WRONG = {
    "none consumed": (
        replace(claim("vm", {0: 2}), allocated=(Allocated("cpus", "cpus-numa-0"),)),
        "does not say how many",
    ),
    "a device of others": (
        replace(claim("vm", {0: 2}), allocated=(Allocated("cpus", "cpudev0", consumed={"cpu": 1}),)),
        "'cpudev0' is none of ours",
    ),
    "a node that is not there": (claim("vm", {7: 2}), "this node has no device cpus-numa-7"),
    "two pods": (replace(claim("vm", {0: 2}), pods={PodUid("a"): "a", PodUid("b"): "b"}), "reserved for 2 pods"),
    "more than there are": (claim("vm", {0: 7}), "7 CPU(s) by its allocation, and free there are 1-3,17-19"),
    "beyond all bounds": (claim("vm", {0: 2**63}), "CPU(s) by its allocation, and free there are"),
}


@pytest.mark.parametrize(("one", "why"), WRONG.values(), ids=WRONG)
def test_a_claim_that_cannot_be_is_refused_and_leaves_nothing(one: Claim, why: str) -> None:
    engine = node()
    before = engine.state.cpus.pools
    assert why in prepared(engine, one)
    assert engine.state.cpus.pools is before
    assert not engine.state.cpus.by_claim.claims


def test_a_claim_is_prepared_once_whatever_kubelet_asks_again() -> None:
    engine = node()
    assert prepared(engine, claim("vm", {1: 2})) == prepared(engine, claim("vm", {1: 2})) == "4,20"
    assert "was prepared with 2 of cpus-numa-1, and now has 4" in prepared(engine, claim("vm", {1: 4}))


def test_a_container_of_two_claims_is_refused_and_one_whose_spec_is_not_known_waits() -> None:
    engine = node()
    for name in ("one", "two"):
        prepared(engine, claim("vm", {1: 2}, name))
    assert "its spec is not known yet" in str(build.refused(begins(engine, "vm")))
    knows(engine, "vm", app=("one", "two"))
    assert "it uses 2 claims of CPUs (shop/one, shop/two)" in str(build.refused(begins(engine, "vm")))


def test_nothing_is_promised_before_it_is_known_what_was() -> None:
    engine = Told(State(settings=EngineSettings(policy=RULES, cpus=ON)))
    engine(ev.TopologyRead(W))
    assert "not known yet what was prepared" in prepared(engine, claim("vm", {1: 2}))
    assert not engine.state.cpus.by_claim.slices


def test_a_restart_moves_nobody_and_claims_keep_their_cpus() -> None:
    """dra-driver-cpu #235: a restart loses the pinned or the shared set. The record of grants is lost too."""
    before = node()
    for pod, numa in (("a", 2), ("b", 1)):
        prepared(before, claim(pod, {numa: 2}))
        knows(before, pod, app=(f"{pod}-claim",))
    sets = {pod: build.given(begins(before, pod)) for pod in ("a", "b", "web")}
    told = before.state.cpus.by_claim.claims.values()
    engine = Told(State(settings=EngineSettings(policy=RULES, cpus=ON)))
    engine(ev.TopologyRead(W))
    ones = [
        replace(build.one(pod, 1, now=parse(cpus)), id=ContainerId(f"{pod}-app"), cgroups_path=f"/{pod}/app")
        for pod, cpus in sets.items()
    ]
    engine(ev.Listed(tuple(build.home(pod) for pod in sets), tuple(one.in_phase(Phase.RUNNING) for one in ones), 1))
    for pod, names in (("a", ("a-claim",)), ("b", ("b-claim",)), ("web", ())):
        knows(engine, pod, app=names)
    engine(ev.ClaimsRecalled(DRIVER, tuple(reversed(tuple(told)))))
    now = {held.key: text(wanted(engine.state.cpus.pools, held.key)) for held in engine.state.cpus.held.values()}
    assert now == {f"{pod}/app": cpus for pod, cpus in sets.items()}


def test_a_container_stays_while_its_claim_is_taken_back() -> None:
    engine = node()
    prepared(engine, claim("vm", {1: 2}))
    knows(engine, "vm", app=("vm-claim",))
    begins(engine, "vm")
    engine(ev.Unprepared(DRIVER, ClaimUid("uid-vm-claim")))  # a pod deleted by force: it still runs
    assert text(wanted(engine.state.cpus.pools, "vm/app")) == "4,20"
    assert "4" not in text(engine.state.cpus.pools.pools["shared"].cpus).split(",")
    assert "an earlier claim of that name still run" in prepared(
        engine, replace(claim("vm", {1: 2}), uid=ClaimUid("new"))
    )
    engine(ev.SandboxRemoved(build.home("vm")))
    assert text(engine.state.cpus.pools.pools["shared"].cpus) == "0-31"


def test_the_slice_ends_with_the_policy() -> None:
    engine = node()
    rules = EngineSettings(policy=replace(RULES, active="static"), cpus=ON)
    goals = engine(SettingsChanged(rules)).goals
    assert [one.value for one in goals if one.target.kind == KIND] == [Special.ABSENT]


def test_claims_of_dra_driver_cpu_find_its_names() -> None:
    """By its own page of attributes and its grouped example: `deviceClassName: dra.cpu`, `dra.cpu/cpu: "10"`."""
    rules = replace(RULES, claims=ClaimsSettings(names=ClaimNames.DRA_DRIVER_CPU))
    engine = node(rules=rules, driver="dra.cpu")
    (first, *_) = json.loads(engine.state.cpus.by_claim.slices["dra.cpu"])
    assert first == {
        "name": "cpudevnuma000",
        "attributes": {
            "dra.cpu/numCPUs": {"int": 6},
            "dra.cpu/socketID": {"int": 0},
            "dra.cpu/smtEnabled": {"bool": True},
            "resource.kubernetes.io/numaNode": {"int": 0},
            "dra.cpu/numaNodeID": {"int": 0},
            "dra.net/numaNode": {"int": 0},
        },
        "allowMultipleAllocations": True,
        "capacity": {
            "dra.cpu/cpu": {
                "value": "6",
                "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}},
            }
        },
    }
    given = (Allocated("req-cpu-slice", "cpudevnuma001", "node", "s", {"dra.cpu/cpu": 4}),)
    one = replace(claim("vm", {}), allocated=given)
    engine(ev.Preparing("dra.cpu", one, ask_id=engine.state.seq + 1))
    assert text(engine.state.cpus.by_claim.claims[one.uid].cpus) == "4-5,20-21"


def test_a_resize_of_a_claims_container_is_refused_with_the_reason() -> None:
    engine = node()
    prepared(engine, claim("vm", {1: 2}))
    knows(engine, "vm", app=("vm-claim",))
    begins(engine, "vm")
    more = replace(build.one("vm", 3), id=ContainerId("vm-app"), cgroups_path="/vm/app").in_phase(Phase.RUNNING)
    decision = engine(ev.Updating(build.home("vm"), more, ask_id=engine.state.seq + 1))
    assert "a resize from 1000 to 3000 milliCPU changes no claim" in str(build.refused(decision))
