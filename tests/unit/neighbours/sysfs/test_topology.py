"""The machine as sysfs tells it: what is shared, by which ids, what is assumed for what it leaves out; and where
devices lie."""

import os
from pathlib import Path

import pytest

from nodeward.core import cpuset
from nodeward.core.errors import WireError
from nodeward.core.topology import Group, Level, Machine, MemoryNode
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.sysfs import devices, use
from nodeward.neighbours.sysfs.topology import read, read_counted
from nodeward_sim.doubles.cpus import CPU, NODE, Plan, sysfs
from nodeward_sim.doubles.kernel import SimKernel

ONE_SOCKET = Plan(sockets=1, nodes=1, threads=1)
EIGHT_NODES = Plan(nodes=4, interleaved=True)
HYBRID = Plan(sockets=1, nodes=1, adjacent=True, clusters=2)
LARGE = Plan(nodes=4, l3=2, cores=8)
SPARSE = Plan(nodes=4, stride=65)


def machine(plan: Plan, *without: str, **changed: str) -> Machine:
    """What is read of a plan's tree without the files whose path ends so, and with others changed: `a__b` is `a/b`."""
    ends = {name.replace("__", "/"): text for name, text in changed.items()}
    kernel = SimKernel({})
    kernel.lay(
        {
            path: next((text for end, text in ends.items() if path.endswith(end)), had)
            for path, had in sysfs(plan).items()
            if not path.endswith(without)
        }
    )
    return read(kernel)


def texts(groups: tuple[Group, ...]) -> dict[int, str]:
    return {one.id: cpuset.text(one.cpus) for one in groups}


def test_a_machine_of_two_sockets_with_two_nodes_each() -> None:
    found = machine(Plan())
    assert cpuset.text(found.online) == "0-31"
    assert texts(found.packages) == {0: "0-7,16-23", 1: "8-15,24-31"}
    assert texts(found.dies) == texts(found.packages)
    assert texts(machine(Plan(), topology__die_id="0").dies) == {0: "0-7,16-23", 8: "8-15,24-31"}, "as before 6.9"
    assert texts(found.nodes) == texts(found.l3)
    assert texts(found.nodes) == {0: "0-3,16-19", 1: "4-7,20-23", 2: "8-11,24-27", 3: "12-15,28-31"}
    assert texts(found.cores) == texts(found.l2) == {core: f"{core},{core + 16}" for core in range(16)}
    assert found.memory[1] == MemoryNode(1, found.nodes[1].cpus, 16 << 30, True, {0: 12, 1: 10, 2: 21, 3: 21})
    assert (found.isolated, found.efficient, found.high, found.low, found.faults) == (0, 0, 0, 0, ())


@pytest.mark.parametrize(
    ("plan", "sizes", "core"),
    [
        pytest.param(ONE_SOCKET, (1, 1, 1, 1, 4, 4, 4), "0", id="one socket"),
        pytest.param(EIGHT_NODES, (2, 2, 8, 8, 32, 32, 64), "0,32", id="eight interleaved nodes"),
        pytest.param(HYBRID, (1, 1, 1, 1, 6, 12, 16), "0-1", id="hybrid"),
        pytest.param(LARGE, (2, 2, 8, 16, 128, 128, 256), "0,128", id="256 CPUs"),
        pytest.param(SPARSE, (2, 2, 8, 8, 32, 32, 64), "0,2080", id="sparse to 4095"),
    ],
)
def test_every_level_divides_the_cpus_that_are_online(plan: Plan, sizes: tuple[int, ...], core: str) -> None:
    found = machine(plan)
    assert texts(found.cores)[0] == core
    for level, size in zip(list(Level)[1:], sizes, strict=True):
        groups = found.groups(level)
        assert len(groups) == size, level
        assert sum(one.cpus for one in groups) == found.online, level
        assert [one.id for one in groups] == sorted({one.id for one in groups}), level
    assert found.faults == ()


def test_nodes_may_be_interleaved_over_the_sockets() -> None:
    found = machine(EIGHT_NODES)
    assert texts(found.nodes)[3] == "3,11,19,27,35,43,51,59"
    assert texts(found.packages)[1] == ",".join(str(cpu) for cpu in range(1, 64, 2))
    assert machine(SPARSE).online == cpuset.of(range(0, 4096, 65)), "and their numbers sparse"


def test_cores_for_economy_are_low_and_share_a_cache() -> None:
    found = machine(HYBRID)
    assert cpuset.text(found.efficient) == cpuset.text(found.low) == "8-15"
    assert (texts(found.l2)[8], texts(found.cores)[8]) == ("8-11", "8")
    assert machine(HYBRID, "cpu_core/cpus", cpu_atom__cpus="0-15").efficient == 0, "all alike: not a hybrid machine"


