"""A relay's dump: its stream, its rules, its lines and trees read back, and its text."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.errors import WireError
from nodeward.neighbours.cri import dump_rules
from nodeward.neighbours.cri.dump_rules import Level, parse
from nodeward.programs.dump import frames as dump_feed
from nodeward.programs.dump import lines as dump_lines
from nodeward.programs.dump import text as dump_text
from nodeward.programs.dump.frames import Frame, FrameKind, FrameReader
from nodeward.programs.dump.lines import CUT, Dumped, Reader, Remark
from nodeward.programs.dump.read import Value, parse_tree
from nodeward.programs.dump.read import tree as tree_or_lines
from nodeward.programs.dump.text import Call

u64 = st.integers(0, 2**63 - 1)
frames = st.builds(
    lambda kind, number, at, flags, path, payload, status: Frame(
        kind, number, at, flags, path, payload, len(payload), status
    ),
    st.sampled_from(FrameKind),
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
    head, _ = dump_feed.encode(Frame(FrameKind.REQUEST, 1, 1, 0, "/a/b", b""))
    with pytest.raises(WireError, match="4294967295 bytes"):
        list(FrameReader().feed(b"\xff\xff\xff\xff" + head[4:]))


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
    reply = [b"runtime_name: containerd", b"version: v1"]
    at = "2020-Mar-02 10:00:00.000"
    assert read(text) == [Dumped("", "Version", "passthrough", at, 0.001, False, [b"{}"], [reply])]


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
def test_a_line_too_long_is_cut_between_escapes_and_stays_yaml(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
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


LAUGHS = ["a0: &a0 ha"] + [f"a{one}: &a{one} [{', '.join([f'*a{one - 1}'] * 10)}]" for one in range(1, 10)]


def tree(text: str) -> Value:
    """The text's tree, from lines as a dump's reader gives them."""
    return parse_tree(text.encode().split(b"\n"))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("\n".join(LAUGHS), "has an alias", id="a billion laughs"),
        pytest.param("a: &a [*a]", "has an alias", id="a list within itself"),
        pytest.param("[" * 100_000, "nested more than 200 levels deep", id="a list of lists of lists"),
        pytest.param("- " * 100_000, "nested more than 200 levels deep", id="the same in lines"),
        pytest.param("? [1]\n: 2", "has a key that is no text", id="a list as a key"),
        pytest.param("a: 1\n--- \nb: 2", "more than one document", id="two documents"),
        pytest.param('a: "\\ud800"', "invalid Unicode", id="half a surrogate pair"),
    ],
)
def test_what_no_dump_has_is_refused(text: str, fault: str) -> None:
    with pytest.raises(WireError, match=fault):
        tree(text)
    assert tree_or_lines(text.encode().split(b"\n")) == text.split("\n"), "it is shown as it is"


@pytest.mark.parametrize(
    "text",
    [
        *("0x" + "f" * 10_000, "1" + ":1" * 100_000, "9" * 10_000, "2026-02-30", "1e999", "1.5e400", ".inf"),
        *("!!bool maybe", "!!int ''"),
    ],
    ids=lambda text: text[:12],
)
def test_values_that_are_none_of_ours_are_text(text: str) -> None:
    assert tree(f"a: {text}") == {"a": text.rpartition(" ")[2].strip("'")}


def test_what_a_relay_wrote_is_read_as_any_reader_of_yaml_reads_it() -> None:
    message = cri.ListContainersResponse()
    for number in range(3):
        row = message.containers.add(id=f"{number:064x}", created_at=-number * 10**18, state=cri.CONTAINER_RUNNING)
        row.labels["a/b"] = "yes, 'quoted' and \x85"
        row.annotations["json"] = json.dumps({"a": 1})
    text = "\n".join(dump_text.body(cri.ListContainersResponse, message.SerializeToString()))
    assert tree(text) == yaml.safe_load(text)
    assert tree("{}") == {}
    assert tree("") is parse_tree([]) is None
    assert parse_tree([b"a: 'x\xff", b"\xe2", b"", b"y'", b"b: c"]) == {"a": "x\ufffd \ufffd\ny", "b": "c"}


@given(st.text(max_size=30), st.text(max_size=30), st.booleans() | st.floats(-1e9, 1e9) | st.integers(-(2**63), 2**64))
def test_texts_flags_and_numbers_come_back(text: str, name: str, other: bool | int | float) -> None:
    message = cri.ContainerStatusResponse()
    message.info[name] = text
    lines = dump_text.body(cri.ContainerStatusResponse, message.SerializeToString(), ("environment",))
    lines.append(f"other: {str(other).lower()}")
    assert tree("\n".join(lines)) == {"info": {name: text}, "other": other}


EVERY = ("Version", "CreateContainer", "ListContainers", "PullImage", "ContainerStatus")


def levels(spec: str) -> dict[str, str]:
    rules = parse(spec)
    return {method: rules.level(method).name.lower() for method in EVERY if rules.level(method)}


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        (dump_rules.FINAL_DEFAULT, {"CreateContainer": "name"}),
        ("full:.*", dict.fromkeys(EVERY, "full")),
        ("*", dict.fromkeys(EVERY, "full")),
        ("short:Version,ListContainers", {"Version": "name", "ListContainers": "name"}),  # a level holds on
        ("short:Version,full:.*Image", {"Version": "name", "PullImage": "full"}),
        ("full:.*Container.*,off:.*List.*", {"CreateContainer": "full", "ContainerStatus": "full"}),  # the last decides
        ("off:Version,full:.*", {method: "full" for method in EVERY if method != "Version"}),  # but for a name
        ("verbose:Version,suppress:.*", {"Version": "full"}),
        ("FULL:Version", {"Version": "full"}),
        ("full:*,short:.*Image.*", dict.fromkeys(EVERY, "full") | {"PullImage": "name"}),
        ("full:Container", {}),  # a name is a whole name
        ("full:Container.", {"ListContainers": "full", "ContainerStatus": "full"}),  # an expression is looked for
        ("reset,full:.*", dict.fromkeys(EVERY, "full")),
        ("reset", {}),
        ("on", {"CreateContainer": "full", "PullImage": "full"}),  # the historic defaults stand
        ("disable", {}),
        ("reset,full:.*,off", {}),
        ("reset,off:*,full:.*", {}),  # in the historic one * comes before every expression
        ("reset,off:*,full:Version", {"Version": "full"}),
        ("reset,full:Version,off:Version", {}),  # the newer rule for a name takes the older one's place
        ("reset,count:Version", {"Version": "name"}),
        ("reset,name:.*List.*,full:.*Status", {"ListContainers": "name", "ContainerStatus": "full"}),
    ],
)
def test_the_final_and_the_historic_grammar(spec: str, shown: dict[str, str]) -> None:
    assert levels(spec) == shown


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("loud:.*", "dump rule 'loud:.*': 'loud' is no level; write off, short or full before the colon"),
        ("full:", "names no method"),
        ("full:.*,,off:Version", "names no method"),
        ("full:.*(", "is no expression (missing ): .*()"),
        ("full:(?<!a).*", "is no expression"),
        (r"full:(\pL{150})", r"'(\\pL{150})' is no expression (pattern too large - compile failed)"),
        ("x" * (dump_rules.MAX_SPEC + 1), "at most 65536"),
        ("a," * dump_rules.MAX_RULES + "a", "at most 1024"),
        ("on," + "a," * dump_rules.MAX_RULES + "a", "1025 rules; at most 1024"),
    ],
)
def test_a_rule_that_cannot_be_is_named_with_its_fault(spec: str, said: str) -> None:
    with pytest.raises(WireError) as raised:
        parse(spec)
    assert said in str(raised.value)


def test_words_between_rules_do_not_count() -> None:
    assert parse("on," + "a," * (dump_rules.MAX_RULES - 1) + "a").level("a") is Level.FULL


def test_a_hostile_expression_takes_no_time_and_a_hostile_name_no_memory() -> None:
    rules = parse("full:(a+)+$,full:(x|x)*y.*")
    assert rules.level("a" * 200 + "b") is Level.OFF  # Python's own would take longer than the universe has
    assert rules.level("a" * (dump_rules.MAX_METHOD + 1)) is Level.OFF
    for number in range(2 * dump_rules.MAX_RULES):
        rules.level(f"Method{number}")
    assert len(rules._known) <= dump_rules.MAX_RULES


@pytest.mark.parametrize(
    "spec", ["{}", "reset,{}", "reset,{},reset,full:Version"], ids=["final", "historic", "forgotten"]
)
def test_many_large_expressions_are_refused_after_a_bounded_work(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest that one may be: a few are compiled, whatever their number is."""
    compiled: list[int] = []
    one = dump_rules._compiled

    def counted(expression: str) -> dump_rules.Expression:
        made = one(expression)
        compiled.append(made.programsize)
        return made

    monkeypatch.setattr(dump_rules, "_compiled", counted)
    large = spec.format(",".join(f"a{number}.{{999}}" for number in range(1000)))
    with pytest.raises(WireError, match=r"dump rule 'a8\.\{999\}': .* at most 65536 are taken"):
        parse(large)
    assert sum(compiled) < dump_rules.MAX_PROGRAM + 8192 + 1000


