"""The cold-plug socket beside a real kubelet 1.37, asked by kubelet's own Go client as Kata uses it: devices of a
device plugin and of a DRA driver, and a name that is reused."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format, message_factory
from google.protobuf.message import Message

from tests.patience import scaled
from tests.peers.containerd import children
from tests.peers.cri import schema
from tests.peers.daemon import NODEWARD, until
from tests.peers.deviceplugin import running_plugin
from tests.peers.find import require
from tests.peers.keynode import PODS
from tests.peers.kubeclient import MERGE, KubeClient
from tests.peers.nriside import Json, Record, member
from tests.peers.podnode import Node, container, running_node
from tests.told import tell

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


VF, KEY = "nodeward.test/vf", "nodeward.test/key"
GPU = "nodeward.test/gpu"
WITHIN_S = scaled(60.0)


def spec(kind: str, names: Sequence[str]) -> str:
    devices: list[Record] = [
        {
            "name": name,
            "containerEdits": {
                "deviceNodes": [{"path": f"/dev/vfio/9{number}", "type": "c", "major": 10, "minor": 196}],
            },
        }
        for number, name in enumerate(names)
    ]
    return json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": devices})


@dataclass(slots=True)
class Host:
    node: Node
    dra: DraDriver
    client: Path

    @property
    def socket(self) -> Path:
        return self.node.nodeward.folder / "run" / "pod-resources.sock"

    def start(self) -> None:
        self.node.nodeward.start(self.node.containerd.inside(NODEWARD, network=False))
        until(lambda: self.node.nodeward.shown().get("api") == "answers", "the daemon knows the pods")
        until(self.listens, "somebody listens at the socket")

    def listens(self) -> bool:
        return "code = InvalidArgument" in self.ask("").communicate(timeout=WITHIN_S)[1]

    def ask(self, pod: str) -> subprocess.Popen[str]:
        line = [str(self.client), str(self.socket), "default", pod]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def names(self, pod: str) -> list[str]:
        asking = self.ask(pod)
        said, why = asking.communicate(timeout=WITHIN_S)
        assert asking.returncode == 0, f"{why}\n{self.node.nodeward.log()[-3000:]}"
        return said.splitlines()

    def create(self, pod: str, limits: Record, claim: str = "") -> str:
        claims: list[Json] = [{"name": "gpu", "resourceClaimName": claim}] if claim else []
        named: list[Json] = [{"name": "gpu"}] if claim else []
        asked = container("app", resources={"limits": limits, "claims": named})
        self.node.create(pod, [asked], resourceClaims=claims)
        return self.node.keys.uid(pod)

    def section(self, pod: str, name: str) -> Record:
        said = self.node.nodeward.command("pod", f"default/{pod}", "-o", "json")
        found: Record = json.loads(said.stdout)[name]
        return found


@pytest.fixture(name="host", scope="module")
def _host() -> Iterator[Host]:
    client = require("podresources") / "podresources"
    with running_node() as node:
        keys = node.keys
        cdi = Path("/proc", str(children(keys.containerd.holder.pid)[0]), "root/run/cdi")
        cdi.mkdir()
        (cdi / "vf.json").write_text(spec(VF, ("vf0", "vf1")))
        (cdi / "gpu.yaml").write_text(spec(GPU, ("g0", "g1")))
        plugins = keys.home / "device-plugins"
        with (
            running_plugin(plugins, VF, ("vf0", "vf1"), "vf.sock"),
            running_plugin(plugins, KEY, ("k0",), "key.sock"),
            running_driver(keys.root, {"g0": [f"{GPU}=g0"], "g1": [f"{GPU}=g1"]}) as dra,
        ):
            dra.publish(keys.api)
            until(lambda: dra.registered == [True], "kubelet has the DRA driver")
            keys.has(VF, (2, 2))
            keys.has(KEY, (1, 1))
            process = node.nodeward.process
            assert process is not None
            process.kill()
            process.wait(WITHIN_S)
            section = f"keys: {{kubelet_dir: /var/lib/kubelet, kubelet_root: {keys.root}}}"
            served = "cold_plug: {enabled: true}", section
            with node.nodeward.config.open("a") as config:
                config.write("\n".join(served) + "\n")
            host = Host(node, dra, client)
            host.start()
            yield host


def test_kata_is_told_of_both_kinds_and_the_pod_api_of_every_device(host: Host) -> None:
    uid = host.create("vm", {VF: "1", KEY: "1"}, "claim")
    host.dra.allocate(host.node.api, "claim", "g1", "vm", uid)
    until(lambda: host.node.phase("vm") == "Running", "the pod runs")
    began = time.monotonic()
    (vf,) = host.node.keys.held("vm", VF)
    assert host.names("vm") == [f"{VF}={vf}", f"{GPU}=g1"]
    tell(f"kubelet 1.37, device plugin and DRA, by the Go client: {time.monotonic() - began:.2f} s")
    devices = host.section("vm", "devices")
    assert devices["complete"], devices
    rows = devices["value"]
    assert isinstance(rows, list)
    shown = {(one["kind"], one["resource"], one["name"], one["left_out"]) for one in rows if isinstance(one, dict)}
    assert shown == {
        ("device-plugin", VF, f"{VF}={vf}", ""),
        ("device-plugin", KEY, "", "it is no CDI device"),
        ("dra", "default/claim", f"{GPU}=g1", ""),
    }
    assert host.section("vm", "numa")["complete"]
    host.node.api.call("DELETE", f"{PODS}/vm?gracePeriodSeconds=0")


def test_a_name_that_is_reused_never_has_the_old_pods_device(host: Host) -> None:
    host.create("again", {VF: "1"})
    until(lambda: host.node.phase("again") == "Running", "the pod runs")
    for _ in range(3):
        host.node.api.call("DELETE", f"{PODS}/again?gracePeriodSeconds=0")
        host.create("again", {VF: "1"})
        answers: set[str] = set()
        while host.node.phase("again") != "Running":
            answers |= {*host.ask("again").communicate(timeout=WITHIN_S)[0].splitlines()}
        names = host.names("again")
        assert answers <= {*names}
        assert names == [f"{VF}={one}" for one in host.node.keys.held("again", VF)] != []
    host.node.api.call("DELETE", f"{PODS}/again?gracePeriodSeconds=0")


def test_a_pod_that_kubelet_does_not_know_yet_is_waited_for_and_one_that_never_comes_is_not_found(host: Host) -> None:
    asking = host.ask("late")
    host.create("late", {})
    assert asking.wait(WITHIN_S) == 0
    asking = host.ask("never")
    assert "code = NotFound desc = kubelet knows no pod never in namespace default" in asking.communicate()[1]
