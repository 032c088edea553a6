"""Copies the calls that the rules choose to the process that writes the dump.

It runs in the relay's loop, while the relayed bytes wait, so it keeps a reference to a short message and copies a long
one once, after these, to memory that the writer shares; the writer hears of it some milliseconds later, so that no call
wakes it. The relay waits for no disk (docs/relay.md): what finds no room is left out, counted and told of in the file.
"""

import asyncio
import contextlib
import logging
import mmap
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from nodeward.features.settings import DumpSection
from nodeward.host import leftover_time
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.neighbours.cri.calls import Call, Ended, Interest, Message
from nodeward.neighbours.cri.dump_rules import Level, Rules
from nodeward.neighbours.formats.grpc_messages import VIEWED_BYTES
from nodeward.programs.dump import frames
from nodeward.programs.dump import ring as dump_ring
from nodeward.programs.dump.frames import HEAD_BYTES, FrameKind, Told
from nodeward.programs.dump.ring import Giver

_DONE, _MARKED, _LOST, _MISSING, _OFFERED, _OFFERED_MARKS = range(6)
_BYTES: Final = 6 * 8
_SET: Final = 1


class Tally:
    """Four counters, which the writer sets and the relay reads; and the other way what the relay gave it, once it does
    not wait for that any more. Each is one aligned word, so none is ever read half. Words may be seen in another order
    than they were set in, as arm64 does it: while both processes run, nothing here goes by two of them at once but
    `left`, whose words each say that they are set. All of them hold once the writer has been waited for."""

    __slots__ = ("_words",)

    def __init__(self, file: int = -1) -> None:
        """In a file of memory, which is made as long as it has to be; without one, in memory of this process alone."""
        self._words = memoryview(mmap.mmap(file, _BYTES)).cast("Q")

    @property
    def done(self) -> int:
        """Messages that were taken from the relay and are in the file, or lost."""
        return self._words[_DONE]

    @property
    def marked(self) -> int:
        """Messages that the relay said it had no room for, and that the file says are missing, or `missing` counts."""
        return self._words[_MARKED]

    @property
    def lost(self) -> int:
        """Messages that could not be written."""
        return self._words[_LOST]

    @property
    def missing(self) -> int:
        """Messages that the file does not say are missing yet."""
        return self._words[_MISSING]

    def give_up(self, messages: int, marks: int) -> None:
        """The relay's: so many were given to this writer, whether they have reached it or not. What of it is not done
        by now is to be marked as missing, and no more."""
        self._words[_OFFERED] = _SET + messages
        self._words[_OFFERED_MARKS] = _SET + marks

    @property
    def given_up(self) -> bool:
        """Whether the relay waits for nothing but the mark."""
        return self._words[_OFFERED] >= _SET and self._words[_OFFERED_MARKS] >= _SET

    @property
    def left(self) -> tuple[int, int]:
        """Messages and marks that are given up."""
        if not self.given_up:
            return 0, 0
        offered, marks = self._words[_OFFERED] - _SET, self._words[_OFFERED_MARKS] - _SET
        return offered - self._words[_DONE], marks - self._words[_MARKED]

    def written(self, messages: int, marked: int) -> None:
        """Counts messages that are in the file, with all that is missing named there."""
        self._words[_MISSING] = 0
        self._words[_DONE] += messages
        self._words[_MARKED] += marked

    def failed(self, messages: int, marked: int) -> None:
        """Counts messages that could not be written."""
        self._words[_LOST] += messages
        self._words[_MISSING] += messages + marked
        self._words[_DONE] += messages
        self._words[_MARKED] += marked


log = logging.getLogger(__name__)
LATER_S = 0.02
MAX_WAITING = 64 * 1024 * 1024 - dump_ring.BYTES
"""So many bytes wait at most for room in the memory that the writer shares: 64 MiB with what is there."""
MARK_SHARE = 0.25
"""So much of the time that the dump has at the end is for saying what is missing."""
AGAIN_S = 0.001
"""At the end it is looked so often whether the writer has taken something."""
KILLED_S = 0.2
NICENESS = 10
"""The writer's: what is relayed goes before what is written of it."""
BEHIND_S = 0.5
"""It is looked so often whether a writer has done what it was given when it was looked last."""
STARVED = 0.5
"""One that has not is behind if it was kept from running for so much of the time, or if it has done nothing at all.
Else it takes its time, of which it rests the most, however much waits for it: calls come first."""
HURRIED_S = 10.0
"""So long at least it has its share then."""
COPIED_BYTES = VIEWED_BYTES
"""A shorter message is kept, and copied together with its neighbours: cheaper than each by itself. A longer one may be
views of much more, and is copied to the writer's memory as soon as its end has been passed on: once in all."""
MOST_PIECES = 1024
"""16 MiB from every known client and runtime. A message in more pieces is joined first: each put takes its time."""
MAX_METHODS = 1024
MAX_FRESH = 32
"""So many messages are packed at once at most: some 40 us, for which a call may wait. All that a client says in 20 ms
took 200 us at once, and costs no more bit by bit."""
_UNANSWERED = object()
_HELD, _COMPRESSED = frames.HELD, frames.COMPRESSED
_REQUEST, _RESPONSE, _ENDED = int(FrameKind.REQUEST), int(FrameKind.RESPONSE), int(FrameKind.ENDED)
_ALL = Interest.ALL
"""As plain names: to ask an enum for its member costs as much as a message."""
_INTEREST = {Level.OFF: Interest.NONE, Level.NAME: Interest.CALL, Level.FULL: Interest.ALL}


