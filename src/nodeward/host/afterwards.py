"""Work that nobody waits for: done when the runtime that was just answered has had time to go on.

Done at once, it would take the processor from the runtime. Promises: in order, soon, a piece at a time, and all of
it at `finish`. Must not decide anything.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
LATER_S = 0.01
"""Later than a kernel's tick (4 ms, or 10): a timer before that is set in the hardware each time the loop goes to
sleep, which costs each call of a runtime 7 us in a virtual machine, often on the runtime's processor."""
MOST = 16
"""With so much to do it is not put off any longer."""
PIECE = 4
"""So much is done at a time, some 40 us of records: a create that comes meanwhile waits for no more."""


class Afterwards(Generic[T]):
    """What is to be done, oldest first. Belongs to the loop's thread."""

    def __init__(self, do: Callable[[list[T]], None]) -> None:
        """`do` takes some of it, perhaps none, and does not raise."""
        self._do = do
        self._left: list[T] = []
        self._waits = self._at_work = False

    def put(self, one: T) -> None:
        """Has it done later; at once where no loop runs, in a test or a simulation."""
        self._left.append(one)
        if self._at_work or (self._waits and len(self._left) < MOST):
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.finish()
            return
        if len(self._left) >= MOST:
            self._at_work = True
            loop.call_soon(self._piece)
        else:
            self._waits = True
            loop.call_later(LATER_S, self._waited)

    def finish(self) -> None:
        """Does all that is left."""
        self._take(len(self._left))

    def _waited(self) -> None:
        self._waits = False
        if not self._at_work:
            self._piece()

    def _piece(self) -> None:
        """Between two pieces the loop hears what the runtime asks meanwhile."""
        self._take(max(PIECE, len(self._left) // 4))
        self._at_work = bool(self._left)
        if self._at_work:
            asyncio.get_running_loop().call_soon(self._piece)

    def _take(self, count: int) -> None:
        taken, self._left = self._left[:count], self._left[count:]
        self._do(taken)
