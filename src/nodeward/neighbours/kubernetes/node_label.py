"""KubeVirt's labels of this node for VMs with dedicated CPUs, as `owned` keeps them there.

KubeVirt's virt-handler writes both every one or two minutes: "true" where kubelet's file `cpu_manager_state` says that
the policy of its CPU manager is static, else "false" (kubevirt.io/kubevirt, pkg/virt-handler/heartbeat). Older releases
know the first label only; releases from 1.8 on choose nodes by the second.

Must not: change another label, or take away what somebody else has written last.
"""

from collections.abc import Callable

import msgspec

from nodeward.host.clock import Clock
from nodeward.neighbours.formats import kube_node
from nodeward.neighbours.kubernetes.errors import KubeMissingError
from nodeward.neighbours.kubernetes.events import MERGE_PATCH
from nodeward.neighbours.kubernetes.owned import OURS, Found, ObjectKind, OwnedClient
from nodeward.neighbours.kubernetes.settings import KubeSettings

LABELS = ("cpumanager", "kubevirt.io/cpumanager")


def _labels_of_node(setting: str) -> ObjectKind[str]:
    """A Node, as far as these labels go. `setting`: how they are not wanted any more, in words."""
    return ObjectKind(
        "Node",
        "v1",
        "nodes",
        setting=setting,
        unserved="",
        said=lambda value: dict.fromkeys(LABELS, value),
        needs="get, watch and patch on nodes",
    )


class LabelClient(OwnedClient[str]):
    """Requests about these labels of a node. They have one value."""

    def __init__(self, settings: KubeSettings, setting: str, clock: Clock, cares: Callable[[], bool]) -> None:
        """`cares`: whether the labels are wanted. Then they are in our care whoever wrote them; else only those that we
        wrote last are ours to take away."""
        super().__init__(_labels_of_node(setting), settings.node_name, settings, clock)
        self._cares = cares
        self._ours: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The labels in words."""
        return f"the label {LABELS[0]} of the node {self.name}"

    def _found(self, data: bytes) -> Found:
        labels, ours = kube_node.labels_on_node(data, OURS)
        self._ours = tuple(name for name in LABELS if name in ours)
        fields = {name: msgspec.json.encode(labels.get(name)) for name in LABELS}
        return Found("", kube_node.version_of(data), bool(self._ours) or self._cares(), (), fields)

    async def write(self, wanted: str, old: Found | None) -> bool:
        """Sets the labels."""
        if old is None:
            raise KubeMissingError(f"the API server has no node {self.name}: is that its name (node_name)?")
        return await self._patch(LABELS, wanted)

    async def remove(self, found: Found) -> None:
        """Takes away those that we wrote last."""
        await self._patch(self._ours, None)

    async def take_back(self) -> str:
        """Takes away those that we wrote last, and ends the client; what became of them. KubeError where that cannot be
        done."""
        try:
            found = await self.look()
            if found is None or not self._ours:
                return "is not ours any more"
            await self.remove(found)
            return "taken away"
        finally:
            await self.aclose()

    async def _patch(self, names: tuple[str, ...], value: str | None) -> bool:
        body = msgspec.json.encode({"metadata": {"labels": dict.fromkeys(names, value)}})
        return await self._send("PATCH", f"{self._path}?fieldManager={OURS}", body, MERGE_PATCH) is not None
