"""What CPUs need of the daemon: who writes cpusets, who reads topology and use, who finds drift."""

import os
from collections.abc import Mapping

from nodeward.core.modes import Mode
from nodeward.core.ports import Perform
from nodeward.features.cpus import claims
from nodeward.features.cpus.effects.watch import watch_drift, watch_memory, watch_topology, watch_use
from nodeward.features.cpus.values import Ground
from nodeward.features.root import State
from nodeward.features.wiring import Component, Node, Remember, Wired, Wiring
from nodeward.host.hostfs import HostFiles
from nodeward.host.slots import ByEdge
from nodeward.neighbours.cgroups import cpusets
from nodeward.neighbours.cgroups.hierarchy import Tree

CDI_DIR = "/run/cdi"
"""Nothing is written there: containers learn their CPUs from the kernel."""


def _components(node: Node) -> Wired:
    parts: tuple[Component, ...] = (
        ("topology", lambda: watch_topology(node.files, node.lanes.disk, node.core, node.clock)),
        (
            "cpusets",
            lambda: watch_drift(node.files, node.settings.cgroups.root, node.lanes.cgroup, node.core, node.clock),
        ),
        ("use", lambda: watch_use(node.files, node.lanes.disk, node.core, node.clock)),
        (
            "memory",
            lambda: watch_memory(node.files, node.settings.cgroups.root, node.lanes.disk, node.core, node.clock),
        ),
    )
    if not node.settings.kube.enabled:
        return Wired(parts)
    from nodeward.features.cpus.effects import kubevirt_label, topology_object

    told = topology_object.wired(node)
    sold = _by_claim(node)
    every = (*parts, *told.components, *kubevirt_label.wired(node).components, *sold.components)
    return Wired(every, (*told.withdraw, *sold.withdraw))


def _by_claim(node: Node) -> Wired:
    dra = node.settings.cpus.dra
    wants = node.settings.cpus.mode is not Mode.OFF and dra.mode is Mode.ENFORCE
    if not wants and not node.changes:
        return Wired(())
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from nodeward.features import by_claim

    def health(state: State) -> list[tuple[str, bool, str]]:
        machine = state.cpus.machine
        return [(name, True, "") for name in claims.devices(Ground(machine, state.cpus.rules))] if machine else []

    sold = by_claim.Sold(
        *("cpus", dra.driver, CDI_DIR, "cpus.dra.mode", claims.KIND, wants),
        is_sold=claims.are_sold,
        is_known=lambda state: state.cpus.by_claim.recalled,
        promised=lambda state: state.cpus.by_claim.claims,
        edits=lambda _, __: {},
        health=health,
    )
    return by_claim.wired(node, sold)


def _performers(files: HostFiles, tree: Tree, _: Remember) -> Mapping[str, Perform | ByEdge]:
    return {**cpusets.performers(files, tree.root), claims.KIND: ByEdge(claims.KIND)}


WIRING = Wiring(_components, _performers)
