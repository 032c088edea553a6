"""`nodeward cpus`: what the daemon answers, drawn or as JSON."""

import msgspec
import pytest
from click.testing import CliRunner

from nodeward.cli import client
from nodeward.cli.main import cli
from nodeward.model.view import CpusView, NodeView


@pytest.mark.parametrize(
    ("cpus", "said"),
    [
        pytest.param(None, "could not be read", id="not read"),
        pytest.param(CpusView("static", "enforce", "nri", "0"), "policy static", id="read"),
    ],
)
def test_cpus_are_drawn_from_what_the_daemon_answers(
    monkeypatch: pytest.MonkeyPatch, cpus: CpusView | None, said: str
) -> None:
    view = NodeView("off", "", "", True, {}, {}, (), cpus=cpus)
    monkeypatch.setattr(client, "get", lambda *_: msgspec.json.encode(view))
    assert said in CliRunner().invoke(cli, ["cpus"]).output
    assert msgspec.json.decode(CliRunner().invoke(cli, ["cpus", "-o", "json"]).output, type=CpusView | None) == cpus
