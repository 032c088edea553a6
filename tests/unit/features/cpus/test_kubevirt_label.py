"""When KubeVirt's node labels would be true: a VM with dedicated CPUs is a Guaranteed container of whole ones."""

from dataclasses import replace

import pytest

from nodeward.core.decision import Special
from nodeward.core.modes import Mode
from nodeward.core.workload import Qos
from nodeward.features.cpus.effects.kubevirt_label import wanted
from nodeward.features.cpus.policies.table import POLICIES, policy_of
from nodeward.features.cpus.pool_settings import TopologyAwareSettings
from nodeward.features.cpus.settings import CpusSettings, PolicySettings
from nodeward.features.cpus.values import Ask, Denied, Ground
from nodeward.features.root import State
from tests.unit.features.cpus.build import RESERVED_ONE, STATIC_RULES, told
from tests.unit.features.cpus.machines import PolicyNode, W

SHARED = TopologyAwareSettings(prefer_shared_cpus=True)
UNPINNED = TopologyAwareSettings(pin_cpu=False)


@pytest.mark.parametrize(
    "rules",
    [
        *(PolicySettings(name, reserved=RESERVED_ONE) for name in POLICIES),
        PolicySettings("topology-aware", reserved=RESERVED_ONE, topology_aware=SHARED),
        PolicySettings("topology-aware", reserved=RESERVED_ONE, topology_aware=UNPINNED),
    ],
    ids=[*POLICIES, "topology-aware, preferSharedCPUs", "topology-aware, pinCPU: false"],
)
def test_a_policy_dedicates_cpus_just_where_a_vm_gets_its_own(rules: PolicySettings) -> None:
    policy, has_own = policy_of(rules.active), False
    if not isinstance(policy.begin(Ground(W, rules)), Denied):
        node = PolicyNode(rules)
        assert node.admit(Ask("vm/compute", "vm", "vms", "vm", "compute", Qos.GUARANTEED, 4000)) == ""
        grant = node.grant("compute", "vm")
        has_own = grant.pinned and grant.own.bit_count() == 4
    assert policy.dedicates(rules) is has_own


def labelled(policy: PolicySettings = STATIC_RULES, mode: Mode = Mode.ENFORCE) -> State:
    state = told(policy, CpusSettings(mode=mode, kubevirt_label=True)).state
    return replace(state, pods=replace(state.pods, runtime="containerd"))


@pytest.mark.parametrize(
    ("state", "value"),
    [
        pytest.param(labelled(), "true", id="static is in force"),
        pytest.param(labelled(mode=Mode.OBSERVE), Special.ABSENT, id="static is only observed"),
        pytest.param(
            labelled(PolicySettings("static")), Special.ABSENT, id="static without reserved CPUs fits nowhere"
        ),
        pytest.param(labelled(PolicySettings("none")), Special.ABSENT, id="none is in force"),
        pytest.param(told(cpus=CpusSettings(kubevirt_label=True)).state, None, id="no runtime is connected yet"),
        pytest.param(replace(labelled(), settings=told().state.settings), Special.ABSENT, id="the setting is off"),
    ],
)
def test_the_label_claims_what_is_so(state: State, value: str | Special | None) -> None:
    assert wanted(state) == value
