"""A v1.Pod in protobuf, as kubelet's Pods API has it, to the same partial object that the API server's JSON becomes.

Promises: nothing but what `neighbours.formats.kube_objects` declares leaves this room, and of the annotations nothing:
kubelet names a static pod by the UID that the runtime has, so none is needed, and a user writes what he likes in them.
Input is bounded; whatever is wrong with it is a WireError that never shows the content. An empty list and an absent one
are the same, as in Go.
"""

from collections.abc import Iterable, Mapping

from nodeward.contracts import kubepod_pb2 as pb
from nodeward.core.errors import WireError
from nodeward.neighbours.formats.kube_objects import (
    MAX_OBJECT_BYTES,
    ContainerObject,
    ContainerStatusObject,
    PodMetadata,
    PodObject,
    Quantities,
    Resources,
    SpecObject,
    StatusOfPod,
)
from nodeward.neighbours.formats.protobuf import read

_WHAT = "v1.Pod in protobuf"


def decode_pod(data: bytes) -> PodObject:
    """The pod, in part."""
    if len(data) > MAX_OBJECT_BYTES:
        raise WireError(_WHAT, f"{len(data)} bytes, more than {MAX_OBJECT_BYTES}")
    try:
        return _part(read(_WHAT, pb.Pod, data))
    except UnicodeDecodeError as error:  # a text is decoded when it is looked at
        raise WireError(_WHAT, "has a text that is not UTF-8") from error


def _part(pod: pb.Pod) -> PodObject:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if not (meta.uid and meta.name and meta.namespace):
        raise WireError(_WHAT, "has no uid, name or namespace in its metadata")
    return PodObject(
        PodMetadata(meta.name, meta.namespace, meta.uid, meta.resourceVersion),
        SpecObject(
            runtime_class_name=spec.runtimeClassName or None,
            overhead=_quantities(spec.overhead),
            containers=_containers(spec.containers),
            init_containers=_containers(spec.initContainers),
            ephemeral_containers=_containers(one.ephemeralContainerCommon for one in spec.ephemeralContainers),
            resources=_resources(spec.resources) if spec.HasField("resources") else None,
        ),
        StatusOfPod(
            phase=status.phase or None,
            qos_class=status.qosClass or None,
            container_statuses=_statuses(status.containerStatuses),
            init_container_statuses=_statuses(status.initContainerStatuses),
            ephemeral_container_statuses=_statuses(status.ephemeralContainerStatuses),
        ),
    )


def _containers(found: Iterable[pb.Container]) -> tuple[ContainerObject, ...] | None:
    every = tuple(ContainerObject(one.name, _resources(one.resources), one.restartPolicy or None) for one in found)
    return every or None


def _resources(found: pb.ResourceRequirements) -> Resources:
    return Resources(_quantities(found.limits), _quantities(found.requests))


def _quantities(found: Mapping[str, pb.Quantity]) -> Quantities | None:
    return {name: quantity.string for name, quantity in found.items()} or None


def _statuses(found: Iterable[pb.ContainerStatus]) -> tuple[ContainerStatusObject, ...] | None:
    return tuple(ContainerStatusObject(one.name, one.containerID or None) for one in found) or None
