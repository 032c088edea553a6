"""A call in a dump: upstream's lines, YAML that reads back as what was sent, and nothing secret."""

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

from nodeward.proto import cri_pb2 as cri
from nodeward.wire import dump_text
from nodeward.wire.dump_text import Call

AT_NS = 1_763_762_571_123_456_789
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
