"""`nodeward status`: the node as a table."""

import sys

import click


@click.command("status")
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--ready", "only_ready", is_flag=True, help="Only say whether the daemon is ready; exit with 1 if not.")
def command(socket: str | None, output: str, only_ready: bool) -> None:
    """Show what each pod was promised, holds and was refused, and how the relay does where there is one.

    \b
    Examples:
      nodeward status
      nodeward status --ready && echo "synchronised with runtime, API server and kernel"
      nodeward status -o json | jq '.rows[] | select(.state == "drift")'
    """
    import msgspec

    from nodeward.cli import client
    from nodeward.model.view import NodeView

    if not only_ready:
        node = client.node(socket)
        if output == "json":
            print(msgspec.json.encode(node).decode())
            return
        from nodeward.cli.table import console, judged

        console().print(judged(node))
    else:
        view = msgspec.json.decode(client.get("/v1/status", socket), type=NodeView)
        if output == "json":
            print(msgspec.json.encode({"ready": view.ready, "components": view.components}).decode())
        else:
            for row in view.components:
                print(f"{'ready    ' if row.ready else 'not ready'} {row.name}: {row.detail}")
        sys.exit(0 if view.ready else 1)
