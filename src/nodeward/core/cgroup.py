"""The place of the misc controller's files in the cgroup tree."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The cgroup tree with the misc controller. A cgroup has the same path below each tree of the node."""

    version: int = 2
    """1 where misc is mounted as a cgroup v1 hierarchy of its own (`mount -t cgroup -o misc`), else 2."""
    root: str = ""
    """Where its files are; empty while nobody has looked."""
    members: str = ""
    """A tree in which every runtime puts its containers: with version 1 maybe another one than `root`, since runc joins
    misc there from 1.1.6 on only."""
    fault: str = ""
    """Why nothing can be counted or limited at the `cgroups.root` of the settings, and what to do; empty otherwise. A
    kernel without the controller is no fault."""
