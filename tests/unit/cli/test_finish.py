"""What every command has: an exit code of the one table, a manual page, completion; and which pods `status` shows."""

from __future__ import annotations

import json
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from nodeward import __version__
from nodeward.cli import client, exits
from nodeward.cli.main import COMMANDS, cli
from nodeward.model.rows import CgroupRow
from nodeward.model.view import NodeView

ROOT = Path(__file__).resolve().parents[3]


def pod(namespace: str, name: str, state: str = "enforced") -> CgroupRow:
    return CgroupRow("pod", namespace, name, "", "", f"/{namespace}/{name}", state, "spec", "declared", ())


ROWS = (pod("shop", "web-10"), pod("shop", "web-2"), pod("bank", "web-2"), pod("bank", "till", "drift"))
NODE = NodeView("enforce", "containerd", "answers", True, {}, {}, ROWS)


def ran(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    monkeypatch.setattr(client, "node", lambda socket: NODE)
    done = CliRunner().invoke(cli, words)
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ((), ["bank/till", "bank/web-2", "shop/web-2", "shop/web-10"]),
        (("web-2",), ["bank/web-2", "shop/web-2"]),
        (("shop/web-2",), ["shop/web-2"]),
        (("-n", "shop"), ["shop/web-2", "shop/web-10"]),
        (("--state", "drift"), ["bank/till"]),
        (("web-2", "-n", "bank", "--state", "enforced"), ["bank/web-2"]),
    ],
)
def test_status_shows_the_pods_that_are_asked_for(
    words: tuple[str, ...], shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = ran(monkeypatch, "status", *words)
    assert (code, re.findall(r"^(?:shop|bank)/\S+$", said, re.MULTILINE)) == (0, shown)
    assert said.startswith("bank/till is changed by somebody else."), "the verdict is on the whole node"


def test_status_says_which_states_there_are_where_none_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = ran(monkeypatch, "status", "--state", "stale", "-n", "shop")
    assert code == exits.NOTHING_CHOSEN
    assert "no pod in namespace shop in state stale (states of this node: drift, enforced) is known" in said


def test_json_has_the_chosen_rows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = ran(monkeypatch, "status", "-o", "json", "-n", "shop")
    assert code == 0
    assert len(msgspec.json.decode(said, type=NodeView).rows) == 2


def test_the_page_of_commands_has_the_exit_codes() -> None:
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
    assert dict(re.findall(r"^\| (\d+) \| (.*) \|$", text, re.MULTILINE)) == {
        str(code): meaning for code, meaning in exits.MEANINGS.items()
    }


def test_every_command_has_a_manual_page() -> None:
    loader = SourceFileLoader("build_man", str(ROOT / "scripts/build-man"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    script = module_from_spec(spec)
    loader.exec_module(script)
    pages = script.pages()
    assert {f"nodeward-{command}.1" for command in COMMANDS} <= set(pages)
    assert all(text.startswith(".TH") for text in pages.values())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "_NODEWARD_COMPLETE" in CliRunner().invoke(cli, ["completion", shell]).output
    asked = {"_NODEWARD_COMPLETE": "bash_complete", "COMP_WORDS": "nodeward stat", "COMP_CWORD": "1"}
    assert "plain,status" in CliRunner().invoke(cli, [], prog_name="nodeward", env=asked).output


def test_config_show_names_the_source_of_each_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "n.yaml"
    file.write_text("limits:\n  mode: observe\npolicy: {balloons: {pinCPU: true}}\n")
    monkeypatch.setenv("NODEWARD_KUBE__EVENTS", "false")
    words = ["config", "show", "--config", str(file), "--set", "limits.strict=true", "-o", "json"]
    found = json.loads(CliRunner().invoke(cli, words).output)
    assert found["limits.mode"] == {"value": "observe", "source": f"{file} line 2"}
    assert found["limits.strict"]["source"] == "flag --set limits.strict=..."
    assert found["kube.events"] == {"value": False, "source": "environment NODEWARD_KUBE__EVENTS"}
    assert found["nri.enabled"]["source"] == "default"
    assert found["policy.balloons.pin_cpu"]["source"] == f"{file} line 3"
    changed = json.loads(CliRunner().invoke(cli, [*words, "--changed"]).output)
    assert set(changed) == {"limits.mode", "limits.strict", "kube.events", "policy.balloons.pin_cpu"}


def test_the_version_has_the_commit() -> None:
    said = CliRunner().invoke(cli, ["--version"]).output
    assert re.fullmatch(rf"nodeward, version {re.escape(__version__)}( \(commit [0-9a-f]{{12}}\))?\n", said)
