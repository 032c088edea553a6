"""Keys by claim on real parts: kube-apiserver, scheduler, controller of claims, kubelet 1.37 and containerd, with the
shipped rights and classes. This machine has no keys: the daemon's cgroup tree is a folder with misc files that the test
writes, as in test_keys_offered.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.patience import scaled
from tests.peers.containerd import IMAGE, children
from tests.peers.controllers import running_controllers, running_scheduler
from tests.peers.daemon import WITHIN_S, until
from tests.peers.keynode import PODS
from tests.peers.kubeclient import MERGE, KubeClient
from tests.peers.nriside import Json, Record, member, objects, text
from tests.peers.podnode import Node, running_node
from tests.rigs.cluster import allow, claim_template, make, manifests
from tests.told import tell

DRIVER, DEVICE = "tee.nodeward.io", "/dev/null"
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
SLICES = f"{RESOURCES}/resourceslices"
TDX = "devices.kubevirt.io/tdx"
KEYS = 4


@dataclass(slots=True)
class Cluster:
    node: Node
    said: str
    """The settings without `keys`."""
    cdi: Path

    @property
    def api(self) -> KubeClient:
        return self.node.api

    def uses(self, capacity: int, used: int) -> None:
        self.node.nodeward.has_keys(capacity, used)

    def settings(self, dra: str = "mode: enforce", row: str = f"devices: [{DEVICE}]") -> None:
        keys = self.node.keys
        kubelet = f"kubelet_dir: {keys.home}, kubelet_root: {keys.root}"
        kinds = f"tdx: {{resources: [{TDX}], publish: {TDX}, {row}}}"
        said = f"keys: {{mode: enforce, {kubelet}, kinds: {{{kinds}}}, dra: {{{dra}, cdi_dir: {self.cdi}}}}}"
        self.node.nodeward.config.write_text(f"{self.said}{said}\n")

    def start(self) -> None:
        self.node.nodeward.start()
        self.has(lambda: "registered" in self.told(), "kubelet has the driver")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.node.nodeward.end(how)

    def told(self) -> str:
        return self.node.nodeward.command("keys").stdout

    def has(self, is_so: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
        try:
            until(is_so, what, within_s)
        except AssertionError as error:
            raise AssertionError(
                f"{error}\n{self.told()}\n{self.slice()}\n{self.node.nodeward.log()[-4000:]}"
            ) from error

    def slice(self) -> Record:
        """The driver's slice, empty where there is none."""
        every = objects(self.api.call("GET", SLICES).get("items"))
        return next((one for one in every if member(one, "spec", "driver") == DRIVER), {})

    def offered(self) -> tuple[str, bool] | None:
        """How many keys the scheduler is shown, and whether they are withheld."""
        for device in objects(member(self.slice(), "spec", "devices")):
            return str(member(device, "capacity", "keys", "value")), bool(device.get("taints"))
        return None

    def shows(self, value: int, withheld: bool = False, within_s: float = WITHIN_S) -> None:
        self.has(lambda: self.offered() == (str(value), withheld), f"{value} keys are published", within_s)

    def create(self, pod: str, claim: str = "", limits: Record | None = None) -> None:
        """A pod with a claim of its own, made of the template, or with a claim that is there already."""
        named: Record = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": "key"}
        resources: Record = {"limits": limits} if limits else {"claims": [{"name": "key"}]}
        app: Json = {"name": "app", "image": IMAGE, "imagePullPolicy": "Never", "resources": resources}
        spec: Record = {"terminationGracePeriodSeconds": 1, "containers": [app]}
        if not limits:
            spec["resourceClaims"] = [{"name": "key", **named}]
        self.api.call("POST", PODS, {"metadata": {"name": pod}, "spec": spec})

    def runs(self, pod: str) -> None:
        self.has(lambda: self.node.keys.phase(pod) == "Running", f"{pod} runs: {self.events(pod)}")

    def events(self, pod: str) -> list[str]:
        every = objects(self.api.call("GET", "/api/v1/namespaces/default/events").get("items"))
        return [text(one, "message") for one in every if member(one, "involvedObject", "name") == pod]

    def delete(self, *pods: str) -> None:
        for pod in pods:
            self.api.call("DELETE", f"{PODS}/{pod}")
        for pod in pods:
            self.has(partial(self.is_gone, pod), f"{pod} is gone")

    def is_gone(self, pod: str) -> bool:
        return self.api.find(f"{PODS}/{pod}") is None