class Writer:
    """The process that writes the dump, and the way to it."""

    def __init__(self, section: DumpSection, again: bool = False) -> None:
        """`again`: it goes on with the file of the one before it."""
        near, far = socket.socketpair()
        near.setblocking(False)
        memory = os.memfd_create("nodeward-dump")
        with far, contextlib.ExitStack() as then, contextlib.ExitStack() as unless_started:
            then.callback(os.close, memory)
            os.ftruncate(memory, mmap.PAGESIZE)
            self.tally, self.ring = Tally(memory), Giver(memory, mmap.PAGESIZE)
            unless_started.callback(self.ring.close)
            shared = (memory, *self.ring.counters)
            command = _command(section, shared, again)
            self._process = subprocess.Popen(command, stdin=far.fileno(), stdout=subprocess.DEVNULL, pass_fds=shared)
            unless_started.pop_all()
        self._bell = near
        self._hurried, self._starved_s = True, 0.0
        niceness = max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness)
        self._yields = leftover_time.can_return(niceness)
        if self._yields:
            self.hurry(False)
        else:
            log.info(
                "dump=shares-processor why='without CAP_SYS_NICE or LimitNICE=+%d it runs by its niceness'", niceness
            )

    def wake(self) -> None:
        """Wakes the writer for new messages. Raises OSError if it has ended."""
        with contextlib.suppress(BlockingIOError):  # it has been told often enough
            self._bell.send(b"\0")

    def hurry(self, hurried: bool) -> bool:
        """It has a share of the processor, or what everybody else leaves. Whether that is new."""
        if hurried == self._hurried or not self._yields:
            return False
        self._hurried = hurried
        with contextlib.suppress(OSError):  # it has ended
            (leftover_time.share_it if hurried else leftover_time.leave_it)(self._process.pid)
        return True

    def starved_s(self) -> float:
        """How long the writer was kept from running since the last question."""
        before, self._starved_s = self._starved_s, leftover_time.starved_s(self._process.pid)
        return self._starved_s - before

    def close(self, wait_s: float, mark_s: float, given: tuple[int, int]) -> None:
        """Lets it write for `wait_s`, then for `mark_s` only note what is missing of the messages and marks that were
        `given` to it. One that hangs in its disk even then is left: it says so once the disk is back."""
        self.hurry(True)
        if wait_s <= 0:
            self.tally.give_up(*given)  # before it sees that nothing more comes
        self._bell.close()
        self.ring.close()
        if wait_s > 0 and self._ends(wait_s):
            return
        self.tally.give_up(*given)
        if self._ends(mark_s):
            return
        if mark_s > 0:
            log.warning("dump=unfinished pid=%d why='its disk took nothing within %g s'", self._process.pid, mark_s)
            return
        self._process.kill()  # it closed its socket, and is not gone yet
        self._ends(KILLED_S)

    def _ends(self, wait_s: float) -> bool:
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return False
        return True


