"""Finds our NodeFeature object, for the daemon and for `nodeward uninstall`."""

import asyncio
from collections.abc import Mapping

from nodeward import __version__
from nodeward.features.settings import Settings
from nodeward.features.wiring import name_of_node
from nodeward.host.clock import SystemClock
from nodeward.neighbours.kubernetes import auth
from nodeward.neighbours.nfd.client import NfdClient, ObjectPlace
from nodeward.neighbours.sockets.kube_http import KubeHttp, Waits

NAMESPACE = "nodeward"
"""Where there is no pod that says another: that of the manifests."""
WAITS = Waits(connect_s=5.0, read_s=10.0, total_s=10.0)


def place(settings: Settings, environ: Mapping[str, str]) -> ObjectPlace:
    """The place of our object, by the variables of the manifests where the daemon is a pod."""
    namespace = environ.get("POD_NAMESPACE", "")
    return ObjectPlace(
        name_of_node(settings, environ), namespace or NAMESPACE, environ.get("POD_NAME", "") if namespace else ""
    )


def target(of: ObjectPlace) -> str:
    """The change on the undo list."""
    return f"nfd:{of.namespace}/{of.name}"


def remove(settings: Settings, environ: Mapping[str, str], path: str) -> str:
    """Deletes the object NAMESPACE/NAME if it is ours; what became of it. NodewardError where that cannot be done."""
    return asyncio.run(_remove(settings, environ, path))


async def _remove(settings: Settings, environ: Mapping[str, str], path: str) -> str:
    namespace, _, name = path.partition("/")
    endpoint = auth.endpoint_of(settings.kube, environ)
    async with KubeHttp(endpoint, SystemClock(), user_agent=f"nodeward/{__version__}") as http:
        client = NfdClient(http, ObjectPlace(name_of_node(settings, environ), namespace), WAITS)
        found = await client.named(name)
        if found is None:
            return "is gone already"
        await client.remove(found)
        return "deleted"
