"""`nodeward status`: the node as a table."""

import click


@click.command("status")
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(socket: str | None, output: str) -> None:
    """Show what each pod was promised, holds and was refused.

    \b
    Examples:
      nodeward status
      nodeward status -o json | jq '.rows[] | select(.state == "drift")'
    """
    from nodeward.cli import client

    body = client.get("/v1/status", socket)
    if output == "json":
        print(body.decode())
        return
    import msgspec
    from rich.console import Console

    from nodeward.cli.table import render
    from nodeward.model.view import NodeView

    Console().print(render(msgspec.json.decode(body, type=NodeView)))
