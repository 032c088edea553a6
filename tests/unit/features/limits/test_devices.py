"""The device nodes of SGX: which ids kubelet is offered, and who gets a node by NRI."""

import json
from dataclasses import replace

import pytest

from nodeward.core import events as ev
from nodeward.core.decision import Adjustment, Decision, Final, Need, Special
from nodeward.core.devices import ENCLAVE, PROVISION, SGX_NODES, DeviceNode
from nodeward.core.modes import Mode
from nodeward.core.refusal import Refusal
from nodeward.core.workload import ContainerSpec
from nodeward.features.limits.settings import GivenBy, LimitsSettings
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from tests.unit.features.build import EPC, Told, adjusted, creating, pod_spec

NODES = {one: DeviceNode(path, 10, 125 + number) for number, (one, path) in enumerate(SGX_NODES.items())}


def seen(*resources: str) -> ev.EnclavesSeen:
    missing = {path: "not there" for one, path in SGX_NODES.items() if one not in resources}
    return ev.EnclavesSeen(tuple(NODES[one] for one in resources), missing)


def told(given_by: GivenBy, mode: Mode = Mode.ENFORCE) -> Told:
    limits = LimitsSettings(mode, devices=given_by, enclave_ids=3, provision_ids=1)
    return Told(State(settings=EngineSettings(limits=limits)))


def offered(decision: Decision) -> dict[str, object]:
    goals = [goal for goal in decision.goals if goal.target.kind == "sgx-offer"]
    return {one.target.where: one.value if isinstance(one.value, Special) else json.loads(one.value) for one in goals}


def answered(decision: Decision) -> Adjustment | str:
    assert isinstance(decision.answer, Final)
    value = decision.answer.value
    return value.message if isinstance(value, Refusal) else value


def devices(decision: Decision) -> tuple[DeviceNode, ...]:
    return adjusted(decision).devices


def test_ids_are_intels_and_are_offered_once_the_device_was_there_and_unhealthy_while_it_is_not() -> None:
    one = told(GivenBy.PLUGIN)
    assert offered(one(seen())) == {}
    assert offered(one(seen(ENCLAVE))) == {ENCLAVE: [[f"sgx-enclave-{number}", True] for number in range(3)]}
    assert offered(one(seen(*NODES))) == {PROVISION: [["sgx-provision-0", True]]}
    assert offered(one(seen(PROVISION))) == {ENCLAVE: [[f"sgx-enclave-{number}", False] for number in range(3)]}
    assert offered(one(seen(PROVISION))) == {}
    changed = replace(one.state.settings, limits=replace(one.state.settings.limits, devices=GivenBy.OFF))
    assert offered(one(SettingsChanged(changed))) == dict.fromkeys(SGX_NODES, Special.ABSENT)


@pytest.mark.parametrize(
    ("there", "resource", "ids", "why"),
    [
        ((ENCLAVE,), ENCLAVE, ("sgx-enclave-0", "sgx-enclave-2"), ""),
        ((ENCLAVE,), ENCLAVE, ("sgx-enclave-3",), "'sgx-enclave-3' is none of the 3 ids of sgx.intel.com/enclave"),
        ((), ENCLAVE, ("sgx-enclave-0",), "/dev/sgx_enclave, which it needs, is not there; see that SGX is on"),
    ],
)
def test_an_id_is_given_with_its_device(there: tuple[str, ...], resource: str, ids: tuple[str, ...], why: str) -> None:
    one = told(GivenBy.PLUGIN)
    one(seen(ENCLAVE))
    one(seen(*there))
    found = answered(one(ev.Allocating(resource, ids, ask_id=1)))
    assert why in found if isinstance(found, str) else not why


def test_nobody_answers_for_what_is_not_offered() -> None:
    decision = told(GivenBy.NRI)(ev.Allocating(ENCLAVE, ("sgx-enclave-0",), ask_id=1))
    assert isinstance(decision.answer, Final)
    assert decision.answer.reason.code == "no-opinion"


@pytest.mark.parametrize(
    ("declared", "nodes"), [({EPC: 4096}, (ENCLAVE,)), ({EPC: 0}, ()), ({}, ())], ids=["some", "none", "undeclared"]
)
@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.OFF])
def test_by_nri_the_spec_alone_gives_a_device(declared: dict[str, int], nodes: tuple[str, ...], mode: Mode) -> None:
    """Whatever `limits.mode` is, and never by an annotation."""
    one = told(GivenBy.NRI, mode)
    assert offered(one(seen(*NODES))) == {PROVISION: [["sgx-provision-0", True]]}
    lies = {"epc-limit.nri.io/pod": "4096", "nodeward.io/limits": '{"app":{"sgx_epc":"4096"}}'}
    assert "an annotation tells of EPC, and the pod's spec is not known yet" in str(
        answered(one(creating("b", "app", annotations=lies)))
    )
    assert devices(one(creating("b", "app"))) == ()
    one(ev.PodSeen(pod_spec("a", ContainerSpec("app", declared=declared), ContainerSpec("side"))))
    assert devices(one(creating("a", "app", annotations=lies))) == tuple(NODES[name] for name in nodes)
    assert devices(one(creating("a", "side", annotations=lies))) == ()


def test_by_nri_a_pod_whose_spec_is_waited_for_is_not_refused_before() -> None:
    one = told(GivenBy.NRI)
    one(seen(*NODES))
    one(ev.ApiBack())
    waits = one(creating("b", "app", annotations={"nodeward.io/limits": '{"app":{"sgx_epc":"4096"}}'}))
    assert isinstance(waits.answer, Need)
    assert "the pod's spec is not known yet" in str(answered(one(ev.Expired(1))))


def test_by_nri_a_container_is_refused_while_its_device_is_not_there() -> None:
    one = told(GivenBy.NRI)
    one(ev.PodSeen(pod_spec("a", ContainerSpec("app", declared={EPC: 4096}))))
    assert "shop/pod-a, container app: /dev/sgx_enclave, which it needs, is not looked at yet" in str(
        answered(one(creating("a", "app")))
    )
    one(seen(PROVISION))
    assert "/dev/sgx_enclave, which it needs, is not there" in str(answered(one(creating("a", "app"))))
    one(seen(ENCLAVE))
    assert devices(one(creating("a", "app"))) == (NODES[ENCLAVE],)
