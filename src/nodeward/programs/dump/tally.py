"""What a dump's writer has done so far, in memory that the relay reads too.

So the relay knows what became of its messages, even of a writer that was killed, and is never woken for it.
"""

import mmap
from typing import Final

_DONE, _MARKED, _LOST, _MISSING, _OFFERED, _OFFERED_MARKS = range(6)
_BYTES: Final = 6 * 8
_SET: Final = 1


class Tally:
    """Four counters, which the writer sets and the relay reads; and the other way what the relay gave it, once it does
    not wait for that any more. Each is one aligned word, so none is ever read half. Words may be seen in another order
    than they were set in, as arm64 does it: while both processes run, nothing here goes by two of them at once but
    `left`, whose words each say that they are set. All of them hold once the writer has been waited for."""

    __slots__ = ("_words",)

    def __init__(self, file: int = -1) -> None:
        """In a file of memory, which is made as long as it has to be; without one, in memory of this process alone."""
        self._words = memoryview(mmap.mmap(file, _BYTES)).cast("Q")

    @property
    def done(self) -> int:
        """Messages that were taken from the relay and are in the file, or lost."""
        return self._words[_DONE]

    @property
    def marked(self) -> int:
        """Messages that the relay said it had no room for, and that the file says are missing, or `missing` counts."""
        return self._words[_MARKED]

    @property
    def lost(self) -> int:
        """Messages that could not be written."""
        return self._words[_LOST]

    @property
    def missing(self) -> int:
        """Messages that the file does not say are missing yet."""
        return self._words[_MISSING]

    def give_up(self, messages: int, marks: int) -> None:
        """The relay's: so many were given to this writer, whether they have reached it or not. What of it is not done
        by now is to be marked as missing, and no more."""
        self._words[_OFFERED] = _SET + messages
        self._words[_OFFERED_MARKS] = _SET + marks

    @property
    def given_up(self) -> bool:
        """Whether the relay waits for nothing but the mark."""
        return self._words[_OFFERED] >= _SET and self._words[_OFFERED_MARKS] >= _SET

    @property
    def left(self) -> tuple[int, int]:
        """Messages and marks that are given up."""
        if not self.given_up:
            return 0, 0
        offered, marks = self._words[_OFFERED] - _SET, self._words[_OFFERED_MARKS] - _SET
        return offered - self._words[_DONE], marks - self._words[_MARKED]

    def written(self, messages: int, marked: int) -> None:
        """So many more are in the file, and nothing is missing there that it does not say."""
        self._words[_MISSING] = 0
        self._words[_DONE] += messages
        self._words[_MARKED] += marked

    def failed(self, messages: int, marked: int) -> None:
        """So many more could not be written."""
        self._words[_LOST] += messages
        self._words[_MISSING] += messages + marked
        self._words[_DONE] += messages
        self._words[_MARKED] += marked
