"""A pod's budget of one misc resource, from what its containers declare (KEP-753, sidecar containers)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nodeward.core.quantity import MAX_VALUE
from nodeward.core.workload import ContainerSpec, PodSpec, Role


def declares(spec: PodSpec, resource: str) -> bool:
    """Whether any container of the pod, or its RuntimeClass overhead, names the resource."""
    return resource in spec.overhead or any(resource in container.declared for container in spec.containers)


@dataclass(frozen=True, slots=True)
class Outline:
    """What every container's promise asks of its pod's spec, found once for all of them."""

    by_name: Mapping[str, ContainerSpec]
    declared: Mapping[str, bool]


def outline(spec: PodSpec, resources: Iterable[str]) -> Outline:
    """The outline of a spec, for these resources."""
    by_name = {container.name: container for container in reversed(spec.containers)}
    return Outline(by_name, {resource: declares(spec, resource) for resource in resources})


def pod_budget(spec: PodSpec, resource: str) -> int:
    """`max(max over ordinary init i of (init_i + sidecars before i), sidecars + containers) + overhead`.

    Saturates at 2**63 - 1. Ephemeral containers declare nothing and add nothing.
    """
    need = containers_need((container.role, container.declared.get(resource, 0)) for container in spec.containers)
    return min(need + spec.overhead.get(resource, 0), MAX_VALUE)


def budget_of_all(spec: PodSpec, resources: Sequence[str]) -> int:
    """The same of several resources that promise one thing: what a container has of them adds up."""
    overhead = sum(spec.overhead.get(name, 0) for name in resources) if spec.overhead else 0
    asking = [
        (one.role, sum([one.declared.get(name, 0) for name in resources])) for one in spec.containers if one.declared
    ]
    return min((containers_need(asking) if asking else 0) + overhead, MAX_VALUE)


def containers_need(amounts: Iterable[tuple[Role, int]]) -> int:
    """The budget without overhead and bound, from each container's role and amount in the order of the spec."""
    sidecars = highest = regular = 0
    for role, amount in amounts:
        if role is Role.REGULAR:
            regular += amount
        elif role is Role.SIDECAR:
            sidecars += amount
        elif role is Role.INIT:
            highest = max(highest, amount + sidecars)
    return max(highest, sidecars + regular)
