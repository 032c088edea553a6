"""The rules of the relay, each a story between a strict client and a strict runtime.

What the strict ends themselves refuse (frames inside a header block, windows, header blocks that do not decode, frames
of streams that have ended) is checked in every one of these tests.
"""

import pytest

from nodeward.neighbours.cri import book, flow
from nodeward.neighbours.cri.book import HELD_BYTES
from nodeward.neighbours.cri.calls import Fate, Interest, Pass, Refuse, Replace, Verdict
from nodeward.neighbours.cri.flow import FRAME_BYTES
from nodeward.neighbours.cri.holds import MAX_REFUSED
from nodeward.neighbours.cri.session import MAX_CALLS
from tests.unit.neighbours.cri import strict
from tests.unit.neighbours.cri.between import BUSY, OK, TRAILERS, Between, after, answer, ask, status


@pytest.fixture
def rig() -> Between:
    return Between()


def test_a_watcher_sees_a_call_from_its_headers_to_its_status_and_text() -> None:
    rig = Between(enforces=False)
    ask(rig, 1, "CreateContainer")
    rig.clock.now += 5
    rig.runtime.headers(1, (*OK, (b"grpc-status", b"5"), (b"grpc-message", b"no %C3%BC%25")), end=True)
    rig.settle()

    kinds = [(kind, number) for kind, number, _ in rig.watcher.told]
    assert kinds == [("began", 1), ("request", 1), ("ended", 1)]
    [end] = rig.watcher.ends()
    assert (end.status, end.text, end.at_ns - rig.watcher.calls[0].began_ns) == (5, "no ü%", 5)


def test_a_watcher_gets_each_message_of_a_streaming_call_as_it_passes() -> None:
    rig = Between(enforces=False)
    ask(rig, 1, "GetContainerEvents")
    rig.runtime.headers(1, OK)
    rig.runtime.data(1, strict.message(b"one") + strict.message(b"")[:2])
    rig.settle()
    assert [one.payload for one in rig.watcher.messages("response")] == [b"one"]
    rig.runtime.data(1, strict.message(b"")[2:] + strict.message(b"three"))
    rig.settle()
    assert [one.payload for one in rig.watcher.messages("response")] == [b"one", b"", b"three"]
    assert rig.watcher.ends() == []


@pytest.mark.parametrize("who", ["client", "runtime"])
def test_a_reset_ends_a_call_without_a_status(rig: Between, who: str) -> None:
    ask(rig, 1, "Version")
    (rig.client if who == "client" else rig.runtime).reset(1, 2)
    rig.settle()
    assert [one.status for one in rig.watcher.ends()] == [None]
    assert (rig.runtime if who == "client" else rig.client).streams[1].resets == [2]
    after(rig)


def test_messages_that_find_no_memory_are_cut_and_pass_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "MESSAGE_BYTES", 10)
    rig = Between(enforces=False)
    rig.book.copies.left = 15
    ask(rig, 1, "Version", b"a" * 30)
    rig.client.headers(3, strict.request("Version"))
    rig.client.data(3, strict.message(b"b" * 12)[:14])
    rig.settle()
    ask(rig, 5, "Version", b"c" * 30)

    assert [(one.payload, one.size_bytes, one.cut) for one in rig.watcher.messages("request")] == [
        (b"a" * 10, 30, True),
        (b"c" * 6, 30, True),
    ]
    assert bytes(rig.runtime.streams[5].body) == strict.message(b"c" * 30)
    rig.client.reset(3)
    rig.settle()
    assert rig.book.copies.left == 15


def test_goaway_first_names_no_stream_and_at_last_the_last_one(rig: Between) -> None:
    ask(rig, 7, "Version")
    assert rig.session.waits
    rig.session.goaway(last=False)
    rig.flush()
    rig.runtime.headers(7, OK)
    rig.runtime.data(7, strict.message(b"said"))
    rig.settle()
    assert rig.session.waits, "it is answered in part"
    rig.runtime.headers(7, TRAILERS, end=True)
    rig.settle()
    assert not rig.session.waits
    rig.session.goaway(last=True)
    rig.flush()
    assert rig.client.goaways == [(2**31 - 1, 0), (7, 0)]


