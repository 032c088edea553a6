"""Reads the Node's status: who registered a resource, and what is allocatable.

The first is asked before a registration alone, so each read has a connection of its own. An API server that is away
keeps nobody from registering: within READ_S it is as though the status had nothing. The second is read again and again:
a watch on it would need the right to list nodes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from random import random

from nodeward import __version__
from nodeward.core.errors import WireError
from nodeward.core.vms import Allocatable
from nodeward.features.settings import Settings
from nodeward.features.wiring import FIRST_PAUSE_S, LAST_PAUSE_S, name_of_node
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.neighbours.formats import kube_node
from nodeward.neighbours.formats.kube_node import OnNode
from nodeward.neighbours.kubernetes import auth
from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.sockets.kube_http import KubeHttp, KubeHttpError, KubeRefusedError, Waits

log = logging.getLogger(__name__)
READ_S = 3.0
AGAIN_S = 300.0
"""Between reads of what is allocatable: kubelet writes the status of a node that does not change every 300 s, too."""
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
            log.log(
                logging.WARNING if _is_refused(error) else logging.INFO,
                "resource=%s node=unread why=%r so='who else offers it shows in kubelet's folder alone'",
                resource,
                str(error) or f"no answer within {READ_S:g} s",
            )
            return OnNode()

    return read


async def keep_allocatable(client: PodsClient, learn: Callable[[Allocatable], None], clock: Clock) -> None:
    """Reads what the Node object calls allocatable, until cancelled. A read that fails leaves what was learnt."""
    path, delays, said = f"/api/v1/nodes/{client.settings.node_name}", Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random), ""
    while True:
        level, pause_s = logging.INFO, AGAIN_S
        try:
            data = await client.http.get(path, {}, waits=client.settings.request, max_bytes=kube_node.MAX_BYTES)
            found = kube_node.allocatable(data)
            learn(found)
            delays.reset()
            now = f"allocatable=read cpu_m={found.cpu_m} memory={found.memory}"
        except (KubeHttpError, WireError) as error:
            level, pause_s = logging.WARNING if _is_refused(error) else logging.INFO, delays.next_s()
            now = f"allocatable=unread why={str(error)!r} so what was read before bounds sizes of VMs, else the machine"
            now += ". Grant `get` on `nodes`." if _is_refused(error) else ""
        if now != said:
            log.log(level, "%s", now)
        said = now
        await clock.sleep(pause_s)


def _is_refused(error: Exception) -> bool:
    return isinstance(error, KubeRefusedError) and error.status in (401, 403)


async def _nobody(_: str) -> OnNode:
    return OnNode()
