"""Watches that the event loop turns, from a thread of its own.

The loop beats every BEAT_S and measures how late each beat is. The thread looks at the last beat: where the loop has
stood for longer than STALL_S, it writes down what every thread is doing, once a stall and at most once in
DUMPS_APART_S; and it feeds a service manager's watchdog only for as long as the loop turns. Must not touch what it
watches: it takes no lock of the loop's and reads no file.
"""

import asyncio
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

log = logging.getLogger(__name__)
BEAT_S = 0.1
"""0.2 % of a core for both. A stall is surely seen once it is STALL_S and two beats long."""
STALL_S = 0.25
DUMPS_APART_S = 10.0
WINDOW = 600
"""Beats that are remembered: a minute."""
MOST_FRAMES = 40


@dataclass(frozen=True, slots=True)
class Lag:
    """How late the loop was in the last minute, in microseconds, and how often it stood since the start."""

    max_us: int
    p99_us: int
    stalls: int


class Watchdog:
    """One loop's. `start` on the loop; `feed` is called from the thread."""

    def __init__(self, feed: Callable[[], object] = lambda: None, feed_every_s: float = 0.0) -> None:
        """`feed_every_s` 0: nobody is fed."""
        self._feed, self._feed_every_s = feed, feed_every_s
        self._lags: deque[float] = deque(maxlen=WINDOW)
        self._last = time.monotonic()
        self._beats = 0
        self._stalls = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to beat and to watch, on the running loop."""
        self._last = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)
        self._thread = threading.Thread(target=self._watch, name="nodeward-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends both."""
        if self._timer is not None:
            self._timer.cancel()
        self._stop.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def lag(self) -> Lag:
        """What was measured."""
        lags = sorted(self._lags)
        if not lags:
            return Lag(0, 0, self._stalls)
        return Lag(round(lags[-1] * 1e6), round(lags[len(lags) * 99 // 100] * 1e6), self._stalls)

    def _beat(self) -> None:
        self._last = time.monotonic()
        if self._timer is not None:
            self._lags.append(max(0.0, self._last - self._timer.when()))
        self._beats += 1
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _watch(self) -> None:
        stalled_since = dumped = fed_at = 0.0
        fed_beats = -1
        while not self._stop.wait(BEAT_S):
            now, last, beats = time.monotonic(), self._last, self._beats
            if now - last > BEAT_S + STALL_S and last != stalled_since:
                stalled_since = last
                self._stalls += 1
                if not dumped or now - dumped >= DUMPS_APART_S:
                    dumped = now
                    _dump(now - last)
            if self._feed_every_s and now - fed_at >= self._feed_every_s and beats != fed_beats:
                fed_at, fed_beats = now, beats
                self._feed()


def _dump(stood_s: float) -> None:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    log.warning("loop=stands ms=%.0f threads=%d", stood_s * 1e3, len(names))
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            log.warning("loop=stands thread=%s stack='%s'", names.get(ident, ident), _stack(frame))


def _stack(frame: FrameType | None) -> str:
    """Innermost first, from what is in memory: a source file may lie on the disk that hangs."""
    calls: list[str] = []
    while frame is not None and len(calls) < MOST_FRAMES:
        code = frame.f_code
        calls.append(f"{code.co_name} {'/'.join(code.co_filename.rsplit('/', 2)[-2:])}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(calls)
