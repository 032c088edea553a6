"""`nodeward config`: settings, checked and described."""

import json
import os
import sys
from typing import TYPE_CHECKING

import click

from nodeward.cli.flags import set_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT = "default"
TABLES = ("policy.balloons", "policy.podpools", "policy.static_pools", "policy.dynamic_pools", "policy.static_plus")
"""Sections within a section."""


@click.group("config")
def command() -> None:
    """Check settings, show those that hold, or print their schema.

    \b
    Examples:
      nodeward config check /etc/nodeward.yaml
      nodeward config show --config /etc/nodeward.yaml --changed
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


@command.command("show")
@click.option("--config", "path", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@set_option("limits.mode=observe")
@click.option("--changed", is_flag=True, help="Only settings that somebody has set.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show(path: str | None, flags: dict[str, str], changed: bool, output: str) -> None:
    """Print every setting that holds, and where it was set: the file and line, the environment, a flag, or the default.

    \b
    Examples:
      nodeward config show --config /etc/nodeward.yaml
      nodeward config show --config /etc/nodeward.yaml --changed
      NODEWARD_LIMITS__MODE=observe nodeward config show -o json | jq '."limits.mode"'
    """
    import msgspec

    from nodeward.app.settings import load as settings

    sources: dict[str, str] = {}
    tree = settings.read_yaml(path) if path else {}
    chosen = settings.from_tree(tree, os.environ, flags, sources=sources)
    found = {
        name: {"value": value, "source": _source(name, sources)}
        for name, value in _flat(msgspec.to_builtins(chosen), "")
    }
    if changed:
        found = {name: one for name, one in found.items() if one["source"] != DEFAULT}
    if output == "json":
        print(json.dumps(found, indent=2))
        return
    for name, one in found.items():
        print(f"{name}: {json.dumps(one['value'])}   ({one['source']})")


def _flat(value: object, above: str) -> "Iterator[tuple[str, object]]":
    """Each setting by its dotted path; a table is one value where its names are a user's."""
    if isinstance(value, dict) and value and (above == "" or above.count(".") < 1 or above in TABLES):
        for name, one in value.items():
            yield from _flat(one, f"{above}.{name}".lstrip("."))
    else:
        yield above, value


def _source(name: str, sources: "Mapping[str, str]") -> str:
    """Of the setting itself, of something within it, or of what it is in."""
    if name in sources:
        return sources[name]
    within = [source for one, source in sources.items() if one.startswith((f"{name}.", f"{name}["))]
    return within[0] if within else DEFAULT


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of the settings file."""
    from nodeward.app.settings import load as settings

    print(json.dumps(settings.schema(), indent=2))
