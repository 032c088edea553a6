"""`nodeward gate` and `nodeward pod`: usage that is refused, and values as a person reads them."""

import json

import click
import pytest
from click.testing import CliRunner

from nodeward.cli import client, gate, pod


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        (
            gate.command,
            ["shop/web", "--deny", "x", "--expires", "5m"],
            "--deny is final: give it a reason and no --exp",
        ),
        (gate.command, ["shop/web", "--deny", " "], "--deny is final: give it a reason"),
        (gate.command, ["shop/web", "--pass", "--expires", "0m"], "--expires: write a number"),
        (pod.command, ["--list", "--spec"], "--spec is of one pod"),
    ],
)
def test_options_that_contradict_are_refused(command: click.Command, words: list[str], why: str) -> None:
    said = CliRunner().invoke(command, words)
    assert (said.exit_code, why in said.output) == (2, True)


@pytest.mark.parametrize(
    ("answer", "words", "lines"),
    [
        (
            [],
            ["--list"],
            ["no pod is known: neither the API server nor the runtime has told of one; see nodeward status"],
        ),
        (
            {
                "gate": {
                    "value": {"set_by": -1, "set_at": 0, "expires_at": 1795662186 * 10**9},
                    "source": "s",
                    "why": "",
                }
            },
            ["shop/web"],
            ["gate  (s)", "  set_by: -", "  set_at: -", "  expires_at: 2026-11-26T03:03:06+00:00"],
        ),
    ],
    ids=["no pod", "times"],
)
def test_values_are_printed_for_people(
    monkeypatch: pytest.MonkeyPatch, answer: object, words: list[str], lines: list[str]
) -> None:
    monkeypatch.setattr(client, "podapi", lambda *_: json.dumps(answer).encode())
    assert CliRunner().invoke(pod.command, words).output.splitlines() == lines