@contextmanager
def running() -> Iterator[Cluster]:
    with running_node() as node:
        server, folder = node.keys.server, node.keys.containerd.folder / "plane"
        folder.mkdir()
        allow(node.api, "nodeward", "node/claims.yaml")
        template = claim_template("key", [{"name": "key", "exactly": {"deviceClassName": "tdx"}}])
        make(node.api, *manifests("node/device-classes.yaml"), template)
        inside = Path("/proc", str(children(node.keys.containerd.holder.pid)[0]), "root")
        (inside / "run/cdi").mkdir(exist_ok=True)
        with (
            running_controllers(server, folder, ("resourceclaim-controller", "garbage-collector-controller")),
            running_scheduler(server, folder),
        ):
            here = Cluster(node, node.nodeward.config.read_text(), inside / "run/cdi")
            here.end()
            here.uses(KEYS, 0)
            here.settings()
            here.start()
            here.shows(KEYS)
            yield here


@pytest.fixture(name="here", scope="module")
def _here() -> Iterator[Cluster]:
    """Each test leaves no pod behind, and a daemon that offers KEYS keys."""
    with running() as found:
        yield found


def test_a_pod_with_a_claim_of_a_key_runs_and_one_too_many_waits_until_a_key_is_free(here: Cluster) -> None:
    began = time.monotonic()
    here.create("vm-a")
    here.runs("vm-a")
    tell(f"from POST to running: {time.monotonic() - began:.2f} s")
    (claim,) = objects(member(here.api.find(f"{PODS}/vm-a") or {}, "status", "resourceClaimStatuses"))
    name = text(claim, "resourceClaimName")
    assert f"claim default/{name}: 1 key, default/vm-a" in here.told()
    tell(here.told())
    assert DEVICE in json.dumps([json.loads(one.read_text()) for one in here.cdi.glob(f"{DRIVER}-*.json")])

    here.uses(KEYS, KEYS - 1)
    here.shows(1, within_s=scaled(3.0))
    here.create("vm-b")
    time.sleep(2.0)
    assert here.node.keys.phase("vm-b") == "Pending"
    here.uses(KEYS, 0)
    here.shows(KEYS)
    began = time.monotonic()
    here.runs("vm-b")
    tell(f"from the slice that has a key to running: {time.monotonic() - began:.2f} s")
    here.delete("vm-a", "vm-b")
    here.shows(KEYS)
    assert not list(here.cdi.glob(f"{DRIVER}-*.json"))


@pytest.mark.nightly
def test_a_forced_deletion_is_ahead_of_the_node_and_the_next_pod_waits_for_the_key(here: Cluster) -> None:
    here.uses(KEYS, KEYS - 1)
    here.shows(1)
    here.create("holds")
    here.runs("holds")
    here.create("wants")
    here.uses(KEYS, KEYS)  # as by its VM
    began = time.monotonic()
    here.api.call("DELETE", f"{PODS}/holds?gracePeriodSeconds=0")
    here.has(lambda: "wants" in here.told() and "waits:" in here.told(), "the next one has the claim, and waits")
    tell(f"the next pod waits {time.monotonic() - began:.2f} s after the forced deletion")
    time.sleep(2.0)
    assert here.node.keys.phase("wants") == "Pending"
    here.uses(KEYS, KEYS - 1)
    here.runs("wants")
    here.uses(KEYS, 0)
    here.delete("wants")
    here.shows(KEYS)


@pytest.mark.nightly
def test_a_daemon_that_dies_while_a_claim_waits_or_while_a_pod_ends_leaves_nothing_behind(here: Cluster) -> None:
    here.create("ends")
    here.runs("ends")
    here.uses(KEYS, KEYS)
    here.create("late")
    here.has(lambda: "waits:" in here.told(), "it waits")
    here.end(signal.SIGKILL)
    here.api.call("DELETE", f"{PODS}/ends")
    time.sleep(2.0)
    assert not here.is_gone("ends"), "kubelet waits for the driver"
    here.uses(KEYS, 0)
    here.start()
    here.has(lambda: here.is_gone("ends"), "the pod ends once the driver is back")
    here.runs("late")
    here.delete("late")
    here.shows(KEYS)


@pytest.mark.nightly
def test_an_upgrade_keeps_the_slice_and_an_uninstallation_takes_it_away(here: Cluster) -> None:
    here.create("stays")
    here.runs("stays")
    uid = member(here.slice(), "metadata", "uid")
    here.end()
    here.start()
    assert member(here.slice(), "metadata", "uid") == uid
    here.end()
    said = here.node.nodeward.command("uninstall", "--config", str(here.node.nodeward.config))
    assert f"would delete the ResourceSlice of {DRIVER}/node-1 from the API server" in said.stdout
    said = here.node.nodeward.command("uninstall", "--config", str(here.node.nodeward.config), "--yes")
    tell(said.stdout + said.stderr)
    assert here.slice() == {}
    here.start()
    here.shows(KEYS)
    here.delete("stays")
    here.shows(KEYS)


