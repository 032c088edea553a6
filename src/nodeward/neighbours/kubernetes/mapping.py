"""Maps Kubernetes objects to values of the core.

Promises: only what `nodeward.neighbours.formats.kube_objects` declares enters, of the resources only those in the
table; a quantity that cannot be read is a fault of its container with its path, never an exception: one odd pod does
not hide the others.

Must not: do I/O, or judge what a declaration means.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodeward.core.events import PodGone, PodSeen
from nodeward.core.modes import DEFAULT_RESOURCES
from nodeward.core.quantity import QuantityError, milli_units, whole_units
from nodeward.core.workload import Amounts, ContainerSpec, PodSpec, PodUid, Qos, Role, Source, WholePod
from nodeward.neighbours.formats.kube_objects import (
    AnnotationsObject,
    Change,
    ContainerObject,
    ContainerStatusObject,
    PodChange,
    PodObject,
    Quantities,
    Resources,
)

_TERMINAL = ("Succeeded", "Failed")
_CLASSES = {one.value: one for one in Qos}
_OF_QOS = ("cpu", "memory")
_MEMORY = {"memory": "memory"}
_NOTHING = Resources()


def pod_spec(pod: PodObject, resources: Mapping[str, str] = DEFAULT_RESOURCES) -> PodSpec:
    """What the pod was promised, as the API server has it."""
    spec = pod.spec
    told = {one.name: one for statuses in _statuses(pod) for one in statuses or ()}
    claims = {
        one.name: one.resource_claim_name
        for one in (*(spec.resource_claims or ()), *(pod.status.resource_claim_statuses or ()))
        if one.resource_claim_name
    }
    containers = (
        *_containers(spec.init_containers, "initContainers", resources, told, claims),
        *_containers(spec.containers, "containers", resources, told, claims),
        *_containers(spec.ephemeral_containers, "ephemeralContainers", resources, told, claims),
    )
    overhead, faults = _amounts((("spec.overhead", spec.overhead),), resources)
    overhead_cpu_m, of_cpu = _milli("cpu", spec.overhead, "spec.overhead")
    of_vm, of_memory = _amounts((("spec.overhead", spec.overhead),), _MEMORY)
    faults = (*faults, *of_cpu, *of_memory)
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
        qos=_CLASSES.get(pod.status.qos_class or "") or _qos(pod),
        pod_level=_is_pod_level(spec.resources),
        runtime_class=spec.runtime_class_name or "",
        overhead_cpu_m=overhead_cpu_m or 0,
        overhead_memory=of_vm.get("memory", 0),
        whole=_whole(spec.resources) if _is_pod_level(spec.resources) else None,
    )


def _whole(found: Resources | None) -> WholePod:
    limits, requests = (found.limits, found.requests) if found is not None else (None, None)
    path = "spec.resources"
    cpu_m, no_cpu = _milli("cpu", requests, f"{path}.requests")
    limit_m, no_limit = _milli("cpu", limits, f"{path}.limits")
    memory, no_memory = _amounts(((f"{path}.requests", requests),), _MEMORY)
    most, no_most = _amounts(((f"{path}.limits", limits),), _MEMORY)
    faults = (*no_cpu, *no_limit, *no_memory, *no_most)
    return WholePod(cpu_m or 0, limit_m or 0, memory.get("memory", 0), most.get("memory", 0), faults)


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
    objects: Iterable[ContainerObject] | None,
    field: str,
    resources: Mapping[str, str],
    told: Mapping[str, ContainerStatusObject],
    claims: Mapping[str, str],
) -> Iterable[ContainerSpec]:
    for index, container in enumerate(objects or ()):
        found = container.resources
        path = f"spec.{field}[{index}].resources"
        given = ((f"{path}.limits", found.limits), (f"{path}.requests", found.requests)) if found is not None else ()
        declared, faults = _amounts(given, resources)
        cpu_m, limit_m, more = _asked("cpu", found or _NOTHING, path)
        cpu_m, limit_m = _allocated(cpu_m, limit_m or 0, told.get(container.name))
        limits, unread = _amounts(given[:1], _MEMORY)
        requests, no_request = _amounts(given[1:], _MEMORY)  # one that cannot be read is not known, and no fault
        faults, memory = (*faults, *more, *unread), limits.get("memory", 0)
        asked = cpu_m, limit_m, memory, requests.get("memory", None if no_request else memory)
        named = (found.claims or ()) if claims and found is not None else ()
        there = ((claims[one.name], one.request) for one in named if one.name in claims)
        of = tuple(dict.fromkeys(f"{name}/{request}" if request else name for name, request in there))
        yield ContainerSpec(container.name, _role(field, container), declared, faults, *asked, claims=of)


def _allocated(cpu_m: int | None, limit_m: int, told: ContainerStatusObject | None) -> tuple[int | None, int]:
    """Request and limit of the CPU as kubelet has allocated them: while a resize waits, or is refused, the spec says
    what somebody wishes. As the spec says them where kubelet tells nothing that can be read."""
    if told is None or not cpu_m:
        return cpu_m, limit_m
    actual = told.resources or _NOTHING
    request_m, _ = _milli("cpu", told.allocated_resources, "")
    request_m = request_m or _milli("cpu", actual.requests, "")[0]
    if not request_m:
        given = told.allocated_resources or {}
        none_yet = bool(given) and "cpu" not in given and limit_m != cpu_m
        return (0, _milli("cpu", actual.limits, "")[0] or 0) if none_yet else (cpu_m, limit_m)
    if limit_m == cpu_m:
        return request_m, request_m  # a resize never changes a pod's class
    return request_m, _milli("cpu", actual.limits, "")[0] or limit_m


def _asked(name: str, found: Resources, path: str) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Request and limit in thousandths. A request that is not given is the limit, as the API server fills it in."""
    limit, faults = _milli(name, found.limits, f"{path}.limits")
    if found.requests is None or name not in found.requests:
        return limit, limit, faults
    request, more = _milli(name, found.requests, f"{path}.requests")
    return request, limit, (*faults, *more)


