"""Turns reviews into values, and verdicts into JSON patches.

Promises: every operation of a patch fits the very pod it was computed from: a parent that is absent or null is added
whole, and only what is there is removed.

Must not: do I/O, or judge.
"""

from collections.abc import Iterable, Mapping, Sequence
from posixpath import normpath
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct
from msgspec.json import Encoder

from nodeward.core.annotations import QUOTE_PROVIDER, is_admitted
from nodeward.core.errors import WireError
from nodeward.core.text import printable
from nodeward.core.workload import Role
from nodeward.features.admission.door.review import (
    FORMAT,
    ResourceName,
    ReviewedContainer,
    ReviewedMetadata,
    ReviewedPod,
    ReviewedSpec,
    ReviewRequest,
    annotations_of,
    env_of,
    is_there,
    mounts_of,
)
from nodeward.features.admission.values import (
    AESM_FOLDER,
    AESM_VOLUME,
    LISTS,
    AesmVolume,
    ContainerAsked,
    ContainerChange,
    Operation,
    PodAsked,
    Verdict,
)
from nodeward.neighbours.formats.kube_objects import Quantities

Value: TypeAlias = str | int | bool | Sequence["Value"] | Mapping[str, "Value"] | None


class PatchOperation(Struct, frozen=True):
    """One step. `add` sets a member of an object, or inserts into an array (`-` appends)."""

    op: Literal["add", "remove"]
    path: str
    value: object = UNSET


_ENCODER = Encoder()


def pointer(*parts: str | int) -> str:
    """The pointer to what these members and indexes lead to."""
    return "".join([f"/{part if isinstance(part, int) else _escaped(part)}" for part in parts])


def below(path: str, name: str) -> str:
    """The pointer to the member `name` of what `path` leads to."""
    return f"{path}/{_escaped(name)}"


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1") if "/" in name or "~" in name else name


def add(path: str, value: Value) -> PatchOperation:
    """Sets the member, or inserts the element."""
    return PatchOperation("add", path, value)


def remove(path: str) -> PatchOperation:
    """Removes the value at `path`; it must be there."""
    return PatchOperation("remove", path)


def encode(operations: Sequence[PatchOperation]) -> bytes:
    """The patch as JSON."""
    return _ENCODER.encode(operations)


_PODS = ResourceName("", "v1", "pods")
_SPEC, _POD, _METADATA = ReviewedSpec(), ReviewedPod(), ReviewedMetadata()
_MOST_OF_A_NAME = 253
"""A DNS name, and so a pod's, has no more characters."""
_ADDRESS = "SGX_AESM_ADDR"
_MOUNT: Value = {"name": AESM_VOLUME, "mountPath": AESM_FOLDER}
_VOLUMES: dict[AesmVolume, Value] = {
    AesmVolume.MEMORY: {"name": AESM_VOLUME, "emptyDir": {"medium": "Memory"}},
    AesmVolume.HOST: {
        "name": AESM_VOLUME,
        "hostPath": {"path": AESM_FOLDER, "type": "DirectoryOrCreate"},
    },
}
_NONE: Mapping[str, str] = {}
_OPERATIONS = {"CREATE": Operation.CREATE, "UPDATE": Operation.UPDATE}


def operation(request: ReviewRequest) -> Operation:
    """The operation that the review asks about. `pods/resize` changes CPU and memory only, so it is none of ours.

    WireError where it is ours and the pod or its spec is missing: nothing could be checked, and an API server sends
    both with each create and update. A spec without containers passes: the API server refuses it itself afterwards."""
    found = _operation(request)
    if found is not Operation.OTHER and (request.object is None or request.object.spec is None):
        field = "request.object" if request.object is None else "request.object.spec"
        raise WireError(FORMAT, f"{request.operation} of a pod has no {field}: an API server always sends one")
    return found


def _operation(request: ReviewRequest) -> Operation:
    if request.resource != _PODS:
        return Operation.OTHER
    if not request.sub_resource:
        return _OPERATIONS.get(request.operation, Operation.OTHER)
    if request.sub_resource == "ephemeralcontainers" and request.operation == "UPDATE":
        return Operation.DEBUG
    return Operation.OTHER


