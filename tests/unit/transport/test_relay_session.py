"""The rules of the relay, each a story between a strict client and a strict runtime.

What the strict ends themselves refuse (frames inside a header block, windows, header blocks that do not decode, frames
of streams that have ended) is checked in every one of these tests.
"""

from __future__ import annotations

import pytest

from nodeward.model.relayed import Interest
from nodeward.transport import relay_calls
from tests.unit.transport.between import BUSY, OK, TRAILERS, Between, after, answer, ask, status
from tests.unit.transport.strict import (
    ACK,
    DATA,
    HEADERS,
    PING,
    RST,
    WINDOW,
    frames,
    message,
    request,
)

# ---- passing


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
    rig.runtime.data(1, message(b"one") + message(b"")[:2])
    rig.settle()
    assert [one.payload for one in rig.watcher.messages("response")] == [b"one"]
    rig.runtime.data(1, message(b"")[2:] + message(b"three"))
    rig.settle()
    assert [one.payload for one in rig.watcher.messages("response")] == [b"one", b"", b"three"]
    assert rig.watcher.ends() == []


@pytest.mark.parametrize("who", ["client", "runtime"])
def test_a_reset_ends_a_call_without_a_status(who: str) -> None:
    rig = Between()
    ask(rig, 1, "Version")
    (rig.client if who == "client" else rig.runtime).reset(1, 2)
    rig.settle()
    assert [one.status for one in rig.watcher.ends()] == [None]
    assert (rig.runtime if who == "client" else rig.client).streams[1].resets == [2]
    after(rig)


def test_messages_that_find_no_memory_are_cut_and_pass_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_calls, "MESSAGE_BYTES", 10)
    rig = Between(enforces=False)
    rig.book.copies.left = 15
    ask(rig, 1, "Version", b"a" * 30)
    rig.client.headers(3, request("Version"))
    rig.client.data(3, message(b"b" * 12)[:14])
    rig.settle()
    ask(rig, 5, "Version", b"c" * 30)

    assert [(one.payload, one.size_bytes, one.cut) for one in rig.watcher.messages("request")] == [
        (b"a" * 10, 30, True),
        (b"c" * 6, 30, True),
    ]
    assert bytes(rig.runtime.streams[5].body) == message(b"c" * 30)
    rig.client.reset(3)
    rig.settle()
    assert rig.book.copies.left == 15


def test_a_watcher_that_raises_is_counted_and_changes_nothing() -> None:
    rig = Between(enforces=False)
    rig.watcher.broken = True
    ask(rig, 1, "Version")
    answer(rig, 1)
    assert status(rig, 1) == (b"0", b"")
    assert rig.book.counts.faults == 1


# ---- settings


# ---- the end


def test_goaway_first_names_no_stream_and_at_last_the_last_one() -> None:
    rig = Between()
    ask(rig, 7, "Version")
    assert rig.session.waits
    rig.session.goaway(last=False)
    rig.flush()
    answer(rig, 7)
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


def test_no_ping_is_ever_ours() -> None:
    rig = Between()
    ask(rig, 1, "HoldCreate", b"x" * 10_000)
    rig.verdict(1, BUSY)
    after(rig)
    for end in (rig.client, rig.runtime):
        seen = frames(end.got[0 if end.client else 24 :])
        assert [one for one in seen if one[0] == PING] == []
        assert {one[0] for one in seen} <= {DATA, HEADERS, RST, 4, WINDOW}
        assert [one[1] for one in seen if one[0] == 4] == [0, ACK]
