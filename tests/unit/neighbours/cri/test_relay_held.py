"""Calls that are held for a verdict, each a story between a strict client and a strict runtime."""

import gzip
import sys
from types import FrameType
from unittest import mock

import pytest

from nodeward.core.errors import WireError
from nodeward.neighbours.cri import book
from nodeward.neighbours.cri.calls import Fate, Pass, Refuse, Replace
from nodeward.neighbours.cri.flow import FRAME_BYTES
from nodeward.neighbours.cri.held import HOLD_NS
from nodeward.neighbours.cri.session import RelayedConnection
from tests.unit.neighbours.cri import strict
from tests.unit.neighbours.cri.between import BUSY, OK, TRAILERS, Between, after, answer, ask, status


@pytest.fixture
def rig() -> Between:
    return Between()


def test_a_held_request_waits_while_others_pass_and_goes_on_byte_for_byte(rig: Between) -> None:
    rig.client.headers(1, strict.request("HoldCreate"))
    rig.client.data(1, strict.message(b"held")[:3], padding=9)
    rig.client.data(1, strict.message(b"held")[3:])
    rig.client.data(1, b"", end=True)
    sent = bytes(rig.client.out)
    rig.settle()
    ask(rig, 3, "Version")

    assert rig.judge.asked[1][:2] == (rig.watcher.calls[0], b"held")
    assert rig.watcher.calls[0].held
    assert rig.runtime.streams[1].headers, "headers go upstream at once"
    assert (bytes(rig.runtime.streams[1].body), rig.runtime.streams[3].got_end) == (b"", True)
    before = len(rig.client.got)
    rig.verdict(1, Pass())
    assert strict.frames(rig.runtime.got[-len(strict.frame(0, 0, 1)) :])[0][:3] == (strict.DATA, strict.END_STREAM, 1)
    assert [one for one in strict.frames(rig.runtime.got[24:]) if one[2] == 1] == strict.frames(sent)
    assert len(rig.client.got) == before, "an ordinary held call causes no frame to the client"
    answer(rig, 1)
    after(rig)


def test_a_method_without_its_first_slash_is_held_too(rig: Between) -> None:
    """Or it would be a way past the decider: containerd 1.7 serves such calls (tests/real/test_relay.py)."""
    path = (b":path", b"runtime.v1.RuntimeService/HoldCreate")
    rig.client.headers(1, [path if name == b":path" else (name, value) for name, value in strict.request("Version")])
    rig.client.data(1, strict.message(b"ask"), end=True)
    rig.settle()
    assert rig.judge.asked[1][0].path == "/runtime.v1.RuntimeService/HoldCreate"
    assert rig.runtime.streams[1].body == b""


def test_what_a_replacement_owes_keeps_later_requests_back_until_the_runtime_grants(rig: Between) -> None:
    ask(rig, 1, "HoldCreate", b"small")
    rig.verdict(1, Replace(b"L" * 60_000))
    assert bytes(rig.runtime.streams[1].body) == strict.message(b"L" * 60_000)
    assert rig.runtime.streams[1].got_end
    rig.client.headers(3, strict.request("Version"))
    for piece in (strict.message(b"x" * 16_379), b"y" * 16_384):
        rig.client.data(3, piece, end=piece[:1] == b"y")
    rig.settle()
    assert len(rig.runtime.streams[3].body) == 65_535 - 60_005, "as much as the runtime takes, and no byte more"
    rig.runtime.grant(0, 65_535)
    rig.settle()
    assert len(rig.runtime.streams[3].body) == 2 * 16_384
    assert rig.runtime.streams[3].got_end
    assert rig.client.send_window == rig.runtime.granted


def test_a_client_that_grants_nothing_hears_a_refusal_all_the_same(rig: Between) -> None:
    rig.client.settings({strict.INITIAL: 0})
    rig.settle()
    ask(rig, 1, "HoldCreate")
    rig.verdict(1, BUSY)
    assert status(rig, 1)[0] == b"8"
    assert rig.client.streams[1].got_end


