"""A pod in protobuf becomes what the same pod in JSON becomes, and anything else an error."""

import json

import pytest

from nodeward.proto import kubepod_pb2 as pb
from nodeward.wire import kube_objects
from nodeward.wire.errors import WireError
from nodeward.wire.kube_protobuf import decode_pod

RESOURCES: dict[str, object] = {"limits": {"tdx.intel.com/keys": "1"}, "requests": {"cpu": "500m"}}
METADATA: dict[str, object] = {"name": "a", "namespace": "ns", "uid": "u-1", "resourceVersion": "7"}
POD: dict[str, object] = {
    "metadata": METADATA,
    "spec": {
        "overhead": {"tdx.intel.com/keys": "1"},
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {}}],
        "containers": [{"name": "c", "resources": RESOURCES}, {"name": "d", "resources": {}}],
        "ephemeralContainers": [{"name": "e", "resources": {}}],
        "resources": {"requests": {"cpu": "2"}},
    },
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "containerStatuses": [{"name": "c", "containerID": "containerd://abc"}, {"name": "d"}],
        "initContainerStatuses": [{"name": "i", "containerID": "containerd://def"}],
    },
}


def container(name: str, restart_policy: str = "") -> pb.Container:
    found = pb.Container(name=name)
    if restart_policy:
        found.restartPolicy = restart_policy
    return found


def in_protobuf() -> bytes:
    asking = container("c")
    asking.resources.limits["tdx.intel.com/keys"].string = "1"
    asking.resources.requests["cpu"].string = "500m"
    spec = pb.PodSpec(
        containers=[asking, container("d")],
        initContainers=[container("i", "Always")],
        ephemeralContainers=[pb.EphemeralContainer(ephemeralContainerCommon=container("e"))],
    )
    spec.overhead["tdx.intel.com/keys"].string = "1"
    spec.resources.requests["cpu"].string = "2"
    meta = pb.ObjectMeta(name="a", namespace="ns", uid="u-1", resourceVersion="7")
    meta.annotations.update({"kubernetes.io/config.hash": "h", "kubernetes.io/config.mirror": "h", "secret": "s3cret"})
    status = pb.PodStatus(
        phase="Running",
        qosClass="Burstable",
        containerStatuses=[pb.ContainerStatus(name="c", containerID="containerd://abc"), pb.ContainerStatus(name="d")],
        initContainerStatuses=[pb.ContainerStatus(name="i", containerID="containerd://def")],
    )
    return pb.Pod(metadata=meta, spec=spec, status=status).SerializeToString()


def test_it_is_what_the_same_pod_in_json_is_but_for_the_annotations_which_a_user_writes() -> None:
    found = decode_pod(in_protobuf())
    assert found == kube_objects.decode_pod(json.dumps(POD).encode())
    assert "s3cret" not in repr(found)


def test_what_is_not_declared_is_passed_over() -> None:
    unknown = b"\xfa\x3f\x03abc"  # field 1023
    assert decode_pod(in_protobuf() + unknown) == decode_pod(in_protobuf())


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        pytest.param(b"", "has no uid", id="empty"),
        pytest.param(b"{}", "bytes are no Pod", id="json"),
        pytest.param(in_protobuf()[:-1], "bytes are no Pod", id="cut short"),
        pytest.param(b"\0" * (kube_objects.MAX_OBJECT_BYTES + 1), "bytes, more than", id="huge"),
    ],
)
def test_what_is_no_pod_is_an_error(data: bytes, fault: str) -> None:
    with pytest.raises(WireError, match=fault):
        decode_pod(data)
