"""The stream between a relay and the process that writes its dump."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.wire import dump_feed
from nodeward.wire.dump_feed import Frame, FrameReader, Kind
from nodeward.wire.errors import WireError

u64 = st.integers(0, 2**63 - 1)
frames = st.builds(
    lambda kind, number, at, flags, path, payload, status: Frame(
        kind, number, at, flags, path, payload, len(payload), status
    ),
    st.sampled_from(Kind),
    u64,
    u64,
    st.integers(0, 31),
    st.text(max_size=60),
    st.binary(max_size=200),
    st.integers(0, 16),
)


@given(st.lists(frames, max_size=6), st.integers(1, 64))
def test_whatever_the_chunks_the_frames_come_out_as_they_went_in(told: list[Frame], chunk: int) -> None:
    stream = b"".join(part for frame in told for part in dump_feed.encode(frame))
    reader = FrameReader()
    heard = [frame for at in range(0, len(stream), chunk) for frame in reader.feed(stream[at : at + chunk])]
    assert heard == told


def test_a_frame_longer_than_any_is_refused_before_it_is_awaited() -> None:
    head, _ = dump_feed.encode(Frame(Kind.REQUEST, 1, 1, 0, "/a/b", b""))
    with pytest.raises(WireError, match="4294967295 bytes"):
        list(FrameReader().feed(b"\xff\xff\xff\xff" + head[4:]))