def test_a_held_frame_larger_than_a_window_that_shrank_goes_on_in_pieces(rig: Between) -> None:
    rig.client.headers(1, strict.request("HoldCreate"))
    rig.client.data(1, strict.message(b"c" * 100), end=True, padding=50)
    rig.settle()
    rig.runtime.settings({strict.INITIAL: 40})
    rig.settle()
    rig.verdict(1, Pass())
    assert bytes(rig.runtime.streams[1].body) == strict.message(b"c" * 100)[:40]
    for _ in range(3):
        rig.runtime.grant(1, 30)
        rig.settle()
    assert bytes(rig.runtime.streams[1].body) == strict.message(b"c" * 100)
    assert rig.runtime.streams[1].got_end
    assert rig.client.send_window == rig.runtime.granted, "the padding that was left out is given back"


def test_a_refused_call_is_answered_by_us_and_reset_at_the_runtime(rig: Between) -> None:
    ask(rig, 1, "HoldCreate")
    rig.verdict(1, Refuse(8, "pod ü: 100 % used"))
    assert status(rig, 1) == (b"8", b"pod %C3%BC: 100 %25 used")
    assert (rig.client.streams[1].got_end, rig.client.streams[1].resets) == (True, [])
    assert rig.runtime.streams[1].resets == [8]
    assert [(one.status, one.refused) for one in rig.watcher.ends()] == [(8, True)]
    rig.client.grant(1, 70)
    rig.client.reset(1)
    rig.settle()
    assert [seen[0] for seen in strict.frames(rig.runtime.got[24:]) if seen[2] == 1] == [strict.HEADERS, strict.RST]
    after(rig)
    assert rig.client.send_window == rig.runtime.granted


def test_a_runtime_that_answers_a_refused_call_nonetheless_confuses_nobody(rig: Between) -> None:
    """Its header block, which fills the table, was on the way; then a hundred calls, by strict decoders."""
    ask(rig, 1, "HoldCreate")
    rig.runtime.headers(1, (*OK, (b"x-late", b"1")))
    rig.runtime.data(1, strict.message(b"late"))
    rig.runtime.grant(1, 70)
    rig.runtime.headers(1, (*TRAILERS, (b"x-later", b"2")), end=True)
    rig.session.holds.verdict(1, BUSY)
    rig.flush()
    window = rig.runtime.send_window
    rig.settle()
    assert status(rig, 1)[0] == b"8"
    assert [seen[:2] for seen in strict.frames(rig.client.got) if seen[2] == 1] == [
        (strict.HEADERS, strict.END_STREAM | strict.END_HEADERS)
    ]
    assert rig.runtime.send_window == window + len(strict.message(b"late")), "dropped DATA is granted again"
    after(rig)


@pytest.mark.parametrize("late", [False, True], ids=["refused", "refused and answered nonetheless"])
def test_a_block_of_ours_says_that_the_table_shrank_where_the_runtime_has_not_yet(rig: Between, late: bool) -> None:
    """The first block after the client's smaller HEADER_TABLE_SIZE is acknowledged must begin so (RFC 7541, 4.2)."""
    ask(rig, 1, "HoldCreate")
    ask(rig, 3, "HoldCreate")
    if late:
        rig.verdict(1, BUSY)
        rig.runtime.headers(1, (*OK, (b"x-late", b"1")), end=True)
        rig.settle()
    rig.client.settings({strict.TABLE: 60})
    rig.settle()
    rig.verdict(3, BUSY)
    assert status(rig, 3)[0] == b"8"
    after(rig)


def test_an_unfinished_request_that_is_refused_is_reset_at_the_client_without_an_error() -> None:
    rig = Between(on_error=Refuse(13, "nodeward"))
    rig.book.holds.left = 10
    rig.client.headers(1, strict.request("HoldCreate"))
    rig.client.data(1, strict.message(b"x" * 100)[:50])
    rig.settle()
    assert status(rig, 1) == (b"13", b"nodeward: the request is larger than what can be held: 50 bytes have come")
    assert rig.client.streams[1].resets == [0]
    rig.client.data(1, strict.message(b"x" * 100)[50:], end=True)
    rig.settle()
    assert rig.runtime.streams[1].body == b""
    assert rig.client.send_window == rig.runtime.granted
    assert rig.book.holds.left == 10


