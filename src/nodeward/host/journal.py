"""A file of lines for which somebody waits: one write(2) for each, on its own lane, within a bound.

A line is there for the process that comes after this one, not after a crash of the machine: nothing is synced. The end
of the file is only added to while it is known to be whole. After a write that failed, that was late, or that somebody
else did, everything is written anew in its place instead, so no line is torn in the middle or missing between two
others, and a call that comes back late is never mixed with a later one.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane, done_on

T = TypeVar("T")
MOST_LINES, MOST_BYTES = 4096, 1024 * 1024
"""A file that is longer is written anew."""

Within = Callable[[Callable[[], None]], None]
"""Does a call, and raises OSError where it takes too long; every other fails until that has come back."""


class Written(NamedTuple):
    """How a write ended."""

    why_not: str = ""
    anew: bool = False
    """The whole content was written, not the line alone."""


class Journal:
    """One file. Belongs to the loop's thread. What it knows of the file belongs to the one call that is under way."""

    def __init__(self, files: HostFiles, path: str, lane: Lane, within: Within) -> None:
        self.path = path
        self._files, self._lane, self._within = files, lane, within
        self._end: tuple[int, int] | None = None
        """Inode and size of the file while it is as this has left it."""
        self._lines = 0
        self._writes = 0
        self._failed: dict[int, None] = {}
        """The writes, by number, whose lines the file may lack."""

    async def append(self, line: bytes, whole: Callable[[], bytes]) -> Written:
        """Adds the line, which ends with a line break; `whole` gives all that is to be there with it, if that is to be
        written instead. It is called elsewhere than on the loop."""
        return await self._written(partial(self._append, line, whole, self._writes + 1))

    async def rewrite(self, whole: Callable[[], bytes]) -> Written:
        """Writes the whole journal again."""
        return await self._written(partial(self._rewrite, whole))

    async def stands(self) -> bool:
        """Whether the file is there as this has left it; also true where that cannot be told now."""
        try:
            return await self.do(lambda: self._now() == self._end)
        except Exception:  # whatever it is, the next line that is added meets it too, and says so
            return True

    async def do(self, job: Callable[[], T]) -> T:
        """Another job on the same file, as bounded as the others. Raises what it raises, and OSError if it is late."""
        return await done_on(self._lane, "journal", partial(self._bounded, job))

    async def _written(self, job: Callable[[], Written]) -> Written:
        self._writes = number = self._writes + 1
        try:
            return await done_on(self._lane, "journal", partial(self._numbered, number, job))
        except Exception as error:
            self._failed[number] = None  # also where the lane took no more
            return Written((isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__)

    def _bounded(self, job: Callable[[], T]) -> T:
        found: list[T] = []
        self._within(lambda: found.append(job()))
        return found[0]

    def _numbered(self, number: int, job: Callable[[], Written]) -> Written:
        """On the lane: the next one of it has to know how this one ended."""
        try:
            done = self._bounded(job)
        except BaseException:
            self._failed[number] = None
            raise
        for one in [one for one in tuple(self._failed) if done.anew and one < number]:
            self._failed.pop(one, None)
        return done

    def _append(self, line: bytes, whole: Callable[[], bytes], number: int) -> Written:
        end, self._end = self._end, None
        if any(one < number for one in tuple(self._failed)):
            return self._rewrite(whole)
        if end is None or end[1] + len(line) > MOST_BYTES or self._lines >= MOST_LINES or self._now() != end:
            return self._rewrite(whole)
        self._files.append(self.path, line, sync=False)
        self._end = (end[0], end[1] + len(line))
        self._lines += 1
        return Written()

    def _rewrite(self, whole: Callable[[], bytes]) -> Written:
        self._end, data = None, whole()
        self._files.replace(self.path, data)
        self._end, self._lines = self._now(), data.count(b"\n")
        return Written(anew=True)

    def _now(self) -> tuple[int, int] | None:
        try:
            found = self._files.stat(self.path)
        except FileNotFoundError:
            return None
        return found.inode, found.size
