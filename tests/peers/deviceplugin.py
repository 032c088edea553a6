"""A small device plugin, as KubeVirt's would be on a node: it lists ids, and allocates what kubelet has chosen.

It runs in the test's own process. Its socket is bound in kubelet's folder through /proc, where that is in another mount
namespace. It notes what it is asked, and refuses what a test wants refused.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
from google.protobuf.message import Message

from nodeward.contracts import deviceplugin_pb2 as protocol
from tests.patience import scaled

VERSION = "v1beta1"
REGISTER = f"/{VERSION}.Registration/Register"
ENDPOINT = "test-plugin.sock"
CALL_TIMEOUT_S = scaled(30.0)
_ANYWHERE: Mapping[str, int] = {}


class DevicePlugin:
    def __init__(
        self, ids: Sequence[str], *, starts: bool = False, likes: bool = False, numa: Mapping[str, int] = _ANYWHERE
    ) -> None:
        """`starts`: it wants to be asked before each start; `likes`: it has ids that it prefers, the last ones; `numa`:
        the NUMA node of an id."""
        self._numa = numa
        self._options = protocol.DevicePluginOptions(
            pre_start_required=starts, get_preferred_allocation_available=likes
        )
        self._devices = [(one, True) for one in ids]
        self._changed = threading.Condition()
        self._over = False
        self.calls: list[str] = []
        """The methods that were called, in order."""
        self.allocated: list[tuple[str, ...]] = []
        """The ids of each container, in the order of the calls."""
        self.available: list[tuple[str, ...]] = []
        """The ids to choose from, each time a preference was asked for, in order."""
        self.started: list[tuple[str, ...]] = []
        """The ids of each start that was asked about."""
        self.streams = 0
        """How many lists are being read now."""
        self.refuses_ids = self.refuses_starts = ""
        """What an Allocate, or a start, is refused with; empty for none."""

    def offer(self, devices: Sequence[tuple[str, bool]]) -> None:
        with self._changed:
            self._devices = list(devices)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def options(self, request: protocol.Empty, context: object) -> protocol.DevicePluginOptions:
        self.calls.append("GetDevicePluginOptions")
        return self._options

    def listed(self, request: protocol.Empty, context: grpc.ServicerContext) -> Iterator[protocol.ListAndWatchResponse]:
        """Every id, again each time they are others."""
        self.calls.append("ListAndWatch")
        gone = threading.Event()

        def ended() -> None:
            with self._changed:
                gone.set()
                self.streams -= 1
                self._changed.notify_all()

        with self._changed:
            self.streams += 1
        if not context.add_callback(ended):
            ended()
        said: list[tuple[str, bool]] | None = None
        while not (self._over or gone.is_set()):
            with self._changed:
                while self._devices == said and not (self._over or gone.is_set()):
                    self._changed.wait()
                said = list(self._devices)
            if not (self._over or gone.is_set()):
                words = {True: "Healthy", False: "Unhealthy"}
                found = [protocol.Device(ID=one, health=words[healthy]) for one, healthy in said]
                for device in found:
                    if device.ID in self._numa:
                        device.topology.nodes.add(ID=self._numa[device.ID])
                yield protocol.ListAndWatchResponse(devices=found)

    def preferred(
        self, request: protocol.PreferredAllocationRequest, context: object
    ) -> protocol.PreferredAllocationResponse:
        self.calls.append("GetPreferredAllocation")
        (one,) = request.container_requests
        found = sorted(one.available_deviceIDs)
        self.available.append(tuple(found))
        must = list(one.must_include_deviceIDs)
        liked = [*must, *(name for name in reversed(found) if name not in must)][: one.allocation_size]
        response = protocol.ContainerPreferredAllocationResponse(deviceIDs=liked)
        return protocol.PreferredAllocationResponse(container_responses=[response])

    def allocate(self, request: protocol.AllocateRequest, context: grpc.ServicerContext) -> protocol.AllocateResponse:
        """An environment value with the ids, which nobody but the container is to see."""
        self.calls.append("Allocate")
        asked = [tuple(one.devices_ids) for one in request.container_requests]
        self.allocated += asked
        if self.refuses_ids:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self.refuses_ids)
        responses = [protocol.ContainerAllocateResponse(envs={"KEYS": ",".join(ids)}) for ids in asked]
        return protocol.AllocateResponse(container_responses=responses)

    def start(
        self, request: protocol.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> protocol.PreStartContainerResponse:
        self.calls.append("PreStartContainer")
        self.started.append(tuple(request.devices_ids))
        if self.refuses_starts:
            context.abort(grpc.StatusCode.UNAVAILABLE, self.refuses_starts)
        return protocol.PreStartContainerResponse()

    def handlers(self) -> grpc.GenericRpcHandler:

        def unary(answer: object, request: type[Message]) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(
                answer, request.FromString, lambda message: message.SerializeToString()
            )

        calls = {
            "GetDevicePluginOptions": unary(self.options, protocol.Empty),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self.listed, protocol.Empty.FromString, lambda message: message.SerializeToString()
            ),
            "GetPreferredAllocation": unary(self.preferred, protocol.PreferredAllocationRequest),
            "Allocate": unary(self.allocate, protocol.AllocateRequest),
            "PreStartContainer": unary(self.start, protocol.PreStartContainerRequest),
        }
        return grpc.method_handlers_generic_handler(f"{VERSION}.DevicePlugin", calls)


def register(folder: Path, resource: str, endpoint: str = ENDPOINT, version: str = VERSION) -> str:
    """Registers with the kubelet whose folder of device plugins this is; its refusal, or nothing."""
    with grpc.insecure_channel(f"unix:{folder / 'kubelet.sock'}") as channel:
        call = channel.unary_unary(REGISTER, lambda message: message.SerializeToString(), protocol.Empty.FromString)
        request = protocol.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource)
        try:
            call(request, timeout=CALL_TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)
    return ""


@contextmanager
def serving_plugin(folder: Path, plugin: DevicePlugin, endpoint: str = ENDPOINT) -> Iterator[DevicePlugin]:
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((plugin.handlers(),))
    server.add_insecure_port(f"unix:{folder / endpoint}")
    server.start()
    try:
        yield plugin
    finally:
        plugin.end()
        server.stop(None).wait()


@contextmanager
def running_plugin(
    folder: Path,
    resource: str,
    ids: Sequence[str],
    endpoint: str = ENDPOINT,
    *,
    starts: bool = False,
    likes: bool = False,
    numa: Mapping[str, int] = _ANYWHERE,
) -> Iterator[DevicePlugin]:
    with serving_plugin(folder, DevicePlugin(ids, starts=starts, likes=likes, numa=numa), endpoint) as plugin:
        assert register(folder, resource, endpoint) == ""
        yield plugin
