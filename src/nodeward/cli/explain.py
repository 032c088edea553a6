"""`nodeward explain`: sentences on one pod or container."""

import json

import click


@click.command("explain")
@click.argument("what", metavar="NAMESPACE/POD[/CONTAINER]")
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(what: str, socket: str | None, output: str) -> None:
    """Say in sentences why a pod or container has its limit, and how it stands.

    \b
    Examples:
      nodeward explain default/web
      nodeward explain default/web/enclave -o json
    """
    from nodeward.cli import client

    body = client.get(client.explain_path(what), socket)
    if output == "json":
        print(body.decode())
        return
    for line in json.loads(body):
        print(line)
