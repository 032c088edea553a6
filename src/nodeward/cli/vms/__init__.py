"""`nodeward sandboxes`: VM sandboxes, where they are on the host, what they cost and whether they fit."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nodeward.features.sandboxes.rows import SandboxesView, SandboxRow

OFF = "VM sandboxes are not read: set sandboxes.mode to observe in the daemon's settings and restart it"


@click.command("sandboxes")
@click.argument("what", metavar="[NAMESPACE/POD]", required=False)
@click.option("--handlers", "part", flag_value="handlers", help="The runtime handlers that start VMs, as configured.")
@click.option("--options", "part", flag_value="options", help="Kata's option sandbox_cgroup_only; asks no daemon.")
@click.option(
    "--classes", "part", flag_value="classes", help="Overhead by RuntimeClass: measured, declared, recommended."
)
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(what: str | None, part: str | None, socket: str | None, output: str) -> None:
    """Show VM sandboxes (Kata): size, cost, and whether the VM fits in its pod's memory limit.

    With NAMESPACE/POD, a pod's name or the first characters of a sandbox's id: also where each of its processes is and
    should be, who chose the mode, and the arithmetic of its limit. The daemon reads them where sandboxes.mode is
    observe or enforce.

    Exit code: 0, or 1 where no daemon answers or no such sandbox is there.

    \b
    Examples:
      nodeward sandboxes
      nodeward sandboxes shop/web
      nodeward sandboxes --classes
      nodeward sandboxes --options
      nodeward sandboxes -o json | jq '.rows[] | select(.fit.fit == "will be killed") | .pod'
    """
    import msgspec

    from nodeward.features.sandboxes import table, words
    from nodeward.features.sandboxes.rows import SandboxesView
    from nodeward.people import client

    if what is not None and part is not None:
        raise click.UsageError(f"--{part} is of the node: leave {what} out")
    if part == "options":
        if output == "json":
            both = {"options": words.OPTIONS, "defaults": words.DEFAULTS}
            print(msgspec.json.encode(both).decode())
        else:
            _print(table.options())
        return
    view = client.node(socket).sandboxes
    if what is not None:
        rows = _meant(view, what)
        if output == "json":
            print(msgspec.json.encode(rows).decode())
        else:
            _print(line for row in rows for line in words.sandbox_sentences(row))
    elif output == "json":
        view = view or SandboxesView("off")
        found = view if part is None else view.handlers if part == "handlers" else view.classes
        print(msgspec.json.encode(found).decode())
    elif view is None:
        print(OFF)
    else:
        lines = {"handlers": table.handlers, "classes": table.classes}
        _print(lines.get(part or "", table.sandboxes)(view))


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
            "characters of a sandbox's id, as nodeward sandboxes shows them"
        )
    return rows
