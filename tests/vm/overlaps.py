"""Reads what first_act.c recorded: whether a container's CPUs were its own when its program began."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodeward.model import cpuset


@dataclass(frozen=True, slots=True)
class FirstAct:
    """What one program found. Times are by the machine's monotonic clock."""

    own: cpuset.CpuSet
    began_ns: int
    read_ns: int
    """When everything had been read."""
    others: Mapping[str, cpuset.CpuSet]
    """By cgroup, of those that had processes."""


def first_act(written: str) -> FirstAct:
    """The record of a program. A line that is not as it should be is an error."""
    began, own, *others, read = (line.split(" ", 1) for line in written.splitlines())
    if (began[0], own[0], read[0]) != ("began", "own", "at") or not own[1]:
        raise ValueError(f"a record has the lines began, own and at, not {began}, {own} and {read}")
    by_cgroup = {cgroup: cpuset.parse(cpus) for cgroup, cpus in others}
    return FirstAct(cpuset.parse(own[1]), int(began[1]), int(read[1]), by_cgroup)


def overlaps(acts: Mapping[str, FirstAct], container: str) -> list[str]:
    """Each container whose program ran already and might use this one's CPUs when its program began. What has no
    program of its own does not count: the process by which runc makes a container is on its pod's CPUs until it is told
    its own, and a sandbox has the whole machine, as with kubelet's policies."""
    act = acts[container]
    found = list[str]()
    for cgroup, cpus in act.others.items():
        other = cgroup.rsplit("/", 1)[1]
        ran = other != container and other in acts and acts[other].began_ns < act.read_ns
        if ran and cpus & act.own:
            has, might = cpuset.text(act.own), cpuset.text(cpus)
            found.append(f"{container[:13]} has {has}, and {cgroup} might use {might}")
    return found
