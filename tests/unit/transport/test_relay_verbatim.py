"""What was sent at one end is what came at the other, byte for byte, in any session; and what neither end has sent is
one of the frames that the relay may make, whatever was decided."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.unit.transport.between import Between
from tests.unit.transport.strict import CONTINUATION, DATA, HEADERS, PING, PREFACE, RST, WINDOW, StrictEnd, frames
from tests.unit.transport.test_relay_machine import Sessions

QUICK = settings(max_examples=12, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
OURS_TO_THE_RUNTIME = {DATA, WINDOW, RST}
"""DATA: the pieces, or another body, of a request that was held. WINDOW: what is owed to us is taken out of it."""
OURS_TO_THE_CLIENT = {WINDOW, RST, HEADERS, CONTINUATION}
"""HEADERS: the answer to a refused call, and each answer after one that the client's decoder has missed."""


class Recorded(Between):
    """Both ends, with all bytes that either has sent."""

    def __init__(self, enforces: bool) -> None:
        self.sent: dict[str, bytearray] = {"client": bytearray(), "runtime": bytearray()}
        super().__init__(enforces)

    def up(self, most: int | None = None) -> None:
        self._record("client", self.client, most)
        super().up(most)

    def down(self, most: int | None = None) -> None:
        self._record("runtime", self.runtime, most)
        super().down(most)

    def _record(self, who: str, end: StrictEnd, most: int | None) -> None:
        self.sent[who] += end.out[:most]

    def made(self, who: str) -> Counter[tuple[int, int, int, bytes]]:
        """The frames that came at the other end than `who`, and that `who` has not sent."""
        other = self.runtime if who == "client" else self.client
        return _frames(other.got) - _frames(self.sent[who])


def _frames(data: bytearray) -> Counter[tuple[int, int, int, bytes]]:
    return Counter(frames(data.removeprefix(PREFACE)))


class Undecided(Sessions):
    """One connection on which nothing is held, be it that nobody decides or that none of the calls is to be decided."""

    method_held = "Version"

    @initialize(enforces=st.booleans())
    def begins(self, enforces: bool) -> None:
        self.rig = Recorded(enforces)

    @rule(number=st.integers(0, 255))
    def pings(self, number: int) -> None:
        self.rig.client.ping(bytes((number,)) * 8)

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
        self.rig = Recorded(enforces=True)

    def _check(self) -> None:
        super()._check()
        rig = self.rig
        assert isinstance(rig, Recorded)
        to_runtime, to_client = rig.made("client"), rig.made("runtime")
        assert {kind for kind, *_ in to_runtime} <= OURS_TO_THE_RUNTIME
        assert {kind for kind, *_ in to_client} <= OURS_TO_THE_CLIENT
        assert PING not in {kind for kind, *_ in (*to_runtime, *to_client)}
        decided = {stream for stream, asked in self.asked.items() if asked.held}
        cut_off = {stream for kind, _, stream, _ in to_runtime if kind == RST}
        assert cut_off <= decided, "a stream was reset that nobody decided"


TestUndecided = Undecided.TestCase
TestUndecided.settings = QUICK
TestDecided = Decided.TestCase
TestDecided.settings = QUICK
