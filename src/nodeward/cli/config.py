"""`nodeward config`: settings, checked and described."""

import json
import os
import sys

import click


@click.group("config")
def command() -> None:
    """Check settings, or print their schema.

    \b
    Examples:
      nodeward config check /etc/nodeward.yaml
      nodeward config schema > nodeward.schema.json
    """


@command.command("check")
@click.argument("path", type=click.Path(dir_okay=False))
def check(path: str) -> None:
    """Print every fault of a settings file with its path, and where it comes from; exit with 1 if there is one.

    The environment counts as well, as for the daemon.
    """
    from nodeward.app.settings import load as settings

    for warning in settings.misnamed(os.environ):
        print(f"warning: {warning}", file=sys.stderr)
    try:
        settings.load(path, os.environ)
    except settings.SettingsError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        sys.exit(1)
    print(f"{path}: no faults")


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of the settings file."""
    from nodeward.app.settings import load as settings

    print(json.dumps(settings.schema(), indent=2))
