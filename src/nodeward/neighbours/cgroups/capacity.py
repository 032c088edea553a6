"""What the node has of each misc resource, by the root's files.

Apart from the sampler: the relay reads nothing else, and its imports are time before kubelet's first call.
"""

from nodeward.core.cgroup import Hierarchy
from nodeward.core.events import CapacityRead
from nodeward.core.wire_errors import WireError
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.formats import misc_files


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
