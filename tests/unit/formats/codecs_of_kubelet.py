"""What kubelet writes and says: its checkpoint and settings, its Pods API and PodResources, its device plugin calls."""

import functools
from collections.abc import Sequence

from nodeward.contracts import (
    deviceplugin_pb2,
    dra_pb2,
    kubepod_pb2,
    pluginregistration_pb2,
    podresources_pb2,
    podsapi_pb2,
)
from nodeward.core.errors import RequestError
from nodeward.neighbours.dra import mapping as dra
from nodeward.neighbours.formats.kubelet_claims import pods_by_claim
from nodeward.neighbours.formats.protobuf import read
from nodeward.neighbours.kubelet import cdi_spec, checkpoint_file, endpoint_files
from nodeward.neighbours.kubelet import mapping as device_plugin
from nodeward.neighbours.kubelet.pods_api import decode_pod
from tests.unit.formats import checkpoints
from tests.unit.formats.sample import Codec, Reached, Sample, texts, whole


def _checkpoints(padding: int = 0) -> list[Sample]:
    answer, registered = "QQ" * (2 + padding // 4 * 2), {"a.b/tdx": ["x"]}
    ids: list[object] = [{"-1": ["tdx0", "tdx1"]}, ["tdx0"], None]
    return [
        Sample(checkpoints.file([checkpoints.entry("u-1", one, "a.b/tdx", "c", answer)], registered)) for one in ids
    ]


@whole
def _read_checkpoint(data: bytes) -> None:
    checkpoint_file.holders(data)
    checkpoint_file.decode(data, ("a.b/tdx",))


@whole
def _read_cdi_spec(data: bytes) -> None:
    is_yaml = not data.startswith(b"{")
    if not is_yaml:
        cdi_spec.kind(data)
    cdi_spec.decode(data, is_yaml)


def _claims(padding: int = 0) -> list[Sample]:
    return [Sample(checkpoints.claims({"shop/gpu": ["u-1", "u" * (1 + padding)], "shop/none": None}))]


def _dra(padding: int = 0) -> list[Sample]:
    asked = dra_pb2.NodePrepareResourcesRequest(
        claims=[dra_pb2.Claim(namespace="shop", name="key", uid="u-1"), dra_pb2.Claim(name="x" * (1 + padding))]
    )
    told = pluginregistration_pb2.RegistrationStatus(plugin_registered=True, error="no" * (1 + padding))
    return [Sample(asked.SerializeToString()), Sample(told.SerializeToString())]


@whole
def _read_dra(data: bytes) -> None:
    dra.registered(data)
    dra.claims(data)


@whole
def _read_endpoints(data: bytes) -> None:
    """As a configuration or as flags, changed to the relay's endpoint and changed back."""
    text = data.decode("utf-8", "replace")
    ours = {endpoint_files.RUNTIME: "unix:///run/nodeward/cri.sock"}
    if "ARGS" in text:
        endpoint_files.in_flags(text)
        endpoint_files.back(endpoint_files.flags_with(text, ours), ours.values())
    else:
        endpoint_files.in_config(text)


def _pods(padding: int = 0) -> list[Sample]:
    """A pod that is whole or damaged, in an answer with another one."""
    pod = kubepod_pb2.Pod()
    pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = "a", "ns", "u"
    pod.metadata.annotations["kubernetes.io/config.hash"] = "h" * (1 + padding)
    made = pod.spec.containers.add(name="c")
    made.resources.limits["tdx.intel.com/keys"].string = "1"
    pod.status.containerStatuses.add(name="c", containerID="containerd://abc")
    one = pod.SerializeToString()

    def framed(payload: bytes) -> bytes:
        return podsapi_pb2.ListPodsResponse(pods=[payload, one]).SerializeToString()

    return [Sample(one, framed)]


def _read_pods(pieces: Sequence[bytes], reached: Reached) -> None:
    for pod in read("Pods API", podsapi_pb2.ListPodsResponse, b"".join(pieces)).pods:
        reached()
        decode_pod(pod)


def _resources(padding: int = 0) -> list[Sample]:
    devices = podresources_pb2.ContainerDevices(resource_name="a.b/tdx", device_ids=["tdx0", "x" * (1 + padding)])
    container = podresources_pb2.ContainerResources(name="c", devices=[devices])
    pod = podresources_pb2.PodResources(name="a", namespace="ns", containers=[container, container])
    return [Sample(podresources_pb2.ListPodResourcesResponse(pod_resources=[pod, pod]).SerializeToString())]


OFFERED = ("tdx0", "tdx1", "tdx2")


def _device_calls(padding: int = 0) -> list[Sample]:
    ids = ["tdx0", "x" * padding] if padding else ["tdx0", "tdx2"]
    one, other = (deviceplugin_pb2.ContainerAllocateRequest(devices_ids=some) for some in (ids, ["tdx1"]))
    liked = deviceplugin_pb2.ContainerPreferredAllocationRequest(
        available_deviceIDs=ids, must_include_deviceIDs=["tdx1"], allocation_size=2
    )
    asked = (
        deviceplugin_pb2.AllocateRequest(container_requests=[one, other]),
        deviceplugin_pb2.PreStartContainerRequest(devices_ids=ids),
        deviceplugin_pb2.PreferredAllocationRequest(container_requests=[liked]),
    )
    return [
        Sample(request.SerializeToString(), functools.partial(bytes.__add__, bytes((number,))))
        for number, request in enumerate(asked)
    ]


@whole
def _read_device_call(data: bytes) -> None:
    """Behind a byte that says which call it is, as the method does."""
    if data[:1] == b"\0":
        device_plugin.asked(data[1:], OFFERED)
    elif data[:1] == b"\1":
        device_plugin.starting(data[1:], OFFERED)
    else:
        device_plugin.preferred(data[1:])


def codecs(padding: int) -> dict[str, Codec]:
    return {
        "kubelet-checkpoint": Codec(_checkpoints(padding), _read_checkpoint, ("kubelet.checkpoint_file",)),
        "kubelet-claims": Codec(_claims(padding), whole(pods_by_claim), ("formats.kubelet_claims",)),
        "dra": Codec(_dra(padding), _read_dra, ("dra.mapping", "formats.protobuf")),
        "cdi-spec": Codec(texts("cdi-spec", padding), _read_cdi_spec, ("kubelet.cdi_spec",)),
        "kubelet-endpoints": Codec(texts("kubelet-endpoints", padding), _read_endpoints, ("kubelet.endpoint_files",)),
        "pods-api": Codec(_pods(padding), _read_pods, ("kubelet.pods_api", "formats.protobuf")),
        "pod-resources": Codec(
            _resources(padding),
            whole(lambda data: read("PodResources", podresources_pb2.ListPodResourcesResponse, data)),
            ("formats.protobuf",),
        ),
        "device-plugin": Codec(_device_calls(padding), _read_device_call, (), RequestError),
    }
