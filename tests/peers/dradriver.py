"""A small DRA driver for one kubelet, in the test's own process: each device has CDI names, and is always ready.

The schemas are those that the kubelet peer was built with, read at run time (tests/peers/cri.py). Objects at the API
server are made by `publish`; no scheduler runs, so `allocate` writes what one would.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.message import Message

from tests.peers.cri import schema
from tests.peers.find import require
from tests.peers.kubeclient import MERGE, KubeClient
from tests.peers.nriside import Json, Record, member

DRIVER, POOL = "dra.nodeward.test", "node-1"
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
DRA, REGISTRATION = "k8s.io.kubelet.pkg.apis.dra.v1", "pluginregistration"


def _kind(file: str, name: str) -> type[Message]:
    pool = schema(require("kubernetes") / "proto" / file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _uids(request: Message) -> list[str]:
    claims: list[Record] = json_format.MessageToDict(request).get("claims", [])
    return [str(one["uid"]) for one in claims]


class DraDriver:
    """What it was asked, and what it answers: `devices` has the CDI names of each device."""

    def __init__(self, endpoint: Path, devices: Mapping[str, Sequence[str]]) -> None:
        self._endpoint, self._devices = endpoint, devices
        self._of_claim: dict[str, list[str]] = {}
        self.registered: list[bool] = []

    def allocate(self, api: KubeClient, claim: str, device: str, pod: str, uid: str) -> None:
        """Makes a claim for this device, allocated and reserved for the pod, as a scheduler does."""
        ask: Record = {"name": "one", "exactly": {"deviceClassName": DRIVER}}
        body: Record = {"metadata": {"name": claim}, "spec": {"devices": {"requests": [ask]}}}
        made = api.call("POST", CLAIMS, body)
        self._of_claim[str(member(made, "metadata", "uid"))] = [device]
        result: Record = {"request": "one", "driver": DRIVER, "pool": POOL, "device": device}
        reserved: Record = {"resource": "pods", "name": pod, "uid": uid}
        status: Record = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [reserved]}
        api.call("PATCH", f"{CLAIMS}/{claim}/status", {"status": status}, MERGE)

    def publish(self, api: KubeClient) -> None:
        api.call("POST", f"{RESOURCES}/deviceclasses", {"metadata": {"name": DRIVER}, "spec": {}})
        devices: list[Json] = [{"name": name} for name in self._devices]
        pool: Record = {"name": POOL, "generation": 1, "resourceSliceCount": 1}
        spec: Record = {"driver": DRIVER, "nodeName": "node-1", "pool": pool, "devices": devices}
        api.call("POST", f"{RESOURCES}/resourceslices", {"metadata": {"name": "slice"}, "spec": spec})

    def info(self, _: Message, __: object) -> Message:
        made = _kind("pluginregistration.proto", f"{REGISTRATION}.PluginInfo")
        versions = ["v1.DRAPlugin"]
        return made(type="DRAPlugin", name=DRIVER, endpoint=str(self._endpoint), supported_versions=versions)

    def notified(self, status: Message, _: object) -> Message:
        self.registered.append(bool(json_format.MessageToDict(status).get("pluginRegistered", False)))
        return _kind("pluginregistration.proto", f"{REGISTRATION}.RegistrationStatusResponse")()

    def prepare(self, request: Message, _: object) -> Message:
        found: Record = {}
        for uid in _uids(request):
            devices: list[Json] = [
                {"poolName": POOL, "deviceName": name, "cdiDeviceIds": list(self._devices[name])}
                for name in self._of_claim[uid]
            ]
            found[uid] = {"devices": devices}
        made = _kind("dra.proto", f"{DRA}.NodePrepareResourcesResponse")()
        return json_format.ParseDict({"claims": found}, made)

    def unprepare(self, request: Message, _: object) -> Message:
        made = _kind("dra.proto", f"{DRA}.NodeUnprepareResourcesResponse")()
        return json_format.ParseDict({"claims": {uid: {} for uid in _uids(request)}}, made)

    def services(self) -> Iterator[tuple[Path, grpc.GenericRpcHandler]]:
        def unary(answer: object, file: str, name: str) -> grpc.RpcMethodHandler:
            def written(message: Message) -> bytes:
                return message.SerializeToString()

            return grpc.unary_unary_rpc_method_handler(answer, _kind(file, name).FromString, written)

        dra = {
            "NodePrepareResources": unary(self.prepare, "dra.proto", f"{DRA}.NodePrepareResourcesRequest"),
            "NodeUnprepareResources": unary(self.unprepare, "dra.proto", f"{DRA}.NodeUnprepareResourcesRequest"),
        }
        registry = {
            "GetInfo": unary(self.info, "pluginregistration.proto", f"{REGISTRATION}.InfoRequest"),
            "NotifyRegistrationStatus": unary(
                self.notified, "pluginregistration.proto", f"{REGISTRATION}.RegistrationStatus"
            ),
        }
        yield self._endpoint, grpc.method_handlers_generic_handler(f"{DRA}.DRAPlugin", dra)
        socket = self._endpoint.parents[2] / "plugins_registry" / f"{DRIVER}-reg.sock"
        yield socket, grpc.method_handlers_generic_handler(f"{REGISTRATION}.Registration", registry)


@contextmanager
def running_driver(root: Path, devices: Mapping[str, Sequence[str]]) -> Iterator[DraDriver]:
    endpoint = root / "plugins" / DRIVER / "dra.sock"
    endpoint.parent.mkdir(parents=True, exist_ok=True)
    driver = DraDriver(endpoint, devices)
    with ExitStack() as running:
        for socket, service in driver.services():
            server = grpc.server(ThreadPoolExecutor(4))
            server.add_generic_rpc_handlers((service,))
            server.add_insecure_port(f"unix:{socket}")
            server.start()
            running.callback(lambda one: one.stop(None).wait(), server)
        yield driver
