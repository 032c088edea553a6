"""Memory through which a relay's dump goes to its writer: a stream of bytes, put by one process and taken by another.

Through a socket a list of 500 containers is several system calls, and both sides wake for each buffer that fills. Here
it is one copy; a socket only says that there is more, and ends when the relay does.
"""

import mmap
import os
from typing import Final

_PUT, _TAKEN = range(2)
BYTES: Final = 4 * 1024 * 1024
_BELLS: Final = 4096


class Ring:
    """Both ends of it. The two words count bytes, ever: one is set by who puts, after the bytes are there, the other by
    who takes, after they are copied."""

    __slots__ = ("_bytes", "_words")

    def __init__(self, file: int = -1, begin: int = 0) -> None:
        """In a file of memory from `begin` on, a multiple of the page size; the file is made as long as it has to be.
        Without one, in memory of this process alone."""
        size = mmap.PAGESIZE + BYTES
        if file >= 0 and os.fstat(file).st_size < begin + size:
            os.ftruncate(file, begin + size)
        whole = memoryview(mmap.mmap(file, size, offset=begin))
        self._words = whole[: mmap.PAGESIZE].cast("Q")
        self._bytes = whole[mmap.PAGESIZE :]

    @property
    def used(self) -> int:
        """So many bytes have not been taken."""
        return self._words[_PUT] - self._words[_TAKEN]

    def put(self, data: bytes | memoryview) -> int:
        """As much of it as there is room for now; says how much that was."""
        at, size = self._words[_PUT], min(len(data), BYTES - self.used)
        begin = at % BYTES
        first = min(size, BYTES - begin)
        self._bytes[begin : begin + first] = data[:first]
        if first < size:
            self._bytes[: size - first] = data[first:size]
        self._words[_PUT] = at + size
        return size

    def take(self, most: int) -> bytes:
        """What is there, at most so much and not beyond the end of a round; nothing only if nothing is there."""
        at = self._words[_TAKEN]
        begin = at % BYTES
        data = bytes(self._bytes[begin : min(begin + min(self.used, most), BYTES)])
        self._words[_TAKEN] = at + len(data)
        return data

    def read(self, bell: int, most: int) -> bytes:
        """The same, and waits for it: `bell` is a descriptor by which the other side says that there is more. Nothing
        once that has ended and all is taken."""
        while not (data := self.take(most)):
            if not os.read(bell, _BELLS):
                return self.take(most)
        return data
