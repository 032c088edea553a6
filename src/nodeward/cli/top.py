"""`nodeward top`: shows the table of `nodeward status` every second."""

import itertools
import sys
import time
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click

from nodeward.cli.asked import Asked, row_options
from nodeward.people import client

if TYPE_CHECKING:
    from nodeward.people.rows import NodeView


@click.command("top")
@click.argument("pod", required=False, metavar="[POD]")
@row_options
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--every", "every_s", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds.")
@click.option("--times", type=click.IntRange(1), help="Stop after so many views.")
def command(
    pod: str | None,
    namespace: str | None,
    states: tuple[str, ...],
    socket: str | None,
    output: str,
    every_s: float,
    times: int | None,
) -> None:
    """Show `status` again every second, until Ctrl-C. As JSON, each view is one document on a line of its own.

    On a terminal the last lines say what the columns are and what changed lately. A daemon that ends meanwhile is
    reported, and shown again once it is back.

    \b
    Examples:
      nodeward top --every 2
      nodeward top -n shop --state drift
      nodeward top -o json | jq --unbuffered '.usage'
    """
    moments, asked = _pictures(socket, every_s, times), Asked(namespace, states, pod)
    try:
        if output == "json":
            import msgspec

            for view, why in moments:
                if view is None:
                    print(f"nodeward: {why}", file=sys.stderr)
                else:
                    print(msgspec.json.encode(asked.of(view)).decode(), flush=True)
        else:
            _draw(moments, asked)
    except KeyboardInterrupt:
        return


def _pictures(socket: str | None, every_s: float, times: int | None) -> Iterator[tuple["NodeView | None", str]]:
    """A picture now and again after each `every_s`, `times` in all; None, and why, where the daemon is away. Raises
    DaemonError where the first one fails."""
    for number in itertools.count() if times is None else range(times):
        if number:
            time.sleep(every_s)
        try:
            yield client.node(socket), ""
        except client.DaemonError as error:
            if not number:
                raise
            yield None, str(error)


def _draw(moments: Iterator[tuple["NodeView | None", str]], asked: Asked) -> None:
    """One view in the place of the one before; where standard output is no terminal, one below the other."""
    from rich.live import Live

    from nodeward.people.table import console, judged, live
    from nodeward.people.verdict import MOST, happened

    out = console()
    if not out.is_terminal:
        for view, why in moments:
            out.print(*([judged(asked.of(view), view)] if view is not None else [f"no answer: {why}"]), "")
            sys.stdout.flush()
        return
    shown: NodeView | None = None
    lately = deque[str](maxlen=MOST)
    with Live(console=out, auto_refresh=False) as screen:
        for view, why in moments:
            said = [why] if view is None else happened(shown and asked.of(shown), asked.of(view))
            lately.extend(f"{datetime.now():%H:%M:%S} {line}" for line in said)
            shown = view or shown
            if shown is not None:
                screen.update(live(asked.of(shown), shown, out.height - 1, lately), refresh=True)