@pytest.mark.nightly
def test_a_pod_with_a_claim_ends_well_after_claims_were_switched_off(here: Cluster) -> None:
    here.create("stays")
    here.runs("stays")
    here.end()
    here.settings("mode: 'off'", row="reserve: 0")  # which no device node may stand beside
    here.node.nodeward.start()
    here.has(lambda: here.slice() == {}, "the slice is taken away")
    here.delete("stays")
    here.end()
    here.settings()
    here.start()
    here.shows(KEYS)


@pytest.mark.nightly
def test_the_slice_is_put_back_after_its_deletion_kubelets_restart_and_the_daemons_death(here: Cluster) -> None:
    here.create("stays")
    here.runs("stays")
    name = str(member(here.slice(), "metadata", "name"))
    here.api.call("DELETE", f"{SLICES}/{name}")
    here.shows(KEYS, within_s=scaled(2.0))
    here.node.keys.restart()
    here.shows(KEYS)
    here.end(signal.SIGKILL)
    here.start()
    here.shows(KEYS)
    assert "default/stays" in here.told()
    here.create("next")
    here.runs("next")
    here.delete("stays", "next")
    here.shows(KEYS)


@pytest.mark.nightly
def test_an_unmodified_pod_gets_its_key_by_the_extended_name(here: Cluster) -> None:
    path = f"{RESOURCES}/deviceclasses/tdx"
    here.api.call("PATCH", path, {"spec": {"extendedResourceName": TDX}}, MERGE)
    here.create("plain", limits={TDX: "1"})
    here.runs("plain")
    here.has(lambda: "default/plain: promised 1" in here.told(), "it is counted once")
    here.delete("plain")
    here.api.call("PATCH", path, {"spec": {"extendedResourceName": None}}, MERGE)
    here.shows(KEYS)


@pytest.mark.nightly
def test_a_node_moves_from_ids_to_claims_and_back_while_pods_run(here: Cluster) -> None:
    """Given a pod with an id, the node moves to claims though its daemon is killed meanwhile, and back; whatever was
    started runs on untouched, by whichever way it came."""
    here.end()
    here.settings("mode: enforce, share: none", f"publisher: device-plugin, devices: [{DEVICE}]")
    here.start()
    here.has(lambda: _allocatable(here) == KEYS, "kubelet has the ids")
    here.create("by-id", limits={TDX: "1"})
    here.runs("by-id")
    began = [_untouched(here, "by-id")]

    plan = _move(here, "--to", "dra", "--dry-run")
    tell(plan.stdout)
    assert (plan.returncode, plan.stdout.splitlines()[-1]) == (0, "nothing was changed; --yes does it")
    assert "tdx: 4 keys; 1 pods have ids, 0 have claims; they run on" in plan.stdout
    assert here.offered() == ("1", True)
    _move(here, "--to", "dra", "--yes", "--within", "0")
    here.end(signal.SIGKILL)
    here.start()
    moved = _move(here, "--to", "dra", "--yes")
    tell(moved.stdout)
    assert moved.stdout.splitlines()[-1] == "tdx: keys go by claim: claims may be given 3 more, kubelet 0 more ids"
    here.shows(3)
    here.has(lambda: _allocatable(here) == 1, "kubelet has the id of the pod that runs alone")
    for pod in ("claimed-a", "claimed-b"):
        here.create(pod)
        here.runs(pod)
        began.append(_untouched(here, pod))

    back = _move(here, "--to", "plugin", "--yes")
    tell(back.stdout)
    assert back.returncode == 0, back
    assert "waiting: tdx: the scheduler may go by the number of before for" in back.stdout
    assert back.stdout.splitlines()[-1] == "tdx: keys go by id: claims may be given 0 more, kubelet 1 more ids"
    here.has(lambda: _allocatable(here) == 2, "kubelet has one id more")
    here.create("by-id-again", limits={TDX: "1"})
    here.runs("by-id-again")
    here.create("one-too-many")
    assert [_untouched(here, one) for one in ("by-id", "claimed-a", "claimed-b")] == began
    assert here.node.keys.phase("one-too-many") == "Pending"
    here.delete("by-id", "claimed-a", "claimed-b", "by-id-again", "one-too-many")
    assert _move(here, "--to", "settings", "--yes").returncode == 0
    here.end()
    here.settings()
    here.start()
    here.shows(KEYS)


def _move(here: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return here.node.nodeward.command("keys", "move", *words)


def _allocatable(here: Cluster) -> int:
    status = member(here.api.call("GET", "/api/v1/nodes/node-1"), "status", "allocatable", TDX)
    return int(str(status or 0))


def _untouched(here: Cluster, pod: str) -> tuple[Json, Json]:
    """The pod's uid and its container's id: another life of either would have another."""
    found = here.api.call("GET", f"{PODS}/{pod}")
    (status,) = objects(member(found, "status", "containerStatuses"))
    return member(found, "metadata", "uid"), status.get("containerID")
