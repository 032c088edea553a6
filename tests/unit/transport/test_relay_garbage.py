"""Bytes that cannot be followed, floods, and clients that take more than they were given."""

from __future__ import annotations

import pytest

from nodeward.model.relayed import Refuse
from nodeward.transport import relay_flow
from nodeward.transport.relay_calls import HELD_BYTES
from nodeward.transport.relay_flow import FRAME_BYTES
from nodeward.transport.relay_holds import MAX_REFUSED
from nodeward.transport.relay_session import MAX_CALLS
from tests.unit.transport.between import BUSY, OK, Between, ask, status
from tests.unit.transport.strict import DATA, END_HEADERS, HEADERS, PING, frame, message, request

GARBAGE = {
    "no preface": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a block that is none": frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff"),
    "a block over 64 KiB": frame(HEADERS, 0, 1, b"\0" * 16_384) + frame(9, 0, 1, b"\0" * 16_384) * 4,
    "a small block of much more than 64 KiB": frame(
        HEADERS, END_HEADERS, 1, b"\x40\x01a\x7f\xbd\x1d" + bytes(3_900) + b"\xbe" * 60
    ),
    "a frame that is too long": frame(DATA, 0, 1, bytes(20_000)),
    "a frame in a header block": frame(HEADERS, 0, 1, b"\x82") + frame(PING, 0, 0, bytes(8)),
    "a header block that goes on wrongly": frame(HEADERS, 0, 1, b"\x82") + frame(9, END_HEADERS, 1, b"\xff" * 9),
    "padding that is too long": frame(HEADERS, END_HEADERS | 8, 1, b"\xff\x82"),
    "a table over all bounds": frame(HEADERS, END_HEADERS, 1, b"\x3f\xe1\xff\xff\xff\x07\x82"),
    "settings of odd length": frame(4, 0, 0, b"12345"),
    "a pushed answer": frame(5, END_HEADERS, 1, b"\0\0\0\2\x82"),
}


OF_ONE_SIDE = {"no preface": "client", "a pushed answer": "runtime"}
BY_SIDE = [(side, what) for side in ("client", "runtime") for what in GARBAGE if OF_ONE_SIDE.get(what, side) == side]


@pytest.mark.parametrize(("side", "what"), BY_SIDE)
def test_what_cannot_be_followed_passes_unseen_where_nothing_can_be_held(side: str, what: str) -> None:
    """They have gone on before anybody looked; nothing of ours comes between."""
    rig = Between(enforces=False, greet=False)
    end, other = (rig.client, rig.runtime) if side == "client" else (rig.runtime, rig.client)
    asked = frame(HEADERS, END_HEADERS, 3, b"\x82\x87\x04\x02/a")
    if side == "client":
        sent = b"" if what == "no preface" else bytes(rig.client.out) + asked
    else:
        rig.give(other, bytes(rig.client.out) + asked, heard=False)
        sent = bytes(rig.runtime.out) + frame(HEADERS, END_HEADERS, 3, b"\x88")
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
def test_what_cannot_be_followed_ends_both_where_calls_can_be_held(side: str, what: str, held: bool) -> None:
    """Also while none is: the next one could not be seen."""
    rig = Between()
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


def test_calls_without_end_are_bounded() -> None:
    rig = Between()
    for stream in range(1, 2 * MAX_CALLS + 3, 2):
        rig.client.headers(stream, request("Version"))
        if stream % 1000 == 1:
            rig.up()
    rig.up()
    assert "more than 4096 calls" in rig.session.over


def test_refusals_without_end_are_remembered_in_no_more_than_may_be() -> None:
    rig = Between()
    rig.judge.at_once = lambda call, message: BUSY
    streams = range(1, 10_001, 2)
    for stream in streams:
        rig.client.headers(stream, request("HoldCreate"))
        rig.client.data(stream, message(b""), end=True)
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


def test_a_client_that_takes_more_than_its_window_while_something_is_held_is_cut_off() -> None:
    rig = Between()
    rig.client.headers(1, request("HoldCreate"))
    rig.client.out += frame(DATA, 0, 1, bytes(16_384)) * 2 + frame(DATA, 0, 3, bytes(16_384)) * 3
    rig.up()
    assert "more than it was allowed" in rig.session.over


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("on_error", [None, Refuse(13, "nodeward")], ids=["pass", "refuse"])
def test_a_held_request_in_frames_without_end_takes_no_more_memory_than_may_be_held(
    size: int, on_error: Refuse | None
) -> None:
    rig = Between(on_error=on_error)
    rig.book.holds.left = rig.book.holds.total = 1_000 * (FRAME_BYTES + size)
    rig.client.headers(1, request("HoldCreate"))
    rig.client.out += frame(DATA, 0, 1, bytes(size)) * 1_001
    rig.up()

    assert rig.book.counts.on_error == 1
    assert rig.book.holds.left == rig.book.holds.total
    assert len(rig.runtime.streams[1].body) == (1_001 * size if on_error is None else 0)


def test_a_request_that_the_runtime_does_not_take_waits_in_no_more_frames_than_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_flow, "MAX_WAITING", 100)
    rig = Between()
    rig.book.holds.left = rig.book.holds.total = 70_000
    rig.client.headers(1, request("HoldCreate"))
    for _ in range(5):
        rig.client.out += frame(DATA, 0, 1, bytes(16_384))
        rig.up()
    assert len(rig.runtime.streams[1].body) == 65_535
    rig.client.out += frame(DATA, 0, 1) * 90
    rig.up()
    assert not rig.session.over
    rig.client.out += frame(DATA, 0, 1) * 20
    rig.up()
    assert "100 frames of stream 1 wait for the runtime's window" in rig.session.over
