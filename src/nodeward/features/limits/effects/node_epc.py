"""The node's `sgx.intel.com/epc`, in step with the enclave memory that there is, in the place of Intel's epchook."""

import asyncio
import os
from collections.abc import Mapping
from functools import partial

from nodeward.core.decision import Special
from nodeward.core.modes import EPC_RESOURCE
from nodeward.features.limits.claims import epc_of_node
from nodeward.features.settings import Settings
from nodeward.features.wiring import Node, Wired, name_of_node
from nodeward.host.clock import Clock, SystemClock
from nodeward.neighbours.kubernetes import auth
from nodeward.neighbours.kubernetes.node_amount import AmountClient
from nodeward.neighbours.kubernetes.owned import Owned
from nodeward.neighbours.kubernetes.settings import KubeSettings

KIND = "epc"
"""Of the change on the undo list."""
NAME = "node-epc"


def client_of(settings: Settings, environ: Mapping[str, str], clock: Clock, node: str = "") -> AmountClient:
    """Requests about a node's number; without a name, about this node's."""
    node = node or name_of_node(settings, environ)
    kube = KubeSettings(endpoint=auth.endpoint_of(settings.kube, environ), node_name=node)
    return AmountClient(EPC_RESOURCE, kube, "set limits.node_epc to false", clock)


def remove(settings: Settings, environ: Mapping[str, str], name: str) -> str:
    """Takes the number of this node out of its status if it is ours; what became of it. NodewardError where that cannot
    be done."""
    return asyncio.run(_removed(client_of(settings, environ, SystemClock(), name)))


async def _removed(client: AmountClient) -> str:
    try:
        found = await client.look()
        if found is None or not found.ours or found.others:
            return "is not ours any more"
        await client.remove(found)
        return "taken out"
    finally:
        await client.aclose()


def wired(node: Node) -> Wired:
    """The session where the settings choose it; or, where an earlier life has left the number, its removal."""
    left = any(change.target.partition(":")[0] == KIND for change in node.changes)
    if not node.settings.kube.enabled or not (node.settings.limits.node_epc or left):
        return Wired(())
    client, core = client_of(node.settings, os.environ, node.clock), node.core

    def wanted() -> int | Special | None:
        return epc_of_node(core.state)

    def remember() -> None:
        node.undo.remember(f"{KIND}:{client.name}", "absent")

    session = Owned(client, wanted, remember, node.clock, partial(node.note, NAME))
    return Wired(((NAME, session.run),), (session.retire,))
