"""`nodeward vms`: VM sandboxes, where they are on the host, what they cost and whether they fit."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from nodeward.cli.flags import output_option, pods, print_data
from nodeward.cli.groups import Own, Shows
from nodeward.cli.vms import cgroup, network, volume

if TYPE_CHECKING:
    from nodeward.features.sandboxes.rows import SandboxesView, SandboxRow

OFF = "VM sandboxes are not read: set sandboxes.mode to observe in the daemon's settings and restart it"


@click.group("vms", cls=Shows)
@click.argument("what", cls=Own, metavar="[NAMESPACE/POD]", required=False, shell_complete=pods)
@click.option("--handlers", "part", flag_value="handlers", help="The runtime handlers that start VMs, as configured.")
@click.option("--options", "part", flag_value="options", help="Kata's option sandbox_cgroup_only; asks no daemon.")
@click.option(
    "--classes", "part", flag_value="classes", help="Overhead by RuntimeClass: measured, declared, recommended."
)
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@output_option()
def command(what: str | None, part: str | None, socket: str | None, output: str) -> None:
    """Show VM sandboxes (Kata): size, cost, and whether the VM fits in its pod's memory limit.

    With NAMESPACE/POD, a pod's name or the first characters of a sandbox's id: also where each of its processes is and
    should be, who chose the mode, and the arithmetic of its limit. The daemon reads them where sandboxes.mode is
    observe or enforce.

    Exit code: 0, or 1 where no daemon answers or no such sandbox is there.

    \b
    Examples:
      nodeward vms
      nodeward vms shop/web
      nodeward vms --classes
      nodeward vms --options
      nodeward vms volume list
      nodeward vms -o json | jq '.rows[] | select(.fit.fit == "will be killed") | .pod'
    """
    from nodeward.features.sandboxes import table, words
    from nodeward.features.sandboxes.rows import SandboxesView
    from nodeward.people import client

    if what is not None and part is not None:
        raise click.UsageError(f"--{part} is of the node: leave {what} out")
    if part == "options":
        if not print_data({"options": words.OPTIONS, "defaults": words.DEFAULTS}, output):
            _print(table.options())
        return
    view = client.node(socket).sandboxes
    if what is not None:
        rows = _meant(view, what)
        if not print_data(rows, output):
            _print(line for row in rows for line in words.sandbox_sentences(row))
        return
    shown = view or SandboxesView("off")
    parts = {"handlers": shown.handlers, "classes": shown.classes}
    if print_data(parts.get(part or "", shown), output):
        return
    lines = {"handlers": table.handlers, "classes": table.classes}
    _print(lines.get(part or "", table.sandboxes)(shown) if view is not None else iter((OFF,)))


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)


def _meant(view: "SandboxesView | None", what: str) -> "list[SandboxRow]":
    """The sandboxes of this name. NodewardError where there is none."""
    from nodeward.core.errors import NodewardError
    from nodeward.core.text import printable
    from nodeward.features.sandboxes.words import is_meant

    if view is None:
        raise NodewardError(OFF)
    rows = [row for row in view.rows if is_meant(row, what)]
    if not rows:
        raise NodewardError(
            f"no VM sandbox of this node is {printable(what, 300)}: give NAMESPACE/POD, a pod's name, or the first "
            "characters of a sandbox's id, as nodeward vms shows them"
        )
    return rows


for one in (volume, network, cgroup):
    command.add_command(one.command)