def test_isolated_cpus_are_told_and_offline_ones_left_out() -> None:
    found = machine(Plan(isolated=0b1110, offline=1 << 2 | 1 << 16))
    assert (cpuset.text(found.isolated), cpuset.text(found.offline)) == ("1,3", "2,16")
    assert (texts(found.cores)[0], texts(found.cores)[18], 16 in texts(found.cores)) == ("0", "18", False)


def test_cpus_of_a_lower_base_frequency_are_low() -> None:
    found = machine(Plan(slow=cpuset.parse("1-3,17-19")))
    assert cpuset.text(found.low) == "1-3,17-19"
    assert cpuset.text(found.high) == "0,4-7,16,20-23", "of the same package only: the other one's are all alike"


def test_cpus_of_another_energy_preference_are_low_where_frequencies_are_alike() -> None:
    plan = Plan(sockets=1, nodes=1, cores=2, threads=1)
    kernel = SimKernel({}, machine=plan)
    for of_cpu_1, high, low in (("balance_power", 0, 0), ("performance\n", 0b10, 0b01)):
        for cpu, said in enumerate(("balance_power", of_cpu_1)):
            kernel.lay({f"{CPU}/cpu{cpu}/cpufreq/energy_performance_preference": said})
        assert (read(kernel).high, read(kernel).low) == (high, low)


@pytest.mark.parametrize(
    ("missing", "level", "expected", "said"),
    [
        pytest.param("core_cpus_list", Level.CORE, {c: str(c) for c in range(4)}, "core of its own", id="threads"),
        pytest.param("physical_package_id", Level.PACKAGE, {0: "0-3"}, "package 0 is assumed", id="package"),
        pytest.param("die_id", Level.DIE, {0: "0-1", 2: "2-3"}, "", id="die: old kernels have none"),
        pytest.param("/level", Level.L3, {0: "0-1", 1: "2-3"}, "", id="no cache: the package"),
        pytest.param("/level", Level.L2, {0: "0-1", 2: "2-3"}, "", id="no cache: the core"),
        pytest.param("index3/id", Level.L3, {0: "0-1", 2: "2-3"}, "", id="cache id: the lowest CPU"),
        pytest.param("/shared_cpu_list", Level.L3, {0: "0-1", 1: "2-3"}, "counts as missing", id="who shares"),
        pytest.param("node/online", Level.NUMA, {0: "0-1", 1: "2-3"}, "", id="nodes by their folders"),
        pytest.param("node1/cpulist", Level.NUMA, {0: "0-3"}, "CPUs 2-3: no NUMA node", id="a node's CPUs"),
        pytest.param("node1/distance", Level.NUMA, {0: "0-1", 1: "2-3"}, "no distances", id="distances"),
        pytest.param("node1/meminfo", Level.NUMA, {0: "0-1", 1: "2-3"}, "without memory", id="memory"),
        pytest.param(
            ("cpu/online", "/present", "/possible"), Level.SYSTEM, {0: "0-3"}, "every cpuN", id="the lists of CPUs"
        ),
        pytest.param("cpu/online", Level.SYSTEM, {0: "0-3"}, "that are present are taken", id="online"),
    ],
)
def test_a_hole_is_an_assumption_and_a_sentence(
    missing: str | tuple[str, ...], level: Level, expected: dict[int, str], said: str
) -> None:
    without = (missing,) if isinstance(missing, str) else missing
    found = machine(Plan(nodes=1, cores=1, adjacent=True), *without)
    assert texts(found.groups(level)) == expected
    assert said in "; ".join(found.faults)
    assert bool(found.faults) == bool(said)


THREADS, PACKAGE = "cpu0/topology/core_cpus_list", "cpu0/topology/physical_package_id"


@pytest.mark.parametrize(
    ("at", "text", "said"),
    [
        pytest.param(THREADS, "0-4000000000", "neither a CPU nor a range", id="an endless range"),
        pytest.param(THREADS, "9", "core of its own", id="not its own core"),
        pytest.param(PACKAGE, "minus", "not a number", id="not a number"),
        pytest.param(PACKAGE, "9" * 90, "not a number", id="an endless number"),
        pytest.param(PACKAGE, "-1", "package 0 is assumed", id="no package"),
        pytest.param("node0/distance", "10 20", "count with their average", id="uneven distances"),
        pytest.param("node0/distance", "10", "does not tell 2 distances", id="too few distances"),
        pytest.param("isolated", "x" * 70000, "larger than", id="a file without end"),
    ],
)
def test_a_wrong_value_counts_as_missing(at: str, text: str, said: str) -> None:
    kernel = SimKernel({}, machine=Plan(nodes=1, cores=1, adjacent=True))
    kernel.lay({f"{NODE if at.startswith('node') else CPU}/{at}": text})
    found = read(kernel)
    assert said in "; ".join(found.faults)
    assert found.online == 0b1111


