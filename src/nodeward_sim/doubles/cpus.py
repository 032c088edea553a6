"""Machines as data: a few numbers that say what CPUs share, and the sysfs tree that such a machine shows.

The tree has what a kernel of 6.12 shows of `/sys/devices/system/cpu` and `node`, as far as Nodeward reads it. Tests lay
it into a `SimKernel`; the simulated node has one too. A test takes files away from the tree, or puts others there, for
what a real kernel leaves out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet

DEVICES = "/sys/devices"
CPU = f"{DEVICES}/system/cpu"
NODE = f"{DEVICES}/system/node"
_CLUSTER = 4
"""So many cores made for economy share a cache of level 2."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A symmetric machine, by default of 2 sockets x 2 NUMA nodes x 4 cores x 2 threads."""

    sockets: int = 2
    nodes: int = 2
    """NUMA nodes of a socket; 0 for a kernel without NUMA."""
    l3: int = 1
    """Caches of level 3 of a node."""
    cores: int = 4
    """Cores of such a cache."""
    threads: int = 2
    adjacent: bool = False
    """Threads of a core have numbers side by side; else second threads come after all first ones."""
    interleaved: bool = False
    """Cores are dealt round over the nodes, and nodes over the sockets; else each has a range."""
    stride: int = 1
    """Between two CPU numbers; 65 with 64 CPUs reaches 4095."""
    clusters: int = 0
    """Clusters of four cores made for economy, without second threads, on the last node of each socket."""
    isolated: CpuSet = 0
    offline: CpuSet = 0
    slow: CpuSet = 0
    """CPUs with a lower base frequency than the others; 0: no base frequency is shown."""
    node_bytes: int = 16 << 30


@dataclass(frozen=True, slots=True)
class Cpu:
    """One CPU of a plan; numbers of what it is in are unique on the machine."""

    id: int
    core: int
    l2: int
    l3: int
    node: int
    socket: int
    efficient: bool = False


def cpus_of(plan: Plan) -> tuple[Cpu, ...]:
    """Every CPU, also those that are offline, by number."""
    nodes = plan.sockets * max(plan.nodes, 1)
    each = plan.l3 * plan.cores
    found = list[Cpu]()
    for core in range(nodes * each):
        node, at = (core % nodes, core // nodes) if plan.interleaved else (core // each, core % each)
        socket = node % plan.sockets if plan.interleaved else node // max(plan.nodes, 1)
        for thread in range(plan.threads):
            number = core * plan.threads + thread if plan.adjacent else core + thread * nodes * each
            l3 = node * plan.l3 + at // plan.cores
            found.append(Cpu(number * plan.stride, core, core, l3, node, socket))
    begin = nodes * each
    for extra in range(plan.sockets * plan.clusters * _CLUSTER):
        socket = extra // (plan.clusters * _CLUSTER)
        node = next(cpu.node for cpu in reversed(found) if cpu.socket == socket and not cpu.efficient)
        number, l2 = (begin * plan.threads + extra) * plan.stride, begin + extra // _CLUSTER
        found.append(Cpu(number, begin + extra, l2, node * plan.l3, node, socket, efficient=True))
    return tuple(sorted(found, key=lambda cpu: cpu.id))


def sysfs(plan: Plan) -> dict[str, str]:
    """The files by path, with their texts."""
    every = cpus_of(plan)
    here = tuple(cpu for cpu in every if not plan.offline >> cpu.id & 1)
    possible, online = _list(cpu.id for cpu in every), _list(cpu.id for cpu in here)
    files = {
        f"{CPU}/possible": possible,
        f"{CPU}/present": possible,
        f"{CPU}/online": online,
        f"{CPU}/offline": f"{cpuset.text(plan.offline)}\n",
        f"{CPU}/isolated": f"{cpuset.text(plan.isolated)}\n",
    }
    for cpu in every:
        if cpu.id:
            files[f"{CPU}/cpu{cpu.id}/online"] = f"{int(cpu in here)}\n"
    of_core = _shared((cpu.core, cpu.id) for cpu in here)
    of_l2 = _shared((cpu.l2, cpu.id) for cpu in here)
    of_l3 = _shared((cpu.l3, cpu.id) for cpu in here)
    of_socket = _shared((cpu.socket, cpu.id) for cpu in here)
    of_node = _shared((cpu.node, cpu.id) for cpu in here)
    for cpu in here:
        at = f"{CPU}/cpu{cpu.id}"
        files |= {
            f"{at}/topology/core_id": f"{cpu.core}\n",
            f"{at}/topology/physical_package_id": f"{cpu.socket}\n",
            f"{at}/topology/die_id": f"{cpu.socket}\n",
            f"{at}/topology/core_cpus_list": of_core[cpu.core],
            f"{at}/topology/package_cpus_list": of_socket[cpu.socket],
        }
        caches = (
            (1, "Data", of_core[cpu.core], cpu.core),
            (1, "Instruction", of_core[cpu.core], cpu.core),
            (2, "Unified", of_l2[cpu.l2], cpu.l2),
            (3, "Unified", of_l3[cpu.l3], cpu.l3),
        )
        for index, (level, kind, shared, number) in enumerate(caches):
            files |= {
                f"{at}/cache/index{index}/level": f"{level}\n",
                f"{at}/cache/index{index}/type": f"{kind}\n",
                f"{at}/cache/index{index}/shared_cpu_list": shared,
                f"{at}/cache/index{index}/id": f"{number}\n",
            }
        if plan.slow:
            files[f"{at}/cpufreq/base_frequency"] = "1800000\n" if plan.slow >> cpu.id & 1 else "2400000\n"
    if plan.clusters:
        files[f"{DEVICES}/cpu_atom/cpus"] = _list(cpu.id for cpu in here if cpu.efficient)
        files[f"{DEVICES}/cpu_core/cpus"] = _list(cpu.id for cpu in here if not cpu.efficient)
    return files | dict(_node_files(plan, of_node))


def _node_files(plan: Plan, of_node: dict[int, str]) -> Iterator[tuple[str, str]]:
    if not plan.nodes:
        return
    count = plan.sockets * plan.nodes
    yield f"{NODE}/online", _list(range(count))
    yield f"{NODE}/has_normal_memory", _list(range(count))
    sockets = [node % plan.sockets if plan.interleaved else node // plan.nodes for node in range(count)]
    for node in range(count):
        distances = (10 if node == other else 12 if sockets[node] == sockets[other] else 21 for other in range(count))
        yield f"{NODE}/node{node}/cpulist", of_node.get(node, "\n")
        yield f"{NODE}/node{node}/distance", " ".join(map(str, distances)) + "\n"
        yield f"{NODE}/node{node}/meminfo", f"Node {node} MemTotal:       {plan.node_bytes // 1024} kB\n"


def _shared(members: Iterable[tuple[int, int]]) -> dict[int, str]:
    sets = dict[int, CpuSet]()
    for group, cpu in members:
        sets[group] = sets.get(group, 0) | 1 << cpu
    return {group: f"{cpuset.text(found)}\n" for group, found in sets.items()}


def _list(numbers: Iterable[int]) -> str:
    return f"{cpuset.text(cpuset.of(numbers))}\n"
