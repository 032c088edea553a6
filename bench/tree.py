"""A folder that stands in for the cgroup tree of a node with the misc controller, for the daemon under the bench.

Ordinary files on a tmpfs (/dev/shm where it is there), in the shape that a real node has: one folder a pod and a
container, under the paths that the peer nriside gives them, each with the misc files of one resource. So the sampler
keeps descriptors and reads what it reads on a node, and a goal succeeds with the calls that it needs there: read
misc.max, write it once, read it back. `+misc` is on everywhere, as on a node where Nodeward has run before.

What is not like a kernel: a file here costs less than a cgroup file (no lock of the controller), the files that only
the kernel writes never change, and one content is shared by all cgroups (hard links), which no reader can notice.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MEMORY = Path("/dev/shm")
QOS = "/kubepods/burstable"
FIRST_BENCH_CONTAINER = 1_000_000
"""The number of the first container that nriside's bench creates."""
READ_ONLY = {
    "misc.current": "sgx_epc 10000\n",
    "misc.peak": "sgx_epc 1048576\n",
    "misc.events": "sgx_epc.max 0\n",
    "misc.events.local": "sgx_epc.max 0\n",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How many pods a node runs, of how many containers, and how many more the bench creates."""

    pods: int
    per_pod: int
    calls: int = 0

    @property
    def cgroups(self) -> int:
        """Cgroups of pods and running containers."""
        return self.pods * (1 + self.per_pod)

    def __str__(self) -> str:
        return f"{self.pods} pods of {self.per_pod}"


def pod_uid(number: int) -> str:
    """The UID of nriside's pod."""
    return f"{number:08x}-0000-4000-8000-000000000000"


def pod_path(number: int) -> str:
    """The cgroup of nriside's pod."""
    return f"{QOS}/pod{pod_uid(number)}"


def container_path(pod: int, number: int) -> str:
    """The cgroup of nriside's container."""
    return f"{pod_path(pod)}/cc{number:062x}"


def bench_path(pod: int, number: int) -> str:
    """The cgroup of a container that nriside's bench creates: there beforehand, where the daemon does not look for
    containers that it was not told of."""
    return f"{pod_path(pod)}/bench/cc{number:062x}"


def cgroups_of(shape: Shape) -> Iterator[str]:
    """Every pod's and running container's cgroup, parents first."""
    for pod in range(shape.pods):
        yield pod_path(pod)
        for inside in range(shape.per_pod):
            yield container_path(pod, pod * shape.per_pod + inside)


def build(root: Path, shape: Shape) -> None:
    """Makes the tree below `root`, which is there and empty."""
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids misc\n")
    (root / "misc.capacity").write_text("sgx_epc 1099511627776\n")
    for name, content in READ_ONLY.items():
        (root / name).write_text(content)
    above = ["", "/kubepods", QOS]
    for path in above[1:]:
        (root / path[1:]).mkdir()
    for path in above:
        (root / path[1:] / "cgroup.subtree_control").write_text("cpuset cpu io memory pids misc\n")
    calls = range(FIRST_BENCH_CONTAINER, FIRST_BENCH_CONTAINER + shape.calls)
    for path in (*cgroups_of(shape), *(bench_path(call % shape.pods, call) for call in calls)):
        folder = f"{root}{path}"
        os.makedirs(folder)
        with open(f"{folder}/misc.max", "w") as file:
            file.write("sgx_epc max\n")
        for name in (*READ_ONLY, "cgroup.subtree_control"):
            os.link(root / name, f"{folder}/{name}")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory that ends with the block."""
    place = str(MEMORY) if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="nwb", dir=place) as name:
        yield Path(name)
