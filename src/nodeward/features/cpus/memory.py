"""Memory nodes (`cpuset.mems`) that follow a container's CPUs, where `cpus.memory` or the policy says so.

A new container begins with the nodes of its CPUs, and of each other type of memory the closest node. A container that
runs is only ever given more: to take a node away makes the kernel move its pages (cgroup v2), which stalls it. One that
was not pinned at its creation never is. Nodes are counted as bits, as CPUs are.
"""

from dataclasses import replace

from nodeward.core.cpuset import CpuSet, of, text
from nodeward.core.decision import Decision, Goal, Target
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason
from nodeward.core.tables import beside
from nodeward.core.topology import Machine
from nodeward.core.workload import Container, ContainerId, Phase
from nodeward.features.cpus.memory_nodes import nodes_of
from nodeward.features.cpus.pools import counted_cpus
from nodeward.features.cpus.settings import MemoryNodes
from nodeward.features.cpus.state import Cpus, Held
from nodeward.features.cpus.values import Grant, Pools
from nodeward.features.root import State

KIND = "cpuset.mems"
"""Goals whose value is the nodes that a cgroup has at least, if it has any of its own."""


def at_creation(state: State, one: Container, at: Pools, grant: Grant) -> CpuSet:
    """The nodes that a new container is given; 0 to leave them: by the settings, where kubelet's memory manager has
    given it some, or where it would get every node."""
    machine, rule = state.cpus.machine, state.settings.cpus.memory
    pins = grant.pins_memory if grant.pins_memory is not None else rule is MemoryNodes.FOLLOW
    cpus = counted_cpus(at, grant)
    if machine is None or not cpus or one.cpu.mems or not pins or rule is MemoryNodes.OFF:
        return 0
    every = _there(machine)
    found = grant.zone or grant.memory_near or nodes_of(machine, cpus, grant.types_now)
    found = found & every or found
    return 0 if found == every else found


def _there(machine: Machine) -> CpuSet:
    """The nodes that have memory now. One that has gone since is written nowhere: cgroup v1 takes no set with it."""
    return of(node.id for node in machine.memory if node.bytes > 0)


def widened(machine: Machine | None, has: CpuSet, at: Pools, key: str) -> CpuSet:
    """The nodes of a container that has some, with those of its CPUs now, or of all CPUs."""
    if not has or machine is None:
        return has
    grant = at.grants.get(key)
    cpus, types = (counted_cpus(at, grant), grant.types_now) if grant is not None else (0, ())
    zone, near = (grant.zone, grant.memory_near) if grant is not None else (0, 0)
    found = has | zone | (near or nodes_of(machine, cpus or machine.online, types))
    return found & _there(machine) or found


def followed(state: State, cpus: Cpus, decision: Decision) -> tuple[Cpus, Decision]:
    """The slice and decision with what follows for memory nodes from `cpus`, the CPUs as they are decided now. There is
    a goal for each cgroup that is there and has fewer nodes than it is to have."""
    if cpus.held is state.cpus.held and cpus.pools is state.cpus.pools:
        return cpus, decision
    new, places = dict[ContainerId, Held](), dict[CpuSet, list[str]]()
    for one, held in cpus.held.items():
        if not held.mems or held.key in cpus.unplaced:
            continue
        to, known = widened(cpus.machine, held.mems, cpus.pools, held.key), state.pods.containers.get(one)
        runs = known is not None and known.container.phase is Phase.RUNNING and bool(held.path)
        writes = runs and state.settings.cpus.mode is Mode.ENFORCE and to != held.mems_asked
        if writes:
            places.setdefault(to, []).append(held.path)
        if writes or to != held.mems:
            new[one] = replace(held, mems=to, mems_asked=to if writes else held.mems_asked)
    if not new:
        return cpus, decision
    goals = tuple(
        Goal(Target(KIND, paths[0], "memory"), text(to), Reason("cpus-memory"), also=tuple(paths[1:]))
        for to, paths in places.items()
    )
    return replace(cpus, held=beside(cpus.held, new)), replace(decision, goals=decision.goals + goals)


def counts_memory(state: State) -> bool:
    """Whether memory is counted by nodes: a policy holds some container to a few of several."""
    is_off = state.settings.cpus.mode is Mode.OFF
    return not is_off and any(grant.zone for grant in state.cpus.pools.grants.values())
