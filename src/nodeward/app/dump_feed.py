"""The relay's side of its dump: copies what the rules choose to the process that formats and writes it.

It runs in the relay's loop, while the relayed bytes wait, so it packs a head and keeps a reference; what gathered goes
to the writer's socket in one call a few milliseconds later. Where the writer is slower than the calls, messages are
left out, counted and told of in the file: the relay waits for no disk. A writer that ends is started again.
"""

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from itertools import islice

from nodeward.aio.backoff import Backoff
from nodeward.aio.clock import Clock
from nodeward.model.relayed import Call, Ended, Interest, Message
from nodeward.model.settings import DumpSection
from nodeward.wire import dump_feed
from nodeward.wire.dump_feed import Frame, Kind
from nodeward.wire.dump_rules import Level, Rules

log = logging.getLogger(__name__)
LATER_S = 0.005
MAX_WAITING = 64 * 1024 * 1024
"""So many bytes wait for the writer at most."""
KILLED_S = 0.2
MAX_PIECES = 512
"""So many are given to one system call (UIO_MAXIOV is 1024)."""
_INTEREST = {Level.OFF: Interest.NONE, Level.NAME: Interest.CALL, Level.FULL: Interest.ALL}


class Writer:
    """The process that writes the dump, and the socket to it."""

    def __init__(self, section: DumpSection) -> None:
        near, far = socket.socketpair()
        near.setblocking(False)
        with far:
            self._process = subprocess.Popen(_command(section), stdin=far.fileno(), stdout=subprocess.DEVNULL)
        self.socket = near

    def close(self, wait_s: float) -> None:
        """Lets it write what it has, and waits so long for that."""
        self.socket.close()
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            log.warning("dump=unfinished why='its disk did not take it within %g s'", wait_s)
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # a process that hangs in the kernel is left to it
                self._process.wait(KILLED_S)


def _command(section: DumpSection) -> list[str]:
    own = [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-m", "nodeward"]
    shown = [part for name in section.show for part in ("--show", name)]
    return [*own, "dump", "--write", "--max-bytes", str(section.max_bytes), *shown, "--", section.file]


class Feed:
    """A Watcher. Belongs to the loop's thread."""

    def __init__(self, rules: Rules, start: Callable[[], Writer], clock: Clock, backoff: Backoff) -> None:
        self._rules, self._start, self._clock, self._backoff = rules, start, clock, backoff
        self._writer: Writer | None = None
        self._waiting: deque[bytes | memoryview] = deque()
        self._bytes = 0
        self._scheduled = False
        self._blocked = False
        self._answered: dict[int, None] = {}
        self._untold = 0
        self.told, self.lost = 0, 0
        """Frames that were handed over, and messages that had no room, ever."""

    def open(self) -> None:
        """Starts the writer. Call it in the loop."""
        self._writer = self._start()

    def close(self, wait_s: float) -> None:
        """Hands over what waits, as far as the writer takes it, and ends the writer."""
        if self._writer is None:
            return
        self._unblock()
        self._writer.socket.settimeout(wait_s)
        try:
            while self._waiting:
                self._sent(self._writer.socket.sendmsg(list(islice(self._waiting, MAX_PIECES))))
        except OSError as error:
            log.warning("dump=unfinished bytes=%d why=%r", self._bytes, error.strerror or str(error))
        self._writer.close(wait_s)
        self._writer = None

    @property
    def waiting_bytes(self) -> int:
        """What the writer has not taken yet."""
        return self._bytes

    # ---- a Watcher -------------------------------------------------------------------------------------------------

    def interest(self, path: str) -> Interest:
        """By the rules for the method's bare name."""
        return _INTEREST[self._rules.level(path.rpartition("/")[2])]

    def began(self, call: Call) -> None:
        """Nothing is told before there is a message."""

    def request(self, call: Call, message: Message) -> None:
        """Tells of the request."""
        self._message(Kind.REQUEST, call, message, self._clock.wall_ns(), 0)

    def response(self, call: Call, message: Message) -> None:
        """Tells of the reply, or of one more of a stream."""
        self._answered[call.number] = None
        self._message(Kind.RESPONSE, call, message, message.at_ns - call.began_ns, 0)

    def ended(self, call: Call, end: Ended) -> None:
        """Tells how the call ended."""
        flags = dump_feed.HELD if call.held else 0
        flags |= dump_feed.FULL if self.interest(call.path) is Interest.ALL else 0
        flags |= dump_feed.ANSWERED if call.number in self._answered else 0
        flags |= dump_feed.NO_STATUS if end.status is None else 0
        self._answered.pop(call.number, None)
        took = end.at_ns - call.began_ns
        text = end.text.encode("utf-8", "replace")
        self._tell(Frame(Kind.ENDED, call.number, took, flags, call.path, text, status=end.status or 0))

    # ---- on the way to the writer ----------------------------------------------------------------------------------

    def _message(self, kind: Kind, call: Call, message: Message, time_ns: int, flags: int) -> None:
        flags |= (dump_feed.HELD if call.held else 0) | (dump_feed.COMPRESSED if message.compressed else 0)
        self._tell(Frame(kind, call.number, time_ns, flags, call.path, message.payload, message.size_bytes))

    def _tell(self, frame: Frame) -> None:
        if self._bytes + len(frame.payload) > MAX_WAITING:
            self._untold += 1
            self.lost += 1
            return
        if self._untold and self._bytes <= MAX_WAITING // 2:
            lost, self._untold = self._untold, 0
            self._put(Frame(Kind.LOST, 0, self._clock.wall_ns(), 0, "", b"", lost))
        self._put(frame)
        self.told += 1

    def _put(self, frame: Frame) -> None:
        for piece in dump_feed.encode(frame):
            if piece:
                self._waiting.append(piece)
                self._bytes += len(piece)
        if not self._scheduled and not self._blocked:
            self._scheduled = True
            asyncio.get_running_loop().call_later(LATER_S, self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._writer is None:
            return
        try:
            while self._waiting:
                self._sent(self._writer.socket.sendmsg(list(islice(self._waiting, MAX_PIECES))))
                self._backoff.reset()
        except BlockingIOError:
            if not self._blocked:
                self._blocked = True
                asyncio.get_running_loop().add_writer(self._writer.socket.fileno(), self._flush)
            return
        except OSError as error:
            self._ended(error)
            return
        self._unblock()

    def _sent(self, count: int) -> None:
        self._bytes -= count
        while count:
            piece = self._waiting[0]
            if len(piece) > count:
                self._waiting[0] = memoryview(piece)[count:]
                return
            count -= len(piece)
            self._waiting.popleft()

    def _unblock(self) -> None:
        if self._blocked and self._writer is not None:
            self._blocked = False
            asyncio.get_running_loop().remove_writer(self._writer.socket.fileno())

    def _ended(self, error: OSError) -> None:
        """The writer is gone. What was on its way is lost, and the next one is told so."""
        self._unblock()
        if self._writer is not None:
            self._writer.close(0.0)
            self._writer = None
        self._untold += len(self._waiting)
        self.lost += len(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        pause_s = self._backoff.next_s()
        log.error("dump=writer-ended why=%r again_in_s=%g", error.strerror or str(error), pause_s)
        asyncio.get_running_loop().call_later(pause_s, self._again)

    def _again(self) -> None:
        try:
            self._writer = self._start()
        except OSError as error:
            self._ended(error)
            return
        self._flush()
