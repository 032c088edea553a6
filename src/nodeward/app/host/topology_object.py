"""Where our NodeResourceTopology object stands on the undo list, and its removal by `nodeward uninstall`."""

import asyncio
from collections.abc import Mapping

from nodeward.aio.clock import Clock, SystemClock
from nodeward.app.settings.load import name_of_node
from nodeward.edges.kube import auth
from nodeward.edges.kube.settings import KubeSettings
from nodeward.edges.kube.topology_object import TopologyObjectClient
from nodeward.model.settings import Settings

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
