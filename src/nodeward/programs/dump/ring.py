"""Shared memory between a relay and the writer of its dump.

Through a socket a list of 500 containers is several system calls, and both sides wake for each buffer that fills. Here
it is one copy; a socket only says that there is more, and ends when the relay does.

The memory holds the bytes and nothing else. How many were put, and how many were taken, goes by a counter of the kernel
each way (eventfd), because Python has no memory barriers: on a machine that orders memory weakly (arm64), a count that
lies in the memory too may be seen before the bytes are that it counts. The kernel changes and reads a counter under its
lock. Letting go of a lock comes after all that was stored or loaded before it, and taking it before all that follows,
on every machine. So who has heard that bytes were put sees them whole, and who has heard that bytes were taken writes
over none that is still being copied. Between two of these calls memory may be stored and loaded in any order.
"""

import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

BYTES: Final = 4 * 1024 * 1024
_BELLS: Final = 4096


class _End:
    """One of both. It goes round by its own count, in as much of the memory as the other end has left to it."""

    __slots__ = ("_at", "_bytes", "_hears", "_left", "_says")

    def __init__(self, memory: int, begin: int, says: int, hears: int, left: int) -> None:
        """In a file of memory from `begin` on, a multiple of the page size; it is made as long as it has to be."""
        if os.fstat(memory).st_size < begin + BYTES:
            os.ftruncate(memory, begin + BYTES)
        self._bytes = memoryview(mmap.mmap(memory, BYTES, offset=begin))
        self._says, self._hears, self._left, self._at = says, hears, left, 0

    def _listen(self) -> int:
        """So many bytes are this end's now."""
        with suppress(BlockingIOError):  # the other has gone no further
            self._left += os.eventfd_read(self._hears)
        return self._left

    def _pass(self, size: int) -> None:
        """So many have been stored or copied."""
        self._at = (self._at + size) % BYTES
        self._left -= size


class Giver(_End):
    """The relay's end."""

    __slots__ = ("_untold", "counters")

    def __init__(self, memory: int, begin: int) -> None:
        """The counters are made here; close it when nothing more is put."""
        self.counters = _counter(), _counter()
        """Of the bytes that were put, and of those that were taken: for the other end."""
        super().__init__(memory, begin, *self.counters, BYTES)
        self._untold = 0

    def close(self) -> None:
        """The counters are the other end's alone."""
        for counter in self.counters:
            os.close(counter)

    @property
    def used(self) -> int:
        """The bytes that are not taken yet."""
        return BYTES - self._listen()

    def put(self, data: bytes | memoryview) -> int:
        """Puts in as much as there is room for; says how much that was. It is there for the other end once that is
        told."""
        left = self._left if len(data) <= self._left else self._listen()
        begin, size = self._at, min(len(data), left)
        first = min(size, BYTES - begin)
        self._bytes[begin : begin + first] = data[:first]
        if first < size:
            self._bytes[: size - first] = data[first:size]
        self._pass(size)
        self._untold += size
        return size

    def put_all(self, pieces: Sequence[bytes | memoryview], size: int) -> bool:
        """All of these, of which the sum is known, where they have room behind one another; else none, and it is
        False."""
        begin = self._at
        if begin + size > BYTES or (size > self._left and size > self._listen()):
            return False
        room = self._bytes
        for piece in pieces:
            end = begin + len(piece)
            room[begin:end] = piece
            begin = end
        self._pass(size)
        self._untold += size
        return True

    def tell(self) -> bool:
        """What was put is the other end's from here on; whether that is anything."""
        untold, self._untold = self._untold, 0
        if untold:
            os.eventfd_write(self._says, untold)
        return untold > 0


class Taker(_End):
    """The writer's end."""

    __slots__ = ()

    def __init__(self, memory: int, begin: int, put: int, taken: int) -> None:
        """With the counters that the other end has made."""
        super().__init__(memory, begin, taken, put, 0)

    def take(self, most: int) -> bytes:
        """Takes at most so many bytes, not beyond the end of a round; nothing only if nothing is there."""
        data = bytes(self._bytes[self._at : min(self._at + min(self._listen(), most), BYTES)])
        self._pass(len(data))
        os.eventfd_write(self._says, len(data))
        return data

    def read(self, bell: int, most: int) -> bytes:
        """The same, and waits for it: `bell` is a descriptor by which the other side says that there is more. Nothing
        once that has ended and all is taken."""
        while not (data := self.take(most)):
            if not os.read(bell, _BELLS):
                return self.take(most)
        return data


def _counter() -> int:
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
