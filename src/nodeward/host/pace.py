"""Long work beside the event loop, done so that the loop's thread need not wait for the interpreter.

CPython takes the interpreter from a thread at work after `sys.setswitchinterval`, by a timed wait of the thread that
wants it; on a virtual machine such waits end milliseconds late. A thread that pauses by itself is not waited for.
"""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
PAUSE_S = 50e-6


def paced(items: Iterable[T], each: int) -> Iterator[T]:
    """The items, with a pause after so many; for a thread of its own, never on the loop. `each` is chosen so that what
    is done with them takes a few tenths of a millisecond."""
    for number, item in enumerate(items):
        if number and not number % each:
            time.sleep(PAUSE_S)
        yield item
