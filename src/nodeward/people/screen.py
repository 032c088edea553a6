"""The keys of a live view: the table scrolls, and a filter narrows it. Nothing is read where no terminal is.

Arrows, j and k, PgUp and PgDn scroll; `/` takes a filter, which Enter keeps and Esc drops; q ends.
"""

import os
import re
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from nodeward.people.pods import PodRow

PAGE: Final = 10
MOST_FILTER: Final = 300
_MOST_READ: Final = 4096
_ESCAPES: Final = {b"\x1b[A": -1, b"\x1b[B": 1, b"\x1b[5~": -PAGE, b"\x1b[6~": PAGE, b"\x1b[H": -(1 << 30)}
_PIECE: Final = re.compile(rb"\x1b\[[0-9;]*[A-Za-z~]|\x1bO.|[\x00-\x1a\x1c-\x7f]|[\xc0-\xff][\x80-\xbf]+")
_LETTERS: Final = {"k": -1, "j": 1, "b": -PAGE, " ": PAGE, "g": -(1 << 30)}
KEYS: Final = "arrows scroll  / filters  q ends"


@dataclass(slots=True)
class Screen:
    """Where the table begins, and what names must have."""

    first: int = 0
    filter: str = ""
    is_typing: bool = False
    is_over: bool = False
    _rest: bytes = b""

    def pressed(self, read: bytes) -> None:
        """Takes in what was typed. A sequence that is not whole yet waits for its rest."""
        text = self._rest + read
        found = _PIECE.findall(text)
        self._rest = b"" if read == b"\x1b" else text[sum(map(len, found)) :]
        for piece in [*found, *([b"\x1b"] if read == b"\x1b" else [])]:
            if piece == b"\x1b":
                self.filter, self.is_typing, self.first = "", False, 0
            elif piece[:1] == b"\x1b":
                self.first = max(0, self.first + _ESCAPES.get(piece, 0))
            else:
                self._key(piece.decode(errors="ignore"))

    def _key(self, letter: str) -> None:
        if self.is_typing:
            self._typed(letter)
        elif letter == "/":
            self.is_typing, self.filter = True, ""
        elif letter == "q":
            self.is_over = True
        else:
            self.first = max(0, self.first + _LETTERS.get(letter, 0))

    def _typed(self, letter: str) -> None:
        if letter in "\r\n":
            self.is_typing = False
        elif letter in "\x7f\b":
            self.filter = self.filter[:-1]
        elif letter.isprintable():
            self.filter = (self.filter + letter)[:MOST_FILTER]
        self.first = 0

    def shows(self, pods: Sequence[PodRow]) -> tuple[PodRow, ...]:
        """The pods that are left, from the first one that is shown."""
        wanted = self.filter.lower()
        left = [one for one in pods if wanted in one.name.lower() or wanted in one.state]
        self.first = min(self.first, max(0, len(left) - 1))
        return tuple(left[self.first :])

    @property
    def line(self) -> str:
        """What is typed or scrolled, and else the keys."""
        if self.is_typing or self.filter:
            return f"filter: {self.filter}{'_' if self.is_typing else '  (Esc drops it)'}"
        return f"from row {self.first + 1}  {KEYS}" if self.first else KEYS


@contextmanager
def typed() -> Iterator[int | None]:
    """Has standard input give each key at once, and gives its descriptor; None where nobody types to this process: no
    terminal, or one that another process has in the foreground. The terminal is as before at any end but SIGKILL."""
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stdout.isatty():
        yield None
        return
    import termios
    import tty

    fd = sys.stdin.fileno()
    with suppress(OSError):  # no job control there
        if os.tcgetpgrp(fd) != os.getpgrp():
            yield None
            return
    before = termios.tcgetattr(fd)
    ended = {number: signal.signal(number, _ends) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        tty.setcbreak(fd)
        yield fd
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in ended.items():
            signal.signal(number, handler)


def _ends(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def wait(fd: int | None, screen: Screen, most_s: float) -> bool:
    """Waits so long, or until a key is pressed, which is taken in; returns whether one was."""
    if not select.select([] if fd is None else [fd], [], [], most_s)[0] or fd is None:
        return False
    read(fd, screen)
    return True


def read(fd: int, screen: Screen) -> None:
    """Takes in what there is. The end of the input ends the view."""
    try:
        found = os.read(fd, _MOST_READ)
    except OSError:
        found = b""
    screen.is_over = screen.is_over or not found
    screen.pressed(found)
