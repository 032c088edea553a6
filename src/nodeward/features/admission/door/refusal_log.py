"""Logs what the webhook turns away: a kind at once, then at most one line in APART_S with the count.

A flood of bad requests must neither fill the log nor go unseen until the program ends.

Must not: wait, or keep more than a number for each kind.
"""

import asyncio
import logging

from nodeward.core.text import printable

log = logging.getLogger(__name__)
APART_S = 60.0
_MOST_WORDS = 400
"""Of a reason, in characters: it may name what a client sent."""


class RefusalLog:
    """Logs the refusals of one server. To be used on the loop's thread.

    `kind` is one of a few words of ours, never what a client sent."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._untold: dict[str, int] = {}

    def tell(self, kind: str, why: str) -> None:
        """One more of this kind was turned away. Where a line stands for several, `why` is the first one's."""
        if kind in self._untold:
            self._untold[kind] += 1
            return
        self._say(kind, why, 1)

    def _say(self, kind: str, why: str, times: int) -> None:
        log.warning("turned_away=%s times=%d because=%s", kind, times, printable(why, _MOST_WORDS))
        self._untold[kind] = 0
        self._loop.call_later(APART_S, self._again, kind, why)

    def _again(self, kind: str, why: str) -> None:
        times = self._untold.pop(kind)
        if times:
            self._say(kind, why, times)
