"""A dump: memory between a relay and its writer, frames in, lines in one file."""

import errno
import gzip
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.contracts import cri_pb2 as cri
from nodeward.features.settings import SECRETS
from nodeward.programs.dump import file as dump_file
from nodeward.programs.dump import frames as dump_feed
from nodeward.programs.dump import ring as dump_ring
from nodeward.programs.dump import text as dump_text
from nodeward.programs.dump import writer as dump_writer
from nodeward.programs.dump.feed import Tally
from nodeward.programs.dump.file import DumpFile, DumpFileError
from nodeward.programs.dump.frames import Frame, FrameKind
from nodeward.programs.dump.ring import Giver, Taker

BYTES = dump_ring.BYTES
BEGIN = mmap.PAGESIZE
SIZES = st.integers(0, BYTES // 2) | st.sampled_from([0, 1, BYTES - 1, BYTES, BYTES + 1])


@contextmanager
def pair() -> Iterator[tuple[Giver, Taker]]:
    """Both ends, each with the memory at a place of its own, as two processes have it."""
    memory = os.memfd_create("ring")
    try:
        near = Giver(memory, BEGIN)
        far = Taker(memory, BEGIN, *near.counters)
    finally:
        os.close(memory)
    try:
        yield near, far
    finally:
        near.close()


@given(st.lists(st.tuples(st.sampled_from(["put", "tell", "take"]), SIZES), max_size=40))
def test_what_is_put_is_taken_as_it_was_and_in_order_once_it_is_told(steps: list[tuple[str, int]]) -> None:
    """A step puts so many bytes, or takes so many at most."""
    there, told = bytearray(), 0
    with pair() as (near, far):
        for number, (what, size) in enumerate(steps):
            if what == "put":
                data = bytes([number]) * size
                count = near.put(data)
                assert count == min(size, BYTES - len(there))
                there += data[:count]
            elif what == "tell":
                assert near.tell() == (told < len(there))
                told = len(there)
            else:
                taken = far.take(size)
                assert len(taken) <= size
                assert bool(taken) == bool(told and size)
                assert taken == there[: min(len(taken), told)]
                del there[: len(taken)]
                told -= len(taken)
            assert near.used == len(there)


@given(st.lists(st.tuples(st.lists(st.integers(0, 40), max_size=4), st.integers(0, 64)), max_size=20))
def test_pieces_are_put_together_or_not_at_all(rounds: list[tuple[list[int], int]]) -> None:
    """Where they have room, and end before the memory does; in each round so many bytes are taken then."""
    there, begin = bytearray(), 0
    with mock.patch.object(dump_ring, "BYTES", ROUND), pair() as (near, far):
        for number, (sizes, taken) in enumerate(rounds):
            parts = numbered(sizes, number)
            whole = b"".join(parts)
            fits = len(whole) <= ROUND - max(begin, len(there))
            assert near.put_all(parts, len(whole)) == fits
            if fits:
                there, begin = there + whole, (begin + len(whole)) % ROUND
            near.tell()
            got = far.take(taken)
            assert there.startswith(got)
            del there[: len(got)]


ROUND = 64
"""Bytes of the memory in what follows, so that it is gone round often."""
SOME = st.lists(st.sampled_from([1, 7, ROUND // 2, ROUND]), max_size=12)
ORDERS = st.lists(st.integers(0, 3), min_size=4, max_size=4)


class Late:
    """The giver's memory on a machine that keeps no order which it need not: what is stored gets there in pieces, in
    any order, and no sooner than it must, when the kernel is called. Somebody looks after each piece."""

    def __init__(self, memory: memoryview, orders: Iterator[list[int]], looks: Callable[[], None]) -> None:
        self.memory, self.orders, self.looks = memory, orders, looks
        self.waiting: list[tuple[int, bytes]] = []

    def __setitem__(self, place: slice, data: bytes | memoryview) -> None:
        begin, middle = place.start or 0, len(data) // 2
        self.waiting += [(begin, bytes(data[:middle])), (begin + middle, bytes(data[middle:]))]

    def arrive(self) -> None:
        waiting, self.waiting = self.waiting, []
        order = next(self.orders, [])
        for _, (begin, data) in sorted(enumerate(waiting), key=lambda one: order[one[0]] if order else 0):
            self.memory[begin : begin + len(data)] = data
            self.looks()


class Slow:
    """The taker's memory, which is loaded no sooner than it must be. Somebody puts before."""

    def __init__(self, memory: memoryview, puts: Callable[[], None]) -> None:
        self.memory, self.puts = memory, puts

    def __getitem__(self, place: slice) -> memoryview:
        self.puts()
        return self.memory[place]


def numbered(sizes: list[int], first: int = 1) -> list[bytes]:
    """So many bytes each, which can be told from all others nearby."""
    return [bytes([number % 256]) * size for number, size in enumerate(sizes, first)]


@given(SOME, st.lists(ORDERS))
def test_bytes_stored_late_and_in_any_order_are_never_read_torn(sizes: list[int], orders: list[list[int]]) -> None:
    put, taken, kernel = bytearray(), bytearray(), os.eventfd_write
    with mock.patch.object(dump_ring, "BYTES", ROUND), pair() as (near, far):

        def look() -> None:
            while data := far.take(ROUND):
                taken.extend(data)
            assert put.startswith(taken)

        late = Late(near._bytes, iter(orders), look)

        def write(counter: int, count: int) -> None:
            if counter == near.counters[0]:
                late.arrive()
            kernel(counter, count)

        with mock.patch.object(near, "_bytes", late), mock.patch.object(os, "eventfd_write", write):
            for chunk in numbered(sizes):
                put.extend(chunk)
                assert near.put(chunk) == len(chunk)
                near.tell()
                look()
    assert taken == put


@given(SOME, SOME)
def test_bytes_that_are_copied_late_are_not_written_over(sizes: list[int], meanwhile: list[int]) -> None:
    put, taken, more = bytearray(), bytearray(), iter(numbered(meanwhile, 100))

    def give(chunk: bytes) -> None:
        put.extend(chunk[: near.put(chunk)])
        near.tell()

    with mock.patch.object(dump_ring, "BYTES", ROUND), pair() as (near, far):
        slow = Slow(far._bytes, lambda: give(next(more, b"")))
        with mock.patch.object(far, "_bytes", slow):
            for chunk in numbered(sizes):
                give(chunk)
                while data := far.take(ROUND // 2):
                    taken.extend(data)
    assert put.startswith(taken)


VERSION = "/runtime.v1.RuntimeService/Version"
ASK = cri.VersionRequest(version="v1").SerializeToString()
SAID = cri.VersionResponse(version="0.1.0", runtime_name="containerd").SerializeToString()


def feed(*frames: Frame) -> Callable[[int], bytes]:
    parts: Iterator[bytes] = iter([b"".join(dump_feed.encode(frame)) for frame in frames])
    return lambda _: next(parts, b"")


def written(tmp_path: Path, *frames: Frame, shown: tuple[str, ...] = (), tally: Tally | None = None) -> list[str]:
    path = tmp_path / "cri.dump"
    dump_writer.run(feed(*frames), DumpFile(str(path), 1 << 20), shown, tally or Tally(), lambda: 0)
    return [line.partition("] ")[2] for line in path.read_text(encoding="utf-8").splitlines()]


LINES: dict[str, tuple[tuple[Frame, ...], list[str]]] = {
    "a call with both messages, to which its end adds nothing": (
        (
            Frame(FrameKind.REQUEST, 7, 1, 0, VERSION, ASK),
            Frame(FrameKind.RESPONSE, 7, 2, 0, VERSION, SAID),
            Frame(FrameKind.ENDED, 7, 2, dump_feed.FULL | dump_feed.ANSWERED, VERSION, b""),
        ),
        [
            "#7 Version => (passthrough) REQUEST version: v1",
            "#7 Version <= (passthrough) REPLY",
            "#7 Version <=     runtime_name: containerd",
            '#7 Version <=     version: "0.1.0"',
        ],
    ),
    "v1alpha2 by the same schema": (
        (Frame(FrameKind.REQUEST, 7, 1, 0, "/runtime.v1alpha2.RuntimeService/Version", ASK),),
        ["#7 Version => (passthrough) REQUEST version: v1"],
    ),
    "what the relay cut or lost": (
        (Frame(FrameKind.REQUEST, 7, 1, 0, VERSION, b"abc", 500), Frame(FrameKind.LOST, 0, 1, 0, "", b"", 12)),
        [
            "#7 Version => (passthrough) REQUEST # 500 bytes, of which the relay kept 3: not shown",
            "# 12 messages are missing here: the dump was too slow, or its writer was ended",
        ],
    ),
    "a hostile client's method stays one word of one line": (
        (Frame(FrameKind.ENDED, 7, 1, 0, "/x.Y/a\nb \x1b[31m", b"", status=12),),
        ["#7 a?b??[31m <= (passthrough) FAILED: UNIMPLEMENTED:"],
    ),
}


@pytest.mark.parametrize(("frames", "lines"), LINES.values(), ids=LINES)
def test_what_is_written_of(tmp_path: Path, frames: tuple[Frame, ...], lines: list[str]) -> None:
    assert written(tmp_path, *frames) == lines


DIGEST = f'", not "a:1@sha256:{"0" * 64}"'


@pytest.mark.parametrize(
    ("flags", "status", "text", "said"),
    [
        (dump_feed.FULL, 5, b"no such", ["(passthrough) FAILED", "    NOT_FOUND: no such"]),
        (dump_feed.FULL | dump_feed.HELD, 99, b"x", ["(intercepted) FAILED", "    status 99: x"]),
        (dump_feed.FULL, 0, b"", ["(passthrough) REPLY # no message"]),
        (0, 0, b"", ["(passthrough) REQUEST"]),
        (
            *(0, 3, f'bad image "me:hunter2@r.io/a{DIGEST}'.encode()),
            [f"(passthrough) FAILED: INVALID_ARGUMENT: bad image *** credentials, not shown ***r.io/a{DIGEST}"],
        ),
        (0, 14, b"gone", ["(passthrough) FAILED: UNAVAILABLE: gone"]),
        (dump_feed.NO_STATUS, 0, b"the client reset it", ["(passthrough) FAILED: the client reset it"]),
    ],
)
def test_how_a_call_ended(tmp_path: Path, flags: int, status: int, text: bytes, said: list[str]) -> None:
    lines = written(tmp_path, Frame(FrameKind.ENDED, 7, 2, flags, VERSION, text, status=status))
    assert lines == [f"#7 Version <= {one}" for one in said]


def test_compressed_messages_are_shown_and_bombs_and_rubbish_are_not(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(dump_writer.MAX_DECOMPRESSED + 1))
    lines = written(
        tmp_path,
        *(
            Frame(FrameKind.REQUEST, 7, 1, dump_feed.COMPRESSED, VERSION, raw)
            for raw in (gzip.compress(ASK), bomb, b"no")
        ),
    )
    assert lines[0].endswith("REQUEST version: v1")
    assert "more than 16777216 bytes" in lines[1]
    assert "is not" in lines[2]


def test_an_older_dump_is_kept_beside_and_so_is_one_that_has_grown(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"
    path.write_text("older")
    file = DumpFile(str(path), 10)
    assert (tmp_path / "cri.dump.1").read_text() == "older"
    file.write(b"12345678")
    file.write(b"abc")
    assert (path.read_text(), (tmp_path / "cri.dump.1").read_text()) == ("abc", "12345678")
    assert path.stat().st_mode & 0o777 == 0o600


def test_every_file_of_a_dump_begins_with_what_is_hidden_in_it(tmp_path: Path) -> None:
    path, head = tmp_path / "cri.dump", dump_text.head(["commands", "environment"]).encode()
    assert head.startswith(b"# hidden here: credentials, annotations. Setting dump.show names kinds to show, such as ")
    file = DumpFile(str(path), len(head) + 5, head=head)
    file.write(b"1234")
    file.write(b"abc")
    assert [one.read_bytes() for one in (path, tmp_path / "cri.dump.1")] == [head + b"abc", head + b"1234"]
    path.write_bytes(b"")
    DumpFile(str(path), 1 << 20, go_on=True, head=head).write(b"abc")
    assert path.read_bytes() == head + b"abc"
    assert dump_text.head(SECRETS) == ""


def test_an_empty_file_that_somebody_made_for_all_to_read_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"
    path.touch(0o666)
    path.chmod(0o666)
    with path.open() as theirs:
        DumpFile(str(path), 10).write(b"secret")
        assert theirs.read() == ""
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("secret", 0o600)


def test_files_that_cannot_be_a_dump_are_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to("target")
    os.mkfifo(tmp_path / "fifo")
    for name, said in (
        (".", "is a folder; name a file in it"),
        ("fifo", "is no ordinary file"),
        ("link", "is no ordinary file"),
        ("none/cri.dump", "there is no folder"),
    ):
        with pytest.raises(DumpFileError, match=said):
            dump_file.check(str(tmp_path / name))


def test_a_half_line_that_could_not_be_taken_away_at_once_is_no_part_of_the_line_that_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes = iter([5, None, None])
    write, truncate = os.write, os.ftruncate

    def disk() -> int:
        most = next(takes, 1 << 20)
        if most is None:
            raise OSError(errno.EIO, "Input/output error")
        return most

    def shrink(handle: int, size: int) -> None:
        disk()
        truncate(handle, size)

    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[: disk()]))
    monkeypatch.setattr(os, "ftruncate", shrink)
    frames = [Frame(FrameKind.ENDED, number, 1, 0, VERSION, b"") for number in (1, 2)]
    assert written(tmp_path, *frames) == [
        "# 1 messages are missing here: they could not be written",
        "#2 Version <= (passthrough) REQUEST",
    ]


def test_a_relay_is_not_taken_to_have_given_up_by_half() -> None:
    whole = Tally()
    whole.give_up(10, 2)
    changed = [index for index, word in enumerate(whole._words) if word]
    assert whole.left == (10, 2)
    assert len(changed) > 1
    for index in changed:
        half = Tally()
        half._words[index] = whole._words[index]
        half.written(3, 1)
        assert (half.given_up, half.left) == (False, (0, 0))


def test_a_failed_rotation_costs_messages_no_file_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """FILE.1 is a folder until somebody clears it away."""
    path, kept = tmp_path / "cri.dump", tmp_path / "cri.dump.1"
    kept.mkdir()
    ended = Frame(FrameKind.ENDED, 7, 1, 0, VERSION, b"")
    line = len("[               +0.000000] #7 Version <= (passthrough) REQUEST\n")
    parts = feed(*[ended] * 5)
    read = 0

    def then(most: int) -> bytes:
        nonlocal read
        read += 1
        if read == 4:
            assert path.read_text().count("#7") == 1
            assert sorted(one.name for one in tmp_path.iterdir()) == ["cri.dump", "cri.dump.1"]
            kept.rmdir()
        return parts(most)

    tally = Tally()
    dump_writer.run(then, DumpFile(str(path), line + 1), (), tally, lambda: 0)
    assert (tally.done, tally.lost) == (5, 2)
    assert "no new one can be begun" in caplog.text
    assert caplog.text.count("dump=not-written") == 1
    assert "REQUEST" in kept.read_text()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["cri.dump", "cri.dump.1"]


def test_another_writer_of_the_same_dump_goes_on_with_its_file_and_mends_a_half_line(tmp_path: Path) -> None:
    path, kept = tmp_path / "cri.dump", tmp_path / "cri.dump.1"
    kept.write_text("the one before")
    path.write_text("whole\nha")
    path.chmod(0o600)
    DumpFile(str(path), 100, go_on=True).write(b"next\n")
    assert (path.read_text(), kept.read_text()) == ("whole\nha\nnext\n", "the one before")


@pytest.mark.parametrize("how", ["readable by all", "link", "FIFO"])
def test_another_writer_does_not_go_on_with_what_is_not_its_own(tmp_path: Path, how: str) -> None:
    path, target = tmp_path / "cri.dump", tmp_path / "target"
    target.write_text("theirs")
    target.chmod(0o600)
    if how == "readable by all":
        path.write_text("theirs")
        path.chmod(0o644)
        DumpFile(str(path), 100, go_on=True).write(b"next\n")
        assert (path.read_text(), path.stat().st_mode & 0o777) == ("next\n", 0o600)
        return
    if how == "link":
        path.symlink_to(target)
    else:
        os.mkfifo(path, 0o600)
    with pytest.raises(DumpFileError, match="no ordinary file"):
        DumpFile(str(path), 100, go_on=True)
    assert target.read_text() == "theirs"