@pytest.mark.parametrize("split", [0, 4], ids=["in-a-frame", "between-frames-of-a-block"])
def test_where_nothing_is_decided_goaway_waits_for_the_end_of_a_frame_and_of_a_header_block(split: int) -> None:
    """Half of either has gone on by then."""
    rig = Between(enforces=False)
    ask(rig, 1, "Version")
    rig.runtime.headers(1, OK, split=split)
    rig.down(9 + split or 5)
    rig.session.goaway(last=False)
    rig.flush()
    assert rig.client.goaways == []
    rig.settle()
    assert rig.client.goaways == [(2**31 - 1, 0)]
    rig.runtime.headers(1, TRAILERS, end=True)
    rig.settle()
    rig.session.goaway(last=True)
    rig.flush()
    assert rig.client.goaways[1:] == [(1, 0)]


def test_nobody_who_watches_calls_only_is_given_messages() -> None:
    rig = Between(enforces=False)
    rig.watcher.wants = Interest.CALL
    ask(rig, 1, "Version")
    answer(rig, 1)
    assert [kind for kind, _, _ in rig.watcher.told] == ["began", "ended"]


def test_no_ping_is_ever_ours(rig: Between) -> None:
    ask(rig, 1, "HoldCreate", b"x" * 10_000)
    rig.verdict(1, BUSY)
    after(rig)
    for end in (rig.client, rig.runtime):
        seen = strict.frames(end.got[0 if end.client else 24 :])
        assert [one for one in seen if one[0] == strict.PING] == []
        assert {one[0] for one in seen} <= {strict.DATA, strict.HEADERS, strict.RST, 4, strict.WINDOW}
        assert [one[1] for one in seen if one[0] == 4] == [0, strict.ACK]


def test_a_call_that_passes_waits_from_read_to_write_of_its_beginning_and_its_end() -> None:
    """What the runtime takes in between is not the relay's, nor what is streamed."""
    rig = Between(enforces=False)
    rig.write_ns = 100
    ask(rig, 1, "Version")
    rig.clock.now += 5_000_000
    rig.runtime.headers(1, OK)
    rig.runtime.data(1, strict.message(b"part"))
    rig.settle()
    rig.write_ns = 7
    rig.runtime.headers(1, TRAILERS, end=True)
    rig.settle()

    assert rig.tally.over_ == [(0, Fate.PASSED, 107)]


@pytest.mark.parametrize(
    ("verdict", "fate", "status"),
    [
        pytest.param(Pass(), Fate.ALLOWED, 0, id="goes-on"),
        pytest.param(Replace(b"other"), Fate.CHANGED, 0, id="is-changed"),
        pytest.param(BUSY, Fate.REFUSED, 8, id="is-refused"),
    ],
)
def test_a_held_call_waits_for_its_verdict(rig: Between, verdict: Verdict, fate: Fate, status: int) -> None:
    """From the last byte of its request: how slowly the client sends is not the relay's."""
    rig.client.headers(1, strict.request("HoldThis"))
    rig.settle()
    rig.clock.now += 1_000_000
    rig.client.data(1, strict.message(b"ask"), end=True)
    rig.settle()
    rig.clock.now += 3_000
    rig.verdict(1, verdict)
    if status == 0:
        answer(rig, 1)
    rig.session.close("gone")

    assert rig.tally.over_ == [(status, fate, 3_000)], "once, whatever comes after"


def test_a_verdict_at_once_is_as_long_as_its_bytes_wait(rig: Between) -> None:
    rig.judge.at_once = lambda call, body: Pass()
    rig.write_ns = 50
    ask(rig, 1, "HoldThis")
    answer(rig, 1)

    assert rig.tally.over_ == [(0, Fate.ALLOWED, 100)]


def test_a_held_call_without_any_message_is_one_that_was_not_decided(rig: Between) -> None:
    rig.client.headers(1, strict.request("HoldCreate"), end=True)
    rig.settle()
    answer(rig, 1)
    assert [one[1] for one in rig.tally.over_] == [Fate.UNDECIDED]


