"""The sections of devices and NUMA nodes, by a list of kubelet's that a test makes."""

import asyncio

from nodeward.app.node.pod_devices import PodDevices
from nodeward.model.pod_devices import ContainerNuma, Judged
from nodeward.model.workload import PodUid
from nodeward.proto import podresources_pb2 as pb
from tests.unit.engine.build import ManualClock

POD = pb.PodResources(namespace="shop", name="vm", cpu_ids=[2, 3])


class Listed(PodDevices):
    """Kubelet lists one pod without devices, whose name is now of the UID `uid`."""

    def __init__(self, uid: str | None) -> None:
        self._clock, self._listing, self._listed_ns = ManualClock(), None, 0
        self._uid = PodUid(uid) if uid is not None else None

    async def _list(self) -> tuple[dict[tuple[str, str], list[tuple[pb.PodResources, Judged]]], int]:
        return {("shop", "vm"): [(POD, Judged(self._uid))]}, 7


def test_cpus_of_a_pod_that_has_taken_over_the_name_are_not_shown() -> None:
    async def numa(now: str | None) -> object:
        section = (await Listed(now).sections("u", "shop", "vm"))[1]
        return section.value.containers if section.value is not None else section.why

    for own in ("u", None):  # None: no API server has told
        assert asyncio.run(numa(own)) == (ContainerNuma("", (2, 3), ()),)
    assert asyncio.run(numa("u-new")) == "another pod has this name by now"
