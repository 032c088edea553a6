"""A pod's budget against an oracle that plays the pod's life step by step."""

from hypothesis import given
from hypothesis import strategies as st

from nodeward.engine.pods.budget import budget_of_all, declares, pod_budget
from nodeward.model.quantity import MAX_VALUE
from nodeward.model.workload import ContainerSpec, PodSpec, Role
from tests.unit.engine.build import EPC, container_spec, pod_spec

amounts = st.none() | st.integers(0, 100) | st.integers(0, 2**63 - 1)
first = st.builds(container_spec, st.just("i"), amounts, st.sampled_from([Role.INIT, Role.SIDECAR]))
second = st.builds(container_spec, st.just("c"), amounts, st.sampled_from([Role.REGULAR, Role.EPHEMERAL]))


def highest_moment(spec: PodSpec) -> int:
    """What runs at the same time, at every moment: one init after the other while earlier sidecars run, then all."""

    def amount(one: ContainerSpec) -> int:
        return one.declared.get(EPC, 0)

    moments: list[list[ContainerSpec]] = []
    for position, one in enumerate(spec.containers):
        if one.role is Role.INIT:
            moments.append([one, *(s for s in spec.containers[:position] if s.role is Role.SIDECAR)])
    moments.append([one for one in spec.containers if one.role in (Role.SIDECAR, Role.REGULAR)])
    return max(sum(amount(one) for one in moment) for moment in moments) + spec.overhead.get(EPC, 0)


@given(st.lists(first, max_size=5), st.lists(second, max_size=5), st.integers(0, 10))
def test_budget_is_the_highest_moment(inits: list[ContainerSpec], rest: list[ContainerSpec], overhead: int) -> None:
    spec = pod_spec("1", *inits, *rest, overhead=overhead)
    assert pod_budget(spec, EPC) == min(highest_moment(spec), MAX_VALUE)
    assert budget_of_all(spec, [EPC, "tdx"]) == pod_budget(spec, EPC)


@given(st.lists(first, max_size=4), st.lists(second, max_size=4))
def test_a_pod_declares_what_any_container_or_its_overhead_names(
    inits: list[ContainerSpec], rest: list[ContainerSpec]
) -> None:
    spec = pod_spec("1", *inits, *rest)
    assert declares(spec, EPC) == any(EPC in one.declared for one in spec.containers)
    assert declares(pod_spec("1", overhead=1), EPC)
    assert not declares(spec, "tdx")
