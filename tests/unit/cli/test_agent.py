"""`nodeward agent` and its probe on command lines with a fault."""

import sys

import pytest
from click.testing import CliRunner

from nodeward.cli import agent


def test_a_misspelt_option_of_one_dash_is_named_whole_with_the_nearest() -> None:
    told = CliRunner().invoke(agent.command, ["-confg-ns=apps"])

    assert told.exit_code == 2
    assert "No such option '-confg-ns'" in told.stderr
    assert "'-config-ns'" in told.stderr


def test_a_misspelt_query_is_refused_since_the_agent_would_answer_that_all_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cri-resmgr-agent-probe", "-query", "confg-status"])

    with pytest.raises(SystemExit) as ended:
        agent.probe()

    assert ended.value.code == 2
    assert "config-status" in capsys.readouterr().err
