"""Bytes that cannot be followed, floods, and clients that take more than they were given."""

from __future__ import annotations

import pytest

from nodeward.transport.relay_session import MAX_CALLS
from tests.unit.transport.between import Between, ask
from tests.unit.transport.strict import DATA, END_HEADERS, HEADERS, PING, frame, request

GARBAGE = {
    "no preface": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a block that is none": frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff"),
    "a block over 64 KiB": frame(HEADERS, 0, 1, b"\0" * 16_384) + frame(9, 0, 1, b"\0" * 16_384) * 4,
    "a frame that is too long": frame(DATA, 0, 1, bytes(20_000)),
    "a frame in a header block": frame(HEADERS, 0, 1, b"\x82") + frame(PING, 0, 0, bytes(8)),
    "a header block that goes on wrongly": frame(HEADERS, 0, 1, b"\x82") + frame(9, END_HEADERS, 1, b"\xff" * 9),
    "padding that is too long": frame(HEADERS, END_HEADERS | 8, 1, b"\xff\x82"),
    "a table over all bounds": frame(HEADERS, END_HEADERS, 1, b"\x3f\xe1\xff\xff\xff\x07\x82"),
    "settings of odd length": frame(4, 0, 0, b"12345"),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_what_cannot_be_followed_passes_unseen_where_nothing_is_held(what: str) -> None:
    rig = Between(enforces=False, greet=False)
    rig.client.out = bytearray() if what == "no preface" else rig.client.out
    good = b"" if what == "no preface" else frame(HEADERS, END_HEADERS, 3, b"\x82\x87\x04\x02/a")
    rig.client.out += good + GARBAGE[what] + b"and more"
    sent = bytes(rig.client.out)
    for at in range(0, len(sent), 1000):
        rig.session.from_client(sent[at : at + 1000])
    rig.session.from_client(b"!")

    assert b"".join(rig.session.runtime_out) == sent + b"!"
    assert rig.book.counts.lost_sight == 1
    assert len(rig.watcher.calls) == len(rig.watcher.ends())
    rig.session.from_runtime(b"anything")
    assert b"".join(rig.session.client_out) == b"anything"


@pytest.mark.parametrize("what", [name for name in GARBAGE if name != "no preface"])
def test_what_cannot_be_followed_ends_both_where_calls_are_held(what: str) -> None:
    rig = Between()
    ask(rig, 1, "HoldCreate")
    rig.session.from_client(GARBAGE[what])
    rig.flush()
    assert rig.session.over
    assert rig.client.goaways == [(1, 1)]
    assert rig.runtime.goaways == [(0, 1)]
    assert len(rig.watcher.ends()) == 1
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


def test_a_client_that_takes_more_than_its_window_while_something_is_held_is_cut_off() -> None:
    rig = Between()
    rig.client.headers(1, request("HoldCreate"))
    rig.client.out += frame(DATA, 0, 1, bytes(16_384)) * 2 + frame(DATA, 0, 3, bytes(16_384)) * 3
    rig.up()
    assert "more than it was allowed" in rig.session.over
