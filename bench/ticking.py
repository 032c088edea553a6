"""`nodeward node` with a ticker on its event loop, which tells how late it was woken and what kept it.

    python -m bench.ticking waits FILE node --config ...
    python -m bench.ticking callbacks FILE node --config ...

On SIGUSR1 what was seen since the last one, or since the start, is written to FILE. The daemon itself is the whole
product, in the same process. With `waits` it is on its own loop. That one is compiled and lets nobody measure its
callbacks, so with `callbacks` the same callbacks are called by asyncio's own, which is Python.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from nodeward.cli.main import main as nodeward
from nodeward.features.settings import Settings
from nodeward.host import loop
from nodeward.host.clock import Clock
from nodeward.host.executor import DaemonExecutor
from nodeward.host.hostfs import HostFiles
from nodeward.programs.node import run as node
from nodeward.settings.source import SettingsSource

TICK_S = 0.001
WAITS, CALLBACKS = "waits", "callbacks"
"""What is measured."""
DRAWING = "nodeward-metrics"
"""The thread on which a scrape's text is drawn."""


@dataclass(slots=True)
class Seen:
    """What a ticker saw, in microseconds, one number a tick or a callback."""

    late: list[int] = field(default_factory=list)
    """How long after its time the ticker was woken, whoever was the reason; the daemon's own loop counts in whole
    milliseconds."""
    waited: list[int] = field(default_factory=list)
    """How long the loop's thread, having let the interpreter go, waited to get it back, as far as the drawing thread
    was at work meanwhile, by its own processor time."""
    worked: list[int] = field(default_factory=list)
    """The loop thread's own processor time in each callback; this and the next with `callbacks` only."""
    took: list[int] = field(default_factory=list)
    """The same by the wall's clock: with what other threads and other programs had of the processor meanwhile."""
    collected: list[int] = field(default_factory=list)
    """The processor time of each full garbage collection, on whatever thread: nobody has the interpreter meanwhile."""
    long: dict[str, int] = field(default_factory=dict)
    """The longest work of each kind of callback, for those that worked more than a millisecond."""


class Ticker:
    """One loop's. To be made and used on it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._seen = Seen()
        self._begins, self._telling = True, False
        self._clock: int | None = None
        self._collects = 0.0

    def tick(self) -> None:
        """From now on."""
        self._timer = self._loop.call_later(TICK_S, self._woken)

    def _woken(self) -> None:
        late = time.monotonic() - self._timer.when()
        if not self._begins:  # what was late by the telling itself is not counted
            self._seen.late.append(max(0, int(late * 1e6)))
            self._seen.waited.append(int(self._handed_back_s() * 1e6))
        self._begins = False
        self.tick()

    def worked(self, seconds: float, took: float, callback: object) -> None:
        """One more callback has ended."""
        if self._telling:
            self._telling = False
            return
        self._seen.worked.append(int(seconds * 1e6))
        self._seen.took.append(int(took * 1e6))
        if self._seen.worked[-1] > 1000:
            name = _name(callback)
            self._seen.long[name] = max(self._seen.long.get(name, 0), self._seen.worked[-1])

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """For `gc.callbacks`."""
        now = time.thread_time()
        if phase == "stop" and info["generation"] == 2:
            self._seen.collected.append(int((now - self._collects) * 1e6))
        self._collects = now

    def tell(self) -> None:
        """Writes what there is, and begins anew."""
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self._seen)))
        os.replace(new, self._file)
        self._seen, self._begins, self._telling = Seen(), True, True

    def _handed_back_s(self) -> float:
        """Lets the interpreter go, as every wait for a socket does, and asks for it again at once."""
        drawn, began = self._drawn_s(), time.perf_counter()
        time.sleep(0)
        return min(time.perf_counter() - began, self._drawn_s() - drawn)

    def _drawn_s(self) -> float:
        """Processor time of the drawing thread until now."""
        if self._clock is None:
            found = [thread.ident for thread in threading.enumerate() if thread.name == DRAWING]
            if not found or found[0] is None:
                return 0.0
            self._clock = time.pthread_getcpuclockid(found[0])
        try:
            return time.clock_gettime(self._clock)
        except OSError:  # it has ended, as the daemon is about to
            return 0.0


def _name(callback: object) -> str:
    """What a callback does, by the names in the code: a job of a lane by its own, a step of a task by the task's."""
    args = callback.args if isinstance(callback, partial) else ()
    callback = callback.func if isinstance(callback, partial) else callback
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"task {getattr(task.get_coro(), '__qualname__', task.get_name())}"
    job = getattr(args[0], "name", "") if args else ""
    return f"{getattr(callback, '__qualname__', callback)}{f' of {job}' if job else ''}"


def _on_asyncio_s() -> asyncio.AbstractEventLoop:
    made = asyncio.SelectorEventLoop()
    made.set_default_executor(DaemonExecutor())
    return made


def _time_callbacks(ticker: Ticker) -> None:
    handle = asyncio.Handle._run
    method, what = "_run", "_callback"  # asyncio has no other place to measure at

    def timed(one: asyncio.Handle) -> None:
        callback = getattr(one, what)
        at, began = time.perf_counter(), time.thread_time()
        handle(one)
        ticker.worked(time.thread_time() - began, time.perf_counter() - at, callback)

    setattr(asyncio.Handle, method, timed)


def main() -> None:
    """The daemon with these arguments, and the ticker beside it."""
    what, file, run = sys.argv.pop(1), Path(sys.argv.pop(1)), node.run
    if what == CALLBACKS:
        loop.new_loop = _on_asyncio_s

    async def ticking(settings: Settings, files: HostFiles, clock: Clock, source: SettingsSource | None = None) -> None:
        ticker = Ticker(file)
        if what == CALLBACKS:
            _time_callbacks(ticker)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, ticker.tell)
        gc.callbacks.append(ticker.collected)
        ticker.tick()
        await run(settings, files, clock, source)

    node.run = ticking
    nodeward()


if __name__ == "__main__":
    main()
