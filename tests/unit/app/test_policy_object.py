"""A BalloonsPolicy object becomes the section `policy`, or every fault is named; the last one in force is kept."""

import json

import pytest

from nodeward.app.settings import policy_object
from nodeward.app.settings.load import SettingsError
from nodeward.app.settings.policy_object import Chosen, translated
from nodeward.doubles.kernel import SimKernel
from nodeward.model.policy_object import PolicyKind, PolicyObject
from nodeward.model.settings import PolicyObjectsSection, Settings
from tests.unit.app.test_reload import folders


def an_object(spec: object, kind: PolicyKind = PolicyKind.BALLOONS) -> PolicyObject:
    return PolicyObject(kind, "kube-system", "default", "u", 1, json.dumps(spec).encode())


def test_a_spec_is_read_with_its_amounts_beside_and_without_what_has_no_effect() -> None:
    found = translated(
        an_object(
            {
                "availableResources": {"cpu": "cpuset:0-3"},
                "reservedResources": {"cpu": "750m"},
                "balloonTypes": [{"name": "a", "minCPUs": 2, "maxCPUs": 4, "allocatorPriority": "high"}],
                "control": {"rdt": {"enable": True}},
                "agent": {"podResourceAPI": True},
            }
        )
    ).policy

    assert (found.active, str(found.available), str(found.reserved)) == ("balloons", "cpuset:0-3", "750m")
    assert [(one.name, one.min_cpus, one.max_cpus) for one in found.balloons.balloon_types] == [("a", 2, 4)]


COMPONENTS = [{"name": "a", "components": [{"balloonType": "b"}]}, {"name": "b", "components": [{"balloonType": "a"}]}]
FAULTS = {
    "min above max": ({"balloonTypes": [{"name": "a", "minCPUs": 5, "maxCPUs": 4}]}, "spec.balloonTypes[0].minCPUs: 5"),
    "circular components": ({"balloonTypes": COMPONENTS}, "spec.balloonTypes[0].components: a is among"),
    "unknown key": ({"balloonTyps": []}, "spec.balloonTyps: unknown key; did you mean balloonTypes?"),
    "unknown key of a type": (
        {"balloonTypes": [{"name": "a", "minCpu": 1}]},
        "spec.balloonTypes[0].minCpu: unknown key; did you mean minCPUs?",
    ),
    "unknown amount": ({"reservedResources": {"cpus": 1}}, "spec.reservedResources.cpus: unknown key"),
    "available by number": ({"availableResources": {"cpu": 4}}, "spec.availableResources.cpu: '4' is a number of CPUs"),
    "no mapping": ([], "spec: is no mapping"),
}


@pytest.mark.parametrize(("spec", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_has_its_path_below_spec(spec: object, fault: str) -> None:
    if isinstance(spec, dict):
        spec = {"reservedResources": {"cpu": 1}, **spec}
    with pytest.raises(SettingsError) as refused:
        translated(an_object(spec))

    assert fault in str(refused.value)


def test_topology_aware_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="topology-aware comes with a later version"):
        translated(an_object({}, PolicyKind.TOPOLOGY_AWARE))


def test_what_was_in_force_is_kept_and_a_damaged_file_is_none(caplog: pytest.LogCaptureFixture) -> None:
    kernel: SimKernel = folders()
    settings = Settings(policy_objects=PolicyObjectsSection(enabled=True))
    path = policy_object.path_in(settings.state_dir)
    chosen = translated(an_object({"reservedResources": {"cpu": 1}}))
    assert policy_object.kept(kernel, settings) is None

    def after(data: bytes, of: Settings = settings) -> Chosen | None:
        kernel.replace(path, data)
        return policy_object.kept(kernel, of)

    assert after(policy_object.encode(chosen)) == chosen
    assert after(policy_object.encode(chosen), Settings()) is None
    assert after(policy_object.encode(None)) is None
    assert not caplog.records
    for damaged in (
        b"",
        b"{",
        b"[]",
        b'{"v": 2}',
        b'{"v": 1, "name": "a", "spec": "{\\"x\\": 1}"}',
        b'{"v": 1, "name": 4}',
    ):
        assert after(damaged) is None
    assert len(caplog.records) == 6


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"reservedResources": dict.fromkeys(map(str, range(40_000)), 1)}, id="amounts"),
        pytest.param(dict.fromkeys(map(str, range(40_000)), 1), id="keys"),
        pytest.param(
            {"balloonTypes": [{"name": "a", "matchExpressions": [{"key": "x"}] * 256}] * 64}, id="expressions"
        ),
    ],
)
def test_very_many_faults_are_told_by_the_first_ones(spec: object) -> None:
    """They are logged and shown; and what compares each fault with each key would take minutes."""
    with pytest.raises(SettingsError) as told:
        translated(an_object(spec))
    assert len(told.value.faults) <= 101
