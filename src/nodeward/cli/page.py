"""`nodeward page`: serves the node as a web page."""

import asyncio
import os
import sys

import click

from nodeward.cli import exits
from nodeward.cli.flags import set_option

DEFAULT = "127.0.0.1:9744"


@click.command("page")
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("--listen", default=DEFAULT, show_default=True, metavar="HOST:PORT", help="Where the page is.")
@click.option("--any-port", is_flag=True, help="Take another port where that one is taken.")
@click.option(
    "--allow-host", "allowed", multiple=True, metavar="NAME", help="Answer to this host name too; can be repeated."
)
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="Settings file: doctor looks by it.")
@set_option("kube.enabled=false")
def command(
    socket: str | None,
    listen: str,
    any_port: bool,
    allowed: tuple[str, ...],
    config_path: str | None,
    flags: dict[str, str],
) -> None:
    """Show this node as a web page, until Ctrl-C or SIGTERM. Reads the daemon's socket and changes nothing.

    There is no login: whoever reaches the address reads the names of pods and what they use. From another machine:
    `ssh -L 9744:127.0.0.1:9744 NODE`.

    Exit code: 0 ended by a signal, 1 the address cannot be had, 2 a usage error.

    \b
    Examples:
      nodeward page
      nodeward page --config /etc/nodeward.yaml
      nodeward page --listen 127.0.0.1:9800 --socket /run/nodeward/nodeward.sock
    """
    from nodeward.host import process
    from nodeward.people import client
    from nodeward.programs import page
    from nodeward.settings import load as settings
    from nodeward.settings.checks import address

    found = address(listen)
    if found is None:
        raise click.BadParameter(f"{listen!r} is no address with a port, such as {DEFAULT}", param_hint="--listen")
    chosen = settings.load(config_path, os.environ, flags) if config_path else None
    process.set_up_logs("warning")

    def serving(port: int) -> None:
        host = f"[{found[0]}]" if ":" in found[0] else found[0]
        print(f"page: http://{host or '127.0.0.1'}:{port}/", flush=True)

    given = page.PageOptions(client.socket_path(socket), *found, any_port, allowed, chosen)
    try:
        asyncio.run(process.until_signal(page.run(given, serving)))
    except OSError as error:
        print(f"nodeward: {process.cannot_listen(f'--listen {listen}', error)}, or give --any-port", file=sys.stderr)
        sys.exit(exits.FAILED)
