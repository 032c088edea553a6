"""An extended resource in this node's status, as `owned` keeps it there: a number that no device plugin stands for.

Kubelet sets what it has no plugin for to 0 when it registers a node anew and finds no checkpoint of devices
(k8s.io/kubernetes, pkg/kubelet/kubelet_node_status.go, reconcileExtendedResource); from then on it leaves the number
alone, and makes allocatable of it. Must not: write where somebody else keeps another number.
"""

from collections.abc import Callable

import msgspec

from nodeward.host.clock import Clock
from nodeward.neighbours.formats import kube_node
from nodeward.neighbours.kubernetes.errors import KubeError, KubeMissingError, errors_of
from nodeward.neighbours.kubernetes.events import MERGE_PATCH
from nodeward.neighbours.kubernetes.owned import OURS, Found, ObjectKind, OwnedClient
from nodeward.neighbours.kubernetes.settings import KubeSettings


class RivalError(KubeError):
    """Somebody else writes another number."""


def amount_of_node(setting: str) -> ObjectKind[int]:
    """A Node, as far as the number goes. `setting`: how it is not wanted any more, in words."""
    return ObjectKind(
        "Node",
        "v1",
        "nodes",
        setting=setting,
        unserved="",
        said=lambda amount: {"amount": amount},
        needs="get and watch on nodes, and patch on nodes/status",
    )


class AmountClient(OwnedClient[int]):
    """Requests about one resource of a node."""

    def __init__(
        self, resource: str, settings: KubeSettings, setting: str, clock: Clock, cares: Callable[[], bool]
    ) -> None:
        """`cares`: whether a number is wanted. Then the number is in our care whoever wrote it; else only what we did
        is ours to take out."""
        super().__init__(amount_of_node(setting), settings.node_name, settings, clock)
        self._resource, self._cares = resource, cares

    @property
    def title(self) -> str:
        """The number in words."""
        return f"{self._resource} of the node {self.name}"

    def _found(self, data: bytes) -> Found:
        of = kube_node.on_node(data, self._resource)
        fields = {"amount": str(of.amount).encode()}
        others = (of.writer,) if of.writer not in ("", OURS) and not of.by_kubelet else ()
        return Found("", kube_node.version_of(data), of.writer == OURS or self._cares(), others, fields)

    async def write(self, wanted: int, old: Found | None) -> bool:
        """Writes the number; RivalError where somebody else keeps another one."""
        if old is None:
            raise KubeMissingError(f"the API server has no node {self.name}: is that its name (node_name)?")
        if old.others and not old.says(self.kind, 0):
            number = old.fields["amount"].decode()
            raise RivalError(
                f"{self.title} is {number} by {old.others[0]}, and the kernel has {wanted}: let one alone write it, or "
                f"{self.kind.setting}; if that program is gone, take its number out: {self.removal(self.name)}"
            )
        await self._patch(str(wanted))
        return True

    async def remove(self, found: Found) -> None:
        """Takes the number out of the status."""
        await self._patch(None)

    def removal(self, node: str) -> str:
        """How a person takes the number out of the status."""
        return f"kubectl patch node {node} --subresource=status --type=merge -p '{self._body(None).decode()}'"

    def _body(self, amount: str | None) -> bytes:
        of = {self._resource: amount}
        return msgspec.json.encode({"status": {"capacity": of, "allocatable": of}})

    async def _patch(self, amount: str | None) -> None:
        body = self._body(amount)
        path = f"{self._path}/status?fieldManager={OURS}"
        with errors_of(f"PATCH {path}", self.kind.rights):
            await self._http.ask(
                path, body, "PATCH", MERGE_PATCH, waits=self._settings.request, max_bytes=kube_node.MAX_BYTES
            )
