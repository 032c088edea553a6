"""Goals for tests, written as a log prints their targets."""

from collections.abc import Callable

from nodeward.core.decision import Target
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane
from nodeward.host.slots import ByEdge, Slots
from nodeward.host.undo import UndoList
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.cgroups.writer import performers


def target(text: str) -> Target:
    """`misc.max:RESOURCE:PATH`, `subtree:PATH`, `offer:RESOURCE`, `nfd:KEY`."""
    kind, _, rest = text.partition(":")
    resource, _, where = rest.partition(":") if kind == "misc.max" else ("", "", rest)
    return Target(kind, where, resource)


def slots_of(
    lane: Lane,
    files: HostFiles,
    clock: Clock,
    undo: UndoList | None = None,
    later: Callable[[Callable[[], None]], object] = lambda call: call(),
    tree: Tree | None = None,
) -> Slots:
    """The slots of a daemon on these files, with an edge that takes device lists."""
    undo = undo or UndoList(files, "/var/lib/nodeward")
    on_lane = performers(files, tree or Tree(files, "/sys/fs/cgroup"), undo.remember)
    return Slots(lane, {**on_lane, "offer": ByEdge("offer")}, clock, later)
