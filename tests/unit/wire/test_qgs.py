"""The one question to Intel's QGS, byte by byte, and answers made to hurt."""

import struct

import pytest

from nodeward.wire import qgs
from nodeward.wire.errors import WireError


def test_the_request_is_a_length_and_a_bare_header_for_platform_info() -> None:
    assert qgs.request() == bytes.fromhex("00000010 0100 0100 04000000 10000000 00000000")


GOOD = qgs.answer()[qgs.LENGTH_BYTES :]


def changed(at: int, data: bytes) -> bytes:
    return GOOD[:at] + data + GOOD[at + len(data) :]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        pytest.param(b"", "no header", id="empty"),
        pytest.param(GOOD[:15], "no header", id="cut-within-the-header"),
        pytest.param(changed(0, b"\x02\x00"), "version 2.1", id="another-major-version"),
        pytest.param(changed(4, b"\x01"), "of type 1", id="a-quote"),
        pytest.param(GOOD + b"x", "says that it has", id="longer-than-it-says"),
        pytest.param(GOOD[:-1], "says that it has", id="shorter-than-it-says"),
        pytest.param(changed(20, struct.pack("<I", 0xFFFFFFFF)), "not as long", id="a-part-of-4-gib"),
        pytest.param(struct.pack("<HHIII", 1, 1, 5, 16, 0), "no platform", id="nothing-behind-the-header"),
    ],
)
def test_what_is_no_answer_is_named(body: bytes, fault: str) -> None:
    with pytest.raises(WireError, match=fault):
        qgs.error_of(body)


def test_another_minor_version_is_an_answer() -> None:
    assert qgs.error_of(changed(2, b"\x07\x00")) == 0


@pytest.mark.parametrize("size", [0, 15, qgs.MAX_BYTES + 1, 2**32 - 1])
def test_no_answer_is_so_long_or_so_short(size: int) -> None:
    with pytest.raises(WireError, match=f"of {size} bytes"):
        qgs.length(struct.pack(">I", size))