def test_a_verdict_before_the_runtimes_settings_waits_for_them() -> None:
    rig = Between(greet=False)
    rig.judge.at_once = lambda call, body: BUSY
    rig.client.headers(1, strict.request("HoldCreate"))
    rig.client.data(1, strict.message(b""), end=True)
    rig.up()
    assert rig.client.got == b""
    rig.settle()
    assert status(rig, 1)[0] == b"8"


@pytest.mark.parametrize("how", ["client resets", "runtime resets", "runtime answers", "runtime goes", "all over"])
def test_a_held_call_whose_caller_or_runtime_goes_is_abandoned(rig: Between, how: str) -> None:
    ask(rig, 1, "HoldCreate")
    rig.clock.now += 40
    match how:
        case "client resets":
            rig.client.reset(1)
        case "runtime resets":
            rig.runtime.reset(1, 7)
        case "runtime answers":
            rig.runtime.headers(1, (*OK, (b"grpc-status", b"12"), (b"grpc-message", b"unknown method")), end=True)
        case "runtime goes":
            rig.runtime.goaway(0)
        case _:
            rig.session.close("the client closed the connection")
    rig.settle()
    rig.verdict(1, Replace(b"too late"))

    assert rig.judge.abandoned == [1]
    assert rig.runtime.streams[1].body == b""
    assert len(rig.watcher.ends()) == 1
    assert rig.tally.over_ == [(12 if how == "runtime answers" else None, Fate.ABANDONED, 40)]
    assert rig.book.holds.left == book.HELD_BYTES
    if how == "runtime answers":
        assert status(rig, 1) == (b"12", b"unknown method")
        assert rig.runtime.streams[1].resets == [8], "the runtime does not wait for a request that never comes"
        after(rig)
    assert rig.client.goaways == ([(0, 0)] if how == "runtime goes" else [])


@pytest.mark.parametrize(("whole", "resets"), [(True, []), (False, [0])], ids=["whole", "half"])
def test_a_client_answered_before_its_request_has_ended_is_told_to_send_no_more(
    rig: Between, whole: bool, resets: list[int]
) -> None:
    rig.client.headers(1, strict.request("HoldCreate"))
    rig.client.data(1, strict.message(b"c" * 100), end=whole)
    rig.settle()
    rig.runtime.settings({strict.INITIAL: 40})
    rig.settle()
    rig.session.holds.late(1, ending=False)
    rig.settle_after()
    assert len(rig.runtime.streams[1].body) == 40
    rig.runtime.headers(1, (*OK, *TRAILERS), end=True)
    rig.settle()
    assert (status(rig, 1)[0], rig.client.streams[1].resets) == (b"0", resets)


def test_a_runtime_that_goes_still_answers_the_calls_up_to_the_last_one_it_names(rig: Between) -> None:
    """And the client hears which those are."""
    for stream in (1, 3):
        ask(rig, stream, "HoldCreate")
    rig.runtime.goaway(1)
    rig.settle()
    assert rig.client.goaways == [(1, 0)]
    assert rig.judge.abandoned == [3]
    assert [(end.status, end.text) for end in rig.watcher.ends()] == [(None, "the runtime is going away")]
    rig.verdict(1, Pass())
    answer(rig, 1)
    assert bytes(rig.runtime.streams[1].body) == strict.message(b"ask")
    assert status(rig, 1) == (b"0", b"")