def _command(section: DumpSection, shared: Sequence[int], again: bool) -> list[str]:
    own = [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-m", "nodeward"]
    shown = [part for name in section.show for part in ("--show", name)]
    given = ["--shared", *map(str, shared), *(["--go-on"] if again else []), *shown]
    return [*own, "dump", "--write", "--max-bytes", str(section.max_bytes), *given, "--", section.file]


class Feed:
    """A Watcher. Belongs to the loop's thread."""

    def __init__(self, rules: Rules, start: Callable[[bool], Writer], clock: Clock, backoff: Backoff) -> None:
        """`start` is told whether the writer that it makes is another one."""
        self._rules, self._start, self._clock, self._backoff = rules, start, clock, backoff
        self._writer: Writer | None = None
        self._fresh: list[Told] = []
        self._waiting: deque[bytes | memoryview] = deque()
        self._bytes = 0
        self._scheduled = False
        self._looks = False
        self._due = self._done = 0
        """So many messages are to be done when it is looked next; so many were when it was looked last."""
        self.hurries = 0
        """How often a writer that was behind was given a share of the processor, ever."""
        self._answered: dict[int, None] = {}
        self._methods: dict[str, tuple[Interest, bytes]] = {}
        self._untold = 0
        self._lost = 0
        self._begun = self._marks = 0
        """Messages that were handed to this writer, and messages that it was told are missing."""
        self.told = 0
        """Messages that were handed over, ever."""
        self.cut = 0
        """Those among them of which the relay had kept less than all, ever: the dump says so in their place."""

    def open(self) -> None:
        """Starts the writer. Call it in the loop."""
        self._writer = self._start(False)

    def close(self, wait_s: float) -> None:
        """Hands over what waits, as far as the writer takes it, and ends the writer: all within `wait_s`, and KILLED_S
        more where it has to be killed. What has not been written when only MARK_SHARE of `wait_s` is left is lost, and
        the writer marks it as missing."""
        if self._writer is None:
            return
        mark_s = wait_s * MARK_SHARE
        until_ns = self._clock.now_ns() + int((wait_s - mark_s) * 1e9)
        try:
            self._mark()
            self._pack()
            while not self._give(self._writer):
                if self._clock.now_ns() >= until_ns:
                    raise TimeoutError("the writer is too slow")
                time.sleep(AGAIN_S)
        except OSError as error:
            log.warning("dump=unfinished bytes=%d why=%r", self._bytes, error.strerror or str(error))
            until_ns = 0
        self._leave(max(0.0, (until_ns - self._clock.now_ns()) / 1e9), mark_s)

    @property
    def lost(self) -> int:
        """Messages that had no room, did not reach a writer that ended, or could not be written, ever."""
        return self._lost + (self._writer.tally.lost if self._writer is not None else 0)

    def follow(self, rules: Rules) -> None:
        """Other rules, for calls that begin from now on."""
        self._rules = rules
        self._methods.clear()

    @property
    def waiting_bytes(self) -> int:
        """What the writer has not taken yet."""
        return self._bytes + (self._writer.ring.used if self._writer is not None else 0)

    # ---- a Watcher -------------------------------------------------------------------------------------------------

    def interest(self, path: str) -> Interest:
        """The level of the rules for the method's bare name."""
        return (self._methods.get(path) or self._method(path))[0]

    def _method(self, path: str) -> tuple[Interest, bytes]:
        """What is shown of a method, and its path as it is told."""
        known = self._methods.get(path)
        if known is None:
            interest = _INTEREST[self._rules.level(path.rpartition("/")[2])]
            known = interest, path.encode("utf-8", "replace")[: frames.MAX_PATH]
            if len(self._methods) < MAX_METHODS:
                self._methods[path] = known
        return known

    def began(self, call: Call) -> None:
        """Does nothing: there is no message yet."""

    def request(self, call: Call, message: Message) -> None:
        """Dumps the request."""
        self._message(_REQUEST, call, message, self._clock.wall_ns())

    def response(self, call: Call, message: Message) -> None:
        """Dumps the reply, or one more of a stream."""
        self._answered[call.number] = None
        self._message(_RESPONSE, call, message, message.at_ns - call.began_ns)

    def ended(self, call: Call, end: Ended) -> None:
        """Dumps how the call ended, unless its messages show that."""
        interest, path = self._methods.get(call.path) or self._method(call.path)
        answered = self._answered.pop(call.number, _UNANSWERED) is None
        if answered and end.status == 0 and interest is _ALL:
            return
        flags = frames.HELD if call.held else 0
        flags |= frames.FULL if interest is _ALL else 0
        flags |= frames.ANSWERED if answered else 0
        flags |= frames.NO_STATUS if end.status is None else 0
        text = end.text.encode("utf-8", "replace")
        took_ns = end.at_ns - call.began_ns
        self._tell((_ENDED, call.number, took_ns, flags, path, (text,), len(text), end.status or 0))

    def unseen(self, connection: int, why: str) -> None:
        """Notes that the rest of this connection is not dumped, which would look as if there were no calls."""
        text = why.encode("utf-8", "replace")
        self._tell((FrameKind.UNSEEN, connection, self._clock.wall_ns(), 0, b"", (text,), len(text), 0))

    # ---- on the way to the writer ----------------------------------------------------------------------------------

    def _message(self, kind: int, call: Call, message: Message, time_ns: int) -> None:
        flags = (_HELD if call.held else 0) | (_COMPRESSED if message.compressed else 0)
        path = (self._methods.get(call.path) or self._method(call.path))[1]
        self._tell((kind, call.number, time_ns, flags, path, message.pieces, message.size_bytes, 0))

    def _tell(self, told: Told) -> None:
        length = sum(map(len, told[5]))
        size = HEAD_BYTES + len(told[4]) + length
        if self._bytes + size > MAX_WAITING:
            self._untold += 1
            self._lost += 1
            return
        if self._untold and self._bytes <= MAX_WAITING // 2:
            self._mark()
        self._fresh.append(told)
        self._bytes += size
        self._begun += 1
        self.told += 1
        self.cut += length < told[6]
        if len(self._fresh) >= MAX_FRESH:
            self._pack()  # bit by bit: all that a writer has kept waiting would hold up the loop
        elif length >= COPIED_BYTES:
            asyncio.get_running_loop().call_soon(self._pack)
        self._flush_later()

    def _mark(self) -> None:
        """Tells what is missing here, if something is."""
        if self._untold:
            self._fresh.append((FrameKind.LOST, 0, self._clock.wall_ns(), 0, b"", (b"",), self._untold, 0))
            self._bytes += HEAD_BYTES
            self._marks += self._untold
            self._untold = 0

    def _pack(self) -> None:
        """Hands on what was told lately: long messages in their pieces, short ones together."""
        fresh, self._fresh = self._fresh, []
        small: list[bytes | memoryview] = []
        for told in fresh:
            small += frames.head(told)
            pieces = told[5] if len(told[5]) <= MOST_PIECES else (b"".join(told[5]),)
            if sum(map(len, pieces)) < COPIED_BYTES:
                small += pieces
            else:
                self._put_all((b"".join(small), *pieces))
                small.clear()
        if small:
            self._put(b"".join(small))

    def _put_all(self, pieces: Sequence[bytes | memoryview]) -> None:
        size = sum(map(len, pieces))
        if self._writer is not None and not self._waiting and self._writer.ring.put_all(pieces, size):
            self._bytes -= size
            return
        for piece in pieces:
            self._put(piece)

    def _put(self, piece: bytes | memoryview) -> None:
        """To the writer's memory, or where that is full to what waits for room."""
        if self._writer is not None and not self._waiting:
            count = self._writer.ring.put(piece)
            self._bytes -= count
            if count == len(piece):
                return
            piece = piece[count:]
        self._waiting.append(bytes(piece))

    def _flush_later(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_later(LATER_S, self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._writer is None:
            return
        if not self._looks:
            self._look_in(self._writer, BEHIND_S)
        self._pack()
        try:
            if not self._give(self._writer):
                self._flush_later()
        except OSError as error:
            self._ended(error)

    def _look_in(self, writer: Writer, pause_s: float) -> None:
        self._looks, self._due, self._done = True, self._begun, writer.tally.done
        writer.starved_s()
        asyncio.get_running_loop().call_later(pause_s, self._look, pause_s)

    def _look(self, pause_s: float) -> None:
        """Gives a writer that is behind a share of the processor, and takes it back from one that is not."""
        self._looks = False
        writer = self._writer
        if writer is None:
            return
        done = writer.tally.done
        starved = writer.starved_s() >= pause_s * STARVED
        behind = done < self._due and (starved or done <= self._done)
        if writer.hurry(behind):
            self.hurries += behind
        if behind or done < self._begun:
            self._look_in(writer, HURRIED_S if behind else BEHIND_S)

    def _give(self, writer: Writer) -> bool:
        """As much as the writer has room for now. Whether that is all. Raises OSError if it has ended."""
        while self._waiting:
            piece = self._waiting.popleft()
            count = writer.ring.put(piece)
            self._bytes -= count
            if count < len(piece):
                self._waiting.appendleft(memoryview(piece)[count:])
                break
        if writer.ring.tell() or self._waiting:  # one that has ended shows by it, however full its memory is
            writer.wake()
        return not self._waiting

    def _ended(self, error: OSError) -> None:
        """The writer is gone. What was on its way is lost, and the next one is told so."""
        if self._writer is not None and self._writer.tally.done:
            self._backoff.reset()
        self._leave(0.0, 0.0)
        pause_s = self._backoff.next_s()
        log.error("dump=writer-ended why=%r again_in_s=%g", error.strerror or str(error), pause_s)
        asyncio.get_running_loop().call_later(pause_s, self._again)

    def _leave(self, wait_s: float, mark_s: float) -> None:
        """Ends the writer, and counts what it has not done."""
        writer, self._writer = self._writer, None
        given = self._begun, self._marks
        self._lost += self._begun
        self._untold += self._begun + self._marks
        if writer is not None:
            writer.close(wait_s, mark_s, given)
            tally = writer.tally
            self._lost += tally.lost - tally.done
            self._untold += tally.missing - tally.done - tally.marked
        self._begun = self._marks = self._bytes = self._due = self._done = 0
        self._fresh.clear()
        self._waiting.clear()

    def _again(self) -> None:
        try:
            self._writer = self._start(True)
        except OSError as error:
            self._ended(error)
            return
        self._flush()
