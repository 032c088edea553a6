"""CPUs by claim: what is published, what a Prepare promises, who runs where, and what comes back."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from nodeward.core import events as ev
from nodeward.core.claims import Allocated, Claim, ClaimUid
from nodeward.core.cpuset import of, parse, text
from nodeward.core.decision import Decision, Special
from nodeward.core.modes import Mode
from nodeward.core.topology import CpuAmount, Machine
from nodeward.core.workload import ContainerId, ContainerSpec, CpuRecord, Phase, PodSpec, PodUid, Qos
from nodeward.features.cpus.claim_parameters import VERSION
from nodeward.features.cpus.claims import KIND
from nodeward.features.cpus.place import wanted
from nodeward.features.cpus.pool_settings import ClaimNames, ClaimsSettings, DevicesBy
from nodeward.features.cpus.settings import Amount, AmountKind, CpuClaims, CpusSettings, PolicySettings
from nodeward.features.cpus.values import CpusRecalled, Recorded
from nodeward.features.cpus.words import claim_sentences, cpu_sentence, cpu_sentences, drawing
from nodeward.features.cpus.zones import zones
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from tests.unit.features.build import Told, refusal, there
from tests.unit.features.cpus import build
from tests.unit.features.cpus.machines import W, machine, without

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


def begun() -> Told:
    engine = Told(State(settings=EngineSettings(policy=RULES, cpus=ON)))
    engine(ev.TopologyRead(W))
    return engine


def claim(pod: str, counts: Mapping[int, int], name: str = "") -> Claim:
    given = tuple(Allocated("cpus", f"cpus-numa-{n}", "node", f"s{n}", {"cpu": count}) for n, count in counts.items())
    name = name or f"{pod}-claim"
    return Claim(ClaimUid(f"uid-{name}"), "shop", name, given, {PodUid(pod): pod})


def prepared(engine: Told, one: Claim) -> str:
    """The CPUs of the claim, or why it is refused."""
    why = refusal(engine(ev.Preparing(DRIVER, one, ask_id=engine.state.seq + 1)))
    return why or text(engine.state.cpus.by_claim.claims[one.uid].cpus)


def knows(engine: Told, pod: str, cpus: int = 1, **uses: tuple[str, ...]) -> None:
    milli = 1000 * cpus
    ones = tuple(ContainerSpec(name, cpu_m=milli, cpu_limit_m=milli, claims=of) for name, of in uses.items())
    engine(ev.PodSeen(PodSpec(PodUid(pod), "shop", pod, ones, qos=Qos.GUARANTEED)))


def begins(engine: Told, pod: str, name: str = "app", cpus: int = 1) -> Decision:
    made = replace(build.one(pod, cpus), name=name, id=ContainerId(f"{pod}-{name}"), cgroups_path=f"/{pod}/{name}")
    return build.begin(engine, build.home(pod), made)


def runs(engine: Told, pod: str, counts: Mapping[int, int]) -> str:
    """A pod's container begins with a claim; the CPUs of that."""
    cpus = prepared(engine, claim(pod, counts))
    knows(engine, pod, app=(f"{pod}-claim",))
    begins(engine, pod)
    return cpus


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


def test_the_last_shared_cpu_is_never_given_away() -> None:
    """dra-driver-cpu #295: an exclusive claim that takes it leaves others on it."""
    engine = node(build.machine(cores=2), replace(RULES, reserved=Amount(AmountKind.CPUSET, 1)))
    assert sold(engine) == {"cpus-numa-0": 3}  # CPU 0 is reserved, and shared
    begins(engine, "web", cpus=2)  # requests two
    assert sold(engine) == {"cpus-numa-0": 2}
    assert prepared(engine, claim("vm", {0: 3})) == "1-3"
    assert text(engine.state.cpus.pools.pools["shared"].cpus) == "0"
    assert "and free there are none" in prepared(engine, claim("more", {0: 1}))


def allocated(*given: Allocated) -> Claim:
    return replace(claim("vm", {}), allocated=given)


def with_parameters(version: str = VERSION, **options: object) -> Claim:
    text = json.dumps({"apiVersion": version, "kind": "ClaimParameters", **options})
    return replace(claim("vm", {0: 2}), parameters=(text,))


