"""`nodeward keys`: TEE keys and who holds them, as text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nodeward.model.view import KeyRow


@click.command("keys")
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(socket: str | None, output: str) -> None:
    """Show TEE keys: how many the kernel has, who was promised and who holds them, what is free and why.

    The daemon counts them where ledger.mode is observe.

    \b
    Examples:
      nodeward keys
      nodeward keys -o json | jq '.[] | {key, free}'
      nodeward keys -o json | jq '.[].elsewhere'
    """
    import msgspec

    from nodeward.cli import client
    from nodeward.model.view import NodeView

    view = msgspec.json.decode(client.get("/v1/status", socket), type=NodeView)
    if output == "json":
        print(msgspec.json.encode(view.keys).decode())
        return
    if not view.keys:
        print("keys are not counted: set ledger.mode to observe in the daemon's settings and restart it")
    for row in view.keys:
        print("\n".join(lines(row)))


def lines(row: "KeyRow") -> Iterator[str]:
    """One kind of key for people."""
    yield f"{row.key} ({', '.join(row.resources) or 'no resource'}): {row.sentence}"
    if row.used is None:
        return
    yield (
        f"  {row.used} of {row.capacity} in use, {row.charged} of them by pods that were promised {row.entitled}; "
        f"read {(row.age_ms or 0) / 1000:.1f} s ago"
    )
    for holder in row.holders:
        name = f"{holder.namespace}/{holder.pod}" if holder.pod else f"pod {holder.uid}, which is not known"
        charged = "nothing that is known" if holder.charged is None else str(holder.charged)
        yield f"  {name}: promised {holder.entitled}, holds {charged}"
    for other in row.elsewhere:
        yield f"  {other.cgroup}: holds {other.amount} ({other.about})"
