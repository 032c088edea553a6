"""`nodeward dump`: shows the dump of a relay. With a hidden option it is the process that writes the dump."""

import mmap
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

import click

from nodeward.cli import exits
from nodeward.cli.flags import output_option, print_data

if TYPE_CHECKING:
    from nodeward.programs.dump.read import Wanted

LOOK_S = 0.25


@click.command("dump")
@click.argument("path", metavar="FILE", type=click.Path())
@click.option("-m", "--method", metavar="EXPRESSION", help="Only methods in which this is found, such as 'Container$'.")
@click.option("--pod", metavar="POD", default="", help="Only calls about this pod: NAMESPACE/NAME, name, UID or id.")
@click.option("--container", metavar="NAME", default="", help="Only calls about this container: name or id.")
@click.option("--failed", is_flag=True, help="Only calls that failed.")
@click.option("--slower-than", metavar="MS", type=click.FloatRange(min=0), help="Only calls that took longer.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written; also after the file was rotated.")
@output_option()
@click.option("--write", is_flag=True, hidden=True)
@click.option("--max-bytes", type=int, default=1 << 28, hidden=True)
@click.option("--show", multiple=True, hidden=True)
@click.option("--shared", type=int, nargs=3, hidden=True)
@click.option("--go-on", is_flag=True, hidden=True)
def command(
    path: str,
    method: str | None,
    pod: str,
    container: str,
    failed: bool,
    slower_than: float | None,
    follow: bool,
    output: str,
    write: bool,
    max_bytes: int,
    show: tuple[str, ...],
    shared: tuple[int, int, int] | None,
    go_on: bool,
) -> None:
    """Show the calls in a relay's dump: whole, with their latency and whom they are about.

    Each call is shown when it has ended; those that have not are shown last (not with --follow). Where messages are
    missing in the dump, that is shown too, whatever is chosen. JSON is one object a line. Dumps of CRI Resource Manager
    are read too.

    Exit code: 0 a call was shown, 1 none was, 2 the file cannot be read.

    \b
    Examples:
      nodeward dump /tmp/cri.dump --failed
      nodeward dump /tmp/cri.dump --pod default/web --method 'Create|Start'
      nodeward dump /tmp/cri.dump --slower-than 500 -o json | jq .method
      nodeward dump /tmp/cri.dump --follow
    """
    if write and shared is not None:
        _write(path, max_bytes, show, shared, go_on)
        return
    from nodeward.programs.dump.read import Wanted

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who reads this has seen enough: it ends, as others in a pipe do
    try:
        chosen = re.compile(method) if method else None
    except re.error as error:
        raise click.BadParameter(f"{method!r} is no expression: {error}", param_hint="--method") from error
    wanted = Wanted(chosen, pod, container, failed, None if slower_than is None else slower_than / 1000)
    try:
        shown = _show(path, wanted, follow, output)
    except OSError as error:
        print(f"nodeward: {path}: cannot be read: {error.strerror}", file=sys.stderr)
        sys.exit(exits.UNUSABLE)
    except KeyboardInterrupt:
        return
    sys.exit(exits.GOOD if shown else exits.FAILED)


def _write(path: str, max_bytes: int, shown: tuple[str, ...], shared: tuple[int, int, int], go_on: bool) -> None:
    from nodeward.host import leftover_time
    from nodeward.programs.dump import text as dump_text
    from nodeward.programs.dump import writer as dump_writer
    from nodeward.programs.dump.feed import Tally
    from nodeward.programs.dump.file import DumpFile
    from nodeward.programs.dump.ring import Taker

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(
            number, signal.SIG_IGN
        )  # systemd and a terminal send it to the relay's group: we end with the feed
    file = DumpFile(path, max_bytes, go_on, dump_text.head(shown).encode())
    memory, put, taken = shared
    ring = Taker(memory, mmap.PAGESIZE, put, taken)
    read = leftover_time.rested(lambda most: ring.read(0, most))
    dump_writer.run(read, file, shown, Tally(memory), time.time_ns)


def _show(path: str, wanted: "Wanted", follow: bool, output: str) -> int:
    from nodeward.core.text import printable
    from nodeward.programs.dump.lines import Dumped, Reader, Remark
    from nodeward.programs.dump.read import Known, as_json, remark_as_json, text

    reader, known, shown = Reader(), Known(), 0

    def show(found: Dumped | Remark) -> None:
        nonlocal shown
        if isinstance(found, Remark):
            if not found.at and output != "text":
                return
            data, lines = remark_as_json(found), [f"{found.at} # {found.text}".lstrip()]
        else:
            about = known.about(found)
            if not wanted.takes(found, about):
                return
            shown += 1
            data, lines = as_json(found, about), list(text(found, about))
        if not print_data(data, output, is_one_of_many=True):
            for line in lines:
                print(printable(line))
        if follow:
            sys.stdout.flush()

    for found in reader.read(_followed(path, time.sleep) if follow else _whole(path)):
        show(found)
    for call in reader.left():
        show(call)
    if reader.missing:
        print(f"nodeward: {path}: {reader.missing} message(s) are missing in it, by its own word", file=sys.stderr)
    if reader.skipped:
        print(f"nodeward: {path}: {reader.skipped} line(s) are no dump's and were left out", file=sys.stderr)
    return shown


def _open(path: str) -> BinaryIO:
    from nodeward.host.hostfs import opened

    return opened(path)


def _whole(path: str) -> Iterator[bytes]:
    with _open(path) as file:
        while line := _line(file):
            yield line


def _line(file: BinaryIO, part: bytes = b"") -> bytes:
    """The next line, or what there is of it after `part`; of a long one so much more than is kept, that it shows."""
    from nodeward.programs.dump.lines import MAX_LINE

    while more := file.readline(MAX_LINE):
        part = part[:MAX_LINE] + more
        if more.endswith(b"\n"):
            break
    return part


def _followed(path: str, sleep: Callable[[float], None]) -> Iterator[bytes]:
    """The file's lines, and those that come; goes over to the next file when this one was rotated away. An empty line
    says that nothing has come for a while."""
    file, part, idle, last = _open(path), b"", False, False
    try:
        while True:
            line, before = _line(file, part), part
            part = line
            if part.endswith(b"\n"):
                yield part
                part, idle = b"", False
            elif line == before and last:
                last = False
                with suppress(FileNotFoundError):  # one more rotation is under way: it is looked again
                    after = _open(path)
                    file.close()
                    file, part = after, b""
            elif line == before and idle and _was_rotated(file, path):
                last = True  # what was written to it just before that is still to be read
            else:
                if idle:
                    yield b""
                sleep(LOOK_S)
                idle = True
    finally:
        file.close()


def _was_rotated(file: BinaryIO, path: str) -> bool:
    try:
        return os.stat(path).st_ino != os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False