WRONG = {
    "none consumed": (allocated(Allocated("cpus", "cpus-numa-0")), "does not say how many"),
    "a device of others": (allocated(Allocated("cpus", "cpudev0", consumed={"cpu": 1})), "'cpudev0' is none of ours"),
    "a node that is not there": (claim("vm", {7: 2}), "this node has no device cpus-numa-7"),
    "two pods": (replace(claim("vm", {0: 2}), pods={PodUid("a"): "a", PodUid("b"): "b"}), "reserved for 2 pods"),
    "more than there are": (claim("vm", {0: 7}), "7 CPU(s) by its allocation, and free there are 1-3,17-19"),
    "an extended resource": (replace(claim("vm", {0: 2}), extended=True), "made it for an extended resource"),
    "parameters of a later version": (with_parameters(VERSION.replace("v1", "v2")), "of another kind or version"),
    "parameters of a later release": (with_parameters(isolated=True), "have 'isolated'; this release reads"),
    "a parameter that is no boolean": (with_parameters(shared="yes"), "shared is neither true nor false"),
    "parameters that are no object": (replace(claim("vm", {0: 2}), parameters=("[" * 9999,)), "are no JSON"),
    "half a core of whole ones": (
        replace(with_parameters(fullPCPUsOnly=True), allocated=claim("vm", {0: 3}).allocated),
        "3 CPUs are no multiple of 2",
    ),
    "beyond all bounds": (claim("vm", {0: 2**63}), "CPU(s) by its allocation, and free there are"),
}


@pytest.mark.parametrize(("one", "why"), WRONG.values(), ids=WRONG)
def test_a_claim_that_cannot_be_is_refused_and_leaves_nothing(one: Claim, why: str) -> None:
    engine = node()
    before = engine.state.cpus.pools
    assert why in prepared(engine, one)
    assert engine.state.cpus.pools is before
    assert not engine.state.cpus.by_claim.claims


def test_whole_cores_only_leaves_the_half_of_one_alone() -> None:
    engine = node()
    assert prepared(engine, claim("a", {0: 1})) == "1"
    assert prepared(engine, replace(with_parameters(fullPCPUsOnly=True), pods={PodUid("vm"): "vm"})) == "2,18"
    of_class, of_its_own = (with_parameters(fullPCPUsOnly=on).parameters for on in (True, False))
    one = replace(claim("b", {0: 3}), parameters=(*of_class, *of_its_own))
    assert prepared(engine, one) == "3,17,19"  # what the claim says overrules its class


def test_a_container_may_use_the_shared_cpus_beside_its_claim() -> None:
    engine = node(build.machine(cores=2), replace(RULES, reserved=Amount(AmountKind.CPUSET, 1)))
    assert prepared(engine, replace(with_parameters(shared=True), pods={PodUid("vm"): "vm"})) == "2-3"
    knows(engine, "vm", 4, app=("vm-claim",))
    assert build.given(begins(engine, "vm", cpus=4)) == "0-3"
    assert sold(engine) == {"cpus-numa-0": 0}  # both others are requested beside the claim
    engine(ev.RuntimeConnected("containerd", "2.4"))
    of_others = there(zones(engine.state))
    assert {one.cpu.available_m for one in of_others.zones if one.name == "node-0" and one.cpu is not None} == {0}
    begins(engine, "web")
    view = build.shown(engine)
    (row,) = (one for one in view.holders if one.pod == "vm")
    told = next(iter(cpu_sentences(view, row)))
    assert told.startswith("cpus shop/vm/app: 2-3 exclusive, 0-3 in all; 4 CPU(s) requested")
    assert prepared(engine, claim("other", {0: 1})) == "1"
    assert build.sets(engine)["vm"] == "0,2-3"
    engine(ev.TopologyRead(build.machine(cores=2, offline=2)))
    assert build.sets(engine)["vm"] == "0,2-3"
    engine(ev.TopologyRead(build.machine(cores=2)))
    engine(ev.Unprepared(DRIVER, ClaimUid("uid-other-claim")))
    assert build.sets(engine)["vm"] == "0-3"


