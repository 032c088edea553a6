"""Waits until something happens to objects of the API server: a watch that says when to look, and not what there is.

Who looks anew after each wait misses no event and misreads none. Must not: keep versions, or try again.
"""

from collections.abc import Callable
from typing import Final

from nodeward.neighbours.formats.kube_objects import LineSplitter
from nodeward.neighbours.sockets.kube_http import KubeHttp, Waits

WATCH_S: Final = 240
"""So long a watch stands at most; then its caller looks anew."""
_WAITS: Final = Waits(connect_s=5.0, read_s=WATCH_S + 30.0, total_s=WATCH_S + 30.0)


async def until_news(http: KubeHttp, path: str, is_news: Callable[[bytes], bool] | None = None, **query: str) -> bool:
    """Whether some line of a watch is news before the watch ends. Without `is_news` anything is, unread.

    Raises KubeHttpError, WireError for a line that is too long, and what `is_news` raises."""
    splitter = LineSplitter()
    query = {"watch": "1", "timeoutSeconds": str(WATCH_S), **query}
    async with http.stream(path, query, waits=_WAITS) as chunks:
        async for chunk in chunks:
            if is_news is None or any(is_news(line) for line in splitter.feed(chunk)):
                return True
    return False
