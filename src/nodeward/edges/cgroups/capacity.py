"""What the node has of each misc resource, by the root's files.

Apart from the sampler: the relay reads nothing else, and its imports are time before kubelet's first call.
"""

from nodeward.aio.hostfs import HostFiles
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.model.events import CapacityRead
from nodeward.model.hierarchy import Hierarchy
from nodeward.wire import misc_files
from nodeward.wire.errors import WireError


def read_capacity(files: HostFiles, tree: Tree) -> CapacityRead:
    """What the node has of each misc resource. Where that cannot be read the tree is looked for again; no controller
    where it is nowhere."""
    found = _capacity(files, tree.now) or _capacity(files, tree.look())
    return found or CapacityRead(controller=False, tree=tree.now)


def _capacity(files: HostFiles, tree: Hierarchy) -> CapacityRead | None:
    try:
        capacity = misc_files.parse(files.read(f"{tree.root}/misc.capacity", misc_files.MAX_BYTES))
    except (OSError, WireError):
        return None
    try:
        usage = misc_files.parse(files.read(f"{tree.root}/misc.current", misc_files.MAX_BYTES))
    except (OSError, WireError):
        usage = {}  # the root has misc.current since Linux 6.6
    return CapacityRead(controller=True, capacity=capacity, usage=usage, tree=tree)