def test_a_claim_is_prepared_once_whatever_kubelet_asks_again() -> None:
    engine = node()
    assert prepared(engine, claim("vm", {1: 2})) == prepared(engine, claim("vm", {1: 2})) == "4,20"
    assert "was prepared with 2 of cpus-numa-1, and now has 4" in prepared(engine, claim("vm", {1: 4}))


def test_a_container_of_two_claims_or_of_another_pods_is_refused_and_one_whose_spec_is_not_known_waits() -> None:
    engine = node()
    for name in ("one", "two"):
        prepared(engine, claim("vm", {1: 2}, name))
    assert "its spec is not known yet" in str(build.refused(begins(engine, "vm")))
    knows(engine, "vm", app=("one", "two"))
    assert "it uses 2 claims of CPUs (shop/one, shop/two)" in str(build.refused(begins(engine, "vm")))
    knows(engine, "late", app=("one",))
    assert "its claim shop/one is another pod's" in str(build.refused(begins(engine, "late")))


def test_a_restart_moves_nobody_and_claims_keep_their_cpus() -> None:
    """dra-driver-cpu #235: a restart loses the pinned or the shared set. The record of grants is lost too."""
    before = node()
    for pod, numa in (("a", 2), ("b", 1)):
        prepared(before, claim(pod, {numa: 2}))
        knows(before, pod, app=(f"{pod}-claim",))
    sets = {pod: build.given(begins(before, pod)) for pod in ("a", "b", "web")}
    told = before.state.cpus.by_claim.claims.values()
    engine = begun()
    ones = [
        replace(build.one(pod, 1, now=parse(cpus)), id=ContainerId(f"{pod}-app"), cgroups_path=f"/{pod}/app")
        for pod, cpus in sets.items()
    ]
    engine(ev.Listed(tuple(build.home(pod) for pod in sets), tuple(one.in_phase(Phase.RUNNING) for one in ones), 1))
    for pod, names in (("a", ("a-claim",)), ("b", ("b-claim",)), ("web", ())):
        knows(engine, pod, app=names)
    engine(ev.ClaimsRecalled(DRIVER, tuple(reversed(tuple(told)))))
    assert build.sets(engine) == sets


def test_a_container_stays_while_its_claim_is_taken_back() -> None:
    engine = node()
    runs(engine, "vm", {1: 2})
    engine(ev.Unprepared(DRIVER, ClaimUid("uid-vm-claim")))  # a pod deleted by force: it still runs
    newer = replace(claim("vm", {1: 2}), uid=ClaimUid("new"))
    for read in (W, without(W, of((31,)))):
        engine(ev.TopologyRead(read))
        assert build.sets(engine)["vm"] == "4,20"
        assert "4" not in text(engine.state.cpus.pools.pools["shared"].cpus).split(",")
        assert "an earlier claim of that name still run" in prepared(engine, newer)
    engine(ev.SandboxRemoved(build.home("vm")))
    assert text(engine.state.cpus.pools.pools["shared"].cpus) == "0-30"


def test_a_claim_of_cpus_that_went_offline_gets_others_of_its_device_and_keeps_the_rest() -> None:
    engine = node()
    runs(engine, "vm", {1: 4})
    engine(ev.TopologyRead(without(W, of((20, 21)))))
    assert build.sets(engine)["vm"] == "4-6,22"
    engine(ev.TopologyRead(W))
    assert build.sets(engine)["vm"] == "4-6,22"
    prepared(engine, claim("other", {1: 4}))
    engine(ev.TopologyRead(without(W, of((4, 6)))))  # no other is free
    assert build.sets(engine)["vm"] == "5,22"
    engine(ev.Unprepared(DRIVER, ClaimUid("uid-other-claim")))
    assert build.sets(engine)["vm"] == "5,20-22"


