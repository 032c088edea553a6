"""`cri-resmgr-agent-probe` on a command line with a fault."""

import sys

import pytest

from nodeward.cli import agent


def test_a_misspelt_query_is_refused_since_the_agent_would_answer_that_all_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cri-resmgr-agent-probe", "-query", "confg-status"])

    with pytest.raises(SystemExit) as ended:
        agent.probe()

    assert ended.value.code == 2
    assert "config-status" in capsys.readouterr().err