def test_holes_of_many_cpus_are_one_sentence() -> None:
    assert len(machine(LARGE, "core_cpus_list").faults) == 1


def test_a_machine_without_sysfs_is_a_fault_and_one_without_numa_has_one_node() -> None:
    found = read(SimKernel({}))
    assert found.online == 0
    assert "names no CPU that is online" in found.faults[0]
    found = machine(Plan(nodes=0))
    assert (texts(found.nodes), found.memory, found.faults) == ({0: "0-15"}, (), ())


def test_what_cpus_share_is_read_once() -> None:
    found, reads = read_counted(SimKernel({}, machine=LARGE))
    assert found.online.bit_count() == 256
    assert reads < 8 * 128 + 8 * 5


def test_the_machine_that_runs_this_is_read_without_faults() -> None:
    found = read(OsFiles())
    assert cpuset.of(os.sched_getaffinity(0)) & ~found.online == 0
    assert found.online.bit_count() == os.sysconf("SC_NPROCESSORS_ONLN")
    assert sum(one.cpus for one in found.cores) == found.online


FIRST = b"cpu  9 9 9 9\ncpu0 100 0 100 800 0 0 0 0 50 0\ncpu3 0 0 0 500 100 0 0 0 0 0\nintr 1\n"
SECOND = b"cpu  9 9 9 9\ncpu0 150 0 125 1000 25 0 0 0 90 0\ncpu3 0 0 0 700 100 0 0 0 0 0\ncpu4 1 1 1 1\n"


def test_what_was_busy_between_two_looks() -> None:
    kernel = SimKernel({})
    counters = list[use.Counters]()
    for text in (FIRST, SECOND):
        kernel.replace(use.STAT, text)
        counters.append(use.read(kernel))
    assert use.between(*counters) == {0: 250, 3: 0}
    assert use.between(counters[1], counters[0]) == {}


def test_a_file_that_is_not_the_kernels_is_refused() -> None:
    kernel = SimKernel({})
    kernel.replace(use.STAT, b"cpu 1 2\ncpu99999 1 2 3 4\n")
    with pytest.raises(WireError, match="has no line of a CPU"):
        use.read(kernel)


PCI = "sys/devices/pci0000:80/0000:80:01.0"
OTHER = "sys/devices/pci0000:00/0000:00:02.0"


def tree(root: Path) -> OsFiles:
    files = {
        f"{PCI}/local_cpulist": "8-11\n",
        f"{PCI}/numa_node": "2\n",
        f"{PCI}/block/sda/sda1/partition": "1\n",
        f"{OTHER}/numa_node": "1\n",
        "sys/devices/pci0000:00/local_cpulist": "0-31\n",
        "sys/devices/virtual/block/dm-0/dev": "253:0\n",
        "sys/devices/virtual/vfio/7/dev": "243:0\n",
        "sys/devices/platform/unplaced/local_cpulist": "0-31\n",
        "sys/devices/platform/unplaced/numa_node": "-1\n",
        "sys/devices/platform/broken/local_cpulist": "x\n",
    }
    links = {
        "sys/dev/block/8:1": f"../../../{PCI}/block/sda/sda1",
        "sys/dev/block/253:0": "../../devices/virtual/block/dm-0",
        "sys/devices/virtual/block/dm-0/slaves/sda1": f"../../../../../../{PCI}/block/sda/sda1",
        "sys/dev/char/243:0": "../../devices/virtual/vfio/7",
        "sys/kernel/iommu_groups/7/devices/0000:00:02.0": f"../../../../../{OTHER}",
        "sys/dev/char/1:9": "../../devices/platform/unplaced",
        "sys/dev/char/6:7": "../../devices/platform/broken",
        "sys/dev/char/6:6": "/etc",
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path, to in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(to, root / path)
    return OsFiles(str(root))


def test_the_nearest_folder_that_tells_counts_and_those_behind_a_device(tmp_path: Path) -> None:
    files = tree(tmp_path)

    def near(number: tuple[int, int], *, block: bool = True) -> list[devices.Place]:
        return list(devices.of_number(files, number, is_block=block).values())

    disk = (cpuset.of(range(8, 12)), 0)
    assert near((8, 1)) == [disk]
    assert near((253, 0)) == [disk]  # a device mapper's device is where its disk is
    assert near((243, 0), block=False) == [(0, cpuset.of((1,)))]  # by the IOMMU group
    assert near((1, 9), block=False) == []  # the firmware does not tell
    with pytest.raises(OSError, match="cross-device"):
        near((6, 6), block=False)  # a link out of the host's files
    with pytest.raises(ValueError, match="neither a CPU nor a range"):
        near((6, 7), block=False)
    assert near((99, 1)) == near((0, 41)) == []
    assert list(devices.of_named(files, f"/{OTHER}").values()) == [(0, cpuset.of((1,)))]
    assert devices.of_named(files, "/dev/nosuch") == {}
