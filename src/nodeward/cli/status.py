"""`nodeward status`: shows the node as a table."""

import sys

import click

from nodeward.cli import exits
from nodeward.cli.asked import Asked, row_options


@click.command("status")
@click.argument("pod", required=False, metavar="[POD]")
@row_options
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--ready", "only_ready", is_flag=True, help="Only say whether the daemon is ready; exit with 1 if not.")
def command(
    pod: str | None, namespace: str | None, states: tuple[str, ...], socket: str | None, output: str, only_ready: bool
) -> None:
    """Show what each pod was promised, holds and was refused, and how the relay does where there is one.

    POD is a pod's name, or NAMESPACE/POD. Pods that need somebody come first. The verdict is on the whole node.

    Exit code: 0 good, 1 no answer, no such pod, or with --ready not ready.

    \b
    Examples:
      nodeward status
      nodeward status web-0
      nodeward status -n shop --state drift --state outside
      nodeward status --ready && echo "synchronised with runtime, API server and kernel"
      nodeward status -o json | jq '.rows[] | select(.state == "drift")'
    """
    import msgspec

    from nodeward.people import client
    from nodeward.people.rows import NodeView

    if not only_ready:
        asked = Asked(namespace, states, pod)
        whole = client.node(socket)
        node = asked.of(whole)
        if output == "json":
            print(msgspec.json.encode(node).decode())
        else:
            from nodeward.people.table import console, judged

            console().print(judged(node, whole))
        if why := asked.nothing(node):
            print(f"nodeward: {why}", file=sys.stderr)
            sys.exit(exits.FAILED if pod else exits.GOOD)
    else:
        view = msgspec.json.decode(client.get("/v1/status", socket), type=NodeView)
        if output == "json":
            print(msgspec.json.encode({"ready": view.ready, "components": view.components}).decode())
        else:
            for row in view.components:
                print(f"{'ready    ' if row.ready else 'not ready'} {row.name}: {row.detail}")
        sys.exit(exits.GOOD if view.ready else exits.FAILED)
