"""What CPUs need of the daemon: who writes cpusets, who reads topology and use, who finds drift."""

from nodeward.features.cpus.effects.watch import watch_drift, watch_memory, watch_topology, watch_use
from nodeward.features.wiring import Component, Node, Wired, Wiring
from nodeward.neighbours.cgroups import cpusets


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
            lambda: watch_memory(node.files, node.settings.cgroups.root, node.lanes.cgroup, node.core, node.clock),
        ),
    )
    if not node.settings.kube.enabled:
        return Wired(parts)
    from nodeward.features.cpus.effects import kubevirt_label, topology_object

    told = topology_object.wired(node)
    return Wired((*parts, *told.components, *kubevirt_label.wired(node).components), told.withdraw)


WIRING = Wiring(_components, lambda files, tree, _: cpusets.performers(files, tree.root))
