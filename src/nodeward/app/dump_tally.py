"""What a dump's writer has done so far, in memory that the relay reads too.

So the relay knows what became of its messages, even of a writer that was killed, and is never woken for it.
"""

import mmap
from typing import Final

_DONE, _MARKED, _LOST, _MISSING = range(4)
_BYTES: Final = 4 * 8


class Tally:
    """Four counters; the writer sets them, the relay reads. Each is one aligned word, so none is ever read half."""

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