def test_a_claim_that_is_adopted_has_the_cpus_its_pod_runs_on() -> None:
    engine = begun()
    sets = {"a": "5,21", "b": "4,20"}
    ones = [
        replace(build.one(pod, 1, now=parse(cpus)), id=ContainerId(f"{pod}-app"), cgroups_path=f"/{pod}/app")
        for pod, cpus in sets.items()
    ]
    engine(ev.Listed(tuple(map(build.home, sets)), tuple(one.in_phase(Phase.RUNNING) for one in ones), 1))
    engine(ev.ClaimsRecalled(DRIVER, (), tuple(claim(pod, {1: 2}) for pod in sets)))  # a book that is lost
    for pod in sets:
        knows(engine, pod, app=(f"{pod}-claim",))
    assert build.sets(engine) == sets
    engine(ev.TopologyRead(without(W, of((31,)))))
    assert build.sets(engine) == sets


def test_who_runs_without_a_place_keeps_its_cpus_from_claims() -> None:
    engine = begun()
    made = replace(build.one("lost", 1, now=parse("4-5,20")), cgroups_path="/lost/app").in_phase(Phase.RUNNING)
    made = replace(made, cpu=CpuRecord(cpus=made.cpu.cpus, unread=True))
    engine(ev.Listed((build.home("lost"),), (made,), 1))
    engine(ev.ClaimsRecalled(DRIVER))
    assert list(engine.state.cpus.unplaced) == ["lost/app"]
    assert prepared(engine, claim("vm", {1: 3})) == "6,21-22"


AWAY = {
    "another policy": ({"active": "static"}, "the policy static gives no CPUs by claim, and the claim"),
    "more reserved": ({"reserved": Amount(AmountKind.CPUSET, of((4, 16)))}, "CPUs 4 would not be for claims any more"),
}


@pytest.mark.parametrize(("rules", "why"), AWAY.values(), ids=AWAY)
def test_settings_that_take_a_claims_cpus_are_refused(rules: Mapping[str, object], why: str) -> None:
    engine = node()
    runs(engine, "vm", {1: 2})
    other = EngineSettings(policy=replace(RULES, **rules), cpus=ON)  # type: ignore[arg-type]
    engine(SettingsChanged(other))
    (fault,) = engine.state.cpus.refused
    assert why in fault
    assert build.sets(engine)["vm"] == "4,20"
    engine(ev.SandboxRemoved(build.home("vm")))
    engine(ev.Unprepared(DRIVER, ClaimUid("uid-vm-claim")))
    engine(SettingsChanged(other))
    assert not engine.state.cpus.refused


def test_more_devices_than_a_slice_has_room_for_are_refused_with_the_remedy() -> None:
    rules = replace(RULES, claims=ClaimsSettings(devices=DevicesBy.L3))
    engine = Told(State(settings=EngineSettings(policy=rules, cpus=ON)))
    engine(ev.TopologyRead(machine(packages=1, nodes=1, caches=65, cores=1)))
    assert "a ResourceSlice has room for 64: set it to numa or socket" in engine.state.cpus.refused[0]


def test_what_is_prepared_is_known_again_once_the_mode_is_on_again() -> None:
    engine = node()
    runs(engine, "vm", {1: 2})
    engine(SettingsChanged(EngineSettings(policy=RULES, cpus=CpusSettings(mode=Mode.OFF))))
    engine(SettingsChanged(EngineSettings(policy=RULES, cpus=ON)))
    assert build.sets(engine)["vm"] == "4,20"
    assert prepared(engine, claim("vm", {1: 2})) == "4,20"


def test_a_container_that_uses_another_request_of_the_claim_has_none_of_its_cpus() -> None:
    engine = node()
    prepared(engine, claim("vm", {1: 2}))
    knows(engine, "vm", app=("vm-claim/cpus",), side=("vm-claim/gpu",))
    assert [build.given(begins(engine, "vm", name)) for name in ("app", "side")] == ["4,20", "0-3,5-19,21-31"]


def test_before_it_is_known_what_was_prepared_nothing_is_promised_and_only_static_pods_begin() -> None:
    engine = begun()
    assert "not known yet what was prepared" in prepared(engine, claim("vm", {1: 2}))
    assert not engine.state.cpus.by_claim.slices
    home = replace(build.home("etcd"), annotations={"kubernetes.io/config.source": "file"})
    assert build.refused(build.begin(engine, home, build.one("etcd", 1))) is None
    assert "not known yet which pods have claims of CPUs" in str(build.refused(begins(engine, "web")))


def test_other_schedulers_are_told_that_a_claims_cpus_are_taken() -> None:
    engine = node()
    runs(engine, "vm", {1: 8})
    engine(ev.RuntimeConnected("containerd", "2.4"))
    (numa,) = (one for one in there(zones(engine.state)).zones if one.name == "node-1")
    assert numa.cpu == CpuAmount(8000, 8000, 0)
    view = build.shown(engine)
    (row,) = view.holders
    assert row.kind == "exclusive"
    assert [(one.numa, one.uses["exclusive"], one.requested) for one in view.numa][1] == (1, 8, 8)


def test_people_are_shown_what_goes_by_claim() -> None:
    engine = node(build.machine(cores=2), replace(RULES, reserved=Amount(AmountKind.CPUSET, 1)))
    prepared(engine, with_parameters(fullPCPUsOnly=True))
    knows(engine, "vm", app=("vm-claim",))
    begins(engine, "vm")
    begins(engine, "web")
    view = build.shown(engine)
    assert [*drawing(view, 80)] == [
        "cpus enforce by nri | policy claims | 2 of 4 CPUs exclusive to 1 container(s), 1 share",
        "package 0",
        "  node 0",
        "    L3 0  [..][AA]  CPUs 0-3",
        ". shared",
        "by claim: 1 claim(s), our driver is registered with kubelet",
        "device cpus-numa-0: claims may have 3 of 3 CPUs, and have 2",
        "A claim shop/vm-claim: CPUs 2-3 (2 of cpus-numa-0, fullPCPUsOnly), vm",
        "pool shared: 0-1, 1 container(s)",
        "pool claim[shop/vm-claim]: 2-3, 1 container(s)",
    ]
    engine(ev.DriverTold(DRIVER, registered=False, why="kubelet is away"))
    view = build.shown(engine)
    assert "by claim: 1 claim(s), our driver is not registered with kubelet (kubelet is away)" in drawing(view, 80)


def test_who_had_cpus_alone_by_the_policy_before_keeps_them_while_it_runs() -> None:
    by_static = replace(RULES, active="static")
    engine = Told(State(settings=EngineSettings(policy=by_static, cpus=ON)))
    engine(ev.TopologyRead(W))
    engine(ev.Listed((), (), 1))
    for pod, cpus in (("db", 2), ("web", 0)):
        knows(engine, pod, cpus, app=())
        begins(engine, pod, cpus=cpus)
    assert build.sets(engine)["db"] == "1,17"
    engine(SettingsChanged(EngineSettings(policy=RULES, cpus=ON)))
    engine(ev.ClaimsRecalled(DRIVER))
    engine(ev.DriverTold(DRIVER, registered=True))
    assert engine.state.cpus.rules.active == "claims"
    assert sold(engine)["cpus-numa-0"] == 4
    assert prepared(engine, claim("vm", {0: 4})) == "2-3,18-19"
    engine(ev.TopologyRead(without(W, of((2,)))))  # the claim takes none of its CPUs
    assert build.sets(engine) == {"db": "1,17", "web": "0,4-16,20-31"}
    before = engine.state.cpus
    again = Told(State(settings=engine.state.settings))
    again(CpusRecalled(Recorded(without(W, of((2,))), before.rules, before.pools)))
    again(ev.TopologyRead(W))
    ones = tuple(known.container for known in engine.state.pods.containers.values())
    again(ev.Listed((build.home("db"), build.home("web")), ones, 1))
    assert build.sets(again)["db"] == "1,17"
    again(ev.SandboxRemoved(build.home("db")))
    assert again.state.cpus.pools.pools["shared"].cpus & of((1, 17)) == of((1, 17))


def test_whole_cores_have_all_their_threads_also_after_hotplug() -> None:
    wants = replace(with_parameters(fullPCPUsOnly=True), allocated=claim("vm", {0: 4}).allocated)
    engine = node(without(W, of((18,))), replace(RULES, reserved=Amount(AmountKind.CPUSET, of((4,)))))
    assert prepared(engine, wants) == "0-1,16-17"  # and not CPU 2, whose other thread is offline
    engine = node()
    assert prepared(engine, wants) == "1-2,17-18"
    engine(ev.TopologyRead(without(W, of((17,)))))
    pool = engine.state.cpus.pools.pools["claim[shop/vm-claim]"]
    assert text(pool.cpus) == "2-3,18-19"


def test_before_it_is_known_what_claims_have_nobody_is_put_on_their_cpus() -> None:
    """The record does not fit any more, since a CPU went offline while no daemon was there; or there is none."""
    before = node()
    runs(before, "vm", {1: 2})
    knows(before, "web", app=())
    begins(before, "web")
    cpus, told = before.state.cpus, before.state.pods
    recorded = Recorded(W, cpus.rules, cpus.pools)
    ones = tuple(
        replace(known.container, cpu=replace(known.container.cpu, cpus=wanted(cpus.pools, f"{known.pod_uid}/app")))
        for known in told.containers.values()
    )
    for record, fault, is_read in product((recorded, None), ("", "it is damaged"), (False, True)):
        if record is None and fault:
            continue  # nothing tells which CPUs claims have
        engine = Told(State(settings=before.state.settings))
        if record is not None:
            engine(CpusRecalled(record))
        engine(ev.PodsListed(tuple(known.spec for known in told.specs.values()), as_of=0))
        listed, machine = ev.Listed((build.home("vm"), build.home("web")), ones, 1), without(W, of((31,)))
        first, last = (ev.TopologyRead(machine), listed) if is_read else (listed, ev.TopologyRead(machine))
        goals = engine(first).goals + engine(last).goals
        goals += engine(ev.Stopped(build.home("gone"), build.one("gone"))).goals
        if fault:
            goals += engine(ev.ClaimsRecalled(DRIVER, fault=fault)).goals
        assert engine.state.cpus.in_force
        assert not [goal for goal in goals if parse("4,20") & parse(str(goal.value)) and "web" in goal.target.where]
        engine(ev.ClaimsRecalled(DRIVER, tuple(cpus.by_claim.claims.values())))
        assert build.sets(engine) == {"vm": "4,20", "web": "0-3,5-19,21-30"}


def test_a_claim_keeps_its_cpus_where_others_that_were_reserved_go_offline() -> None:
    engine = node(rules=replace(RULES, reserved=Amount(AmountKind.QUANTITY, milli=2000)))
    assert runs(engine, "vm", {0: 4}) == "1-2,17-18"
    engine(ev.TopologyRead(without(W, of((0,)))))
    assert build.sets(engine)["vm"] == "1-2,17-18"
    engine(ev.TopologyRead(W))
    engine(ev.SandboxRemoved(build.home("vm")))
    engine(ev.Unprepared(DRIVER, ClaimUid("uid-vm-claim")))
    assert text(engine.state.cpus.pools.pools["shared"].cpus) == "0-31"


@pytest.mark.parametrize("by_force", [False, True])
def test_a_container_comes_back_to_its_claim_once_that_has_cpus_again(by_force: bool) -> None:
    """By force a claim ends while its container still runs."""
    engine = node()
    for pod, count in (("vm", 2), ("other", 6)):
        runs(engine, pod, {1: count})
    engine(ev.TopologyRead(without(W, of((4, 20)))))
    assert "No CPU is left for its claim" in cpu_sentence(engine.state.cpus.pools.grants["vm/app"].reason)
    ends = ev.SandboxRemoved(build.home("other")), ev.Unprepared(DRIVER, ClaimUid("uid-other-claim"))
    for event in reversed(ends) if by_force else ends:
        engine(event)
    pool = engine.state.cpus.pools.pools["claim[shop/vm-claim]"]
    assert (pool.members, wanted(engine.state.cpus.pools, "vm/app")) == (("vm/app",), pool.cpus)


def test_a_fault_of_the_record_of_claims_is_shown() -> None:
    engine = begun()
    engine(ev.DriverTold(DRIVER, registered=True))
    engine(ev.ClaimsRecalled(DRIVER, fault="it is damaged"))
    view = build.shown(engine)
    said = [*claim_sentences(view)]
    assert said[0] == "by claim: 0 claim(s), our driver is registered with kubelet; no claim is prepared: it is damaged"
    assert said[1] == "device cpus-numa-0: claims may have 0 of 6 CPUs, and have 0"


