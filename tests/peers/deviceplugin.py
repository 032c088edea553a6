"""A small device plugin, as KubeVirt's would be on a node: it lists ids, and allocates what kubelet has chosen.

It runs in the test's own process. Its socket is bound in kubelet's folder through /proc, where that is in another mount
namespace.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
from google.protobuf.message import Message

from nodeward.proto import deviceplugin_pb2 as protocol

REGISTER = "/v1beta1.Registration/Register"
CALL_TIMEOUT_S = 30.0


class DevicePlugin:
    """What it lists, and what it was asked for."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = tuple(ids)
        self._over = threading.Event()
        self.allocated: list[tuple[str, ...]] = []
        """The ids of each container, in the order of the calls."""

    def end(self) -> None:
        """Ends the streams."""
        self._over.set()

    def options(self, request: protocol.Empty, context: object) -> protocol.DevicePluginOptions:
        """It wants nothing special."""
        return protocol.DevicePluginOptions()

    def listed(self, request: protocol.Empty, context: object) -> Iterator[protocol.ListAndWatchResponse]:
        """Every id, healthy, once."""
        yield protocol.ListAndWatchResponse(devices=[protocol.Device(ID=one, health="Healthy") for one in self._ids])
        self._over.wait()

    def allocate(self, request: protocol.AllocateRequest, context: object) -> protocol.AllocateResponse:
        """An environment value with the ids, which nobody but the container is to see."""
        asked = [tuple(one.devices_ids) for one in request.container_requests]
        self.allocated += asked
        responses = [protocol.ContainerAllocateResponse(envs={"KEYS": ",".join(ids)}) for ids in asked]
        return protocol.AllocateResponse(container_responses=responses)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Its service."""

        def unary(answer: object, request: type[Message]) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(
                answer, request.FromString, lambda message: message.SerializeToString()
            )

        calls = {
            "GetDevicePluginOptions": unary(self.options, protocol.Empty),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self.listed, protocol.Empty.FromString, lambda message: message.SerializeToString()
            ),
            "Allocate": unary(self.allocate, protocol.AllocateRequest),
        }
        return grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", calls)


@contextmanager
def running_plugin(folder: Path, resource: str, ids: Sequence[str]) -> Iterator[DevicePlugin]:
    """A plugin that kubelet, whose folder of device plugins this is, has registered."""
    plugin = DevicePlugin(ids)
    endpoint = "test-plugin.sock"
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((plugin.handlers(),))
    server.add_insecure_port(f"unix:{folder / endpoint}")
    server.start()
    try:
        with grpc.insecure_channel(f"unix:{folder / 'kubelet.sock'}") as channel:
            register = channel.unary_unary(
                REGISTER, lambda message: message.SerializeToString(), protocol.Empty.FromString
            )
            request = protocol.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
            register(request, timeout=CALL_TIMEOUT_S, wait_for_ready=True)
        yield plugin
    finally:
        plugin.end()
        server.stop(None).wait()
