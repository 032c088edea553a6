"""Kubernetes objects to the model's values, purely.

Promises: only what `nodeward.wire.kube_objects` declares enters, of the resources only those in the table; a quantity
that cannot be read is a fault of its container with its path, never an exception: one odd pod does not hide the others.

Must not: do I/O, or judge what a declaration means.
"""

from collections.abc import Iterable, Mapping

from nodeward.model.events import PodGone, PodSeen
from nodeward.model.quantity import QuantityError, whole_units
from nodeward.model.settings import DEFAULT_RESOURCES
from nodeward.model.workload import Amounts, ContainerSpec, PodSpec, PodUid, Role, Source
from nodeward.wire.kube_objects import (
    AnnotationsObject,
    Change,
    ContainerObject,
    ContainerStatusObject,
    PodChange,
    PodObject,
    Quantities,
)

_TERMINAL = ("Succeeded", "Failed")


def pod_spec(pod: PodObject, resources: Mapping[str, str] = DEFAULT_RESOURCES) -> PodSpec:
    """What the pod was promised, as the API server has it."""
    spec = pod.spec
    containers = (
        *_containers(spec.init_containers, "initContainers", resources),
        *_containers(spec.containers, "containers", resources),
        *_containers(spec.ephemeral_containers, "ephemeralContainers", resources),
    )
    overhead, faults = _amounts((("spec.overhead", spec.overhead),), resources)
    return PodSpec(
        uid=PodUid(pod.metadata.uid),
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        containers=_with_faults(containers, faults),
        overhead=overhead,
        source=Source.API,
        config_hash=_config_hash(pod.metadata.annotations),
        container_ids=_container_ids(pod),
        terminal=pod.status.phase in _TERMINAL,
    )


def _config_hash(notes: AnnotationsObject | None) -> str:
    """The UID of the static pod whose mirror this is. Kubelet writes it twice; a pod with the hash alone is no mirror
    to it, but one that runs under its own UID, whatever its annotations say."""
    return (notes.config_hash or "") if notes is not None and notes.mirror == notes.config_hash else ""


def pod_event(change: PodChange, resources: Mapping[str, str] = DEFAULT_RESOURCES) -> PodSeen | PodGone:
    """The event a watch's ADDED, MODIFIED or DELETED means."""
    if change.change is Change.DELETED:
        return PodGone(PodUid(change.pod.metadata.uid))
    return PodSeen(pod_spec(change.pod, resources))


def _containers(
    objects: Iterable[ContainerObject] | None, field: str, resources: Mapping[str, str]
) -> Iterable[ContainerSpec]:
    for index, container in enumerate(objects or ()):
        found = container.resources
        path = f"spec.{field}[{index}].resources"
        given = ((f"{path}.limits", found.limits), (f"{path}.requests", found.requests)) if found is not None else ()
        declared, faults = _amounts(given, resources)
        yield ContainerSpec(container.name, _role(field, container), declared, faults)


def _role(field: str, container: ContainerObject) -> Role:
    if field == "ephemeralContainers":
        return Role.EPHEMERAL
    if field == "containers":
        return Role.REGULAR
    return Role.SIDECAR if container.restart_policy == "Always" else Role.INIT


def _amounts(
    given: tuple[tuple[str, Quantities | None], ...], resources: Mapping[str, str]
) -> tuple[Amounts, tuple[str, ...]]:
    """Declared amounts by the words of `resources`. Of each name the first place that has it wins, and names of one
    thing add up. Faults carry path and value."""
    amounts: dict[str, int] = {}
    faults: list[str] = []
    for name, word in resources.items():
        for path, quantities in given:
            if quantities is None or name not in quantities:
                continue
            try:
                amounts[word] = amounts.get(word, 0) + whole_units(str(quantities[name]))
            except QuantityError as error:
                faults.append(f"{path}[{name}]: {error}")
            break
    return amounts, tuple(faults)


def _with_faults(containers: tuple[ContainerSpec, ...], faults: tuple[str, ...]) -> tuple[ContainerSpec, ...]:
    """The pod's own faults are shown at its first container: a PodSpec has no place for them."""
    if not faults or not containers:
        return containers
    first, *rest = containers
    return (ContainerSpec(first.name, first.role, first.declared, (*faults, *first.faults)), *rest)


def _container_ids(pod: PodObject) -> Mapping[str, str]:
    status = pod.status
    every: tuple[tuple[ContainerStatusObject, ...] | None, ...] = (
        status.init_container_statuses,
        status.container_statuses,
        status.ephemeral_container_statuses,
    )
    ids = {}
    for statuses in every:
        for one in statuses or ():
            scheme, separator, bare = (one.container_id or "").partition("://")
            if bare or (scheme and not separator):
                ids[one.name] = bare or scheme
    return ids
