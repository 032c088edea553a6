"""The cold-plug socket beside a real kubelet 1.37, asked by kubelet's own Go client as Kata uses it: devices of a
device plugin and of a DRA driver, and a name that is reused."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from nodeward.contracts import dra_pb2
from tests.patience import scaled
from tests.peers.containerd import children
from tests.peers.daemon import NODEWARD, until
from tests.peers.deviceplugin import running_plugin
from tests.peers.dradriver import DraDriver
from tests.peers.find import require
from tests.peers.keynode import PODS
from tests.peers.kubeclient import MERGE, KubeClient
from tests.peers.nriside import Json, Record, member
from tests.peers.podnode import Node, container, running_node
from tests.told import tell

DRIVER, POOL = "dra.nodeward.test", "node-1"
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
VF, KEY, GPU = "nodeward.test/vf", "nodeward.test/key", "nodeward.test/gpu"
WITHIN_S = scaled(60.0)


class CdiDriver(DraDriver):
    """It has a claim's containers given the CDI device of its one device's name."""

    def __init__(self, root: Path) -> None:
        super().__init__(DRIVER, root)
        self._of_claim: dict[str, str] = {}

    def publish(self, api: KubeClient, *devices: str) -> None:
        api.call("POST", f"{RESOURCES}/deviceclasses", {"metadata": {"name": DRIVER}, "spec": {}})
        pool: Record = {"name": POOL, "generation": 1, "resourceSliceCount": 1}
        spec: Record = {"driver": DRIVER, "nodeName": "node-1", "pool": pool, "devices": [{"name": n} for n in devices]}
        api.call("POST", f"{RESOURCES}/resourceslices", {"metadata": {"name": "slice"}, "spec": spec})

    def allocate(self, api: KubeClient, claim: str, device: str, pod: str, uid: str) -> None:
        """Makes a claim for this device, allocated and reserved for the pod, as a scheduler does."""
        ask: Record = {"name": "one", "exactly": {"deviceClassName": DRIVER}}
        made = api.call("POST", CLAIMS, {"metadata": {"name": claim}, "spec": {"devices": {"requests": [ask]}}})
        self._of_claim[str(member(made, "metadata", "uid"))] = device
        result: Record = {"request": "one", "driver": DRIVER, "pool": POOL, "device": device}
        reserved: Record = {"resource": "pods", "name": pod, "uid": uid}
        status: Record = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [reserved]}
        api.call("PATCH", f"{CLAIMS}/{claim}/status", {"status": status}, MERGE)

    def prepare(
        self, request: dra_pb2.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> dra_pb2.NodePrepareResourcesResponse:
        response = dra_pb2.NodePrepareResourcesResponse()
        for uid in (one.uid for one in request.claims):
            name = self._of_claim[uid]
            response.claims[uid].devices.add(pool_name=POOL, device_name=name, cdi_device_ids=[f"{GPU}={name}"])
        return response


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
    dra: CdiDriver
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
        keys, dra = node.keys, CdiDriver(node.keys.root)
        cdi = Path("/proc", str(children(keys.containerd.holder.pid)[0]), "root/run/cdi")
        cdi.mkdir()
        (cdi / "vf.json").write_text(spec(VF, ("vf0", "vf1")))
        (cdi / "gpu.yaml").write_text(spec(GPU, ("g0", "g1")))
        plugins = keys.home / "device-plugins"
        with (
            running_plugin(plugins, VF, ("vf0", "vf1"), "vf.sock"),
            running_plugin(plugins, KEY, ("k0",), "key.sock"),
            dra.running(),
        ):
            dra.publish(keys.api, "g0", "g1")
            until(lambda: dra.told == [(True, "")], "kubelet has the DRA driver")
            keys.has(VF, (2, 2))
            keys.has(KEY, (1, 1))
            node.nodeward.end(signal.SIGKILL)
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
    until(lambda: host.node.keys.phase("vm") == "Running", "the pod runs")
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
    until(lambda: host.node.keys.phase("again") == "Running", "the pod runs")
    for _ in range(3):
        host.node.api.call("DELETE", f"{PODS}/again?gracePeriodSeconds=0")
        host.create("again", {VF: "1"})
        answers: set[str] = set()
        while host.node.keys.phase("again") != "Running":
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