def _milli(name: str, given: Quantities | None, path: str) -> tuple[int | None, tuple[str, ...]]:
    """The thousandths, 0 where nothing is given; None and a fault where that cannot be read."""
    if given is None or name not in given:
        return 0, ()
    try:
        return milli_units(str(given[name])), ()
    except QuantityError as error:
        return None, (f"{path}[{name}]: {error}",)


def _is_pod_level(found: Resources | None) -> bool:
    return found is not None and bool(found.requests or found.limits)


def _qos(pod: PodObject) -> Qos | None:
    """The class by Kubernetes' rules (pkg/apis/core/v1/helper/qos), for a pod whose status does not tell it; None where
    a quantity cannot be read."""
    spec = pod.spec
    every = (*(spec.init_containers or ()), *(spec.containers or ()))
    places = (spec.resources,) if _is_pod_level(spec.resources) else tuple(one.resources for one in every)
    sums, guaranteed = dict.fromkeys(_OF_QOS, (0, 0)), True
    for place in places:
        for name in _OF_QOS:
            request, limit, _ = _asked(name, place or _NOTHING, "")
            if limit is None or request is None:
                return None
            guaranteed = guaranteed and limit > 0
            sums[name] = sums[name][0] + request, sums[name][1] + limit
    if not any(request or limit for request, limit in sums.values()):
        return Qos.BEST_EFFORT
    same = all(request == limit for request, limit in sums.values())
    return Qos.GUARANTEED if guaranteed and same else Qos.BURSTABLE


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
    return (replace(first, faults=(*faults, *first.faults)), *rest)


def _container_ids(pod: PodObject) -> Mapping[str, str]:
    ids = {}
    for statuses in _statuses(pod):
        for one in statuses or ():
            scheme, separator, bare = (one.container_id or "").partition("://")
            if bare or (scheme and not separator):
                ids[one.name] = bare or scheme
    return ids


def _statuses(pod: PodObject) -> tuple[tuple[ContainerStatusObject, ...] | None, ...]:
    status = pod.status
    return status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses
