"""The process that formats and writes a relay's dump.

A process of its own, so that neither a long list nor a slow disk takes time from the relay. Raw messages are only in
its memory; what is secret is blanked before a line is made. Where the file cannot be written, what is lost is counted
and told of in the file as soon as it can be again.
"""

import logging
from collections.abc import Callable, Sequence

from nodeward.core.errors import WireError
from nodeward.core.text import printable
from nodeward.neighbours.formats.grpc_messages import STATUSES, gunzip
from nodeward.programs.dump import frames as dump_feed
from nodeward.programs.dump import text as dump_text
from nodeward.programs.dump.feed import Tally
from nodeward.programs.dump.file import DumpFile, DumpFileError
from nodeward.programs.dump.frames import Frame, FrameKind, FrameReader
from nodeward.programs.dump.text import Call

READ_BYTES = 32 * 1024
"""So much is formatted and written before it rests, and looks whether the relay still waits for more."""
LOST = "the dump was too slow, or its writer was ended"
MAX_DECOMPRESSED = 16 * 1024 * 1024
Wall = Callable[[], int]
log = logging.getLogger(__name__)


class Lines:
    """Frames to a dump's lines."""

    def __init__(self, shown: Sequence[str]) -> None:
        self._shown = tuple(shown)

    def of(self, frame: Frame) -> str:
        """The lines of one frame; none for the end of a call that has been shown whole."""
        if frame.kind is FrameKind.LOST:
            return dump_text.remark(frame.time_ns, f"{frame.size} messages are missing here: {LOST}")
        if frame.kind is FrameKind.UNSEEN:
            why = printable(frame.payload.decode("utf-8", "replace"))
            what = f"the calls of connection {frame.number} are relayed and have no lines from here on: {why}"
            return dump_text.remark(frame.time_ns, what)
        service, _, method = frame.path.rpartition("/")
        call = Call(frame.number, _one_word(method), "intercepted" if frame.flags & dump_feed.HELD else "passthrough")
        if frame.kind is FrameKind.ENDED:
            return self._end(call, frame)
        kinds = dump_text.kinds(service.rpartition(".")[2], method)
        if frame.kind is FrameKind.REQUEST:
            return dump_text.request(call, frame.time_ns, self._body(frame, kinds[0] if kinds else None))
        return dump_text.reply(call, frame.time_ns, self._body(frame, kinds[1] if kinds else None))

    def _body(self, frame: Frame, kind: dump_text.Kind) -> list[str]:
        payload = frame.payload
        if len(payload) < frame.size:
            return [f"# {frame.size} bytes, of which the relay kept {len(payload)}: not shown"]
        if frame.flags & dump_feed.COMPRESSED:
            try:
                payload = gunzip(payload, MAX_DECOMPRESSED)
            except WireError as error:
                return [f"# {len(payload)} bytes, compressed: {error.fault}"]
        return dump_text.body(kind, payload, self._shown)

    def _end(self, call: Call, frame: Frame) -> str:
        text = dump_text.words(frame.payload.decode("utf-8", "replace"), self._shown)
        went_wrong = frame.status or frame.flags & dump_feed.NO_STATUS
        why = f"{_status(frame.status)}: {text}" if frame.status else text
        if not frame.flags & dump_feed.FULL:
            return dump_text.named(call, frame.time_ns, why if went_wrong else None)
        if went_wrong:
            return dump_text.failed(call, frame.time_ns, why)
        if frame.flags & dump_feed.ANSWERED:
            return ""
        return dump_text.reply(call, frame.time_ns, ["# no message"])


def _status(number: int) -> str:
    return STATUSES[number] if 0 <= number < len(STATUSES) else f"status {number}"


def _one_word(method: str) -> str:
    """A method's name as one word of printable letters: it comes from whoever called."""
    return "".join(letter if letter.isprintable() and not letter.isspace() else "?" for letter in method) or "?"


def run(read: Callable[[int], bytes], file: DumpFile, shown: Sequence[str], tally: Tally, wall_ns: Wall) -> None:
    """Writes until `read` is at its end: it gives at most so many bytes, at least one, and waits for them. Where the
    relay gives up before, the rest is marked as missing."""
    frames, lines = FrameReader(), Lines(shown)
    while (data := read(READ_BYTES)) and not tally.given_up:
        whole = list(frames.feed(data))
        marked = sum(frame.size for frame in whole if frame.kind is FrameKind.LOST)
        messages = sum(frame.kind is not FrameKind.LOST for frame in whole)
        _write(file, "".join(map(lines.of, whole)), (messages, marked), tally, wall_ns)
    tally.failed(*tally.left)
    if tally.missing:
        _write(file, "", (0, 0), tally, wall_ns)
    file.close()


def _write(file: DumpFile, text: str, count: tuple[int, int], tally: Tally, wall_ns: Wall) -> None:
    """The lines of so many messages and marks; first that others are missing, if they are."""
    if tally.missing:
        text = (
            dump_text.remark(wall_ns(), f"{tally.missing} messages are missing here: they could not be written") + text
        )
    try:
        if text:
            file.write(text.encode("utf-8", "replace"))
        tally.written(*count)
    except (OSError, DumpFileError) as error:
        if not tally.missing:
            log.error("dump=not-written why=%r (what is missing is counted; told again after it went well)", str(error))
        tally.failed(*count)
