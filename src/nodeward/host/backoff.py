"""How long to wait before the next try, so that a neighbour that comes back is not met by everybody at once.

Promises: the wait doubles from `first_s` to `most_s`, and half of it is drawn from the given source. Must not keep
time: who waits uses its own clock.
"""

from collections.abc import Callable


class Backoff:
    """The waits between tries of one thing."""

    __slots__ = ("_ceiling_s", "_first_s", "_most_s", "_random")

    def __init__(self, first_s: float, most_s: float, random: Callable[[], float]) -> None:
        """`random` gives numbers in [0, 1)."""
        self._first_s = first_s
        self._most_s = most_s
        self._random = random
        self._ceiling_s = first_s

    def next_s(self) -> float:
        """Seconds to wait now; the next answer is longer, up to the bound."""
        ceiling = self._ceiling_s
        self._ceiling_s = min(self._most_s, ceiling * 2)
        return ceiling * (0.5 + 0.5 * self._random())

    def reset(self) -> None:
        """It worked: the next wait is a first one again."""
        self._ceiling_s = self._first_s
