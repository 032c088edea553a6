"""`nodeward status`: the node as a table."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from nodeward.cli.exits import NOTHING_CHOSEN

if TYPE_CHECKING:
    from nodeward.model.view import NodeView


def _chosen(node: "NodeView", pod: str, namespace: str, state: str) -> "NodeView":
    """With the rows of these pods alone; ends the program where there is none."""
    from nodeward.engine.show.order import by_pod
    from nodeward.model.view import pod_name

    in_state = {name for name, rows in by_pod(node.rows).items() if not state or state in {row.state for row in rows}}
    rows = tuple(
        row
        for row in node.rows
        if pod_name(row) in in_state and namespace in ("", row.namespace) and pod in ("", row.pod, pod_name(row))
    )
    if not rows:
        known = ", ".join(sorted({row.state for row in node.rows})) or "none"
        where = "".join((f" {pod}" * bool(pod), f" in namespace {namespace}" * bool(namespace)))
        wanted = f"{where} in state {state} (states of this node: {known})" if state else where
        print(f"nodeward: no pod{wanted} is known on this node", file=sys.stderr)
        sys.exit(NOTHING_CHOSEN)
    return replace(node, rows=rows)


@click.command("status")
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.argument("pod", default="")
@click.option("-n", "--namespace", default="", help="Only pods of this namespace.")
@click.option("--state", default="", help="Only pods that have a cgroup in this state, such as drift.")
@click.option("--ready", "only_ready", is_flag=True, help="Only say whether the daemon is ready; exit with 1 if not.")
def command(socket: str | None, output: str, pod: str, namespace: str, state: str, only_ready: bool) -> None:
    """Show what each pod was promised, holds and was refused, and how the relay does where there is one. POD is a pod's
    name, or NAMESPACE/NAME.

    The first line is a verdict on the whole node. Pods with a problem come first.

    Exit code: 0, 1 the daemon does not answer or is not ready (--ready), 4 no pod is chosen by the options.

    \b
    Examples:
      nodeward status
      nodeward status web -n shop
      nodeward status --state drift
      nodeward status --ready && echo "synchronised with runtime, API server and kernel"
      nodeward status -o json | jq '.rows[] | select(.state == "drift")'
    """
    import msgspec

    from nodeward.cli import client
    from nodeward.model.view import NodeView

    if not only_ready:
        node = whole = client.node(socket)
        if pod or namespace or state:
            node = _chosen(node, pod, namespace, state)
        if output == "json":
            print(msgspec.json.encode(node).decode())
            return
        from nodeward.cli.table import console, judged

        console().print(judged(node, of=whole))
    else:
        view = msgspec.json.decode(client.get("/v1/status", socket), type=NodeView)
        if output == "json":
            print(msgspec.json.encode({"ready": view.ready, "components": view.components}).decode())
        else:
            for row in view.components:
                print(f"{'ready    ' if row.ready else 'not ready'} {row.name}: {row.detail}")
        sys.exit(0 if view.ready else 1)
