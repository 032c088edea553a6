"""What the node's status has of a resource that is about to be registered, read from the API server.

Asked before a registration alone, so each read has a connection of its own. An API server that is away keeps nobody
from registering: within READ_S it is as though the status had nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from nodeward import __version__
from nodeward.aio.clock import Clock
from nodeward.app.settings.load import name_of_node
from nodeward.edges.kube import auth
from nodeward.model.settings import Settings
from nodeward.transport.kube_http import KubeHttp, KubeHttpError, KubeRefusedError, Waits
from nodeward.wire import kube_node
from nodeward.wire.errors import WireError
from nodeward.wire.kube_node import OnNode

log = logging.getLogger(__name__)
READ_S = 3.0
_WAITS = Waits(connect_s=1.0, read_s=2.0, total_s=2.0)


def reader(settings: Settings, environ: Mapping[str, str], clock: Clock) -> Callable[[str], Awaitable[OnNode]]:
    """Reads it by the resource's name; nothing where the settings have no API server."""
    if not settings.kube.enabled:
        return _nobody
    endpoint, name = auth.endpoint_of(settings.kube, environ), name_of_node(settings, environ)

    async def read(resource: str) -> OnNode:
        try:
            async with asyncio.timeout(READ_S), KubeHttp(endpoint, clock, user_agent=f"nodeward/{__version__}") as http:
                data = await http.get(f"/api/v1/nodes/{name}", {}, waits=_WAITS, max_bytes=kube_node.MAX_BYTES)
                return kube_node.on_node(data, resource)
        except (TimeoutError, KubeHttpError, WireError) as error:
            refused = isinstance(error, KubeRefusedError) and error.status in (401, 403)
            log.log(
                logging.WARNING if refused else logging.INFO,
                "resource=%s node=unread why=%r so='who else offers it shows in kubelet's folder alone'",
                resource,
                str(error) or f"no answer within {READ_S:g} s",
            )
            return OnNode()

    return read


async def _nobody(_: str) -> OnNode:
    return OnNode()
