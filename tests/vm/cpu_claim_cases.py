"""Claims of CPUs on a real kernel, kubelet, scheduler and containerd, on a node of eight CPUs of which one is reserved:
from POST to the container's cpuset, and back."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet
from tests.peers.dradriver import DraDriver
from tests.peers.kubeclient import MERGE
from tests.peers.nriside import Json, Record, member, objects
from tests.rigs.cluster import allow, claim_template, make, manifests
from tests.vm.cpus_node import compiled, first_act, lay_topology
from tests.vm.inside import CGROUPS, until
from tests.vm.joined_node import CONTAINERD_FOLDER, NAME, PODS, Node, container, manifest

_RESOURCES: Final = "/apis/resource.k8s.io/v1"
_WITHIN_S: Final = 60.0
_ALL: Final = cpuset.parse("0-7")
_FLAGS: Final = ("cpus.dra.mode=enforce", "policy.active=claims", "policy.reserved=cpuset:0", "limits.mode=off")


def _runs_on(cgroup: Path) -> CpuSet:
    return cpuset.parse((cgroup / "cpuset.cpus.effective").read_text())


def _sold(node: Node, capacity: str = "cpu") -> dict[str, str]:
    """By device of the node's slice, what the scheduler may give out; empty for one that is withheld."""
    slices = objects(node.api.call("GET", f"{_RESOURCES}/resourceslices").get("items"))
    devices = [device for one in slices for device in objects(member(one, "spec", "devices"))]
    return {
        str(device["name"]): "" if device.get("taints") else str(member(device, "capacity", capacity, "value"))
        for device in devices
    }


def _template(name: str, cpus: int, parameter: str, **more: Json) -> Record:
    """Of a claim of CPUs. `more`: other requests and constraints."""
    asked: Record = {"deviceClassName": "cpus", "capacity": {"requests": {"cpu": str(cpus)}}}
    parameters: Record = {"apiVersion": "cpus.nodeward.io/v1", "kind": "ClaimParameters", parameter: True}
    config: Json = [{"requests": ["cpus"], "opaque": {"driver": "cpus.nodeward.io", "parameters": parameters}}]
    requests: list[Json] = [{"name": "cpus", "exactly": asked}]
    if others := more.pop("requests", None):
        requests += objects(others)
    return claim_template(name, requests, config=config, **more)


def _pod(name: str, template: str, *using: str, cpu: str, others: tuple[str, ...] = ()) -> Record:
    """A pod whose first containers share one claim, and request as much as it has."""
    amounts: Json = {"cpu": cpu, "memory": "32Mi"}
    uses: Json = {"claims": [{"name": "own"}], "requests": amounts, "limits": amounts}
    ones = [*(container(one, resources=uses) for one in using), *(container(one) for one in others)]
    claims: Json = [{"name": "own", "resourceClaimTemplateName": template}]
    return manifest(name, ones, resourceClaims=claims)


def _starts(node: Node, *more: str) -> None:
    root = node.kubelet.plan.folder / "root"
    flags = [word for one in (*_FLAGS, f"keys.kubelet_root={root}", *more) for word in ("--set", one)]
    node.daemon.start("answers", *flags)


def claim_to_cpuset(node: Node) -> None:
    """Two containers of a pod share a claim of two CPUs, a third one has none; a pod that was there shares the rest."""
    lay_topology()
    allow(node.api, node.cluster.daemon_user, "node/claims.yaml")
    make(
        node.api,
        *manifests("node/device-classes.yaml"),
        _template("two", 2, "fullPCPUsOnly"),
        _template("three", 3, "shared"),
    )
    _starts(node)
    until(lambda: _sold(node) == {"cpus-numa-0": "7"}, "the node's CPUs are published", _WITHIN_S)
    (slice_,) = objects(node.api.call("GET", f"{_RESOURCES}/resourceslices").get("items"))
    edited: Record = {"spec": {"devices": []}}
    node.api.call("PATCH", f"{_RESOURCES}/resourceslices/{member(slice_, 'metadata', 'name')}", edited, MERGE)
    until(lambda: _sold(node) == {"cpus-numa-0": "7"}, "and again once somebody has edited them away", _WITHIN_S)
    node.create("web", [container("app", env=[{"name": "DRA_CPUSET_claim", "value": "0"}])])  # nobody heeds this
    web = node.running("web", ["app"]).containers["app"]
    until(lambda: _runs_on(web) == _ALL, "who has no claim has all CPUs", _WITHIN_S)

    node.api.call("POST", f"{PODS}?fieldValidation=Strict", _pod("vm", "two", "app", "side", cpu="1", others=("log",)))
    until(lambda: node.container_ids("vm").keys() >= {"app", "side", "log"}, "the pod runs", _WITHIN_S)
    vm = node.running("vm", ["app", "side", "log"]).containers
    own = _runs_on(vm["app"])
    assert (own.bit_count(), own & 1, _runs_on(vm["side"])) == (2, 0, own), cpuset.text(own)
    assert own in [cpuset.parse(core) for core in ("0-1", "2-3", "4-5", "6-7")], f"a whole core, not {cpuset.text(own)}"
    assert [_runs_on(one) for one in (vm["log"], web)] == [_ALL & ~own] * 2


