"""The node's `sgx.intel.com/epc`, in step with the enclave memory that there is, in the place of Intel's epchook."""

import asyncio
import os
from collections.abc import Callable, Mapping

from nodeward.core.decision import Special
from nodeward.core.errors import NodewardError
from nodeward.core.modes import EPC_RESOURCE
from nodeward.features.limits.claims import epc_of_node
from nodeward.features.settings import Settings
from nodeward.features.wiring import Node, Wired, name_of_node
from nodeward.host.clock import Clock, SystemClock
from nodeward.neighbours.kubernetes import auth
from nodeward.neighbours.kubernetes.errors import KubeError
from nodeward.neighbours.kubernetes.node_amount import AmountClient
from nodeward.neighbours.kubernetes.owned import Owned
from nodeward.neighbours.kubernetes.settings import KubeSettings

KIND = "epc"
"""Of the change on the undo list."""
NAME = "node-epc"


NONE = "the kernel tells of no enclave memory on this node, so nothing is written"


def client_of(
    settings: Settings, environ: Mapping[str, str], clock: Clock, node: str, cares: Callable[[], bool]
) -> AmountClient:
    """Requests about a node's number."""
    kube = KubeSettings(endpoint=auth.endpoint_of(settings.kube, environ), node_name=node)
    return AmountClient(EPC_RESOURCE, kube, "set limits.node_epc to false", clock, cares)


def remove(settings: Settings, environ: Mapping[str, str], name: str) -> str:
    """Takes the number of this node out of its status if it is ours; what became of it. NodewardError where that cannot
    be done."""
    return asyncio.run(_removed(client_of(settings, environ, SystemClock(), name, lambda: False)))


async def _removed(client: AmountClient) -> str:
    try:
        found = await client.look()
        if found is None or not found.ours:
            return "is not ours any more"
        await client.remove(found)
        return "taken out"
    except KubeError as error:
        raise NodewardError(f"{error}; or by hand: {client.removal(client.name)}") from error
    finally:
        await client.aclose()


def wired(node: Node) -> Wired:
    """The session where the settings choose it; or, where an earlier life has left the number, its removal."""
    left = any(change.target.partition(":")[0] == KIND for change in node.changes)
    if not node.settings.kube.enabled or not (node.settings.limits.node_epc or left):
        return Wired(())
    core, name = node.core, name_of_node(node.settings, os.environ)

    def wanted() -> int | Special | None:
        return epc_of_node(core.state)

    def note(ready: bool, text: str) -> None:
        is_lacking = node.settings.limits.node_epc and wanted() is Special.ABSENT
        node.note(NAME, ready and not is_lacking, NONE if is_lacking else text)

    client = client_of(node.settings, os.environ, node.clock, name, lambda: wanted() is not Special.ABSENT)

    def remember() -> None:
        node.undo.remember(f"{KIND}:{client.name}", "absent")

    return Wired(((NAME, Owned(client, wanted, remember, node.clock, note).run),))
