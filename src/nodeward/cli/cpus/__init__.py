"""`nodeward cpus`: the machine's CPUs, and who may run where."""

import click

from nodeward.cli.cpus import policies
from nodeward.cli.flags import output_option, print_data
from nodeward.cli.groups import Shows


@click.group("cpus", cls=Shows)
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@output_option()
def command(socket: str | None, output: str) -> None:
    """Draw the machine's CPUs: sockets, NUMA nodes, caches, cores and threads, with who sits where.

    Each bracket is a core, each sign in it a thread. A letter is a container that has the CPU for its own.

    \b
    Examples:
      nodeward cpus
      nodeward cpus -o json | jq '.holders[] | {pod, container, kind, cpus}'
      nodeward cpus policies
      nodeward cpus -o json | jq '.cpus[] | select(.owner == "" and .pools == [])'
    """
    import shutil

    from nodeward.features.cpus.words import drawing
    from nodeward.people import client

    view = client.node(socket).cpus
    if print_data(view, output):
        return
    if view is None:
        print(
            "the machine's CPUs are not known: /sys/devices/system/cpu could not be read; its log says why. "
            "A relay knows them only where cpus.driver is relay"
        )
    else:
        for line in drawing(view, shutil.get_terminal_size().columns):
            print(line)


command.add_command(policies.command)
