"""What holds for every command, and what a person reads of the daemon's answers, or when there is none."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Thread

import click
import msgspec
import pytest
from click.testing import CliRunner

from nodeward.cli import agent, exits, pod
from nodeward.cli.doctor import _print
from nodeward.cli.kubectl.plugin import cli as plugin
from nodeward.cli.main import cli
from nodeward.cli.pod import gate
from nodeward.core.finding import Finding, Severity
from nodeward.features.limits.rows import CgroupRow
from nodeward.features.sandboxes.rows import ClassRow, HandlerRow, SandboxesView, SandboxRow
from nodeward.people import client
from nodeward.people.client import DaemonError
from nodeward.people.doctor.run import Diagnosis
from nodeward.people.rows import NodeView
from tests.patience import scaled
from tests.unit.people.test_doctor import WELL

ROOT = Path(__file__).resolve().parents[3]
NODEWARD = [sys.executable, "-m", "nodeward"]
WITHIN_S = scaled(60.0)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["top"], "this command is now: nodeward status --watch"),
        (["keys", "mov"], "'mov'. Did you mean 'move'?"),
        (["cpus", "policies", "shw"], "'shw'. Did you mean 'show'?"),
        (["stauts"], "'stauts'. Did you mean 'status'?"),
        (["config", "shw"], "'shw'. Did you mean 'show'?"),
        (["status", "--namespce", "x"], "'--namespce'. Did you mean '--namespace'?"),
        (["status", "--state", "drft"], "'drft' is not one of"),
    ],
    ids=["an older name", "below a view", "two below", "command", "sub-command", "option", "value"],
)
def test_what_is_misspelt_gets_the_nearest_as_a_suggestion(words: list[str], meant: str) -> None:
    done = CliRunner().invoke(cli, words)

    assert done.exit_code == exits.UNUSABLE
    assert meant in done.stderr


def test_the_page_has_the_table_of_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == exits.MEANINGS


@pytest.mark.parametrize(
    "words", [["--help"], ["status", "--help"], ["cpus", "policies", "list"], ["config", "show"]], ids=" ".join
)
def test_a_closed_pipe_ends_a_command_without_a_word(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([*NODEWARD, *words], stdout=writing, stderr=subprocess.PIPE, timeout=WITHIN_S)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")
    assert exits.CLOSED_PIPE == 128 + signal.SIGPIPE  # as a shell shows it


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_by_the_script(shell: str) -> None:
    script = CliRunner().invoke(cli, ["setup", "completion", shell]).stdout
    assert f"_NODEWARD_COMPLETE={shell}_complete" in script
    asked = {"_NODEWARD_COMPLETE": f"{shell}_complete", "COMP_WORDS": "nodeward sta"}
    asked["COMP_CWORD"] = "sta" if shell == "fish" else "1"  # fish gives the word itself
    line = [sys.executable, "-c", "from nodeward.cli.main import main; main()"]
    done = subprocess.run(line, env={**os.environ, **asked}, capture_output=True, text=True, timeout=WITHIN_S)
    assert "status" in done.stdout
    assert "vms" not in done.stdout


def commands(command: click.Command | None, name: str) -> list[str]:
    if not isinstance(command, click.Group):
        return [name]
    with click.Context(command) as context:
        below = {one: command.get_command(context, one) for one in command.list_commands(context)}
        return [name, *(word for one, found in below.items() for word in commands(found, f"{name}-{one}"))]


def test_every_command_has_a_manual_page(tmp_path: Path) -> None:
    made = [sys.executable, "scripts/build-man", "--into", str(tmp_path)]
    subprocess.run(made, cwd=ROOT, check=True, timeout=WITHIN_S)
    pages = {path.stem: path.read_text() for path in tmp_path.glob("*.1")}
    assert set(pages) == {*commands(cli, "nodeward"), *commands(plugin, "kubectl-nodeward")}
    assert "\\fB\\-\\-state\\fP" in pages["nodeward-status"]


def test_config_show_names_each_source(tmp_path: Path) -> None:
    file = tmp_path / "nodeward.yaml"
    file.write_text("limits:\n  mode: observe\npolicy:\n  ReservedResources:\n    CPU: 1\n")
    words = ["config", "show", "--config", str(file), "--set", "kube.enabled=false", "-o", "json"]
    done = CliRunner().invoke(cli, words, env={"NODEWARD_LIMITS__STRICT": "true"})
    rows = {row["path"]: (row["value"], row["source"]) for row in json.loads(done.stdout)}
    expected = {
        "limits.mode": ("observe", f"{file} line 2"),
        "limits.strict": (True, "environment NODEWARD_LIMITS__STRICT"),
        "limits.on_error": ("pass", "default"),
        "kube.enabled": (False, "flag --set kube.enabled=..."),
        "policy.reserved": ("1", f"{file} line 5"),
    }
    assert {path: rows[path] for path in expected} == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0123456789abcdef" * 2 + "01234567", " (commit 0123456789ab)"),
        ("0123456789abcdef" * 2 + "01234567-dirty\n", " (commit 0123456789ab-dirty)"),
        ("", ""),
        ("\u00e9", ""),
        (None, ""),
    ],
    ids=["built", "changed since", "built without git", "damaged", "neither file nor checkout"],
)
def test_version_has_the_commit(text: str | None, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeward.cli.commit._PACKAGE", tmp_path / "lib" / "nodeward")
    (tmp_path / "lib" / "nodeward").mkdir(parents=True)
    if text is not None:
        (tmp_path / "lib" / "nodeward" / "commit.txt").write_text(text, encoding="utf-8")

    said = CliRunner().invoke(cli, ["--version"]).output

    assert re.fullmatch(rf"nodeward, version [0-9.]+{re.escape(shown)}\n", said)


@pytest.mark.parametrize(
    "words", [["status", "-n", "shop"], ["status", "--watch", "--times", "1", "-n", "shop"]], ids=" ".join
)
def test_the_verdict_is_on_the_node_whatever_rows_are_chosen(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    web = CgroupRow("pod", "shop", "web", "", "", "/web", "enforced", "spec", "rule", ())
    till = replace(web, namespace="bank", pod="till", state="drift")
    node = NodeView("enforce", "containerd", "answers", True, {}, {}, (web, till))
    monkeypatch.setattr(client, "node", lambda socket: node)
    said = CliRunner().invoke(cli, words).output
    assert said.startswith("bank/till is changed by another program.")
    assert ("\nshop/web " in said, "\nbank/till " in said) == (True, False)


def refused(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


AWAY = "no daemon listens at {}: start it (`nodeward node`), or give --socket or NODEWARD_SOCKET"
ANOTHER = "is it another socket? The daemon's is"
NO_HTTP, NOT_FOUND = b"hello\r\n\r\n", b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("nowhere", AWAY),
        ("left behind", AWAY),
        ("another user's", "{} cannot be opened by this user: ask as the daemon's, which is root as a rule"),
        ("silent", "the daemon at {} did not answer within 0.05 s; its log may say why"),
        (NO_HTTP, "what listens at {} speaks no HTTP: " + ANOTHER),
        (NOT_FOUND, "{} answers HTTP 404: " + ANOTHER),
    ],
    ids=["nowhere", "left behind", "another user's", "silent", "no HTTP", "another daemon's"],
)
def test_where_no_daemon_answers_that_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str | bytes, what: str
) -> None:
    place = tmp_path / "s"
    with ExitStack() as stack:
        if where != "nowhere":
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(place))
            listener.listen()
        if where == "left behind":
            stack.close()
        elif where == "another user's":
            monkeypatch.setattr("http.client.HTTPConnection.request", refused)
        elif where == "silent":
            monkeypatch.setattr(client, "TIMEOUT_S", 0.05)
        elif isinstance(where, bytes):
            said = where

            def answer() -> None:
                with listener.accept()[0] as one:
                    one.recv(65536)
                    one.sendall(said)

            thread = Thread(target=answer)
            thread.start()
            stack.callback(thread.join, 10)
        with pytest.raises(DaemonError) as raised:
            client.get("/v1/status", str(place))
    assert str(raised.value).startswith(what.format(place))


def test_a_misspelt_query_is_refused_since_the_agent_would_answer_that_all_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cri-resmgr-agent-probe", "-query", "confg-status"])

    with pytest.raises(SystemExit) as ended:
        agent.probe()

    assert ended.value.code == 2
    assert "config-status" in capsys.readouterr().err


def test_a_remedy_that_mends_neighbours_is_printed_once_beneath_them(capsys: pytest.CaptureFixture[str]) -> None:
    old = tuple(Finding("runtime-old", Severity.NOTE, f"{one} is old", one, "Wait.") for one in ("runc", "crun"))
    _print(Diagnosis(WELL, (*old, Finding("clock", Severity.NOTE, "late", "clock", "Set it.")), Severity.NOTE, None))

    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "note    runtime-old: runc is old [runc]",
        "note    runtime-old: crun is old [crun]",
        "Wait.",
        "note    clock: late [clock]",
        "Set it.",
        "worst: note",
    ]


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        (gate.command, ["shop/web", "--deny", "x", "--expires", "5m"], "--deny is final: give it a reason and no --ex"),
        (gate.command, ["shop/web", "--deny", " "], "--deny is final: give it a reason"),
        (gate.command, ["shop/web", "--pass", "--expires", "0m"], "--expires: write a number"),
        (pod.command, ["--list", "--spec"], "--spec is of one pod"),
    ],
)
def test_options_that_contradict_are_refused(command: click.Command, words: list[str], why: str) -> None:
    said = CliRunner().invoke(command, words)
    assert (said.exit_code, why in said.output) == (2, True)


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
    done = CliRunner().invoke(cli, ["vms", *args])
    return done.exit_code, done.output or str(done.exception)


def test_json_has_the_part_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {(): VIEW, ("--classes",): VIEW.classes, ("--handlers",): VIEW.handlers, ("web",): VIEW.rows}
    for words, part in parts.items():
        assert json.loads(asked(monkeypatch, *words, "-o", "json")[1]) == json.loads(msgspec.json.encode(part))


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
    assert "set sandboxes.mode to observe" in asked(monkeypatch, view=None)[1], "a daemon that does not look"
