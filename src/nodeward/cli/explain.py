"""`nodeward explain`: says in sentences why one pod or container has its limit."""

import json

import click

from nodeward.cli.flags import output_option, pods, print_data


@click.command("explain")
@click.argument("what", metavar="WHAT", shell_complete=pods)
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@output_option()
def command(what: str, socket: str | None, output: str) -> None:
    """Explain why a pod or container has its limit, and show its state.

    WHAT is NAMESPACE/POD[/CONTAINER]; a pod's name, where one namespace has it; of a container that has no name yet,
    the first characters of its id (`nodeward status -o wide`); or the path of a cgroup below the cgroup root.

    \b
    Examples:
      nodeward explain default/web
      nodeward explain default/web/enclave -o json
      nodeward explain 3f1c9a0b7d42e
      nodeward explain /kubepods/burstable/pod1c9a0b7d
    """
    from urllib.parse import quote

    from nodeward.people import client
    from nodeward.people.explain import explain

    heard = client.relay(socket)
    alone = client.alone(heard.view) if heard.view is not None else None
    relayed = (explain(alone, what) or []) if alone is not None else []
    try:
        lines: list[str] = json.loads(client.get(f"/v1/explain?what={quote(what, safe='')}", socket))
        if relayed and heard.view is not None:
            lines += [f"relay, process {heard.view.pid}:", *(f"  {line}" for line in relayed)]
    except client.DaemonError as error:
        if alone is None or not relayed:
            raise
        lines = [*relayed, alone.alone if isinstance(error, client.AwayError) else f"nodeward node: {error}"]
    if print_data(lines, output):
        return
    for line in lines:
        print(line)
