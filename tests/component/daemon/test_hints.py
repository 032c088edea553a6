"""Containers near what they use: the whole daemon by NRI, with devices in sysfs and a kubelet that answers or does not.

The machine has two sockets of two NUMA nodes; the disk 8:1 is near node 2, the network function 10:7 near node 1.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.contracts import nri_pb2
from nodeward.contracts import podresources_pb2 as pb
from nodeward.core.cpuset import parse
from nodeward.features.cpus.pool_settings import BalloonsSettings, BalloonType
from nodeward.features.cpus.settings import Amount, AmountKind, PolicySettings
from nodeward.features.settings import Settings
from nodeward.neighbours.kubelet import checkpoint_file
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcError, GrpcServer
from nodeward_sim.doubles.cpus import Plan
from nodeward_sim.doubles.runtime import SimContainer, SimCpu, SimPod
from nodeward_sim.doubles.runtime_plugins import RuntimeRefusalError
from tests.component.daemon.rig import Rig, changed, rig
from tests.component.daemon.test_balloons import cpus
from tests.unit.formats import checkpoints

NODES = [parse(cpus) for cpus in ("1-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31")]
GPU, DOMAIN = "vendor.com/gpu", "resource-policy.nri.io"
SYSFS = {
    "/sys/devices/pci0000:80/0000:80:01.0/local_cpulist": "8-11,24-27",
    "/sys/devices/pci0000:80/0000:80:01.0/block/sda/sda1/partition": "1",
    "/sys/devices/pci0000:00/0000:00:02.0/numa_node": "1",
    "/sys/devices/pci0000:00/0000:00:02.0/misc/vf/dev": "10:7",
    "/sys/devices/virtual/mem/null/dev": "1:3",
    "/proc/1/mountinfo": "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n26 25 8:1 / /data rw - ext4 /dev/sda1 rw\n",
}
LINKS = {
    "/sys/dev/block/8:1": "/sys/devices/pci0000:80/0000:80:01.0/block/sda/sda1",
    "/sys/dev/char/10:7": "/sys/devices/pci0000:00/0000:00:02.0/misc/vf",
    "/sys/dev/char/1:3": "/sys/devices/virtual/mem/null",
}
DISK = nri_pb2.Mount(destination="/data", source="/data/pv1", options=["rbind", "rw"])
PROC = nri_pb2.Mount(destination="/proc", type="proc", source="proc")
VF = nri_pb2.LinuxDevice(path="/dev/vf", type="c", major=10, minor=7)


class Kubelet:
    """Says of each pod which NUMA node its container's device is at."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}
        self.why = ""
        self.hangs = False

    async def get(self, request: bytes) -> bytes:
        name = pb.GetPodResourcesRequest.FromString(request).pod_name
        if self.hangs:
            await asyncio.Event().wait()
        if self.why:
            raise GrpcError(Code.INTERNAL, self.why)
        made = pb.PodResources(name=name, namespace="shop")
        device = made.containers.add(name="app").devices.add(resource_name=GPU, device_ids=[name])
        device.topology.nodes.add(ID=self.at.get(name, 0))
        return pb.GetPodResourcesResponse(pod_resources=made).SerializeToString()


TREE = PolicySettings("topology-aware", reserved=Amount(AmountKind.CPUSET, 1), pod_resources=True)


@asynccontextmanager
async def node(folder: Path, rules: PolicySettings) -> AsyncIterator[tuple[Rig, Kubelet]]:
    kubelet, root = Kubelet(), folder / "kubelet"
    (root / "pod-resources").mkdir(parents=True)
    server = GrpcServer("v1.PodResourcesLister", {"Get": kubelet.get})
    await server.start(str(root / "pod-resources" / "kubelet.sock"))

    change = changed(policy=rules, keys=replace(Settings().keys, kubelet_root=str(root)))
    try:
        async with rig(folder, change=change, machine=Plan(), sysfs=SYSFS, links=LINKS) as made:
            yield made, kubelet
    finally:
        await server.stop()


