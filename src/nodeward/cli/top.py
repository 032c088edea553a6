"""`nodeward top`: the table of `nodeward status`, again and again."""

import time

import click


@click.command("top")
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("--every", "every_s", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds.")
@click.option("-n", "--times", type=click.IntRange(1), help="Stop after so many views.")
def command(socket: str | None, every_s: float, times: int | None) -> None:
    """Show `status` again every second, until Ctrl-C.

    \b
    Example:
      nodeward top --every 2
    """
    import msgspec
    from rich.live import Live

    from nodeward.cli import client
    from nodeward.cli.table import render
    from nodeward.model.view import NodeView

    shown = 0
    try:
        with Live(auto_refresh=False) as live:
            while True:
                live.update(render(msgspec.json.decode(client.get("/v1/status", socket), type=NodeView)), refresh=True)
                shown += 1
                if times is not None and shown >= times:
                    return
                time.sleep(every_s)
    except KeyboardInterrupt:
        return
