"""Where our NodeResourceTopology object stands on the undo list, and its removal by `nodeward uninstall`."""

import asyncio
from collections.abc import Mapping

from nodeward.features.settings import Settings
from nodeward.features.wiring import name_of_node
from nodeward.host.clock import Clock, SystemClock
from nodeward.neighbours.kubernetes import auth
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.kubernetes.topology_object import TopologyObjectClient

KIND = "nrt"
"""Of the change on the undo list."""


def client(settings: Settings, environ: Mapping[str, str], clock: Clock, node: str = "") -> TopologyObjectClient:
    """Requests about a node's object; without a name, about this node's."""
    endpoint = auth.endpoint_of(settings.kube, environ)
    return TopologyObjectClient(
        KubeSettings(endpoint=endpoint, node_name=node or name_of_node(settings, environ)), clock
    )


def remove(settings: Settings, environ: Mapping[str, str], name: str) -> str:
    """Deletes the object of this name if it is ours; what became of it. NodewardError where that cannot be done."""
    return asyncio.run(_remove(client(settings, environ, SystemClock(), name)))


async def _remove(one: TopologyObjectClient) -> str:
    try:
        found = await one.look()
        if found is None:
            return "is gone already"
        await one.remove(found)
        return "deleted"
    finally:
        await one.aclose()