@pytest.mark.parametrize("broken", ["meter", "watcher"])
def test_a_meter_or_watcher_that_fails_is_counted_and_nothing_else_changes(broken: str) -> None:
    rig = Between(enforces=broken == "meter")
    rig.tally.broken, rig.watcher.broken = broken == "meter", broken == "watcher"
    for stream in (1, 3):
        ask(rig, stream, "Version")
        answer(rig, stream)

    assert [one[0] for one in rig.tally.over_] == [0, 0]
    assert rig.book.counts.faults == 2
    assert bytes(rig.client.streams[3].body) == strict.message(b"said")


GARBAGE = {
    "no preface": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a block that is none": strict.frame(strict.HEADERS, strict.END_HEADERS, 1, b"\xff\xff\xff\xff"),
    "a block over 64 KiB": strict.frame(strict.HEADERS, 0, 1, b"\0" * 16_384)
    + strict.frame(9, 0, 1, b"\0" * 16_384) * 4,
    "a small block of much more than 64 KiB": strict.frame(
        strict.HEADERS, strict.END_HEADERS, 1, b"\x40\x01a\x7f\xbd\x1d" + bytes(3_900) + b"\xbe" * 60
    ),
    "a frame that is too long": strict.frame(strict.DATA, 0, 1, bytes(20_000)),
    "a frame in a header block": strict.frame(strict.HEADERS, 0, 1, b"\x82")
    + strict.frame(strict.PING, 0, 0, bytes(8)),
    "a header block that goes on wrongly": strict.frame(strict.HEADERS, 0, 1, b"\x82")
    + strict.frame(9, strict.END_HEADERS, 1, b"\xff" * 9),
    "padding that is too long": strict.frame(strict.HEADERS, strict.END_HEADERS | 8, 1, b"\xff\x82"),
    "a table over all bounds": strict.frame(strict.HEADERS, strict.END_HEADERS, 1, b"\x3f\xe1\xff\xff\xff\x07\x82"),
    "settings of odd length": strict.frame(4, 0, 0, b"12345"),
    "a pushed answer": strict.frame(5, strict.END_HEADERS, 1, b"\0\0\0\2\x82"),
}
OF_ONE_SIDE = {"no preface": "client", "a pushed answer": "runtime"}
BY_SIDE = [(side, what) for side in ("client", "runtime") for what in GARBAGE if OF_ONE_SIDE.get(what, side) == side]


@pytest.mark.parametrize(("side", "what"), BY_SIDE)
def test_what_cannot_be_followed_passes_unseen_where_nothing_can_be_held(side: str, what: str) -> None:
    """They have gone on before anybody looked; nothing of ours comes between."""
    rig = Between(enforces=False, greet=False)
    end, other = (rig.client, rig.runtime) if side == "client" else (rig.runtime, rig.client)
    asked = strict.frame(strict.HEADERS, strict.END_HEADERS, 3, b"\x82\x87\x04\x02/a")
    if side == "client":
        sent = b"" if what == "no preface" else bytes(rig.client.out) + asked
    else:
        rig.give(other, bytes(rig.client.out) + asked, heard=False)
        sent = bytes(rig.runtime.out) + strict.frame(strict.HEADERS, strict.END_HEADERS, 3, b"\x88")
    sent += GARBAGE[what] + b"and more"
    for at in range(0, len(sent), 1000):
        rig.give(end, sent[at : at + 1000], heard=False)
    rig.give(end, b"!", heard=False)

    assert rig.book.counts.lost_sight == 1
    assert len(rig.watcher.calls) == len(rig.watcher.ends())
    assert rig.watcher.calls or side == "client"
    said, connection, why = rig.watcher.told[-1]
    assert (said, connection) == ("unseen", 1)
    assert str(why).startswith("the relay cannot follow this connection: ")
    assert [one for one, _, _ in rig.watcher.told].count("unseen") == 1
    rig.give(other, b"anything", heard=False)
    rig.session.goaway(last=False)
    assert rig.session.runtime_out == rig.session.client_out == []


