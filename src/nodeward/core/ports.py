"""The functions that a neighbour receives from the wiring, so that it never imports the engine."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from nodeward.core.cpuset import CpuSet
from nodeward.core.decision import Final, Goal, Target
from nodeward.core.events import Creating, Event, Question
from nodeward.core.hints import Hints, Used
from nodeward.core.workload import ContainerId

T = TypeVar("T")


class Pace(Protocol):
    """How a long picture is drawn: takes the items that are gone through, and how many of them make some tenths of a
    millisecond's work, and may pause between."""

    def __call__(self, items: Iterable[T], each: int, /) -> Iterable[T]:
        """The same items."""


def at_once(items: Iterable[T], _: int, /) -> Iterable[T]:
    """Without a pause."""
    return items


class Tell(Protocol):
    """Says that something happened. Returns the event's sequence number; never raises, never waits."""

    def __call__(self, event: Event) -> int: ...


class Ask(Protocol):
    """Asks for a decision. A Final at once in the normal case; an awaitable of it where a fact is needed first.

    The awaitable always ends within `within_ns`, with whatever can be said by then. Cancelling it abandons the ask."""

    def __call__(self, question: Question, within_ns: int) -> Final | Awaitable[Final]: ...


@dataclass(frozen=True, slots=True)
class Written:
    """What was done for a goal: `wrote` is false where the value was there already; `old` is the value before."""

    wrote: bool
    old: str


class Perform(Protocol):
    """Makes a goal so at one of its targets, on the lane of calls that can sleep.

    It reads, writes only what differs, and reads back. ABSENT is taken back only where `may_take_back` says that the
    value is of our making. OSError where it failed; it is tried again."""

    def __call__(self, target: Target, goal: Goal, may_take_back: bool, /) -> Written: ...


class Wants(Protocol):
    """The newest value of each target of one kind, for an edge that performs it itself (host.performers)."""

    @property
    def number(self) -> int: ...

    def value(self, where: str) -> str | None: ...

    async def changed(self, since: int) -> int: ...

    def reached(self, where: str) -> None: ...

    def missed(self, where: str, why: str) -> None: ...


class AtStart(Protocol):
    """Holds a created container before the first instruction of its program."""

    def needed(self) -> bool:
        """Whether a program may have to wait."""

    async def written(self, container_id: ContainerId, within_s: float) -> str:
        """Returns within that time: empty where the program may begin, else why it must not."""


class ReadSets(Protocol):
    """Which CPUs the kernel has for containers (`cpuset.cpus`), by cgroup path; 0 for one that is not pinned. Those
    that cannot be read are left out. Never raises."""

    async def __call__(self, paths: tuple[str, ...], /) -> Mapping[str, CpuSet]: ...


class ReadHints(Protocol):
    """Where the things lie that a container which is being created uses; None where nobody goes by that. The awaitable
    ends within `within_s`, with what is known by then, and never raises."""

    def __call__(
        self, question: Creating, used: Callable[[], list[Used]], within_s: float, /
    ) -> Awaitable[Hints] | None:
        """`used` is called where it matters."""


class Sequence(Protocol):
    """The core's sequence number now, for the `as_of` of a list that is about to be requested."""

    def __call__(self) -> int: ...
