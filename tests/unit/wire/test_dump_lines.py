"""A dump read back: what was written comes out again, and whatever else stands in a file does no harm."""

import pytest
import yaml

from nodeward.proto import cri_pb2 as cri
from nodeward.wire import dump_lines, dump_text
from nodeward.wire.dump_lines import CUT, Dumped, Reader, Remark
from nodeward.wire.dump_text import Call

AT_NS = 1_763_762_571_123_456_789
WHEN = dump_text.stamp(AT_NS)
ASKED, OTHER = Call(7, "RunPodSandbox", "passthrough"), Call(8, "RunPodSandbox", "intercepted")


def lines_of(text: str) -> list[bytes]:
    return text.encode().splitlines(keepends=True)


def read(text: str) -> list[Dumped | Remark]:
    return list(Reader().read(lines_of(text)))


def test_replies_find_their_requests_though_they_overtake_each_other() -> None:
    text = dump_text.request(ASKED, AT_NS, ["a: 1", "b: 2"]) + dump_text.request(OTHER, AT_NS, ["a: 3"])
    text += dump_text.reply(OTHER, 2_000_000, ["id: o"]) + dump_text.failed(ASKED, 1_000_000, "no\nroom")
    assert read(text) == [
        Dumped("#8", "RunPodSandbox", "intercepted", WHEN, 0.002, False, [b"a: 3"], [[b"id: o"]]),
        Dumped("#7", "RunPodSandbox", "passthrough", WHEN, 0.001, True, [b"a: 1", b"b: 2"], [[b"no", b"room"]]),
    ]


def test_a_call_of_which_one_line_is_shown_has_no_messages() -> None:
    text = dump_text.named(ASKED, 1_000_000, None) + dump_text.named(OTHER, 2_000_000, "NOT_FOUND: no\n such")
    assert read(text) == [
        Dumped("#7", "RunPodSandbox", "passthrough", "", 0.001),
        Dumped("#8", "RunPodSandbox", "intercepted", "", 0.002, True, [], [[b"NOT_FOUND: no such"]]),
    ]


def test_a_dump_of_cri_rm_has_no_numbers_and_its_replies_are_taken_in_order() -> None:
    text = (
        "[2020-Mar-02 10:00:00.000] Version => (passthrough) REQUEST {}\n"
        "[2020-Mar-02 10:00:00.100] Version => (passthrough) REQUEST version: v1\n"
        "[               +0.001000] Version <= (passthrough) REPLY\n"
        "[               +0.001000] Version <=     runtime_name: containerd\n"
        "[               +0.001000] Version <=     version: v1\n"
    )
    assert read(text) == [
        Dumped(
            "",
            "Version",
            "passthrough",
            "2020-Mar-02 10:00:00.000",
            0.001,
            False,
            [b"{}"],
            [[b"runtime_name: containerd", b"version: v1"]],
        )
    ]


def test_calls_without_a_reply_are_left() -> None:
    reader = Reader()
    assert list(reader.read(lines_of(dump_text.request(ASKED, AT_NS, ["a: 1"])))) == []
    assert [call.number for call in reader.left()] == ["#7"]


def test_what_is_no_line_of_a_dump_is_counted() -> None:
    reader = Reader()
    lines = ["rubbish\n", "\x00" * 100 + "\n", "[x] # y\n", f"[{WHEN}] # {'9' * (1 << 20)}\n"]
    lines.append(f"[{WHEN}] {'x' * 5000} => (passthrough) REQUEST a: 1\n")
    whole = dump_text.named(ASKED, 1, None)
    assert list(reader.read(lines_of("".join([*lines, whole])))) == read(whole)
    assert reader.skipped == 5


def test_of_calls_without_a_reply_the_oldest_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of CRI Resource Manager's dumps too, where all calls of a method have one name."""
    monkeypatch.setattr(dump_lines, "MAX_OPEN", 3)
    for number in ("", "#%d "):
        reader = Reader()
        heads = [number % at if number else "" for at in range(5)]
        asked = [f"[{WHEN}] {head}Version => (passthrough) REQUEST a: {at}\n" for at, head in enumerate(heads)]
        assert list(reader.read(lines_of("".join(asked)))) == []
        assert [call.request for call in reader.left()] == [[b"a: 2"], [b"a: 3"], [b"a: 4"]]


def test_bytes_that_are_no_text_are_kept_as_they_are() -> None:
    (call,) = Reader().read([b"[  +0.5] \xff\xfe <= (relayed) FAILED \xf0\x9f\x92\xa5\xff"])
    assert isinstance(call, Dumped)
    assert (call.method, call.replies) == ("\ufffd\ufffd", [[b"\xf0\x9f\x92\xa5\xff"]])


@pytest.mark.parametrize("text", ['a\\b"', "\x01\\u00", 'x"', "\\"], ids=["quote", "control", "plain", "backslash"])
def test_a_line_that_is_too_long_is_cut_between_escapes_and_stays_yaml(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(dump_lines, "MAX_LINE", 200)
    for short in range(8):
        whole = "z" * short + text * 200
        said = dump_text.body(cri.VersionResponse, cri.VersionResponse(version=whole).SerializeToString())
        (call,) = read(dump_text.reply(ASKED, 1_000_000, said))
        assert isinstance(call, Dumped)
        kept, mark, rest = yaml.safe_load(call.replies[0][0])["version"].partition(CUT.decode())
        assert (call.took_s, whole.startswith(kept), bool(kept), bool(mark), rest) == (0.001, True, True, True, "")


def test_what_a_dump_says_of_itself_is_told_in_its_place_and_counted() -> None:
    lost = "3 messages are missing here: the disk was full"
    lines = dump_text.reply(ASKED, 1, ["a: 1"]), dump_text.remark(AT_NS, lost), dump_text.named(OTHER, 1, None)
    reader = Reader()
    first, remark, second = reader.read(lines_of("".join(lines)))
    assert remark == Remark(WHEN, lost, 3)
    assert [one.number for one in (first, second) if isinstance(one, Dumped)] == ["#7", "#8"]
    assert list(reader.read(lines_of(dump_text.remark(AT_NS, "anything else")))) == [Remark(WHEN, "anything else", 0)]
    assert (reader.missing, reader.skipped) == (3, 0)