@pytest.mark.parametrize("held", [True, False], ids=["held", "nothing-held"])
@pytest.mark.parametrize(("side", "what"), [one for one in BY_SIDE if one[1] != "no preface"])
def test_what_cannot_be_followed_ends_both_if_calls_can_be_held(rig: Between, side: str, what: str, held: bool) -> None:
    """Also while none is: the next one could not be seen."""
    if held:
        ask(rig, 1, "HoldCreate")
    (rig.session.from_client if side == "client" else rig.session.from_runtime)(GARBAGE[what])
    rig.flush()
    assert rig.session.over
    assert rig.client.goaways == [(int(held), 1)]
    assert rig.runtime.goaways == [(0, 1)]
    assert len(rig.watcher.ends()) == held
    assert "unseen" not in [said for said, _, _ in rig.watcher.told]
    rig.session.from_client(b"more")
    rig.session.from_runtime(b"more")
    assert rig.session.runtime_out == rig.session.client_out == []


def test_calls_without_end_are_bounded(rig: Between) -> None:
    for stream in range(1, 2 * MAX_CALLS + 3, 2):
        rig.client.headers(stream, strict.request("Version"))
        if stream % 1000 == 1:
            rig.up()
    rig.up()
    assert "more than 4096 calls" in rig.session.over


def test_refusals_without_end_are_remembered_in_no_more_than_may_be(rig: Between) -> None:
    rig.judge.at_once = lambda call, message: BUSY
    streams = range(1, 10_001, 2)
    for stream in streams:
        rig.client.headers(stream, strict.request("HoldCreate"))
        rig.client.data(stream, strict.message(b""), end=True)
        if stream % 200 == 199:
            rig.settle()
    assert {status(rig, stream)[0] for stream in streams} == {b"8"}
    assert list(rig.session.holds.refused) == list(streams[-MAX_REFUSED:])
    assert rig.book.holds.left == HELD_BYTES
    assert rig.client.send_window == rig.runtime.granted
    before = len(rig.client.got)
    rig.runtime.headers(streams[-1], OK)
    rig.runtime.reset(streams[-MAX_REFUSED])
    rig.settle()
    assert len(rig.client.got) == before


def test_a_client_that_takes_more_than_its_window_while_something_is_held_is_cut_off(rig: Between) -> None:
    rig.client.headers(1, strict.request("HoldCreate"))
    rig.client.out += (
        strict.frame(strict.DATA, 0, 1, bytes(16_384)) * 2 + strict.frame(strict.DATA, 0, 3, bytes(16_384)) * 3
    )
    rig.up()
    assert "more than it was allowed" in rig.session.over


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("on_error", [None, Refuse(13, "nodeward")], ids=["pass", "refuse"])
def test_a_held_request_of_endless_frames_takes_no_more_memory_than_may_be(size: int, on_error: Refuse | None) -> None:
    rig = Between(on_error=on_error)
    rig.book.holds.left = rig.book.holds.total = 1_000 * (FRAME_BYTES + size)
    rig.client.headers(1, strict.request("HoldCreate"))
    rig.client.out += strict.frame(strict.DATA, 0, 1, bytes(size)) * 1_001
    rig.up()

    assert rig.book.counts.on_error == 1
    assert rig.book.holds.left == rig.book.holds.total
    assert len(rig.runtime.streams[1].body) == (1_001 * size if on_error is None else 0)


def test_a_request_that_no_runtime_takes_waits_in_bounded_frames(rig: Between, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "MAX_WAITING", 100)
    rig.book.holds.left = rig.book.holds.total = 70_000
    rig.client.headers(1, strict.request("HoldCreate"))
    for _ in range(5):
        rig.client.out += strict.frame(strict.DATA, 0, 1, bytes(16_384))
        rig.up()
    assert len(rig.runtime.streams[1].body) == 65_535
    rig.client.out += strict.frame(strict.DATA, 0, 1) * 90
    rig.up()
    assert not rig.session.over
    rig.client.out += strict.frame(strict.DATA, 0, 1) * 20
    rig.up()
    assert "100 frames of stream 1 wait for the runtime's window" in rig.session.over