async def begun(daemon: Rig, pod: str, uid: str = "", **notes: str) -> str:
    """The CPUs that the kernel has for a container with a disk and a function, once it runs."""
    uid = uid or f"u-{pod}"
    rows = [checkpoints.entry(f"u-{one}", {"0": [one]}, GPU, "app") for one in ("gpu", "strict", "late")]
    daemon.kernel.lay({f"/var/lib/kubelet/{checkpoint_file.PLACE}": checkpoints.file(rows, {}).decode()})
    annotations = {f"{word.replace('_', '.')}.{DOMAIN}": value for word, value in notes.items()}
    home = SimPod(uid, pod, "shop", annotations=annotations, cgroup_parent=f"/kubepods/pod{uid}")
    app = SimContainer("app", cpu=SimCpu(2 * 1024, 2 * 100_000, 100_000), devices=(VF,), mounts=(DISK, PROC))
    container = await daemon.runtime.create_container(await daemon.runtime.run_pod(home), app)
    await daemon.runtime.start(container)
    return cpus(daemon, daemon.runtime.cgroup(container))


def of_node(cpus: str) -> list[int]:
    return [i for i, near in enumerate(NODES) if not parse(cpus) & ~near]


async def test_a_container_goes_where_kubelet_its_devices_and_its_mounts_are(tmp_path: Path) -> None:
    async with node(tmp_path, TREE) as (daemon, kubelet):
        kubelet.at["gpu"] = 3
        assert of_node(await begun(daemon, "gpu", topologyhints="pod-resources")) == [3]
        assert of_node(await begun(daemon, "disk", topologyhints="mounts")) == [2]
        assert of_node(await begun(daemon, "vf", topologyhints="devices")) == [1]
        rule = "{type: prefix, paths: [/sys/devices/pci0000:00/]}"
        denied = {"deny_topologyhints": rule, "topologyhints": "devices,mounts"}
        assert of_node(await begun(daemon, "denied", **denied)) == [2]


@pytest.mark.parametrize("how", ["away", "late", "of another pod"])
async def test_a_kubelet_that_does_not_tell_costs_nothing_but_who_must_be_near_is_refused(
    tmp_path: Path, how: str
) -> None:
    async with node(tmp_path, TREE) as (daemon, kubelet):
        kubelet.why, kubelet.hangs, kubelet.at["late"] = "no" if how == "away" else "", how == "late", 3
        new = "new-" if how == "of another pod" else ""  # the checkpoint names the pod that had the name before
        assert of_node(await begun(daemon, "late", uid=f"u-{new}late", topologyhints="pod-resources")) == [1]
        strict = {"topologyhints": "pod-resources", "strict_topologyhints": "true"}
        with pytest.raises(RuntimeRefusalError, match=r"strict\.topologyhints.*PodResources did not tell in time"):
            await begun(daemon, "strict", f"u-{new}strict", **strict)


async def test_balloons_are_made_near_devices_and_away_from_those_of_others(tmp_path: Path) -> None:
    by_kubelet, by_path = ("podresourceapi:vendor.com/*",), ("/sys/dev/block/8:1", "/dev/nosuch")
    near = BalloonType("near", ("shop",), prefer_new_balloons=True, prefer_close_to_devices=by_kubelet)
    disk = BalloonType("disk", min_balloons=1, min_cpus=2, prefer_close_to_devices=by_path)
    rules = replace(TREE, active="balloons", balloons=BalloonsSettings(balloon_types=(disk, near)))
    async with node(tmp_path, rules) as (daemon, kubelet):
        kubelet.at["gpu"] = 3
        assert of_node(await begun(daemon, "gpu")) == [3]
        view = (await daemon.ask())["cpus"]
        (row,) = (row for row in view["pools"] if row["name"] == "disk[0]")
        assert of_node(row["cpus"]) == [2]
