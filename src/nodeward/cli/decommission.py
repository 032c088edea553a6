"""`nodeward decommission`: takes back the TEE keys that kubelet is offered."""

import json

import click

from nodeward.people import client


@click.command("decommission")
@click.option("--socket", "socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
def command(socket: str | None) -> None:
    """Take back the TEE keys that kubelet is offered on this node, at once.

    The daemon publishes an empty list, deletes its NodeFeature and NodeResourceTopology objects, and offers nothing
    until it is started again; so first set `publisher: none`, or stop it afterwards. Pods that run keep their keys.
    Without this, the end of the daemon leaves the node's capacity as it is for five minutes, so that an upgrade changes
    nothing.

    \b
    Examples:
      nodeward decommission
    """
    told = json.loads(client.get("/v1/decommission", socket, "POST"))
    print("\n".join(map(str, told)) or "nothing is offered: no row of keys.kinds has publisher device-plugin")
