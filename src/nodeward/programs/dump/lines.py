"""Parses a dump's lines into calls: requests with their replies.

Dumps that CRI Resource Manager wrote have no numbers; there a reply belongs to the oldest request of its method that is
still open, which is right as long as calls of one method do not overtake each other. What a dump says of itself, that
messages are missing, is told in its place. Anything that is no line of a dump is skipped and counted.

Lines are bytes, and a message's stay so: as text one would take four times the memory as soon as it had one emoji.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MAX_LINE = 1024 * 1024
"""Bytes of a line that are kept. A reply of one long text is one line; its call is told all the same."""
CUT = b" *** cut, the line is longer than 1 MiB ***"
MAX_NAME = 4096
"""Bytes of a client's name, a method, a word."""
MAX_LINES = 200_000
"""So many lines of one message are kept."""
MAX_OPEN = 4_000
"""So many calls without a reply are remembered; the oldest are given up first."""
_LINE = re.compile(
    rb"\[(?:(?P<at>\d{4}-\w{3}-\d\d \d\d:\d\d:\d\d\.\d{3})| *\+(?P<took>\d{1,18}\.\d{1,18}))\] "
    rb"(?:(?P<who>\S{1,%(name)d}) )?(?P<method>\S{1,%(name)d}) (?P<arrow>=>|<=) "
    rb"(?:\((?P<how>\w{1,%(name)d})\) (?P<word>REQUEST|REPLY|FAILED)(?::? (?P<rest>.*))?|    (?P<more>.*))\n?"
    % {b"name": MAX_NAME}
)
_WHOLE_ESCAPES = re.compile(rb"(?:[^\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+", re.DOTALL)
_REMARK = re.compile(
    rb"(?:\[(?P<at>\S{1,%(name)d} \S{1,%(name)d})\] )?"
    rb"# (?P<text>(?:(?P<missing>\d{1,18}) messages are missing here)?.{0,%(name)d})\n?" % {b"name": MAX_NAME}
)


@dataclass(frozen=True, slots=True)
class Remark:
    """What a dump says of itself. `at` is empty for the line with which a file begins."""

    at: str
    text: str
    missing: int
    """So many messages are not in it here."""


@dataclass(slots=True)
class Dumped:
    """One call as a dump has it. `at` is empty where only its end was shown, `took_s` None while it has not ended."""

    number: str
    method: str
    how: str
    at: str = ""
    took_s: float | None = None
    failed: bool = False
    request: list[bytes] = field(default_factory=list)
    """Lines of YAML, in UTF-8 unless damaged."""
    replies: list[list[bytes]] = field(default_factory=list)
    """Of each reply, or of the fault."""


class Reader:
    """Joins lines to calls, and yields each call once: when a line shows that its end has been read, or at the end of
    the file."""

    def __init__(self) -> None:
        self._open: dict[tuple[bytes, bytes], list[Dumped]] = {}
        self._opened = 0
        self._last: Dumped | None = None
        self._into: list[bytes] | None = None
        self.skipped = 0
        self.missing = 0
        """So many messages are missing, by the dump's own word."""

    def read(self, lines: Iterable[bytes]) -> Iterator[Dumped | Remark]:
        """The calls that have ended, and remarks between them. An empty line says that nothing has come for a while."""
        for line in lines:
            yield from self.line(line) if line else self.flush()
        yield from self.flush()

    def line(self, line: bytes) -> Iterator[Dumped | Remark]:
        """Takes one line, with or without its end, and gives the call that is whole by it, or what it remarks."""
        found = _LINE.fullmatch(line if len(line) <= MAX_LINE else _cut(line))
        if found is None:
            yield from self._other(line)
            return
        if found["more"] is not None:
            if self._into is not None and len(self._into) < MAX_LINES:
                self._into.append(found["more"])
            return
        yield from self.flush()
        self._begin(found)

    def flush(self) -> Iterator[Dumped]:
        """Yields the call whose reply was read last: nothing more of that reply can come."""
        done, self._last = self._last, None
        self._into = None
        if done is not None:
            yield done

    def left(self) -> Iterator[Dumped]:
        """Yields the calls without a reply."""
        for calls in self._open.values():
            yield from calls

    def _other(self, line: bytes) -> Iterator[Dumped | Remark]:
        found = _REMARK.fullmatch(line) if len(line) <= MAX_LINE else None
        if found is None:
            self.skipped += 1
            return
        yield from self.flush()
        missing = int(found["missing"] or 0)
        self.missing += missing
        yield Remark(_text(found["at"] or b""), _text(found["text"]), missing)

    def _begin(self, found: re.Match[bytes]) -> None:
        key = (found["who"] or b"", found["method"])
        call = None if found["arrow"] == b"=>" else self._answered(key)
        if call is None:
            call = Dumped(_text(key[0]), _text(key[1]), _text(found["how"]))
        if found["arrow"] == b"=>":
            call.at = _text(found["at"] or b"")
            self._open.setdefault(key, []).append(call)
            self._opened += 1
            if self._opened > MAX_OPEN:
                self._answered(next(iter(self._open)))
            self._into = call.request
        else:
            call.took_s, call.failed = float(found["took"] or 0), found["word"] == b"FAILED"
            self._last, self._into = call, []
            if found["word"] != b"REQUEST":  # a call of which one line is shown has neither message
                call.replies.append(self._into)
        if found["rest"]:
            self._into.append(found["rest"])

    def _answered(self, key: tuple[bytes, bytes]) -> Dumped | None:
        """The oldest open call of that key, which is open no more."""
        calls = self._open.get(key)
        if not calls:
            return None
        call = calls.pop(0)
        self._opened -= 1
        if not calls:
            del self._open[key]
        return call


def _cut(line: bytes) -> bytes:
    """As much of a long line as is kept, still YAML: no half escape at its end, and a quoted text is closed."""
    found = _WHOLE_ESCAPES.match(line, 0, MAX_LINE)
    kept = found[0] if found is not None else b""
    text = kept.replace(b"\\\\", b"")
    quotes = text.count(b'"') - text.count(b'\\"')
    return kept + CUT + b'"' * (quotes % 2)


def _text(word: bytes) -> str:
    return word.decode("utf-8", "replace")
