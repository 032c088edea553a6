"""Everything that people and programs read from Nodeward, as texts: `python -m tests.goldens.texts FOLDER` writes them.

`test_goldens.py` compares them with the digests in this folder, so that code can move without a change that users see.
To see what changed, write the texts at both commits and compare the folders.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from click.testing import CliRunner
from rich.console import Console

from nodeward.cli.kubectl.plugin import cli as plugin
from nodeward.cli.main import cli
from nodeward.people.explain import explain
from nodeward.people.metrics.exposition import pieces
from nodeward.people.metrics.mapping import metrics
from nodeward.people.rows import NodeView
from nodeward.people.table import render
from nodeward.people.view import node_view
from nodeward.programs.once.replay import Again, replay, walk
from nodeward.settings import load
from tests.unit.people.metrics.build import RICH

HERE = Path(__file__).parent
RECORDS = sorted(HERE.glob("*.record.gz"))
"""Each is a run of the scenario of that name: `nodeward sim NAME --for 14s --seed 7 --record FILE`."""


def texts() -> Iterator[tuple[str, str]]:
    """Names and texts, always in the same order."""
    yield "schema.json", json.dumps(load.schema(), indent=2)
    yield "faults.txt", _faults()
    yield "help.txt", "".join((*_helps(cli), *_helps(plugin)))
    yield from _of_view("everything", RICH)
    for path in RECORDS:
        lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        name = path.name.removesuffix(".record.gz")
        yield f"{name}-replay.txt", repr(replay(lines))
        last = [one for one in walk(lines) if isinstance(one, Again)][-1]
        yield from _of_view(name, node_view(last.state, last.event.at_ns, {}))


def _of_view(name: str, view: NodeView) -> Iterator[tuple[str, str]]:
    yield f"{name}-status.json", msgspec.json.format(msgspec.json.encode(view)).decode()
    console = Console(width=160)
    with console.capture() as shown:
        console.print(render(view))
    yield f"{name}-status.txt", shown.get()
    yield f"{name}-metrics.txt", b"".join(pieces(metrics(view))).decode()
    named = ("/".join(filter(None, (row.namespace, row.pod, row.container))) or row.cgroup for row in view.rows)
    yield f"{name}-explain.txt", "\n".join(line for what in dict.fromkeys(named) for line in explain(view, what) or ())


def _faults() -> str:
    """What is said where a setting has a value of a wrong type, for each of them."""
    said = []
    for path, _, _ in load.sourced(None, {}):
        above, _, last = path.rpartition(".")
        tree: dict[str, object] = {last: {"wrong": ["type"]}}
        for part in reversed(above.split(".")):
            tree = {part: tree} if part else tree
        try:
            load.from_tree(tree, {})
        except load.SettingsError as error:
            said += error.faults
    return "\n".join(said)


def _helps(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[str]:
    yield CliRunner().invoke(group, [*words, "--help"], terminal_width=120).output
    command: click.Command | None = group
    with click.Context(group) as context:
        for word in words:
            assert isinstance(command, click.Group)
            command = command.get_command(context, word)
        for below in command.list_commands(context) if isinstance(command, click.Group) else ():
            yield from _helps(group, (*words, below))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for title, text in texts():
        (folder / title).write_text(text, encoding="utf-8")
