"""A dump's lines back to calls: requests with their replies, found by the number that `wire.dump_text` gives each call.

Dumps that CRI Resource Manager wrote have no numbers; there a reply belongs to the oldest request of its method that is
still open, which is right as long as calls of one method do not overtake each other. What a dump says of itself, that
messages are missing, is told in its place. Anything that is no line of a dump is skipped and counted.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MAX_LINE = 1024 * 1024
MAX_LINES = 200_000
"""So many lines of one message are kept."""
MAX_OPEN = 10_000
"""So many calls without a reply are remembered; the oldest are given up first."""
_LINE = re.compile(
    r"\[(?:(?P<at>\d{4}-\w{3}-\d\d \d\d:\d\d:\d\d\.\d{3})| *\+(?P<took>\d+\.\d+))\] "
    r"(?:(?P<who>\S+) )?(?P<method>\S+) (?P<arrow>=>|<=) "
    r"(?:\((?P<how>\w+)\) (?P<word>REQUEST|REPLY|FAILED)(?::? (?P<rest>.*))?|   (?P<more> .*))"
)
_REMARK = re.compile(r"\[(?P<at>\S+ \S+)\] # (?P<text>(?:(?P<missing>\d{1,18}) messages are missing here)?.*)")


@dataclass(frozen=True, slots=True)
class Remark:
    """What a dump says of itself."""

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
    request: list[str] = field(default_factory=list)
    """Lines of YAML."""
    replies: list[list[str]] = field(default_factory=list)
    """Of each reply, or of the fault."""


class Reader:
    """Lines to calls, each told once: when a line shows that its end has been read, or at the end of the file."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], list[Dumped]] = {}
        self._last: Dumped | None = None
        self._into: list[str] | None = None
        self.skipped = 0
        self.missing = 0
        """So many messages are missing, by the dump's own word."""

    def read(self, lines: Iterable[str]) -> Iterator[Dumped | Remark]:
        """The calls that have ended, and remarks between them. An empty line says that nothing has come for a while."""
        for line in lines:
            yield from self.line(line.rstrip("\n")) if line else self.flush()
        yield from self.flush()

    def line(self, line: str) -> Iterator[Dumped | Remark]:
        """Takes one line, and gives the call that is whole by it, or what it remarks."""
        found = _LINE.fullmatch(line) if len(line) <= MAX_LINE else None
        if found is None:
            yield from self._other(line)
            return
        if found["more"] is not None:
            if self._into is not None and len(self._into) < MAX_LINES:
                self._into.append(found["more"][1:])
            return
        yield from self.flush()
        self._begin(found)

    def flush(self) -> Iterator[Dumped]:
        """The call whose reply was read last: nothing more of that reply can come."""
        done, self._last = self._last, None
        self._into = None
        if done is not None:
            yield done

    def left(self) -> Iterator[Dumped]:
        """The calls that have no reply."""
        for calls in self._open.values():
            yield from calls

    def _other(self, line: str) -> Iterator[Dumped | Remark]:
        found = _REMARK.fullmatch(line) if len(line) <= MAX_LINE else None
        if found is None:
            self.skipped += 1
            return
        yield from self.flush()
        missing = int(found["missing"] or 0)
        self.missing += missing
        yield Remark(found["at"], found["text"], missing)

    def _begin(self, found: re.Match[str]) -> None:
        key = (found["who"] or "", found["method"])
        if found["arrow"] == "=>":
            call = Dumped(key[0], key[1], found["how"], at=found["at"] or "")
            self._open.setdefault(key, []).append(call)
            if len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
            self._into = call.request
        else:
            call = self._answered(key) or Dumped(key[0], key[1], found["how"])
            call.took_s, call.failed = float(found["took"] or 0), found["word"] == "FAILED"
            self._last, self._into = call, []
            if found["word"] != "REQUEST":  # a call of which one line is shown has neither message
                call.replies.append(self._into)
        if found["rest"]:
            self._into.append(found["rest"])

    def _answered(self, key: tuple[str, str]) -> Dumped | None:
        calls = self._open.get(key)
        if not calls:
            return None
        call = calls.pop(0)
        if not calls:
            del self._open[key]
        return call
