"""`nodeward setup cdi`: the OCI hook as a CDI device."""

import sys

import click

from nodeward.cli.setup.hook import chosen, hook_options


@click.command("cdi")
@hook_options
def command(path: str | None, on_error: str, folder: str) -> None:
    """Print a CDI spec with the device nodeward.io/epc=limit: a container that asks for it gets the OCI hook.

    \b
    Examples:
      nodeward setup cdi > /etc/cdi/nodeward.json
      nodeward setup cdi --on-error refuse
    """
    from nodeward.neighbours.hook import install

    sys.stdout.write(install.cdi(chosen(path, on_error, folder)).decode())
