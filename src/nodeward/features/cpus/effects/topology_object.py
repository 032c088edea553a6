"""This node's NodeResourceTopology object, in step with its CPUs. What a zone is `features.cpus.zones` says."""

import asyncio
import os
from collections.abc import Mapping
from functools import partial

from nodeward.core.decision import Special
from nodeward.core.topology import NodeZones
from nodeward.features.cpus.zones import NOTHING, zones
from nodeward.features.settings import Settings
from nodeward.features.wiring import Node, Wired, name_of_node
from nodeward.host.clock import Clock, SystemClock
from nodeward.neighbours.kubernetes import auth
from nodeward.neighbours.kubernetes.owned import Owned, OwnedClient, removed
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.kubernetes.topology_object import TOPOLOGY

KIND = "nrt"
"""Of the change on the undo list."""
NAME = "topology-object"


def client_of(settings: Settings, environ: Mapping[str, str], clock: Clock, node: str = "") -> OwnedClient[NodeZones]:
    """Requests about a node's object; without a name, about this node's."""
    node = node or name_of_node(settings, environ)
    endpoint = auth.endpoint_of(settings.kube, environ)
    return OwnedClient(TOPOLOGY, node, KubeSettings(endpoint=endpoint, node_name=node), clock)


def remove(settings: Settings, environ: Mapping[str, str], name: str) -> str:
    """Deletes the object of this name if it is ours; what became of it. NodewardError where that cannot be done."""
    return asyncio.run(removed(client_of(settings, environ, SystemClock(), name)))


def wired(node: Node) -> Wired:
    """The session where the settings choose it; or, where an earlier life has left the object, its removal."""
    enabled = node.settings.topology_objects.enabled
    left = any(change.target.partition(":")[0] == KIND for change in node.changes)
    if not node.settings.kube.enabled or not (enabled or left):
        return Wired(())
    client, core = client_of(node.settings, os.environ, node.clock), node.core
    of, last = core.state, zones(core.state) if enabled else NOTHING

    def wanted() -> NodeZones | Special | None:
        """Made anew only where what it is made of is another object."""
        nonlocal of, last
        now = core.state
        is_same = now.cpus is of.cpus and now.settings is of.settings and now.pods.runtime == of.pods.runtime
        if enabled and not is_same:
            of, last = now, zones(now)
        return last if last is None or last.zones else Special.ABSENT

    def remember() -> None:
        node.undo.remember(f"{KIND}:{client.name}", "absent")

    session = Owned(client, wanted, remember, node.clock, partial(node.note, NAME))
    return Wired(((NAME, session.run),), (session.retire,))
