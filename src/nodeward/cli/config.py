"""`nodeward config`: settings, checked, shown with their sources, and described."""

import json
import os
import sys

import click

from nodeward.cli import exits
from nodeward.cli.flags import output_option, print_data, set_option


@click.group("config")
def command() -> None:
    """Check settings, show where each comes from, or print their schema.

    \b
    Examples:
      nodeward config show --config /etc/nodeward.yaml
      nodeward config check /etc/nodeward.yaml
      nodeward config schema > nodeward.schema.json
    """


def _warn() -> None:
    """Prints which variables are not read, though they surely mean a setting."""
    from nodeward.settings import load as settings

    for warning in settings.misnamed(os.environ):
        print(f"warning: {warning}", file=sys.stderr)


@command.command("check")
@click.argument("path", type=click.Path(dir_okay=False))
def check(path: str) -> None:
    """Print every fault of a settings file with its path, and where it comes from; exit with 1 if there is one.

    The environment counts as well, as for the daemon.
    """
    from nodeward.settings import load as settings

    _warn()
    try:
        settings.load(path, os.environ)
    except settings.SettingsError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        sys.exit(exits.FAILED)
    print(f"{path}: no faults")


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of the settings file."""
    from nodeward.settings import load as settings

    print(json.dumps(settings.schema(), indent=2))


@command.command("show")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@set_option("limits.mode=observe")
@click.option("--changed", is_flag=True, help="Only those that are not by default.")
@output_option()
def show(config_path: str | None, flags: dict[str, str], changed: bool, output: str) -> None:
    """Print every setting that a daemon would begin with, its value, and where that comes from.

    A source is the default, a file with its line, an environment variable, or a flag. A running daemon may hold others:
    see `nodeward status`.

    \b
    Examples:
      nodeward config show --config /etc/nodeward.yaml --changed
      NODEWARD_LIMITS__MODE=observe nodeward config show -o json | jq '.[] | select(.path == "limits.mode")'
    """
    import msgspec

    from nodeward.core.text import printable
    from nodeward.features.cpus.settings import Amount
    from nodeward.settings import load as settings

    _warn()
    try:
        found = settings.sourced(config_path, os.environ, flags)
    except settings.SettingsError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        sys.exit(exits.FAILED)
    rows = [
        {
            "path": path,
            "value": str(value) if isinstance(value, Amount) else msgspec.to_builtins(value),
            "source": source,
        }
        for path, value, source in found
        if not changed or source != settings.DEFAULT
    ]
    if print_data(rows, output):
        return
    for row in rows:
        value = row["value"] if isinstance(row["value"], str) else json.dumps(row["value"])
        print(printable(f"{row['path']} = {value}  ({row['source']})"))
