"""What the domain `sandboxes` needs: who reads VM sandboxes and their configurations."""

from nodeward.app.node.wiring import Node, Wired, Wiring


def _components(_: Node) -> Wired:
    return Wired(())


WIRING = Wiring(_components)
