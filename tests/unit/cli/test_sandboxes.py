"""`nodeward sandboxes`: what the daemon answers, as lines or as JSON, and what it is asked."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from nodeward.cli import client
from nodeward.cli.main import cli
from nodeward.engine.show.sandbox_words import DEFAULTS, OPTIONS
from nodeward.model.sandbox_rows import ClassRow, HandlerRow, SandboxesView, SandboxRow
from nodeward.model.view import NodeView

VIEW = SandboxesView(
    "observe",
    2,
    rows=(SandboxRow("0123456789", "shop", "web"), SandboxRow("fedcba", "lab", "web")),
    handlers=(HandlerRow("kata"),),
    classes=(ClassRow("kata"),),
)


def asked(monkeypatch: pytest.MonkeyPatch, *args: str, view: SandboxesView | None = VIEW) -> tuple[int, str]:
    node = NodeView("off", "", "", True, {}, {}, (), sandboxes=view)
    monkeypatch.setattr(client, "get", lambda *_: msgspec.json.encode(node))
    done = CliRunner().invoke(cli, ["sandboxes", *args])
    return done.exit_code, done.output or str(done.exception)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param([], "2 VM sandbox(es): 2 unknown", id="all"),
        pytest.param(["shop/web"], "sandbox shop/web: VM", id="one"),
        pytest.param(["--handlers"], "kata: runtime type unknown", id="handlers"),
        pytest.param(["--classes"], "CLASS", id="classes"),
    ],
)
def test_sandboxes_are_shown_from_what_the_daemon_answers(
    monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    code, output = asked(monkeypatch, *args)
    assert code == 0
    assert said in output


def test_json_has_the_part_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(*args: str) -> bytes:
        return asked(monkeypatch, *args, "-o", "json")[1].encode()

    assert msgspec.json.decode(parsed(), type=SandboxesView) == VIEW
    assert msgspec.json.decode(parsed("--classes"), type=tuple[ClassRow, ...]) == VIEW.classes
    assert msgspec.json.decode(parsed("--handlers"), type=tuple[HandlerRow, ...]) == VIEW.handlers
    assert msgspec.json.decode(parsed("web"), type=tuple[SandboxRow, ...]) == VIEW.rows


def test_a_daemon_that_does_not_look_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "set sandboxes.mode to observe" in asked(monkeypatch, view=None)[1]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        pytest.param(["shop/none\n"], 1, "no VM sandbox of this node is shop/none\\u000a:", id="unknown"),
        pytest.param(["shop/web", "--classes"], 2, "--classes is of the node", id="two questions"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(
    monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, said: str
) -> None:
    found, output = asked(monkeypatch, *args)
    assert found == code
    assert said in output


def test_katas_option_is_told_without_a_daemon() -> None:
    text = CliRunner().invoke(cli, ["sandboxes", "--options"]).output
    assert [one.status for one in OPTIONS if f"{one.value} ({one.status})" not in text] == []
    found = json.loads(CliRunner().invoke(cli, ["sandboxes", "--options", "-o", "json"]).output)
    assert [row["runtime"] for row in found["defaults"]] == [one.runtime for one in DEFAULTS]
