"""What was sent at one end is what came at the other, byte for byte, in any session; where calls are decided, but for
the frames that the relay has to make of its own, which `listing` lists one by one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from nodeward.model.relayed import Pass, Refuse, Replace
from tests.unit.transport.between import OK, Between, answer, ask
from tests.unit.transport.listing import Listing, frame_starts, whole_frames
from tests.unit.transport.strict import MAX_STREAM, RST, message, request
from tests.unit.transport.test_relay_machine import Sessions

QUICK = settings(max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))


class Recorded(Between):
    """Both ends, with all bytes that either has sent."""

    def __init__(self, enforces: bool) -> None:
        self.sent: dict[str, bytearray] = {"client": bytearray(), "runtime": bytearray()}
        super().__init__(enforces)

    def up(self, most: int | None = None) -> None:
        self.sends("client", bytes(self.client.out[:most]))
        super().up(most)

    def down(self, most: int | None = None) -> None:
        self.sends("runtime", bytes(self.runtime.out[:most]))
        super().down(most)

    def sends(self, who: str, data: bytes) -> None:
        """These bytes are given to the relay next."""
        self.sent[who] += data


class Listed(Recorded):
    """The same, and what the relay has to say; after each piece that it is given it must have said that."""

    def __init__(self, holds: Callable[[int], bool]) -> None:
        self.listing = Listing(holds)
        self._parts = {"client": bytearray(), "runtime": bytearray()}
        self._seen = {"client": 0, "runtime": 0}
        self._came = {"client": bytearray(), "runtime": bytearray()}
        super().__init__(enforces=True)

    def up(self, most: int | None = None) -> None:
        """In two pieces where there is a reset: what is kept of a call then never goes on."""
        before = len(self._parts["client"])
        data = bytes(self._parts["client"] + self.client.out[:most])
        resets = [at - before for at, kind in frame_starts(data) if kind == RST and at > before]
        for begin, end in pairwise((0, *resets, len(data) - before)):
            super().up(end - begin)

    def sends(self, who: str, data: bytes) -> None:
        super().sends(who, data)
        self._parts[who] += data
        for frame in whole_frames(self._parts[who]):
            if who == "client":
                self.listing.from_client(frame)
            else:
                self.listing.from_runtime(frame)

    def flush(self) -> None:
        super().flush()
        self.listing.came(self._new("runtime"), self._new("client"))

    def _new(self, who: str) -> list[tuple[int, int, int, bytes]]:
        """The frames that came at this end since the last look."""
        end = self.client if who == "client" else self.runtime
        self._came[who] += end.got[self._seen[who] :]
        self._seen[who] = len(end.got)
        found = whole_frames(self._came[who])
        assert not self._came[who] or who == "runtime", "the relay says whole frames"
        return found


class Undecided(Sessions):
    """One connection on which nothing is held, be it that nobody decides or that none of the calls is to be decided."""

    method_held = "Version"

    @initialize(enforces=st.booleans())
    def begins(self, enforces: bool) -> None:
        self.rig = Recorded(enforces)

    @rule(number=st.integers(0, 255))
    def pings(self, number: int) -> None:
        self.rig.client.ping(bytes((number,)) * 8)

    @rule(last=st.sampled_from([0, 1, 5, MAX_STREAM]), who=st.sampled_from("cr"))
    def goes(self, last: int, who: str) -> None:
        """Without ending anything: what this end still sends and takes is for the other one to judge."""
        (self.rig.client if who == "c" else self.rig.runtime).goaway(last)

    def _check(self) -> None:
        rig = self.rig
        assert isinstance(rig, Recorded)
        assert rig.session.over == ""
        assert rig.runtime.got == rig.sent["client"]
        assert rig.client.got == rig.sent["runtime"]


class Decided(Sessions):
    """One connection on which calls are decided."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Listed(lambda stream: self.asked[stream].held)

    @rule(number=st.integers(0, 255), who=st.sampled_from("cr"))
    def pings(self, number: int, who: str) -> None:
        (self.rig.client if who == "c" else self.rig.runtime).ping(bytes((number,)) * 8)

    def _decide(self, stream: int, kind: str, size: int) -> None:
        assert isinstance(self.rig, Listed)
        self.rig.listing.decided(stream, kind, size)
        super()._decide(stream, kind, size)


def test_each_frame_that_a_relay_may_make_comes_where_it_has_to_and_once() -> None:
    """A call is refused while its answer is on the way, a longer body put in a request's place, a request answered
    before it is whole, a large one held on credit; what is answered later comes in literals."""
    rig = Listed(lambda stream: stream in (1, 5, 9, 13))
    verdicts = {1: "refuse", 5: "replace"}
    for stream in (1, 3, 5, 7):
        ask(rig, stream, "HoldCreate" if stream in verdicts else "Version")
    rig.runtime.headers(1, (*OK, (b"x-late", b"1")))
    rig.runtime.data(1, message(b"late"))
    for stream, kind in verdicts.items():
        rig.listing.decided(stream, kind, 50_000)
        rig.verdict(stream, Refuse(8, "no") if kind == "refuse" else Replace(b"R" * 50_000))
    for stream in (3, 5, 7):
        answer(rig, stream)
    rig.client.headers(9, request("HoldCreate"))
    rig.client.data(9, message(b"half")[:7])
    rig.settle()
    answer(rig, 9)
    rig.client.headers(13, request("HoldCreate"))
    body = message(b"L" * 200_000)
    while body:
        size = min(rig.client.room(13), len(body))
        rig.client.data(13, body[:size], end=size == len(body))
        body = body[size:]
        rig.settle()
    assert rig.judge.asked[13][1] == b"L" * 200_000
    rig.listing.decided(13, "pass", 0)
    rig.verdict(13, Pass())
    while not rig.runtime.streams[13].got_end:
        rig.runtime.grant(0, 30_000)
        rig.runtime.grant(13, 30_000)
        rig.settle()
    assert (rig.runtime.streams[1].resets, rig.runtime.streams[9].resets) == ([8], [8])
    assert (rig.client.streams[1].resets, rig.client.streams[9].resets) == ([], [0])
    assert rig.runtime.streams[5].body == message(b"R" * 50_000)


TestUndecided = Undecided.TestCase
TestUndecided.settings = QUICK
TestDecided = Decided.TestCase
TestDecided.settings = QUICK
