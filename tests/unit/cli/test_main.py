"""What holds for every command: suggestions, exit codes, closed pipes, completion and manual pages."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nodeward.cli import client, exits
from nodeward.cli.kubectl import cli as plugin
from nodeward.cli.main import cli
from nodeward.model.rows import CgroupRow
from nodeward.model.view import NodeView
from tests.patience import scaled

ROOT = Path(__file__).resolve().parents[3]
NODEWARD = [sys.executable, "-m", "nodeward"]
WITHIN_S = scaled(60.0)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["stauts"], "'stauts'. Did you mean 'status'?"),
        (["config", "shw"], "'shw'. Did you mean 'show'?"),
        (["status", "--namespce", "x"], "'--namespce'. Did you mean '--namespace'?"),
        (["status", "--state", "drft"], "'drft' is not one of"),
    ],
    ids=["command", "sub-command", "option", "value"],
)
def test_what_is_misspelt_gets_the_nearest_as_a_suggestion(words: list[str], meant: str) -> None:
    done = CliRunner().invoke(cli, words)

    assert done.exit_code == exits.UNUSABLE
    assert meant in done.stderr


def test_the_page_has_the_table_of_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == exits.MEANINGS


def test_no_command_ends_with_a_number_of_its_own() -> None:
    literal = re.compile(r"sys\.exit\((?:\d|.*\b\d if )|ctx\.exit\(\d")
    found = [path.name for path in sorted((ROOT / "src/nodeward/cli").glob("*.py")) if literal.search(path.read_text())]
    assert found == []


@pytest.mark.parametrize("words", [["--help"], ["status", "--help"], ["policies"], ["config", "show"]], ids=" ".join)
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
    script = CliRunner().invoke(cli, ["completion", shell]).stdout
    assert f"_NODEWARD_COMPLETE={shell}_complete" in script
    asked = {"_NODEWARD_COMPLETE": f"{shell}_complete", "COMP_WORDS": "nodeward sta"}
    asked["COMP_CWORD"] = "sta" if shell == "fish" else "1"  # fish gives the word itself
    line = [sys.executable, "-c", "from nodeward.cli.main import main; main()"]
    done = subprocess.run(line, env={**os.environ, **asked}, capture_output=True, text=True, timeout=WITHIN_S)
    assert "status" in done.stdout
    assert "sandboxes" not in done.stdout


def commands(group: click.Command, name: str) -> list[str]:
    """The names of a group and of all below it."""
    found = [name]
    if isinstance(group, click.Group):
        with click.Context(group) as context:
            for below in group.list_commands(context):
                command = group.get_command(context, below)
                assert command is not None, below
                found += commands(command, f"{name}-{below}")
    return found


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
    ("written", "shown"),
    [
        ("0123456789abcdef" * 2 + "01234567", " (commit 0123456789ab)"),
        ("0123456789abcdef" * 2 + "01234567-dirty\n", " (commit 0123456789ab-dirty)"),
        ("", ""),
        ("\u00e9", ""),
        (None, ""),
    ],
    ids=["built", "changed since", "built without git", "damaged", "neither file nor checkout"],
)
def test_the_version_has_the_commit(
    written: str | None, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeward.cli.commit._PACKAGE", tmp_path / "lib" / "nodeward")
    (tmp_path / "lib" / "nodeward").mkdir(parents=True)
    if written is not None:
        (tmp_path / "lib" / "nodeward" / "commit.txt").write_text(written, encoding="utf-8")

    said = CliRunner().invoke(cli, ["--version"]).output

    assert re.fullmatch(rf"nodeward, version [0-9.]+{re.escape(shown)}\n", said)


@pytest.mark.parametrize("words", [["status", "-n", "shop"], ["top", "--times", "1", "-n", "shop"]], ids=" ".join)
def test_the_verdict_is_on_the_whole_node_whatever_rows_are_chosen(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (("shop", "web", "enforced"), ("bank", "till", "drift"))
    pods = (CgroupRow("pod", space, pod, "", "", f"/{pod}", state, "spec", "rule", ()) for space, pod, state in rows)
    node = NodeView("enforce", "containerd", "answers", True, {}, {}, tuple(pods))
    monkeypatch.setattr(client, "node", lambda socket: node)
    said = CliRunner().invoke(cli, words).output
    assert said.startswith("bank/till is changed by another program.")
    assert ("shop/web\n" in said, "bank/till\n" in said) == (True, False)