def test_as_many_rules_as_there_may_be_are_taken_where_they_are_usual_ones() -> None:
    usual = dump_rules.FINAL_DEFAULT.split(",")[1]
    assert len(parse(",".join([usual] * dump_rules.MAX_RULES)).rules) == dump_rules.MAX_RULES
    assert parse("full:.{999}").level("Version") is Level.OFF


CREATE = Call(7, "CreateContainer", "relayed")


def lines(message: Message, *shown: str) -> list[str]:
    return dump_text.body(type(message), message.SerializeToString(), shown)


def parsed(message: Message, *shown: str) -> Any:
    return yaml.safe_load("\n".join(lines(message, *shown)))


def test_a_request_is_a_block_behind_its_stamp_and_a_single_line_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    head = "[2025-Nov-21 22:02:51.123] #7 CreateContainer => "
    assert len("2025-Nov-21 22:02:51.123") == dump_text.STAMP
    assert dump_text.request(CREATE, AT_NS, ["a: 1", "b: 2"]) == (
        f"{head}(relayed) REQUEST\n{head}    a: 1\n{head}    b: 2\n"
    )
    assert dump_text.request(CREATE, AT_NS, ["a: 1"]) == f"{head}(relayed) REQUEST a: 1\n"


def test_a_reply_has_its_latency_in_the_stamps_columns() -> None:
    head = "[               +0.001234] #7 CreateContainer <= "
    assert dump_text.reply(CREATE, 1_234_000, ["container_id: c"]) == f"{head}(relayed) REPLY container_id: c\n"
    assert dump_text.failed(CREATE, 1_234_000, "no\nroom") == f"{head}(relayed) FAILED\n{head}    no\n{head}    room\n"
    assert dump_text.named(CREATE, 1_234_000, "no\nroom") == f"{head}(relayed) FAILED: no room\n"
    assert dump_text.named(CREATE, 1_234_000, None) == f"{head}(relayed) REQUEST\n"