def test_a_hold_lasts_no_longer_than_five_seconds_or_the_clients_patience(rig: Between) -> None:
    ask(rig, 1, "HoldCreate")
    ask(rig, 3, "HoldCreate", b"", (b"grpc-timeout", b"3S"))
    assert rig.judge.asked[1][2] == HOLD_NS == 5 * 10**9
    assert rig.judge.asked[3][2] == 2_800_000_000
    rig.client.headers(5, strict.request("HoldCreate", (b"grpc-timeout", b"1S")))
    rig.client.headers(7, strict.request("HoldCreate"))
    rig.settle()
    rig.clock.now += 300_000_000
    rig.client.data(5, strict.message(b""), end=True)
    rig.client.data(7, strict.message(b""), end=True)
    rig.settle()
    assert rig.judge.asked[5][2] == 500_000_000
    assert rig.judge.asked[7][2] == HOLD_NS - 300_000_000


@pytest.mark.parametrize("on_error", [None, Refuse(13, "nodeward")], ids=["pass", "refuse"])
def test_a_request_that_does_not_end_is_held_no_longer_either(on_error: Refuse | None) -> None:
    rig = Between(on_error=on_error)
    whole = strict.message(b"m" * 1000)
    for stream, more in ((1, ()), (3, ((b"grpc-timeout", b"1S"),))):
        rig.client.headers(stream, strict.request("HoldCreate", *more))
        rig.client.data(stream, whole[:500])
    rig.settle()
    assert rig.judge.expected == {1: HOLD_NS, 3: 800_000_000}
    assert rig.runtime.streams[1].body == rig.runtime.streams[3].body == b""
    assert rig.book.holds.left < book.HELD_BYTES - 1000

    for stream in (1, 3):
        rig.session.holds.late(stream, ending=False)
    rig.settle_after()

    assert rig.book.holds.left == book.HELD_BYTES
    assert (rig.judge.asked, rig.book.counts.on_error) == ({}, 2)
    if on_error is None:
        rig.client.data(1, whole[500:], end=True)
        rig.settle()
        assert bytes(rig.runtime.streams[1].body) == whole
    else:
        assert status(rig, 1) == status(rig, 3) == (b"13", b"nodeward: the request did not end in time")
        after(rig)