def others_leave_before_the_program(node: Node) -> None:
    """Two containers share a claim. At the first act of the program of each it is on the claim's CPUs, and no container
    without that claim may run there."""
    web, log = node.pods["web"].containers["app"], node.pods["vm"].containers["log"]
    until(lambda: _runs_on(web) == _runs_on(log), "who has no claim shares the rest", _WITHIN_S)
    folder = CONTAINERD_FOLDER / "acts"
    folder.mkdir()
    host = {"program": compiled(folder), "acts": folder, "cgroups": CGROUPS}
    mounts: Json = [{"name": name, "mountPath": f"/{name}"} for name in host]
    pod = _pod("first", "two", "app", "side", cpu="1")
    spec = pod["spec"]
    assert isinstance(spec, dict)
    spec["volumes"] = [{"name": name, "hostPath": {"path": str(path)}} for name, path in host.items()]
    for one in objects(spec["containers"]):
        one.update(command=["/program", f"/acts/{one['name']}", "/cgroups/kubepods"], volumeMounts=mounts)
    node.api.call("POST", f"{PODS}?fieldValidation=Strict", pod)
    until(lambda: {"app", "side"} <= set(os.listdir(folder)), "both programs have begun", _WITHIN_S)
    own = _runs_on(node.running("first", ["app", "side"]).containers["app"])
    for name in ("app", "side"):
        act = first_act((folder / name).read_text())
        might = {cgroup.rsplit("/", 1)[1]: cpus for cgroup, cpus in act.others.items()}
        assert (act.own, own.bit_count()) == (own, 2), cpuset.text(act.own)
        assert [might[one.name] & own for one in (web, log)] == [0, 0], (cpuset.text(own), act)
    node.delete("first")
    until(
        lambda: _runs_on(web) == _runs_on(log) == _ALL & ~_runs_on(node.pods["vm"].containers["app"]),
        "all is shared again",
        _WITHIN_S,
    )


def restart_moves_nobody(node: Node) -> None:
    """The daemon is killed and begins anew; a second claim has other CPUs."""
    vm, web = node.pods["vm"].containers, node.pods["web"].containers["app"]
    own = _runs_on(vm["app"])
    assert node.daemon.end(signal.SIGKILL) == -signal.SIGKILL
    _starts(node)
    node.api.call("POST", f"{PODS}?fieldValidation=Strict", _pod("more", "three", "app", cpu="3"))
    until(lambda: "app" in node.container_ids("more"), "a second pod with a claim runs", _WITHIN_S)
    may = _runs_on(node.running("more", ["app"]).containers["app"])
    assert may == _ALL & ~own, "its own, and those that all share"
    assert [_runs_on(vm["app"]), _runs_on(vm["side"])] == [own] * 2
    shared = _runs_on(web)
    assert ((may & ~shared).bit_count(), shared & ~may, shared & 1) == (3, 0, 1), cpuset.text(shared)
    assert _runs_on(vm["log"]) == shared


def claims_end(node: Node) -> None:
    """A daemon that begins with another policy leaves claims their CPUs, and sells none. The pods are deleted, one of
    them by force; their CPUs come back, and the other policy begins."""
    web, vm = node.pods["web"].containers["app"], node.pods["vm"].containers["app"]
    own = _runs_on(vm)
    assert node.daemon.end(signal.SIGTERM) == 0
    _starts(node, "policy.active=static")
    until(lambda: _sold(node) == {"cpus-numa-0": ""}, "no more CPUs are sold", _WITHIN_S)
    assert _runs_on(vm) == own
    node.api.call("DELETE", f"{PODS}/more")
    node.delete("vm")
    until(lambda: _runs_on(web) == _ALL, "all CPUs are shared again", _WITHIN_S)
    until(lambda: not _sold(node), "and the other policy is in force", _WITHIN_S)
    assert node.daemon.end(signal.SIGTERM) == 0