def pod_asked(request: ReviewRequest) -> PodAsked:
    """The pod of the request."""
    pod = request.object or _POD
    spec = pod.spec or _SPEC
    annotations = annotations_of(pod, is_admitted)
    whole = QUOTE_PROVIDER in annotations  # nothing else depends on environment and mounts
    return PodAsked(
        namespace=printable(request.namespace or "", _MOST_OF_A_NAME),
        name=_name(request, pod),
        containers=(
            *(_containers(spec.init_containers, None, whole) if spec.init_containers else ()),
            *_containers(spec.containers, Role.REGULAR, whole),
            *(_containers(spec.ephemeral_containers, Role.EPHEMERAL, False) if spec.ephemeral_containers else ()),
        ),
        overhead=_texts(spec.overhead),
        annotations=annotations,
        volumes={volume.name: is_there(volume.host_path) for volume in spec.volumes or ()},
    )


def _name(request: ReviewRequest, pod: ReviewedPod) -> str:
    """A controller's pod gets its name only after this webhook, and the API server checks names after it too."""
    metadata = pod.metadata or _METADATA
    begins = f"{metadata.generate_name}..." if metadata.generate_name else "(no name)"
    return printable(request.name or metadata.name or begins, _MOST_OF_A_NAME)


def _containers(
    found: tuple[ReviewedContainer, ...] | None, role: Role | None, whole: bool
) -> Iterable[ContainerAsked]:
    for index, one in enumerate(found or ()):
        resources = one.resources
        yield ContainerAsked(
            one.name,
            role or (Role.SIDECAR if one.restart_policy == "Always" else Role.INIT),
            index,
            _texts(resources.limits) if resources is not None else _NONE,
            _texts(resources.requests) if resources is not None else _NONE,
            whole and any(entry.name == _ADDRESS for entry in env_of(one)),
            {_cleaned(mount.mount_path): mount.name for mount in mounts_of(one)} if whole else _NONE,
        )


def _cleaned(path: str) -> str:
    """The mount path without `.`, `..` and doubled slashes; kubelet takes a relative one from the root."""
    return normpath("/" + path.lstrip("/"))


def _texts(quantities: Quantities | None) -> Mapping[str, str]:
    return {name: str(amount) for name, amount in quantities.items()} if quantities else _NONE


def patch(pod: ReviewedPod, verdict: Verdict) -> list[PatchOperation]:
    """The operations that turn `pod` into what the verdict wants; none if it is that already."""
    found = list(_annotations(pod, verdict.annotations))
    spec = pod.spec or _SPEC
    for change in verdict.containers:
        found.extend(_container(spec, change))
    if verdict.aesm_volume is not None:
        found.append(_append(spec.volumes is not None, _VOLUMES[verdict.aesm_volume], "spec", "volumes"))
    return found


def _annotations(pod: ReviewedPod, changed: Mapping[str, str | None]) -> Iterable[PatchOperation]:
    there = pod.metadata.annotations if pod.metadata is not None else None
    values: dict[str, Value] = {key: value for key, value in changed.items() if value is not None}
    if there is None:
        if values:
            whole = pod.metadata is None
            yield add("/metadata", {"annotations": values}) if whole else add("/metadata/annotations", values)
        return
    for key, value in changed.items():
        path = below("/metadata/annotations", key)
        if value is not None:
            yield add(path, value)
        elif key in there:
            yield remove(path)


def _container(spec: ReviewedSpec, change: ContainerChange) -> Iterable[PatchOperation]:
    field, index = LISTS[change.container.role], change.container.index
    one = ((spec.containers if field == "containers" else spec.init_containers) or ())[index]
    if one.resources is not None:
        for section, there, names in (
            ("limits", one.resources.limits, change.limits),
            ("requests", one.resources.requests, change.requests),
        ):
            place = f"/spec/{field}/{index}/resources/{section}"
            if names and there is None:
                yield add(place, dict.fromkeys(names, "1"))
            else:
                for name in names:
                    yield add(below(place, name), "1")
            for name in change.dropped:
                if name in (there or ()):
                    yield remove(below(place, name))
    if change.aesm_address:
        yield _append(is_there(one.env), {"name": _ADDRESS, "value": "1"}, "spec", field, index, "env")
    if change.aesm_mount:
        yield _append(is_there(one.volume_mounts), _MOUNT, "spec", field, index, "volumeMounts")


def _append(there: bool, value: Value, *place: str | int) -> PatchOperation:
    return add(pointer(*place, "-"), value) if there else add(pointer(*place), [value])