def test_a_daemon_that_begins_with_another_policy_leaves_claims_their_cpus() -> None:
    before = node()
    runs(before, "vm", {1: 2})
    cpus = before.state.cpus
    engine = Told(State(settings=EngineSettings(policy=replace(RULES, active="static"), cpus=ON)))
    engine(CpusRecalled(Recorded(W, cpus.rules, cpus.pools)))
    decision = engine(ev.TopologyRead(W))
    assert "the claim shop/vm-claim is prepared on this node" in str(decision.notes)
    one = replace(build.one("vm", 1), id=ContainerId("vm-app"), cgroups_path="/vm/app").in_phase(Phase.RUNNING)
    engine(ev.Listed((build.home("vm"),), (one,), 1))
    assert build.sets(engine)["vm"] == "4,20"
    engine(ev.ClaimsRecalled(DRIVER))  # it has ended meanwhile
    assert engine.state.cpus.rules.active == "static"


def test_another_policy_waits_for_the_last_claim_and_no_new_one_gets_cpus() -> None:
    engine = node()
    begins(engine, "web")
    for pod in ("vm", "more"):
        runs(engine, pod, {1: 2})
    told = engine(SettingsChanged(EngineSettings(policy=replace(RULES, active="static"), cpus=ON)))
    assert "the claim shop/vm-claim is prepared on this node: let its pod end first" in str(told.notes)
    assert [*sold(engine).values()] == [0, 0, 0, 0]
    assert "the settings have the policy static now" in prepared(engine, claim("late", {2: 1}))
    assert prepared(engine, claim("vm", {1: 2})) == "4,20"  # kubelet asks again
    engine(ev.SandboxRemoved(build.home("vm")))
    engine(ev.Unprepared(DRIVER, ClaimUid("uid-vm-claim")))
    assert (engine.state.cpus.rules.active, text(wanted(engine.state.cpus.pools, "more/app"))) == ("claims", "5,21")
    engine(ev.SandboxRemoved(build.home("more")))
    goals = engine(ev.Unprepared(DRIVER, ClaimUid("uid-more-claim"))).goals
    assert (engine.state.cpus.rules.active, engine.state.cpus.refused) == ("static", ())
    assert [(one.target.where, one.value) for one in goals] == [("/web/app", "1"), (DRIVER, Special.ABSENT)]
    assert goals[1].target.kind == KIND, "the slice ends with the policy"


def test_claims_of_dra_driver_cpu_find_its_names() -> None:
    """By its own page of attributes and its grouped example: `deviceClassName: dra.cpu`, `dra.cpu/cpu: "10"`."""
    rules = replace(RULES, claims=ClaimsSettings(names=ClaimNames.DRA_DRIVER_CPU))
    engine = node(rules=rules, driver="dra.cpu")
    (first, *_) = json.loads(engine.state.cpus.by_claim.slices["dra.cpu"])
    steps = {"default": "1", "validRange": {"min": "1", "step": "1"}}
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
        "capacity": {"dra.cpu/cpu": {"value": "6", "requestPolicy": steps}},
    }
    one = allocated(Allocated("req-cpu-slice", "cpudevnuma001", "node", "s", {"dra.cpu/cpu": 4}))
    engine(ev.Preparing("dra.cpu", one, ask_id=engine.state.seq + 1))
    assert text(engine.state.cpus.by_claim.claims[one.uid].cpus) == "4-5,20-21"


def test_a_resize_of_a_claims_container_is_refused_with_the_reason() -> None:
    engine = node()
    runs(engine, "vm", {1: 2})
    more = replace(build.one("vm", 3), id=ContainerId("vm-app"), cgroups_path="/vm/app").in_phase(Phase.RUNNING)
    decision = engine(ev.Updating(build.home("vm"), more, ask_id=engine.state.seq + 1))
    assert "a resize from 1000 to 3000 milliCPU changes no claim" in str(build.refused(decision))