def test_what_the_end_of_a_hold_costs_does_not_grow_with_the_calls_of_its_connection() -> None:
    def entered(count: int) -> int:
        rig, calls = Between(), 0
        streams = range(1, 2 * count, 2)
        for stream in streams:
            rig.client.headers(stream, strict.request("HoldCreate"))
            rig.client.data(stream, strict.message(b"half")[:7])
        rig.runtime.settings({strict.INITIAL: 0})
        rig.settle()

        def enters(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        before = sys.getprofile()
        sys.setprofile(enters)
        try:
            for stream in streams:
                rig.session.holds.late(stream, ending=False)
        finally:
            sys.setprofile(before)
        return calls

    assert entered(200) < 1.2 * 10 * entered(20)


ENCODING = b"grpc-encoding"
ODD: dict[str, tuple[bytes, tuple[bytes, bytes]]] = {
    "no time left": (strict.message(b"m"), (b"grpc-timeout", b"150m")),
    "two messages": (strict.message(b"m") * 2, (b"x", b"")),
    "half a message": (strict.message(b"mm")[:-1], (b"x", b"")),
    "unknown encoding": (strict.message(b"m", compressed=True), (ENCODING, b"snappy")),
    "no gzip": (strict.message(b"m", compressed=True), (ENCODING, b"gzip")),
    "a bomb": (strict.message(gzip.compress(bytes((16 << 20) + 1)), compressed=True), (ENCODING, b"gzip")),
}
"""A request's bytes, and a header before it."""


@pytest.mark.parametrize(("body", "header"), ODD.values(), ids=ODD)
@pytest.mark.parametrize("on_error", [None, Refuse(13, "nodeward")], ids=["pass", "refuse"])
def test_a_held_call_that_cannot_be_decided_is_answered_by_on_error(
    body: bytes, header: tuple[bytes, bytes], on_error: Refuse | None
) -> None:
    rig = Between(on_error=on_error)
    rig.client.headers(1, strict.request("HoldCreate", header))
    rig.client.data(1, body, end=True)
    rig.settle()
    assert rig.judge.asked == {}
    if on_error is None:
        assert bytes(rig.runtime.streams[1].body) == body
        answer(rig, 1)
    assert status(rig, 1)[0] == (b"0" if on_error is None else b"13")
    assert [fate for _, fate, _ in rig.tally.over_] == [Fate.UNDECIDED if on_error is None else Fate.REFUSED]
    assert rig.book.counts.on_error == 1
    after(rig)


def test_a_decider_that_raises_or_never_answers_is_an_undecided_call() -> None:
    rig = Between(on_error=Refuse(13, "nodeward"))
    rig.judge.at_once = mock.Mock(side_effect=ZeroDivisionError)
    ask(rig, 1, "HoldCreate")
    assert status(rig, 1) == (b"13", b"nodeward: the decision failed (ZeroDivisionError), see the relay's log")
    rig.judge.at_once = mock.Mock(side_effect=WireError("cri", "odd"))
    ask(rig, 3, "HoldCreate")
    assert status(rig, 3) == (b"13", b"nodeward: cri: odd")
    rig.judge.at_once = lambda call, body: None
    ask(rig, 5, "HoldCreate")
    rig.session.holds.undecided(5, "no decision in time")
    rig.settle_after()
    assert status(rig, 5) == (b"13", b"nodeward: no decision in time")
    assert (rig.book.counts.faults, rig.book.counts.on_error) == (1, 3)


def test_a_call_that_is_held_as_the_relay_ends_is_refused_for_now() -> None:
    rig = Between(on_error=Refuse(13, "nodeward"))
    rig.judge.at_once = lambda call, body: None
    ask(rig, 1, "HoldCreate")
    rig.session.holds.end()
    rig.settle_after()
    assert status(rig, 1) == (b"14", b"nodeward: the relay ends")
    assert len(rig.judge.abandoned) == 1


def test_gzip_is_decided_uncompressed_and_passes_as_it_came_or_replaced_uncompressed(rig: Between) -> None:
    squeezed = strict.message(gzip.compress(b"hello"), compressed=True)
    for stream in (1, 3):
        rig.client.headers(stream, strict.request("HoldCreate", (b"grpc-encoding", b"gzip")))
        rig.client.data(stream, squeezed, end=True)
    rig.settle()
    assert [asked[1] for asked in rig.judge.asked.values()] == [b"hello", b"hello"]
    rig.verdict(1, Pass())
    rig.verdict(3, Replace(b"hello you"))
    assert bytes(rig.runtime.streams[1].body) == squeezed
    assert bytes(rig.runtime.streams[3].body) == strict.message(b"hello you")


@pytest.mark.parametrize("on_error", [None, Refuse(13, "nodeward")], ids=["pass", "refuse"])
def test_what_is_held_in_all_is_bounded_and_a_call_without_room_goes_by_on_error(on_error: Refuse | None) -> None:
    rig, other = Between(on_error=on_error), Between(greet=False)
    assert rig.book.holds.left == rig.book.holds.total == book.HELD_BYTES == 64 << 20
    other.session = RelayedConnection(rig.book, other.judge, rig.book.connection())
    other.settle()
    rig.book.holds.left = rig.book.holds.total = 2 * (len(strict.message(b"h" * 9_000)) + FRAME_BYTES)
    ask(rig, 1, "HoldCreate", b"h" * 9_000)
    ask(other, 1, "HoldCreate", b"h" * 9_000)

    ask(rig, 3, "HoldCreate", b"more")

    assert rig.book.holds.left == 0
    assert (list(rig.judge.asked), list(other.judge.asked)) == ([1], [1])
    if on_error is None:
        assert bytes(rig.runtime.streams[3].body) == strict.message(b"more")
    else:
        assert status(rig, 3) == (b"13", b"nodeward: the request is larger than what can be held: 9 bytes have come")
    assert rig.book.counts.on_error == 1
    other.verdict(1, Pass())
    ask(rig, 5, "HoldCreate", b"again")
    assert list(rig.judge.asked) == [1, 5]
    for stream in (1, 5):
        rig.verdict(stream, Pass())
    assert rig.book.holds.left == rig.book.holds.total
    after(rig)
