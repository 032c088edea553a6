"""What a CPU policy is: four pure functions over one state (`features.cpus.values.Pools`).

The room around it (`features.cpus.step`) does the rest for every policy: who is asked in which order, what others get
when a set changes, restarts, resizes, changes of settings, the wait before a program starts, `explain` and metrics.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nodeward.core.cpuset import CpuSet
from nodeward.core.decision import SchedulingClass
from nodeward.core.hints import HintKind
from nodeward.features.cpus.pool_settings import RESERVED
from nodeward.features.cpus.pool_tree import Tree
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Ask, Denied, Grant, Ground, Pools


def _of_pool(_: Ground, at: Pools) -> CpuSet:
    """The CPUs of the pool of that name."""
    return at.pools[RESERVED].cpus if RESERVED in at.pools else 0


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy."""

    name: str
    about: str
    """One line for `nodeward cpus policies list`."""
    begin: Callable[[Ground], Pools | Denied]
    """The pools before any container; Denied where the settings do not fit the machine: they are refused whole."""
    admit: Callable[[Ground, Pools, Ask], Pools | Denied]
    """With this container. It may have a grant already: then this is a restart, a resize or a late word on what it
    requests, and it keeps what it may keep. On Denied nothing has changed."""
    release: Callable[[Ground, Pools, str], Pools]
    """Without the container of this key; as before where it is not there."""
    rebalance: Callable[[Ground, Pools, Mapping[int, int]], Pools] | None = None
    """By the measured use of each CPU in thousandths, for policies that divide by use."""
    dedicates: Callable[[PolicySettings], bool] = lambda _: False
    """Whether a Guaranteed container that requests whole CPUs has them for itself."""
    keeps: bool = True
    """Whether a container's own CPUs stay its own until its pod ends, as kubelet does it; else until it ends."""
    keeps_pools: bool = False
    """Whether its place in a pool stays its own likewise."""
    resume: Callable[[Ground, Pools, Sequence[Ask]], Pools] | None = None
    """With those of these containers that run already, and may stay in their pools (`Ask.has`). None: a container's
    set says nothing of its pool."""
    guesses: bool = True
    """Whether `resume` takes the CPUs of a container whose request could not be read for what it requests."""
    room_m: Callable[[Ground, Pools, str], int] | None = None
    """How much the containers of the pool may request together at most, beside what others have. None: no more than its
    CPUs now."""
    tree: Callable[[Ground], Tree | None] = lambda _: None
    """How its pools lie within one another; None where they do not."""
    faults: Callable[[Ask], Iterable[str]] = lambda _: ()
    """What is wrong with the annotations of a container's pod, in sentences."""
    scheduling: Callable[[PolicySettings, Ask, Grant], tuple[Sequence[SchedulingClass], str]] | None = None
    """The scheduling classes that there are, and the name of the one for a container with this grant; empty for
    none. None: it knows no such classes."""
    hints: Callable[[PolicySettings], Collection[HintKind]] = lambda _: ()
    """Which of the things that a container uses it goes by (`Ask.hints`)."""
    memory: Callable[[Ask], int] = lambda ask: ask.memory_limit
    """How many bytes of a container count where memory nodes are chosen."""
    reserved: Callable[[Ground, Pools], CpuSet] = _of_pool
    """The CPUs that are kept for the system."""
    needs: tuple[str, ...] = ()
    """Settings without which it does not begin, for `nodeward cpus policies list`."""