def test_a_failure_says_nothing_to_a_terminal() -> None:
    why = "mkdir \x1b]0;mine\x07: not a directory \u2028\u202e[1m\x9b2J"
    shown = dump_text.failed(CREATE, 1, why) + dump_text.named(CREATE, 1, why)
    assert shown.replace("\n", "").isprintable()
    assert "mkdir \\u001b]0;mine\\u0007: not a directory" in shown
    assert "\\u202e[1m\\u009b2J" in shown


@dataclass(frozen=True, slots=True)
class Case:
    case: str
    kind: str
    message: dict[str, object]
    lines: dict[str, str]


TOLD = yaml.safe_load(Path(__file__).with_name("dump_text.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", msgspec.convert(TOLD, list[Case]), ids=lambda case: case.case)
def test_what_is_secret_is_blanked_unless_it_is_asked_for(case: Case) -> None:
    message = json_format.ParseDict(case.message, vars(cri)[case.kind]())
    for asked, expected in case.lines.items():
        shown = () if asked == "nothing" else asked.split(" ")
        assert lines(message, *shown) == expected.splitlines(), asked


def test_these_are_the_credentials_of_a_registry() -> None:
    names = ["username", "password", "auth", "server_address", "identity_token", "registry_token"]
    assert [*cri.AuthConfig.DESCRIPTOR.fields_by_name] == names


@given(
    st.dictionaries(st.text(), st.text(), max_size=4), st.lists(st.text(), max_size=4), st.integers(-(2**63), 2**63 - 1)
)
def test_what_is_written_reads_back(annotations: dict[str, str], args: list[str], shares: int) -> None:
    message = cri.CreateContainerRequest()
    message.config.annotations.update(annotations)
    message.config.args[:] = args
    message.config.linux.resources.cpu_shares = shares
    config = {
        **({"annotations": annotations} if annotations else {}),
        **({"args": args} if args else {}),
        "linux": {"resources": {"cpu_shares": shares} if shares else {}},
    }
    shown = parsed(message, "commands", "annotations", "environment")  # else an annotation may look like a manifest
    assert shown == {"config": config} if shares or annotations or args else True


def test_a_line_is_a_line_whatever_a_text_holds() -> None:
    message = cri.CreateContainerRequest(pod_sandbox_id="a\nb\u2028c\x85d\r")
    assert len("\n".join(lines(message)).splitlines()) == 1


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ('runc create failed: exec: "/hunter2": stat /hunter2: no such file or directory', "runc create failed: "),
        ("crun: executable file `hunter2` not found in $PATH", "crun: "),
        ('error finding executable "hunter2" in PATH', "error finding "),
        ("command error: exit status 1, stdout: hunter2, stderr: , exit code 1", ""),
        ("OCI runtime exec failed: exec failed: no space left", None),
    ],
    ids=["runc", "crun", "gvisor", "cri-o", "no-command"],
)
def test_a_command_in_a_runtimes_words_is_blanked_unless_it_is_asked_for(said: str, kept: str | None) -> None:
    hidden = said if kept is None else f"{kept}*** commands, not shown ***"
    assert dump_text.words(said, ()) == hidden
    assert parsed(cri.ContainerStatus(message=said))["message"] == hidden
    assert dump_text.words(said, ("commands",)) == said


def test_what_the_schema_does_not_know_is_told_by_number_and_size() -> None:
    raw = cri.VersionRequest(version="v1").SerializeToString() + bytes([0xFA, 0x01, 3]) + b"abc"
    assert dump_text.body(cri.VersionRequest, raw) == ["version: v1", "# field 31, not known to this version, 3 bytes"]


def test_what_is_no_message_is_told_by_its_size() -> None:
    assert dump_text.body(cri.VersionRequest, b"\xff\xff") == ["# 2 bytes that are no VersionRequest"]
    assert dump_text.body(None, b"abc") == ["# 3 bytes of a message that this version does not know"]
    assert dump_text.body(cri.VersionRequest, b"") == ["{}"]


def test_the_kinds_of_a_method_are_found_by_service_and_name() -> None:
    assert dump_text.kinds("RuntimeService", "Version") == (cri.VersionRequest, cri.VersionResponse)
    assert dump_text.kinds("ImageService", "PullImage") == (cri.PullImageRequest, cri.PullImageResponse)
    assert dump_text.kinds("ImageService", "Version") is None
    assert dump_text.kinds("RuntimeService", "Tomorrow") is None
