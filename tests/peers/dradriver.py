"""A small driver of Dynamic Resource Allocation below kubelet's root folder. It runs in the test's own process, notes
what it is asked, and refuses what a test wants refused.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from google.protobuf.message import Message

from nodeward.contracts import dra_pb2, pluginregistration_pb2
from nodeward.neighbours.dra import mapping

VERSIONS = mapping.VERSIONS[:1]


@dataclass
class DraDriver:
    """`instance` tells one of two of the same name from the other."""

    name: str
    root: Path
    instance: str = ""
    late_s: list[float] = field(default_factory=list)
    """So late each of the next answers to GetInfo is."""
    refuses: str = ""
    """What a claim is not prepared with; empty for nothing."""
    refuses_end: str = ""
    calls: list[str] = field(default_factory=list)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Namespace, name and UID of each claim that was to be prepared."""
    told: list[tuple[bool, str]] = field(default_factory=list)
    deadlines_s: list[float] = field(default_factory=list)
    looks: Callable[[], None] = lambda: None
    """Called within each Prepare."""

    @property
    def endpoint(self) -> Path:
        return self.root / "plugins" / self.name / f"dra{self.instance}.sock"

    @property
    def door(self) -> Path:
        return self.root / "plugins_registry" / f"{self.name}{self.instance}-reg.sock"

    def count(self, method: str) -> int:
        return self.calls.count(method)

    def info(self, request: Message, context: object) -> pluginregistration_pb2.PluginInfo:
        self.calls.append("GetInfo")
        time.sleep(self.late_s.pop(0) if self.late_s else 0.0)
        return pluginregistration_pb2.PluginInfo(
            type="DRAPlugin", name=self.name, endpoint=str(self.endpoint), supported_versions=VERSIONS
        )

    def notified(
        self, request: pluginregistration_pb2.RegistrationStatus, context: object
    ) -> pluginregistration_pb2.RegistrationStatusResponse:
        self.told.append((request.plugin_registered, request.error))
        return pluginregistration_pb2.RegistrationStatusResponse()

    def prepare(
        self, request: dra_pb2.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> dra_pb2.NodePrepareResourcesResponse:
        self.calls.append("NodePrepareResources")
        self.asked += [(one.namespace, one.name, one.uid) for one in request.claims]
        self.deadlines_s.append(context.time_remaining())
        self.looks()
        response = dra_pb2.NodePrepareResourcesResponse()
        for one in request.claims:
            if self.refuses:
                response.claims[one.uid].error = self.refuses
            else:
                response.claims[one.uid].devices.add(pool_name="p", device_name="d", request_names=["one"])
        return response

    def unprepare(
        self, request: dra_pb2.NodeUnprepareResourcesRequest, context: object
    ) -> dra_pb2.NodeUnprepareResourcesResponse:
        self.calls.append("NodeUnprepareResources")
        response = dra_pb2.NodeUnprepareResourcesResponse()
        for one in request.claims:
            response.claims[one.uid].error = self.refuses_end
        return response

    @contextmanager
    def running(self) -> Iterator["DraDriver"]:
        self.endpoint.parent.mkdir(parents=True, exist_ok=True)
        calls: dict[str, tuple[object, type[Message]]] = {
            "NodePrepareResources": (self.prepare, dra_pb2.NodePrepareResourcesRequest),
            "NodeUnprepareResources": (self.unprepare, dra_pb2.NodeUnprepareResourcesRequest),
        }
        doors: dict[str, tuple[object, type[Message]]] = {
            "GetInfo": (self.info, pluginregistration_pb2.InfoRequest),
            "NotifyRegistrationStatus": (self.notified, pluginregistration_pb2.RegistrationStatus),
        }
        with _serving(self.endpoint, mapping.DRIVERS[0], calls), _serving(self.door, mapping.REGISTRATION, doors):
            yield self


@contextmanager
def _serving(path: Path, service: str, calls: dict[str, tuple[object, type[Message]]]) -> Iterator[None]:
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(answer, of.FromString, lambda message: message.SerializeToString())
        for name, (answer, of) in calls.items()
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    path.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        server.stop(None).wait()
