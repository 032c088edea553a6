"""`nodeward top`: the table of `nodeward status`, again and again."""

import itertools
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nodeward.model.view import NodeView


@click.command("top")
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--every", "every_s", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds.")
@click.option("-n", "--times", type=click.IntRange(1), help="Stop after so many views.")
def command(socket: str | None, output: str, every_s: float, times: int | None) -> None:
    """Show `status` again every second, until Ctrl-C. As JSON, each view is one document on a line of its own.

    \b
    Examples:
      nodeward top --every 2
      nodeward top -o json | jq --unbuffered '.usage'
    """
    from nodeward.cli import client

    views = (client.node(socket) for _ in _moments(every_s, times))
    try:
        if output == "json":
            import msgspec

            for view in views:
                print(msgspec.json.encode(view).decode(), flush=True)
        else:
            _draw(views)
    except KeyboardInterrupt:
        return


def _moments(every_s: float, times: int | None) -> Iterator[int]:
    """A number now and again after each `every_s`, `times` in all."""
    for number in itertools.count() if times is None else range(times):
        if number:
            time.sleep(every_s)
        yield number


def _draw(views: "Iterator[NodeView]") -> None:
    """One view in the place of the one before; where standard output is no terminal, one below the other."""
    from rich.live import Live

    from nodeward.cli.table import console, judged

    out = console()
    if not out.is_terminal:
        for view in views:
            out.print(judged(view), "")
            sys.stdout.flush()
        return
    with Live(console=out, auto_refresh=False) as live:
        for view in views:
            live.update(judged(view, out.height - 1), refresh=True)