def near_a_device(node: Node) -> None:
    """A claim of a CPU and of a device in one constraint: both are of the second NUMA node. Both nodes stay."""
    lay_topology(nodes=1)
    driver = DraDriver("device.example", node.kubelet.plan.folder / "root")
    numa = "resource.kubernetes.io/numaNode"
    own_class: Record = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver.name},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver.name}"'}}]},
    }
    slice_: Record = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "the-devices"},
        "spec": {
            "driver": driver.name,
            "nodeName": NAME,
            "pool": {"name": NAME, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d", "attributes": {numa: {"int": 1}}}],
        },
    }
    others: Json = [{"name": "one", "exactly": {"deviceClassName": driver.name}}]
    near: Json = [{"requests": ["cpus", "one"], "matchAttribute": numa}]
    make(node.api, own_class, _template("near", 1, "shared", requests=others, constraints=near))
    with driver.running():
        _starts(node, "cpus.memory=off")  # the kernel has no such memory nodes
        until(lambda: _sold(node).get("cpus-numa-1") == "4", "the CPUs of both NUMA nodes are published", _WITHIN_S)
        until(lambda: driver.told == [(True, "")], "kubelet has the other driver", _WITHIN_S)
        make(node.api, slice_)
        node.api.call("POST", f"{PODS}?fieldValidation=Strict", _pod("near", "near", "app", cpu="1"))
        until(lambda: "app" in node.container_ids("near"), "the pod runs", _WITHIN_S)
        web = _runs_on(node.pods["web"].containers["app"])
        own = _runs_on(node.running("near", ["app"]).containers["app"]) & ~web
        assert (own.bit_count(), own & ~cpuset.parse("4-7")) == (1, 0), cpuset.text(own)
        assert driver.count("NodePrepareResources") == 1
        node.delete("near")
        until(lambda: _runs_on(node.pods["web"].containers["app"]) == _ALL, "all CPUs are shared again", _WITHIN_S)
        assert node.daemon.end(signal.SIGTERM) == 0


def claims_of_dra_driver_cpu(node: Node) -> None:
    """Its DeviceClass, and the claim and the pod of its example of grouped devices, with fewer CPUs."""
    own_class: Record = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "dra.cpu"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "dra.cpu"'}}]},
    }
    asked: Record = {"deviceClassName": "dra.cpu", "capacity": {"requests": {"dra.cpu/cpu": "4"}}}
    claim: Record = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "claim-cpu-capacity-4", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "req-cpu-slice", "exactly": asked}]}},
    }
    make(node.api, own_class, claim)
    _starts(node, "policy.claims.names=dra-driver-cpu", "cpus.dra.driver=dra.cpu")
    until(
        lambda: _sold(node, "dra.cpu/cpu") == {"cpudevnuma000": "7"},
        "the node's CPUs are published by its names",
        _WITHIN_S,
    )
    amounts: Json = {"cpu": "4", "memory": "32Mi"}
    uses: Json = {"claims": [{"name": "pod-cpu-claim-ref"}], "requests": amounts, "limits": amounts}
    named: Json = [{"name": "pod-cpu-claim-ref", "resourceClaimName": "claim-cpu-capacity-4"}]
    pod = manifest("pod-cpu-dra-claim", [container("workload", resources=uses)], resourceClaims=named)
    node.api.call("POST", f"{PODS}?fieldValidation=Strict", pod)
    until(lambda: "workload" in node.container_ids("pod-cpu-dra-claim"), "its pod runs", _WITHIN_S)
    own = _runs_on(node.running("pod-cpu-dra-claim", ["workload"]).containers["workload"])
    assert (own.bit_count(), own & 1) == (4, 0), cpuset.text(own)
    assert _runs_on(node.pods["web"].containers["app"]) == _ALL & ~own
    node.delete("pod-cpu-dra-claim")
    until(lambda: _runs_on(node.pods["web"].containers["app"]) == _ALL, "all CPUs are shared again", _WITHIN_S)
    assert node.daemon.end(signal.SIGTERM) == 0


CASES: Final[Mapping[str, Callable[[Node], None]]] = {
    "a claim's CPUs are its containers' alone": claim_to_cpuset,
    "others have left a claim's CPUs before its program begins": others_leave_before_the_program,
    "a killed daemon moves nobody, and gives another claim other CPUs": restart_moves_nobody,
    "CPUs come back with the end of their claim, and another policy begins": claims_end,
}
MORE: Final[Mapping[str, Callable[[Node], None]]] = {
    **CASES,
    "a claim for dra-driver-cpu has its CPUs": claims_of_dra_driver_cpu,
    "a claim of a CPU and a device of one NUMA node has both there": near_a_device,
}
