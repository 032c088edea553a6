"""Reads the machine's CPUs, the kernel's cpusets and the use of CPUs and memory nodes, again and again."""

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice

from nodeward.core.cpuset import CpuSet
from nodeward.core.errors import WireError
from nodeward.core.events import CpusetsRead, CpusUsed, MemoryUsed, TopologyRead
from nodeward.core.ports import ReadSets
from nodeward.core.workload import ContainerId
from nodeward.features.cpus.effects.start_barrier import pins
from nodeward.features.cpus.memory import counts_memory
from nodeward.features.cpus.place import wanted
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.pool_settings import devices_named
from nodeward.features.cpus.state import latest
from nodeward.features.root import State
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, Lane, done_on
from nodeward.host.runner import Core
from nodeward.neighbours.cgroups import cpusets, memory_use
from nodeward.neighbours.sysfs import topology, use

log = logging.getLogger(__name__)
TOPOLOGY_S = 10.0
"""How often it is looked whether CPUs have come or gone; each second, whether the settings name other devices."""
USE_S = 10.0
"""Over so long the use of CPUs is measured, where a policy divides them by it."""
MEMORY_S = 10.0
"""How often the memory that containers use on each node is read, where a policy counts it."""
LEAST_BYTES = 1 << 20
"""A change is told if it is larger than this and than a 64th: a container's use is never quite the same."""
AT_ONCE = 32
"""Containers that are read in one job of the lane."""
MOST_TOLD = 128
"""Containers in one event."""
DRIFT_S = 2.0
"""How often the kernel's sets are compared with the wanted ones."""


def reads_sets(files: HostFiles, root: str, lane: Lane, core: Core[State]) -> ReadSets:
    """Reads the kernel's sets on a lane, while a policy is at work; none where they cannot be read."""

    async def read(paths: tuple[str, ...], /) -> Mapping[str, CpuSet]:
        if not pins(core.state):
            return {}
        try:
            return (await done_on(lane, "cpusets", partial(cpusets.read_sets, files, root, paths))).found
        except (GivenUpError, OSError) as error:
            log.warning("cpusets=unread error=%s so='the runtime's record stands for them'", error)
            return {}

    return read


async def watch_topology(files: HostFiles, lane: Lane, core: Core[State], clock: Clock) -> None:
    """Reports the machine's CPUs whenever they change."""
    faults = tuple[str, ...]()
    while True:
        named = devices_named(core.state.settings.policy.balloons)
        machine = await done_on(lane, "topology", partial(topology.read, files, named))
        if not machine.online and machine.faults != faults:
            faults = machine.faults
            log.error("cpus=unknown fault=%r so='no policy gives CPUs'", "; ".join(faults))
        if machine.online and machine != latest(core.state.cpus):
            log.info(
                "cpus online=%d isolated=%d nodes=%d faults=%d",
                *(machine.online.bit_count(), machine.isolated.bit_count(), len(machine.nodes), len(machine.faults)),
            )
            core.tell(TopologyRead(machine))
        for _ in range(int(TOPOLOGY_S)):
            await clock.sleep(1.0)
            if devices_named(core.state.settings.policy.balloons) != named:
                break


async def watch_drift(files: HostFiles, root: str, lane: Lane, core: Core[State], clock: Clock) -> None:
    """Reports the sets that differ from what was read back last, and those that cannot be read any more."""
    while True:
        await clock.sleep(DRIFT_S)
        if not pins(core.state):
            continue
        cpus, as_of = core.state.cpus, core.seq()
        at = {
            held.path: to
            for held in cpus.held.values()
            if held.path and held.has and (to := wanted(cpus.pools, held.key))
        }
        found, hangs = await _read_all(files, root, lane, tuple(at))
        others = {path: cpus for path, cpus in found.found.items() if cpus != at[path]}
        if others or found.lost:
            core.tell(CpusetsRead(others, as_of, found.lost, hangs))


async def _read_all(files: HostFiles, root: str, lane: Lane, paths: tuple[str, ...]) -> tuple[cpusets.Sets, bool]:
    """The set of each cgroup, and whether the reading was given up. Where a call hangs, the cgroup at which it hangs is
    lost, and the next round reads the others; where nothing can be read, all are lost."""
    under_way = ""

    def noted() -> Iterator[str]:
        nonlocal under_way
        for path in paths:
            under_way = path
            yield path

    try:
        return await done_on(lane, "cpusets", partial(cpusets.read_sets, files, root, noted())), False
    except (GivenUpError, OSError) as error:
        log.warning("cpusets=unread path=%s error=%s so='it counts as running on any CPU'", under_way or root, error)
        why = f"the reading was given up: {error}"
        return cpusets.Sets({}, dict.fromkeys((under_way,) if under_way else paths, why)), True


async def watch_use(files: HostFiles, lane: Lane, core: Core[State], clock: Clock) -> None:
    """Reports the use of each CPU, while the policy divides CPUs by use."""
    before: use.Counters = {}
    while True:
        await clock.sleep(USE_S)
        if not core.state.cpus.held or policy_of(core.state.cpus.rules.active).rebalance is None:
            before = {}
            continue
        try:
            now = await done_on(lane, "use", partial(use.read, files))
        except (GivenUpError, OSError, WireError) as error:
            log.warning("use=unread error=%s so='CPUs stay divided as they are'", error)
            continue
        used = use.between(before, now)
        before = now
        if used:
            core.tell(CpusUsed(used))


async def watch_memory(files: HostFiles, root: str, lane: Lane, core: Core[State], clock: Clock) -> None:
    """Reports the memory that containers use on each node, while a policy holds some to a few. What cannot be read, or
    not in time, is not known."""
    while True:
        await clock.sleep(MEMORY_S)
        if not counts_memory(core.state):
            continue
        paths = ((one, held.path) for one, held in core.state.cpus.held.items() if held.path)
        found = dict[ContainerId, Mapping[int, int]]()
        try:
            while some := dict(islice(paths, AT_ONCE)):
                found |= await done_on(lane, "memory", partial(memory_use.read_used, files, root, some))
        except (GivenUpError, OSError) as error:
            log.warning("memory=unread error=%s so='what is in use is not known'", error)
            found = {}
        known = core.state.cpus.memory_used
        news = (
            (one, now) for one in core.state.cpus.held if _has_changed(known.get(one, {}), now := found.get(one, {}))
        )
        while part := dict(islice(news, MOST_TOLD)):
            core.tell(MemoryUsed(part))


def _has_changed(before: Mapping[int, int], now: Mapping[int, int]) -> bool:
    return before.keys() != now.keys() or any(
        abs(now[node] - size) > max(LEAST_BYTES, size >> 6) for node, size in before.items()
    )
