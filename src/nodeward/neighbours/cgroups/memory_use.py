"""Reads how much memory cgroups use on each NUMA node (`memory.numa_stat`, cgroup v2). Synchronous; for a lane.

Counted are the lines that add up to the cgroup's charge; the others are parts of these (shmem, file_mapped, the lists
of active pages) or events. Sockets, vmalloc and percpu memory have no node, and are not counted. A cgroup whose file is
missing or damaged has no entry: its use is not known. The file of this name in cgroup v1 counts pages and is not read.
Source: Documentation/admin-guide/cgroup-v2.rst (memory.numa_stat).
"""

import re
from collections.abc import Mapping
from typing import TypeVar

from nodeward.core.errors import WireError
from nodeward.core.topology import MOST_NODES
from nodeward.host.hostfs import HostFiles

FILE = "memory.numa_stat"
MAX_BYTES = 1024 * 1024
"""Some 45 lines with up to 25 bytes for each node."""
_MUST = (b"anon", b"file")
_LINE = re.compile(
    rb"^(anon|file|kernel_stack|pagetables|sec_pagetables|slab_reclaimable|slab_unreclaimable|hugetlb)(?!\w)(.*)$",
    re.MULTILINE,
)
_NODE = re.compile(rb" N(\d{1,4})=(\d{1,19})")
K = TypeVar("K")


def parse(data: bytes) -> dict[int, int]:
    """Bytes in use on each node. WireError for what is not the kernel's file, or is cut short."""
    if not data.endswith(b"\n"):
        raise WireError(FILE, f"{len(data)} bytes, whose last line has no end: it may be cut short")
    used, seen = dict[int, int](), dict[bytes, None]()
    for line in _LINE.finditer(data):
        at = line.start(2)
        for found in _NODE.finditer(data, at, line.end()):
            if found.start() != at:
                break
            at, node = found.end(), int(found[1])
            used[node] = used.get(node, 0) + int(found[2])
            if node >= MOST_NODES or used[node] >> 63:
                raise WireError(FILE, f"{found[0]!r}: no kernel has such a node, or so much memory")
        if at != line.end() or not line[2] or line[1] in seen:
            raise WireError(FILE, f"line {line[0][:80]!r} is not 'name N0=BYTES N1=BYTES', once for each name")
        seen[line[1]] = None
    if any(name not in seen for name in _MUST):
        raise WireError(FILE, "it has no lines of anon and file: is it cgroup v1's?")
    return used


def read_used(files: HostFiles, root: str, paths: Mapping[K, str]) -> dict[K, dict[int, int]]:
    """Bytes in use on each node, of the cgroups where that can be read."""
    used = dict[K, dict[int, int]]()
    for key, path in paths.items():
        try:
            used[key] = parse(files.read(f"{root}{path}/{FILE}", MAX_BYTES))
        except (OSError, ValueError, WireError):
            continue
    return used
