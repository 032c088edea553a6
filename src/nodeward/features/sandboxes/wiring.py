"""What VM sandboxes need of the daemon: who reads them and their configurations."""

from nodeward.core.modes import Mode
from nodeward.features.wiring import Node, Wired, Wiring
from nodeward.neighbours.cgroups import pod_limits


def _components(node: Node) -> Wired:
    if node.settings.sandboxes.mode is Mode.OFF:
        return Wired(())
    from nodeward.features.sandboxes.effects.watch import Watch  # only where it is chosen

    async def watch() -> None:
        lane = node.lane("sandboxes")
        core, root = node.core, node.settings.cgroups.root
        try:
            await Watch(node.files, root, lane, node.lanes.disk, lambda: core.state, core.tell, node.clock).run()
        finally:
            lane.close(0.0)

    return Wired((("sandboxes", watch),))


WIRING = Wiring(_components, lambda files, tree, _: pod_limits.performers(files, tree.root))
