"""Enclave memory by claim: the bytes that a claim consumes are the limit of the containers that use it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from nodeward.core import events as ev
from nodeward.core.cgroup import Hierarchy
from nodeward.core.claims import Allocated, Claim, ClaimUid
from nodeward.core.decision import Decision, Final, Special
from nodeward.core.modes import Mode
from nodeward.core.workload import ContainerSpec, PodUid
from nodeward.features.limits.claims import epc_of_node
from nodeward.features.limits.settings import EpcClaims, LimitsSettings, Unsupported
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from tests.unit.features.build import EPC, Told, adjusted, container_spec, creating, pod_spec, refusal, sandbox, started

DRIVER = "sgx.nodeward.io"
MIB = 1 << 20
SETTINGS = EngineSettings(limits=LimitsSettings(dra=EpcClaims(Mode.ENFORCE)))


def claim(amount: int = 8 * MIB, uid: str = "c", pod: str = "a", **more: Any) -> Claim:
    one = Allocated("memory", "epc", "n1", "share", {"epc": amount})
    return replace(Claim(ClaimUid(uid), "shop", f"claim-{uid}", (one,), {PodUid(pod): f"pod-{pod}"}), **more)


class Node(Told):
    slice: object = None

    def __call__(self, event: ev.Event) -> Decision:
        decision = super().__call__(event)
        for goal in decision.goals:
            if goal.target.kind == "epc-slice":
                self.slice = goal.value
        return decision

    def prepare(self, one: Claim) -> str:
        return refusal(self(ev.Preparing(DRIVER, one, ask_id=9)))

    def device(self) -> tuple[str, bool]:
        return self.devices()["epc"]

    def devices(self) -> dict[str, tuple[str, bool]]:
        devices = json.loads(str(self.slice))
        return {one["name"]: (one["capacity"]["epc"]["value"], bool(one.get("taints"))) for one in devices}

    def given(self, name: str) -> object:
        return adjusted(self(creating("a", name))).unified


def uses(name: str, *claims: str) -> ContainerSpec:
    return ContainerSpec(name, claims=claims)


def node(capacity: int = 64 * MIB, *containers: ContainerSpec, memory: Mapping[int, int] | None = None) -> Node:
    one = Node(State(settings=SETTINGS))
    one(ev.CapacityRead(controller=True, capacity={EPC: capacity} if capacity else {}))
    one(ev.ClaimsRecalled(DRIVER))
    one(ev.DriverTold(DRIVER, True))
    one(ev.ApiBack())
    assert one.slice is None
    one(ev.EnclavesSeen(memory=memory or {}))
    pod = pod_spec("a", *(containers or (uses("enclave", "claim-c"), uses("beside"))))
    one(ev.PodsListed((pod,), as_of=one.state.seq))
    return one


def test_what_a_claim_consumes_is_the_limit_of_the_container_that_uses_it_and_of_its_pod() -> None:
    one = node()
    assert one.prepare(claim()) == ""
    assert one.prepare(claim()) == ""
    one(ev.SandboxStarted(sandbox("a")))
    assert one.given("enclave") == {"misc.max": f"sgx_epc {8 * MIB}"}
    assert one.given("beside") == {"misc.max": "sgx_epc 0"}
    one(started("a", "enclave"))
    wanted = {path: (of.values, of.source) for path, of in one.state.limits.wanted.items()}
    assert wanted["/kubepods/poda"][0] == {EPC: 8 * MIB}
    assert wanted["/kubepods/poda/a-enclave"] == ({EPC: 8 * MIB}, "claim shop/claim-c")
    one(ev.Unprepared(DRIVER, ClaimUid("c")))
    assert one.state.limits.wanted["/kubepods/poda/a-enclave"].values == {}


def test_a_claim_is_counted_once_for_its_pod_and_beside_what_containers_declare() -> None:
    one = node(64 * MIB, uses("x", "claim-c"), replace(container_spec("y", 4 * MIB), claims=("claim-c", "claim-d")))
    assert one.prepare(claim()) == ""
    assert one.prepare(claim(16 * MIB, "d")) == ""
    one(ev.SandboxStarted(sandbox("a")))
    assert one.given("x") == {"misc.max": f"sgx_epc {8 * MIB}"}
    assert one.given("y") == {"misc.max": f"sgx_epc {28 * MIB}"}
    assert one.state.limits.wanted["/kubepods/poda"].values == {EPC: 28 * MIB}


def test_what_is_published_is_what_pods_do_not_declare_otherwise() -> None:
    one = node()
    assert one.device() == ("64Mi", False)
    one(ev.PodSeen(pod_spec("b", container_spec("app", 10 * MIB + 1))))
    assert one.device() == (f"{54 * 1024 - 4}Ki", False)
    assert one.prepare(claim()) == ""
    assert one.device() == (f"{54 * 1024 - 4}Ki", False)
    one(ev.PodSeen(pod_spec("c", container_spec("app", 50 * MIB))))
    assert one.device() == ("8Mi", True)
    one(SettingsChanged(EngineSettings(limits=LimitsSettings())))
    assert one.slice is Special.ABSENT


def of_numa(node: int, amount: int, uid: str = "c") -> Claim:
    return claim(uid=uid, allocated=(Allocated("memory", f"epc-{node}", "n1", uid, {"epc": amount}),))


def test_each_numa_node_is_a_device_and_all_together_never_offer_what_pods_declare() -> None:
    """Given two nodes of which a claim has all of one, pods that declare the rest leave nothing of the other."""
    one = node(64 * MIB, memory={0: 32 * MIB, 1: 32 * MIB})
    assert one.devices() == {"epc-0": ("32Mi", False), "epc-1": ("32Mi", False)}
    assert one.prepare(of_numa(0, 32 * MIB)) == ""
    assert one.devices() == {"epc-0": ("32Mi", True), "epc-1": ("32Mi", False)}
    one(ev.PodSeen(pod_spec("b", container_spec("app", 16 * MIB))))
    assert one.devices() == {"epc-0": ("32Mi", True), "epc-1": ("16Mi", False)}
    one(ev.PodSeen(pod_spec("c", container_spec("app", 16 * MIB))))
    assert one.devices()["epc-1"][1]
    numa = [one["attributes"]["resource.kubernetes.io/numaNode"] for one in json.loads(str(one.slice))]
    assert numa == [{"int": 0}, {"int": 1}]


@pytest.mark.parametrize(("nodes", "devices"), [(64, 64), (65, 1)])
def test_more_numa_nodes_than_a_slice_takes_are_one_device(nodes: int, devices: int) -> None:
    one = node(nodes * MIB, memory=dict.fromkeys(range(nodes), MIB))
    assert len(one.devices()) == devices
    assert ("epc" in one.devices()) is (devices == 1)


def test_claims_of_the_whole_machine_are_taken_out_of_devices_by_numa_node() -> None:
    one = node(64 * MIB, memory={0: 32 * MIB, 1: 32 * MIB})
    assert one.prepare(claim(16 * MIB)) == ""
    assert one.devices() == {"epc-0": ("24Mi", False), "epc-1": ("24Mi", False)}


@pytest.mark.parametrize(("unsupported", "names"), [("allow-unenforced", ["epc-0"]), ("refuse", [])])
def test_memory_that_no_limit_can_hold_is_published_as_such_unless_that_is_refused_and_none_where_there_is_none(
    unsupported: str, names: list[str]
) -> None:
    assert node(0).slice == "[]", "a node without such memory"
    one = node(0, memory={0: 32 * MIB})
    limits = replace(SETTINGS.limits, unsupported=Unsupported(unsupported))
    one(SettingsChanged(replace(SETTINGS, limits=limits)))
    devices = json.loads(str(one.slice))
    assert [device["name"] for device in devices] == names
    assert all(device["attributes"]["enforced"] == {"bool": False} for device in devices)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (claim(allocated=(Allocated("m", "gpu"),)), "its device 'gpu' is none of ours: epc"),
        (claim(allocated=(Allocated("m", "epc"),)), "does not say how many bytes it consumes"),
        (claim(0), "does not say how many bytes it consumes"),
        (claim(pods={PodUid("a"): "a", PodUid("b"): "b"}), "it is reserved for 2 pods"),
        (claim(16 * MIB), f"it was prepared with {8 * MIB} bytes, and now has {16 * MIB}"),
    ],
)
def test_a_claim_that_cannot_be_is_refused(bad: Claim, why: str) -> None:
    one = node()
    if "prepared with" in why:
        one.prepare(claim())
    before: Mapping[ClaimUid, object] = one.state.limits.by_claim.claims
    assert why in one.prepare(bad)
    assert one.state.limits.by_claim.claims == before


def test_nothing_is_published_or_promised_before_it_is_known_what_was_prepared() -> None:
    one = Node(State(settings=SETTINGS))
    one(ev.CapacityRead(controller=True, capacity={EPC: 64 * MIB}))
    one(ev.ApiBack())
    one(ev.PodsListed((), as_of=one.state.seq))
    assert one.slice is None
    one(ev.ClaimsRecalled(DRIVER, fault="the disk is torn"))
    assert "the disk is torn" in one.prepare(claim())
    one(ev.ClaimsRecalled(DRIVER, adopted=(claim(), claim(0, "d"))))
    assert [of.amounts for of in one.state.limits.by_claim.claims.values()] == [{"epc": 8 * MIB}]


def test_nothing_is_wanted_of_a_pod_with_claims_before_it_is_known_what_they_are() -> None:
    one = Node(State(settings=SETTINGS))
    one(ev.CapacityRead(controller=True, capacity={EPC: 64 * MIB}))
    one(ev.PodSeen(pod_spec("a", uses("enclave", "claim-c"), uses("beside"))))
    one(ev.SandboxStarted(sandbox("a")))
    one(started("a", "beside"))
    assert [of.values for of in one.state.limits.wanted.values()] == [{}, {}]
    one(ev.ClaimsRecalled(DRIVER, adopted=(claim(),)))
    assert [of.values for of in one.state.limits.wanted.values()] == [{EPC: 8 * MIB}, {EPC: 0}]


def test_another_features_driver_is_not_answered() -> None:
    one = node()
    answer = one(ev.Preparing("tee.nodeward.io", claim(), ask_id=9)).answer
    assert isinstance(answer, Final)
    assert answer.reason.code == "no-opinion"


@pytest.mark.parametrize(
    ("capacity", "memory", "wanted"),
    [
        (64 * MIB, {}, 64 * MIB),
        (64 * MIB, {0: 48 * MIB, 1: 48 * MIB}, 64 * MIB),
        (0, {0: 48 * MIB}, 48 * MIB),
        (0, {}, Special.ABSENT),
    ],
)
def test_the_node_has_the_bytes_that_can_be_given_out(capacity: int, memory: Mapping[int, int], wanted: object) -> None:
    one = Told(State(settings=EngineSettings(limits=LimitsSettings(node_epc=True))))
    one(ev.CapacityRead(controller=True, capacity={EPC: capacity} if capacity else {}))
    assert epc_of_node(one.state) is None, "before it is known what NUMA nodes have"
    one(ev.EnclavesSeen(memory=memory))
    assert epc_of_node(one.state) == wanted
    one(ev.CapacityRead(controller=False, tree=Hierarchy(fault="the cgroup root hangs")))
    assert epc_of_node(one.state) is None, "what cannot be read is not none"
    one(SettingsChanged(EngineSettings()))
    assert epc_of_node(one.state) is Special.ABSENT
