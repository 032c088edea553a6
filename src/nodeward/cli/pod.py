"""`nodeward pod`: what the node knows of one pod, by the Pod API."""

import json

import click

SOCKET = "podapi.sock"


@click.command("pod")
@click.argument("what", metavar="NAMESPACE/NAME")
@click.option("--spec", is_flag=True, help="Also the whole spec, read at the API server and redacted.")
@click.option("--socket", help="The Pod API's socket.  [default: podapi.sock beside the daemon's socket]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(what: str, spec: bool, socket: str | None, output: str) -> None:
    """Show what this node knows of a pod: each section with its source, and why it lacks something.

    Values that may be secret are withheld: {"$withheld": RULE} stands for each. The daemon answers where
    podapi.enabled is true.

    Exit code: 0, or 1 where no daemon answers or no such pod is known.

    \b
    Examples:
      nodeward pod shop/web
      nodeward pod shop/web --spec
      nodeward pod shop/web --spec -o json | jq .spec.value
    """
    import os
    from urllib.parse import quote

    from nodeward.cli import client
    from nodeward.model.printable import printable

    namespace, slash, name = what.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise click.UsageError(f"{printable(what, 300)} is no NAMESPACE/NAME, such as shop/web")
    place = socket or os.path.join(os.path.dirname(client.socket_path(None)), SOCKET)
    path = f"/v1/pods/{quote(namespace, safe='')}/{quote(name, safe='')}{'?fields=spec' if spec else ''}"
    try:
        body = client.get(path, place)
    except client.AwayError as error:
        raise client.DaemonError(f"{error}. The Pod API is served where podapi.enabled is true") from error
    if output == "json":
        print(body.decode())
        return
    for section, found in json.loads(body).items():
        lacks = "" if found["complete"] else f"  incomplete: {found['why']}"
        print(f"{section}: from {found['source']}{printable(lacks)}")
        if found["value"] is not None:
            for line in json.dumps(found["value"], indent=2).splitlines():
                print(f"  {line}")
